"""HTTP+SSE, the transport of revision 2024-11-05: one stream down, POSTs up (HTTP-18).

A GET opens a connection of the runtime and its stream; the first event names the path to POST to.
The connection ends with the stream: this transport cannot resume streams.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from attrs import define, field

from ..protocol.jsonrpc import parse
from .asgi import HttpRefusal, send_empty
from .endpoint import NO_SESSION, SESSION_ENDED, watching
from .headers import check_post, method_not_allowed
from .request import read_body
from .session import SERVER_STOPS
from .session_table import session_key_of
from .sse import EventBody, encode_event

if TYPE_CHECKING:
    from ..kernel.engine.connection import Connection
    from .endpoint import Endpoint
    from .post_response import Message
    from .request import HttpRequest
    from .session_table import SessionTable

STREAM_PATH = "/sse"
MESSAGES_PATH = "/messages"

_PARAMETER = "session_id"


@define(eq=False, repr=False)
class LegacySession:
    """One client: its messages are events of one body."""

    body: EventBody
    connection: Connection = field(init=False)

    @property
    def is_busy(self) -> bool:
        """Return True: the client listens as long as its session exists."""
        return True

    def deliver(self, message: Message) -> None:
        """Send `message` as an event."""
        self.body.write(encode_event(message.line))

    def close(self, reason: str) -> None:
        """End the session: abort its calls, and end its stream."""
        self.connection.close(reason)
        self.body.end()


@define(eq=False, repr=False)
class LegacyEndpoint:
    """Answers at `STREAM_PATH` and `MESSAGES_PATH`.

    Args:
        endpoint: the endpoint of the current transport, whose runtime and limits apply here too.
        sessions: the sessions of this transport.
    """

    endpoint: Endpoint
    sessions: SessionTable[LegacySession]

    def close(self) -> None:
        """End every session: the server stops."""
        self.sessions.end_all(SERVER_STOPS)

    async def open_stream(self, request: HttpRequest) -> HttpRefusal | None:
        """Open a session, and send its messages until the client has gone."""
        if request.scope["method"] != "GET":
            return method_not_allowed("GET")
        refusal = await self.endpoint.check_rate(request)
        if refusal is not None:
            return refusal
        refusal = self.sessions.check_capacity(request.principal)
        if refusal is not None:
            return refusal
        endpoint, body = self.endpoint, request.open_body()
        session = LegacySession(body)
        session.connection = endpoint.runtime.connect(
            session.deliver, "sse", endpoint.scheduler, principal=request.principal
        )
        group = endpoint.group
        named = None if group is None else group.new_session_id(request.principal)
        session_id = self.sessions.add(session, request.principal, named)
        session.connection.make_key = partial(session_key_of, session_id)
        path = f"{request.scope.get('root_path', '')}{MESSAGES_PATH}?{_PARAMETER}={session_id}"
        body.write(encode_event(path.encode(), kind="endpoint"))
        try:
            with watching(request.receive, body):
                await endpoint.send_stream(request.send, body)
        finally:
            self.sessions.end(session_id, SESSION_ENDED)
        return None

    async def handle_message(self, request: HttpRequest) -> HttpRefusal | None:
        """Handle one message of a client; its response goes to the client's stream."""
        if request.scope["method"] != "POST":
            return method_not_allowed("POST")
        refusal = check_post(request.head)
        if refusal is not None:
            return refusal
        query = parse_qs(request.scope["query_string"].decode("ascii", "replace"))
        named = query.get(_PARAMETER, [])
        session_id = named[0] if len(named) == 1 else None
        session = self.sessions.get(session_id, request.principal)
        if session is None:
            return await self._forward(request, session_id)
        line = await read_body(request.head, request.receive, self.endpoint.settings)
        if isinstance(line, HttpRefusal):
            return line
        # The same principal, but its token may be a new one with other scopes.
        session.connection.session.principal = request.principal
        session.connection.handle_with(parse(line), request.headers)
        await send_empty(request.send, 202)
        return None

    async def _forward(self, request: HttpRequest, session_id: str | None) -> HttpRefusal | None:
        """Let another worker handle a message, if it has the session."""
        router = self.endpoint.router
        if router is None or session_id is None:
            return NO_SESSION
        body = await read_body(request.head, request.receive, self.endpoint.settings)
        if isinstance(body, HttpRefusal):
            return body
        taken = await router.take_legacy(request, session_id, body)
        return NO_SESSION if taken is None else await router.respond(request, taken)
