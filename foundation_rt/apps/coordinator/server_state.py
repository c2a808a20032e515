"""The states of one server, from its start to its removal (COORD-10 to COORD-16). Pure.

| state       | connected | attempt failed | connection ended                        |
|-------------|-----------|----------------|-----------------------------------------|
| starting    | ready     | failed         |                                         |
| ready       |           |                | lost; failed after five ends in 60 s    |
| lost        | ready     | lost           |                                         |
| failed      | ready     | failed         |                                         |
| needs login | ready     | failed         |                                         |
| disabled    |           |                |                                         |

Any attempt, and the login of a ready server, may end in `needs login`.

`now` is the time of a monotonic clock in s, `draw` a random number from 0 to 1. The next attempt is
due at `attempt_at`; a call may make it earlier. What a server listed stays listed until
`listed_until`, so that a restart is invisible.
"""

from __future__ import annotations

from enum import StrEnum

from attrs import define, field

from ...base.backoff import exponential_delay

FIRST_DELAY = 1.0
LONGEST_DELAY = 60.0
LISTED_AFTER_LOSS = 30.0
FLAPPING_ENDS = 5
FLAPPING_WINDOW = 60.0
FLAPPING_DELAY = 60.0


class ServerState(StrEnum):
    """The state of a server."""

    STARTING = "starting"
    """The first attempt to connect is under way, or waits for its turn."""
    READY = "ready"
    """It is connected, and its tools are known."""
    LOST = "lost"
    """It was ready; the connection ended, and is made again."""
    FAILED = "failed"
    """It cannot be started or reached, keeps ending, or its entry cannot be used."""
    NEEDS_LOGIN = "needs login"
    """Its server wants a person, who has not logged in yet; the reason has the command."""
    DISABLED = "disabled"
    """Its entry says so."""


@define(eq=False)
class ServerLifecycle:
    """The state of a server, and when it is tried again.

    Attributes:
        state: the present one.
        reason: why it is not ready; None where that needs no reason.
        attempt_at: when the next attempt is due; None: there is none to make.
        listed_until: when its tools leave the lists; None: they stay, or have left.
        is_listed: whether its tools are in the lists.
        listed_after_loss: how long its tools stay there after its connection has ended, in s.
    """

    state: ServerState = ServerState.STARTING
    reason: str | None = None
    attempt_at: float | None = None
    listed_until: float | None = None
    is_listed: bool = False
    listed_after_loss: float = LISTED_AFTER_LOSS
    _failed_attempts: int = field(default=0, init=False)
    _ends: list[float] = field(factory=list, init=False)
    _ready_since: float = field(default=0.0, init=False)
    _is_flapping: bool = field(default=False, init=False)

    @classmethod
    def disabled(cls) -> ServerLifecycle:
        """Return the lifecycle of a server that is left out."""
        return cls(ServerState.DISABLED)

    @classmethod
    def unusable(cls, reason: str) -> ServerLifecycle:
        """Return the lifecycle of a server whose entry cannot be used; it is never tried."""
        return cls(ServerState.FAILED, reason)

    def connected(self, now: float) -> None:
        """Note that it is connected and its lists are known."""
        self.state, self.reason = ServerState.READY, None
        self.attempt_at = self.listed_until = None
        self.is_listed = True
        self._failed_attempts = 0
        self._ready_since = now

    def attempt_failed(
        self, now: float, reason: str, draw: float, *, needs_login: bool = False
    ) -> None:
        """Note that an attempt to connect has failed, perhaps for want of a login."""
        if needs_login:
            self.state = ServerState.NEEDS_LOGIN
        elif self.state is not ServerState.LOST:
            self.state = ServerState.FAILED
        self.reason = reason
        self._failed_attempts += 1
        self.attempt_at = now + self._delay(draw)

    def login_ended(self, now: float, reason: str, draw: float) -> None:
        """Note that the server wants a login again, since the one that there was has ended."""
        self.attempt_failed(now, reason, draw, needs_login=True)
        self.listed_until = now + self.listed_after_loss

    def ended(self, now: float, reason: str, draw: float) -> None:
        """Note that the connection has ended by itself."""
        self._note_end(now)
        self.state = ServerState.FAILED if self._is_flapping else ServerState.LOST
        self.reason = reason
        if self._is_flapping:
            self.reason = f"{reason}; it ended {FLAPPING_ENDS} times in {FLAPPING_WINDOW:.0f} s"
        self.listed_until = now + self.listed_after_loss
        self._failed_attempts = 1
        self.attempt_at = now + self._delay(draw)

    def renewed(self, now: float) -> None:
        """Note that the connection was ended on purpose, and is made anew at once."""
        self.state, self.reason = ServerState.LOST, "its session is made anew"
        self.listed_until = now + self.listed_after_loss
        self._failed_attempts = 0
        self.attempt_at = now

    def pass_time(self, now: float) -> None:
        """Let its tools leave the lists when that is due."""
        if self.listed_until is not None and now >= self.listed_until:
            self.listed_until, self.is_listed = None, False

    def _note_end(self, now: float) -> None:
        self._ends = [end for end in self._ends if end > now - FLAPPING_WINDOW] + [now]
        # One that has kept ending has to stay for as long before it is trusted again: else every
        # trial would be followed by five quick ones.
        stayed = now - self._ready_since >= FLAPPING_WINDOW
        self._is_flapping = len(self._ends) >= FLAPPING_ENDS or (self._is_flapping and not stayed)

    def _delay(self, draw: float) -> float:
        """Return the time to the next attempt: from half the backoff to the whole of it."""
        if self._is_flapping:
            return FLAPPING_DELAY
        longest = exponential_delay(self._failed_attempts, FIRST_DELAY, LONGEST_DELAY)
        return longest * (0.5 + 0.5 * draw)
