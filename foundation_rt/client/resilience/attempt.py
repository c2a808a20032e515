"""One try of what a caller wants: what everybody who has to do with it knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ..callbacks import LogCallback, ProgressCallback
    from ..errors import MCPError
    from ..session.pending_requests import NotificationReceived
    from ..session.session import Session
    from .breakers import Permits
    from .deadline import Deadline


@define(eq=False, repr=False)
class Attempt:
    """One try of what a caller wants: who hears of it, and how long it may take.

    Attributes:
        is_idempotent: whether it may run twice.
        permits: of the call's circuit breakers; None of what is no call of its own.
        session: the one it has; None as long as it waits for one.
        was_sent: whether anything of it has been handed to a channel, and not been refused.
        was_answered: whether the server has answered what was sent last, however.
        has_begun: whether the server has begun to carry it out, and asked for more.
        answer_bytes: length of the message that its last answer came in.
    """

    deadline: Deadline | None = None
    on_progress: ProgressCallback | None = None
    on_log: LogCallback | None = None
    on_notification: Callable[[NotificationReceived], object] | None = None
    is_idempotent: bool = False
    permits: Permits | None = None
    session: Session | None = field(default=None, init=False)
    was_sent: bool = field(default=False, init=False)
    was_answered: bool = field(default=False, init=False)
    has_begun: bool = field(default=False, init=False)
    answer_bytes: int = field(default=0, init=False)
    answer: asyncio.Future[dict[str, Any] | MCPError] = field(init=False)

    def admit(self) -> None:
        """Take the permits of the call; to be called before anything is sent for it (BREAK-10).

        Raises:
            CircuitOpenError: a circuit is open.
        """
        if self.permits is not None:
            self.permits.take()

    def withdraw(self) -> None:
        """Give the permits back while the client itself holds the call up (BREAK-13)."""
        if self.permits is not None:
            self.permits.release()
