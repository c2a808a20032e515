"""Docstrings: the description of a function or class, and of each of its parameters (TYPED-14).

Google style (``Args:``), NumPy style (``Parameters``, underlined) and reStructuredText fields
(``:param name:``) are read. All three have one shape: the description ends where the first
section starts, a section about parameters holds entries, and an entry continues on lines that are
indented more than its first. So a style is a small function that reads the first line of an
entry, and one loop serves all styles. Unknown text is left out; nothing here raises.

No regular expressions: compiling them would cost a start more than reading the docstrings.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Sequence

Entry = tuple[Sequence[str], str]
"""The parameters of an entry, none if it is about something else, and its first words."""

_ABOUT_PARAMETERS = frozenset(
    (
        *("args", "arguments", "parameters", "params", "other parameters"),
        *("keyword args", "keyword arguments", "attributes"),
    )
)
_ABOUT_OTHERS = frozenset(("returns", "return", "yields", "yield", "raises", "raise"))
_PARAMETER_FIELDS = frozenset(("param", "parameter", "arg", "argument", "key", "keyword"))
_OTHER_FIELDS = frozenset(("type", "return", "returns", "rtype", "raise", "raises", "yields"))


def parse_docstring(text: str, names: Collection[str]) -> tuple[str, dict[str, str]]:
    """Return the description in a docstring, and that of each of `names` which it documents.

    Lines of one parameter's description are joined by single spaces.
    """
    lines = inspect.cleandoc(text).splitlines()
    end = len(lines)
    described: dict[str, list[str]] = {}
    for index in range(len(lines)):
        section = _section_at(lines, index)
        if section is not None:
            end = min(end, index)
            for name, words in _entries(*section):
                if name in names:
                    described.setdefault(name, []).extend(words)
    return (
        "\n".join(lines[:end]).strip(),
        {name: " ".join(words) for name, words in described.items() if words},
    )


def _section_at(
    lines: list[str], index: int
) -> tuple[Iterator[str], Callable[[str], Entry | None]] | None:
    """Return the lines of the section that starts at `index`, and the reader of its entries."""
    line = lines[index]
    if _field_kind(line):
        return iter((line, *_indented(lines, index + 1))), _field_entry
    title = line.rstrip().lower()
    if title.endswith(":") and _is_title(title[:-1]):
        entry = _google_entry if title[:-1] in _ABOUT_PARAMETERS else _no_entry
        return _indented(lines, index + 1), entry
    if _is_title(title) and _is_underline(lines, index + 1):
        entry = _numpy_entry if title in _ABOUT_PARAMETERS else _no_entry
        return _until_underlined(lines, index + 2), entry
    return None


def _is_title(title: str) -> bool:
    return title in _ABOUT_PARAMETERS or title in _ABOUT_OTHERS


def _is_underline(lines: list[str], index: int) -> bool:
    return index < len(lines) and len(lines[index]) >= 3 and not lines[index].strip("-")


def _indented(lines: list[str], start: int) -> Iterator[str]:
    for line in lines[start:]:
        if line and not line[0].isspace():
            return
        yield line


def _until_underlined(lines: list[str], start: int) -> Iterator[str]:
    for index in range(start, len(lines)):
        if _is_underline(lines, index + 1):
            return
        yield lines[index]


def _entries(
    lines: Iterator[str], read: Callable[[str], Entry | None]
) -> Iterator[tuple[str, list[str]]]:
    """Yield every parameter that a section documents, with the words about it."""
    outermost: int | None = None
    names: Sequence[str] = ()
    words: list[str] = []
    for line in lines:
        stripped = line.strip()
        if not stripped:
            continue
        indent = len(line) - len(line.lstrip())
        if outermost is None:
            outermost = indent
        entry = read(stripped) if indent <= outermost else None
        if entry is None:
            words.append(stripped)
            continue
        for name in names:
            yield name, words
        names, words = entry[0], [entry[1]] if entry[1] else []
    for name in names:
        yield name, words


def _google_entry(line: str) -> Entry | None:
    """Read ``name: words`` or ``name (type): words``; other lines continue the entry before."""
    head, colon, words = line.partition(":")
    name = head.partition("(")[0].strip().lstrip("*")
    if not colon or not name.isidentifier():
        return None
    return (name,), words.strip()


def _numpy_entry(line: str) -> Entry:
    """Read ``name : type`` or ``one, other : type``; the words are on the lines below."""
    return [name.strip().lstrip("*") for name in line.partition(":")[0].split(",")], ""


def _field_entry(line: str) -> Entry:
    """Read ``:param name: words`` or ``:param type name: words``."""
    field, _, words = line[1:].partition(":")
    kind, *rest = field.split()
    return ([rest[-1].lstrip("*")] if rest and kind in _PARAMETER_FIELDS else ()), words.strip()


def _no_entry(line: str) -> Entry:
    """Return no parameter: a section about others only ends the description."""
    return (), ""


def _field_kind(line: str) -> bool:
    if not line.startswith(":") or ":" not in line[1:]:
        return False
    kind = line[1:].partition(":")[0].split()[:1]
    return bool(kind) and (kind[0] in _PARAMETER_FIELDS or kind[0] in _OTHER_FIELDS)
