"""Where records of tasks are kept: the interface, and the store in memory.

A store keeps what clients may ask for, not what runs: the handler of a task lives in the process
that started it, and dies with it (TASK-14).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

if TYPE_CHECKING:
    from ...clock import Clock
    from .record import TaskRecord


class TaskStore(Protocol):
    """Keeps records of tasks until they are old enough; safe from any thread."""

    def add(self, record: TaskRecord) -> bool:
        """Keep a new task for its `ttl_ms`; return False where there is no room for one more."""
        ...

    def replace(self, record: TaskRecord) -> bool:
        """Keep `record` instead of the one with its id.

        Returns:
            False where there is no room for its outcome, or the task is not kept any more; nothing
            has changed then.
        """
        ...

    def get(self, task_id: str) -> TaskRecord | None:
        """The record of that id, if it is still kept."""
        ...


@define(eq=False, repr=False)
class _Kept:
    record: TaskRecord
    expires: float


@define(eq=False, repr=False)
class MemoryTaskStore:
    """Records in memory, bounded in number and in bytes of outcomes (TASK-12).

    A record is dropped once its time is over and its task has ended, never before: what a client
    was promised is kept, and new tasks are refused instead.

    Args:
        max_tasks: how many records are kept at most.
        max_bytes: how many bytes their outcomes may have, all together.
    """

    clock: Clock
    max_tasks: int
    max_bytes: int
    _kept: OrderedDict[str, _Kept] = field(factory=OrderedDict, init=False)
    _bytes: int = field(default=0, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, record: TaskRecord) -> bool:
        """Keep a new task, unless `max_tasks` are kept."""
        now = self.clock.monotonic()
        with self._lock:
            self._drop_expired(now)
            if len(self._kept) >= self.max_tasks:
                return False
            self._kept[record.task_id] = _Kept(record, now + record.ttl_ms / 1000)
            return True

    def replace(self, record: TaskRecord) -> bool:
        """Keep `record` instead, unless its outcome is more than there is room for."""
        now = self.clock.monotonic()
        with self._lock:
            self._drop_expired(now)
            kept = self._kept.get(record.task_id)
            if kept is None:
                return False
            total = self._bytes + _size(record) - _size(kept.record)
            if total > self.max_bytes:
                return False
            self._bytes = total
            kept.record = record
            return True

    def get(self, task_id: str) -> TaskRecord | None:
        """The record of that id, if its time is not over."""
        now = self.clock.monotonic()
        with self._lock:
            self._drop_expired(now)
            kept = self._kept.get(task_id)
            return None if kept is None else kept.record

    def _drop_expired(self, now: float) -> None:
        """All tasks live equally long, so the oldest are over first.

        A task that has not ended though its time is over holds those behind it back: at most as
        long as its handler's deadline is late.
        """
        while self._kept:
            task_id, oldest = next(iter(self._kept.items()))
            if oldest.expires > now or not oldest.record.is_terminal:
                return
            self._bytes -= _size(oldest.record)
            del self._kept[task_id]


def _size(record: TaskRecord) -> int:
    return 0 if record.outcome is None else len(record.outcome)
