"""The tasks of a server, as the rest of the server sees them.

A server without tools that have tasks pays nothing for them: their modules are imported when the
first such tool is called.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...protocol.methods import NOTIFICATIONS_TASKS
from .support import can_have_tasks

if TYPE_CHECKING:
    from ...base.clock import Clock
    from ...base.config.settings import ServerConfig
    from ..effects import Publish, Reply
    from ..invocation import Invocation
    from ..principal_shares import Quota
    from ..registry.tools import TaskSupport, ToolRegistry
    from ..replies import ResultWriter
    from ..subscriptions import Subscriptions
    from .manager import TaskManager
    from .record import TaskRecord


NewLock = Callable[[], AbstractContextManager[Any]]
"""Makes a lock that one thread may take twice."""


@define(eq=False, repr=False)
class TaskPolicy:
    """Makes tasks of calls, where the tool has tasks and the client declares the extension.

    Args:
        publish: sends notifications of changed tasks; called from any thread.
        new_lock: makes the locks of the manager, of its store and of each task.
        new_id: makes ids that cannot be guessed (TASK-10).

    Attributes:
        open_requests: returns the quota of requests to clients.
    """

    registry: ToolRegistry
    config: ServerConfig
    clock: Clock
    results: ResultWriter
    subscriptions: Subscriptions
    publish: Callable[[list[Publish]], object]
    new_lock: NewLock
    new_id: Callable[[], str]
    open_requests: Callable[[], Quota] = field(init=False)
    _manager: TaskManager | None = field(default=None, init=False)
    _lock: AbstractContextManager[Any] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self.new_lock()

    @property
    def offered(self) -> bool:
        """Return whether a client may ever be given a task, or has been (TASK-01)."""
        return self._manager is not None or self.registry.has_tasks

    def manager(self) -> TaskManager:
        """Return the manager of the tasks; made when it is first needed."""
        with self._lock:
            if self._manager is None:
                self._manager = self._make_manager()
            return self._manager

    def _make_manager(self) -> TaskManager:
        from ..principal_shares import Limit, Quota
        from .manager import TaskManager
        from .store import MemoryTaskStore

        limits = self.config.tasks
        records = Limit(limits.max_tasks, "places for tasks", "maxTasks", "task_limit")
        size = Limit(limits.max_result_bytes, "bytes of results", "maxResultBytes", "task_limit")
        store = MemoryTaskStore(
            self.clock, Quota(self.config, records), Quota(self.config, size), self.new_lock()
        )
        return TaskManager(
            self.clock,
            limits,
            store,
            self.open_requests(),
            self.new_id,
            self._announce,
            self.publish,
        )

    def offer(self, call: Invocation, support: TaskSupport) -> Reply | None:
        """Let a call that is about to start become a task, now or later, or not (TASK-03).

        Returns:
            The answer to its request, if it is a task already.

        Raises:
            LimitReached: it has to be a task at once, and there is no room (TASK-12).
        """
        if not can_have_tasks(call.peer) or call.timeout_ms <= support.after_ms:
            return None
        from ..principal_shares import LimitReached
        from .promotion import Promotion

        remaining_ms = call.timeout_ms - support.after_ms
        promotion = Promotion(self.manager(), self.results, remaining_ms, self.new_lock())
        if support.after_ms > 0:
            call.promotion = promotion
            promotion.is_due = True
            call.timeout_ms = support.after_ms
            return None
        try:
            handle = promotion.promote(call)
        except LimitReached:
            if support.required:
                raise
            return None
        call.promotion = promotion
        return handle

    def _announce(self, record: TaskRecord) -> list[Publish]:
        topic = ("task", record.task_id)
        return [*self.subscriptions.publish(topic, NOTIFICATIONS_TASKS, record.detailed())]

    def calls(self) -> list[Invocation]:
        """Return the calls behind the tasks that have not ended."""
        return [] if self._manager is None else self._manager.calls()
