"""The promotion of a `tools/call` to a task (TASK-03, TASK-04).

A call that may become a task has a `Promotion`. Until it is promoted it is a plain call. Its
request is then answered with a handle, and a reply becomes the outcome of the task instead of being
sent. Everything else is as with any call: its slot, its deadline, its one record.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...base.shown import Shown
from ..effects import Extend, Reply
from ..invocation import Phase
from ..principal_shares import LimitReached
from ..replies import result_reply
from ..session import Session

if TYPE_CHECKING:
    from ..effects import Effect
    from ..invocation import Invocation
    from ..replies import ResultWriter
    from .manager import RunningTask, TaskManager

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

    def promote_or_extend(self, call: Invocation) -> list[Effect]:
        """Promote a call that has run for `after_ms`, or leave it the rest of its deadline."""
        self.is_due = False
        if call.phase is Phase.PENDING and not self._stays_plain:
            with suppress(LimitReached):
                handle = self.promote(call)
                return [handle, Extend(call, call.timeout_ms)]
        call.timeout_ms += self.remaining_ms
        return [Extend(call, self.remaining_ms)]

    def stay_plain(self) -> bool:
        """Keep the call from becoming a task, because its handler stops to ask the client.

        Returns:
            False where the call is a task already, and its handler must not stop.
        """
        with self.lock:
            self._stays_plain = self.task is None
            return self._stays_plain

    def settle(self, reply: Reply) -> list[Effect]:
        """Keep `reply` as the outcome of the task; return it where the call is a plain one."""
        return [reply] if self.task is None else self.manager.settle(self.task, reply)

    def give_up(self, phase: Phase) -> list[Effect]:
        """End the task without an outcome: the call has been aborted (TASK-09, TASK-13)."""
        if self.task is None:
            return []
        message = _SERVER_STOPPED if phase is Phase.DISCONNECTED else None
        return self.manager.give_up(self.task, message)

    def describe(self, progress: dict[str, Any]) -> None:
        """Keep the message of a reported progress as the status message (TASK-07)."""
        if self.task is not None and "message" in progress:
            self.manager.set_message(self.task, progress["message"])
