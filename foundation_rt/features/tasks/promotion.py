"""The promotion of a `tools/call` to a task (TASK-03, TASK-04).

A call that may become a task has a `Promotion`. Until it is promoted it is a plain call. Its
request is then answered with a handle, and a reply becomes the outcome of the task instead of being
sent. Everything else is as with any call: its slot, its deadline, its one record.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...base.principal_shares import LimitReached
from ...base.shown import Shown
from ...kernel.effects import Extend, Reply
from ...kernel.invocation import Phase
from ...kernel.replies import result_reply
from ...kernel.session import Session

if TYPE_CHECKING:
    from ...kernel.effects import Effect
    from ...kernel.invocation import Invocation, Step
    from ...kernel.replies import ResultWriter
    from .manager import RunningTask, TaskManager
    from .support import TaskSupport

_SERVER_STOPPED = "The server has stopped."


@define(eq=False, repr=False)
class Promotion(Shown):
    """The way of one call to become a task.

    Args:
        remaining_ms: what is left of its deadline once it has run for `TaskSupport.after_ms`.
        lock: held while the call takes a step: its handler ends on one connection while its client
            asks and cancels on another.

    Attributes:
        task: None until the call is a task.
        is_due: the next deadline is that of `after_ms`.
    """

    manager: TaskManager
    results: ResultWriter
    remaining_ms: int
    lock: AbstractContextManager[Any]
    task: RunningTask | None = field(default=None, init=False)
    is_due: bool = field(default=False, init=False)
    _stays_plain: bool = field(default=False, init=False)

    def join(self, call: Invocation) -> None:
        """Take part in the steps of `call`."""
        call.keep(self)
        call.around_steps = (*call.around_steps, self.take_step)

    def wait(self, call: Invocation, after_ms: int) -> None:
        """Leave `call` a plain one until it has run for `after_ms`."""
        call.timeout_ms = after_ms
        self.is_due = True
        self.join(call)

    def promote(self, call: Invocation) -> Reply:
        """Make `call` a task; return the answer to its request (TASK-12).

        The call moves to a session of its own: the end of the client's connection, and the id of
        its request, no longer concern it (TASK-09).

        Raises:
            LimitReached: there is no room for one more task; the call has not changed.
        """
        task = self.manager.open(call, self.lock)
        former = call.session
        former.in_flight.pop(call.request_id, None)
        call.session = Session(
            former.connection_correlation_id,
            former.transport_type,
            former.logger,
            stateless=former.stateless,
        )
        call.session.in_flight[call.request_id] = call
        call.timeout_ms = self.manager.limits.max_run_ms
        self.task = task
        self.is_due = False
        handle = self.results.with_type(call.peer, "task", task.record.handle())
        return result_reply(call.request_id, handle)

    def stay_plain(self) -> bool:
        """Keep the call from becoming a task, because its handler stops to ask the client.

        Returns:
            False where the call is a task already, and its handler must not stop.
        """
        with self.lock:
            self._stays_plain = self.task is None
            return self._stays_plain

    def take_step(self, name: str, step: Step, call: Invocation, *arguments: Any) -> list[Effect]:
        """Take a step of the call under the lock; see `Invocation.around_steps`.

        A call that has run for `after_ms` is promoted. What would be the reply of a task is kept as
        its outcome (TASK-06), and a notification as its status (TASK-07).
        """
        with self.lock:
            if name == "expire" and self.is_due:
                return self._promote_or_extend(call)
            task, manager = self.task, self.manager
            if task is None:
                return step(call, *arguments)
            if name == "notify":
                _, progress = arguments
                if "message" in progress:
                    manager.set_message(task, progress["message"])
                return []
            effects: list[Effect] = []
            for effect in step(call, *arguments):
                effects += manager.settle(task, effect) if isinstance(effect, Reply) else [effect]
            if effects and name in ("cancel", "disconnect"):  # TASK-09, TASK-13
                message = _SERVER_STOPPED if name == "disconnect" else None
                effects += manager.give_up(task, message)
            return effects

    def _promote_or_extend(self, call: Invocation) -> list[Effect]:
        """Promote a call that has run for `after_ms`, or leave it the rest of its deadline."""
        self.is_due = False
        if call.phase is Phase.PENDING and not self._stays_plain:
            with suppress(LimitReached):
                handle = self.promote(call)
                return [handle, Extend(call, call.timeout_ms)]
        call.timeout_ms += self.remaining_ms
        return [Extend(call, self.remaining_ms)]


def begin(
    call: Invocation, support: TaskSupport, manager: TaskManager, results: ResultWriter
) -> list[Effect]:
    """Let a call that is about to start become a task, now or later (TASK-03).

    Returns:
        The answer to its request, if it is a task already.

    Raises:
        LimitReached: it has to be a task at once, and there is no room (TASK-12).
    """
    remaining_ms = call.timeout_ms - support.after_ms
    promotion = Promotion(manager, results, remaining_ms, threading.RLock())
    if support.after_ms > 0:
        promotion.wait(call, support.after_ms)
        return []
    try:
        handle = promotion.promote(call)
    except LimitReached:
        if support.required:
            raise
        return []
    promotion.join(call)
    return [handle]
