"""The MCP endpoint: POST, GET and DELETE, in both protocol modes (spec/http.md).

In the handshake mode a client has a session, which `initialize` opens: an `HttpSession`, found by
its id. In the stateless mode every POST is a connection of its own, which ends with its response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import define, field

from ..base.tool_versions import asked_version
from ..errors import JsonRpcErrorCode
from ..features.batches import requests_of
from ..features.policies import scopes_for
from ..features.scopes import scopes_of
from ..features.tool_versions import meant_tool
from ..protocol.jsonrpc import (
    ABSENT,
    Batch,
    Malformed,
    Notification,
    Request,
    Response,
    parse,
)
from ..protocol.methods import INITIALIZE, TOOLS_CALL
from ..protocol.principal import ALL_SCOPES, identity_of
from .asgi import HttpRefusal, send_empty, send_json, start_stream
from .event_store import SessionRecord
from .headers import (
    check_delete,
    check_get,
    check_mcp_headers,
    check_post,
    check_session_headers,
    is_stateless,
    method_not_allowed,
)
from .post_response import PostResponse
from .request import read_body, too_large
from .session import SERVER_STOPS, HttpSession
from .sse import EventBody, encode_event, encode_retry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..base.config.http_sections import HttpSection
    from ..base.jsonschema.header_params import HeaderParameter
    from ..features.composition import ServerRuntime
    from ..features.embedding import HostLoop
    from ..kernel.effects import Reply
    from ..kernel.engine.connection import Connection
    from ..kernel.registry.tools import RegisteredTool
    from ..protocol.jsonrpc import Message
    from ..protocol.peer import Peer
    from ..protocol.principal import Principal
    from .asgi import RawHeader, Receive, Send
    from .auth.authentication import Authenticator
    from .cluster.request_routing import RequestRouter
    from .cluster.session_seal import SealedSession
    from .cluster.worker_group import WorkerGroup
    from .event_store import EventStore, Replay
    from .request import HttpRequest
    from .session_table import SessionTable

SOON_SECONDS = 0.1
"""Seconds after which a response becomes a stream, and its client is watched."""

SESSION_HEADER = b"mcp-session-id"

_WITHOUT_PARAMS = (Response, Batch)  # a union type would be made again for each message

_STATUS_OF_ERRORS: dict[int, int] = {
    JsonRpcErrorCode.PARSE_ERROR: 400,
    JsonRpcErrorCode.INVALID_REQUEST: 400,
    JsonRpcErrorCode.METHOD_NOT_FOUND: 404,
    JsonRpcErrorCode.INVALID_PARAMS: 400,
    JsonRpcErrorCode.HEADER_MISMATCH: 400,
    JsonRpcErrorCode.MISSING_CLIENT_CAPABILITY: 400,
    JsonRpcErrorCode.UNSUPPORTED_PROTOCOL_VERSION: 400,
}
"""The HTTP status of each error code in the stateless mode; 200 for all others (HTTP-11)."""

_NO_MESSAGE = (JsonRpcErrorCode.PARSE_ERROR, JsonRpcErrorCode.INVALID_REQUEST)
"""The only error codes that are a bad request in the handshake mode (HTTP-11)."""

SESSION_ENDED = "disconnected"
"""The reason with which a connection is closed that its client has ended."""

NO_SESSION = HttpRefusal(404, "There is no such session", reason="session_not_found")

STOPPING = HttpRefusal(
    503, "The server is stopping", JsonRpcErrorCode.INTERNAL_ERROR, "server_stopping"
)

Responding = HttpRefusal | Awaitable[HttpRefusal | None]
"""The outcome of one POST: a refusal, or an awaitable that sends its response."""


@define(eq=False, repr=False)
class Endpoint:
    """Answers the requests to the path of the endpoint; belongs to one event loop.

    Args:
        group: the workers that share its clients; None if there are no others.

    Attributes:
        router: routes requests to those workers.
    """

    runtime: ServerRuntime
    settings: HttpSection
    scheduler: HostLoop
    authenticator: Authenticator
    sessions: SessionTable[HttpSession]
    events: EventStore
    group: WorkerGroup | None = None
    router: RequestRouter | None = field(default=None, init=False)
    _open: dict[Connection, PostResponse] = field(factory=dict, init=False)
    _closed: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        if self.group is not None:
            from .cluster.request_routing import RequestRouter

            self.router = RequestRouter(self.group, self.sessions, self._restore_session)

    def stop_listening(self) -> None:
        """End subscriptions and the streams of GETs: the server stops (HTTP-16)."""
        if self.group is not None:
            self.group.stop_listening()
        for connection in list(self._open):
            connection.prepare_stop()
        for session in self.sessions:
            session.stop_listening()

    def close(self) -> None:
        """Abort all calls, and end every response: the server has stopped."""
        self._closed = True
        for connection, response in list(self._open.items()):
            connection.close(SERVER_STOPS)
            response.finish()
        self.sessions.end_all(SERVER_STOPS)

    def handle(self, request: HttpRequest) -> Awaitable[HttpRefusal | None]:
        """Answer one request, or return why it is refused."""
        method = request.scope["method"]
        if method == "POST":
            return self._post(request)
        if method == "GET":
            return self._get(request)
        if method == "DELETE":
            return self._delete(request)
        return _refuse_method()

    # -- POST ------------------------------------------------------------------------------------

    async def _post(self, request: HttpRequest) -> HttpRefusal | None:
        refusal = check_post(request.head)
        if refusal is not None:
            return refusal
        body = await read_body(request.head, request.receive, self.settings)
        if isinstance(body, HttpRefusal):
            return body
        # It is dropped before its response is awaited, which may take hours (HTTP-28).
        responding = self.take_body(request, body)
        del body
        return responding if isinstance(responding, HttpRefusal) else await responding

    def take_body(self, request: HttpRequest, body: bytes) -> Responding:
        """Begin to handle the body of one POST, whose head was checked."""
        if len(body) > self.settings.max_body_bytes:
            return too_large(self.settings.max_body_bytes)
        if self.router is not None:
            return self._take_or_forward(self.router, request, body)
        return self._take(request, parse(body))

    async def _take_or_forward(
        self, router: RequestRouter, request: HttpRequest, body: bytes
    ) -> HttpRefusal | None:
        taken = await router.take_post(request, body)
        if taken is not None:
            del body
            return await router.respond(request, taken)
        message = parse(body)
        taken = await router.take_task(request, message, body)
        if taken is not None:
            del body, message
            return await router.respond(request, taken)
        responding = self._take(request, message)
        del body, message
        return responding if isinstance(responding, HttpRefusal) else await responding

    def _take(self, request: HttpRequest, message: Message) -> Responding:
        """Begin to handle the message of one POST."""
        params = ABSENT if isinstance(message, _WITHOUT_PARAMS) else message.params
        if is_stateless(request.head, params):
            return self._take_stateless(request, message)
        if (
            type(message) is Request
            and message.method == INITIALIZE
            and not request.head.session_id
        ):
            if self.runtime.engine.opening:
                return self._open_counted_session(request, message)
            return self._open_session(request, message)
        return self._take_in_session(request, message)

    def _take_stateless(self, request: HttpRequest, message: Message) -> Responding:
        """Handle a message on a connection of its own, which ends with the response (HTTP-10)."""
        if type(message) is Notification:
            return send_empty(request.send, 202)  # none has a meaning in this mode
        if type(message) is Response:
            return HttpRefusal(400, "A server asks nothing in this revision: there is no response")
        if type(message) is Request:
            parameters = self._header_parameters(message, request.principal)
            refusal = check_mcp_headers(request.head, message, parameters)
            if refusal is not None:
                body = refusal.body(self.runtime.ids.connection_correlation_id(), message.id)
                return send_json(request.send, refusal.status, body, refusal.headers)
            refusal = self._check_scopes(request, message)
            if refusal is not None:
                return refusal
        response = PostResponse(request.open_body())
        connection = self.runtime.connect(
            response.deliver, "http", self.scheduler, principal=request.principal, stateless=True
        )
        self._open[connection] = response  # with Python 3.12 the handler begins in what follows
        try:
            connection.handle_with(message, request.headers)
        except BaseException:
            del self._open[connection]
            raise
        return self._respond_stateless(request, connection, response)

    async def _respond_stateless(
        self, request: HttpRequest, connection: Connection, response: PostResponse
    ) -> HttpRefusal | None:
        try:
            return await self._respond(request, response)
        finally:
            del self._open[connection]
            session = connection.session
            if (session.in_flight or session.parts) and session.is_busy:
                connection.close()

    def _header_parameters(
        self, message: Request, principal: Principal | None
    ) -> tuple[HeaderParameter, ...]:
        """Return the arguments of the call that headers have to repeat."""
        tool = self._find_tool(message, principal)
        if tool is not None:
            return tool.header_parameters
        if message.method != TOOLS_CALL or type(message.params) is not dict:
            return ()
        name, meta = message.params.get("name"), message.params.get("_meta")
        if type(name) is not str:
            return ()
        version = asked_version(meta if type(meta) is dict else None)
        if version is not None and not name.endswith(f"@{version}"):
            name = f"{name}@{version}"
        found = (each(name) for each in self.runtime.dispatcher.header_parameters)
        return next(filter(None, found), ())

    def _find_tool(self, message: Request, principal: Principal | None) -> RegisteredTool | None:
        """Return the tool that a request calls, if there is one that the principal sees."""
        if message.method != TOOLS_CALL or type(message.params) is not dict:
            return None
        if type(message.params.get("name")) is not str:
            return None
        return meant_tool(self.runtime.registry, message.params, principal)

    def _check_scopes(self, request: HttpRequest, *messages: Request) -> HttpRefusal | None:
        """Return one challenge for all scopes that the messages of a POST need (AUTH-12)."""
        principal = request.principal
        if principal is None or principal.scopes is ALL_SCOPES:
            return None
        scopes = [found for each in messages if (found := self._scopes_of(each, principal))]
        if not scopes:
            return None
        mount = str(request.scope.get("root_path", ""))
        return self.authenticator.check_scopes(principal, frozenset().union(*scopes), mount)

    def _scopes_of(self, message: Request, principal: Principal | None) -> frozenset[str]:
        tool = self._find_tool(message, principal)
        if tool is not None:
            arguments = message.params.get("arguments")
            return scopes_for(tool, arguments if type(arguments) is dict else {})
        dispatcher = self.runtime.dispatcher
        if message.method == TOOLS_CALL or not dispatcher.is_call(message.method):
            return frozenset()
        return scopes_of(dispatcher, message, principal)

    async def check_rate(self, request: HttpRequest) -> HttpRefusal | None:
        """Count a new session; return a refusal if the rate limit is reached (RATE-07)."""
        for opening in self.runtime.engine.opening:
            if (refusal := await opening(request.principal)) is not None:
                details = refusal.details or {}
                seconds = max(1, -(-details["retryAfterMs"] // 1000))
                headers = ((b"retry-after", b"%d" % seconds),)
                reason = details["reason"]
                return HttpRefusal(
                    429, refusal.message, reason=reason, headers=headers, data=details
                )
        return None

    async def _open_counted_session(
        self, request: HttpRequest, message: Request
    ) -> HttpRefusal | None:
        responding = await self.check_rate(request) or self._open_session(request, message)
        del message
        return responding if isinstance(responding, HttpRefusal) else await responding

    def _open_session(self, request: HttpRequest, message: Request) -> Responding:
        """Handle `initialize`; if it succeeds, the session gets an id (HTTP-03)."""
        refusal = self.sessions.check_capacity(request.principal)
        if refusal is not None:
            return refusal
        session = self._new_session(request)
        response = PostResponse(request.open_body(), session, (message.id,))
        session.receive(message, response, request.headers)
        peer = session.connection.session.peer
        headers: list[RawHeader] = []
        if peer is None:
            session.close("refused")
        else:
            group = self.group
            named = None if group is None else group.new_session_id(request.principal, peer)
            session_id = self._admit(request, session, peer, named)
            headers.append((SESSION_HEADER, session_id.encode()))
        return self._respond(request, response, headers)

    def _restore_session(
        self, request: HttpRequest, session_id: str, sealed: SealedSession
    ) -> HttpRefusal | None:
        """Add a session of a worker that has gone, from what its id says (HTTP-62)."""
        peer = sealed.peer
        if peer is None:
            return NO_SESSION
        refusal = self.sessions.check_capacity(request.principal)
        if refusal is None:
            session = self._new_session(request)
            session.connection.apply(self.runtime.dispatcher.restore, peer)
            self._admit(request, session, peer, session_id)
        return refusal

    def _new_session(self, request: HttpRequest) -> HttpSession:
        settings, runtime = self.settings, self.runtime
        grace_ms = settings.server_request_grace_ms
        session = HttpSession(settings.retry_ms, grace_ms, self.events, runtime.clock)
        session.attach(
            runtime.connect(session.deliver, "http", self.scheduler, principal=request.principal)
        )
        return session

    def _admit(
        self, request: HttpRequest, session: HttpSession, peer: Peer, session_id: str | None
    ) -> str:
        """Add a session after its handshake; return its id."""
        session.group = self.group
        session.session_id = self.sessions.add(session, request.principal, session_id)
        record = SessionRecord(identity_of(request.principal), peer.revision.name)
        self.events.open(session.session_id, record)
        session.mark()
        return session.session_id

    def _take_in_session(self, request: HttpRequest, message: Message) -> Responding:
        session = check_session_headers(request.head) or self._find(request)
        if isinstance(session, HttpRefusal):
            return _no_json(message) or session
        requests = requests_of(message)
        refusal = self._check_scopes(request, *requests)
        if refusal is not None:
            return refusal
        response = PostResponse(request.open_body(), session, tuple(each.id for each in requests))
        # The same principal, but its token may be a new one with other scopes.
        session.connection.session.principal = request.principal
        session.receive(message, response, request.headers)
        if type(message) is not Request:
            session.end_cancelled()
        if not requests and not response.finished:
            return send_empty(request.send, 202)
        return self._respond_in_session(request, session, response)

    async def _respond_in_session(
        self, request: HttpRequest, session: HttpSession, response: PostResponse
    ) -> HttpRefusal | None:
        refusal = await self._respond(request, response)
        self.sessions.touch(session.session_id)
        return refusal

    def _find(self, request: HttpRequest) -> HttpSession | HttpRefusal:
        """Return the session that a request belongs to (HTTP-04)."""
        session = self.sessions.get(request.head.session_id, request.principal)
        if session is None:
            return NO_SESSION
        peer = session.connection.session.peer
        version = request.head.protocol_version
        if version is not None and peer is not None and version != peer.revision.name:
            return HttpRefusal(
                400,
                f"MCP-Protocol-Version is not the one agreed on, which is {peer.revision.name}",
                reason="unsupported_protocol_version",
            )
        return session

    # -- responding ------------------------------------------------------------------------------

    async def _respond(
        self, request: HttpRequest, response: PostResponse, headers: Sequence[RawHeader] = ()
    ) -> HttpRefusal | None:
        """Send the response to a POST: as JSON if no message precedes the reply (HTTP-06).

        Returns:
            The refusal to send instead, if nothing was sent and the call was aborted because the
            server stops (HTTP-16).
        """
        body = response.body
        assert body is not None
        if not response.has_begun:
            # A handler that never waits ends in this turn: no timer and no future, 10 us less.
            await asyncio.sleep(0)
        if not response.has_begun:
            await body.wait(SOON_SECONDS)
        reply = response.reply
        if reply is not None:
            await request.send_reply(_status(response, reply), reply.line, headers)
            return None
        with watching(request.receive, body, response):
            if response.resumption is None and not response.has_begun:
                # It cannot be resumed, so a stream need not begin early.
                await body.wait(self._keep_alive_seconds)
            reply = response.reply
            if body.gone:
                return None
            if reply is not None:
                await request.send_reply(_status(response, reply), reply.line, headers)
            elif self._closed and not response.is_stream:
                return STOPPING
            else:
                response.open_stream()
                await self.send_stream(request.send, body, headers)
        return None

    async def send_stream(
        self, send: Send, body: EventBody, headers: Sequence[RawHeader] = ()
    ) -> None:
        """Send a response that is a stream: the events written to `body`."""
        try:
            await start_stream(send, headers)
            await body.pump(send, self._keep_alive_seconds)
        except asyncio.CancelledError:
            if not body.gone:  # else the client was cut off by cancelling this task
                raise

    @property
    def _keep_alive_seconds(self) -> float:
        return self.settings.keep_alive_ms / 1000

    # -- GET and DELETE --------------------------------------------------------------------------

    async def _get(self, request: HttpRequest) -> HttpRefusal | None:
        """Stream the messages that belong to no request, or resume a stream (HTTP-12, HTTP-13)."""
        refusal = check_get(request.head)
        if refusal is not None:
            return refusal
        taken = None if self.router is None else await self.router.take(request)
        if self.router is not None and taken is not None:
            return await self.router.respond(request, taken)
        since = request.head.last_event_id
        session = self._find(request)
        if session is NO_SESSION and since is not None:
            return await self._resume_elsewhere(request, since)
        if isinstance(session, HttpRefusal):
            return session
        body = request.open_body()
        response: PostResponse | None
        if since is None:
            response, since = session.listen(body)
        else:
            response = session.resume(since, body)
        refusal = await self._replay(request, session.session_id, body, response, since)
        self.sessions.touch(session.session_id)
        return refusal

    async def _resume_elsewhere(self, request: HttpRequest, since: str) -> HttpRefusal | None:
        """Replay a stream of a session that is not in this process (HTTP-14)."""
        session_id = request.head.session_id or ""
        record = await self.events.find(session_id)
        if record is None or record.owner != identity_of(request.principal):
            return NO_SESSION
        return await self._replay(request, session_id, request.open_body(), None, since)

    async def _replay(
        self,
        request: HttpRequest,
        session_id: str,
        body: EventBody,
        response: PostResponse | None,
        since: str | None,
    ) -> HttpRefusal | None:
        """Send the events of a stream after `since`, then those to come.

        Args:
            request: the GET.
            session_id: the session of the stream.
            body: the body of the HTTP response.
            response: the stream, if it continues in this process; it writes to `body`.
            since: the id of an event; None sends only the events to come.
        """
        with watching(request.receive, body, response):
            until = None if response is None else response.last_event_id
            # A client that names no event gets what is still kept of the events never sent.
            whole = request.head.last_event_id is not None
            replay = None
            if since is not None:
                replay = await self.events.replay(session_id, since, whole=whole)
            if replay is None and whole:
                return HttpRefusal(
                    400, "What followed Last-Event-ID is not known any more", reason="unknown_event"
                )
            if response is None:
                if replay is not None and not replay.ended:
                    body.write(encode_retry(self.settings.retry_ms))
                body.end()
            if replay is not None:
                body.begin_with(_encode_missed(replay, until))
                del replay  # it may be large, and the stream may last long
            await self.send_stream(request.send, body)
        return None

    async def _delete(self, request: HttpRequest) -> HttpRefusal | None:
        """End the session of a client that no longer needs it (HTTP-05)."""
        refusal = check_delete(request.head)
        if refusal is not None:
            return refusal
        taken = None if self.router is None else await self.router.take(request)
        if self.router is not None and taken is not None:
            return await self.router.respond(request, taken)
        session = self._find(request)
        if isinstance(session, HttpRefusal):
            return session
        self.sessions.end(session.session_id, SESSION_ENDED)
        await send_empty(request.send, 204)
        return None


def _no_json(message: Message) -> HttpRefusal | None:
    """Return the refusal of a body that is no JSON, which no session has (HTTP-78)."""
    if not isinstance(message, Malformed) or message.code is not JsonRpcErrorCode.PARSE_ERROR:
        return None
    return HttpRefusal(400, f"Parse error: {message.detail}", message.code, message.reason)


async def _refuse_method() -> HttpRefusal:
    return method_not_allowed("POST", "GET", "DELETE")


def _status(response: PostResponse, reply: Reply) -> int:
    """Return the HTTP status that says the same as the reply in the body (HTTP-11)."""
    if reply.error_code is None:
        return 200
    if response.resumption is None:
        return _STATUS_OF_ERRORS.get(reply.error_code, 200)
    return 400 if reply.error_code in _NO_MESSAGE else 200


def _encode_missed(replay: Replay, until: str | None) -> bytes:
    """Encode the events of `replay` up to `until`; later ones are written to the body itself."""
    chunks: list[bytes] = []
    for event in replay.events:
        if event.line:
            chunks.append(encode_event(event.line, event.event_id))
        if event.event_id == until:
            break
    return b"".join(chunks)


@contextmanager
def watching(
    receive: Receive, body: EventBody, response: PostResponse | None = None
) -> Iterator[None]:
    """End `body` when the client has gone, and at the end of the `with` block."""
    watcher = asyncio.ensure_future(_watch(receive, body))
    try:
        yield
    finally:
        watcher.cancel()
        body.leave()  # drops what was not sent
        if response is not None:
            response.drop(body)


async def _watch(receive: Receive, body: EventBody) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    body.leave()
