"""Pages that commands show to people, their text, and the streams that they are written to.

Commands make pages of what servers send. `render` writes a page as text and makes every string
printable on the way (`safe_text`), so that no command can forget to (CLI-19). `Output` writes
results and errors as a terminal or a program needs them (CLI-21).

JSON that is a list of like objects is a table for people (CLI-49). Programs get the JSON.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from io import StringIO
from typing import Any, TextIO

import orjson
from attrs import define, frozen

from ..base.exact_json import dumps, loads
from ..client.safe_text import printable_json, printable_line, printable_text

UNWRITABLE_EXIT = 4
"""stdout is closed, or cannot be written."""

CLOSED_EXIT = 141
"""The reader of stdout has closed it."""

_GAP = "  "
_MAX_HEAD = 12  # characters of a word in the name of a column
_LEAST_TEXT = 12  # characters beside an indentation
_MAX_PADDING = 60  # a tool name of a megabyte must not pad every other line
_MAX_STYLED = 100_000  # characters; rich takes about 5 s for a million of them


# -- pages ---------------------------------------------------------------------------------------


@frozen
class Heading:
    """A line that names the parts after it, with a short detail."""

    text: str
    detail: str = ""


@frozen
class Paragraph:
    """Text of one or more lines."""

    text: str


@frozen
class Table:
    """Rows of cells.

    Attributes:
        rows: all with the same number of cells; the first cell names the subject of its row.
        has_head: the first row names the columns.
    """

    rows: Sequence[Sequence[str]]
    has_head: bool = False


@frozen
class Json:
    """A JSON value."""

    value: Any


@frozen
class Payload:
    """The content that the user has asked for, rather than a description of it.

    A program gets it unchanged. A terminal gets text made printable, with JSON over several lines,
    and of bytes only their number.
    """

    data: str | bytes
    mime_type: str | None = None

    def shown(self) -> Paragraph | Json:
        """Return the part that a terminal shows."""
        if isinstance(self.data, bytes):
            return Paragraph(f"[{self.mime_type or 'bytes'}, {len(self.data):,} bytes]")
        if self.data[:1] in ("{", "["):
            try:
                return Json(loads(self.data))
            except orjson.JSONDecodeError:
                pass
        return Paragraph(self.data)


Part = Heading | Paragraph | Table | Json | Payload
Page = Sequence[Part]


# -- text ----------------------------------------------------------------------------------------


def render(page: Page, *, columns: int | None = None, raw_payloads: bool = False) -> str:
    """Return the text of a page; every line ends with a newline.

    Args:
        page: to be shown.
        columns: the width of a terminal with colours; None for plain, aligned text.
        raw_payloads: write the text of payloads unchanged, for a program.

    Raises:
        ImportError: there is no rich (extra `cli`), and `columns` is given.
    """
    style = None if columns is None else _styler(columns)
    written = []
    for at, part in enumerate(page):
        if at and isinstance(part, Heading):
            written.append("\n")
        if raw_payloads and isinstance(part, Payload) and isinstance(part.data, str):
            written.append(_ended(part.data))
            continue
        shown = part.shown() if isinstance(part, Payload) else part
        text = _plain(shown)
        if columns is not None and style is not None and len(text) <= _MAX_STYLED:
            # What the user has asked for keeps its lines.
            text = wrapped(text, columns) if isinstance(part, Paragraph) else style(shown) or text
        written.append(text)
    return "".join(written)


def wrapped(text: str, columns: int) -> str:
    """Return a text whose lines end between words where they are longer than a terminal is wide."""
    lines = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        lines += textwrap.wrap(
            line,
            max(columns, len(indent) + _LEAST_TEXT),
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [line]
    return "\n".join(lines)


def pretty_json(value: Any) -> str:
    """Return JSON over several lines, printable, without a newline at its end."""
    return printable_json(dumps(value, option=orjson.OPT_INDENT_2).decode())


def _plain(part: Heading | Paragraph | Table | Json) -> str:
    match part:
        case Heading(text, detail):
            return _ended(_GAP.join(printable_line(each) for each in (text, detail) if each))
        case Paragraph(text):
            return _ended(printable_text(text))
        case Table(rows):
            return _table(rows)
        case _:
            return _ended(pretty_json(part.value))


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _table(rows: Sequence[Sequence[str]]) -> str:
    cells = [[printable_line(cell) for cell in row] for row in rows]
    widths = [min(max(map(len, column)), _MAX_PADDING) for column in zip(*cells, strict=True)]
    lines = (_GAP.join(map(str.ljust, row, widths)).rstrip() for row in cells)
    return "".join(f"{line}\n" for line in lines)


def _styler(columns: int) -> Callable[[Part], str]:
    """Return the function that styles a part with rich; it respects NO_COLOR.

    It returns "" for a part without a style. Strings become `Text`, in which rich reads no markup.
    """
    from rich.console import Console, RenderableType
    from rich.highlighter import JSONHighlighter
    from rich.table import Table as Grid
    from rich.text import Text

    def table(rows: Sequence[Sequence[str]], has_head: bool) -> Grid:
        grid = Grid(box=None, padding=(0, len(_GAP), 0, 0), show_header=False)
        for name in rows[0] if has_head else ():  # a name is no longer a name in two lines
            grid.add_column(min_width=min(max(map(len, name.split()), default=1), _MAX_HEAD))
        for at, row in enumerate(rows):
            first, *rest = (Text(printable_line(cell), overflow="fold") for cell in row)
            is_head = has_head and not at
            first.stylize("bold" if is_head else "cyan")
            grid.add_row(first, *rest, style="bold" if is_head else None)
        return grid

    def styled(part: Part) -> RenderableType | None:
        match part:
            case Heading(text, detail):
                shown = Text(printable_line(text), "bold")
                return shown.append(f"{_GAP}{printable_line(detail)}", "dim") if detail else shown
            case Table(rows, has_head):
                return table(rows, has_head)
            case Json(value):
                shown = Text(pretty_json(value))
                JSONHighlighter().highlight(shown)
                return shown
            case _:
                return None

    def style(part: Part) -> str:
        shown = styled(part)
        if shown is None:
            return ""
        written = StringIO()
        console = Console(
            file=written,
            force_terminal=True,
            color_system="auto" if takes_escapes() else None,
            legacy_windows=False,
            width=columns,
            highlight=False,
        )
        console.print(shown, soft_wrap=not isinstance(part, Table))
        return written.getvalue()

    return style


# -- streams -------------------------------------------------------------------------------------


@define(eq=False, repr=False)
class Output:
    """Writes results to one stream and errors to another; never raises if a stream fails.

    Args:
        out: of results; None if it is closed.
        err: of errors; None if it is closed.
        as_json: both as JSON, for programs.
    """

    out: TextIO | None
    err: TextIO | None
    as_json: bool = False

    def result(self, data: Any, page: Page) -> int:
        """Write a result, `data` for programs or `page` for people; return the exit code."""
        if self.as_json:
            return self.write(f"{pretty_json(data)}\n".encode())
        if self.out is not None and self.out.isatty():
            return self.write(_for_terminal(page))
        return self.write(_for_program(page))

    def write(self, data: bytes) -> int:
        """Write a result unchanged; return the exit code, 0 if all of it was written (CLI-20)."""
        try:
            _write(self.out, data)
        except BrokenPipeError:
            return CLOSED_EXIT
        except OSError as error:
            text = f"stdout cannot be written: {error.strerror}"
            self.error({"code": "OUTPUT", "message": text}, text)
            return UNWRITABLE_EXIT
        return 0

    def error(self, data: Any, text: str) -> None:
        """Write an error: `data` for programs, on one line as logs are; or `text` for people."""
        if self.as_json:
            line = printable_json(dumps(data).decode())
        else:
            line = f"foundation-rt: {printable_text(text)}"
        with suppress(OSError):  # there is no other stream to report it on
            _write(self.err, f"{line}\n".encode())

    def note(self, text: str) -> None:
        """Write a line for people that is neither the result nor an error, such as progress."""
        if not self.as_json:
            with suppress(OSError):
                _write(self.err, f"{printable_text(text)}\n".encode())

    def warning(self, text: str) -> None:
        """Write a warning for people; a program reads one error or nothing."""
        if not self.as_json:
            self.error(None, f"warning: {text}")


def takes_escapes() -> bool:
    """Return whether the terminal takes escape sequences: no dumb one, no old console (CLI-32)."""
    kind = os.environ.get("TERM", "")
    if sys.platform == "win32" and kind != "dumb":
        from ..base.windows import takes_escapes

        return takes_escapes()
    return kind not in ("", "dumb")


def write_output(data: bytes) -> int:
    """Write to stdout; return the exit code (CLI-30)."""
    return Output(sys.stdout, sys.stderr).write(data)


def _write(stream: TextIO | None, data: bytes) -> None:
    if stream is None:
        raise OSError(errno.EBADF, "it is closed")
    try:
        # Not in the encoding of the stream: JSON is UTF-8, and bytes stay unchanged.
        stream.flush()
        stream.buffer.write(data)
        stream.buffer.flush()
    except OSError:
        _discard(stream)
        raise


def _discard(stream: TextIO) -> None:
    """Discard the rest of the buffer: the interpreter would write it once more when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _for_terminal(page: Page) -> bytes:

    width = shutil.get_terminal_size().columns
    page = with_tables(page, width)
    try:
        return render(page, columns=width).encode()
    except ImportError:  # rich is not installed
        return render(page).encode()


def _for_program(page: Page) -> bytes:
    """Return payloads unchanged; bytes only if the page has nothing else."""
    if len(page) == 1 and isinstance(page[0], Payload) and isinstance(page[0].data, bytes):
        return page[0].data
    return render(page, raw_payloads=True).encode()


MAX_COLUMNS = 12
"""The most columns of a table; wider records are shown as JSON."""

_MAX_ROWS = 1000
_LEAST_WIDTH = 9  # of a column, with its gap
_Row = dict[str, Any]


def with_tables(page: Page, width: int) -> Page:
    """Return a page in which values that are records stand as tables.

    Args:
        page: of a result.
        width: of the terminal, in characters; a record that is wider is a block of lines.
    """
    most = min(MAX_COLUMNS, width // _LEAST_WIDTH)
    return [shown for part in page for shown in _shown(part, most)]


def _shown(part: Part, most: int) -> Sequence[Part]:
    shown = part.shown() if isinstance(part, Payload) else part
    if not isinstance(shown, Json):
        return [part]
    return [*_tables(shown.value, most)] or [part]


def _tables(value: Any, most: int) -> Iterator[Part]:
    """Yield the tables of a value; nothing if it is not of records alone."""
    if _are_records(value):
        yield from _of_records(value, most)
        return
    if not isinstance(value, dict):
        return
    plain = {name: each for name, each in value.items() if _is_plain(each)}
    records = {name: each for name, each in value.items() if _are_records(each)}
    if not records or len(plain) + len(records) < len(value):
        return
    if plain:
        yield Table([(name, in_words(each)) for name, each in plain.items()])
    for name, rows in records.items():
        if len(value) > 1:
            yield Heading(name, str(len(rows)))
        yield from _of_records(rows, most)


def _are_records(value: Any) -> bool:
    if not (isinstance(value, list) and 0 < len(value) <= _MAX_ROWS):
        return False
    if not all(isinstance(each, dict) and all(map(_is_plain, each.values())) for each in value):
        return False
    return 0 < len(_names(value)) <= MAX_COLUMNS


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _of_records(rows: Sequence[_Row], most: int) -> Iterator[Part]:
    """Yield a table, or where it would be too wide a block of lines for each record."""
    names = _names(rows)
    if len(names) <= most:
        cells = [[in_words(row[name]) if name in row else "" for name in names] for row in rows]
        yield Table([names, *cells], has_head=True)
        return
    for number, row in enumerate(rows, 1):
        yield Heading(f"{number} of {len(rows)}")
        yield Table([(name, in_words(value)) for name, value in row.items()])


def _names(rows: Sequence[_Row]) -> list[str]:
    """Return the names of all members, in the order in which they come."""
    return [*dict.fromkeys(name for row in rows for name in row)]


def in_words(value: Any) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
