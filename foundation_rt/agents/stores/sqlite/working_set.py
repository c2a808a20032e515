"""The rows of the tables, and units of work that are loaded from them and flushed into them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import orjson

from ...ledger.session_manager import LinkState
from ...ledger.types import (
    VOID_PAYLOAD,
    ClaimCompletion,
    Link,
    MessageRecord,
    RequestRecord,
)
from ...ledger.unit_of_work import UnitOfWork
from .. import records

Row = tuple[Any, ...]

REQUEST = ", ".join(records.REQUEST_COLUMNS)
OUTLINE = REQUEST.replace("payload", "x''")
"""Of a request that is only put into its queue or gets its outcome the payload is not read."""
MESSAGE = ", ".join(records.MESSAGE_COLUMNS)


def _insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


INSERT_REQUEST = _insert("requests", records.REQUEST_COLUMNS)
# The fields that are None in a new request are not bound, at 0.4 us each: sqlite3 looks for an
# adapter of everything but int, float, str and bytearray.
_NEW_FIELDS = tuple(
    name
    for name in records.REQUEST_FIELDS
    if name
    not in ("owner", "lease_until_ms", "result", "error", "completion_ref", "finished_at_ms")
)
ADD_REQUEST = _insert("requests", [records.COLUMNS.get(each, each) for each in _NEW_FIELDS])
INSERT_MESSAGE = _insert("messages", records.MESSAGE_COLUMNS)
# Two updates, each of the columns that it changes: an outcome written with seq and position, which
# are in indexes, costs 4.8 us instead of 4.0.
ENTER_REQUEST = (
    "UPDATE requests SET state = ?, seq = ?, by_message = ?, position = ?, not_before_ms = ?"
    " WHERE request_id = ?"
)
FINISH_REQUEST = (
    "UPDATE requests SET state = ?, owner = NULL, lease_until_ms = NULL, result = ?, error = ?,"
    " finished_at_ms = ? WHERE request_id = ?"
)
WRITE_LINK = (
    "INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (source_agent_id, target_agent_id) DO UPDATE SET"
    " last_seq = excluded.last_seq, acked = excluded.acked,"
    " contiguous = excluded.contiguous, ahead = excluded.ahead, series = excluded.series"
)
IS_QUEUED = "position IS NOT NULL AND finished_at_ms IS NULL"
IS_OUTBOUND = "state IN ('PENDING', 'TOMBSTONE')"
LOW_WATERMARK = (
    "(SELECT acked + 1 FROM links AS l WHERE l.source_agent_id = m.source_agent_id"
    " AND l.target_agent_id = m.target_agent_id)"
)


def _maker_of_rows(columns: Sequence[str]) -> Callable[[Any], Row]:
    """Return a function from a record to the values of its columns.

    A StrEnum is a string to SQLite only by way of an adapter that is looked up for every value;
    its `_value_` is one (0.3 us a row less).
    """
    get: Callable[[Any], Row] = attrgetter(
        *(f"{name}._value_" if name in _ENUMS else name for name in columns)
    )
    return get


_ENUMS = {"message_type", "state"}

request_row = _maker_of_rows(records.REQUEST_FIELDS)
message_row = _maker_of_rows(records.MESSAGE_COLUMNS)
added_row = _maker_of_rows(_NEW_FIELDS)
entered_row = attrgetter(
    "state._value_", "seq", "needs_response", "position", "not_before_ms", "request_id"
)
finished_row = attrgetter("state._value_", "result", "error", "finished_at_ms", "request_id")
planned_row = attrgetter("state._value_", "payload", "attempts", "next_attempt_at_ms", "message_id")


def ids_of(ids: Iterable[str]) -> str:
    """Return ids as ``json_each`` takes them."""
    return orjson.dumps(list(ids)).decode()


def read_requests(
    connection: sqlite3.Connection, ids: Iterable[str], columns: str = REQUEST
) -> dict[str, RequestRecord]:
    """Return the requests of these ids that are there."""
    rows = connection.execute(
        f"SELECT {columns} FROM requests WHERE request_id IN (SELECT value FROM json_each(?))",
        (ids_of(ids),),
    )
    return {row[0]: records.request_of(row) for row in rows}


def link_row(link: Link, state: LinkState) -> Row:
    """Return the values of the columns of a link."""
    out_of_order = orjson.dumps(sorted(state.out_of_order)).decode()
    return (
        *link,
        state.last_seq,
        state.acked,
        state.received_up_to,
        out_of_order,
        state.incarnation,
    )


def load(
    connection: sqlite3.Connection,
    links: Iterable[Link] = (),
    agents: Iterable[str] = (),
    request_ids: Iterable[str] = (),
    message_ids: Iterable[str] = (),
) -> UnitOfWork:
    """Read those of the links, queues, requests and messages that are there."""
    return UnitOfWork(
        read_names(connection)[0],
        links=_read_links(connection, links),
        queues=read_queues(connection, set(agents)),
        requests=read_requests(connection, request_ids),
        messages=read_messages_by_id(connection, list(message_ids)),
    )


def load_to_finish(
    connection: sqlite3.Connection, ends: Iterable[ClaimCompletion], columns: str = REQUEST
) -> UnitOfWork:
    """Read the requests that get outcomes, and the links of their RESPONSEs."""
    requests = read_requests(connection, [each.request_id for each in ends], columns)
    answered = [record for record in requests.values() if record.needs_response]
    links = [(record.target_agent_id, record.source_agent_id) for record in answered]
    return UnitOfWork(
        read_names(connection)[0], links=_read_links(connection, links), requests=requests
    )


def read_names(connection: sqlite3.Connection) -> tuple[int, str]:
    """Return `incarnation` and `uid` of `AACPPersistenceAdapter`."""
    incarnation, uid = connection.execute("SELECT series, uid FROM ledger").fetchone()
    return int(incarnation), str(uid)


def _read_links(connection: sqlite3.Connection, links: Iterable[Link]) -> dict[Link, LinkState]:
    read = (
        "SELECT last_seq, acked, contiguous, ahead, series FROM links"
        " WHERE source_agent_id = ? AND target_agent_id = ?"
    )
    found = {}
    for link in set(links):
        for last_seq, acked, up_to, out_of_order, incarnation in connection.execute(read, link):
            received = set(orjson.loads(out_of_order))
            found[link] = LinkState(last_seq, acked, up_to, received, incarnation)
    return found


def read_queues(connection: sqlite3.Connection, agents: Collection[str]) -> dict[str, int]:
    """Return the last position of each queue; the file has one counter for them all."""
    if not agents:
        return {}
    [last] = connection.execute("SELECT last FROM positions").fetchone()
    return dict.fromkeys(agents, last)


def read_messages_by_id(
    connection: sqlite3.Connection, ids: Sequence[str]
) -> dict[str, MessageRecord]:
    """Return the messages of these ids that are there."""
    if not ids:
        return {}
    rows = connection.execute(
        f"SELECT {MESSAGE} FROM messages WHERE message_id IN (SELECT value FROM json_each(?))",
        (ids_of(ids),),
    )
    return {row[0]: records.message_of(row) for row in rows}


def load_held(connection: sqlite3.Connection, unit: UnitOfWork, links: Mapping[Link, int]) -> None:
    """Read the requests that wait on these links, each up to a number."""
    for link, up_to in links.items():
        ids = connection.execute(
            "SELECT request_id FROM requests WHERE state = 'HELD'"
            " AND source_agent_id = ? AND target_agent_id = ? AND seq <= ?",
            (*link, up_to),
        ).fetchall()
        unit.hold(read_requests(connection, (request_id for (request_id,) in ids)).values())


def flush(connection: sqlite3.Connection, unit: UnitOfWork) -> list[MessageRecord]:
    """Write what was changed; return the messages that have been acknowledged."""
    if unit.added:
        connection.executemany(ADD_REQUEST, map(added_row, unit.added.values()))
    if unit.entered:
        connection.executemany(ENTER_REQUEST, map(entered_row, unit.entered.values()))
    if unit.finished:
        connection.executemany(FINISH_REQUEST, map(finished_row, unit.finished.values()))
    if unit.posted:
        connection.executemany(INSERT_MESSAGE, map(message_row, unit.posted))
    if unit.touched:
        rows = [link_row(link, unit.links[link]) for link in unit.touched]
        connection.executemany(WRITE_LINK, rows)
    if unit.moved:
        last = max(unit.queues[agent_id] for agent_id in unit.moved)
        connection.execute("UPDATE positions SET last = ?", (last,))
    acknowledged: list[MessageRecord] = []
    for link, (first, last) in unit.acknowledged.items():
        acknowledged += _acknowledge(connection, link, first, last)
    return acknowledged


def _acknowledge(
    connection: sqlite3.Connection, link: Link, first: int, last: int
) -> list[MessageRecord]:
    where = (
        f"WHERE {IS_OUTBOUND} AND source_agent_id = ? AND target_agent_id = ?"
        " AND seq BETWEEN ? AND ?"
    )
    values = (*link, first, last)
    # A tombstone is deleted when its number is acknowledged (AACP-14).
    connection.execute(f"DELETE FROM messages {where} AND state = 'TOMBSTONE'", values)
    rows = connection.execute(
        "UPDATE messages SET state = 'ACKNOWLEDGED', payload = ?, next_attempt_at_ms = NULL"
        f" {where} RETURNING {MESSAGE}",
        (VOID_PAYLOAD, *values),
    )
    return sorted(map(records.message_of, rows), key=lambda message: message.seq)
