"""Columns of a batch as arrays in PostgreSQL's binary format.

A batch goes to the server as one array for each column, which `unnest` splits. The arrays are
encoded here because their type must not depend on the values: psycopg chooses smallint[], integer[]
or bigint[] by the values, which makes a prepared statement of each combination, and does not know
the type of an empty array or of one of NULLs. The format is binary: as text a record of 12 columns
costs 21 us instead of 3.4 us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from operator import attrgetter
from struct import Struct, pack
from typing import Any, TypeVar

from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.pq import Format

from ....base.database.postgres import Query
from ..records import COLUMNS

_BOOL, _BYTEA, _BIGINT, _TEXT = 16, 17, 20, 25
_BOOL_ARRAY, _BYTEA_ARRAY, _TEXT_ARRAY, _BIGINT_ARRAY = 1000, 1001, 1009, 1016

# Dimensions, whether there may be NULLs, the type of the elements; then length and lower bound.
_EMPTY = Struct("!iiI")
_HEAD = Struct("!iiIii")
_length = Struct("!i").pack
_number = Struct("!iq").pack
_NULL = _length(-1)
_FALSE, _TRUE = b"\0\0\0\1\0", b"\0\0\0\1\1"

T = TypeVar("T")


class Array:
    """An encoded array; its class gives the type of the column."""

    __slots__ = ("data",)

    def __init__(
        self, element: int, values: Iterable[T], encode: Callable[[Sequence[T]], Iterable[bytes]]
    ) -> None:
        column = values if isinstance(values, tuple | list) else list(values)
        number = len(column)
        if not number:
            self.data = _EMPTY.pack(0, 0, element)
            return
        # Many columns have one value in all rows of a batch, which is encoded once.
        if column[0] == column[-1] and column.count(column[0]) == number:
            elements = b"".join(encode(column[:1])) * number
        else:
            elements = b"".join(encode(column))
        self.data = _HEAD.pack(1, 1, element, number, 1) + elements


class _Texts(Array):
    __slots__ = ()


class _Blobs(Array):
    __slots__ = ()


class _Numbers(Array):
    __slots__ = ()


class _Flags(Array):
    __slots__ = ()


def texts(values: Iterable[str | None]) -> Array:
    """Encode text[]; the strings contain no NUL character."""
    return _Texts(_TEXT, values, _encode_texts)


def blobs(values: Iterable[bytes | None]) -> Array:
    """Encode bytea[]."""
    return _Blobs(_BYTEA, values, _encode_blobs)


def numbers(values: Iterable[int | None]) -> Array:
    """Encode bigint[]."""
    return _Numbers(_BIGINT, values, _encode_numbers)


def flags(values: Iterable[bool]) -> Array:
    """Encode boolean[]."""
    return _Flags(_BOOL, values, lambda column: [_TRUE if each else _FALSE for each in column])


# A function for an element would cost 0.05 us for each.
def _encode_texts(column: Sequence[str | None]) -> list[bytes]:
    return [
        _NULL if each is None else _length(len(data := each.encode())) + data for each in column
    ]


def _encode_blobs(column: Sequence[bytes | None]) -> list[bytes]:
    return [_NULL if each is None else _length(len(each)) + each for each in column]


def _encode_numbers(column: Sequence[int | None]) -> list[bytes]:
    if None not in column:
        return [pack("!" + "iq" * len(column), *chain.from_iterable(zip(repeat(8), column)))]
    return [_NULL if each is None else _number(8, each) for each in column]


_Encode = Callable[[Iterable[Any]], Array]
_SQL_TYPES: dict[_Encode, str] = {
    texts: "text[]",
    blobs: "bytea[]",
    numbers: "bigint[]",
    flags: "boolean[]",
}
_NUMBERS = """seq created_at_ms expires_at_ms finished_at_ms lease_until_ms not_before_ms position
    priority epoch executions last_position last_seq acked contiguous series up_to low high
    attempts next_attempt_at_ms workers starts window_ms floor transaction number
    ttl_ms revision decided_until_ms next_run_at_ms last_run_at_ms"""
_KINDS: dict[str, _Encode] = {
    **dict.fromkeys(_NUMBERS.split(), numbers),
    **dict.fromkeys(("digest", "payload", "retry", "result", "error", "options"), blobs),
    **dict.fromkeys(("by_message", "leaves_queue"), flags),
}
"""The kinds of columns by their names; all others are texts."""
_FIELDS = {column: name for name, column in COLUMNS.items()}


class BatchTable:
    """A batch as a table in FROM: ``unnest(...) AS alias (columns)``.

    Args:
        alias: the name of the table.
        columns: their names, as SQL lists them.
    """

    def __init__(self, alias: str, columns: str) -> None:
        names = columns.replace(",", " ").split()
        self.columns = columns
        self._encoders = [_KINDS.get(name, texts) for name in names]
        types = ", ".join(f"%b::{_SQL_TYPES[encode]}" for encode in self._encoders)
        self._sql = f"unnest({types}) AS {alias} ({columns})"
        self._row_of = attrgetter(*(_FIELDS.get(name, name) for name in names))

    def __str__(self) -> str:
        return self._sql

    def of(self, rows: Iterable[Sequence[Any]]) -> list[Array]:
        """Return the parameters of rows."""
        columns = list(zip(*rows)) or [()] * len(self._encoders)  # noqa: B905 - all are as long
        return [encode(each) for encode, each in zip(self._encoders, columns)]  # noqa: B905

    def of_records(self, records: Iterable[object]) -> list[Array]:
        """Return the parameters of records whose attributes have the names of the columns."""
        return self.of(map(self._row_of, records))


class BatchStatement:
    """A statement over a batch.

    Args:
        columns: the names of those of the batch, as SQL lists them.
        sql: with the table of the batch, `n`, as ``{batch}``, and ``{columns}``.
    """

    def __init__(self, columns: str, sql: str) -> None:
        self._table = BatchTable("n", columns)
        self._sql = sql.replace("{batch}", str(self._table)).replace("{columns}", columns)

    def of(self, rows: Iterable[Sequence[Any]], *first: object) -> Query:
        """Return the query for rows; the parameters in `first` come before those of the batch."""
        return self._sql, [*first, *self._table.of(rows)]

    def of_records(self, records: Iterable[object], *first: object) -> Query:
        """Return the query for records whose attributes have the names of the columns."""
        return self._sql, [*first, *self._table.of_records(records)]


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Array) -> bytes:
        return obj.data


def register(context: AdaptContext) -> None:
    """Make a connection accept such arrays; other values are unaffected."""
    for kind, oid in (
        (_Texts, _TEXT_ARRAY),
        (_Blobs, _BYTEA_ARRAY),
        (_Numbers, _BIGINT_ARRAY),
        (_Flags, _BOOL_ARRAY),
    ):
        dumper = type(f"{kind.__name__}Dumper", (_ArrayDumper,), {"oid": oid})
        context.adapters.register_dumper(kind, dumper)
