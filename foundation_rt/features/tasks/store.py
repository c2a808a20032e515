"""The store of task records, in memory.

It keeps the records that clients may read, not what runs: the handler of a task lives in the
process that started it, and dies with it (TASK-14).
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...base.principal_shares import LimitReached

if TYPE_CHECKING:
    from ...base.clock import Clock
    from ...base.principal_shares import Quota
    from .record import TaskRecord


@define(eq=False, repr=False)
class _Kept:
    record: TaskRecord
    expires: float


@define(eq=False, repr=False)
class MemoryTaskStore:
    """Records, bounded in number and in bytes of outcomes; safe from any thread (TASK-12).

    A record is dropped once it has expired and its task has ended, never before: new tasks are
    refused instead.

    Args:
        record_quota: counts the records, by their owners.
        outcome_bytes: counts the bytes of their outcomes.
        lock: held for each operation.
    """

    clock: Clock
    record_quota: Quota
    outcome_bytes: Quota
    _lock: AbstractContextManager[Any]
    _kept: OrderedDict[str, _Kept] = field(factory=OrderedDict, init=False)

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, record: TaskRecord) -> None:
        """Keep a new task for its `ttl_ms`.

        Raises:
            LimitReached: there is no room for one more, or for one more of its owner.
        """
        now = self.clock.monotonic()
        with self._lock:
            self._drop_expired(now)
            self.record_quota.take(record.owner)
            self._kept[record.task_id] = _Kept(record, now + record.ttl_ms / 1000)

    def replace(self, record: TaskRecord) -> bool:
        """Keep `record` instead of the one with its id.

        Returns:
            False where there is no room for its outcome, or no room for more outcomes of its
            owner, or the task is not kept any more; nothing has changed then.
        """
        now = self.clock.monotonic()
        with self._lock:
            self._drop_expired(now)
            kept = self._kept.get(record.task_id)
            if kept is None:
                return False
            try:
                self.outcome_bytes.take(record.owner, _size(record) - _size(kept.record))
            except LimitReached:
                return False
            kept.record = record
            return True

    def get(self, task_id: str) -> TaskRecord | None:
        """Return the record of that id, unless it has expired."""
        now = self.clock.monotonic()
        with self._lock:
            self._drop_expired(now)
            kept = self._kept.get(task_id)
            return None if kept is None else kept.record

    def _drop_expired(self, now: float) -> None:
        """Drop the oldest records that have expired; all tasks have the same `ttl_ms`.

        An expired task that has not ended also keeps the records behind it, until the deadline of
        its handler ends it.
        """
        while self._kept:
            task_id, oldest = next(iter(self._kept.items()))
            if oldest.expires > now or not oldest.record.is_terminal:
                return
            self.outcome_bytes.give_back(oldest.record.owner, _size(oldest.record))
            self.record_quota.give_back(oldest.record.owner)
            del self._kept[task_id]


def _size(record: TaskRecord) -> int:
    return 0 if record.outcome is None else len(record.outcome)
