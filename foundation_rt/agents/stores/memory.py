"""A ledger in memory: for tests, for simulations, and for agents that may forget.

It is also the measure of the others: every store answers as it does.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar
from uuid import uuid4

from attrs import Factory, define, evolve, field, setters

from ...base.shown import Shown
from ..ledger.administration import (
    MAX_MEASURED,
    AgentSummary,
    Changed,
    RequestQuery,
    key_of,
    outline,
    summaries,
)
from ..ledger.agent_limits import NO_LIMITS, AgentLimits, LimitedAgent, replaced
from ..ledger.rules import (
    PURGE_BATCH,
    copy_of_message,
    copy_of_request,
    make_void,
    retry,
)
from ..ledger.schedules import (
    Advance,
    DueSchedules,
    EnteredRuns,
    Schedule,
    ScheduleChange,
    advance_all,
    change_all,
)
from ..ledger.types import (
    NO_CLAIMING,
    VOID_PAYLOAD,
    Appended,
    ClaimCompletion,
    Claimed,
    Claiming,
    Completed,
    Due,
    Ending,
    EntryVerdict,
    Hastened,
    LedgerNews,
    Link,
    MessageRecord,
    MessageState,
    OutboxKey,
    OutgoingMessage,
    Queued,
    Received,
    Release,
    RequestRecord,
    RequestState,
)
from ..ledger.unit_of_work import UnitOfWork, snapshot
from ..persistence import RetryDecision
from .agent_queue import claim_for
from .derived_operations import DerivedOperations, WithoutSubmissions
from .memory_usage import MemoryLimits, Usage, outcome_size, size_of

T = TypeVar("T")
P = ParamSpec("P")

Method: TypeAlias = Callable[
    Concatenate["InMemoryAACPPersistenceAdapter", P], Coroutine[Any, Any, T]
]


@define(eq=False, repr=False, on_setattr=setters.NO_OP)
class MemoryLedger(UnitOfWork):
    """The working set of a ledger that is never flushed: all that there is, with its indexes.

    Attributes:
        outbox: messages on their way, by link and number.
        waiting: requests that are RECEIVED or CLAIMED, by target and priority, in the order of
            their positions.
        delayed: when requests that are DELAYED are queued, by id; an entry that disagrees with its
            record is void.
        attempts: when messages are sent again; an entry that disagrees with its record is void.
        expiries: when requests and messages expire, by id; the same holds for its entries.
        limited: the agents that have limits.
    """

    usage: Usage
    outbox: dict[Link, dict[int, MessageRecord]] = field(factory=dict, init=False)
    waiting: dict[str, dict[int, dict[str, RequestRecord]]] = field(factory=dict, init=False)
    delayed: list[tuple[int, str]] = field(factory=list, init=False)
    attempts: list[tuple[int, str]] = field(factory=list, init=False)
    expiries: list[tuple[int, str]] = field(factory=list, init=False)
    limited: dict[str, LimitedAgent] = field(factory=dict, init=False)

    # -- changes ------------------------------------------------------------------------------

    def _add(self, record: RequestRecord) -> None:
        self.usage.add(record)
        self.requests[record.request_id] = record
        heapq.heappush(self.expiries, (record.expires_at_ms, record.request_id))

    def _note_entry(self, record: RequestRecord) -> None:
        if record.state is RequestState.RECEIVED:
            levels = self.waiting.setdefault(record.target_agent_id, {})
            levels.setdefault(record.priority, {})[record.request_id] = record
        elif record.state is RequestState.DELAYED and record.not_before_ms is not None:
            heapq.heappush(self.delayed, (record.not_before_ms, record.request_id))

    def leave_queue(self, record: RequestRecord) -> None:
        """Give up the place of a request in its queue, if it has one."""
        levels = self.waiting.get(record.target_agent_id, {})
        level = levels.get(record.priority, {})
        level.pop(record.request_id, None)
        if not level:
            levels.pop(record.priority, None)

    def _finish(self, record: RequestRecord, ending: Ending | ClaimCompletion, now_ms: int) -> None:
        self.leave_queue(record)
        self.usage.finish(record, ending, now_ms)

    def _reopen(self, record: RequestRecord, expires_at_ms: int) -> None:
        self.usage.change(record.request_id, 0, -outcome_size(record.error))
        super()._reopen(record, expires_at_ms)
        heapq.heappush(self.expiries, (expires_at_ms, record.request_id))

    def _post(self, message: MessageRecord) -> None:
        kept = copy_of_message(message)
        self.usage.add(kept)
        self.messages[kept.message_id] = kept
        heapq.heappush(self.expiries, (kept.expires_at_ms, kept.message_id))
        if kept.state is not MessageState.ACKNOWLEDGED:
            link = (kept.source_agent_id, kept.target_agent_id)
            self.outbox.setdefault(link, {})[kept.seq] = kept
            self.plan(kept, kept.next_attempt_at_ms)

    def _acknowledge(self, link: Link, settled: range, received: Received) -> None:
        outbox = self.outbox.get(link, {})
        for seq in settled:
            message = outbox.pop(seq, None)
            if message is None:
                continue
            self.usage.remove(message)
            void = message.state is MessageState.TOMBSTONE
            message.state = MessageState.ACKNOWLEDGED
            message.payload, message.next_attempt_at_ms = VOID_PAYLOAD, None
            if void:
                del self.messages[message.message_id]
            else:
                self.usage.add(message)
                received.acknowledged.append(message)

    # -- operations that need no unit of work in other stores ---------------------------------

    def renew(self, claims: Sequence[tuple[str, int]], lease_until_ms: int) -> list[bool]:
        """See `AACPPersistenceAdapter`."""
        held = [self._claimed(request_id, epoch) for request_id, epoch in claims]
        for record in filter(None, held):
            record.lease_until_ms = lease_until_ms
        return [record is not None for record in held]

    def release(self, releases: Sequence[Release]) -> list[Release]:
        """See `AACPPersistenceAdapter`."""
        for release in releases:
            record = self._claimed(release.request_id, release.epoch)
            if record is None:
                continue
            record.state = RequestState.RECEIVED
            record.owner = record.lease_until_ms = None
            record.not_before_ms, record.executions = release.not_before_ms, release.executions
            if release.leaves_queue:
                self.leave_queue(record)
                record.state, record.position = RequestState.DELAYED, None
                self._note_entry(record)
        return []

    def _claimed(self, request_id: str, epoch: int) -> RequestRecord | None:
        record = self.requests.get(request_id)
        is_held = (
            record is not None and record.state is RequestState.CLAIMED and record.epoch == epoch
        )
        return record if is_held else None

    def put_request(self, request_id: str, record: RequestRecord) -> None:
        """Keep a copy of a record that is not there."""
        if request_id not in self.requests:
            self.usage.demand(request_id, 1, size_of(record))
            self._add(copy_of_request(record))

    def put_message(self, message: MessageRecord) -> None:
        """See `UnitOfWork`; the record is copied."""
        if message.message_id not in self.messages:
            self.usage.demand(message.request_id, 1, size_of(message))
            super().put_message(message)

    def mark(
        self, request_id: str, ending: Ending, now_ms: int, completion_ref: str | None
    ) -> bool:
        """See `DerivedOperations`."""
        record = self.requests.get(request_id)
        if record is not None and record.state is RequestState.SENT:
            self.usage.demand(request_id, 0, outcome_size(ending.result or ending.error))
            self._finish(record, ending, now_ms)
            record.completion_ref = completion_ref
        return record is not None and record.state is ending.state

    def retry(self, message: MessageRecord, now_ms: int, decide: RetryDecision, due: Due) -> None:
        """Set the next attempt of a message that is due, or give it up."""
        state = self.links[message.source_agent_id, message.target_agent_id]
        self.usage.remove(message)
        retry(message, state.low_watermark, now_ms, decide, due)
        self.usage.add(message)
        self.plan(message, message.next_attempt_at_ms)

    def make_void(self, message: MessageRecord) -> None:
        """Make a message a tombstone (AACP-14)."""
        self.usage.remove(message)
        make_void(message)
        self.usage.add(message)

    def plan(self, message: MessageRecord, at_ms: int | None) -> None:
        """Set when a message is sent again."""
        message.next_attempt_at_ms = at_ms
        if at_ms is not None:
            heapq.heappush(self.attempts, (at_ms, message.message_id))

    def purge(self, now_ms: int) -> int:
        """Delete a batch of the expired records; return how many (AACP-15)."""
        purged = 0
        while self.expiries and self.expiries[0][0] <= now_ms and purged < PURGE_BATCH:
            at_ms, key = heapq.heappop(self.expiries)
            purged += self._purge_request(key, at_ms) + self._purge_message(key, at_ms, now_ms)
        return purged

    def _purge_request(self, request_id: str, at_ms: int) -> bool:
        record = self.requests.get(request_id)
        if record is None or record.expires_at_ms != at_ms:
            return False
        self.usage.remove(record)
        del self.requests[request_id]
        self.leave_queue(record)
        held = self.held.get((record.source_agent_id, record.target_agent_id), {})
        if held.get(record.seq) is record:
            del held[record.seq]
        return True

    def _purge_message(self, message_id: str, at_ms: int, now_ms: int) -> bool:
        message = self.messages.get(message_id)
        if message is None or message.expires_at_ms != at_ms:
            return False
        if message.state is MessageState.ACKNOWLEDGED:
            self.usage.remove(message)
            del self.messages[message_id]
        elif message.state is MessageState.PENDING:
            self.make_void(message)
            self.plan(message, now_ms)
        else:
            return False
        return True


def _performing(operation: Callable[Concatenate[MemoryLedger, P], T]) -> Method[P, T]:
    """Return the method that performs an operation of the working set."""

    async def method(
        adapter: InMemoryAACPPersistenceAdapter, /, *arguments: P.args, **named: P.kwargs
    ) -> T:
        return operation(adapter.ledger, *arguments, **named)

    return method


@define(eq=False, repr=False)
class _Queue:
    """See `AgentQueue`; the levels are those of `MemoryLedger.waiting`."""

    agent_id: str
    levels: Mapping[int, Mapping[str, RequestRecord]]

    def level(self, priority: int, *, whole: bool = False) -> Iterable[RequestRecord]:
        """See `AgentQueue`."""
        return self.levels.get(priority, {}).values()

    def claimable(self, *asked: object) -> Iterator[RequestRecord]:
        """See `AgentQueue`; all of them are returned."""
        ranks = sorted(self.levels, reverse=True)
        return chain.from_iterable(self.levels[rank].values() for rank in ranks)

    def give_back(self, lapsed: Sequence[RequestRecord]) -> None:
        """See `AgentQueue`: the records are those of the ledger."""


@define(eq=False, repr=False)
class InMemoryAACPPersistenceAdapter(DerivedOperations, WithoutSubmissions, Shown):
    """Keeps everything in dictionaries.

    Records that can still change are copied before they are returned; the others are not.
    Records that exceed the limits are not taken (AACP-49).

    Args:
        limits: by default those of the settings' defaults, and no share for principals.
        incarnation: of the ledger; by default the time.
    """

    durability = (
        "The in-memory adapter provides best-effort tracking for a single process lifetime only and"
        " MUST NOT be considered durable across restarts."
    )
    shared = False
    takes_writes = False
    immediate = True
    compares_clocks = False

    limits: MemoryLimits = field(factory=MemoryLimits, kw_only=True)
    uid: str = field(factory=lambda: uuid4().hex, init=False)
    incarnation: int = field(factory=lambda: time.time_ns() // 1_000_000, kw_only=True)
    ledger: MemoryLedger = field(
        default=Factory(
            lambda self: MemoryLedger(self.incarnation, Usage(self.limits)), takes_self=True
        ),
        init=False,
    )
    schedules: dict[str, Schedule] = field(factory=dict, init=False)

    async def open(self) -> None:
        """Do nothing: memory needs no preparation."""

    async def close(self) -> None:
        """Do nothing: the records stay until the adapter is collected."""

    def on_change(self, callback: Callable[[LedgerNews | None], object]) -> None:
        """Ignore the callback: no other process can change the ledger."""

    async def read_time(self) -> int | None:
        """Return None: nobody else goes by a time that is kept here."""
        return None

    def renewer(self) -> None:
        """Return None: there is nobody else who could claim."""
        return

    # -- messages and requests ----------------------------------------------------------------

    async def append(
        self,
        messages: Sequence[OutgoingMessage],
        now_ms: int,
        claiming: Claiming = NO_CLAIMING,
    ) -> list[Appended]:
        """See `AACPPersistenceAdapter`."""
        appended = self.ledger.append_all(messages)
        new = {
            message.key: answer
            for message, answer in zip(messages, appended, strict=True)
            if answer.verdict is EntryVerdict.NEW
        }
        free = {
            agent_id: most
            for agent_id, most in claiming.wanted.items()
            if agent_id not in self.ledger.limited
            and all(
                record.request_id in new or claiming.holds(record)
                for record in self._queue(agent_id).claimable()
            )
        }
        for claim in (await self.claim(evolve(claiming, wanted=free), now_ms)).claims:
            new[claim.request_id].claim = claim
        return appended

    async def claim(self, claiming: Claiming, now_ms: int) -> Claimed:
        """See `AACPPersistenceAdapter`."""
        claimed, time_ms = Claimed([]), self._time_ms(now_ms)
        for agent_id in claiming.wanted:
            limited = self.ledger.limited.get(agent_id)
            claim_for(self._queue(agent_id), limited, claiming, now_ms, time_ms, claimed)
        return claimed

    def _queue(self, agent_id: str) -> _Queue:
        return _Queue(agent_id, self.ledger.waiting.get(agent_id, {}))

    def _time_ms(self, now_ms: int) -> int:
        """Return the time of the ledger; nobody else goes by it."""
        return now_ms

    async def limit_agents(self, limits: Mapping[str, AgentLimits]) -> dict[str, AgentLimits]:
        """See `AACPPersistenceAdapter`."""
        limited = self.ledger.limited
        before = replaced(limits, {each: its.limits for each, its in limited.items()})
        for agent_id in before:
            if limits[agent_id] == NO_LIMITS:
                del limited[agent_id]
            elif agent_id in limited:
                limited[agent_id].limits = limits[agent_id]
            else:
                limited[agent_id] = LimitedAgent(limits[agent_id])
        return before

    async def queue_delayed(self, now_ms: int, limit: int) -> Queued:
        """See `AACPPersistenceAdapter`."""
        ledger, delayed = self.ledger, self.ledger.delayed
        due: list[RequestRecord] = []
        while delayed:
            at_ms, request_id = delayed[0]
            record = ledger.requests.get(request_id)
            is_void = (
                record is None
                or record.state is not RequestState.DELAYED
                or record.not_before_ms != at_ms
            )
            if not is_void and (at_ms > now_ms or len(due) == limit):
                break
            heapq.heappop(delayed)
            if record is not None and not is_void:
                due.append(record)
        ledger.queue_delayed(due)
        agents = sorted({record.target_agent_id for record in due})
        return Queued(agents, delayed[0][0] if delayed else None)

    async def complete(
        self, completions: Sequence[ClaimCompletion], now_ms: int
    ) -> list[Completed]:
        """See `AACPPersistenceAdapter`."""
        completed = [self.ledger.complete(completion, now_ms) for completion in completions]
        for each in completed:
            if each.record is not None:
                queue = self._queue(each.record.target_agent_id).claimable()
                each.waits = any(record.state is RequestState.RECEIVED for record in queue)
        return completed

    # -- what operators ask -------------------------------------------------------------------

    async def list_requests(self, query: RequestQuery) -> list[RequestRecord]:
        """See `AACPPersistenceAdapter`."""
        found = filter(query.takes, self.ledger.requests.values())
        shown = copy_of_request if query.whole else outline
        return [shown(record) for record in heapq.nsmallest(query.limit, found, key_of)]

    async def summarize_agents(self, after: str, limit: int) -> list[AgentSummary]:
        """See `AACPPersistenceAdapter`."""
        agents = {record.target_agent_id for record in self.ledger.requests.values()}
        shown = set(heapq.nsmallest(limit, (each for each in agents if each > after)))
        found = self.ledger.requests.values()
        return _summaries(record for record in found if record.target_agent_id in shown)

    async def measure_queues(self, agent_ids: Sequence[str]) -> list[AgentSummary]:
        """See `AACPPersistenceAdapter`."""
        queues = (self._queue(agent_id).claimable() for agent_id in set(agent_ids))
        return _summaries(chain.from_iterable(islice(queue, MAX_MEASURED) for queue in queues))

    async def cancel(self, cancellations: Sequence[ClaimCompletion], now_ms: int) -> list[Changed]:
        """See `AACPPersistenceAdapter`."""
        return self.ledger.cancel_all(cancellations, now_ms)

    async def requeue(self, request_ids: Sequence[str], expires_at_ms: int) -> list[Changed]:
        """See `AACPPersistenceAdapter`."""
        return [self.ledger.requeue(request_id, expires_at_ms) for request_id in request_ids]

    # -- retransmission -----------------------------------------------------------------------

    async def take_due(self, now_ms: int, limit: int, decide: RetryDecision) -> Due:
        """See `AACPPersistenceAdapter`."""
        due = Due([], [], None)
        ledger, attempts = self.ledger, self.ledger.attempts
        while attempts:
            at_ms, message_id = attempts[0]
            message = ledger.messages.get(message_id)
            if message is None or message.next_attempt_at_ms != at_ms:
                heapq.heappop(attempts)
                continue
            if at_ms > now_ms or len(due.messages) == limit:
                due.next_at_ms = at_ms
                break
            heapq.heappop(attempts)
            ledger.retry(message, now_ms, decide, due)
        return due

    async def hasten(
        self, targets: Sequence[str], at_ms: int, after: OutboxKey, limit: int
    ) -> Hastened:
        """See `AACPPersistenceAdapter`."""
        ledger = self.ledger
        wanted = [each for each in ledger.outbox.items() if not targets or each[0][1] in targets]
        keys = ((*link, seq) for link, outbox in wanted for seq in outbox)
        page = heapq.nsmallest(limit, (key for key in keys if key > after))
        hastened = Hastened(0, page[-1] if page else None)
        for source, target, seq in page:
            message = ledger.outbox[source, target][seq]
            if message.created_at_ms <= at_ms < (message.next_attempt_at_ms or 0):
                ledger.plan(message, at_ms)
                hastened.count += 1
        return hastened

    async def reschedule(
        self, message_id: str, at_ms: int, *, give_up: bool = False
    ) -> MessageRecord | None:
        """See `AACPPersistenceAdapter`."""
        message = self.ledger.messages.get(message_id)
        if message is None or message.state is MessageState.ACKNOWLEDGED:
            return None
        if give_up:
            self.ledger.make_void(message)
        self.ledger.plan(message, at_ms)
        return copy_of_message(message)

    # -- records ------------------------------------------------------------------------------

    async def get_request_records(self, request_ids: Sequence[str]) -> list[RequestRecord]:
        """See `AACPPersistenceAdapter`."""
        found = (self.ledger.requests.get(request_id) for request_id in request_ids)
        return [snapshot(record) for record in found if record is not None]

    async def get_message_record(self, message_id: str) -> MessageRecord | None:
        """See `AACPPersistenceAdapter`."""
        message = self.ledger.messages.get(message_id)
        return None if message is None else copy_of_message(message)

    async def _change_link(
        self, link: Link, message_id: str, change: Callable[[UnitOfWork], Any]
    ) -> Any:
        return change(self.ledger)

    # -- recovery and retention ---------------------------------------------------------------

    async def _read_messages(
        self, of: Link | MessageState, before_ms: int
    ) -> Iterable[MessageRecord]:
        if isinstance(of, MessageState):
            found = [each for each in self.ledger.messages.values() if each.state is of]
        else:
            found = list(self.ledger.outbox.get(of, {}).values())
        return [copy_of_message(each) for each in found if each.created_at_ms < before_ms]

    # -- schedules ----------------------------------------------------------------------------

    async def change_schedules(self, changes: Sequence[ScheduleChange]) -> list[bool]:
        """See `AACPPersistenceAdapter`."""
        return change_all(self.schedules, changes)

    async def list_schedules(self, after: str, limit: int) -> list[Schedule]:
        """See `AACPPersistenceAdapter`."""
        names = heapq.nsmallest(limit, (name for name in self.schedules if name > after))
        return [evolve(self.schedules[name]) for name in names]

    async def due_schedules(self, now_ms: int, limit: int) -> DueSchedules:
        """See `AACPPersistenceAdapter`."""
        times = [
            (schedule.next_run_at_ms, name)
            for name, schedule in self.schedules.items()
            if schedule.next_run_at_ms is not None
        ]
        due = heapq.nsmallest(limit, (each for each in times if each[0] <= now_ms))
        next_at_ms = min((at_ms for at_ms, _ in times if at_ms > now_ms), default=None)
        return DueSchedules([evolve(self.schedules[name]) for _, name in due], next_at_ms)

    async def enter_runs(self, advances: Sequence[Advance], now_ms: int) -> list[EnteredRuns]:
        """See `AACPPersistenceAdapter`."""
        made = advance_all(self.schedules, advances)
        return [
            [self.ledger.append(message) for _, message in advance.runs] if is_made else None
            for advance, is_made in zip(advances, made, strict=True)
        ]

    # -- operations of the working set --------------------------------------------------------

    receive = _performing(MemoryLedger.receive)
    renew = _performing(MemoryLedger.renew)
    release = _performing(MemoryLedger.release)
    put_request_record = _performing(MemoryLedger.put_request)
    purge_expired = _performing(MemoryLedger.purge)
    _mark = _performing(MemoryLedger.mark)


def _summaries(found: Iterable[RequestRecord]) -> list[AgentSummary]:
    rows: dict[tuple[str, str], tuple[int, int]] = {}
    for record in found:
        key = (record.target_agent_id, str(record.state))
        count, oldest_ms = rows.get(key, (0, record.created_at_ms))
        rows[key] = (count + 1, min(oldest_ms, record.created_at_ms))
    return summaries([(*key, *rows[key]) for key in sorted(rows)])
