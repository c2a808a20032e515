"""The operations of a ledger in PostgreSQL: each one transaction, of a batch of any size."""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from attrs import define, field

from ....base.database.errors import DatabaseError, DatabaseLockedError
from ....base.database.migrations import migrate_postgres
from ....base.database.postgres import (
    Connection,
    Listener,
    PostgresConnections,
    Query,
    Row,
    Transaction,
    read_url,
)
from ....base.logs.logger import StructuredLogger
from ....base.shown import Shown
from ....errors import UsageError
from ...ledger.administration import AgentSummary, summaries
from ...ledger.agent_limits import Admitted, AgentLimits, LimitedAgent, replaced
from ...ledger.rules import PURGE_BATCH, retry
from ...ledger.schedules import Advance, EnteredRuns
from ...ledger.submissions import SubmittedRequest, TakenSubmissions
from ...ledger.types import (
    LOCKED,
    NO_CLAIMING,
    Appended,
    ClaimCompletion,
    Claimed,
    Claiming,
    Completed,
    Due,
    Ending,
    Hastened,
    IncomingEnvelope,
    LedgerNews,
    Link,
    Locked,
    MessageType,
    OutgoingMessage,
    Queued,
    Received,
    Release,
    RequestRecord,
)
from ...ledger.unit_of_work import UnitOfWork
from ...persistence import LeaseRenewer, RetryDecision, StoreError
from .. import records
from ..derived_operations import DerivedOperations
from . import administration, news, schedules, statements, submissions
from .connections import Limits, connections_of
from .locked_lanes import LockedLanes
from .migrations import MIGRATIONS
from .outcome_writes import OutcomeWrites
from .queue_floors import QueueFloors
from .working_set import Work

T = TypeVar("T")
P = ParamSpec("P")
Item = TypeVar("Item")
Answer = TypeVar("Answer")

Method: TypeAlias = Callable[
    Concatenate["PostgresAACPPersistenceAdapter", P], Coroutine[Any, Any, T]
]

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_BUSY_MS = 5
_MAX_BUSY_MS = 500
"""The delays before asking again for a queue from which another process is claiming: each time it
still is, twice as long."""


def _asking(query: Callable[P, Query], read: Callable[[list[Row]], T]) -> Method[P, T]:
    """Return the method that executes one query and reads its rows."""

    async def method(
        adapter: PostgresAACPPersistenceAdapter, /, *arguments: P.args, **named: P.kwargs
    ) -> T:
        return read(await adapter._ask(query(*arguments, **named)))

    return method


def _transacting(
    operation: Callable[Concatenate[Work, P], Coroutine[Any, Any, T]],
) -> Method[P, T]:
    """Return the method that performs an operation in a transaction."""

    @wraps(operation)
    async def method(
        adapter: PostgresAACPPersistenceAdapter, /, *arguments: P.args, **named: P.kwargs
    ) -> T:
        return await adapter._transact(lambda work: operation(work, *arguments, **named))

    return method


def _all(read: Callable[[Row], T]) -> Callable[[list[Row]], list[T]]:
    return lambda rows: list(map(read, rows))


def _first(read: Callable[[Row], T]) -> Callable[[list[Row]], T | None]:
    return lambda rows: read(rows[0]) if rows else None


def _hastened(rows: list[Row]) -> Hastened:
    return Hastened(rows[0][0], tuple(rows[0][1:])) if rows else Hastened(0, None)


def _summaries(rows: list[Row]) -> list[AgentSummary]:
    return summaries(sorted((row[0], row[1], row[2], row[3]) for row in rows))


_Taken: TypeAlias = Sequence["tuple[OutgoingMessage, Appended] | None"]


async def _limit_agents(work: Work, limits: Mapping[str, AgentLimits]) -> dict[str, AgentLimits]:
    """See `AACPPersistenceAdapter`."""
    [rows] = await work.transaction.ask(statements.limits_of(sorted(limits)))
    known = {agent_id: AgentLimits(*columns) for agent_id, *columns in rows}
    before = replaced(limits, known)
    changes = {each: limits[each] for each in before}
    await work.transaction.commit(*([statements.set_limits(changes)] if changes else ()))
    return before


async def _queue_delayed(work: Work, now_ms: int, limit: int) -> Queued:
    """Queue what is due; the time of the next one is that before."""
    agents, [(next_at_ms,)] = await work.transaction.ask(
        statements.delayed_agents(now_ms, limit), statements.NEXT_DELAYED
    )
    names = sorted(agent_id for (agent_id,) in agents)
    if not names:
        await work.transaction.commit()
        return Queued([], next_at_ms)
    unit = await work.load(agents=names)
    [rows] = await work.transaction.ask(statements.lock_delayed(names, now_ms, limit))
    unit.queue_delayed(map(records.request_of, rows))
    moved = sorted(unit.moved)
    await work.flush(unit, LedgerNews(moved))
    return Queued(moved, next_at_ms)


async def _take_due(work: Work, now_ms: int, limit: int, decide: RetryDecision) -> Due:
    """See `AACPPersistenceAdapter`; processes that ask at once get different messages."""
    rows, [(next_at_ms,)] = await work.transaction.ask(
        statements.lock_due(now_ms, limit), statements.NEXT_DUE
    )
    due = Due([], [], next_at_ms)
    if not rows:
        await work.transaction.commit()
        return due
    for *row, low_watermark in rows:
        retry(records.message_of(row), low_watermark, now_ms, decide, due)
    _, [(due.next_at_ms,)] = await work.transaction.commit(
        statements.plan(due.messages), statements.NEXT_DUE
    )
    return due


async def _change_link(
    work: Work, link: Link, message_id: str, change: Callable[[UnitOfWork], Any]
) -> Any:
    """See `DerivedOperations`."""
    unit = await work.load([link], message_ids=[message_id])
    answer = change(unit)
    await work.flush(unit)
    return answer


@define(eq=False, repr=False)
class PostgresAACPPersistenceAdapter(DerivedOperations, Shown):
    """Keeps a ledger in the tables of one schema, which any number of processes may share.

    An operation that changes something costs two round trips: one locks and reads, one writes and
    commits. A statement costs the client about 0.1 ms, in a batch of 500 as in a batch of 1: a
    single append took 2 to 4 ms, one in a batch of 500 took 0.04 to 0.06 ms. Batches of 50 and 500
    reach half to all of the rate of a loop with one bare statement for each operation. Nodes gather
    the items that wait while an operation runs into the next one, so the adapter gathers nothing.

    Args:
        url: ``postgresql://user:password@host:port/database``, or another form that libpq takes.
        schema: lower-case letters, digits and ``_``; it is made, and its tables with it.
        connections: the most that are used, beside one that listens.
        lease_ms: how long the claims of those who use it last: no wait is longer than that.
        logger: gets a warning when the server is set to lose what it has acknowledged.

    Raises:
        UsageError: the message says what to change.
    """

    durability = (
        "An acknowledged message survives the end of the process, of the database server and of its"
        " machine, if the server runs with fsync, full_page_writes and synchronous_commit on, as is"
        " its default, and as far as its disk keeps what it says it has written."
    )
    shared = True
    takes_writes = True
    immediate = False
    compares_clocks = True
    takes_submissions = True

    uid: str = field(default="", init=False)
    incarnation: int = field(default=0, init=False)
    _parameters: dict[str, Any] = field(alias="url", converter=read_url)
    _schema: str = field(default="aacp", kw_only=True)
    _size: int = field(default=4, alias="connections", kw_only=True)
    _lease_ms: int = field(default=30_000, kw_only=True)
    _logger: StructuredLogger | None = field(default=None, kw_only=True)
    _connections: PostgresConnections | None = field(default=None, init=False)
    _loop: asyncio.AbstractEventLoop = field(init=False)  # while it is open
    _callback: Callable[[LedgerNews | None], object] | None = field(default=None, init=False)
    _listening: asyncio.Task[None] | None = field(default=None, init=False)
    _answering: asyncio.Task[None] | None = field(default=None, init=False)
    # By the clock of the loop: until when others count as there, and when others were last told.
    _others_until: float = field(default=0.0, init=False)
    _told_at: float = field(default=0.0, init=False)
    _writes: OutcomeWrites = field(factory=OutcomeWrites, init=False)
    # By operation.
    _lanes: defaultdict[str, LockedLanes] = field(
        factory=lambda: defaultdict(LockedLanes), init=False
    )
    _floors: WeakKeyDictionary[Connection, QueueFloors] = field(
        factory=WeakKeyDictionary, init=False
    )
    # How often in a row a claim found that another process was claiming.
    _busy: int = field(default=0, init=False)
    # By the clock of the loop: when transactions of stopped processes may be ended again.
    _end_stalled_at: float = field(default=0.0, init=False)

    @_schema.validator
    def _check_schema(self, _: object, schema: str) -> None:
        if not _SCHEMA.fullmatch(schema):
            raise UsageError(
                f"{schema!r} cannot be the schema of a ledger: use 1 to 63 lower-case letters,"
                " digits and _, not beginning with a digit"
            )

    async def open(self) -> None:
        """Connect, and make the tables or migrate them.

        Raises:
            StoreError: the server cannot be reached, or refuses.
            UsageError: the tables are those of a newer version of this package.
        """
        self._loop = asyncio.get_running_loop()
        limits = Limits.of_lease(self._lease_ms)
        self._connections = connections_of(self._parameters, self._schema, self._size, limits)
        try:
            await migrate_postgres(
                self._connections, MIGRATIONS, application="foundation-rt aacp", verify=False
            )
            [(self.incarnation, self.uid)] = await self._ask(statements.NAMES)
            _warn_if_unsafe(await self._ask(statements.SERVER_SETTINGS), self._logger)
        except BaseException as error:
            await self.close()
            if isinstance(error, DatabaseError):
                raise StoreError(str(error)) from None
            raise
        self._listen()

    async def close(self) -> None:
        """See `AACPPersistenceAdapter`."""
        tasks, self._listening, self._answering = (self._listening, self._answering), None, None
        for task in filter(None, tasks):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()

    def on_change(self, callback: Callable[[LedgerNews | None], object]) -> None:
        """See `AACPPersistenceAdapter`; told by NOTIFY."""
        self._callback = callback
        self._listen()

    def _listen(self) -> None:
        if self._callback is not None and self._connections is not None and not self._listening:
            listener = Listener(self._connections, f'"{self._schema}"', self._hear)
            self._listening = self._loop.create_task(listener.run())

    def _hear(self, payload: str | None) -> None:
        """Take the notification of another process; None if some may be lost."""
        if payload is not None:
            if self._is_alone():
                self._answering = self._loop.create_task(self._announce())
            self._others_until = self._loop.time() + self._lease_ms / 1000
        if self._callback is not None:
            self._callback(news.read(payload))

    def _is_alone(self) -> bool:
        """Return whether no other process was heard of within a lease (AACP-193)."""
        return self._loop.time() >= self._others_until

    async def _announce(self) -> None:
        """Let another process, of which this one has just heard, hear of this one."""
        with suppress(StoreError):
            await self._ask(statements.notify(self._schema, news.write(LedgerNews())))

    async def _transact(self, operation: Callable[[Work], Awaitable[T]]) -> T:
        try:
            return await self._try(operation, None)
        except DatabaseError as error:
            raise StoreError(str(error)) from None

    async def _try(self, operation: Callable[[Work], Awaitable[T]], lock_ms: int | None) -> T:
        """Perform a transaction, with the longest wait for a lock if it is not that of others.

        Raises:
            DatabaseError: it failed, or may have failed.
        """
        if self._connections is None:
            raise StoreError("the ledger is not open")
        try:
            return await self._connections.transact(
                lambda transaction: operation(Work(transaction, self.incarnation, self._tell)),
                lock_ms=lock_ms,
            )
        except DatabaseLockedError:
            await self._end_stalled_transactions(self._connections)
            raise

    async def _end_stalled_transactions(self, connections: PostgresConnections) -> None:
        """End transactions of stopped processes that the server does not end by itself (DB-06)."""
        if self._loop.time() >= self._end_stalled_at:
            # Often enough that one does not become much older than it may.
            self._end_stalled_at = self._loop.time() + connections.operation_s / 8
            with suppress(DatabaseError):
                await connections.end_stalled_transactions()

    async def _enter(
        self,
        operation: str,
        items: Sequence[Item],
        lane_of: Callable[[Item], str],
        enter_part: Callable[[Work, Sequence[Item]], Awaitable[Sequence[Answer]]],
    ) -> list[Answer | Locked]:
        """Enter a batch, or what of it no other process keeps locked (AACP-90)."""

        async def enter(part: Sequence[Item], lock_ms: int | None) -> Sequence[Answer]:
            return await self._try(lambda work: enter_part(work, part), lock_ms)

        try:
            return await self._lanes[operation].enter(items, lane_of, enter)
        except DatabaseError as error:
            raise StoreError(str(error)) from None

    async def _ask(self, *queries: Query, then: Sequence[Query] = ()) -> list[Row]:
        """Execute queries in one transaction; return the rows of the last query."""

        async def ask(work: Work) -> list[Row]:
            return (await work.transaction.commit(*queries, then=then))[-1]

        return await self._transact(ask)

    def _floors_of(self, work: Work) -> QueueFloors:
        return self._floors.setdefault(work.transaction.connection, QueueFloors())

    def renewer(self) -> LeaseRenewer:
        """See `AACPPersistenceAdapter`: it has a connection of its own, made when it is used."""
        limits = Limits.of_lease(self._lease_ms)
        return _Renewer(connections_of(self._parameters, self._schema, 1, limits))

    def _tell(self, told: LedgerNews | None) -> Sequence[Query]:
        """Return the query that tells other processes, once for a batch and after its commit.

        Within the transaction it would keep all others that notify from committing until this one
        is on disk.

        Args:
            told: nothing is told of no news; None: anything may have changed.
        """
        if told is not None and not (told.agents or told.finished):
            return ()
        self._told_at = self._loop.time()
        return (statements.notify(self._schema, news.write(told)),)

    # -- messages and requests ----------------------------------------------------------------

    async def append(
        self,
        messages: Sequence[OutgoingMessage],
        now_ms: int,
        claiming: Claiming = NO_CLAIMING,
    ) -> list[Appended | Locked]:
        """See `AACPPersistenceAdapter`."""
        time, limits = asyncio.get_running_loop().time, Limits.of_lease(self._lease_ms)
        began = time()

        async def enter(work: Work, messages: Sequence[OutgoingMessage]) -> list[Appended]:
            known = self._floors_of(work)
            targets = {each.target_agent_id for each in messages if each.local}
            wanted = sorted(targets & claiming.wanted.keys()) if self._is_alone() else []
            vacancy = None
            if wanted:
                # What the owner holds must not lapse before this transaction ends.
                ends_ms = now_ms + (time() - began + limits.operation_s) * 1000
                until_ms, floors = claiming.held_until_ms, known.of(wanted)
                owner = claiming.owner if ends_ms <= until_ms else ""
                vacancy = statements.vacancy(wanted, floors, owner, until_ms)
            unit = await work.load_to_append(messages, vacancy, known)
            appended = unit.append_all(messages)
            unit.claim_added(messages, appended, claiming, now_ms)
            for each in appended:
                if each.claim is not None:
                    each.claim.is_quiet = True
            told = sorted(targets.difference(claiming.wanted, claiming.serves))
            await work.flush(unit, LedgerNews(told))
            return appended

        return await self._enter("append", messages, lambda each: each.target_agent_id, enter)

    async def receive(
        self, arrivals: Sequence[IncomingEnvelope], now_ms: int, ttl_ms: int
    ) -> Received:
        """See `AACPPersistenceAdapter`."""

        async def enter(work: Work, arrivals: Sequence[IncomingEnvelope]) -> list[Received]:
            envelopes = [incoming.envelope for incoming in arrivals]
            numbered = [each for each in envelopes if each.seq]
            there = [(each.source_agent_id, each.target_agent_id) for each in envelopes]
            # The other direction: for acknowledgements, and for answers that are known already.
            links = [*there, *((target, source) for source, target in there)]
            responses = [each for each in numbered if each.message_type is MessageType.RESPONSE]
            others = [each for each in numbered if each.message_type is not MessageType.RESPONSE]
            unit = await work.load(
                links,
                # Of RESPONSEs too: one may fill the gap for which a request waits.
                agents=[each.target_agent_id for each in numbered],
                request_ids=[each.request_id or each.message_id for each in others],
                sent=[each.request_id or "" for each in responses],
            )
            await work.load_held(unit, unit.releases(numbered))
            received = unit.receive(arrivals, now_ms, ttl_ms)
            queues = {each.target_agent_id for each in numbered} if received.ready else ()
            finished = [each.request_id for each in received.finished]
            received.acknowledged = await work.flush(unit, LedgerNews(sorted(queues), finished))
            return [received] * len(arrivals)

        entered = await self._enter("receive", arrivals, _agents_of, enter)
        parts = {id(part): part for part in entered if part is not LOCKED}
        received = Received({}, [], [], [], [], 0, False)
        for part in parts.values():
            received.add(part)
        received.locked = [
            incoming.envelope
            for incoming, part in zip(arrivals, entered, strict=True)
            if part is LOCKED
        ]
        return received

    async def claim(self, claiming: Claiming, now_ms: int) -> Claimed:
        """See `AACPPersistenceAdapter`.

        A claimer locks the mailbox of the agent until its claims are committed, so that the next
        claimer sees them.
        """
        wanted, owner = claiming.wanted, claiming.owner

        async def take(work: Work) -> tuple[Claimed, set[str]]:
            known, transaction = self._floors_of(work), work.transaction
            agents, outdated = list(wanted), known.outdated(wanted)
            mailboxes, heads, *lowest = await transaction.ask(
                statements.lock_mailboxes(agents, known.of(agents), owner, now_ms),
                statements.heads(wanted, known.of(agents), owner, now_ms),
                *([statements.LOWEST.of(outdated)] if outdated else ()),
            )
            for rows in lowest:
                known.learn(rows)
            for head in heads:
                known.see(head[1], *head[6:8])
            free = {row[0] for row in mailboxes}
            limited = {
                agent_id: LimitedAgent.of(*columns)
                for agent_id, *columns in mailboxes
                if columns[:2] != [1, 0]
            }
            admitted: dict[str, Admitted] = {}
            time_ms = now_ms
            if limited:
                ahead = {each: its.read_ahead for each, its in limited.items()}
                rows, [(server_ms,)] = await transaction.ask(
                    statements.limited_heads(ahead, known.of(limited), now_ms),
                    statements.SERVER_TIME,
                )
                time_ms = int(server_ms)
                admitted = _admit(limited, rows, wanted, owner, now_ms, time_ms)
                in_any_order = {each for each, its in admitted.items() if its.requests is not None}
                heads = [head for head in heads if head[1] not in in_any_order]
            lapsed = {head[1] for head in heads if head[5] and not head[3]} & free
            if lapsed:
                takeable = sorted(lapsed)
                [kept] = await transaction.ask(
                    statements.give_back_lapsed(takeable, known.of(takeable), owner, now_ms)
                )
                free -= {agent for (agent,) in kept}
            chosen, again_at_ms, busy = _choose(heads, free, {*claiming.idle, *limited}, admitted)
            # Their owners do not look for what is behind by themselves (AACP-195).
            told = self._tell(LedgerNews([head[1] for head in heads if head[3] and head[8]]))
            if not chosen:
                await transaction.commit(then=told)
                return Claimed([], again_at_ms), busy
            started = _started(limited, Counter(each[0] for each in chosen), time_ms)
            choices, is_quiet = [each[1:] for each in chosen], self._is_alone()
            rows, *_ = await transaction.commit(
                statements.claim(choices, claiming, now_ms, is_quiet=is_quiet),
                *([statements.NOTE_STARTS.of(started.items())] if started else ()),
                then=told,
            )
            found = {row[0]: statements.claim_of(row) for row in rows}
            for claim in found.values():
                claim.is_quiet = is_quiet
                if claim.target_agent_id in limited:
                    claim.workers = limited[claim.target_agent_id].limits.workers
            claims = [found[each[1]] for each in chosen if each[1] in found]
            busy |= {agent_id for agent_id, request_id, *_ in chosen if request_id not in found}
            return Claimed(claims, again_at_ms), busy

        claimed, busy = await self._transact(take)
        self._busy = self._busy + 1 if busy else 0
        if busy and self._connections is not None:
            # No claim waits for a lock, and so none fails for one.
            await self._end_stalled_transactions(self._connections)
        soon_ms = now_ms + min(_BUSY_MS << min(self._busy, 10), _MAX_BUSY_MS)
        for agent_id in busy:
            claimed.again_at_ms[agent_id] = min(soon_ms, claimed.again_at_ms.get(agent_id, soon_ms))
        return claimed

    async def queue_delayed(self, now_ms: int, limit: int) -> Queued:
        """See `AACPPersistenceAdapter`; processes that ask at once get different requests."""
        queued = await self._queue_delayed(now_ms, limit)
        if queued.agents:
            [(queued.next_at_ms,)] = await self._ask(statements.NEXT_DELAYED)
        return queued

    async def complete(
        self, completions: Sequence[ClaimCompletion], now_ms: int
    ) -> list[Completed | Locked]:
        """See `AACPPersistenceAdapter`.

        `ClaimCompletion.in_transaction` is called with a `psycopg.AsyncConnection` in a
        transaction. It may use savepoints (``connection.transaction()``), and may neither commit
        nor roll back.
        """
        completed = await self._enter(
            "complete",
            completions,
            lambda each: each.request_id,
            lambda work, part: self._complete(work, part, now_ms),
        )
        self._writes.forget(
            completion.request_id
            for completion, answer in zip(completions, completed, strict=True)
            if answer is not LOCKED
        )
        return completed

    async def _complete(
        self, work: Work, completions: Sequence[ClaimCompletion], now_ms: int
    ) -> list[Completed | Locked]:
        transaction, request_ids = work.transaction, [each.request_id for each in completions]
        [rows] = await transaction.ask(statements.lock_claims(request_ids))
        unit = UnitOfWork(
            self.incarnation, requests={row[0]: records.request_of(row) for row in rows}
        )
        if any(each.in_transaction is not None for each in completions):
            await transaction.plain()
        completed: list[Completed | Locked] = []
        failed: set[str] = set()
        taken: list[tuple[int, ClaimCompletion, RequestRecord]] = []
        for completion in completions:
            answer: Completed | Locked | None = unit.refuse(completion)
            if answer is None and unit.requests[completion.request_id].target_agent_id in failed:
                answer = LOCKED  # it comes after the one before it
            if answer is None:
                failure = await self._writes.perform(transaction.connection, completion)
                if failure is not None:
                    answer = Completed(None, None, failure)
                    failed.add(unit.requests[completion.request_id].target_agent_id)
                else:
                    record = unit.finish(completion, now_ms)
                    taken.append((len(completed), completion, record))
                    answer = Completed(record, None)
            completed.append(answer)
        await work.load_response_links(unit)
        for place, completion, record in taken:
            completed[place] = unit.answer(record, completion, now_ms)
        for completion, each in zip(completions, completed, strict=True):
            if each is not LOCKED and each.record is not None:
                each.waits = not completion.is_quiet
        # The caller of what was claimed on entry is here: others hear of it now and then, so
        # that they know of this process.
        is_due = self._loop.time() >= self._told_at + self._lease_ms / 3000
        finished = [each.request_id for _, each, _ in taken if is_due or not each.on_entry]
        await work.flush(unit, LedgerNews((), finished))
        return completed

    async def renew(self, claims: Sequence[tuple[str, int]], lease_until_ms: int) -> list[bool]:
        """See `AACPPersistenceAdapter`."""

        async def renew(work: Work, claims: Sequence[tuple[str, int]]) -> list[bool]:
            [rows] = await work.transaction.commit(statements.renew(claims, lease_until_ms))
            held = set(rows)
            return [claim in held for claim in claims]

        renewed = await self._enter("renew", claims, lambda claim: claim[0], renew)
        return [is_held is not False for is_held in renewed]

    async def release(self, releases: Sequence[Release]) -> list[Release]:
        """See `AACPPersistenceAdapter`."""

        async def release(work: Work, releases: Sequence[Release]) -> list[None]:
            # Of several for one claim the first counts: after it the claim is no longer held.
            firsts = {(each.request_id, each.epoch): each for each in reversed(releases)}
            query = statements.RELEASE.of_records(firsts.values())
            await work.transaction.commit(query, then=self._tell(None))
            return [None] * len(releases)

        released = await self._enter("release", releases, lambda each: each.request_id, release)
        return [each for each, done in zip(releases, released, strict=True) if done is LOCKED]

    # -- records ------------------------------------------------------------------------------

    async def _mark(
        self, request_id: str, ending: Ending, now_ms: int, completion_ref: str | None
    ) -> bool:
        queries = statements.mark(request_id, ending, now_ms, completion_ref)
        told = self._tell(LedgerNews((), [request_id]))
        return await self._ask(*queries, then=told) == [(ending.state,)]

    # -- recovery and retention ---------------------------------------------------------------

    async def purge_expired(self, now_ms: int) -> int:
        """See `AACPPersistenceAdapter`; several transactions, so that none holds locks for long."""
        queries = statements.purges(now_ms, PURGE_BATCH)
        return sum([len(await self._ask(query)) for query in queries])

    # -- schedules ----------------------------------------------------------------------------

    async def enter_runs(self, advances: Sequence[Advance], now_ms: int) -> list[EnteredRuns]:
        """See `AACPPersistenceAdapter`."""
        entered = await self._enter(
            "enter_runs", advances, lambda each: each.target_agent_id, schedules.enter_runs
        )
        return [None if each is LOCKED else each for each in entered]

    # -- requests in transactions of an application -------------------------------------------

    async def submit(self, connection: Any, submission: SubmittedRequest) -> None:
        """See `AACPPersistenceAdapter`; the connection is a `psycopg.AsyncConnection`."""
        await submissions.submit(connection, self._schema, self.uid, submission)

    async def take_submissions(
        self,
        transactions: Collection[int] | None,
        now_ms: int,
        next_attempt_at_ms: int,
        limit: int,
    ) -> TakenSubmissions:
        """See `AACPPersistenceAdapter`; processes that ask at once get different requests."""
        rows = await self._ask(submissions.see(transactions, limit))
        seen = list(map(submissions.submission_of, rows))

        def take_over(work: Work, part: Sequence[SubmittedRequest]) -> Awaitable[_Taken]:
            return submissions.take_over(
                work, part, lambda each: each.outgoing(now_ms, next_attempt_at_ms)
            )

        taken = await self._enter(
            "take_submissions", seen, lambda each: each.target_agent_id, take_over
        )
        entered = [each for each in taken if each is not None and each is not LOCKED]
        is_all = len(entered) == len(seen)
        return TakenSubmissions(entered, left=is_all and len(seen) == limit, locked=not is_all)

    # -- operations of one query or one function ----------------------------------------------

    read_time = _asking(lambda: statements.SERVER_TIME, lambda rows: int(rows[0][0]))
    hasten = _asking(statements.hasten, _hastened)
    reschedule = _asking(statements.reschedule, _first(records.message_of))
    put_request_record = _asking(statements.put_request, lambda rows: None)
    get_request_records = _asking(statements.requests, _all(records.request_of))
    get_message_record = _asking(statements.message, _first(records.message_of))
    list_requests = _asking(administration.page, _all(records.request_of))
    summarize_agents = _asking(administration.summary, _summaries)
    measure_queues = _asking(administration.queues, _summaries)
    list_schedules = _asking(schedules.page, _all(records.schedule_of))
    submitted_to = _asking(submissions.target_of, _first(lambda row: str(row[0])))
    cancel = _transacting(administration.cancel)
    requeue = _transacting(administration.requeue)
    limit_agents = _transacting(_limit_agents)
    take_due = _transacting(_take_due)
    _queue_delayed = _transacting(_queue_delayed)
    _change_link = _transacting(_change_link)
    change_schedules = _transacting(schedules.change_schedules)
    due_schedules = _transacting(schedules.due_schedules)
    _read_messages = _asking(statements.messages_of, _all(records.message_of))


def _agents_of(incoming: IncomingEnvelope) -> str:
    """Return a name for the links that an envelope touches, in both directions."""
    envelope = incoming.envelope
    return "\0".join(sorted((envelope.source_agent_id, envelope.target_agent_id)))


@define(eq=False, repr=False)
class _Renewer:
    """Renews leases through a connection of its own."""

    _connections: PostgresConnections

    async def renew(self, claims: Sequence[tuple[str, int]], lease_until_ms: int) -> object:
        """See `LeaseRenewer`."""

        async def work(transaction: Transaction) -> object:
            return await transaction.commit(statements.renew(claims, lease_until_ms))

        try:
            return await self._connections.transact(work)
        except DatabaseError as error:
            raise StoreError(str(error)) from None

    async def close(self) -> None:
        """See `LeaseRenewer`."""
        await self._connections.close()


def _warn_if_unsafe(settings: Sequence[Row], logger: StructuredLogger | None) -> None:
    unsafe = [name for name, setting in settings if setting == "off"]
    if unsafe and logger is not None:
        logger.warn(
            "PostgreSQL may lose what it has acknowledged: these of its settings are off",
            {"settings": unsafe},
        )


def _admit(
    limited: Mapping[str, LimitedAgent],
    rows: Sequence[Row],
    wanted: Mapping[str, int],
    owner: str,
    now_ms: int,
    time_ms: int,
) -> dict[str, Admitted]:
    """Return what may be claimed for each agent that has limits."""
    heads = defaultdict[str, list[RequestRecord]](list)
    for record in map(records.request_of, rows):
        heads[record.target_agent_id].append(record)
    return {
        agent_id: its.admit(heads[agent_id], wanted[agent_id], owner, now_ms, time_ms)
        for agent_id, its in limited.items()
    }


def _started(
    limited: Mapping[str, LimitedAgent], counts: Mapping[str, int], time_ms: int
) -> dict[str, str]:
    """Return what is to be written of the executions that begin, for agents with a rate."""
    begun = {each: its for each, its in limited.items() if its.limits.starts and counts.get(each)}
    for agent_id, its in begun.items():
        its.note_starts(counts[agent_id], time_ms)
    return {agent_id: its.written() for agent_id, its in begun.items()}


_Chosen: TypeAlias = tuple[str, str, int, bool, int]
"""The agent, and what `statements.Choice` has."""


def _choose(
    heads: Sequence[Row],
    mailboxes: set[str],
    idle: Collection[str],
    admitted: Mapping[str, Admitted],
) -> tuple[list[_Chosen], dict[str, int], set[str]]:
    """Return what to claim, in order; when to ask again, by agent; and for whom others claim."""
    chosen: list[_Chosen] = []
    begin = set(idle)
    number: Counter[str] = Counter()
    again_at_ms: dict[str, int] = {}
    busy: set[str] = set()
    for request_id, agent_id, epoch, stops, until_ms, *_ in heads:
        if stops:
            again_at_ms[agent_id] = until_ms
        elif agent_id in mailboxes:
            if agent_id in admitted and number[agent_id] == admitted[agent_id].most:
                continue
            number[agent_id] += 1
            chosen.append((agent_id, request_id, epoch, agent_id in begin, number[agent_id]))
            begin.discard(agent_id)
        else:
            busy.add(agent_id)
    for agent_id, its in admitted.items():
        for place, record in enumerate(its.requests or (), 1):
            chosen.append((agent_id, record.request_id, record.epoch, True, place))
        if its.again_at_ms is not None:
            again_at_ms[agent_id] = its.again_at_ms
    return chosen, again_at_ms, busy
