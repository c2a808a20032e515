"""One attempt of an operation, as every layer of the client sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...shown import Shown

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ..callbacks import LogCallback, ProgressCallback
    from ..errors import MCPError
    from ..session.pending_requests import NotificationReceived
    from ..session.session import ClientSession
    from .breakers import Permits
    from .deadline import Deadline


@define(eq=False, repr=False)
class Attempt(Shown):
    """One attempt of an operation: its callbacks, its deadline, its state.

    Attributes:
        is_idempotent: whether it may run twice.
        permits: of the call's circuit breakers; None for a request that is part of another call.
        session: the session it uses; None while it waits for one.
        was_sent: whether a request of it was handed to a transport, and not refused.
        was_answered: whether the server has responded to its last request.
        has_begun: whether the server has started it, and asked for input.
        answer_bytes: length of the message with its last response.
    """

    deadline: Deadline | None = None
    on_progress: ProgressCallback | None = None
    on_log: LogCallback | None = None
    on_notification: Callable[[NotificationReceived], object] | None = None
    is_idempotent: bool = False
    permits: Permits | None = None
    session: ClientSession | None = field(default=None, init=False)
    was_sent: bool = field(default=False, init=False)
    was_answered: bool = field(default=False, init=False)
    has_begun: bool = field(default=False, init=False)
    answer_bytes: int = field(default=0, init=False)
    answer: asyncio.Future[dict[str, Any] | MCPError] = field(init=False)

    def admit(self) -> None:
        """Take the permits of the call, before anything is sent for it (BREAK-10).

        Raises:
            CircuitOpenError: a circuit is open.
        """
        if self.permits is not None:
            self.permits.take()

    def withdraw(self) -> None:
        """Release the permits while the client itself delays the call (BREAK-13)."""
        if self.permits is not None:
            self.permits.release()
