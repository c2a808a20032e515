"""A batch under way: what it has read, and what it is going to write."""

from __future__ import annotations

import sqlite3

from attrs import define, field

from ...ledger.session_manager import LinkState, allocate
from ...ledger.types import (
    Completion,
    Envelope,
    IncomingEnvelope,
    Link,
    MessageRecord,
    RequestRecord,
    RequestState,
)
from .. import records
from .rows import (
    ENTER_REQUEST,
    FINISH_REQUEST,
    INSERT_MESSAGE,
    INSERT_REQUEST,
    entered_row,
    finished_row,
    link_row,
    message_row,
    read_link,
    read_requests,
    request_row,
)


@define(eq=False, repr=False)
class Batch:
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
            self.links[link] = state = read_link(self.connection, link) or LinkState()
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
        reply: IncomingEnvelope | Completion,
        now_ms: int,
    ) -> MessageRecord:
        """Enter the RESPONSE to a request that came from another ledger."""
        state = self.link((request.target_agent_id, request.source_agent_id))
        seq = allocate(state)
        message = records.response_to(request, payload, expires_at_ms, reply, seq, now_ms)
        self.post(message)
        message.low_watermark = state.low_watermark
        return message

    def enter(self, record: RequestRecord, state: LinkState) -> None:
        """Queue a request whose number was noted, or hold it until what comes before is there."""
        if record.request_id in self.requests and record.request_id not in self._new_requests:
            self._entered[record.request_id] = record
        if record.seq > state.received_up_to:
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
        found = read_requests(self.connection, (request_id for (request_id,) in ids))
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
            " received_up_to = excluded.received_up_to, out_of_order = excluded.out_of_order,"
            " incarnation = excluded.incarnation",
            [link_row(link, state) for link, state in self.links.items()],
        )
        if self._position is not None:
            self.connection.execute("UPDATE positions SET last = ?", (self._position,))

    def _flush_records(self) -> None:
        if self._new_requests:
            rows = map(request_row, self._new_requests.values())
            self.connection.executemany(INSERT_REQUEST, rows)
            self._new_requests.clear()
        if self._entered:
            self.connection.executemany(ENTER_REQUEST, map(entered_row, self._entered.values()))
            self._entered.clear()
        if self._finished:
            self.connection.executemany(FINISH_REQUEST, map(finished_row, self._finished.values()))
            self._finished.clear()
        if self._new_messages:
            self.connection.executemany(INSERT_MESSAGE, map(message_row, self._new_messages))
            self._new_messages.clear()
