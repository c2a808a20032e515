"""Notifications between processes of what they have committed, by NOTIFY."""

from __future__ import annotations

import orjson

from .....base.database.postgres import Query
from ...store import Change

MOST_BYTES = 7_900
"""PostgreSQL refuses payloads of 8,000 bytes."""

EVERYTHING = Change(everything=True, lists=True)


def encode_change(change: Change) -> str:
    """Return the payload of a notification; a change that is too long becomes `EVERYTHING`."""
    members = {
        "tasks": change.tasks,
        "jobs": change.jobs,
        "lists": change.lists,
        "everything": change.everything,
    }
    payload = orjson.dumps({name: value for name, value in members.items() if value})
    return payload.decode() if len(payload) <= MOST_BYTES else encode_change(EVERYTHING)


def decode_change(payload: str | None) -> Change:
    """Return the change of a notification.

    None says that notifications may have been lost. What is not understood, as of another version,
    is `EVERYTHING` too.
    """
    try:
        members = orjson.loads(payload or "")
        return Change(
            tasks=tuple((int(first), int(last)) for first, last in members.get("tasks", ())),
            jobs=tuple(str(job_id) for job_id in members.get("jobs", ())),
            everything=bool(members.get("everything")),
            lists=bool(members.get("lists")),
        )
    except (ValueError, TypeError, AttributeError):
        return EVERYTHING


def notify(channel: str, change: Change) -> Query:
    """Return the query that tells other processes of a change, after its commit and by itself.

    Within the transaction it would keep all others that notify from committing until this one is on
    disk.
    """
    return ("SELECT pg_notify(%b, %b)", (channel, encode_change(change)))
