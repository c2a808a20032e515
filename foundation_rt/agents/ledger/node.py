"""One participant of AACP: decides what is done when, and does nothing itself.

A node takes in what happens (an agent sends, envelopes arrive, a handler ends, the ledger answers,
time passes) and gives out `effects`: operations of the ledger, envelopes to send, requests to
execute. Whatever performs them reports back: `runner` in a process, the simulator in tests. Time
comes in as `now_ms`; ids and chance come from what the node was made with.

The order of work (AACP-17): what follows from an operation of the ledger is decided when that has
succeeded, and not before. `exchange` decides about messages, `claims` about executions, `outcomes`
about waiters; `operations` schedules what they ask of the ledger. Callers that wait for an outcome
register with `outcomes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import Factory, define, field

from ..stores.memory_usage import MemoryLimits, Usage
from .awake_agents import AwakeAgents
from .claims import Claims
from .effects import Effect, Operation, Persist, ResolveWaiter
from .exchange import Exchange, Outcomes
from .ledger_time import LedgerTime
from .operations import MakeArguments, NodeSettings, Operations, TakeResult
from .retransmitter import Retransmitter
from .schedule_keeper import ScheduleKeeper
from .submission_taker import SubmissionTaker
from .types import (
    Appended,
    LedgerNews,
    Locked,
)

if TYPE_CHECKING:
    pass


@define(eq=False, repr=False)
class Node:
    """Decides for one participant.

    Args:
        retransmitter: decides when requests are executed again.
        sending: decides when messages are sent again; by default the same.
        notices: whether `NoticeReceived` and `NoticeSettled` are wanted.
        backlog: counts what waits to be entered in the ledger.
    """

    settings: NodeSettings
    new_id: Callable[[], str]
    retransmitter: Retransmitter
    sending: Retransmitter = field(
        default=Factory(lambda node: node.retransmitter, takes_self=True), kw_only=True
    )
    notices: bool = field(default=False, kw_only=True)
    backlog: Usage = field(factory=lambda: Usage(MemoryLimits()), kw_only=True)
    operations: Operations = field(init=False)
    outcomes: Outcomes = field(init=False)
    awake: AwakeAgents = field(init=False)
    exchange: Exchange = field(init=False)
    time: LedgerTime = field(init=False)
    claims: Claims = field(init=False)
    schedules: ScheduleKeeper = field(init=False)
    submissions: SubmissionTaker = field(init=False)
    # What makes the arguments of an operation, and what takes its result.
    _parts: Mapping[Operation, tuple[MakeArguments, TakeResult]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.operations = operations = Operations(self.settings)
        self.outcomes = outcomes = Outcomes(operations)
        self.awake = awake = AwakeAgents(operations)
        self.exchange = exchange = Exchange(
            operations,
            outcomes,
            awake,
            self.sending,
            self.new_id,
            self.notices,
            self.backlog,
        )
        self.time = time = LedgerTime(operations)
        self.claims = claims = Claims(operations, exchange, time, awake, self.retransmitter)
        self.schedules = schedules = ScheduleKeeper(operations, exchange, time)
        self.submissions = submissions = SubmissionTaker(operations, exchange, awake)
        self._parts = {
            Operation.APPEND: (self._append_arguments, self._appended),
            Operation.RECEIVE: (exchange.receive_arguments, exchange.received),
            Operation.QUEUE_DELAYED: (claims.queue_delayed_arguments, claims.queued_delayed),
            Operation.LIMIT_AGENTS: (claims.limit_arguments, claims.limited),
            Operation.CLAIM: (claims.claim_arguments, claims.claimed),
            Operation.COMPLETE: (claims.complete_arguments, claims.completed),
            Operation.RENEW: (claims.renew_arguments, claims.renewed),
            Operation.RELEASE: (claims.release_arguments, claims.released),
            Operation.TAKE_DUE: (exchange.take_due_arguments, exchange.taken),
            Operation.HASTEN: (exchange.hasten_arguments, exchange.hastened),
            Operation.LOOK_UP: (outcomes.look_up_arguments, outcomes.looked_up),
            Operation.PURGE: (self._purge_arguments, outcomes.purged),
            Operation.READ_TIME: (time.arguments, time.read),
            Operation.CHANGE_SCHEDULES: (schedules.change_arguments, schedules.changed),
            Operation.DUE_SCHEDULES: (schedules.due_arguments, schedules.found),
            Operation.ENTER_RUNS: (schedules.enter_arguments, schedules.entered),
            Operation.TAKE_SUBMISSIONS: (submissions.arguments, submissions.taken),
        }

    # -- what happens -------------------------------------------------------------------------

    def start(self) -> None:
        """Resume what is pending (AACP-27)."""
        self.operations.want(Operation.READ_TIME)
        self.operations.want(Operation.QUEUE_DELAYED)
        if self.settings.has_transport:
            self.operations.want(Operation.TAKE_DUE)
        self.submissions.look(None)

    def look_around(self, news: LedgerNews | None) -> None:
        """Look for changes of the ledger by other processes.

        Args:
            news: those changes; None: all that there can be.
        """
        waiting = self.outcomes.waiting
        if news is None:
            self.awake.wake_all()
        else:
            self.awake.wake_some(news.agents)
        if waiting and (news is None or not waiting.keys().isdisjoint(news.finished)):
            self.operations.want(Operation.LOOK_UP)
        if news is not None and self.claims.executes_any(news.finished):
            self.operations.want(Operation.RENEW)  # an operator has taken the claim (AACP-114)
        self.submissions.look(news)

    def _append_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...]:
        messages = self.exchange.append_arguments(batch)
        return (messages, now_ms, self.claims.claiming(messages, now_ms))

    def _appended(
        self, persist: Persist, results: Sequence[Appended | Locked], now_ms: int
    ) -> None:
        self.exchange.appended(persist, results, now_ms)
        self.claims.entered(persist, results, now_ms)

    def _purge_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        return (now_ms,) if self.time.is_right else None

    # -- what is to be done -------------------------------------------------------------------

    def take_effects(self, now_ms: int) -> list[Effect]:
        """Return what is to be done now, in this order.

        Operations of the ledger begin here: all events before this call share one.
        """
        return self.operations.take_effects(self._parts, now_ms)

    def persisted(self, persist: Persist, result: Any, now_ms: int) -> None:
        """Continue after an operation that succeeded."""
        if self.operations.succeeded(persist):
            for consequence in _CONSEQUENCES.get(persist.operation, ()):
                self.operations.want(consequence)
            if persist.operation in _QUEUEING:
                self.awake.wake_all()
        if persist.operation is Operation.COMPLETE and self.settings.takes_submissions:
            self._look_for_own_submissions(persist)
        self._parts[persist.operation][1](persist, result, now_ms)

    def _look_for_own_submissions(self, complete: Persist) -> None:
        """Look for requests that handlers have entered in the transactions of their outcomes.

        A process is not notified of what it does itself.
        """
        if any(completion.in_transaction is not None for completion, _ in complete.batch):
            self.submissions.look(None)

    def failed(self, persist: Persist, error: Exception, now_ms: int) -> None:
        """Repeat after a delay an operation that may have happened or not (AACP-30).

        Envelopes that came in are not kept: they were not acknowledged, so they come again.
        """
        operation = persist.operation
        if operation is Operation.RECEIVE:
            self.operations.effects += [ResolveWaiter(waiter, error) for _, waiter in persist.batch]
        elif operation is Operation.APPEND:
            self.claims.doubt_entered(persist)
        elif operation is Operation.CLAIM:
            self.claims.forget_failed_claim(persist)
        elif operation is Operation.TAKE_SUBMISSIONS:
            self.submissions.look(None)
        elif operation is Operation.ENTER_RUNS:
            self.schedules.failed()
        self.operations.failed(persist, now_ms, repeat=operation in _REPEATED)


_REPEATED = frozenset(
    {
        Operation.APPEND,
        Operation.LIMIT_AGENTS,
        Operation.COMPLETE,
        Operation.RELEASE,
        Operation.CHANGE_SCHEDULES,
    }
)
"""The operations whose items go into the next one when they fail."""

_QUEUEING = frozenset({Operation.RECEIVE, Operation.QUEUE_DELAYED, Operation.ENTER_RUNS})
"""The operations by which queues may have got something new although they failed."""

_CONSEQUENCES = {
    Operation.APPEND: (Operation.QUEUE_DELAYED,),
    Operation.RECEIVE: (Operation.QUEUE_DELAYED, Operation.TAKE_DUE, Operation.LOOK_UP),
    Operation.COMPLETE: (Operation.TAKE_DUE,),
}
"""The operations that may be due after one that failed and yet happened."""
