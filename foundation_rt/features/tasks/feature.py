"""The tasks of a server, as the rest of the server sees them.

A server without tools that have tasks pays nothing for them: the other modules of this folder are
imported when the first such tool is called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...base.lazy_names import lazy
from ...kernel.feature import RuntimeFeature
from ...protocol.methods import NOTIFICATIONS_TASKS, TASKS_CANCEL, TASKS_GET, TASKS_UPDATE
from ..subscriptions.feature import Subscribing
from .support import EXTENSION, TaskSupport, can_have_tasks, require_extension

if TYPE_CHECKING:
    from ...base.abort import AbortSignal
    from ...base.clock import Clock
    from ...base.config.settings import ServerConfig
    from ...kernel.dispatcher import Dispatcher
    from ...kernel.effects import Effect, FeatureCallback
    from ...kernel.invocation import Invocation
    from ...protocol.principal import Principal
    from ..server_requests.feature import ClientInput
    from ..server_requests.requester import RequestStrategy
    from ..server_requests.round_trips import MultiRoundTrip
    from .manager import TaskManager
    from .record import TaskRecord

_METHODS = f"{__package__}.methods"


class Tasks(RuntimeFeature):
    """Makes tasks of calls, where the tool has tasks and the client declares the extension.

    Args:
        asking: the requests of calls to their clients.

    Attributes:
        new_id: makes ids of 256 random bits (TASK-10); to be replaced before the first task.
    """

    requests = MappingProxyType(
        {
            TASKS_GET: lazy(_METHODS, "get_task"),
            TASKS_UPDATE: lazy(_METHODS, "update_task"),
            TASKS_CANCEL: lazy(_METHODS, "cancel_task"),
        }
    )

    _dispatcher: Dispatcher
    _subscribing: Subscribing

    def __init__(self, config: ServerConfig, clock: Clock, asking: ClientInput) -> None:
        self._config = config
        self._clock = clock
        self._asking = asking
        self.new_id: Callable[[], str] = lazy("secrets", "token_urlsafe")
        self._manager: TaskManager | None = None
        self._lock = threading.Lock()

    def decide(self, dispatcher: Dispatcher) -> None:
        """Take part in the decisions of a server."""
        self._dispatcher = dispatcher
        dispatcher.parts[Tasks] = self
        self._subscribing = dispatcher.parts[Subscribing]
        self._subscribing.fields["taskIds"] = lazy(_METHODS, "read_task_ids")
        self._asking.strategies.append(self._strategy_of)

    @property
    def offered(self) -> bool:
        """Return whether a client may ever be given a task, or has been (TASK-01)."""
        return self._manager is not None or self._dispatcher.calls.registry.has_part(TaskSupport)

    def advertise(self, capabilities: dict[str, Any]) -> None:
        """Add the extension to the capabilities of the server (TASK-01)."""
        if self.offered:
            capabilities["extensions"] = {**capabilities.get("extensions", {}), EXTENSION: {}}

    def admit(self, call: Invocation) -> None:
        """Refuse a client without the extension where the tool is not for it (TASK-02)."""
        support: TaskSupport | None = call.tool.parts.get(TaskSupport)
        if support is not None and support.required:
            require_extension(call.peer, correlationId=call.correlation_id)

    def ready(self, call: Invocation) -> list[Effect]:
        """Let a call that is about to start become a task, now or later, or not (TASK-03).

        Returns:
            The answer to its request, if it is a task already.

        Raises:
            LimitReached: it has to be a task at once, and there is no room (TASK-12).
        """
        support: TaskSupport | None = call.tool.parts.get(TaskSupport)
        if support is None or not can_have_tasks(call.peer) or call.timeout_ms <= support.after_ms:
            return []
        from .promotion import begin

        return begin(call, support, self.manager(), self._dispatcher.results)

    def stopping(self, reason: str) -> list[Effect]:
        """Abort all tasks (TASK-13)."""
        calls = [] if self._manager is None else self._manager.calls()
        return self._dispatcher.disconnect(calls, reason)

    def record_of(self, task_id: str, principal: Principal | None) -> TaskRecord | None:
        """Return the task of that id, if it belongs to this principal (TASK-10)."""
        return self.manager().find(task_id, principal) if self.offered else None

    def manager(self) -> TaskManager:
        """Return the manager of the tasks; made when it is first needed."""
        with self._lock:
            if self._manager is None:
                from .manager import make_manager

                self._manager = make_manager(
                    self._config,
                    self._clock,
                    self._asking.open_requests,
                    self.new_id,
                    self._announce,
                )
            return self._manager

    def _announce(self, record: TaskRecord) -> list[FeatureCallback]:
        topic = ("task", record.task_id)
        return self._subscribing.effects(topic, NOTIFICATIONS_TASKS, record.detailed())

    @staticmethod
    def _strategy_of(
        call: Invocation, rounds: MultiRoundTrip, signal: AbortSignal
    ) -> RequestStrategy | None:
        """Return the way in which a call that may become a task asks its client (TASK-08)."""
        if not call.around_steps:
            return None
        from .asking import TaskRequests
        from .promotion import Promotion

        promotion = call.parts.get(Promotion)
        return None if promotion is None else TaskRequests(promotion, rounds, signal)
