"""Cursors: where the next page of a list of tasks begins.

A cursor holds the sort key and the id of the last task shown, so the next page costs what the first
one does, and nothing is shown twice or left out however the list changes. It is tied to the filter
and the sort of its list by a fingerprint. Every member is checked when it comes back: it is not
signed, since all that a forged one can choose is a place in a list that its author may read.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import orjson
from attrs import astuple

from .tasks import PRIORITIES, SortKey, Task

if TYPE_CHECKING:
    from .queries import After, TaskFilter

MAX_LENGTH = 512
_FORMAT = 1
_MAX_ID = 2**63 - 1


class CursorError(Exception):
    """The text is no cursor, or that of another list."""


def encode_cursor(task: Task, where: TaskFilter, sort: SortKey, descending: bool) -> str:
    """Return the cursor of the page that begins behind `task`."""
    members = [_FORMAT, _fingerprint(where, sort, descending), _key(task, sort), task.id]
    return urlsafe_b64encode(orjson.dumps(members)).decode().rstrip("=")


def decode_cursor(text: str, where: TaskFilter, sort: SortKey, descending: bool) -> After:
    """Return the place that a cursor stands for.

    Raises:
        CursorError: see its class.
    """
    try:
        members = orjson.loads(urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
        version, fingerprint, key, number = members
    except (ValueError, TypeError):
        raise CursorError from None
    if version != _FORMAT or fingerprint != _fingerprint(where, sort, descending):
        raise CursorError
    if type(number) is not int or not 0 < number <= _MAX_ID or not _is_key(key, sort):
        raise CursorError
    from .queries import After

    return After(key, number)


def _key(task: Task, sort: SortKey) -> str | int | None:
    match sort:
        case "id":
            return None
        case "dueDate":
            return task.due_date
        case "priority":
            return task.priority
        case "updatedAt":
            return task.updated_at


def _is_key(key: object, sort: SortKey) -> bool:
    match sort:
        case "id":
            return key is None
        case "dueDate":
            return key is None or _is_date(key)
        case "priority":
            return type(key) is int and 0 <= key < len(PRIORITIES)
        case "updatedAt":
            return _is_time(key)


def _is_date(text: object) -> bool:
    try:
        return isinstance(text, str) and date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _is_time(text: object) -> bool:
    try:
        return isinstance(text, str) and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _fingerprint(where: TaskFilter, sort: SortKey, descending: bool) -> str:
    from hashlib import blake2b

    described: list[Any] = [*astuple(where, recurse=False), sort, descending]
    return blake2b(orjson.dumps(described), digest_size=9).hexdigest()
