"""The time of a node: that of its ledger's clock, however wrong the clock of its machine is.

Leases, expiry and purge compare times which different processes have written. So a node asks its
ledger for the time, three times in a lease, and follows it. An answer is as old as it was under
way: it says that the ledger's time was between two times of the node, and the node moves its own by
as little as that allows. What follows from it may be late by the time of the answer, and never
early.

A machine whose own clock is far off the ledger's may not claim or purge, although the node would
know the right time: too much else that the process does goes by that clock.
"""

from __future__ import annotations

from typing import Any

from attrs import define, field

from ...base.shown import Shown
from .effects import FollowTime, Operation, Persist
from .operations import Operations


@define(eq=False, repr=False)
class LedgerTime(Shown):
    """Decides how a node follows the time of its ledger.

    Attributes:
        off_ms: how far the machine's clock is ahead of the ledger's, in ms, when last measured.
        is_right: whether that is near enough to claim and to purge (AACP-94); None before the
            first measurement.
    """

    operations: Operations
    off_ms: int = field(default=0, init=False)
    is_right: bool | None = field(default=None, init=False)
    _asked_ms: int = field(default=0, init=False)

    def arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...]:
        """Return the arguments of READ_TIME: none."""
        self._asked_ms = now_ms
        return ()

    def read(self, persist: Persist, ledger_ms: int | None, now_ms: int) -> None:
        """Follow the time that the ledger had between the last question and `now_ms`."""
        if ledger_ms is None:
            self._judge(0)  # it has no clock
            return
        by_ms = max(0, ledger_ms - now_ms) or min(0, ledger_ms - self._asked_ms)
        self.operations.effects.append(FollowTime(by_ms))
        self.operations.awaits_time = True
        self.operations.arm(Operation.READ_TIME, now_ms + self.operations.settings.lease_ms // 3)

    def followed(self, by_ms: int, off_ms: int) -> None:
        """Continue after the node's clock was moved by so many ms; every delay stays as it is.

        Args:
            by_ms: as `FollowTime` said.
            off_ms: how far the machine's own clock is ahead of it now.
        """
        self.operations.awaits_time = False
        self.operations.shift(by_ms)
        if by_ms:
            # A lease, a delay or the time of a schedule may be over now.
            self.operations.want(Operation.QUEUE_DELAYED)
            self.operations.want(Operation.CLAIM)
            self.operations.want(Operation.DUE_SCHEDULES)
        self._judge(off_ms)

    def _judge(self, off_ms: int) -> None:
        operations, was_right = self.operations, self.is_right
        most_ms = operations.settings.max_clock_off_ms
        self.off_ms = off_ms
        self.is_right = most_ms is None or abs(off_ms) <= most_ms
        if self.is_right == was_right:
            return
        if was_right is not None or not self.is_right:
            level, what = _RIGHT_AGAIN if self.is_right else _WRONG
            operations.log(level, what, {"aheadMs": off_ms})
        if self.is_right:
            operations.want(Operation.QUEUE_DELAYED)
            operations.want(Operation.CLAIM)
            operations.want(Operation.PURGE)


_RIGHT_AGAIN = ("info", "the clock is right again: claiming and purging")
_WRONG = (
    "error",
    "the clock of this machine is off that of the ledger's database: set it right; until then"
    " nothing is claimed or purged",
)
