"""The ASGI application: what is served at which path, and for how long (spec/http.md).

It starts and stops with the lifespan events of its host. Where none come, as when it is mounted in
another application, that one enters `lifespan`; else it starts with the first request, and nobody
stops it. It belongs to the event loop that it started on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from attrs import define, field

from ...errors import JsonRpcErrorCode, UsageError, describe_exception
from ...protocol.jsonrpc import encode
from .authentication import make_authenticator
from .endpoint import SERVER_STOPS, STOPPING, Endpoint, Visit
from .events import MemoryEventStore
from .guard import ClientGone, make_guard, with_cors, with_security_headers
from .headers import method_not_allowed, read_head
from .legacy import MESSAGES_PATH, STREAM_PATH, LegacyEndpoint
from .refusal import HttpRefusal
from .responses import send_body, send_json
from .sessions import SessionTable, session_quota

if TYPE_CHECKING:
    from ...middleware.metrics import Metrics
    from ...runtime import Runtime
    from .authentication import Authenticator
    from .events import EventStore
    from .guard import App, Guard
    from .streams import Receive, Scope, Send

HEALTH_PATH = "/healthz"
READY_PATH = "/readyz"
METRICS_PATH = "/metrics"

_READABLE_BY_ALL = ((b"access-control-allow-origin", b"*"),)
_CLOSE = (b"connection", b"close")

_SWEEP_SECONDS = 10.0
_POLL_SECONDS = 0.02
_LOG_SECONDS = 0.2

_AUDITED = {
    401: "AUTHENTICATION_FAILED",
    403: "ACCESS_DENIED",
    421: "ACCESS_DENIED",
    429: "RATE_LIMIT_EXCEEDED",
}
"""What the audit log calls the refusals that it is told of, by their status (OPS-12)."""

_NOT_FOUND = HttpRefusal(404, "There is nothing at this path", reason="path_not_found")
_FAILED = HttpRefusal(500, "Internal error", JsonRpcErrorCode.INTERNAL_ERROR, "internal_error")


@define(eq=False, repr=False)
class _Service:
    """What serves from a start to a stop, on one event loop."""

    loop: asyncio.AbstractEventLoop
    endpoint: Endpoint = field(init=False)
    legacy: LegacyEndpoint = field(init=False)
    sweeper: asyncio.TimerHandle | None = field(default=None, init=False)
    closed: bool = field(default=False, init=False)

    def sweep(self) -> None:
        """Close sessions that have been idle for too long, now and again."""
        self.endpoint.sessions.expire()
        self.sweeper = self.loop.call_later(_SWEEP_SECONDS, self.sweep)

    def close(self) -> None:
        """Abort what runs, and end every session."""
        self.closed = True
        if self.sweeper is not None:
            self.sweeper.cancel()
        self.endpoint.close()
        self.legacy.close()


@define(eq=False, repr=False)
class HttpApplication:
    """A server as an ASGI application; `Server.asgi_app` makes it.

    Args:
        path: of the endpoint, below the path at which the application is mounted.

    Raises:
        UsageError: nobody is kept out, and nobody said that this is meant.
    """

    runtime: Runtime
    path: str
    _guard: Guard = field(init=False)
    _authenticator: Authenticator = field(init=False)
    _app: App = field(init=False)
    _paths: dict[str, Callable[[_Service, Visit], Awaitable[HttpRefusal | None]]] = field(
        init=False
    )
    _metadata_paths: tuple[str, ...] = field(default=(), init=False)
    _metadata: bytes = field(default=b"", init=False)
    _service: _Service | None = field(default=None, init=False)
    _starting: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _stopping: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        config = self.runtime.config
        self._guard = make_guard(config.http)
        self._authenticator = make_authenticator(config, self.runtime.clock, self.runtime.logger)
        self._paths = {
            self.path: lambda service, visit: service.endpoint.handle(visit),
            STREAM_PATH: lambda service, visit: service.legacy.open_stream(visit),
            MESSAGES_PATH: lambda service, visit: service.legacy.take_message(visit),
        }
        if self.runtime.metrics is not None:
            self._paths[METRICS_PATH] = partial(_tell_metrics, self.runtime.metrics)
        oauth = self._authenticator.oauth
        if oauth is not None:
            self._metadata_paths, self._metadata = oauth.metadata_paths, oauth.metadata
        self._app = with_security_headers(with_cors(self._serve, config.http.cors_origins))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI: requests, and the lifespan of the host."""
        if scope["type"] == "http":
            await self._app(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._follow_host(receive, send)
        else:
            await send({"type": "websocket.close"})

    # -- lifespan ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to serve; once it has begun, a further call does nothing.

        Raises:
            LifespanError: a hook of the server could not be entered.
        """
        async with self._starting:
            if self._service is None:
                await self.runtime.start_lifespan()
                self._stopping = False
                try:
                    self._service = await self._make_service()
                except BaseException:
                    await self.runtime.stop_lifespan()
                    raise

    def begin_stop(self) -> None:
        """Take no new requests; those who only listen are told that it is over (HTTP-16)."""
        self._stopping = True
        if self._service is not None:
            self._service.endpoint.stop_listening()
            self._service.legacy.close()

    async def stop(self, timeout: float) -> None:
        """Abort what runs, wait for its end, and leave the lifespan.

        Args:
            timeout: seconds that all of it may take.
        """
        until = time.monotonic() + timeout
        async with self._starting:
            service, self._service = self._service, None
            if service is None:
                return
            self._stopping = True
            service.close()
            self.runtime.stop_tasks(SERVER_STOPS)
            while self.runtime.engine.running and time.monotonic() < until:
                await asyncio.sleep(_POLL_SECONDS)
            await self.runtime.stop_agents()
            await self.runtime.stop_lifespan(max(0.0, until - time.monotonic()))
            await self.runtime.close_operations()
            await service.endpoint.events.close()
            # The host may end its process by a signal now: what is buffered would be lost.
            self.runtime.flush_logs(_LOG_SECONDS)

    @asynccontextmanager
    async def lifespan(self, host: object = None) -> AsyncIterator[None]:
        """The time in which the application that this one is mounted in serves (HTTP-24).

        Args:
            host: that application, as Starlette and FastAPI give it; it is not looked at.

        Raises:
            LifespanError: a hook of the server could not be entered.
        """
        await self.start()
        try:
            yield
        finally:
            await self._end()

    async def _end(self) -> None:
        self.begin_stop()
        await self.stop(self.runtime.config.server.shutdown_timeout_ms / 1000)

    def abandon(self) -> None:
        """Time is up: what runs is aborted, every response ends. From any thread."""
        if self._service is not None:
            self._service.endpoint.close()

    async def _make_service(self) -> _Service:
        runtime, config = self.runtime, self.runtime.config.http
        events = _make_event_store(runtime)
        await events.start()
        service = _Service(asyncio.get_running_loop())
        scheduler = runtime.use_loop(service.loop, service)
        quota, gives_way = session_quota(runtime.config), runtime.config.has_shares()
        table = partial(SessionTable, runtime.clock, config.session_idle_ms, quota, gives_way)
        service.endpoint = Endpoint(
            runtime, config, scheduler, self._authenticator, table(), events
        )
        service.legacy = LegacyEndpoint(service.endpoint, table())
        service.sweep()
        runtime.start_agents(scheduler)
        return service

    async def _follow_host(self, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            if event["type"] == "lifespan.startup":
                try:
                    await self.start()
                except Exception as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._end()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # -- requests ------------------------------------------------------------------------------

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            refusal = await self._answer(scope, receive, send)
        except ClientGone:
            return
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            refusal = STOPPING  # something else than a call was waited for, a key for instance
        except Exception as error:
            self.runtime.logger.error("internal error", {"error": describe_exception(error)})
            refusal = _FAILED
        if refusal is not None:
            # Where the response has begun already, the server ends the connection instead.
            with suppress(RuntimeError):
                await self._refuse(scope, send, refusal)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> HttpRefusal | None:
        mount = str(scope.get("root_path", ""))
        path = str(scope["path"]).removeprefix(mount) or "/"
        serve = self._paths.get(path)
        if serve is None:
            return await self._answer_anybody(path, send)
        if self._stopping:
            return STOPPING
        head = read_head(scope["headers"])
        if isinstance(head, HttpRefusal):
            return head
        refusal = self._guard.check(head)
        if refusal is not None:
            return refusal
        principal = await self._authenticator.authenticate(head, mount)
        if isinstance(principal, HttpRefusal):
            return principal
        service = self._service
        if service is None or service.loop is not asyncio.get_running_loop():
            self._leave_closed_loop()
            await self.start()
            service = self._service
            assert service is not None
        return await serve(service, Visit(head, principal, scope, receive, send))

    def _leave_closed_loop(self) -> None:
        """With a loop that was closed went what served on it.

        Raises:
            UsageError: the application serves on another loop, which is not closed.
        """
        if self._service is None:
            return
        if not self._service.loop.is_closed():
            raise UsageError(
                "the application serves on another event loop; call server.asgi_app() for each"
            )
        self._service.closed = True
        self._service, self._starting = None, asyncio.Lock()

    async def _answer_anybody(self, path: str, send: Send) -> HttpRefusal | None:
        """What has no secret, and is kept from nobody."""
        if path in (HEALTH_PATH, READY_PATH):
            await self._tell_health(send, path)
        elif path in self._metadata_paths:
            await send_json(send, 200, self._metadata, _READABLE_BY_ALL)
        else:
            return _NOT_FOUND
        return None

    async def _tell_health(self, send: Send, path: str) -> None:
        """HTTP-19: whether the process is up; whether it accepts work."""
        status = "ok"
        if path == READY_PATH:
            status = self._readiness()
        await send_json(send, 200 if status == "ok" else 503, encode({"status": status}))

    def _readiness(self) -> str:
        if self._stopping:
            return "stopping"
        if self._service is None:
            return "starting"
        if self.runtime.resources.get_health_status() == "unhealthy":
            return "overloaded"
        return "ok"

    async def _refuse(self, scope: Scope, send: Send, refusal: HttpRefusal) -> None:
        if self.runtime.audit is not None and refusal.status in _AUDITED:
            address = (scope.get("client") or ("",))[0]
            metadata = {"reason": refusal.reason, "path": scope["path"], "address": address}
            event_type = _AUDITED[refusal.status]
            self.runtime.audit.write(event_type, "SECURITY", False, metadata=metadata)
        headers = refusal.headers
        if scope["method"] == "POST" and scope["http_version"].startswith("1"):
            # Its body may not have been read, and is not waited for.
            headers = (*(each for each in headers if each != _CLOSE), _CLOSE)
        body = refusal.body(self.runtime.ids.connection_correlation_id())
        await send_json(send, refusal.status, body, headers)


async def _tell_metrics(metrics: Metrics, service: _Service, visit: Visit) -> HttpRefusal | None:
    """OPS-14: the numbers for Prometheus, to whoever may use the server."""
    if visit.scope["method"] != "GET":
        return method_not_allowed("GET")
    content_type, body = metrics.render()
    await send_body(visit.send, 200, content_type.encode(), body)
    return None


def _make_event_store(runtime: Runtime) -> EventStore:
    config = runtime.config.http
    if config.event_store == "memory":
        return MemoryEventStore(runtime.clock, config.max_events, config.event_ttl_ms)
    from .events_redis import RedisEventStore

    return RedisEventStore(
        config.event_store,
        runtime.logger,
        config.max_events,
        config.event_ttl_ms,
        config.session_idle_ms,
    )
