"""Bugs to be planted, each a function that puts it in: what shows that the simulator finds bugs.

Those above the first line are the classic ones. Those below it were in the core once, and the
simulation found them. Those below the second line were in the PostgreSQL ledger.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import orjson
import psycopg
from attrs import evolve

from foundation_rt.agents.ledger import node as node_module
from foundation_rt.agents.ledger import rules, schedule_keeper, unit_of_work
from foundation_rt.agents.ledger.administration import Verdict
from foundation_rt.agents.ledger.agent_limits import LimitedAgent
from foundation_rt.agents.ledger.claims import Claims
from foundation_rt.agents.ledger.effects import Operation
from foundation_rt.agents.ledger.exchange import Exchange
from foundation_rt.agents.ledger.ledger_time import LedgerTime
from foundation_rt.agents.ledger.operations import Operations
from foundation_rt.agents.ledger.rules import Claimability, claimability
from foundation_rt.agents.ledger.schedules import Decision, decide
from foundation_rt.agents.ledger.session_manager import LinkState, SequenceStatus, record_arrival
from foundation_rt.agents.ledger.types import (
    Claim,
    ClaimCompletion,
    Envelope,
    Executed,
    MessageState,
    MessageType,
    OutgoingMessage,
    Queued,
    RequestRecord,
    RequestState,
)
from foundation_rt.agents.ledger.unit_of_work import UnitOfWork
from foundation_rt.agents.stores import agent_queue
from foundation_rt.agents.stores.memory import InMemoryAACPPersistenceAdapter, MemoryLedger
from foundation_rt.agents.stores.postgres import outcome_writes
from foundation_rt.agents.stores.postgres.outcome_writes import WRITE_S, OutcomeWrites
from foundation_rt.base.database.postgres import Raced

from .disk import Disk
from .process import Process


class Patch(Protocol):
    """What a plant needs of `pytest.MonkeyPatch`."""

    def setattr(self, target: object, name: str, value: object) -> None:
        """Replace `target.name`."""

    def setitem(self, table: Any, name: Any, value: Any) -> None:
        """Replace `table[name]`."""


def requests_not_deduplicated(patch: Patch) -> None:
    """Enter a request again whose id is known."""
    append, take_in = UnitOfWork.append, UnitOfWork._take_in

    def forgetful_append(self: UnitOfWork, outgoing: OutgoingMessage) -> Any:
        self.requests.pop(outgoing.key, None)
        return append(self, outgoing)

    def forgetful_take_in(self: UnitOfWork, incoming: Any, *rest: Any) -> None:
        self.requests.pop(incoming.envelope.request_id, None)
        take_in(self, incoming, *rest)

    patch.setattr(UnitOfWork, "append", forgetful_append)
    patch.setattr(UnitOfWork, "_take_in", forgetful_take_in)


def numbers_not_deduplicated(patch: Patch) -> None:
    """Take a number for new that was received before."""

    def arrive_always(link: LinkState, seq: int, *rest: Any, **more: Any) -> SequenceStatus:
        record_arrival(link, seq, *rest, **more)
        return SequenceStatus.NEW

    patch.setattr(unit_of_work, "record_arrival", arrive_always)


def conflicts_not_seen(patch: Patch) -> None:
    """Give a request the outcome of another with its id."""
    append = UnitOfWork.append

    def trusting_append(self: UnitOfWork, outgoing: OutgoingMessage) -> Any:
        existing = self.requests.get(outgoing.key)
        if existing is not None:
            outgoing.digest = existing.digest
        return append(self, outgoing)

    patch.setattr(UnitOfWork, "append", trusting_append)


def ack_over_a_gap(patch: Patch) -> None:
    """Acknowledge the highest number received, even above a gap."""

    def arrive_over_gaps(link: LinkState, seq: int, *rest: Any, **more: Any) -> SequenceStatus:
        found = record_arrival(link, seq, *rest, **more)
        link.received_up_to = max(link.received_up_to, seq)
        link.out_of_order.clear()
        return found

    patch.setattr(unit_of_work, "record_arrival", arrive_over_gaps)


def ack_before_the_ledger(patch: Patch) -> None:
    """Acknowledge envelopes before they are in the ledger."""
    deliver = Exchange.deliver

    def hasty_deliver(self: Exchange, envelopes: list[Envelope], waiter: Any, now_ms: int) -> None:
        self.operations.send(
            [
                self.bare_ack(
                    (each.source_agent_id, each.target_agent_id), each.seq, each.incarnation, now_ms
                )
                for each in envelopes
                if each.seq
            ]
        )
        deliver(self, envelopes, waiter, now_ms)

    patch.setattr(Exchange, "deliver", hasty_deliver)


def outcome_before_the_ledger(patch: Patch) -> None:
    """Resolve waiters with an outcome before it is recorded."""
    executed = Claims.executed

    def hasty_executed(self: Claims, claim: Claim, ended: Executed, now_ms: int) -> None:
        result, error, _ = ended
        self.exchange.outcomes.settle(
            RequestRecord(
                claim.request_id,
                claim.message_type,
                claim.source_agent_id,
                claim.target_agent_id,
                claim.seq,
                b"",
                claim.payload,
                RequestState.COMPLETED if error is None else RequestState.FAILED,
                claim.created_at_ms,
                claim.expires_at_ms,
                result=result,
                error=None if error is None else orjson.dumps(error.to_wire()),
            )
        )
        executed(self, claim, ended, now_ms)

    patch.setattr(Claims, "executed", hasty_executed)


def send_before_the_ledger(patch: Patch) -> None:
    """Send a message while the ledger is still entering it."""
    send = Exchange.send

    def hasty_send(self: Exchange, messages: Any, waiter: Any) -> None:
        [outgoing] = messages
        if not outgoing.local:
            message = unit_of_work.new_message(outgoing, 1)
            self.operations.send([self.first_attempt(message)])
        send(self, messages, waiter)

    patch.setattr(Exchange, "send", hasty_send)


def fence_removed(patch: Patch) -> None:
    """Take an outcome with any epoch of its claim."""

    def may_complete(record: RequestRecord | None, completion: Any) -> bool:
        return record is not None and record.state is RequestState.CLAIMED

    patch.setattr(unit_of_work, "may_complete", may_complete)


def outcome_overwritten(patch: Patch) -> None:
    """Replace a recorded outcome by a late one."""
    complete = UnitOfWork.complete

    def overwriting_complete(self: UnitOfWork, completion: Any, now_ms: int) -> Any:
        record = self.requests.get(completion.request_id)
        if record is not None and record.state in (RequestState.COMPLETED, RequestState.FAILED):
            record.state, record.result = completion.state, completion.result
            record.error = completion.error
        return complete(self, completion, now_ms)

    patch.setattr(UnitOfWork, "complete", overwriting_complete)


def lease_ignored(patch: Patch) -> None:
    """Claim a request that another owner executes."""

    def claimable(record: RequestRecord, owner: str, now_ms: int) -> Claimability:
        found = claimability(record, owner, now_ms)
        return Claimability.TAKE if found is Claimability.STOP else found

    patch.setattr(rules, "claimability", claimable)


def wall_clock_trusted(patch: Patch) -> None:
    """Go by the clock of the machine, whatever the ledger's is."""

    def ignore(self: LedgerTime, persist: Any, ledger_ms: int | None, now_ms: int) -> None:
        self._judge(0)

    patch.setattr(LedgerTime, "read", ignore)
    patch.setattr(Process, "off_at_start_ms", lambda self: self.wall_off_ms)


def wrong_clock_ignored(patch: Patch) -> None:
    """Claim and purge although the clock of the machine is far off."""

    def judge(self: LedgerTime, off_ms: int) -> None:
        self.off_ms, self.is_right = off_ms, True
        self.operations.want(Operation.CLAIM)
        self.operations.want(Operation.PURGE)

    patch.setattr(LedgerTime, "_judge", judge)


def lease_not_renewed(patch: Patch) -> None:
    """Let a handler that takes long lose its claim."""
    patch.setattr(Claims, "renew_arguments", _nothing)


def seq_reused_after_a_crash(patch: Patch) -> None:
    """Keep the last number given out in the process only."""
    crash = Process.crash

    def forgetful_crash(self: Process) -> None:
        for state in self.disk.links.values():
            state.last_seq = max(state.last_seq - 1, state.acked)
        crash(self)

    patch.setattr(Process, "crash", forgetful_crash)


def tombstone_not_sent(patch: Patch) -> None:
    """Stop sending a message that expires or is given up."""
    take_due = InMemoryAACPPersistenceAdapter.take_due

    async def forgetful_take_due(self: InMemoryAACPPersistenceAdapter, *arguments: Any) -> Any:
        due = await take_due(self, *arguments)
        due.messages = [each for each in due.messages if each.state is MessageState.PENDING]
        return due

    patch.setattr(InMemoryAACPPersistenceAdapter, "take_due", forgetful_take_due)


def tombstone_executed(patch: Patch) -> None:
    """Execute a tombstone as the message that it replaces."""
    receive = UnitOfWork._receive

    def credulous_receive(self: UnitOfWork, incoming: Any, *rest: Any) -> None:
        envelope = incoming.envelope
        if envelope.message_type is not MessageType.RESPONSE:  # which is not executed
            incoming = evolve(incoming, envelope=evolve(envelope, tombstone=False))
        receive(self, incoming, *rest)

    patch.setattr(UnitOfWork, "_receive", credulous_receive)


def held_not_held(patch: Patch) -> None:
    """Execute a message before an earlier one that is missing."""
    enter = UnitOfWork._enter

    def hasty_enter(self: UnitOfWork, record: RequestRecord, link: Any, state: LinkState) -> None:
        enter(self, record, link, LinkState(received_up_to=record.seq))

    patch.setattr(UnitOfWork, "_enter", hasty_enter)


def incarnation_ignored(patch: Patch) -> None:
    """Take the numbers of a new ledger for those of the one that was lost."""

    def arrive_of_any(
        link: LinkState, seq: int, incarnation: int, *rest: Any, **more: Any
    ) -> SequenceStatus:
        return record_arrival(link, seq, link.incarnation or incarnation, *rest, **more)

    patch.setattr(unit_of_work, "record_arrival", arrive_of_any)


def floor_ignored(patch: Patch) -> None:
    """Let a new ledger wait for messages that its predecessor has acknowledged."""

    def arrive_without(
        link: LinkState, seq: int, incarnation: int, low_watermark: int, **more: Any
    ) -> SequenceStatus:
        return record_arrival(link, seq, incarnation, **more)

    patch.setattr(unit_of_work, "record_arrival", arrive_without)


# -- the simulation found these -----------------------------------------------------------------


def lost_claim_passed_over(patch: Patch) -> None:
    """After a CLAIM that failed and happened, execute later requests first."""
    patch.setattr(Claims, "forget_failed_claim", lambda self, persist: None)


def doubt_not_followed_up(patch: Patch) -> None:
    """After an operation that failed and happened, ignore its consequences."""
    patch.setattr(node_module, "_CONSEQUENCES", {})


def retried_request_overtaken(patch: Patch) -> None:
    """Execute later requests before one that is to be executed again."""
    patch.setattr(Claims, "_held_behind", lambda self, claim: [])


def claims_cross_releases(patch: Patch) -> None:
    """Execute new claims before requests that were given back meanwhile."""
    claimed = Claims.claimed

    def forgetful_claimed(self: Claims, *arguments: Any) -> None:
        self._overtaken.clear()
        claimed(self, *arguments)

    patch.setattr(Claims, "claimed", forgetful_claimed)


def delay_ignored(patch: Patch) -> None:
    """Queue a request at once that is to be executed later."""
    patch.setattr(UnitOfWork, "_queue", lambda self, record: self.queue_delayed([record]))


def delayed_request_forgotten(patch: Patch) -> None:
    """Never queue what is to be executed later."""

    async def forget(self: Any, now_ms: int, limit: int) -> Queued:
        return Queued([], None)

    patch.setattr(InMemoryAACPPersistenceAdapter, "queue_delayed", forget)


def urgent_request_beside_another(patch: Patch) -> None:
    """Claim a request of a high priority while another process executes one of a lower."""
    patch.setattr(agent_queue, "executed_elsewhere_until", lambda *arguments: None)


def lapsed_claim_taken_before_a_live_one(patch: Patch) -> None:
    """Take over a lapsed claim although its owner has a live one behind it."""

    def take_over(queue: Any, lapsed: RequestRecord, owner: str, now_ms: int) -> None:
        dead = [each for each in queue.claimable() if (each.lease_until_ms or 0) <= now_ms]
        rules.give_back_lapsed(dead, owner, now_ms)

    patch.setattr(agent_queue, "_take_over", take_over)


def lapsed_claims_left_to_their_owner(patch: Patch) -> None:
    """Take over the first lapsed claim of a queue, and fence none of the others."""
    patch.setattr(agent_queue, "give_back_lapsed", lambda *arguments: [])


def entered_request_passed_over(patch: Patch) -> None:
    """Claim what is behind a request that an APPEND without an answer may have claimed."""
    patch.setattr(Claims, "doubt_entered", lambda self, persist: self._entering.clear())


def entered_request_never_given_back(patch: Patch) -> None:
    """Keep the claims that an APPEND without an answer has made."""
    patch.setattr(Claims, "_give_back_unknown", lambda self, *found: None)


# -- of sick processes, and of an operator ------------------------------------------------------


def locked_item_dropped(patch: Patch) -> None:
    """Forget what another process keeps locked."""
    patch.setattr(Operations, "delay", lambda self, *item: None)


def unanswered_operation_not_repeated(patch: Patch) -> None:
    """Take an operation without an answer for one that has happened."""
    patch.setattr(node_module, "_REPEATED", frozenset())


def leases_renewed_on_the_loop_only(patch: Patch) -> None:
    """Renew no lease while a handler blocks the event loop."""
    patch.setattr(Process, "_keep_leases", lambda self, life: None)


def cancelled_claim_not_fenced(patch: Patch) -> None:
    """Leave a cancelled request to the claim that there is."""
    cancel = UnitOfWork.cancel

    def trusting_cancel(self: UnitOfWork, cancellation: ClaimCompletion, now_ms: int) -> Any:
        changed = cancel(self, cancellation, now_ms)
        if changed.verdict is Verdict.DONE and changed.record is not None:
            changed.record.epoch -= 1
        return changed

    patch.setattr(UnitOfWork, "cancel", trusting_cancel)


def finished_request_cancelled(patch: Patch) -> None:
    """Cancel a request that has its outcome."""

    def judge(record: RequestRecord | None) -> Verdict:
        return Verdict.UNKNOWN_ID if record is None else Verdict.DONE

    patch.setattr(unit_of_work, "judge_cancelling", judge)


def requeued_under_its_old_epoch(patch: Patch) -> None:
    """Keep the epoch of a request that is requeued."""
    reopen = MemoryLedger._reopen

    def forgetful_reopen(self: MemoryLedger, record: RequestRecord, expires_at_ms: int) -> None:
        reopen(self, record, expires_at_ms)
        record.epoch -= 1

    patch.setattr(MemoryLedger, "_reopen", forgetful_reopen)


def runs_of_a_schedule_left_out(patch: Patch) -> None:
    """Enter only the latest of several runs that are due."""

    def hasty_decide(*arguments: Any) -> Decision:
        decision = decide(*arguments)
        return evolve(decision, runs=decision.runs[-1:])

    patch.setattr(schedule_keeper, "decide", hasty_decide)


def workers_counted_for_each_owner(patch: Patch) -> None:
    """Let every process execute as many requests as all may together."""
    admit = LimitedAgent.admit

    def lonely_admit(self: LimitedAgent, head: Any, most: int, owner: str, *times: int) -> Any:
        mine = [each for each in head if each.owner in (None, owner)]
        return admit(self, mine, most, owner, *times)

    patch.setattr(LimitedAgent, "admit", lonely_admit)


def lapsed_claims_not_counted(patch: Patch) -> None:
    """Claim beside claims that have lapsed, which their owners may still renew."""
    admit = LimitedAgent.admit

    def hasty_admit(
        self: LimitedAgent, head: Any, most: int, owner: str, now_ms: int, time_ms: int
    ) -> Any:
        live = [each for each in head if (each.lease_until_ms or now_ms + 1) > now_ms]
        return admit(self, live, most, owner, now_ms, time_ms)

    patch.setattr(LimitedAgent, "admit", hasty_admit)


def rate_by_the_clock_of_a_process(patch: Patch) -> None:
    """Count executions by the time that a process believes it is."""
    patch.setattr(Disk, "_time_ms", InMemoryAACPPersistenceAdapter._time_ms)


def starts_counted_from_a_windows_part(patch: Patch) -> None:
    """Count an execution as if it had begun with the part of the window in which it did."""
    rounded_up = LimitedAgent._rounded_up

    def rounded_down(self: LimitedAgent, time_ms: int) -> int:
        step = max(1, self.limits.window_ms // 64)
        return rounded_up(self, time_ms - step + 1)

    patch.setattr(LimitedAgent, "_rounded_up", rounded_down)


# -- these were in the PostgreSQL ledger ---------------------------------------------------------


def late_release_taken_for_a_failure(patch: Patch) -> None:
    """Apply the limit of a write to RELEASE SAVEPOINT too, and fail beyond it."""

    async def hasty_perform(
        self: OutcomeWrites, connection: Any, completion: ClaimCompletion
    ) -> Exception | None:
        if completion.in_transaction is None:
            return None
        try:
            async with asyncio.timeout(None) as limit, connection.transaction() as savepoint:
                failure = await outcome_writes._failure_of(completion.in_transaction, connection)
                if failure is not None:
                    raise psycopg.Rollback(savepoint)
                limit.reschedule(asyncio.get_running_loop().time() + WRITE_S)
        except TimeoutError as error:
            return error
        except psycopg.Rollback:
            raise Raced("the write could not be undone") from None
        return failure

    patch.setattr(OutcomeWrites, "perform", hasty_perform)


def stall_taken_for_a_failure(patch: Patch) -> None:
    """Fail a write that the database does not answer."""
    failure_of = outcome_writes._failure_of

    async def impatient_failure_of(write: Any, connection: Any) -> Exception | None:
        try:
            return await failure_of(write, connection)
        except Raced:
            return TimeoutError()

    patch.setattr(outcome_writes, "_failure_of", impatient_failure_of)


def _nothing(self: Claims, batch: list[Any], now_ms: int) -> None:
    return None
