"""Import and export: tasks as JSON, JSON lines or CSV, read and written piece by piece.

A stream of any length is read with the memory of one part. An export has every member of a task.
An import takes those that a new task has and leaves out those that the store gives it.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain, count, islice
from pathlib import PurePath
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol, get_args

import orjson

from ...errors import UsageError
from .queries import After, TaskFilter, TaskQuery
from .tasks import WIRE_NAMES, Task
from .validation import MEMBERS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .store import TaskServerStore

TaskFormat = Literal["json", "jsonl", "csv"]

FORMATS: tuple[TaskFormat, ...] = get_args(TaskFormat)

PART_SIZE = 5_000
"""The most tasks of one job of an import."""

_GIVEN_BY_STORE = tuple(name for name in WIRE_NAMES if name not in MEMBERS)
_COLUMNS = (*MEMBERS, *_GIVEN_BY_STORE)

_PIECE = 1 << 20
_LONGEST_TASK = 1 << 20
"""The most characters of one task: enough for the longest, with every character escaped."""

_EXPORT_PAGE = 1_000
_SHOWN = 40
"""The most characters of a wrong name in a message."""


def format_of(path: str, chosen: str | None = None) -> TaskFormat:
    """Return the format of a file.

    Args:
        path: of the file, or ``-``, which is JSON lines unless something else is chosen.
        chosen: the format that the user has named.

    Raises:
        UsageError: the name of the file tells no format, and none is chosen.
    """
    name = chosen or ("jsonl" if path == "-" else PurePath(path).suffix[1:].lower())
    name = {"ndjson": "jsonl"}.get(name, name)
    for each in FORMATS:
        if each == name:
            return each
    raise UsageError(f"the format of {path!r} is not known: use --format {', '.join(FORMATS)}")


# -- reading ---------------------------------------------------------------------------------------


def read_parts(
    stream: IO[bytes], file_format: TaskFormat, size: int = PART_SIZE
) -> Iterator[list[Any]]:
    """Yield the tasks of a stream, `size` at a time, as `mcp-tasks` takes them; not checked yet.

    Raises:
        UsageError: the stream does not have this format; says where.
    """
    read = {"json": _read_json, "jsonl": _read_lines, "csv": _read_csv}[file_format]
    tasks = map(_without_stored, read(stream))
    while part := list(islice(tasks, size)):
        yield part


def part_key(payload: bytes, number: int, failures: int = 0) -> str:
    """Return the request key of a part: the same part of the same tasks has the same key.

    Args:
        payload: the tasks.
        number: of the part in its file.
        failures: how many jobs of this part have failed: a job that failed keeps its key.
    """
    again = f"-{failures}" if failures else ""
    return f"import-{number}-{sha256(payload).hexdigest()}{again}"


def _without_stored(task: Any) -> Any:
    if not isinstance(task, dict):
        return task
    return {name: value for name, value in task.items() if name not in _GIVEN_BY_STORE}


def _read_lines(stream: IO[bytes]) -> Iterator[Any]:
    number = 0
    while line := stream.readline(_LONGEST_TASK + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if len(line) > _LONGEST_TASK:
            raise UsageError(f"line {number} is longer than {_LONGEST_TASK} bytes: no task is")
        if not line.isspace():
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise UsageError(f"line {number} is not valid JSON: {error.msg}") from None


def _read_csv(stream: IO[bytes]) -> Iterator[Any]:
    text = io.TextIOWrapper(stream, "utf-8-sig", errors=_KEEP_BYTES, newline="")
    lines = _lines(text)
    try:
        first = next(lines, "")
        # No name of a column has one of these.
        sign = max(_CSV_SEPARATORS, key=first.count)
        rows = csv.reader(chain((first,), lines), delimiter=sign, strict=True)
        head = [name.strip() for name in next(rows, [])]
        while head and not head[-1]:
            head.pop()
        _check_head(head)
        for row in filter(any, rows):
            if len(row) < len(head) or any(row[len(head) :]):
                raise UsageError(f"line {rows.line_num} has {len(row)} fields, not {len(head)}")
            # An empty field is a member that is not given.
            yield {name: value for name, value in zip(head, row, strict=False) if value}
    except csv.Error as error:
        raise UsageError(f"line {rows.line_num} is not valid CSV: {error}") from None
    finally:
        text.detach()


_CSV_SEPARATORS = (",", ";", "\t")
"""Spreadsheets write the second where the first is the decimal sign."""

_KEEP_BYTES = "surrogateescape"
"""Bytes that are not UTF-8 become these characters, which no text in UTF-8 has."""
_KEPT_BYTE = re.compile("[\udc80-\udcff]")


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Yield the lines; a longer one comes in pieces, which have the wrong number of fields."""
    for number in count(1):
        line = text.readline(_LONGEST_TASK)
        if not line:
            return
        if not line.isascii() and _KEPT_BYTE.search(line):
            raise UsageError(f"line {number} is not in UTF-8")
        yield line


def _check_head(head: Sequence[str]) -> None:
    problem = ""
    for index, name in enumerate(head):
        if name not in _COLUMNS:
            problem = f"{name[:_SHOWN]!r} is none of them"
        elif name in head[:index]:
            problem = f"{name!r} stands there twice"
    if problem or "title" not in head:
        raise UsageError(
            "the first line of a CSV file names its columns, title among them:"
            f" {problem or 'title is missing'}; there are {', '.join(_COLUMNS)}"
        )


def _read_json(stream: IO[bytes]) -> Iterator[Any]:
    """Yield the items of an array as its text comes in; or those of `tasks` in an object."""
    text = _Text(stream)
    opening = text.next_sign()
    if opening == "{":
        yield from _tasks_of(text)
        return
    if opening != "[":
        raise UsageError("a JSON file of tasks is an array, or an object with `tasks`")
    text.skip()
    first = True
    while (sign := text.next_sign()) != "]":
        if not first:
            if sign != ",":
                raise UsageError(f"character {text.position} is not valid JSON: , or ] is missing")
            text.skip()
        yield text.value()
        first = False
    text.skip()
    if text.next_sign():
        raise UsageError(f"character {text.position} follows the end of the array")


def _tasks_of(text: _Text) -> Iterable[Any]:
    try:
        found = orjson.loads(text.rest())
    except orjson.JSONDecodeError as error:
        raise UsageError(f"the file is not valid JSON: {error}") from None
    tasks = found.get("tasks")
    if not isinstance(tasks, list):
        raise UsageError("a JSON file of tasks is an array, or an object with `tasks`")
    return tasks


class _Text:
    """The characters of a stream, of which one piece and the value under way are in memory."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._json = json.JSONDecoder()
        self._held = ""
        self._at = 0
        self._ended = False
        self._dropped = 0

    @property
    def position(self) -> int:
        """The number of the next character, from 0."""
        return self._dropped + self._at

    def next_sign(self) -> str:
        """Return the next character that is no white space, without taking it; "" at the end."""
        while True:
            while self._at < len(self._held) and self._held[self._at] in " \t\r\n":
                self._at += 1
            if self._at < len(self._held) or not self._more():
                return self._held[self._at : self._at + 1]

    def skip(self) -> None:
        """Take one character."""
        self._at += 1

    def value(self) -> Any:
        """Take one JSON value."""
        self.next_sign()
        while True:
            try:
                _, end = self._json.raw_decode(self._held, self._at)
                # The decoder that finds its end takes NaN and half surrogates too.
                value = orjson.loads(self._held[self._at : end])
            except (ValueError, RecursionError) as error:
                # A value that is cut off is read on; one that is wrong never becomes a value.
                if len(self._held) - self._at > _LONGEST_TASK or not self._more():
                    problem = getattr(error, "msg", error)
                    where = f"character {self.position}"
                    raise UsageError(f"{where} is not valid JSON: {problem}") from None
                continue
            # A number at the end of a piece may go on in the next.
            if end < len(self._held) or not self._more():
                self._at = end
                return value

    def rest(self) -> str:
        """Take everything."""
        while self._more():
            pass
        rest, self._at = self._held[self._at :], len(self._held)
        return rest

    def _more(self) -> bool:
        """Read one more piece; return False at the end of the stream."""
        if self._ended:
            return False
        piece = self._stream.read(_PIECE)
        self._ended = not piece
        try:
            text = self._decoder.decode(piece, final=self._ended)
        except UnicodeDecodeError as error:
            raise UsageError(f"the file is not in UTF-8: {error.reason}") from None
        self._dropped += self._at
        self._held, self._at = self._held[self._at :] + text, 0
        return not self._ended


# -- writing ---------------------------------------------------------------------------------------


async def read_all(store: TaskServerStore) -> AsyncIterator[Sequence[Task]]:
    """Yield every task by ascending id; one that is added or changed meanwhile may be left out."""
    after = None
    while True:
        query = TaskQuery(TaskFilter(), limit=_EXPORT_PAGE, after=after, count=False)
        page = await store.list_tasks(query)
        if page.tasks:
            yield page.tasks
        if not page.has_more:
            return
        after = After(None, page.tasks[-1].id)


class ByteStream(Protocol):
    """Takes bytes: a file that is open for writing, for instance."""

    def write(self, data: bytes, /) -> object:
        """Write all of `data`."""

    def flush(self) -> object:
        """Write what is buffered."""


class TaskWriter:
    """Writes tasks to a stream, in one of the formats.

    Args:
        stream: takes the bytes; it is not closed.
        file_format: JSON is an array with a task a line.
    """

    def __init__(self, stream: ByteStream, file_format: TaskFormat) -> None:
        self._stream = stream
        self._format = file_format
        self._count = 0

    def write(self, tasks: Sequence[Task]) -> None:
        """Write some tasks, after those before."""
        wire = [task.to_wire() for task in tasks]
        if self._format == "csv":
            self._stream.write(_csv_lines(wire, with_head=self._count == 0))
        elif self._format == "jsonl":
            self._stream.write(b"".join(orjson.dumps(task) + b"\n" for task in wire))
        else:
            opening = b",\n" if self._count else b"[\n"
            self._stream.write(opening + b",\n".join(map(orjson.dumps, wire)))
        self._count += len(tasks)

    def close(self) -> int:
        """Write the end, and return how many tasks there are."""
        if self._format == "json":
            self._stream.write(b"\n]\n" if self._count else b"[]\n")
        elif self._format == "csv" and not self._count:
            self._stream.write(_csv_lines([], with_head=True))
        self._stream.flush()
        return self._count


def _csv_lines(tasks: Sequence[Mapping[str, Any]], *, with_head: bool) -> bytes:
    lines = io.StringIO(newline="")
    writer = csv.writer(lines)
    if with_head:
        writer.writerow(_COLUMNS)
    writer.writerows([task[name] for name in _COLUMNS] for task in tasks)
    return lines.getvalue().encode()
