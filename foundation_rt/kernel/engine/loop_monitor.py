"""The delay of an event loop: how long an event waits to be served.

A sampling timer would wake an idle process for ever. Instead the loop reports the begin and the end
of each turn. A turn of `d` seconds delays an event that arrives during it by 0 to `d` seconds. The
p99 is taken over *time*: the delay that an event at a random moment of the last 10 s exceeds with a
probability of 1 % (RES-10). Turns under a millisecond are not kept.
"""

from __future__ import annotations

from collections import deque

WINDOW_SECONDS = 10.0
_SHORTEST_KEPT_SECONDS = 0.001
_PERCENTILE = 0.99


class LoopMonitor:
    """Collects the turns of one loop; all times are monotonic seconds."""

    def __init__(self) -> None:
        self.turn_started: float | None = None
        self.turns = 0
        self._turns: deque[tuple[float, float]] = deque()

    def begin_turn(self, now: float) -> None:
        """Begin a turn: the loop has stopped waiting and serves events."""
        self.turn_started = now
        self.turns += 1

    def end_turn(self, now: float) -> None:
        """End a turn: the loop waits again."""
        started, self.turn_started = self.turn_started, None
        if started is not None and now - started > _SHORTEST_KEPT_SECONDS:
            self._turns.append((started, now))
            while self._turns[0][1] < now - WINDOW_SECONDS:
                self._turns.popleft()

    def p99_ms(self, now: float) -> float:
        """Return the p99 delay of the window that ends `now`, in ms; an unfinished turn counts."""
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
