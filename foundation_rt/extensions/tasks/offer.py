"""The tasks of a server, as the rest of it sees them.

A server without tools that have tasks pays nothing for them: what they are made of is imported when
the first such tool is called.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from attrs import define, field

from ...dispatch.effects import Abort, Announce
from .support import NoRoomForTask, can_have_tasks

if TYPE_CHECKING:
    from ...calls.invocation import Invocation
    from ...clock import Clock
    from ...configuration.sections import TasksSection
    from ...dispatch.effects import Reply
    from ...dispatch.envelope import Envelope
    from ...dispatch.subscriptions import Subscriptions
    from ...tools.registry import ToolRegistry
    from .desk import TaskDesk
    from .record import TaskRecord
    from .support import TaskSupport


@define(eq=False, repr=False)
class TaskOffer:
    """Makes tasks of calls, where a tool has them and a client takes them."""

    registry: ToolRegistry
    limits: TasksSection
    clock: Clock
    envelope: Envelope
    subscriptions: Subscriptions
    _desk: TaskDesk | None = field(default=None, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    @property
    def offered(self) -> bool:
        """Whether a client may ever be given a task, or has been (TASK-01)."""
        return self._desk is not None or self.registry.has_tasks

    def desk(self) -> TaskDesk:
        """Where the tasks are."""
        with self._lock:
            if self._desk is None:
                from secrets import token_urlsafe

                from .desk import TaskDesk
                from .store import MemoryTaskStore

                limits = self.limits
                store = MemoryTaskStore(self.clock, limits.max_tasks, limits.max_result_bytes)
                self._desk = TaskDesk(self.clock, limits, store, token_urlsafe, self._publish)
            return self._desk

    def take(self, call: Invocation, support: TaskSupport) -> Reply | None:
        """A call is about to start: have it become a task, now or later, or not (TASK-03).

        Returns:
            The answer to its request, if it is a task already.

        Raises:
            NoRoomForTask: it has to be one at once, and cannot (TASK-12).
        """
        if not can_have_tasks(call.peer) or call.timeout_ms <= support.after_ms:
            return None
        from .call import TaskCall

        inner = call.procedure
        taken = TaskCall(
            inner.resources,
            inner.limits,
            inner,
            self.desk(),
            self.envelope,
            call.timeout_ms - support.after_ms,
        )
        if support.after_ms > 0:
            call.procedure = taken
            call.timeout_ms = support.after_ms
            return None
        handle = taken.promote(call)
        if handle is not None:
            call.procedure = taken
        elif support.required:
            raise NoRoomForTask(self.limits.max_tasks)
        return handle

    def _publish(self, record: TaskRecord) -> None:
        topic = ("task", record.task_id)
        self.subscriptions.publish(topic, "notifications/tasks", record.detailed())

    def disconnect_all(self, reason: str) -> list[Abort | Announce]:
        """The server ends: so does every task."""
        if self._desk is None:
            return []
        calls = [task.call for task in self._desk.all_running()]
        effects = [effect for call in calls for effect in call.procedure.disconnect(call, reason)]
        return [effect for effect in effects if isinstance(effect, Abort | Announce)]
