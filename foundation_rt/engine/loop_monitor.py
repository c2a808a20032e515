"""How long an event waits to be served by a loop, told from how long the loop was busy.

A sampling timer would wake an idle process for ever. Instead the loop tells when each turn began
and ended; a turn of `d` seconds made whatever arrived during it wait between 0 and `d`. The p99 is
taken over *time*: the delay that an event arriving at a random moment of the last 10 s would have
exceeded with a probability of 1 % (RES-10). Turns under a millisecond are not kept.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

if TYPE_CHECKING:
    from .scheduling import HostLoop

WINDOW_SECONDS = 10.0
_WORTH_KEEPING_SECONDS = 0.001
_PERCENTILE = 0.99


@define(eq=False, repr=False)
class LoopDelay:
    """Collects the busy turns of one loop; all times are monotonic seconds."""

    turn_started: float | None = field(default=None, init=False)
    turns: int = field(default=0, init=False)
    _turns: deque[tuple[float, float]] = field(factory=deque, init=False)

    def begin_turn(self, now: float) -> None:
        """The loop has stopped waiting and starts to serve what is there."""
        self.turn_started = now
        self.turns += 1

    def end_turn(self, now: float) -> None:
        """The loop goes back to waiting."""
        started, self.turn_started = self.turn_started, None
        if started is not None and now - started > _WORTH_KEEPING_SECONDS:
            self._turns.append((started, now))
            while self._turns[0][1] < now - WINDOW_SECONDS:
                self._turns.popleft()

    def p99_ms(self, now: float) -> float:
        """The p99 delay of the window that ends `now`, in ms; the turn under way counts."""
        opened = now - WINDOW_SECONDS
        started = self.turn_started
        turns = list(self._turns) if started is None else [*self._turns, (started, now)]
        lengths = sorted((end - max(begin, opened) for begin, end in turns if end > opened))
        # The time during which an arriving event waits longer than x is the sum of (length - x)
        # over the turns longer than x. It falls as x grows: find the x at which it is 1 %.
        allowed = (1 - _PERCENTILE) * WINDOW_SECONDS
        total, delay = 0.0, 0.0
        for count, length in enumerate(reversed(lengths), start=1):
            if length <= delay:
                break
            total += length
            delay = (total - allowed) / count
        return max(0.0, delay) * 1000


class Closable(Protocol):
    """What uses a loop until it is closed: a connection, an application."""

    @property
    def closed(self) -> bool:
        """Return whether it uses the loop no more."""


@define(eq=False, repr=False)
class HostDelay:
    """The delay of a host's own loop, probed as long as anything that uses it is open."""

    host: HostLoop
    delay: LoopDelay = field(factory=LoopDelay, init=False)
    # Closed ones are taken out by the probe alone: while there is one here, the probe runs.
    _users: list[Closable] = field(factory=list, init=False)

    def watch(self, user: Closable) -> None:
        """Probe at least until `user` is closed."""
        self._users.append(user)
        if len(self._users) == 1:
            self.host.sample_delay(self.delay, self._is_wanted)

    def is_used(self) -> bool:
        """Return whether anything that uses the loop is open."""
        return not all(each.closed for each in self._users)

    def _is_wanted(self) -> bool:
        self._users = [each for each in self._users if not each.closed]
        return bool(self._users)
