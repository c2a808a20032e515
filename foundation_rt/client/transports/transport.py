"""The interface between a session and its transport.

A transport moves messages and does not read them. It calls its session on the thread of the event
loop. Each failure is an `MCPError` that says whether the request may have run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from attrs import define

from ...base.shown import Shown
from ..errors import ConnectionLostError

if TYPE_CHECKING:
    from ...protocol.framing import LineTooLong
    from ...protocol.revisions import Revision
    from ..errors import MCPError

NO_HEADER_PARAMS: Mapping[str, str] = {}
"""The header params of most requests; shared, and never changed."""

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Longest message that is accepted from a server, in bytes."""


@define(eq=False, repr=False)
class ClientMessage(Shown):
    """A message to send.

    Attributes:
        line: the message in JSON, without a newline.
        request_id: of a request; None for other messages.
        method: of the message; None for a response.
        name: of the tool, prompt or resource; headers repeat it.
        header_params: the arguments that headers repeat: by name, as text.
        revision: of the session; None before one is agreed on.
    """

    line: bytes
    request_id: str | None = None
    method: str | None = None
    name: str | None = None
    header_params: Mapping[str, str] = NO_HEADER_PARAMS
    revision: Revision | None = None


class LineReceiver(Protocol):
    """Gets the messages of a transport, on the thread of the event loop."""

    def received(self, line: bytes | LineTooLong, request_id: str | None) -> None:
        """Handle a message.

        Args:
            line: as it came.
            request_id: of the request on whose own stream it came; None for a shared stream.
        """


class Receiver(LineReceiver, Protocol):
    """Gets the messages and the failures of a transport, on the thread of the event loop."""

    def awaits(self, request_id: str) -> bool:
        """Return whether this request has no response yet: if so, its stream must be resumed."""

    def failed(self, request_id: str, error: MCPError) -> None:
        """Fail a request that will get no response."""

    def lost(self, error: MCPError) -> None:
        """End the session: the transport has ended by itself."""


class Transport(Protocol):
    """Carries the messages of one session to one server and back."""

    @property
    def description(self) -> str:
        """The server, for people; without secrets."""

    @property
    def has_exchanges(self) -> bool:
        """Return whether each request has an exchange of its own, with headers: HTTP.

        Closing it cancels the request, for a server of the stateless mode.
        """

    @property
    def is_congested(self) -> bool:
        """Return whether a new request has to wait."""

    async def open(self, receiver: Receiver) -> None:
        """Connect. If it is cancelled, it leaves nothing behind.

        Raises:
            MCPError: there is no connection.
        """

    def send(self, message: ClientMessage) -> None:
        """Send a message; never raise, never wait. A failure is reported to the receiver."""

    async def drained(self) -> None:
        """Wait until a request can be sent, or the transport is lost."""

    def forget(self, request_id: str) -> None:
        """Stop waiting for the response to a request."""

    def negotiated(self, revision: Revision) -> None:
        """Use `revision` from now on: the handshake is complete."""

    def stderr_tail(self) -> str:
        """Return the state of the server's process and its last stderr lines; may be empty."""

    async def close(self) -> None:
        """Close it with all that belongs to it; bounded in time. A second call does nothing."""


def not_opened(transport: Transport, reason: str) -> ConnectionLostError:
    """Return the error for a transport that could not be opened."""
    return ConnectionLostError(f"{transport.description} {reason}", may_have_run=False)
