"""What a ledger is asked, in SQL: a batch is read, decided upon, and written, each in one go.

An operation gets a connection in a transaction and leaves the transaction to its caller. What is
decided about requests and numbers is decided by the plain functions of `ledger`, `session_manager`
and `records` on values that were read; SQL says which values those are. The one decision that SQL
takes itself is what a claimer passes over: an agent with a thousand claims under way would else
have them all read for every new one.

Batches are read through ``json_each(?)``: one statement whatever their size (1.5 us an id, against
4 us for a statement each), written by `executemany`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import orjson
from attrs import define, evolve, field

from ....errors import StructuredError
from ...ledger import (
    Claimability,
    claimability,
    is_repeated,
    judge,
    may_complete,
    may_settle,
    read_response,
    response_payload,
)
from ...persistence import RetryDecision
from ...session_manager import Arrival as SeqArrival
from ...session_manager import LinkState, acknowledge, allocate, arrive, arrive_here
from ...types import (
    MESSAGE_STATES,
    VOID_PAYLOAD,
    Appended,
    Arrival,
    Claimed,
    Completed,
    Completion,
    Draft,
    Due,
    Envelope,
    Link,
    MessageRecord,
    MessageState,
    MessageType,
    Outcome,
    Received,
    Release,
    RequestRecord,
    RequestState,
    Verdict,
)
from .. import records

Row = tuple[Any, ...]

_REQUEST = ", ".join(records.REQUEST_COLUMNS)
_MESSAGE = ", ".join(records.MESSAGE_COLUMNS)


def _insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


_INSERT_REQUEST = _insert("requests", records.REQUEST_COLUMNS)
_INSERT_MESSAGE = _insert("messages", records.MESSAGE_COLUMNS)
# Two updates, each of what it changes: an outcome written with seq and position, which are in
# indexes, costs 4.8 us instead of 4.0.
_ENTER = "UPDATE requests SET state = ?, seq = ?, by_message = ?, position = ? WHERE request_id = ?"
_FINISH = (
    "UPDATE requests SET state = ?, owner = NULL, lease_until_ms = NULL, result = ?, error = ?,"
    " finished_at_ms = ? WHERE request_id = ?"
)
_IS_QUEUED = "position IS NOT NULL AND finished_at_ms IS NULL"
_IS_OUTBOUND = "state IN ('PENDING', 'TOMBSTONE')"
_FLOOR = (
    "(SELECT acked + 1 FROM links AS l WHERE l.source_agent_id = m.source_agent_id"
    " AND l.target_agent_id = m.target_agent_id)"
)


# -- rows and records -----------------------------------------------------------------------------


def _maker_of_rows(columns: Sequence[str]) -> Callable[[Any], Row]:
    """A function from a record to the values of its columns.

    A StrEnum is a string to SQLite only by way of an adapter that is looked up for every value;
    its `_value_` is one (0.3 us a row less).
    """
    get: Callable[[Any], Row] = attrgetter(
        *(f"{name}._value_" if name in _ENUMS else name for name in columns)
    )
    return get


_ENUMS = {"message_type", "state"}

_request_row = _maker_of_rows(records.REQUEST_COLUMNS)
_message_row = _maker_of_rows(records.MESSAGE_COLUMNS)
_entered_row = attrgetter("state._value_", "seq", "by_message", "position", "request_id")
_finished_row = attrgetter("state._value_", "result", "error", "finished_at_ms", "request_id")


def _ids(ids: Iterable[str]) -> str:
    """Ids for ``json_each``."""
    return orjson.dumps(list(ids)).decode()


def _requests(connection: sqlite3.Connection, ids: Iterable[str]) -> dict[str, RequestRecord]:
    """The requests of these ids that are there."""
    rows = connection.execute(
        f"SELECT {_REQUEST} FROM requests WHERE request_id IN (SELECT value FROM json_each(?))",
        (_ids(ids),),
    )
    return {row[0]: records.request_of(row) for row in rows}


# -- a batch under way ----------------------------------------------------------------------------


@define(eq=False, repr=False)
class _Batch:
    """What a batch has read and is going to write: records are changed in place, then flushed."""

    connection: sqlite3.Connection
    requests: dict[str, RequestRecord]
    links: dict[Link, LinkState] = field(factory=dict)
    _position: int | None = None
    _new_requests: dict[str, RequestRecord] = field(factory=dict)
    _entered: dict[str, RequestRecord] = field(factory=dict)
    _finished: dict[str, RequestRecord] = field(factory=dict)
    _new_messages: list[MessageRecord] = field(factory=list)

    def link(self, link: Link) -> LinkState:
        """Both ends of a link."""
        state = self.links.get(link)
        if state is None:
            self.links[link] = state = _read_link(self.connection, link) or LinkState()
        return state

    def add(self, record: RequestRecord) -> None:
        """Enter a request that is new."""
        self.requests[record.request_id] = self._new_requests[record.request_id] = record

    def finish(self, record: RequestRecord) -> None:
        """Write the outcome of a request that was read."""
        self._finished[record.request_id] = record

    def post(self, message: MessageRecord) -> None:
        """Enter a message that is new."""
        self._new_messages.append(message)

    def respond(
        self,
        request: Envelope | RequestRecord,
        payload: bytes,
        expires_at_ms: int,
        reply: Arrival | Completion,
        now_ms: int,
    ) -> MessageRecord:
        """Enter the RESPONSE to a request that came from another ledger."""
        state = self.link((request.target_agent_id, request.source_agent_id))
        seq = allocate(state)
        message = records.response_to(request, payload, expires_at_ms, reply, seq, now_ms)
        self.post(message)
        message.floor = state.floor
        return message

    def enter(self, record: RequestRecord, state: LinkState) -> None:
        """Queue a request whose number was noted, or hold it until what comes before is there."""
        if record.request_id in self.requests and record.request_id not in self._new_requests:
            self._entered[record.request_id] = record
        if record.seq > state.contiguous:
            record.state = RequestState.HELD
        else:
            self._queue(record)

    def _queue(self, record: RequestRecord) -> None:
        record.state, record.position = RequestState.RECEIVED, self._next_position()

    def release_held(self, link: Link, up_to: int | None) -> bool:
        """Queue what waited for a gap that is filled now, in the order of its numbers.

        Args:
            up_to: nothing is missing up to this number; None: none will ever come of those missing.
        """
        self._flush_records()
        ids = self.connection.execute(
            "SELECT request_id FROM requests WHERE state = 'HELD'"
            " AND source_agent_id = ? AND target_agent_id = ? AND seq <= ifnull(?, seq)"
            " ORDER BY seq",
            (*link, up_to),
        ).fetchall()
        found = _requests(self.connection, (request_id for (request_id,) in ids))
        for (request_id,) in ids:
            record = self.requests[request_id] = self._entered[request_id] = found[request_id]
            self._queue(record)
        return bool(ids)

    def _next_position(self) -> int:
        if self._position is None:
            [self._position] = self.connection.execute("SELECT last FROM positions").fetchone()
        self._position += 1
        return self._position

    def flush(self) -> None:
        """Write everything."""
        self._flush_records()
        self.connection.executemany(
            "INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (source_agent_id, target_agent_id) DO UPDATE SET"
            " last_seq = excluded.last_seq, acked = excluded.acked,"
            " contiguous = excluded.contiguous, ahead = excluded.ahead, series = excluded.series",
            [_link_row(link, state) for link, state in self.links.items()],
        )
        if self._position is not None:
            self.connection.execute("UPDATE positions SET last = ?", (self._position,))

    def _flush_records(self) -> None:
        if self._new_requests:
            rows = map(_request_row, self._new_requests.values())
            self.connection.executemany(_INSERT_REQUEST, rows)
            self._new_requests.clear()
        if self._entered:
            self.connection.executemany(_ENTER, map(_entered_row, self._entered.values()))
            self._entered.clear()
        if self._finished:
            self.connection.executemany(_FINISH, map(_finished_row, self._finished.values()))
            self._finished.clear()
        if self._new_messages:
            self.connection.executemany(_INSERT_MESSAGE, map(_message_row, self._new_messages))
            self._new_messages.clear()


def _read_link(connection: sqlite3.Connection, link: Link) -> LinkState | None:
    row = connection.execute(
        "SELECT last_seq, acked, contiguous, ahead, series FROM links"
        " WHERE source_agent_id = ? AND target_agent_id = ?",
        link,
    ).fetchone()
    if row is None:
        return None
    last_seq, acked, contiguous, ahead, series = row
    return LinkState(last_seq, acked, contiguous, set(orjson.loads(ahead)), series)


def _link_row(link: Link, state: LinkState) -> Row:
    ahead = orjson.dumps(sorted(state.ahead)).decode()
    return (*link, state.last_seq, state.acked, state.contiguous, ahead, state.series)


# -- append ---------------------------------------------------------------------------------------


def append(connection: sqlite3.Connection, drafts: Sequence[Draft], own: int) -> list[Appended]:
    """See `AACPPersistenceAdapter`.

    Args:
        own: the series of this ledger.
    """
    batch = _Batch(connection, _requests(connection, [draft.key for draft in drafts]))
    # What is executed here and has a request id has no message.
    elsewhere = [each.message_id for each in drafts if not each.local or each.request_id is None]
    sent = dict(
        connection.execute(
            "SELECT message_id, seq FROM messages"
            " WHERE message_id IN (SELECT value FROM json_each(?))",
            (_ids(elsewhere),),
        ).fetchall()
    )
    appended = [_append(batch, draft, sent, own) for draft in drafts]
    batch.flush()
    return appended


def _append(batch: _Batch, draft: Draft, sent: dict[str, int], own: int) -> Appended:
    existing = batch.requests.get(draft.key)
    verdict = judge(existing, draft.digest)
    if existing is not None:
        seq = existing.seq if verdict is Verdict.DUPLICATE else 0
        return Appended(verdict, seq, evolve(existing))
    if draft.message_id in sent:  # an event to another ledger, entered before
        return Appended(Verdict.DUPLICATE, sent[draft.message_id])
    link = (draft.source_agent_id, draft.target_agent_id)
    state = batch.link(link)
    seq = allocate(state)
    if draft.local:
        _append_local(batch, draft, link, seq, own)
        return Appended(Verdict.NEW, seq)
    if draft.message_type is MessageType.REQUEST:
        batch.add(records.drafted_request(draft, seq))
    message = records.drafted_message(draft, seq)
    sent[draft.message_id] = seq
    batch.post(message)
    message.floor = state.floor
    return Appended(Verdict.NEW, seq, None, message)


def _append_local(batch: _Batch, draft: Draft, link: Link, seq: int, own: int) -> None:
    """Enter what is sent and received in one."""
    state = batch.link(link)
    series, before, waiting = state.series, state.contiguous, state.ahead
    arrive_here(state, seq, own)
    if waiting and state.series != series:
        batch.release_held(link, None)
    record = records.drafted_request(draft, seq)
    batch.enter(record, state)
    batch.add(record)
    if state.contiguous > before + 1:  # as in `_Reception.take`
        batch.release_held(link, state.contiguous)


# -- receive --------------------------------------------------------------------------------------


def receive(
    connection: sqlite3.Connection, arrivals: Sequence[Arrival], own: int, now_ms: int, ttl_ms: int
) -> Received:
    """See `AACPPersistenceAdapter`.

    Args:
        own: the series of this ledger.
    """
    keys = (each.envelope.request_id or each.envelope.message_id for each in arrivals)
    reception = _Reception(_Batch(connection, _requests(connection, keys)), own, now_ms, ttl_ms)
    for arrival in arrivals:
        reception.take(arrival)
    reception.batch.flush()
    reception.settle_acknowledged()
    return reception.received


@define(eq=False, repr=False)
class _Reception:
    """A batch of arrivals on its way into the ledger."""

    batch: _Batch
    own: int
    now_ms: int
    ttl_ms: int
    received: Received = field(factory=lambda: Received({}, [], [], [], [], 0, False))
    # By link: the first number that was not acknowledged before, and the one behind the last.
    _acknowledged: dict[Link, tuple[int, int]] = field(factory=dict)

    def take(self, arrival: Arrival) -> None:
        """Take note of one envelope: its ack, its number, itself."""
        envelope, received = arrival.envelope, self.received
        link = (envelope.source_agent_id, envelope.target_agent_id)
        if envelope.ack is not None:
            self._acknowledge((link[1], link[0]), envelope.ack)
        if envelope.seq == 0:
            return
        state = self.batch.link(link)
        series, before, waiting = state.series, state.contiguous, state.ahead
        ours = envelope.series == self.own
        found = arrive(state, envelope.seq, envelope.series, envelope.floor, ours=ours)
        if found is SeqArrival.OUTDATED:
            received.refused += 1
            received.outdated.append(envelope)
            return
        if waiting and state.series != series:
            received.ready |= self.batch.release_held(link, None)
        received.acks[link], received.series[link] = state.contiguous, state.series
        if found is SeqArrival.BEYOND:
            received.refused += 1
        elif found is SeqArrival.NEW and not envelope.tombstone:
            passed = min(state.contiguous, envelope.seq - 1)
            if waiting and passed > before:  # its floor filled a gap below it: that comes first
                received.ready |= self.batch.release_held(link, passed)
            received.accepted.append(envelope)
            self._take_in(arrival, state)
        if state.contiguous > before + 1:  # by one, nothing that was held is passed
            received.ready |= self.batch.release_held(link, state.contiguous)

    def _take_in(self, arrival: Arrival, state: LinkState) -> None:
        """A message that was not here before, whose number has just been noted."""
        envelope = arrival.envelope
        if envelope.message_type is MessageType.RESPONSE:
            self._settle(envelope)
            return
        existing = self.batch.requests.get(envelope.request_id or envelope.message_id)
        verdict = judge(existing, arrival.digest)
        if existing is None:
            record = records.received_request(arrival, self.now_ms, self.ttl_ms)
            self._enter(record, arrival, state)
            self.batch.add(record)
        elif verdict is Verdict.DUPLICATE and existing.state is RequestState.SENT:
            self._enter(existing, arrival, state)
        elif envelope.message_type is MessageType.REQUEST:
            self._answer_again(arrival, existing, verdict)

    def _enter(self, record: RequestRecord, arrival: Arrival, state: LinkState) -> None:
        envelope = arrival.envelope
        record.seq = envelope.seq
        record.by_message = envelope.message_type is MessageType.REQUEST
        self.batch.enter(record, state)
        self.received.ready |= record.state is RequestState.RECEIVED

    def _settle(self, response: Envelope) -> None:
        """The outcome of a request that was made here."""
        record = self.batch.requests.get(response.request_id or "")
        if record is not None and may_settle(record, response):
            record.state, record.result, record.error = read_response(response.payload)
            record.finished_at_ms = self.now_ms
            self.batch.finish(record)
            self.received.finished.append(record)

    def _answer_again(self, arrival: Arrival, existing: RequestRecord, verdict: Verdict) -> None:
        """A request whose id is known, under a number that is not: asked again, or another's."""
        payload = records.answer_again(existing, verdict)
        if payload is not None:
            self.received.responses.append(
                self.batch.respond(
                    arrival.envelope, payload, existing.expires_at_ms, arrival, self.now_ms
                )
            )

    def _acknowledge(self, link: Link, ack: int) -> None:
        settled = acknowledge(self.batch.link(link), ack)
        if settled:
            first, _ = self._acknowledged.get(link, (settled.start, 0))
            self._acknowledged[link] = (first, settled.stop)

    def settle_acknowledged(self) -> None:
        """Write what the acks of the batch have settled, once for each link."""
        for link, (first, end) in self._acknowledged.items():
            where = (
                f"WHERE {_IS_OUTBOUND} AND source_agent_id = ? AND target_agent_id = ?"
                " AND seq >= ? AND seq < ?"
            )
            values = (*link, first, end)
            connection = self.batch.connection
            # What is void is gone when its number has passed (AACP-14).
            connection.execute(f"DELETE FROM messages {where} AND state = 'TOMBSTONE'", values)
            rows = connection.execute(
                f"SELECT {_MESSAGE} FROM messages {where} ORDER BY seq", values
            ).fetchall()
            connection.execute(
                "UPDATE messages SET state = 'ACKNOWLEDGED', payload = ?,"
                f" next_attempt_at_ms = NULL {where}",
                (VOID_PAYLOAD, *values),
            )
            for message in map(records.message_of, rows):
                message.state = MessageState.ACKNOWLEDGED
                message.payload, message.next_attempt_at_ms = VOID_PAYLOAD, None
                self.received.acknowledged.append(message)


# -- execution ------------------------------------------------------------------------------------


def claim(
    connection: sqlite3.Connection,
    wanted: Mapping[str, int],
    owner: str,
    now_ms: int,
    lease_until_ms: int,
    idle: Collection[str],
) -> Claimed:
    """See `AACPPersistenceAdapter`."""
    claimed = Claimed([], None)
    for agent_id, most in wanted.items():
        # What `claimability` passes over is left out here: see the head of the module.
        rows = connection.execute(
            f"SELECT {_REQUEST} FROM requests WHERE {_IS_QUEUED} AND target_agent_id = ?"
            " AND expires_at_ms > ?"
            " AND NOT (state = 'CLAIMED' AND owner = ? AND lease_until_ms > ?)"
            " ORDER BY position LIMIT ?",
            (agent_id, now_ms, owner, now_ms, most),
        )
        positions: list[int | None] = []
        first = None  # the place of what is begun at once
        for record in map(records.request_of, rows):
            if claimability(record, owner, now_ms) is Claimability.STOP:
                records.note_stop(claimed, record)
                break
            begins = not positions and agent_id in idle
            if begins:
                first = record.position
            positions.append(record.position)
            claimed.claims.append(records.claim(record, owner, lease_until_ms, begins))
        rows.close()
        if positions:
            connection.execute(
                "UPDATE requests SET state = 'CLAIMED', epoch = epoch + 1, owner = ?,"
                " executions = executions + (position IS ?),"
                " lease_until_ms = ?, not_before_ms = NULL WHERE finished_at_ms IS NULL"
                " AND target_agent_id = ? AND position IN (SELECT value FROM json_each(?))",
                (owner, first, lease_until_ms, agent_id, orjson.dumps(positions).decode()),
            )
    return claimed


def complete(
    connection: sqlite3.Connection, completions: Sequence[Completion], now_ms: int
) -> list[Completed]:
    """See `AACPPersistenceAdapter`."""
    found = _requests(connection, [completion.request_id for completion in completions])
    batch = _Batch(connection, found)
    completed = [_complete(batch, completion, now_ms) for completion in completions]
    batch.flush()
    return completed


def _complete(batch: _Batch, completion: Completion, now_ms: int) -> Completed:
    record = batch.requests.get(completion.request_id)
    if is_repeated(record, completion):
        return Completed(record, None)
    if record is None or not may_complete(record, completion):
        return Completed(None, None)
    if completion.within is not None:
        return records.not_within()
    records.finish(record, completion, now_ms)
    batch.finish(record)
    if not record.by_message:
        return Completed(record, None)
    payload = response_payload(record.state, record.result, record.error)
    response = batch.respond(record, payload, record.expires_at_ms, completion, now_ms)
    return Completed(record, response)


def renew(
    connection: sqlite3.Connection, claims: Sequence[tuple[str, int]], lease_until_ms: int
) -> list[bool]:
    """See `AACPPersistenceAdapter`."""
    return [
        connection.execute(
            "UPDATE requests SET lease_until_ms = ?"
            " WHERE request_id = ? AND epoch = ? AND state = 'CLAIMED'",
            (lease_until_ms, request_id, epoch),
        ).rowcount
        == 1
        for request_id, epoch in claims
    ]


_RELEASE = "UPDATE requests SET state = 'RECEIVED', owner = NULL, lease_until_ms = NULL"


def release(connection: sqlite3.Connection, releases: Sequence[Release]) -> None:
    """See `AACPPersistenceAdapter`."""
    connection.executemany(
        f"{_RELEASE}, not_before_ms = ?, executions = ?"
        " WHERE request_id = ? AND epoch = ? AND state = 'CLAIMED'",
        [(each.not_before_ms, each.executions, each.request_id, each.epoch) for each in releases],
    )


def release_all(connection: sqlite3.Connection) -> int:
    """Give back the claims of owners that are gone, all of them; return how many (AACP-32)."""
    return connection.execute(f"{_RELEASE} WHERE {_IS_QUEUED} AND state = 'CLAIMED'").rowcount


# -- retransmission -------------------------------------------------------------------------------


def take_due(connection: sqlite3.Connection, now_ms: int, limit: int, decide: RetryDecision) -> Due:
    """See `AACPPersistenceAdapter`."""
    due = Due([], [], None)
    rows = connection.execute(
        f"SELECT {_MESSAGE}, {_FLOOR} FROM messages AS m WHERE next_attempt_at_ms <= ?"
        " ORDER BY next_attempt_at_ms, message_id LIMIT ?",
        (now_ms, limit),
    ).fetchall()
    for *row, floor in rows:
        records.retry(records.message_of(row), floor, now_ms, decide, due)
    connection.executemany(
        "UPDATE messages SET state = ?, payload = ?, attempts = ?, next_attempt_at_ms = ?"
        " WHERE message_id = ?",
        [
            (
                message.state._value_,
                message.payload,
                message.attempts,
                message.next_attempt_at_ms,
                message.message_id,
            )
            for message in due.messages
        ],
    )
    [due.next_at_ms] = connection.execute(
        "SELECT min(next_attempt_at_ms) FROM messages WHERE next_attempt_at_ms IS NOT NULL"
    ).fetchone()
    return due


# -- records --------------------------------------------------------------------------------------


def put_request(connection: sqlite3.Connection, record: RequestRecord) -> None:
    """See `AACPPersistenceAdapter.put_request_record`."""
    connection.execute(f"{_INSERT_REQUEST} ON CONFLICT DO NOTHING", _request_row(record))


def put_message(connection: sqlite3.Connection, record: MessageRecord) -> None:
    """See `AACPPersistenceAdapter.put_message_record`."""
    put = connection.execute(f"{_INSERT_MESSAGE} ON CONFLICT DO NOTHING", _message_row(record))
    if put.rowcount == 1:
        update_last_seq(connection, (record.source_agent_id, record.target_agent_id), record.seq)


def get_requests(connection: sqlite3.Connection, ids: Sequence[str]) -> list[RequestRecord]:
    """See `AACPPersistenceAdapter.get_request_records`."""
    return list(_requests(connection, ids).values())


def get_message(connection: sqlite3.Connection, message_id: str) -> MessageRecord | None:
    """See `AACPPersistenceAdapter.get_message_record`."""
    row = connection.execute(
        f"SELECT {_MESSAGE} FROM messages WHERE message_id = ?", (message_id,)
    ).fetchone()
    return None if row is None else records.message_of(row)


def mark_completed(
    connection: sqlite3.Connection,
    request_id: str,
    result: bytes | None,
    now_ms: int,
    completion_ref: str | None,
) -> bool:
    """See `AACPPersistenceAdapter`."""
    connection.execute(
        "UPDATE requests SET state = 'COMPLETED', result = ?, completion_ref = ?,"
        " finished_at_ms = ? WHERE request_id = ? AND state = 'SENT'",
        (result, completion_ref, now_ms, request_id),
    )
    return _state(connection, request_id) == RequestState.COMPLETED


def mark_failed(
    connection: sqlite3.Connection, request_id: str, error: StructuredError, now_ms: int
) -> bool:
    """See `AACPPersistenceAdapter`."""
    connection.execute(
        "UPDATE requests SET state = 'FAILED', error = ?, finished_at_ms = ?"
        " WHERE request_id = ? AND state = 'SENT'",
        (orjson.dumps(error.to_wire()), now_ms, request_id),
    )
    return _state(connection, request_id) == RequestState.FAILED


def _state(connection: sqlite3.Connection, request_id: str) -> str | None:
    row = connection.execute(
        "SELECT state FROM requests WHERE request_id = ?", (request_id,)
    ).fetchone()
    return None if row is None else row[0]


# -- numbers --------------------------------------------------------------------------------------


def get_series(connection: sqlite3.Connection) -> int:
    """See `AACPPersistenceAdapter.series`."""
    [series] = connection.execute("SELECT series FROM ledger").fetchone()
    return int(series)


def get_last_seq(connection: sqlite3.Connection, link: Link) -> int:
    """See `AACPPersistenceAdapter.get_last_sequence`."""
    state = _read_link(connection, link)
    return 0 if state is None else state.last_seq


def update_last_seq(connection: sqlite3.Connection, link: Link, seq: int) -> None:
    """See `AACPPersistenceAdapter.update_last_sequence`."""
    connection.execute(
        "INSERT INTO links VALUES (?, ?, ?, 0, 0, '[]', 0)"
        " ON CONFLICT (source_agent_id, target_agent_id) DO UPDATE SET"
        " last_seq = max(last_seq, excluded.last_seq)",
        (*link, seq),
    )


# -- recovery and retention -----------------------------------------------------------------------


def get_unacknowledged(connection: sqlite3.Connection, link: Link, own: int) -> list[Envelope]:
    """See `AACPPersistenceAdapter.get_unacknowledged_messages`."""
    rows = connection.execute(
        f"SELECT {_MESSAGE} FROM messages WHERE {_IS_OUTBOUND}"
        " AND source_agent_id = ? AND target_agent_id = ? ORDER BY seq",
        link,
    )
    messages = map(records.message_of, rows)
    return [message.envelope(message.message_id, None, own) for message in messages]


def list_pending(connection: sqlite3.Connection, older_than_ms: int | None) -> list[RequestRecord]:
    """See `AACPPersistenceAdapter.list_pending_requests`."""
    rows = connection.execute(
        f"SELECT {_REQUEST} FROM requests WHERE state NOT IN ('COMPLETED', 'FAILED')"
        " AND (?1 IS NULL OR created_at_ms < ?1) ORDER BY created_at_ms, request_id",
        (older_than_ms,),
    )
    return list(map(records.request_of, rows))


def list_messages(
    connection: sqlite3.Connection, outcome: Outcome, older_than_ms: int | None
) -> list[MessageRecord]:
    """See `AACPPersistenceAdapter.list_messages_in_state`."""
    rows = connection.execute(
        f"SELECT {_MESSAGE} FROM messages WHERE state = ?1"
        " AND (?2 IS NULL OR created_at_ms < ?2) ORDER BY created_at_ms, message_id",
        (MESSAGE_STATES[outcome]._value_, older_than_ms),
    )
    return list(map(records.message_of, rows))


def purge(connection: sqlite3.Connection, now_ms: int) -> int:
    """See `AACPPersistenceAdapter.purge_expired`."""
    statements: tuple[tuple[str, Row], ...] = (
        ("DELETE FROM requests WHERE expires_at_ms <= ?", (now_ms,)),
        ("DELETE FROM messages WHERE expires_at_ms <= ? AND state = 'ACKNOWLEDGED'", (now_ms,)),
        (
            "UPDATE messages SET state = 'TOMBSTONE', payload = ?2, next_attempt_at_ms = ?1"
            " WHERE expires_at_ms <= ?1 AND state = 'PENDING'",
            (now_ms, VOID_PAYLOAD),
        ),
    )
    return sum(connection.execute(sql, values).rowcount for sql, values in statements)
