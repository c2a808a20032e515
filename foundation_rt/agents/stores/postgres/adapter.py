"""The operations of a ledger in PostgreSQL: each one transaction, of a batch of any size."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import orjson
from attrs import define, field

from ....database.errors import DatabaseError
from ....database.migrations import migrate_postgres
from ....database.postgres import (
    Listener,
    PostgresConnections,
    Query,
    Row,
    Transaction,
    read_url,
)
from ....errors import StructuredError, UsageError
from ....logs.logger import StructuredLogger
from ....shown import Shown
from ...ledger.rules import retry
from ...ledger.types import (
    MESSAGE_STATES,
    Appended,
    ClaimCompletion,
    Claimed,
    Completed,
    Due,
    Envelope,
    IncomingEnvelope,
    MessageRecord,
    MessageType,
    Outcome,
    OutgoingMessage,
    Received,
    Release,
    RequestRecord,
    RequestState,
)
from ...ledger.unit_of_work import UnitOfWork
from ...persistence import RetryDecision, StoreError
from .. import records
from . import statements
from .connections import connections_of
from .migrations import MIGRATIONS
from .outcome_writes import OutcomeWrites
from .working_set import flush, load, load_held, load_response_links

T = TypeVar("T")

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_MAX_CLOCK_DIFFERENCE_MS = 10_000
"""With a larger difference live claims would seem lapsed, and live records expired."""
_BUSY_MS = 10
"""The delay before asking again for a queue from which another process is claiming."""
_PURGE_BATCH = 5_000
"""The records deleted in one transaction: few enough for the time limit of a statement."""


@define(eq=False, repr=False)
class PostgresAACPPersistenceAdapter(Shown):
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
        logger: gets a warning when the server is set to lose what it has acknowledged.
        wall_ms: returns the time of this machine, in ms since 1970.

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

    incarnation: int = field(default=0, init=False)
    _parameters: dict[str, Any] = field(alias="url", converter=read_url)
    _schema: str = field(default="aacp", kw_only=True)
    _size: int = field(default=4, alias="connections", kw_only=True)
    _logger: StructuredLogger | None = field(default=None, kw_only=True)
    _connections: PostgresConnections | None = field(default=None, init=False)
    _loop: asyncio.AbstractEventLoop = field(init=False)  # while it is open
    _callback: Callable[[], object] | None = field(default=None, init=False)
    _listening: asyncio.Task[None] | None = field(default=None, init=False)
    _wall_ms: Callable[[], float] = field(default=lambda: time.time() * 1000, kw_only=True)
    _writes: OutcomeWrites = field(factory=OutcomeWrites, init=False)

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
        self._connections = connections_of(self._parameters, self._schema, self._size)
        try:
            await self._migrate(self._connections)
            [(self.incarnation,)] = await self._ask(statements.incarnation())
            _warn_if_unsafe(await self._ask(statements.server_settings()), self._logger)
            [(server_ms,)] = await self._ask(statements.server_time())
            _check_clock(int(self._wall_ms() - server_ms))
        except BaseException:
            await self.close()
            raise
        self._listen()

    async def close(self) -> None:
        """See `AACPPersistenceAdapter`."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()

    def on_change(self, callback: Callable[[], object]) -> None:
        """See `AACPPersistenceAdapter`; told by NOTIFY."""
        self._callback = callback
        self._listen()

    def _listen(self) -> None:
        if self._callback is not None and self._connections is not None and not self._listening:
            callback = self._callback
            channel = f'"{self._schema}"'
            listener = Listener(self._connections, channel, lambda _: callback())
            self._listening = self._loop.create_task(listener.run())

    async def _migrate(self, connections: PostgresConnections) -> None:
        try:
            await migrate_postgres(
                connections, MIGRATIONS, application="foundation-rt aacp", verify=False
            )
        except DatabaseError as error:
            raise StoreError(str(error)) from None

    async def _transact(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        if self._connections is None:
            raise StoreError("the ledger is not open")
        try:
            return await self._connections.transact(work)
        except DatabaseError as error:
            raise StoreError(str(error)) from None

    async def _ask(self, *queries: Query, then: Sequence[Query] = ()) -> list[Row]:
        """Execute queries in one transaction; return the rows of the last query."""

        async def work(transaction: Transaction) -> list[Row]:
            return (await transaction.commit(*queries, then=then))[-1]

        return await self._transact(work)

    @property
    def _news(self) -> tuple[Query]:
        """The query that notifies other processes, once for a batch and after its commit.

        Within the transaction it would keep all others that notify from committing until this one
        is on disk.
        """
        return (statements.notify(self._schema),)

    # -- messages and requests ----------------------------------------------------------------

    async def append(self, messages: Sequence[OutgoingMessage], now_ms: int) -> list[Appended]:
        """See `AACPPersistenceAdapter`."""
        if not messages:
            return []

        async def work(transaction: Transaction) -> list[Appended]:
            unit = await load(
                transaction,
                self.incarnation,
                links=[(each.source_agent_id, each.target_agent_id) for each in messages],
                agents=[each.target_agent_id for each in messages if each.local],
                request_ids=[each.key for each in messages],
                message_ids=[
                    each.message_id
                    for each in messages
                    if each.request_id is None or not each.local
                ],
            )
            await load_held(transaction, unit, unit.releases_here(messages))
            appended = [unit.append(outgoing) for outgoing in messages]
            await flush(transaction, unit, self._news if any(d.local for d in messages) else ())
            return appended

        return await self._transact(work)

    async def receive(
        self, arrivals: Sequence[IncomingEnvelope], now_ms: int, ttl_ms: int
    ) -> Received:
        """See `AACPPersistenceAdapter`."""
        envelopes = [incoming.envelope for incoming in arrivals]
        numbered = [each for each in envelopes if each.seq]
        there = [(each.source_agent_id, each.target_agent_id) for each in envelopes]
        # The other direction: for acknowledgements, and for answers that are known already.
        links = [*there, *((target, source) for source, target in there)]
        responses = [each for each in numbered if each.message_type is MessageType.RESPONSE]
        others = [each for each in numbered if each.message_type is not MessageType.RESPONSE]

        async def work(transaction: Transaction) -> Received:
            unit = await load(
                transaction,
                self.incarnation,
                links,
                # Of RESPONSEs too: one may fill the gap for which a request waits.
                agents=[each.target_agent_id for each in numbered],
                request_ids=[each.request_id or each.message_id for each in others],
                sent=[each.request_id or "" for each in responses],
            )
            await load_held(transaction, unit, unit.releases(numbered))
            received = unit.receive(arrivals, now_ms, ttl_ms)
            news = self._news if received.ready or received.finished else ()
            received.acknowledged = await flush(transaction, unit, news)
            return received

        return await self._transact(work)

    async def claim(
        self,
        wanted: Mapping[str, int],
        owner: str,
        now_ms: int,
        lease_until_ms: int,
        idle: Collection[str] = (),
    ) -> Claimed:
        """See `AACPPersistenceAdapter`.

        A claimer locks the mailbox of the agent until its claims are committed, so that the next
        claimer sees them.
        """

        async def work(transaction: Transaction) -> Claimed:
            mailboxes, heads = await transaction.ask(
                statements.lock_mailboxes(wanted, owner, now_ms),
                statements.heads(wanted, owner, now_ms),
            )
            chosen, next_at_ms = _choose(heads, {agent for (agent,) in mailboxes}, now_ms, idle)
            if not chosen:
                await transaction.commit()
                return Claimed([], next_at_ms)
            [rows] = await transaction.commit(
                statements.claim(chosen, owner, now_ms, lease_until_ms)
            )
            claims = {row[0]: statements.claim_of(row) for row in rows}
            return Claimed([claims[request_id] for request_id, _, _ in chosen], next_at_ms)

        return await self._transact(work)

    async def complete(
        self, completions: Sequence[ClaimCompletion], now_ms: int
    ) -> list[Completed]:
        """See `AACPPersistenceAdapter`.

        `ClaimCompletion.in_transaction` is called with a `psycopg.AsyncConnection` in a
        transaction. It may use savepoints (``connection.transaction()``), and may neither commit
        nor roll back.
        """
        if not completions:
            return []
        request_ids = [each.request_id for each in completions]

        async def work(transaction: Transaction) -> list[Completed]:
            [rows] = await transaction.ask(statements.lock_claims(request_ids))
            unit = UnitOfWork(
                self.incarnation, requests={row[0]: records.request_of(row) for row in rows}
            )
            if any(each.in_transaction is not None for each in completions):
                await transaction.plain()
            completed: list[Completed] = []
            taken: list[tuple[int, ClaimCompletion, RequestRecord]] = []
            for completion in completions:
                answer = unit.refuse(completion)
                if answer is None:
                    failure = await self._writes.perform(transaction.connection, completion)
                    if failure is not None:
                        answer = Completed(None, None, failure)
                    else:
                        record = unit.finish(completion, now_ms)
                        taken.append((len(completed), completion, record))
                        answer = Completed(record, None)
                completed.append(answer)
            await load_response_links(transaction, unit)
            for place, completion, record in taken:
                completed[place] = unit.answer(record, completion, now_ms)
            await flush(transaction, unit, self._news if taken else ())
            return completed

        completed = await self._transact(work)
        self._writes.forget(request_ids)
        return completed

    async def renew(self, claims: Sequence[tuple[str, int]], lease_until_ms: int) -> list[bool]:
        """See `AACPPersistenceAdapter`."""
        held = set(await self._ask(statements.renew(claims, lease_until_ms)))
        return [claim in held for claim in claims]

    async def release(self, releases: Sequence[Release]) -> None:
        """See `AACPPersistenceAdapter`."""
        # Of several for one claim the first counts: after it the claim is no longer held.
        firsts = {(each.request_id, each.epoch): each for each in reversed(releases)}
        await self._ask(statements.release(list(firsts.values())), then=self._news)

    async def take_due(self, now_ms: int, limit: int, decide: RetryDecision) -> Due:
        """See `AACPPersistenceAdapter`; processes that ask at once get different messages."""

        async def work(transaction: Transaction) -> Due:
            rows, [(next_at_ms,)] = await transaction.ask(
                statements.lock_due(now_ms, limit), statements.next_due()
            )
            due = Due([], [], next_at_ms)
            if not rows:
                await transaction.commit()
                return due
            for *row, low_watermark in rows:
                retry(records.message_of(row), low_watermark, now_ms, decide, due)
            _, [(due.next_at_ms,)] = await transaction.commit(
                statements.plan(due.messages), statements.next_due()
            )
            return due

        return await self._transact(work)

    async def reschedule(
        self, message_id: str, at_ms: int, *, give_up: bool = False
    ) -> MessageRecord | None:
        """See `AACPPersistenceAdapter`."""
        rows = await self._ask(statements.reschedule(message_id, at_ms, give_up))
        return records.message_of(rows[0]) if rows else None

    # -- records ------------------------------------------------------------------------------

    async def put_request_record(self, request_id: str, record: RequestRecord) -> None:
        """See `AACPPersistenceAdapter`."""
        await self._ask(statements.put_request(record))

    async def put_message_record(self, message_id: str, record: MessageRecord) -> None:
        """See `AACPPersistenceAdapter`."""
        link = (record.source_agent_id, record.target_agent_id)

        async def work(transaction: Transaction) -> None:
            unit = await load(transaction, self.incarnation, [link], message_ids=[message_id])
            unit.put_message(record)
            await flush(transaction, unit)

        await self._transact(work)

    async def get_request_record(self, request_id: str) -> RequestRecord | None:
        """See `AACPPersistenceAdapter`."""
        found = await self.get_request_records([request_id])
        return found[0] if found else None

    async def get_request_records(self, request_ids: Sequence[str]) -> list[RequestRecord]:
        """See `AACPPersistenceAdapter`."""
        return list(map(records.request_of, await self._ask(statements.requests(request_ids))))

    async def get_message_record(self, message_id: str) -> MessageRecord | None:
        """See `AACPPersistenceAdapter`."""
        rows = await self._ask(statements.messages([message_id]))
        return records.message_of(rows[0]) if rows else None

    async def mark_completed(
        self, request_id: str, result: bytes | None, now_ms: int, completion_ref: str | None = None
    ) -> bool:
        """See `AACPPersistenceAdapter`."""
        return await self._mark(
            request_id, RequestState.COMPLETED, result, None, completion_ref, now_ms
        )

    async def mark_failed(self, request_id: str, error: StructuredError, now_ms: int) -> bool:
        """See `AACPPersistenceAdapter`."""
        encoded = orjson.dumps(error.to_wire())
        return await self._mark(request_id, RequestState.FAILED, None, encoded, None, now_ms)

    async def _mark(
        self,
        request_id: str,
        state: RequestState,
        result: bytes | None,
        error: bytes | None,
        completion_ref: str | None,
        now_ms: int,
    ) -> bool:
        queries = statements.mark(request_id, state, result, error, completion_ref, now_ms)
        return await self._ask(*queries, then=self._news) == [(state,)]

    # -- numbers ------------------------------------------------------------------------------

    async def get_last_sequence(self, source_agent_id: str, target_agent_id: str) -> int:
        """See `AACPPersistenceAdapter`."""
        rows = await self._ask(statements.last_seq((source_agent_id, target_agent_id)))
        return int(rows[0][0]) if rows else 0

    async def update_last_sequence(
        self, source_agent_id: str, target_agent_id: str, seq: int
    ) -> None:
        """See `AACPPersistenceAdapter`."""
        link = (source_agent_id, target_agent_id)

        async def work(transaction: Transaction) -> None:
            unit = await load(transaction, self.incarnation, [link])
            unit.advance(link, seq)
            await flush(transaction, unit)

        await self._transact(work)

    # -- recovery and retention ---------------------------------------------------------------

    async def get_unacknowledged_messages(
        self, source_agent_id: str, target_agent_id: str
    ) -> list[Envelope]:
        """See `AACPPersistenceAdapter`."""
        rows = await self._ask(statements.outbox((source_agent_id, target_agent_id)))
        messages = map(records.message_of, rows)
        return [
            message.envelope(message.message_id, None, self.incarnation) for message in messages
        ]

    async def list_pending_requests(self, older_than_ms: int | None = None) -> list[RequestRecord]:
        """See `AACPPersistenceAdapter`."""
        return list(map(records.request_of, await self._ask(statements.pending(older_than_ms))))

    async def list_messages_in_state(
        self, outcome: Outcome, older_than_ms: int | None = None
    ) -> list[MessageRecord]:
        """See `AACPPersistenceAdapter`."""
        query = statements.in_state(MESSAGE_STATES[outcome], older_than_ms)
        return list(map(records.message_of, await self._ask(query)))

    async def purge_expired(self, now_ms: int) -> int:
        """See `AACPPersistenceAdapter`; several transactions, so that none holds locks for long."""
        purged = 0
        for query in statements.purges(now_ms, _PURGE_BATCH):
            batch = _PURGE_BATCH
            while batch == _PURGE_BATCH:
                batch = len(await self._ask(query))
                purged += batch
        return purged


def _warn_if_unsafe(settings: Sequence[Row], logger: StructuredLogger | None) -> None:
    unsafe = [name for name, setting in settings if setting == "off"]
    if unsafe and logger is not None:
        logger.warn(
            "PostgreSQL may lose what it has acknowledged: these of its settings are off",
            {"settings": unsafe},
        )


def _check_clock(off_ms: int) -> None:
    """Raise `StoreError` if the clock is wrong, by which this process compares leases."""
    if abs(off_ms) > _MAX_CLOCK_DIFFERENCE_MS:
        raise StoreError(
            f"the clock of this machine is {off_ms} ms ahead of the database server's:"
            " put them right"
        )


def _choose(
    heads: Sequence[Row], mailboxes: set[str], now_ms: int, idle: Collection[str]
) -> tuple[list[statements.Choice], int | None]:
    """Return the requests to claim, in order, and the time when it is useful to ask again."""
    chosen: list[statements.Choice] = []
    begin = set(idle)
    hints = []
    for request_id, agent_id, epoch, stops, until_ms in heads:
        if stops:
            hints.append(until_ms)
        elif agent_id in mailboxes:
            chosen.append((request_id, epoch, agent_id in begin))
            begin.discard(agent_id)
        else:
            hints.append(now_ms + _BUSY_MS)
    return chosen, min(hints, default=None)
