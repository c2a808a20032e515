"""HTTP+SSE, the transport of revision 2024-11-05: one stream down, POSTs up (HTTP-18).

A GET opens a connection of the runtime and its stream; the first event names the path to POST to.
The connection ends with the stream: this transport knows no resuming.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from attrs import define, field

from .endpoint import NO_SESSION, SERVER_STOPS, SESSION_ENDED, Visit, watching
from .headers import check_post, method_not_allowed
from .refusal import HttpRefusal
from .responses import send_empty
from .streams import EventBody, encode_event

if TYPE_CHECKING:
    from ...engine.connection import Connection
    from .endpoint import Endpoint
    from .exchange import Message
    from .sessions import SessionTable

STREAM_PATH = "/sse"
MESSAGES_PATH = "/messages"

_PARAMETER = "session_id"


@define(eq=False, repr=False)
class LegacyChannel:
    """One client: what is said to it is events of one body."""

    body: EventBody
    connection: Connection = field(init=False)

    @property
    def is_busy(self) -> bool:
        """As long as there is one, its client listens."""
        return True

    def deliver(self, message: Message) -> None:
        """Send `message` as an event."""
        self.body.write(encode_event(message.line))

    def close(self, reason: str) -> None:
        """The client is served no longer."""
        self.connection.close(reason)
        self.body.end()


@define(eq=False, repr=False)
class LegacyEndpoint:
    """Answers at `STREAM_PATH` and `MESSAGES_PATH`.

    Args:
        endpoint: that of the newer transport, whose runtime and limits are these too.
        sessions: of this transport.
    """

    endpoint: Endpoint
    sessions: SessionTable[LegacyChannel]

    def close(self) -> None:
        """The server stops: every stream ends, and with it what runs for its client."""
        self.sessions.end_all(SERVER_STOPS)

    async def open_stream(self, visit: Visit) -> HttpRefusal | None:
        """A client comes: its stream lasts as long as it stays."""
        if visit.scope["method"] != "GET":
            return method_not_allowed("GET")
        refusal = await self.endpoint.check_rate(visit)
        if refusal is not None:
            return refusal
        refusal = self.sessions.make_room(visit.principal)
        if refusal is not None:
            return refusal
        endpoint, body = self.endpoint, visit.open_body()
        channel = LegacyChannel(body)
        channel.connection = endpoint.runtime.connect(
            channel.deliver, "sse", endpoint.scheduler, principal=visit.principal
        )
        session_id = self.sessions.add(channel, visit.principal)
        path = f"{visit.scope.get('root_path', '')}{MESSAGES_PATH}?{_PARAMETER}={session_id}"
        body.write(encode_event(path.encode(), kind="endpoint"))
        try:
            with watching(visit.receive, body):
                await endpoint.send_stream(visit.send, body)
        finally:
            self.sessions.end(session_id, SESSION_ENDED)
        return None

    async def take_message(self, visit: Visit) -> HttpRefusal | None:
        """A message of a client; what it leads to is said in the client's stream."""
        if visit.scope["method"] != "POST":
            return method_not_allowed("POST")
        refusal = check_post(visit.head)
        if refusal is not None:
            return refusal
        named = parse_qs(visit.scope["query_string"].decode("ascii", "replace")).get(_PARAMETER, [])
        channel = self.sessions.get(named[0] if len(named) == 1 else None, visit.principal)
        if channel is None:
            return NO_SESSION
        line = await self.endpoint.read_body(visit)
        if isinstance(line, HttpRefusal):
            return line
        channel.connection.session.principal = visit.principal  # of its token's scopes today
        channel.connection.receive(line)
        await send_empty(visit.send, 202)
        return None
