"""The MCP endpoint: POST, GET and DELETE, in both eras (spec/http.md).

In the handshake era a client has a session, which `initialize` opens: a `Channel`, found by its id.
In the stateless era every POST is a connection of its own, which ends with its response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import define, field

from ...core.batches import requests_of
from ...core.methods.scopes import SCOPED_METHODS, scopes_of
from ...errors import JsonRpcErrorCode
from ...protocol.jsonrpc import ABSENT, Batch, Notification, Request, Response, parse
from ...protocol.principal import identity_of
from .channel import Channel
from .events import SessionRecord
from .exchange import Exchange
from .guard import read_body
from .headers import (
    check_delete,
    check_get,
    check_mirrored,
    check_post,
    check_session_headers,
    is_stateless,
    method_not_allowed,
)
from .refusal import HttpRefusal
from .responses import send_empty, send_json, start_stream
from .streams import EventBody, encode_event, encode_retry
from .unread import UNCOUNTED_BYTES
from .wire import CUT_CONNECTION, HOLD_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...config.settings import HttpSection
    from ...core.effects import Reply
    from ...engine.connection import Connection
    from ...engine.scheduling import HostLoop
    from ...protocol.jsonrpc import Message
    from ...protocol.principal import Principal
    from ...registry.tools import RegisteredTool
    from ...runtime import Runtime
    from .authentication import Authenticator
    from .events import EventStore, Replay
    from .headers import RequestHead
    from .responses import RawHeader
    from .sessions import SessionTable
    from .streams import Receive, Scope, Send

SOON_SECONDS = 0.1
"""An answer that takes longer is watched: whether its client is still there, and can resume."""

SESSION_HEADER = b"mcp-session-id"

_WITHOUT_PARAMS = (Response, Batch)  # a union would be made anew for each look at a message

_STATUS_OF_ERRORS: dict[int, int] = {
    JsonRpcErrorCode.PARSE_ERROR: 400,
    JsonRpcErrorCode.INVALID_REQUEST: 400,
    JsonRpcErrorCode.METHOD_NOT_FOUND: 404,
    JsonRpcErrorCode.INVALID_PARAMS: 400,
    JsonRpcErrorCode.HEADER_MISMATCH: 400,
    JsonRpcErrorCode.MISSING_CLIENT_CAPABILITY: 400,
    JsonRpcErrorCode.UNSUPPORTED_PROTOCOL_VERSION: 400,
}
"""Of the stateless era; all else is 200 (HTTP-11)."""

_NO_MESSAGE = (JsonRpcErrorCode.PARSE_ERROR, JsonRpcErrorCode.INVALID_REQUEST)
"""In the handshake era only what is no message is a bad request (HTTP-11)."""

SESSION_ENDED = "disconnected"
"""Why a connection is closed whose client ended it."""

SERVER_STOPS = "shutdown"
"""Why one is closed that the server ends."""

NO_SESSION = HttpRefusal(404, "There is no such session", reason="session_not_found")

STOPPING = HttpRefusal(
    503, "The server is stopping", JsonRpcErrorCode.INTERNAL_ERROR, "server_stopping"
)


@define(eq=False, repr=False)
class Visit:
    """One HTTP request, as far as it was looked at."""

    head: RequestHead
    principal: Principal | None
    scope: Scope
    receive: Receive
    send: Send

    def open_body(self) -> EventBody:
        """A body for its response."""
        extensions = self.scope.get("extensions", {})
        return EventBody(extensions.get(CUT_CONNECTION), extensions.get(HOLD_BYTES))

    async def send_reply(self, status: int, line: bytes, headers: Sequence[RawHeader] = ()) -> None:
        """Send a whole response; a large one counts as unread while it waits (HTTP-29)."""
        hold = self.scope.get("extensions", {}).get(HOLD_BYTES)
        if hold is None or len(line) <= UNCOUNTED_BYTES:
            await send_json(self.send, status, line, headers)
            return
        hold(len(line))
        try:
            await send_json(self.send, status, line, headers)
        finally:
            hold(-len(line))


_Answering = HttpRefusal | Awaitable[HttpRefusal | None]
"""What one POST leads to: a refusal, or what sends its response."""


@define(eq=False, repr=False)
class Endpoint:
    """Answers what comes to the path of the endpoint; belongs to one event loop."""

    runtime: Runtime
    settings: HttpSection
    scheduler: HostLoop
    authenticator: Authenticator
    sessions: SessionTable[Channel]
    events: EventStore
    _open: dict[Connection, Exchange] = field(factory=dict, init=False)
    _closed: bool = field(default=False, init=False)

    def stop_listening(self) -> None:
        """The server stops: those who only wait for news are told that none will come (HTTP-16)."""
        for connection in list(self._open):
            connection.end_listening()
        for channel in self.sessions:
            channel.stop_listening()

    def close(self) -> None:
        """The server has stopped: whatever runs is aborted, and every response ends."""
        self._closed = True
        for connection, exchange in list(self._open.items()):
            connection.close(SERVER_STOPS)
            exchange.finish()
        self.sessions.end_all(SERVER_STOPS)

    async def handle(self, visit: Visit) -> HttpRefusal | None:
        """Answer one request, unless it is to be refused."""
        method = visit.scope["method"]
        if method == "POST":
            return await self._post(visit)
        if method == "GET":
            return await self._get(visit)
        if method == "DELETE":
            return await self._delete(visit)
        return method_not_allowed("POST", "GET", "DELETE")

    async def read_body(self, visit: Visit) -> bytes | HttpRefusal:
        """The body of a request, within the limits of the configuration."""
        return await read_body(visit.head, visit.receive, self.settings)

    # -- POST ----------------------------------------------------------------------------------

    async def _post(self, visit: Visit) -> HttpRefusal | None:
        refusal = check_post(visit.head)
        if refusal is not None:
            return refusal
        body = await self.read_body(visit)
        if isinstance(body, HttpRefusal):
            return body
        # What came is dropped before the answer is waited for, which may take hours (HTTP-28).
        answering = self._take(visit, parse(body))
        del body
        return answering if isinstance(answering, HttpRefusal) else await answering

    def _take(self, visit: Visit, message: Message) -> _Answering:
        """Decide and begin what the message of one POST leads to."""
        params = ABSENT if isinstance(message, _WITHOUT_PARAMS) else message.params
        if is_stateless(visit.head, params):
            return self._take_stateless(visit, message)
        if (
            type(message) is Request
            and message.method == "initialize"
            and not visit.head.session_id
        ):
            if self.runtime.rate_limit is not None:
                return self._open_counted_session(visit, message)
            return self._open_session(visit, message)
        return self._take_in_session(visit, message)

    def _take_stateless(self, visit: Visit, message: Message) -> _Answering:
        """HTTP-10: a connection of its own, which ends with the response."""
        if type(message) is Notification:
            return send_empty(visit.send, 202)  # there is none that means anything here
        if type(message) is Response:
            return HttpRefusal(400, "A server asks nothing in this revision: there is no response")
        if type(message) is Request:
            tool = self._find_tool(message)
            parameters = () if tool is None else tool.header_parameters
            refusal = check_mirrored(visit.head, message, parameters)
            if refusal is not None:
                body = refusal.body(self.runtime.ids.connection_correlation_id(), message.id)
                return send_json(visit.send, refusal.status, body, refusal.headers)
            refusal = self._check_scopes(visit, message)
            if refusal is not None:
                return refusal
        exchange = Exchange(visit.open_body())
        connection = self.runtime.connect(
            exchange.deliver, "http", self.scheduler, principal=visit.principal, stateless=True
        )
        connection.take(message)
        self._open[connection] = exchange
        return self._answer_stateless(visit, connection, exchange)

    async def _answer_stateless(
        self, visit: Visit, connection: Connection, exchange: Exchange
    ) -> HttpRefusal | None:
        try:
            return await self._answer(visit, exchange)
        finally:
            del self._open[connection]
            if connection.session.is_waited_for:
                connection.close()

    def _find_tool(self, request: Request) -> RegisteredTool | None:
        """The tool that a request calls, if it calls one that there is."""
        if request.method != "tools/call" or type(request.params) is not dict:
            return None
        name = request.params.get("name")
        return self.runtime.registry.get(name) if type(name) is str else None

    def _check_scopes(self, visit: Visit, *requests: Request) -> HttpRefusal | None:
        """One challenge for all that a request, or a batch of them, needs (AUTH-12)."""
        if self.authenticator.oauth is None:
            return None  # holders of keys may use everything
        scopes = [found for found in map(self._scopes_of, requests) if found]
        if not scopes:
            return None
        mount = str(visit.scope.get("root_path", ""))
        return self.authenticator.check_scopes(visit.principal, frozenset().union(*scopes), mount)

    async def check_rate(self, visit: Visit) -> HttpRefusal | None:
        """Count a new session; return why there may be none now (RATE-07)."""
        limit = self.runtime.rate_limit
        refusal = None if limit is None else await limit.check_session(visit.principal)
        if refusal is None:
            return None
        details = refusal.details or {}
        seconds = max(1, -(-details["retryAfterMs"] // 1000))
        headers = ((b"retry-after", b"%d" % seconds),)
        return HttpRefusal(429, refusal.message, reason="rate_limit", headers=headers, data=details)

    async def _open_counted_session(self, visit: Visit, request: Request) -> HttpRefusal | None:
        answering = await self.check_rate(visit) or self._open_session(visit, request)
        del request
        return answering if isinstance(answering, HttpRefusal) else await answering

    def _scopes_of(self, request: Request) -> frozenset[str]:
        features = self.runtime.dispatcher.features
        if features is None or request.method not in SCOPED_METHODS:
            tool = self._find_tool(request)
            if tool is None:
                return frozenset()
            arguments = request.params.get("arguments")
            return tool.scopes_for(arguments if type(arguments) is dict else {})
        return scopes_of(features, request)

    def _open_session(self, visit: Visit, request: Request) -> _Answering:
        """HTTP-03: a session whose `initialize` was accepted gets an id."""
        refusal = self.sessions.make_room(visit.principal)
        if refusal is not None:
            return refusal
        settings, runtime = self.settings, self.runtime
        channel = Channel(settings.retry_ms, settings.question_grace_ms, self.events, runtime.clock)
        channel.attach(
            runtime.connect(channel.deliver, "http", self.scheduler, principal=visit.principal)
        )
        exchange = Exchange(visit.open_body(), channel, (request.id,))
        channel.receive(request, exchange)
        peer = channel.connection.session.peer
        headers: list[RawHeader] = []
        if peer is None:
            channel.close("refused")
        else:
            channel.session_id = session_id = self.sessions.add(channel, visit.principal)
            record = SessionRecord(identity_of(visit.principal), peer.revision.name)
            self.events.open(session_id, record)
            headers.append((SESSION_HEADER, session_id.encode()))
        return self._answer(visit, exchange, headers)

    def _take_in_session(self, visit: Visit, message: Message) -> _Answering:
        channel = check_session_headers(visit.head) or self._find(visit)
        if isinstance(channel, HttpRefusal):
            return channel
        requests = requests_of(message)
        refusal = self._check_scopes(visit, *requests)
        if refusal is not None:
            return refusal
        exchange = Exchange(visit.open_body(), channel, tuple(each.id for each in requests))
        # The same principal, but its token may be a new one, of other scopes.
        channel.connection.session.principal = visit.principal
        channel.receive(message, exchange)
        if type(message) is not Request:
            channel.end_cancelled()
        if not requests and not exchange.finished:
            return send_empty(visit.send, 202)
        return self._answer_in_session(visit, channel, exchange)

    async def _answer_in_session(
        self, visit: Visit, channel: Channel, exchange: Exchange
    ) -> HttpRefusal | None:
        refusal = await self._answer(visit, exchange)
        self.sessions.touch(channel.session_id)
        return refusal

    def _find(self, visit: Visit) -> Channel | HttpRefusal:
        """The session that a request belongs to (HTTP-04)."""
        channel = self.sessions.get(visit.head.session_id, visit.principal)
        if channel is None:
            return NO_SESSION
        peer = channel.connection.session.peer
        version = visit.head.protocol_version
        if version is not None and peer is not None and version != peer.revision.name:
            return HttpRefusal(
                400,
                f"MCP-Protocol-Version is not the one agreed on, which is {peer.revision.name}",
                reason="unsupported_protocol_version",
            )
        return channel

    # -- answering -----------------------------------------------------------------------------

    async def _answer(
        self, visit: Visit, exchange: Exchange, headers: Sequence[RawHeader] = ()
    ) -> HttpRefusal | None:
        """Send what there is to say: as JSON if nothing comes before the reply (HTTP-06).

        Returns:
            What is said instead, if nothing was said and the call was aborted since the server
            stops (HTTP-16).
        """
        body = exchange.body
        assert body is not None
        if not exchange.has_begun:
            # A handler that waits for nothing ends in this turn: no timer, no future, 10 us.
            await asyncio.sleep(0)
        if not exchange.has_begun:
            await body.wait(SOON_SECONDS)
        reply = exchange.reply
        if reply is not None:
            await visit.send_reply(_status(exchange, reply), reply.line, headers)
            return None
        with watching(visit.receive, body, exchange):
            if exchange.resumption is None and not exchange.has_begun:
                # Nobody could resume it: no need to hurry with a stream.
                await body.wait(self._keep_alive_seconds)
            reply = exchange.reply
            if body.gone:
                return None
            if reply is not None:
                await visit.send_reply(_status(exchange, reply), reply.line, headers)
            elif self._closed and not exchange.is_stream:
                return STOPPING
            else:
                exchange.open_stream()
                await self.send_stream(visit.send, body, headers)
        return None

    async def send_stream(
        self, send: Send, body: EventBody, headers: Sequence[RawHeader] = ()
    ) -> None:
        """A response that is a stream: what is written to `body`."""
        try:
            await start_stream(send, headers)
            await body.pump(send, self._keep_alive_seconds)
        except asyncio.CancelledError:
            if not body.gone:  # else it was cut off, by way of its task
                raise

    @property
    def _keep_alive_seconds(self) -> float:
        return self.settings.keep_alive_ms / 1000

    # -- GET and DELETE ------------------------------------------------------------------------

    async def _get(self, visit: Visit) -> HttpRefusal | None:
        """HTTP-12, HTTP-13: listen to what belongs to no request, or resume a stream."""
        refusal = check_get(visit.head)
        if refusal is not None:
            return refusal
        since = visit.head.last_event_id
        channel = self._find(visit)
        if channel is NO_SESSION and since is not None:
            return await self._resume_elsewhere(visit, since)
        if isinstance(channel, HttpRefusal):
            return channel
        body = visit.open_body()
        exchange: Exchange | None
        if since is None:
            exchange, since = channel.listen(body)
        else:
            exchange = channel.resume(since, body)
        refusal = await self._tell(visit, channel.session_id, body, exchange, since)
        self.sessions.touch(channel.session_id)
        return refusal

    async def _resume_elsewhere(self, visit: Visit, since: str) -> HttpRefusal | None:
        """HTTP-14: the session lives in another process, or did; what it said may be known."""
        session_id = visit.head.session_id or ""
        record = await self.events.find(session_id)
        if record is None or record.owner != identity_of(visit.principal):
            return NO_SESSION
        return await self._tell(visit, session_id, visit.open_body(), None, since)

    async def _tell(
        self,
        visit: Visit,
        session_id: str,
        body: EventBody,
        exchange: Exchange | None,
        since: str | None,
    ) -> HttpRefusal | None:
        """Send what a stream said after the event `since`, and what it goes on to say.

        Args:
            exchange: the stream, if it goes on here; it says it in `body`.
        """
        with watching(visit.receive, body, exchange):
            until = None if exchange is None else exchange.last_event_id
            # A client that names no event is told what is still kept of what it never heard.
            whole = visit.head.last_event_id is not None
            replay = None
            if since is not None:
                replay = await self.events.replay(session_id, since, whole=whole)
            if replay is None and whole:
                return HttpRefusal(
                    400, "What followed Last-Event-ID is not known any more", reason="unknown_event"
                )
            if exchange is None:
                if replay is not None and not replay.ended:
                    body.write(encode_retry(self.settings.retry_ms))
                body.end()
            if replay is not None:
                body.begin_with(_encode_missed(replay, until))
                del replay  # it may be large, and the stream may last for long
            await self.send_stream(visit.send, body)
        return None

    async def _delete(self, visit: Visit) -> HttpRefusal | None:
        """HTTP-05: the client needs its session no more."""
        refusal = check_delete(visit.head)
        if refusal is not None:
            return refusal
        channel = self._find(visit)
        if isinstance(channel, HttpRefusal):
            return channel
        self.sessions.end(channel.session_id, SESSION_ENDED)
        await send_empty(visit.send, 204)
        return None


def _status(exchange: Exchange, reply: Reply) -> int:
    """What stands in the body, for those who look at nothing else (HTTP-11)."""
    if reply.error_code is None:
        return 200
    if exchange.resumption is None:
        return _STATUS_OF_ERRORS.get(reply.error_code, 200)
    return 400 if reply.error_code in _NO_MESSAGE else 200


def _encode_missed(replay: Replay, until: str | None) -> bytes:
    """The events of `replay` up to `until`: what comes later is said in the body itself."""
    chunks: list[bytes] = []
    for event in replay.events:
        if event.line:
            chunks.append(encode_event(event.line, event.event_id))
        if event.event_id == until:
            break
    return b"".join(chunks)


@contextmanager
def watching(receive: Receive, body: EventBody, exchange: Exchange | None = None) -> Iterator[None]:
    """While this lasts, notice that the client goes; then the response is over."""
    watcher = asyncio.ensure_future(_watch(receive, body))
    try:
        yield
    finally:
        watcher.cancel()
        body.leave()  # what was not sent is dropped
        if exchange is not None:
            exchange.drop(body)


async def _watch(receive: Receive, body: EventBody) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    body.leave()
