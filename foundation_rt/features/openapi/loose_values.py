"""Values in documents that do not fit the types beside them, and words for what is not enforced.

Documents are written by hand and in YAML: `enum: [1, 2]` stands beside `type: string`. The API
decides what it takes (OAPI-59).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import orjson
from attrs import frozen

from .documents import OpenApiError
from .naming import shortened

MAX_CHOICES: Final = 2_000
_MAX_SHOWN: Final = 50
_MAX_CHARACTERS: Final = 400

_KINDS: Final = {
    bool: "boolean",
    int: "integer",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


def type_of(value: Any) -> str:
    """Return the most special type of JSON Schema that a value has."""
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return _KINDS[type(value)]


def fitted(value: Any, types: tuple[str, ...]) -> tuple[bool, Any]:
    """Return whether a value can be written in one of the types, and the value so written.

    Args:
        value: of JSON.
        types: of JSON Schema; none: any.

    Returns:
        The value is as it was where nothing that is written the same has one of the types.
    """
    if not types or _has_type(value, types):
        is_whole = isinstance(value, float) and value.is_integer() and "integer" in types
        return True, int(value) if is_whole else value
    if isinstance(value, str):
        try:
            read = orjson.loads(value)
            fits = _has_type(read, types) and orjson.dumps(read).decode() == value
        except (ValueError, TypeError):  # no JSON, or nested too deeply
            return False, value
        return fits, read if fits else value
    if "string" in types and isinstance(value, bool | int | float):
        return True, json_text(value)
    return False, value


def json_text(value: Any) -> str:
    """Return a value of a document as JSON.

    Raises:
        OpenApiError: it is nested too deeply.
    """
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise OpenApiError(f"a value cannot be written as JSON: {error}") from None


def _has_type(value: Any, types: tuple[str, ...]) -> bool:
    kind = type_of(value)
    return kind in types or (kind == "integer" and "number" in types)


def size_of(value: Any) -> int:
    """Return the size of a value of a document as JSON, about, in bytes."""
    return len(value) if isinstance(value, str) else len(json_text(value))


@frozen
class EnumValues:
    """The values of an `enum`, but for null.

    Attributes:
        values: without repetition, as the types have them; of many, the first.
        types: of the values: those that were given if all fit the one that was given.
        is_nullable: whether null is one of them.
        is_whole: whether `values` has all of them.
        sentence: that says them.
    """

    values: list[Any]
    types: list[str]
    is_nullable: bool
    is_whole: bool
    sentence: str


def choices_of(given: list[Any], *types: str) -> EnumValues:
    """Return the values of an `enum` beside types."""
    first = [each for each in given[:MAX_CHOICES] if each is not None]
    pairs = [fitted(each, types) for each in first]
    fits = all(each for each, _ in pairs)
    values = [each for _, each in pairs] if fits else first
    values = [*{json_text(each): each for each in values}.values()]
    found = list(types)
    if len(found) != 1 or not fits or not values:
        found = list(dict.fromkeys(map(type_of, values)))
    shown = ", ".join(json_text(each) for each in values[:_MAX_SHOWN])
    shown = shortened(shown, _MAX_CHARACTERS)
    many = f"{len(given):,}, such as " if len(given) > _MAX_SHOWN else ""
    is_whole = len(given) <= MAX_CHOICES
    return EnumValues(values, found, None in given, is_whole, f"One of {many}{shown}.")


def names_of(given: list[Any]) -> list[str]:
    """Return the names of a `required`, each once; none of too many."""
    if len(given) > MAX_CHOICES:
        return []
    return [*dict.fromkeys(each for each in given if isinstance(each, str))]


def said(value: Any, keyword: str) -> str:
    """Return the sentence that says a keyword which is not enforced."""
    text = value if isinstance(value, str) else json_text(value)
    return f"{keyword} `{shortened(text, _MAX_CHARACTERS)}`."


def with_notes(description: Any, notes: Iterable[str], most: int) -> str:
    """Return a description of a document within `most` characters, and the notes after it."""
    text = shortened(description, most) if isinstance(description, str) else ""
    said_more = " ".join(notes)
    if text and said_more and not text.endswith((".", "!", "?", ":", "…")):
        text += "."
    return f"{text} {said_more}".strip()
