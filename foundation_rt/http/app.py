"""The ASGI application: paths, authentication, start and stop (spec/http.md).

It starts and stops with the lifespan events of its host. Where the host sends none, as when the
application is mounted in another one, the host enters `lifespan`. Otherwise the application starts
with its first request and is never stopped. It belongs to the event loop on which it started.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from ..base.lazy_names import lazy
from ..errors import JsonRpcErrorCode, UsageError, describe_exception
from ..features.subscriptions.feature import publisher_of
from ..features.tasks.feature import Tasks
from ..kernel.engine.shutdown import FINAL_FLUSH_SECONDS, POLL_SECONDS
from ..protocol.jsonrpc import encode
from ..protocol.plain_values import write_json
from .asgi import (
    CLOSE,
    JSON_TYPE,
    NOTE_HEAD,
    HttpRefusal,
    encode_headers,
    security_headers,
    send_body,
    send_json,
    with_cors,
    with_forwarded_scheme,
    with_security_headers,
)
from .auth.authentication import make_authenticator
from .endpoint import STOPPING, Endpoint
from .event_store import MemoryEventStore
from .headers import check_post, make_header_selection, method_not_allowed, read_head
from .host_check import make_host_check
from .known_heads import KnownHead, KnownRequest
from .legacy import MESSAGES_PATH, STREAM_PATH, LegacyEndpoint
from .request import ClientGone, HttpRequest
from .session import SERVER_STOPS
from .session_table import SessionTable, session_quota

if TYPE_CHECKING:
    from ..features.composition import ServerRuntime
    from ..features.http_pages import HttpPage
    from ..features.metrics import Metrics
    from ..features.readiness import ReadinessChecks
    from .asgi import App, Receive, Scope, Send
    from .auth.authentication import Authenticator
    from .auth.oauth import ResourceServer
    from .cluster.worker_group import WorkerGroup
    from .cluster.worker_metrics import WorkerMetrics
    from .event_store import EventStore
    from .headers import HeaderSelection, RequestHead
    from .host_check import HostCheck
    from .mounted_app import MountedService

HEALTH_PATH = "/healthz"
READY_PATH = "/readyz"
METRICS_PATH = "/metrics"

_READABLE_BY_ALL = ((b"access-control-allow-origin", b"*"),)

_SWEEP_SECONDS = 10.0

_AUDITED = {
    401: "AUTHENTICATION_FAILED",
    403: "ACCESS_DENIED",
    421: "ACCESS_DENIED",
    429: "RATE_LIMIT_EXCEEDED",
}
"""The audit events of refusals, by HTTP status (OPS-12)."""

_FAILED = HttpRefusal(500, "Internal error", JsonRpcErrorCode.INTERNAL_ERROR, "internal_error")


class LoginService(Protocol):
    """The logins of people to this server, at paths that need no token (AUTHZ-01).

    Attributes:
        paths: the paths that it answers at.
        resource_server: verifies its tokens.
    """

    paths: frozenset[str]
    resource_server: ResourceServer

    async def start(self, is_one_of_several: bool) -> None:
        """Begin to serve, on this event loop."""

    async def close(self) -> None:
        """End what `start` has begun."""

    async def serve(
        self, scope: Scope, receive: Receive, send: Send, path: str, head: RequestHead
    ) -> HttpRefusal | None:
        """Answer a request at one of the paths, or return why it is refused."""


_make_login_service: Callable[[ServerRuntime, str], LoginService] = lazy(
    f"{__package__}.authorization_server.server", "AuthorizationServer"
)
"""It stands on the client's HTTP, so it is known by name alone."""


@define(eq=False, repr=False)
class _Service:
    """The endpoints from a start to a stop, on one event loop."""

    loop: asyncio.AbstractEventLoop
    endpoint: Endpoint = field(init=False)
    legacy: LegacyEndpoint = field(init=False)
    sweeper: asyncio.TimerHandle | None = field(default=None, init=False)
    closed: bool = field(default=False, init=False)

    def sweep(self) -> None:
        """Close sessions that have been idle for too long, now and at intervals."""
        self.endpoint.sessions.expire()
        self.sweeper = self.loop.call_later(_SWEEP_SECONDS, self.sweep)

    def close(self) -> None:
        """Abort all calls, and end every session."""
        self.closed = True
        if self.sweeper is not None:
            self.sweeper.cancel()
        self.endpoint.close()
        self.legacy.close()


@define(eq=False, repr=False)
class HttpApplication:
    """A server as an ASGI application; `Server.asgi_app` makes it.

    Args:
        path: the endpoint's path, below the path at which the application is mounted.

    Attributes:
        group: the workers that share its clients; set before it starts, if there are any.

    Raises:
        UsageError: authentication is neither configured nor turned off, a header that handlers
            get is the server's own, or a page of the application has a path of the runtime.
    """

    runtime: ServerRuntime
    path: str
    group: WorkerGroup | None = field(default=None, init=False)
    _host_check: HostCheck = field(init=False)
    _authenticator: Authenticator = field(init=False)
    _header_selection: HeaderSelection = field(init=False)
    _app: App = field(init=False)
    _mounted: MountedService | None = field(default=None, init=False)
    _login: LoginService | None = field(default=None, init=False)
    _paths: dict[str, Callable[[_Service, HttpRequest], Awaitable[HttpRefusal | None]]] = field(
        init=False
    )
    _metadata_paths: tuple[str, ...] = field(default=(), init=False)
    _metadata: bytes = field(default=b"", init=False)
    _service: _Service | None = field(default=None, init=False)
    _worker_metrics: WorkerMetrics | None = field(default=None, init=False)
    _knows_heads: bool = field(default=False, init=False)
    _starting: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _stopping: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        config = self.runtime.config
        self._host_check = make_host_check(config.http, config.authorization.url)
        mounted = self.runtime.http_app
        token = None if mounted is None else mounted.page_token
        own_tokens = None
        if config.authorization.url is not None:
            self._login = _make_login_service(self.runtime, self.path)
            own_tokens = self._login.resource_server
        elif config.authorization.provider is not None:
            raise UsageError("authorization.url is missing: set the public URL of the server")
        self._authenticator = make_authenticator(
            config, self.runtime.clock, self.runtime.logger, token, own_tokens
        )
        if mounted is not None:
            from .mounted_app import MountedService

            self._mounted = MountedService(mounted, self._authenticator)
        self._header_selection = make_header_selection(config)
        self._paths = {}
        if self.runtime.serves_endpoint:
            self._paths = {
                self.path: lambda service, request: service.endpoint.handle(request),
                STREAM_PATH: lambda service, request: service.legacy.open_stream(request),
                MESSAGES_PATH: lambda service, request: service.legacy.handle_message(request),
            }
            self._paths |= {f"{path}/": serve for path, serve in self._paths.items()}
        if self.runtime.metrics is not None:
            self._paths[METRICS_PATH] = partial(self._send_metrics, self.runtime.metrics)
        for path, page in self.runtime.http_pages.items():
            if path in self._paths or self._is_open(path):
                raise UsageError(f"http_get: {path} is a path of the runtime: choose another")
            self._paths[path] = partial(_send_page, page)
        oauth = self._authenticator.oauth
        if oauth is not None:
            self._metadata_paths, self._metadata = oauth.metadata_paths, oauth.metadata
        secured = with_security_headers(with_cors(self._serve, config.http.cors_origins))
        self._app = with_forwarded_scheme(secured, config.http.trusted_proxies)
        # What is around the application sees every request.
        self._knows_heads = not (config.http.cors_origins or self.runtime.http_middleware)
        for around in reversed(self.runtime.http_middleware):
            self._app = around(self._app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or follow the lifespan of the host, as ASGI has it."""
        if scope["type"] == "http":
            await self._app(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._follow_host(receive, send)
        else:
            await self._guarded(self._respond_to_socket, scope, receive, send)

    # -- lifespan --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to serve; further calls do nothing.

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
        """Take no new requests, and end the streams of clients that only listen (HTTP-16)."""
        self._stopping = True
        if self._service is not None:
            self._service.endpoint.stop_listening()
            self._service.legacy.close()
        if self._mounted is not None:
            self._mounted.stop_listening()

    async def stop(self, timeout: float) -> None:
        """Abort all calls, wait until they have ended, and leave the lifespan.

        Args:
            timeout: the time for all of it, in seconds.
        """
        until = time.monotonic() + timeout
        async with self._starting:
            service, self._service = self._service, None
            if service is None:
                return
            self._stopping = True
            service.close()
            if self._mounted is not None:
                self._mounted.close()
            self.runtime.stop_features(SERVER_STOPS)
            while self.runtime.engine.running and time.monotonic() < until:
                await asyncio.sleep(POLL_SECONDS)
            if self._worker_metrics is not None:
                await self._worker_metrics.save()
            await self.runtime.stop_background()
            await self.runtime.stop_lifespan(max(0.0, until - time.monotonic()))
            await self.runtime.close_features()
            if self._login is not None:
                await self._login.close()
            await service.endpoint.events.close()
            if self.group is not None:
                publisher_of(self.runtime.engine).relay = None
                await self.group.close()
            # The host may end its process by a signal now, and with it the buffered log lines.
            self.runtime.flush_logs(FINAL_FLUSH_SECONDS)

    @asynccontextmanager
    async def lifespan(self, host: object = None) -> AsyncIterator[None]:
        """Serve while the application serves in which this one is mounted (HTTP-24).

        Args:
            host: that application, as Starlette and FastAPI pass it; unused.

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
        """Abort all calls and end every response, since time is up; from any thread."""
        if self._service is not None:
            self._service.endpoint.close()
        if self._mounted is not None:
            self._mounted.close()

    async def _make_service(self) -> _Service:
        runtime, config = self.runtime, self.runtime.config.http
        events = _make_event_store(runtime)
        await events.start()
        if self.group is not None:
            runtime.dispatcher.parts[Tasks].new_id = self.group.new_task_id
            publisher = publisher_of(runtime.engine)
            await self.group.start(publisher)
            if not runtime.dispatcher.knows:  # else each worker learns of changes by itself
                publisher.relay = self.group.events.announce
            if runtime.metrics is not None and self.group.folder is not None:
                from .cluster.worker_metrics import WorkerMetrics

                self._worker_metrics = WorkerMetrics(runtime.metrics, self.group, self.group.folder)
        if self._login is not None:
            await self._login.start(self.group is not None)
        service = _Service(asyncio.get_running_loop())
        scheduler = runtime.embedding.use_loop(service.loop, service)
        quota, gives_way = session_quota(runtime.config), runtime.config.has_shares()
        table = partial(SessionTable, runtime.clock, config.session_idle_ms, quota, gives_way)
        service.endpoint = Endpoint(
            runtime, config, scheduler, self._authenticator, table(), events, self.group
        )
        service.legacy = LegacyEndpoint(service.endpoint, table())
        service.sweep()
        runtime.start_background(scheduler)
        return service

    async def _send_metrics(
        self, metrics: Metrics, service: _Service, request: HttpRequest
    ) -> HttpRefusal | None:
        """Send the metrics for Prometheus to an authenticated client (OPS-14, OPS-27)."""
        if request.scope["method"] != "GET":
            return method_not_allowed("GET")
        if self._worker_metrics is not None:
            content_type, body = await self._worker_metrics.read(request)
        else:
            content_type, body = await metrics.read()
        await send_body(request.send, 200, content_type.encode(), body)
        return None

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

    # -- requests --------------------------------------------------------------------------------

    def _serve(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self._guarded(self._respond, scope, receive, send)

    async def _guarded(
        self,
        respond: Callable[[Scope, Receive, Send], Awaitable[HttpRefusal | None]],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Send the refusal that `respond` returns or ends in."""
        try:
            refusal = await respond(scope, receive, send)
        except ClientGone:
            return
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            refusal = STOPPING  # the request waited for something else than a call, such as a key
        except Exception as error:
            self.runtime.logger.error("internal error", {"error": describe_exception(error)})
            refusal = _FAILED
        if refusal is not None:
            # If the response has begun, the HTTP server ends the connection instead.
            with suppress(RuntimeError):
                await self._refuse(scope, send, refusal)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> HttpRefusal | None:
        mount = str(scope.get("root_path", ""))
        path = str(scope["path"]).removeprefix(mount) or "/"
        serve = self._paths.get(path)
        if serve is None:
            if self._mounted is None or self._is_open(path):
                return await self._respond_without_auth(scope, receive, send, path, mount)
            return await self._respond_by_app(self._mounted, scope, receive, send, path, mount)
        head = self._checked_head(scope)
        if isinstance(head, HttpRefusal):
            return head
        principal = await self._authenticator.authenticate(head, mount)
        if isinstance(principal, HttpRefusal):
            return principal
        headers = self._header_selection.read(scope["headers"])
        if isinstance(headers, HttpRefusal):
            return headers
        service = self._service
        if service is None or service.loop is not asyncio.get_running_loop():
            service = await self._start_here()
        if self._knows_heads and path == self.path and scope["method"] == "POST":
            self._note_head(scope, head, headers, mount)
        return await serve(service, HttpRequest(head, principal, scope, receive, send, headers))

    def _note_head(
        self, scope: Scope, head: RequestHead, headers: Mapping[str, str], mount: str
    ) -> None:
        """Let the connection answer further requests with the same head in place (HTTP-80)."""
        note = scope.get("extensions", {}).get(NOTE_HEAD)
        if note is not None and head.transfer_encoding is None and check_post(head) is None:
            fields = encode_headers((JSON_TYPE, *security_headers(scope)))
            note(KnownHead(head, headers, scope, mount, fields, self._respond_again))

    def _respond_again(self, exchange: KnownRequest) -> Coroutine[Any, Any, None]:
        respond = partial(self._respond_known, exchange)
        return self._guarded(respond, exchange.head.scope, exchange.receive, exchange.send)

    async def _respond_known(
        self, exchange: KnownRequest, scope: Scope, receive: Receive, send: Send
    ) -> HttpRefusal | None:
        """Respond to a POST with a known head: check what may have changed since."""
        if self._stopping:
            return self._refuse_while_stopping(scope)
        service, known = self._service, exchange.head
        assert service is not None
        head = known.head
        if self._may_wait(service, head):
            await asyncio.sleep(0)  # the rest is in a task, as `asyncio.timeout` wants it
        principal = await self._authenticator.authenticate(head, known.mount)
        if isinstance(principal, HttpRefusal):
            return principal
        take = exchange.take_reply
        request = HttpRequest(head, principal, scope, receive, send, known.headers, take)
        responding = service.endpoint.take_body(request, exchange.take_body())
        return responding if isinstance(responding, HttpRefusal) else await responding

    def _may_wait(self, service: _Service, head: RequestHead) -> bool:
        """Return whether an issuer, another worker or a store may be asked about a request."""
        if self._authenticator.oauth is not None:
            return True
        asks = self.group is not None or self.runtime.engine.opening
        return bool(asks) and head.session_id not in service.endpoint.sessions

    def _refuse_while_stopping(self, scope: Scope) -> HttpRefusal:
        return STOPPING if self.group is None else self.group.put_off(scope, STOPPING)

    def _checked_head(self, scope: Scope) -> RequestHead | HttpRefusal:
        if self._stopping:
            return self._refuse_while_stopping(scope)
        head = read_head(scope["headers"])
        if isinstance(head, HttpRefusal):
            return head
        return self._host_check.check(head) or head

    async def _start_here(self) -> _Service:
        self._leave_closed_loop()
        await self.start()
        assert self._service is not None
        return self._service

    async def _respond_to_socket(
        self, scope: Scope, receive: Receive, send: Send
    ) -> HttpRefusal | None:
        """Hand a WebSocket to the application of the author, or return why it is refused."""
        mount = str(scope.get("root_path", ""))
        path = str(scope["path"]).removeprefix(mount) or "/"
        mounted = self._mounted
        if mounted is None or not mounted.takes_sockets:
            return self._not_found(mount)
        if path in self._paths or self._is_open(path):
            return self._not_found(mount)
        return await self._respond_by_app(mounted, scope, receive, send, path, mount)

    async def _respond_by_app(
        self,
        mounted: MountedService,
        scope: Scope,
        receive: Receive,
        send: Send,
        path: str,
        mount: str,
    ) -> HttpRefusal | None:
        """Let the application of the author respond, or return why it may not (HTTP-39)."""
        head = self._checked_head(scope)
        if isinstance(head, HttpRefusal):
            return head
        principal = await mounted.authenticate(scope, head, path, mount)
        if isinstance(principal, HttpRefusal):
            return principal
        if self._service is None or self._service.loop is not asyncio.get_running_loop():
            await self._start_here()
        await mounted.serve(scope, receive, send, principal)
        return None

    def _leave_closed_loop(self) -> None:
        """Forget the service of a closed event loop.

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

    def _is_open(self, path: str) -> bool:
        """Return whether the runtime answers at a path without asking who it is."""
        if path in (HEALTH_PATH, READY_PATH) or path in self._metadata_paths:
            return True
        return self._login is not None and path in self._login.paths

    async def _respond_without_auth(
        self, scope: Scope, receive: Receive, send: Send, path: str, mount: str
    ) -> HttpRefusal | None:
        """Answer at the paths that hold no secret and are open to everyone."""
        if self._login is not None and path in self._login.paths:
            head = self._checked_head(scope)
            if isinstance(head, HttpRefusal):
                return head
            if self._service is None or self._service.loop is not asyncio.get_running_loop():
                await self._start_here()
            return await self._login.serve(scope, receive, send, path, head)
        if path in (HEALTH_PATH, READY_PATH):
            await self._send_health(send, path)
        elif path in self._metadata_paths:
            await send_json(send, 200, self._metadata, _READABLE_BY_ALL)
        elif path == "/" and self.runtime.serves_endpoint and scope["method"] in ("GET", "HEAD"):
            text = f"The MCP endpoint is at {mount}{self.path}\n"
            await send_body(send, 200, b"text/plain; charset=utf-8", text.encode())
        else:
            return self._not_found(mount)
        return None

    def _not_found(self, mount: str) -> HttpRefusal:
        """Return the refusal of a path at which there is nothing (HTTP-77)."""
        right = (
            f": the MCP endpoint is at {mount}{self.path}" if self.runtime.serves_endpoint else ""
        )
        return HttpRefusal(404, f"There is nothing at this path{right}", reason="path_not_found")

    async def _send_health(self, send: Send, path: str) -> None:
        """Send whether the process is up, or whether it accepts work (HTTP-19)."""
        body: dict[str, Any] = {"status": "ok"}
        if path == READY_PATH:
            body = {"status": self._readiness()}
            if body["status"] == "ok" and self.runtime.checks is not None:
                body = await _ask_checks(self.runtime.checks)
        await send_json(send, 200 if body["status"] == "ok" else 503, encode(body))

    def _readiness(self) -> str:
        if self._stopping:
            return "stopping"
        if self._service is None:
            return "starting"
        if self.runtime.resources.get_health_status() == "unhealthy":
            return "overloaded"
        return "ok"

    def _audited_path(self, scope: Scope) -> str:
        """Return the path for an audit record; one of the author's may hold secrets (HTTP-50)."""
        mount, path = str(scope.get("root_path", "")), str(scope["path"])
        if self._mounted is None or path.removeprefix(mount) in self._paths:
            return path
        return "/".join(path.split("/")[: mount.count("/") + 2])

    async def _refuse(self, scope: Scope, send: Send, refusal: HttpRefusal) -> None:
        if self.runtime.audit is not None and refusal.status in _AUDITED:
            address = (scope.get("client") or ("",))[0]
            path = self._audited_path(scope)
            metadata = {"reason": refusal.reason, "path": path, "address": address}
            event_type = _AUDITED[refusal.status]
            self.runtime.audit.write(event_type, "SECURITY", False, metadata=metadata)
        headers = refusal.headers
        if scope["type"] == "websocket":
            from .mounted_app import denying

            send = denying(scope, send)
        elif scope["method"] == "POST" and scope["http_version"].startswith("1"):
            # The body may be unread, and nothing waits for it.
            headers = (*(each for each in headers if each != CLOSE), CLOSE)
        body = refusal.body(self.runtime.ids.connection_correlation_id())
        await send_json(send, refusal.status, body, headers)


async def _ask_checks(checks: ReadinessChecks) -> dict[str, Any]:
    """Return the body for `/readyz` of a server that would accept work (HEALTH-02)."""
    results = await checks.results()
    failing = [name for name, result in results.items() if result != "ok"]
    return {"status": "not_ready", "failing": failing} if failing else {"status": "ok"}


async def _send_page(page: HttpPage, service: _Service, request: HttpRequest) -> HttpRefusal | None:
    """Send a page of the application to an authenticated client (HTTP-38)."""
    if request.scope["method"] != "GET":
        return method_not_allowed("GET")
    value = page(request.principal)
    if isawaitable(value):
        value = await value
    if isinstance(value, str):
        await send_body(request.send, 200, b"text/plain; charset=utf-8", value.encode())
    else:
        await send_json(request.send, 200, write_json(value))
    return None


def _make_event_store(runtime: ServerRuntime) -> EventStore:
    config = runtime.config.http
    if config.event_store == "memory":
        return MemoryEventStore(runtime.clock, config.max_events, config.event_ttl_ms)
    from .event_store_redis import RedisEventStore

    return RedisEventStore(
        config.event_store,
        runtime.logger,
        config.max_events,
        config.event_ttl_ms,
        config.session_idle_ms,
    )
