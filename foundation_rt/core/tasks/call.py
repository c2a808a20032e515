"""A `tools/call` that may become a task, or has become one (TASK-03, TASK-04).

`TaskCall` stands between such a call and the procedure of tool calls. As long as the call is no
task, it decides nothing. Once it is one, the request has been answered with a handle; what the
procedure answers then is kept as the outcome of the task instead of being sent. All else is as with
any call: its slot, its deadline, its one record.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...shares import LimitReached
from ..effects import Extend, Reply
from ..invocation import Phase
from ..procedure import Procedure
from ..replies import result_reply
from ..session import Session

if TYPE_CHECKING:
    from ...abort import AbortSignal
    from ...errors import StructuredError
    from ...server_requests.requester import RequestStrategy
    from ...server_requests.round_trips import MultiRoundTrip
    from ..effects import Effect
    from ..invocation import Invocation, Outcome
    from ..replies import ResultWriter
    from .manager import RunningTask, TaskManager


@define(eq=False, repr=False)
class TaskCall(Procedure):
    """Decides about one call of a tool with tasks.

    Args:
        inner: decides about it as a tool call.
        remaining_ms: what is left of its deadline once it has run for `TaskSupport.after_ms`.

    Attributes:
        task: None until it is one.
        turn: held while it is decided whether it becomes one, or asks its client as a plain call.
    """

    inner: Procedure
    manager: TaskManager
    results: ResultWriter
    remaining_ms: int
    task: RunningTask | None = field(default=None, init=False)
    turn: threading.Lock = field(factory=threading.Lock, init=False)
    _stays_plain: bool = field(default=False, init=False)

    def promote(self, call: Invocation) -> Reply:
        """Make `call` a task and answer its request (TASK-12).

        The call moves to a session of its own: what happens to the client's connection, and to
        the id of its request, is no business of the task's any more (TASK-09).

        Raises:
            LimitReached: there is no room for one more task; the call is what it was.
        """
        task = self.manager.open(call)
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
        handle = self.results.with_type(call.peer, "task", task.record.handle())
        return result_reply(call.request_id, handle)

    # -- what becomes of the call --------------------------------------------------------------

    def expire(self, call: Invocation) -> list[Effect]:
        """`after_ms` have passed, or its deadline has."""
        if self.task is not None:
            with self.task.lock:
                return self._keep(super().expire(call))
        if self.remaining_ms <= 0:
            return super().expire(call)
        remaining_ms, self.remaining_ms = self.remaining_ms, 0
        handle = None
        with self.turn:
            if call.phase is Phase.PENDING and not self._stays_plain:
                with suppress(LimitReached):
                    handle = self.promote(call)
        if handle is not None:
            return [handle, Extend(call, call.timeout_ms)]
        call.timeout_ms += remaining_ms
        return [Extend(call, remaining_ms)]

    def cancel(self, call: Invocation) -> list[Effect]:
        """Its client does not want it any more (TIME-05, TASK-09)."""
        if self.task is None:
            return super().cancel(call)
        with self.task.lock:
            if self.task.record.is_terminal:
                return []
            return [*super().cancel(call), *self.manager.give_up(self.task)]

    def disconnect(self, call: Invocation, reason: str) -> list[Effect]:
        """The client has gone; for a task: the server is going."""
        if self.task is None:
            return super().disconnect(call, reason)
        with self.task.lock:
            if self.task.record.is_terminal:
                return []
            given_up = self.manager.give_up(self.task, "The server has stopped.")
            return [*super().disconnect(call, reason), *given_up]

    def exchange(
        self, call: Invocation, rounds: MultiRoundTrip, signal: AbortSignal
    ) -> RequestStrategy:
        """How its handler asks: in rounds, and as a task where it is one (TASK-08)."""
        from .exchange import TaskExchange

        return TaskExchange(self, rounds, signal)

    def stay_plain(self) -> bool:
        """Its handler is about to be unwound for a question; return whether it may be.

        It may not where the call is a task; and where it may, the call becomes none any more.
        """
        with self.turn:
            self._stays_plain = self.task is None
            return self._stays_plain

    def notify(self, call: Invocation, method: str, params: dict[str, Any]) -> list[Effect]:
        """A task sends none; what it says of its progress stands in its status (TASK-07)."""
        if self.task is None:
            return super().notify(call, method, params)
        if "message" in params:
            self.manager.describe(self.task, params["message"])
        return []

    def conclude(self, call: Invocation, outcome: Outcome, duration_ms: float) -> list[Effect]:
        """Its handler has ended."""
        if self.task is None:
            return super().conclude(call, outcome, duration_ms)
        with self.task.lock:
            return super().conclude(call, outcome, duration_ms)

    def break_off(self, call: Invocation, error: BaseException, duration_ms: float) -> list[Effect]:
        """A bug kept it from going on."""
        if self.task is None:
            return super().break_off(call, error, duration_ms)
        with self.task.lock:
            return self._keep(super().break_off(call, error, duration_ms))

    def answer(self, call: Invocation, outcome: Outcome, duration_ms: float) -> list[Effect]:
        """What the tool call would answer; of a task it is kept."""
        return self._keep(self.inner.answer(call, outcome, duration_ms))

    def error_reply(self, call: Invocation, error: StructuredError) -> Reply:
        """As the tool call has it."""
        return self.inner.error_reply(call, error)

    def _keep(self, effects: list[Effect]) -> list[Effect]:
        """The effects, with the reply made the outcome of the task if there is one."""
        if self.task is None:
            return effects
        kept: list[Effect] = []
        for effect in effects:
            kept += (
                self.manager.settle(self.task, effect) if isinstance(effect, Reply) else [effect]
            )
        return kept
