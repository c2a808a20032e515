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

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import Factory, define, field

from ...errors import StructuredError
from ..stores.memory_usage import MemoryLimits, Usage
from .agent_limits import NO_LIMITS, AgentLimits
from .awake_agents import AwakeAgents
from .claims import Claims
from .effects import AnyWaiter, Effect, Operation, Persist, ResolveWaiter
from .exchange import Exchange, Outcomes
from .ledger_time import LedgerTime
from .operations import MakeArguments, NodeSettings, Operations
from .retransmitter import Retransmitter
from .schedule_keeper import ScheduleKeeper
from .submission_taker import SubmissionTaker
from .types import (
    Appended,
    Claim,
    Envelope,
    LedgerNews,
    Locked,
    MessageRecord,
    OutgoingMessage,
)

if TYPE_CHECKING:
    from ..messages import OutcomeWrite


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
    _arguments: Mapping[Operation, MakeArguments] = field(init=False)
    _continuations: Mapping[Operation, Callable[[Persist, Any, int], None]] = field(init=False)
    _now_ms: int = field(default=0, init=False)

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
        self._arguments = {
            Operation.APPEND: self._append_arguments,
            Operation.RECEIVE: exchange.receive_arguments,
            Operation.QUEUE_DELAYED: claims.queue_delayed_arguments,
            Operation.LIMIT_AGENTS: claims.limit_arguments,
            Operation.CLAIM: claims.claim_arguments,
            Operation.COMPLETE: claims.complete_arguments,
            Operation.RENEW: claims.renew_arguments,
            Operation.RELEASE: claims.release_arguments,
            Operation.TAKE_DUE: exchange.take_due_arguments,
            Operation.HASTEN: exchange.hasten_arguments,
            Operation.LOOK_UP: outcomes.look_up_arguments,
            Operation.PURGE: self._purge_arguments,
            Operation.READ_TIME: time.arguments,
            Operation.CHANGE_SCHEDULES: schedules.change_arguments,
            Operation.DUE_SCHEDULES: schedules.due_arguments,
            Operation.ENTER_RUNS: schedules.enter_arguments,
            Operation.TAKE_SUBMISSIONS: submissions.arguments,
        }
        self._continuations = {
            Operation.APPEND: self._appended,
            Operation.RECEIVE: exchange.received,
            Operation.QUEUE_DELAYED: claims.queued_delayed,
            Operation.LIMIT_AGENTS: claims.limited,
            Operation.CLAIM: claims.claimed,
            Operation.COMPLETE: claims.completed,
            Operation.RENEW: claims.renewed,
            Operation.RELEASE: claims.released,
            Operation.TAKE_DUE: exchange.taken,
            Operation.HASTEN: exchange.hastened,
            Operation.LOOK_UP: outcomes.looked_up,
            Operation.PURGE: outcomes.purged,
            Operation.READ_TIME: time.read,
            Operation.CHANGE_SCHEDULES: schedules.changed,
            Operation.DUE_SCHEDULES: schedules.found,
            Operation.ENTER_RUNS: schedules.entered,
            Operation.TAKE_SUBMISSIONS: submissions.taken,
        }

    # -- what happens -------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Resume what is pending (AACP-27)."""
        self.operations.want(Operation.READ_TIME)
        self.operations.want(Operation.QUEUE_DELAYED)
        if self.settings.has_transport:
            self.operations.want(Operation.TAKE_DUE)
        self.submissions.look(None)
        self._now_ms = now_ms

    def stop(self) -> None:
        """Claim nothing any more."""
        self.claims.stop()

    def add_agent(self, agent_id: str, now_ms: int, limits: AgentLimits = NO_LIMITS) -> None:
        """Claim what waits for an agent that was registered."""
        self.claims.add_agent(agent_id, limits)
        self._now_ms = now_ms

    def remove_agent(self, agent_id: str) -> None:
        """Claim nothing for an agent that was unregistered.

        The caller gives back the claims that it has not begun.
        """
        self.claims.remove_agent(agent_id)

    def send(self, messages: Sequence[OutgoingMessage], waiter: AnyWaiter, now_ms: int) -> None:
        """Enter a message or a batch, then send it; resolve `waiter` with the first `Appended`."""
        self.exchange.send(messages, waiter)
        self._now_ms = now_ms

    def deliver(self, envelopes: Iterable[Envelope], waiter: AnyWaiter, now_ms: int) -> None:
        """Enter envelopes that have come in; resolve `waiter` with None."""
        self.exchange.deliver(envelopes, waiter, now_ms)
        self._now_ms = now_ms

    def executed(
        self,
        claim: Claim,
        result: bytes | None,
        error: StructuredError | None,
        now_ms: int,
        in_transaction: OutcomeWrite | None = None,
    ) -> None:
        """Record that a handler has ended, with a result in JSON or an error (AACP-13, AACP-23).

        Args:
            claim: the claim that was executed.
            result: JSON; None with an error.
            error: why it failed, if it did.
            now_ms: the time.
            in_transaction: writes what the handler wants to have written with its outcome
                (AACP-05).
        """
        self.claims.executed(claim, result, error, now_ms, in_transaction)
        self._now_ms = now_ms

    def give_back(
        self, claim: Claim, now_ms: int, not_before_ms: int | None = None, *, begun: bool = False
    ) -> None:
        """Give a claim back that is not executed, or not any more (AACP-25).

        Args:
            claim: the claim.
            now_ms: the time.
            not_before_ms: when it may be claimed again; None: at once.
            begun: whether its execution was begun, and so counts (AACP-13, AACP-46).
        """
        self.claims.give_back(claim, not_before_ms, begun=begun)
        self._now_ms = now_ms

    def holds(self, claim: Claim) -> bool:
        """Return whether a claim may still be executed: ask before beginning."""
        return self.claims.held.get(claim.request_id) is claim

    def look_around(self, news: LedgerNews | None, now_ms: int) -> None:
        """Look for changes of the ledger by other processes.

        Args:
            news: those changes; None: all that there can be.
            now_ms: the time.
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
        self._now_ms = now_ms

    def check_claims(self, now_ms: int) -> None:
        """Find out at once, by a renewal, which claims an operator has taken (AACP-114)."""
        if self.claims.held:
            self.operations.want(Operation.RENEW)
        self._now_ms = now_ms

    def process_retries_once(self, now_ms: int) -> None:
        """Send again what is due now; a tick does the same when it is time."""
        self.operations.want(Operation.TAKE_DUE)
        self._now_ms = now_ms

    def resend(self, agent_id: str | None, now_ms: int) -> None:
        """Send again soon what an agent has not acknowledged; None: all agents (AACP-100)."""
        self.exchange.resend(agent_id)
        self._now_ms = now_ms

    def rescheduled(self, message: MessageRecord, now_ms: int, *, given_up: bool) -> None:
        """Follow a change of one message's next attempt by the host (AACP-50)."""
        self.exchange.rescheduled(message, given_up=given_up)
        self._now_ms = now_ms

    def tick(self, now_ms: int) -> None:
        """Begin what is due at this time."""
        self.operations.tick(now_ms)
        self._now_ms = now_ms

    def clock_followed(self, by_ms: int, off_ms: int) -> None:
        """Continue after the clock was moved by `by_ms`; every delay stays as it is.

        Args:
            by_ms: as `FollowTime` said.
            off_ms: how far the machine's own clock is ahead of it now.
        """
        self.time.followed(by_ms, off_ms)
        self._now_ms += by_ms

    @property
    def wake_at_ms(self) -> int | None:
        """The time at which `tick` is due; None when nothing waits for time to pass."""
        return min(self.operations.timers.values(), default=None)

    @property
    def is_quiet(self) -> bool:
        """Return whether no operation of the ledger is under way or waits to be."""
        return self.operations.is_quiet

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

    def take_effects(self) -> list[Effect]:
        """Return what is to be done now, in this order.

        Operations of the ledger begin here: all events before this call share one.
        """
        return self.operations.take_effects(self._arguments, self._now_ms)

    def persisted(self, persist: Persist, result: Any, now_ms: int) -> None:
        """Continue after an operation that succeeded."""
        if self.operations.succeeded(persist):
            for consequence in _CONSEQUENCES.get(persist.operation, ()):
                self.operations.want(consequence)
            if persist.operation in _QUEUEING:
                self.awake.wake_all()
        if persist.operation is Operation.COMPLETE and self.settings.takes_submissions:
            self._look_for_own_submissions(persist)
        self._continuations[persist.operation](persist, result, now_ms)
        self._now_ms = now_ms

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
        self._now_ms = now_ms


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
