"""The text of a file of servers: JSON with comments, and no name twice (CLI-14)."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from json.decoder import JSONObject  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any

from .problems import ServerFileError

MAX_FILE_BYTES = 1024 * 1024
"""A list of servers is written by hand. What is longer is some other file."""

_STRING = r'"(?:\\.|[^"\\])*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|[\[{{]\s*,|,(?=\s*[}}\]])", re.DOTALL)


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        ServerFileError: it cannot be read, is too large, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ServerFileError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
        return content.decode("utf-8-sig")  # editors on Windows put a BOM first
    except UnicodeDecodeError as error:
        raise ServerFileError(f"{path} is no text in UTF-8, from byte {error.start} on") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise ServerFileError(f"{path} cannot be read: {reason}") from None


def parse_object(path: Path, text: str) -> dict[str, Any]:
    """Return the object in a file; comments and trailing commas are allowed.

    Raises:
        ServerFileError: the text is no JSON, no object, or has a member twice; the message has
            the line and the column.
    """
    text = strict_json(text)
    try:
        # Not orjson: of two servers of one name it keeps the last without a word.
        content = json.loads(text, object_pairs_hook=_refuse_doubles)
    except _DoubleMemberError as error:
        where = _place_of_double(text)
        problem = f"{error.name!r} is there twice in the object at {where}"
        raise ServerFileError(f"{path} is not valid: {problem}") from None
    except (ValueError, RecursionError) as error:
        hint = r": write \\ for each backslash" if "escape" in str(error) else ""
        raise ServerFileError(f"{path} is not valid JSON: {error}{hint}") from None
    if not isinstance(content, dict):
        raise ServerFileError(f"{path} should hold a JSON object")
    return content


def without_comments(text: str) -> str:
    """Return a text of the same length, with blanks for the comments."""
    return _COMMENT.sub(_blank, text)


def strict_json(text: str) -> str:
    """Return a text of the same length, with blanks for comments and trailing commas."""
    return _LAST_COMMA.sub(_blank, without_comments(text))


class _DoubleMemberError(Exception):
    """An object has two members of one name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _blank(found: re.Match[str]) -> str:
    """Return blanks, so that errors name the right place; a string, or a first comma, as it is."""
    text = found[0]
    return text if text[0] in '"[{' else re.sub(r"[^\n]", " ", text)


def _refuse_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise _DoubleMemberError(next(name for name in members if names.count(name) > 1))
    return members


def _place_of_double(text: str) -> str:
    """Return the line and the column of the object that has a member twice.

    The parser in C tells no hook where it is, so this reads the text once more, in Python.
    """
    decoder: Any = json.JSONDecoder(object_pairs_hook=_refuse_doubles)
    begins: list[int] = []

    def parse(state: tuple[str, int], *rest: Any) -> Any:
        try:
            return JSONObject(state, *rest)
        except _DoubleMemberError:
            begins.append(state[1] - 1)  # the innermost is the first; the state is behind its brace
            raise

    decoder.parse_object = parse
    decoder.scan_once = py_make_scanner(decoder)
    with suppress(_DoubleMemberError, RecursionError):
        decoder.decode(text)
    begin = begins[0] if begins else 0
    line = text.count("\n", 0, begin) + 1
    return f"line {line} column {begin - text.rfind(chr(10), 0, begin)}"
