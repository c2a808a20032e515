"""Claims that a node holds: from CLAIM, over their execution, to COMPLETE or RELEASE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from attrs import Factory, define, field

from ...base.exact_json import dumps
from ...base.shown import Shown
from ...errors import ErrorCode, StructuredError, describe_exception
from .agent_limits import NO_LIMITS, AgentLimits
from .awake_agents import AwakeAgents
from .effects import Abandon, Execute, Operation, Persist
from .exchange import Exchange
from .ledger_time import LedgerTime
from .operations import Operations
from .retransmitter import Retransmitter
from .types import (
    LOCKED,
    NO_CLAIMING,
    Appended,
    Claim,
    ClaimCompletion,
    Claimed,
    Claiming,
    Completed,
    Executed,
    Locked,
    OutgoingMessage,
    Queued,
    Release,
    RequestRecord,
    RequestState,
)

MAX_AGENTS = 1000
"""The most agents that have numbers of their own in the life of a node."""

HELD_SHARE = 0.6
"""The share of a lease that claims must still have when others are made behind them on entry: less
than the two thirds that they have before a renewal, and longer than the entry takes."""

OTHER_AGENTS = "other"
"""The name under which all further ones are counted."""


@define(eq=False, repr=False)
class AgentCounts(Shown):
    """Counts for one node, by agent.

    Attributes:
        executions: handlers that were begun.
        outcomes: outcomes that were recorded, also by state.
        lost_claims: claims that were lost, though the request had not expired.
    """

    executions: Counter[str] = field(factory=Counter, init=False)
    outcomes: Counter[tuple[str, RequestState]] = field(factory=Counter, init=False)
    lost_claims: Counter[str] = field(factory=Counter, init=False)
    _names: set[str] = field(factory=set, init=False)

    def begun(self, agent_id: str) -> None:
        """Count a handler that begins."""
        self.executions[self.name_of(agent_id)] += 1

    def ended(self, agent_id: str, state: RequestState) -> None:
        """Count an outcome that is recorded."""
        self.outcomes[self.name_of(agent_id), state] += 1

    def lost(self, agent_id: str) -> None:
        """Count a claim that was lost."""
        self.lost_claims[self.name_of(agent_id)] += 1

    def name_of(self, agent_id: str) -> str:
        """Return the name under which an agent is counted."""
        names = self._names
        if agent_id not in names:
            if len(names) >= MAX_AGENTS:
                return OTHER_AGENTS
            names.add(agent_id)
        return agent_id


@define(eq=False, repr=False)
class _Quota(Shown):
    """The number of claims that an agent registered here holds, and may hold.

    Attributes:
        held: how many claims are held for it.
        capacity: how many may be held. It begins at one and doubles with every outcome that is
            recorded: so what is claimed early, and may be lost with this process, is in proportion
            to what the agent gets done.
        least: what the capacity begins with: the number of its workers.
    """

    least: int = 1
    held: int = 0
    capacity: int = Factory(lambda quota: quota.least, takes_self=True)


@define(eq=False, repr=False)
class Claims:
    """The claims of a node: CLAIM, COMPLETE, RENEW and RELEASE.

    Attributes:
        retransmitter: decides when requests are executed again.
        held: the claims that are being executed, by request id.
        counts: what was done for each agent.
    """

    operations: Operations
    exchange: Exchange
    time: LedgerTime
    awake: AwakeAgents
    retransmitter: Retransmitter
    held: dict[str, Claim] = field(factory=dict, init=False)
    counts: AgentCounts = field(factory=AgentCounts, init=False)
    _agents: dict[str, _Quota] = field(factory=dict, init=False)
    # Agents whose limits the ledger does not know yet.
    _undeclared: dict[str, AgentLimits] = field(factory=dict, init=False)
    # Held claims that were executed and whose outcome is being recorded.
    _ended: set[str] = field(factory=set, init=False)
    # Agents for which the APPEND under way claims what it enters (AACP-193). Nothing else is
    # claimed for them, also after it has failed: until the next one tells what it has entered.
    _entering: set[str] = field(factory=set, init=False)
    _in_doubt: dict[str, str] = field(factory=dict, init=False)
    # Agents for which the last CLAIM was asked.
    _asked: Collection[str] = field(default=(), init=False)
    # Agents whose claims were given back during a CLAIM: it may bring what is behind those.
    _overtaken: set[str] = field(factory=set, init=False)
    # The same of an APPEND.
    _overtaken_on_entry: set[str] = field(factory=set, init=False)
    _lost_claims: int = field(default=0, init=False)
    # Agents with claims that are being given back, and how many: those come before what is behind.
    _releasing: Counter[str] = field(factory=Counter, init=False)
    _stopping: bool = field(default=False, init=False)

    def stop(self) -> None:
        """Claim nothing any more."""
        self._stopping = True

    @property
    def is_claiming(self) -> bool:
        """Return whether this node claims what is entered for its agents."""
        return bool(self.time.is_right) and not self._stopping

    def holds(self, claim: Claim) -> bool:
        """Return whether a claim may still be executed: ask before beginning."""
        return self.held.get(claim.request_id) is claim

    def check(self) -> None:
        """Find out at once, by a renewal, which claims an operator has taken (AACP-114)."""
        if self.held:
            self.operations.want(Operation.RENEW)

    def executes_any(self, request_ids: Iterable[str]) -> bool:
        """Return whether one of them is held whose execution has not ended."""
        return any(each in self.held and each not in self._ended for each in request_ids)

    def add_agent(self, agent_id: str, limits: AgentLimits = NO_LIMITS) -> None:
        """Claim requests for an agent from now on; with limits, once the ledger knows them."""
        quota = self._agents.setdefault(agent_id, _Quota(limits.workers))
        quota.least = limits.workers
        self._undeclared.pop(agent_id, None)
        if limits != NO_LIMITS:
            self._undeclared[agent_id] = limits
        self.operations.add(Operation.LIMIT_AGENTS, (agent_id, limits))
        self.awake.add(agent_id)

    def remove_agent(self, agent_id: str) -> None:
        """Claim nothing more for an agent; the caller gives back what it has not begun."""
        self._agents.pop(agent_id, None)
        self._undeclared.pop(agent_id, None)
        self.awake.remove(agent_id)

    def executed(self, claim: Claim, ended: Executed, now_ms: int) -> None:
        """Record the outcome of an execution, or have it repeated (AACP-13, AACP-23)."""
        if not self.holds(claim):
            return  # it was lost meanwhile
        if ended.error is not None:
            delay = self.retransmitter.delay_before_next_execution_ms(claim, ended.error)
            if delay is not None:
                self._have_repeated(claim, now_ms + delay)
                return
        completion = self._end(claim, ended, now_ms)
        self.operations.add(Operation.COMPLETE, (completion, claim))

    def _end(self, claim: Claim, ended: Executed, now_ms: int) -> ClaimCompletion:
        result, error, in_transaction = ended
        self._ended.add(claim.request_id)
        return ClaimCompletion(
            claim.request_id,
            claim.epoch,
            RequestState.COMPLETED if error is None else RequestState.FAILED,
            result,
            None if error is None else dumps(error.to_wire()),
            *self.exchange.plan_reply(now_ms),
            in_transaction,
            claim.on_entry,
            claim.is_quiet,
        )

    def give_back(
        self,
        claim: Claim,
        not_before_ms: int | None = None,
        *,
        begun: bool = False,
        leaves_queue: bool = False,
    ) -> None:
        """Release a claim that is still held: it may be claimed again (AACP-25).

        Args:
            claim: the claim.
            not_before_ms: when it may be claimed again; None: at once.
            begun: whether its execution was begun, and so counts (AACP-13, AACP-46).
            leaves_queue: as in `Release`.
        """
        if self.holds(claim):
            # What is behind it does not wait where the order does not matter (AACP-190).
            leaves_queue |= claim.workers > 1 and not_before_ms is not None
            self._let_go(claim)
            if not leaves_queue:
                if self.operations.is_busy(Operation.CLAIM):
                    self._overtaken.add(claim.target_agent_id)
                if claim.target_agent_id in self._entering:
                    self._overtaken_on_entry.add(claim.target_agent_id)
            self._release(claim, not_before_ms, begun=begun, leaves_queue=leaves_queue)

    def forget_failed_claim(self, persist: Persist) -> None:
        """Change the owner after a CLAIM that failed.

        What it may have claimed must lapse before it, or what is behind it, is claimed again: as a
        claim of another owner it blocks the queue (AACP-22).
        """
        self._lost_claims += 1
        self._overtaken.clear()
        self.awake.wake_some(persist.arguments[0].wanted)

    def doubt_entered(self, persist: Persist) -> None:
        """Claim nothing behind what an APPEND that failed may have claimed (AACP-193)."""
        messages, _, claiming = persist.arguments
        for message in messages:
            if message.local and message.target_agent_id in claiming.wanted:
                self._in_doubt[message.key] = message.target_agent_id
        self._entering = set(self._in_doubt.values())

    # -- operations and their results ---------------------------------------------------------

    def claiming(self, messages: Sequence[OutgoingMessage], now_ms: int) -> Claiming:
        """Return what is claimed with messages that are entered (AACP-193)."""
        if not self.is_claiming:
            return NO_CLAIMING
        wanted: dict[str, int] = {}
        idle, serves = [], []
        for agent_id in dict.fromkeys(each.target_agent_id for each in messages if each.local):
            quota = self._agents.get(agent_id)
            if quota is None:
                continue
            if quota.held < quota.capacity and self._has_nothing(agent_id):
                wanted[agent_id] = quota.capacity - quota.held
                if not quota.held:
                    idle.append(agent_id)
            else:
                serves.append(agent_id)
        self._entering |= wanted.keys()
        lease_ms = self.operations.settings.lease_ms
        held_until_ms = now_ms + int(lease_ms * HELD_SHARE)
        return Claiming(wanted, self._owner, now_ms + lease_ms, held_until_ms, idle, serves)

    def _has_nothing(self, agent_id: str) -> bool:
        """Return whether all that is known of an agent's queue is claimed here."""
        is_asked = self.operations.is_busy(Operation.CLAIM) and agent_id in self._asked
        return not (
            is_asked
            or self.awake.is_awake(agent_id)
            or self._releasing[agent_id]
            or agent_id in self._entering
            or agent_id in self._undeclared
        )

    def entered(self, persist: Persist, results: Sequence[Appended | Locked], now_ms: int) -> None:
        """Have executed what was claimed on entry; give back what a lost APPEND has claimed."""
        messages, _, claiming = persist.arguments
        was_entering, claims = self._entering, []
        for message, answer in zip(messages, results, strict=True):
            if answer is LOCKED:
                continue
            if answer.claim is not None:
                answer.claim.on_entry = True
                claims.append(answer.claim)
            if self._in_doubt.pop(message.key, None) is not None:
                self._give_back_unknown(message.key, answer.existing)
        self._entering = set(self._in_doubt.values())
        claims.sort(key=lambda claim: -claim.priority)
        overtaken, self._overtaken_on_entry = self._overtaken_on_entry, set()
        self._take(claims, claiming.lease_until_ms <= now_ms, overtaken, now_ms)
        if was_entering:
            self.operations.want(Operation.CLAIM)  # for those that have become awake meanwhile

    def _give_back_unknown(self, request_id: str, record: RequestRecord | None) -> None:
        """Give back a claim of this node that no answer has told of, and that is not begun."""
        if (
            record is not None
            and record.request_id == request_id
            and record.state is RequestState.CLAIMED
            and record.epoch == 1
            and (record.owner or "").partition("+")[0] == self.operations.settings.owner
            and request_id not in self.held
        ):
            self._releasing[record.target_agent_id] += 1
            release = Release(request_id, record.epoch, 0)
            self.operations.add(Operation.RELEASE, (release, record.target_agent_id))

    @property
    def _owner(self) -> str:
        owner = self.operations.settings.owner
        return f"{owner}+{self._lost_claims}" if self._lost_claims else owner

    def claim_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        """Return what may be claimed for each agent whose queue may have something."""
        if not self.is_claiming:
            return None
        wanted = {}
        for agent_id in self.awake.now_awake(now_ms):
            quota = self._agents[agent_id]
            has_room = quota.held < quota.capacity and agent_id not in self._undeclared
            if has_room and not self._releasing[agent_id] and agent_id not in self._entering:
                wanted[agent_id] = quota.capacity - quota.held
        self.awake.put_to_sleep(wanted, now_ms)
        if not wanted:
            return None
        self._asked = wanted
        idle = dict.fromkeys(each for each in wanted if not self._agents[each].held)
        lease_until_ms = now_ms + self.operations.settings.lease_ms
        return (Claiming(wanted, self._owner, lease_until_ms, idle=idle), now_ms)

    def limit_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...]:
        """Return the limits of agents that were registered, of each the latest."""
        return (dict(batch),)

    def limited(self, persist: Persist, before: Mapping[str, AgentLimits], now_ms: int) -> None:
        """Claim for the agents whose limits are known now; say what has replaced others."""
        limits: dict[str, AgentLimits] = persist.arguments[0]
        for agent_id, its in limits.items():
            if before.get(agent_id, NO_LIMITS) != NO_LIMITS:
                what = "limits of an agent replaced in all processes"
                names = {"now": str(its), "before": str(before[agent_id])}
                self.operations.log("warn", what, {"agentId": agent_id, **names})
            if self._undeclared.get(agent_id) == its:
                del self._undeclared[agent_id]
                self.awake.wake(agent_id)

    def queue_delayed_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        """Return the time at which requests are due."""
        return (now_ms, self.operations.settings.max_batch) if self.is_claiming else None

    def queued_delayed(self, persist: Persist, queued: Queued, now_ms: int) -> None:
        """Claim what was queued, and ask again when the next request is due."""
        operations = self.operations
        self.awake.wake_some(queued.agents)
        if queued.next_at_ms is not None:
            # One that is due and was not queued is kept locked by another process.
            soonest_ms = now_ms + (1 if queued.agents else operations.settings.store_retry_ms)
            operations.arm(Operation.QUEUE_DELAYED, max(queued.next_at_ms, soonest_ms))
        if operations.settings.shared:
            # A process that died may have entered some; none is later than that for it.
            operations.arm(Operation.QUEUE_DELAYED, now_ms + operations.settings.outbox_poll_ms)

    def complete_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...]:
        """Return the outcomes to record."""
        return ([completion for completion, _ in batch], now_ms)

    def renew_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        """Return all claims that are held, with their epochs."""
        batch += self.held.values()
        if not batch:
            return None
        claims = [(claim.request_id, claim.epoch) for claim in batch]
        return (claims, now_ms + self.operations.settings.lease_ms)

    def release_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...]:
        """Return the claims to release."""
        return ([release for release, _ in batch],)

    def claimed(self, persist: Persist, claimed: Claimed, now_ms: int) -> None:
        """Have the new claims executed."""
        overtaken, self._overtaken = self._overtaken, set()
        # After a stop of this process others may have them by now: they are given back unexecuted.
        claiming: Claiming = persist.arguments[0]
        self._take(claimed.claims, claiming.lease_until_ms <= now_ms, overtaken, now_ms)
        counts = Counter(claim.target_agent_id for claim in claimed.claims)
        for agent_id, count in counts.items():
            if count == claiming.wanted[agent_id]:
                self.awake.wake(agent_id)  # there may be more, and capacity for it by now
        self.awake.wake_some(overtaken)
        self.awake.wake_at(claimed.again_at_ms, now_ms)

    def completed(
        self, persist: Persist, results: Sequence[Completed | Locked], now_ms: int
    ) -> None:
        """Settle the requests whose outcome was recorded, and send the RESPONSEs."""
        responses = []
        ended: list[tuple[ClaimCompletion, Claim]] = persist.batch
        failed: set[str] = set()
        first: list[tuple[ClaimCompletion, Claim]] = []
        for (completion, claim), completed in zip(ended, results, strict=True):
            if completed is LOCKED:
                if claim.target_agent_id in failed:  # it comes behind that one again
                    first.append((completion, claim))
                else:
                    behind = completion.request_id
                    self.operations.delay(Operation.COMPLETE, (completion, claim), behind, now_ms)
                continue
            record = completed.record
            if completed.failure is not None:
                failed.add(claim.target_agent_id)
                first += self._fail_writes(claim, completed.failure, now_ms)
                continue
            if self.holds(claim):
                if record is None:
                    self._lose(claim, now_ms)
                else:
                    self._let_go(claim)
                    self._grow_capacity(claim.target_agent_id)
            if record is not None:
                self.counts.ended(claim.target_agent_id, record.state)
                self.exchange.outcomes.settle(record)
            if completed.response is not None:
                responses.append(self.exchange.first_attempt(completed.response))
                self.operations.arm(Operation.TAKE_DUE, completion.reply_next_attempt_at_ms)
            if completed.waits:
                self.awake.wake(claim.target_agent_id)
            self.operations.want(Operation.CLAIM)  # there is capacity again, if it is awake
        self.operations.put_first(Operation.COMPLETE, first)
        self.operations.send(responses)

    def renewed(self, persist: Persist, results: list[bool], now_ms: int) -> None:
        """Stop the executions whose claims were lost."""
        renewed: list[Claim] = persist.batch
        for claim, still_held in zip(renewed, results, strict=True):
            # One that has ended may have been completed, by an operation that seemed to fail.
            if not still_held and self.holds(claim) and claim.request_id not in self._ended:
                self._lose(claim, now_ms)
        if self.held:
            lease_ms = self.operations.settings.lease_ms
            self.operations.arm(Operation.RENEW, now_ms + lease_ms // 3)

    def released(self, persist: Persist, locked: list[Release], now_ms: int) -> None:
        """Claim again: what was given back may be next."""
        left = set(map(id, locked))
        for item in persist.batch:
            release, agent_id = item
            if id(release) in left:
                self.operations.delay(Operation.RELEASE, item, release.request_id, now_ms)
            else:
                self._releasing -= Counter([agent_id])
                self.awake.wake(agent_id)
                if release.leaves_queue and release.not_before_ms is not None:
                    self.operations.arm(Operation.QUEUE_DELAYED, release.not_before_ms)

    # -- parts of that ------------------------------------------------------------------------

    def _take(
        self, claims: Sequence[Claim], lapsed: bool, overtaken: Collection[str], now_ms: int
    ) -> None:
        """Have claims executed, in this order; give back those that may not be."""
        # What is held and was claimed again was lost unnoticed. Another may have executed what is
        # before it since, so an execution that was begun before that does not count (AACP-04).
        for claim in claims:
            if claim.request_id in self.held:
                self._lose(self.held[claim.request_id], now_ms)
        for claim in claims:
            if lapsed or not self._may_execute(claim, overtaken):
                self._release(claim, None)
            else:
                self.held[claim.request_id] = claim
                self._agents[claim.target_agent_id].held += 1
                self._begin(claim, now_ms)
        if claims:
            self.operations.arm(Operation.RENEW, now_ms + self.operations.settings.lease_ms // 3)

    def _may_execute(self, claim: Claim, overtaken: Collection[str]) -> bool:
        """Return whether its agent is still here, and nothing before it was given back."""
        return claim.target_agent_id in self._agents and claim.target_agent_id not in overtaken

    def _begin(self, claim: Claim, now_ms: int) -> None:
        """Have a claim executed, unless that was begun too often and never ended (AACP-46)."""
        if self.retransmitter.may_begin(claim):
            self.operations.effects.append(Execute(claim))
        else:
            executions = claim.executions - 1
            fields = {**claim.identity_fields, "executions": executions}
            self.operations.log("error", "request abandoned: its execution never ends", fields)
            self.executed(claim, Executed(None, _abandoned(executions)), now_ms)

    def _have_repeated(self, claim: Claim, at_ms: int) -> None:
        """Give back a claim that failed, to be executed again at a time."""
        # One with its own policy bars no other; else what is behind it waits (AACP-04, AACP-124).
        leaves_queue = claim.retry is not None or claim.workers > 1
        behind = [] if leaves_queue else self._held_behind(claim)
        self.give_back(claim, at_ms, begun=True, leaves_queue=leaves_queue)
        for each in behind:
            self.give_back(each)

    def _release(
        self,
        claim: Claim,
        not_before_ms: int | None,
        *,
        begun: bool = False,
        leaves_queue: bool = False,
    ) -> None:
        executions = claim.executions if begun else claim.executions - 1
        release = Release(claim.request_id, claim.epoch, executions, not_before_ms, leaves_queue)
        self._releasing[claim.target_agent_id] += 1
        self.operations.add(Operation.RELEASE, (release, claim.target_agent_id))

    def _held_behind(self, claim: Claim) -> list[Claim]:
        """Return the claims that must wait for a request that is executed again (AACP-04)."""
        if claim.workers > 1:
            return []
        held = list(self.held.values())
        return [
            each
            for each in held[held.index(claim) + 1 :]
            if each.target_agent_id == claim.target_agent_id and each.request_id not in self._ended
        ]

    def _fail_writes(
        self, claim: Claim, failure: Exception, now_ms: int
    ) -> list[tuple[ClaimCompletion, Claim]]:
        """Fail a request whose write failed; return what comes before all other outcomes."""
        fields = {**claim.identity_fields, "error": describe_exception(failure)}
        self.operations.log("error", "writes of an agent failed", fields)
        self._ended.discard(claim.request_id)
        if claim.retry is not None:
            self.executed(claim, _WRITES_FAILED, now_ms)
        elif self.holds(claim):
            # The policy does not repeat it: what is behind it was executed meanwhile (AACP-167).
            return [(self._end(claim, _WRITES_FAILED, now_ms), claim)]
        return []

    def _lose(self, claim: Claim, now_ms: int) -> None:
        """Give up a lost claim, and those behind it unless the request only expired."""
        expired = claim.expires_at_ms <= now_ms
        behind = [] if expired else self._held_behind(claim)
        if not expired:
            self.counts.lost(claim.target_agent_id)
        self._let_go(claim)
        if claim.target_agent_id in self._agents:
            quota = self._agents[claim.target_agent_id]
            quota.capacity = quota.least
        self.operations.effects.append(Abandon(claim))
        for each in behind:
            self.give_back(each)
            self.operations.effects.append(Abandon(each))
        self.awake.wake(claim.target_agent_id)  # there is capacity again

    def _let_go(self, claim: Claim) -> None:
        del self.held[claim.request_id]
        self._ended.discard(claim.request_id)
        quota = self._agents.get(claim.target_agent_id)
        if quota is not None and quota.held:
            quota.held -= 1

    def _grow_capacity(self, agent_id: str) -> None:
        """Double what may be claimed for an agent that has got something done."""
        quota = self._agents.get(agent_id)
        if quota is not None:
            quota.capacity = min(2 * quota.capacity, self.operations.settings.max_held_by_agent)


_WRITES_FAILED = Executed(
    None, StructuredError(ErrorCode.INTERNAL, "The agent failed.", {"reason": "writes_failed"})
)


def _abandoned(executions: int) -> StructuredError:
    return StructuredError(
        ErrorCode.INTERNAL,
        f"Its execution was begun {executions} times and never ended: its process died, or lost its"
        " lease, each time.",
        {"reason": "abandoned"},
    )
