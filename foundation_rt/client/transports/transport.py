"""What lies between a session and whatever carries its messages.

A channel moves messages and knows nothing of what they say; a session is told what has come, by
calls on the thread of the event loop. Whatever goes wrong on the way is an `MCPError` that says
whether the request may have been carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from attrs import define

if TYPE_CHECKING:
    from ...protocol.framing import LineTooLong
    from ...protocol.revisions import Revision
    from ..errors import MCPError

NO_HEADER_PARAMS: Mapping[str, str] = {}
"""What headers repeat of most requests; one for all, since it is never changed."""

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Longest message that is taken from a server, in bytes."""


@define(eq=False, repr=False)
class ClientMessage:
    """A message to send.

    Attributes:
        line: the message in JSON, without a newline.
        request_id: of a request; None if no answer is waited for.
        method: None of an answer to what the server asked.
        name: of what the request is about, which headers repeat.
        mirrored: arguments that headers repeat: by name, as text.
        revision: what it is written in; None before one is agreed on.
    """

    line: bytes
    request_id: str | None = None
    method: str | None = None
    name: str | None = None
    header_params: Mapping[str, str] = NO_HEADER_PARAMS
    revision: Revision | None = None


class Receiver(Protocol):
    """Who is told what a channel brings; on the thread of the event loop."""

    def received(self, line: bytes | LineTooLong, request_id: str | None) -> None:
        """A message has come.

        Args:
            request_id: of the request on whose own stream it came; None if there is one stream
                for all.
        """

    def awaits(self, request_id: str) -> bool:
        """Return whether this request still has no answer: a stream may end, or must be resumed."""

    def failed(self, request_id: str, error: MCPError) -> None:
        """No answer to this request will come."""

    def lost(self, error: MCPError) -> None:
        """The channel has ended by itself, and with it what is unanswered; nothing follows."""


class Transport(Protocol):
    """A way to one server, for one session."""

    @property
    def description(self) -> str:
        """What it leads to, for people; without anything secret."""

    @property
    def has_exchanges(self) -> bool:
        """Return whether every request has an exchange of its own, with headers: HTTP.

        Its end tells a server of the stateless mode that nobody waits for it any more.
        """

    @property
    def is_congested(self) -> bool:
        """Return whether so much is unsent that nothing should be added."""

    async def open(self, receiver: Receiver) -> None:
        """Make the way. Cancelled in the middle, it leaves nothing behind.

        Raises:
            MCPError: there is none.
        """

    def send(self, message: ClientMessage) -> None:
        """Take a message; what becomes of it is told later. Never raises, never waits."""

    async def drained(self) -> None:
        """Wait until the channel is not congested, or lost."""

    def forget(self, request_id: str) -> None:
        """Nobody waits for the answer to this request any more."""

    def negotiated(self, revision: Revision) -> None:
        """The handshake is through; from now on `revision` is spoken."""

    def stderr_tail(self) -> str:
        """What the server's side has to say of its end; empty if nothing is known."""

    async def close(self) -> None:
        """End it, and whatever belongs to it; bounded in time. A second time does nothing."""
