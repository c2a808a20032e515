"""The rows of a job in the binary format of COPY.

Binary: as text, 5,000 rows take 52 ms instead of 7 ms to encode, and the server as long to store.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from struct import Struct
from uuid import UUID

from ...queries import casefold_text
from ...tasks import NewTask

COPY = """COPY {schema}.tasks (
    title, description, status, due_date, project, priority, job_id, created_by, search_text
) FROM STDIN (FORMAT binary)"""

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_COLUMNS = Struct("!h").pack(9)
_length = Struct("!i").pack
_day = Struct("!ii").pack
_small = Struct("!ih").pack
_FIRST_DAY = date(2000, 1, 1).toordinal()


def encode_rows(tasks: Sequence[NewTask], job_id: str, created_by: str) -> bytes:
    """Return the data that `COPY` reads.

    Raises:
        ValueError: a due date does not exist, or a text contains half a surrogate.
    """
    # Few values in many rows: each is encoded once.
    words: dict[str, bytes] = {}
    days: dict[str | None, bytes] = {None: _NULL}
    same = _sized(UUID(job_id).bytes) + _sized(created_by.encode())
    rows = [_HEADER]
    for title, description, status, due_date, project, priority in tasks:
        for word in (status, project):
            if word not in words:
                words[word] = _sized(word.encode())
        if due_date is not None and due_date not in days:
            days[due_date] = _day(4, read_date(due_date).toordinal() - _FIRST_DAY)
        rows += (
            _COLUMNS,
            _sized(title.encode()),
            _NULL if description is None else _sized(description.encode()),
            words[status],
            days[due_date],
            words[project],
            _small(2, priority),
            same,
            _sized(casefold_text(title, description).encode()),
        )
    rows.append(_TRAILER)
    return b"".join(rows)


def read_date(text: str) -> date:
    """Return the date of ``2026-11-22``; PostgreSQL and Python take other forms too.

    Raises:
        ValueError: it is none.
    """
    day = date.fromisoformat(text)
    if day.isoformat() != text:
        raise ValueError(f"not a date: {text!r}")
    return day


def _sized(data: bytes) -> bytes:
    return _length(len(data)) + data
