"""The tasks of a server, as the rest of it sees them.

A server without tools that have tasks pays nothing for them: what they are made of is imported when
the first such tool is called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field

from ..effects import Abort, Publish
from .support import can_have_tasks

if TYPE_CHECKING:
    from ...clock import Clock
    from ...config.settings import ServerConfig
    from ...registry.tools import TaskSupport, ToolRegistry
    from ..client_input import ClientInput
    from ..effects import Reply
    from ..invocation import Invocation
    from ..replies import ResultWriter
    from ..subscriptions import Subscriptions
    from .manager import TaskManager
    from .record import TaskRecord


@define(eq=False, repr=False)
class TaskPolicy:
    """Makes tasks of calls, where a tool has them and a client takes them."""

    registry: ToolRegistry
    config: ServerConfig
    clock: Clock
    results: ResultWriter
    subscriptions: Subscriptions
    client_input: ClientInput
    publish: Callable[[list[Publish]], object]
    _manager: TaskManager | None = field(default=None, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    @property
    def offered(self) -> bool:
        """Return whether a client may ever be given a task, or has been (TASK-01)."""
        return self._manager is not None or self.registry.has_tasks

    def manager(self) -> TaskManager:
        """Where the tasks are."""
        with self._lock:
            if self._manager is None:
                self._manager = self._make_manager()
            return self._manager

    def _make_manager(self) -> TaskManager:
        from secrets import token_urlsafe

        from ...shares import Limit, Quota
        from .manager import TaskManager
        from .store import MemoryTaskStore

        limits = self.config.tasks
        room = Limit(limits.max_tasks, "places for tasks", "maxTasks", "task_limit")
        size = Limit(limits.max_result_bytes, "bytes of results", "maxResultBytes", "task_limit")
        store = MemoryTaskStore(self.clock, Quota(self.config, room), Quota(self.config, size))
        questions = self.client_input.questions
        return TaskManager(
            self.clock, limits, store, questions, token_urlsafe, self._announce, self.publish
        )

    def take(self, call: Invocation, support: TaskSupport) -> Reply | None:
        """A call is about to start: have it become a task, now or later, or not (TASK-03).

        Returns:
            The answer to its request, if it is a task already.

        Raises:
            LimitReached: it has to be one at once, and there is no room (TASK-12).
        """
        if not can_have_tasks(call.peer) or call.timeout_ms <= support.after_ms:
            return None
        from ...shares import LimitReached
        from .call import TaskCall

        inner = call.procedure
        taken = TaskCall(
            inner.resources,
            inner.limits,
            inner,
            self.manager(),
            self.results,
            call.timeout_ms - support.after_ms,
        )
        if support.after_ms > 0:
            call.procedure = taken
            call.timeout_ms = support.after_ms
            return None
        try:
            handle = taken.promote(call)
        except LimitReached:
            if support.required:
                raise
            return None
        call.procedure = taken
        return handle

    def _announce(self, record: TaskRecord) -> list[Publish]:
        topic = ("task", record.task_id)
        return [*self.subscriptions.publish(topic, "notifications/tasks", record.detailed())]

    def disconnect_all(self, reason: str) -> list[Abort | Publish]:
        """The server ends: so does every task."""
        if self._manager is None:
            return []
        calls = self._manager.calls()
        effects = [effect for call in calls for effect in call.procedure.disconnect(call, reason)]
        return [effect for effect in effects if isinstance(effect, Abort | Publish)]
