"""The absence of a session's client, which ends the questions to it (ASK-19).

A client whose connections were lost may come back and resume its streams, or answer with a POST. It
is waited for, but not for as long as a user may take to answer: its calls hold slots meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from ...clock import Clock
    from ...engine.connection import Connection
    from ...engine.timers import Timer


@define(eq=False, repr=False)
class Absence:
    """Ends the questions of one session once its client has been away for too long.

    It has a timer only while questions are open and no response of the session is.

    Args:
        grace_ms: how long the client may be away.
        is_here: returns whether any response of the session is open.

    Attributes:
        connection: of the session; set by who makes it.
    """

    _clock: Clock
    _grace_ms: int
    _is_here: Callable[[], bool]
    connection: Connection = field(init=False)
    _seen: float = field(default=0.0, init=False)
    _timer: Timer | None = field(default=None, init=False)

    def note_contact(self) -> None:
        """Count the absence from now on: a message came, or a response has ended."""
        self._seen = self._clock.monotonic()

    def watch(self) -> None:
        """Arm the timer, if questions are open and the client is away."""
        if self._timer is None and self._matters():
            self._timer = self.connection.scheduler.call_later(self._left(), self._look)

    def close(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _matters(self) -> bool:
        return bool(self.connection.session.questions) and not self._is_here()

    def _left(self) -> float:
        """Return for how many seconds the client is still waited for."""
        return max(0.0, self._seen + self._grace_ms / 1000 - self._clock.monotonic())

    def _look(self) -> None:
        self._timer = None
        if self._left() > 0:
            self.watch()  # it was here in between
        elif self._matters():
            self.connection.give_up_questions(self._grace_ms)
