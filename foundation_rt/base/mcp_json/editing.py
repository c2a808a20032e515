"""Change one member of an object within a JSON text, and nothing else of the text (MCPJSON-09).

Comments, trailing commas, line ends and the order of members stay as their author left them.
Places are found in the strict form of the text (`strict_json`), which has the same length.
"""

from __future__ import annotations

import json
import re
from typing import Any

from attrs import frozen

from .json_text import strict_json, without_comments

_DEFAULT_INDENT = "  "
_BLANKS = re.compile(r"\s*")
_REST_OF_LINE = re.compile(r"[ \t]*(?:\r?\n|\Z)")
_DECODER = json.JSONDecoder()


@frozen
class _Member:
    """A member of an object: its name, where its key begins, where its value begins and ends."""

    name: str
    key: int
    begin: int
    end: int


@frozen
class _Object:
    """An object in a text: its members, and the place of its closing brace."""

    members: tuple[_Member, ...]
    close: int

    def find(self, name: str) -> _Member | None:
        """Return the member of that name."""
        return next((each for each in self.members if each.name == name), None)


def set_member(text: str, outer: str, name: str, value: Any) -> str:
    """Return the text of a JSON object with `value` at `[outer][name]`.

    Args:
        text: of a JSON object that `parse_object` accepts; or blanks only.
        outer: a member of that object, itself an object; it is made if it is not there.
        name: the member of `outer` to set; one that is there is replaced in its place.
        value: a JSON value.
    """
    if not strict_json(text).strip():
        text += "{\n}\n"
    root = _scan(text, strict_json(text).index("{"))
    found = root.find(outer)
    if found is None:
        return _append(text, root, outer, {name: value})
    inner = _scan(text, found.begin)
    member = inner.find(name)
    if member is None:
        return _append(text, inner, name, value)
    written = _written(text, value, _indent_of_line(text, member.key))
    return text[: member.begin] + written + text[member.end :]


def remove_member(text: str, outer: str, name: str) -> str:
    """Return the text of a JSON object without the member `[outer][name]`.

    Args:
        text: of a JSON object that `parse_object` accepts.
        outer: a member of that object, itself an object.
        name: a member of `outer`.

    Raises:
        KeyError: there is no such member.
    """
    root = _scan(text, strict_json(text).index("{"))
    found = root.find(outer)
    inner = None if found is None else _scan(text, found.begin)
    member = None if inner is None else inner.find(name)
    if inner is None or member is None:
        raise KeyError(name)
    plain = without_comments(text)
    end = _after_blanks(plain, member.end)
    end = end + 1 if plain[end] == "," else member.end
    begin = member.key
    line = text.rfind("\n", 0, begin) + 1
    rest = _REST_OF_LINE.match(text, end)
    if rest is not None and not text[line:begin].strip():
        begin, end = line, rest.end()  # the lines are the member's own
    if member is inner.members[-1] and len(inner.members) > 1:
        comma = plain.index(",", inner.members[-2].end)
        return text[:comma] + text[comma + 1 : begin] + text[end:]
    return text[:begin] + text[end:]


def _scan(text: str, begin: int) -> _Object:
    """Return the object whose opening brace is at `begin`."""
    strict = strict_json(text)
    members = []
    at = _after_blanks(strict, begin + 1)
    while strict[at] != "}":
        key = at
        name, at = _DECODER.raw_decode(strict, at)
        value = _after_blanks(strict, _after_blanks(strict, at) + 1)  # behind the colon
        _, end = _DECODER.raw_decode(strict, value)
        members.append(_Member(name, key, value, end))
        at = _after_blanks(strict, end)
        if strict[at] == ",":
            at = _after_blanks(strict, at + 1)
    return _Object(tuple(members), at)


def _append(text: str, into: _Object, name: str, value: Any) -> str:
    """Return the text with a new last member of an object."""
    plain = without_comments(text)
    end_of_line = _line_end(text)
    outside = _indent_of_line(text, into.close)
    indent = outside + _indent_unit(text)
    if into.members:
        last = into.members[-1]
        if plain[_after_blanks(plain, last.end)] != ",":
            text = f"{text[: last.end]},{text[last.end :]}"
            into = _Object(into.members, into.close + 1)
        indent = _indent_of_line(text, last.key) or indent
    before = text[: into.close].rstrip()  # comments behind the last member stay there
    written = _written(text, value, indent)
    member = f"{end_of_line}{indent}{json.dumps(name, ensure_ascii=False)}: {written}"
    return f"{before}{member}{end_of_line}{outside}{text[into.close :]}"


def _written(text: str, value: Any, indent: str) -> str:
    """Return a value as JSON, indented like the text; `indent` is that of its first line."""
    written = json.dumps(value, ensure_ascii=False, indent=_indent_unit(text))
    return written.replace("\n", _line_end(text) + indent)


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    assert found is not None
    return found.end()


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent_of_line(text: str, at: int) -> str:
    """Return the blanks that the line of a place begins with."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _indent_unit(text: str) -> str:
    """Return the blanks by which the members of the outermost object are indented."""
    strict = strict_json(text)
    first = re.search(r"\{\s*?\n([ \t]+)\"", strict)
    return (first and _indent_of_line(text, first.end())) or _DEFAULT_INDENT
