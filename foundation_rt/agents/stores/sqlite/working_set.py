"""Loading a unit of work from the tables, and flushing it into them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping

from ...ledger.session_manager import LinkState
from ...ledger.types import VOID_PAYLOAD, Link, MessageRecord, MessageState
from ...ledger.unit_of_work import UnitOfWork
from .. import records
from .rows import (
    ADD_REQUEST,
    ENTER_REQUEST,
    FINISH_REQUEST,
    INSERT_MESSAGE,
    IS_OUTBOUND,
    MESSAGE,
    WRITE_LINK,
    added_row,
    entered_row,
    finished_row,
    ids_of,
    link_row,
    message_row,
    read_link,
    read_requests,
)


def load(
    connection: sqlite3.Connection,
    incarnation: int,
    links: Iterable[Link] = (),
    agents: Iterable[str] = (),
    request_ids: Iterable[str] = (),
    message_ids: Iterable[str] = (),
) -> UnitOfWork:
    """Read those of the links, queues, requests and messages that are there."""
    return UnitOfWork(
        incarnation,
        links=read_links(connection, links),
        queues=_read_queues(connection, set(agents)),
        requests=read_requests(connection, request_ids),
        messages=_read_messages(connection, list(message_ids)),
    )


def read_links(connection: sqlite3.Connection, links: Iterable[Link]) -> dict[Link, LinkState]:
    """Return both ends of these links, as far as there are any."""
    found = ((link, read_link(connection, link)) for link in set(links))
    return {link: state for link, state in found if state is not None}


def _read_queues(connection: sqlite3.Connection, agents: set[str]) -> dict[str, int]:
    """Return the last position of each queue; the file has one counter for them all."""
    if not agents:
        return {}
    [last] = connection.execute("SELECT last FROM positions").fetchone()
    return dict.fromkeys(agents, last)


def _read_messages(connection: sqlite3.Connection, ids: list[str]) -> dict[str, MessageRecord]:
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
        f"SELECT {MESSAGE} FROM messages {where} ORDER BY seq", values
    ).fetchall()
    connection.execute(
        "UPDATE messages SET state = 'ACKNOWLEDGED', payload = ?, next_attempt_at_ms = NULL"
        f" {where}",
        (VOID_PAYLOAD, *values),
    )
    messages = [records.message_of(row) for row in rows]
    for message in messages:
        message.state = MessageState.ACKNOWLEDGED
        message.payload, message.next_attempt_at_ms = VOID_PAYLOAD, None
    return messages
