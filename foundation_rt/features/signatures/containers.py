"""Converters of arrays and objects; imported for the first whose items or members are converted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from .converters import ConversionError, Converter

_LONGEST_REFUSAL = 200
_SHORTEST_ECHO = 4


def array_converter(make: Callable[[list[Any]], Any] | None, item: Converter | None) -> Converter:
    """Return the converter of an array of any length; `make` makes a set or a tuple of the list."""

    def convert(value: Any) -> Any:
        if type(value) is not list:
            raise ConversionError("is not an array")
        items = value
        if item is not None:
            items = []
            try:
                for element in value:
                    items.append(item(element))
            except ConversionError as error:
                error.path.append(len(items))
                raise
        return items if make is None else make(items)

    return convert


def tuple_converter(items: Sequence[Converter | None]) -> Converter:
    """Return the converter of an array of fixed length whose positions have types of their own."""

    def convert(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != len(items):
            raise ConversionError(f"is not an array of length {len(items)}")
        built: list[Any] = []
        try:
            for item, element in zip(items, value, strict=True):
                built.append(element if item is None else item(element))
        except ConversionError as error:
            error.path.append(len(built))
            raise
        return tuple(built)

    return convert


def mapping_converter(key: Converter | None, item: Converter | None) -> Converter:
    """Return the converter of an object whose member names are data."""

    def convert(value: Any) -> dict[Any, Any]:
        if type(value) is not dict:
            raise ConversionError("is not an object")
        built = {}
        name = ""
        try:
            for name, element in value.items():
                built[name if key is None else key(name)] = (
                    element if item is None else item(element)
                )
        except ConversionError as error:
            error.path.append(name)
            raise
        return built

    return convert


def then(convert: Converter | None, make: Callable[[Any], Any]) -> Converter:
    """Return a converter that gives what another one gives to `make`."""
    return make if convert is None else lambda value: make(convert(value))


def object_converter(
    construct: Callable[..., Any],
    members: Mapping[str, Converter | None],
    required: Collection[str],
) -> Converter:
    """Return the converter of an object with known members: an instance, or a typed dict.

    `members` may be filled in after this returns: a class may contain itself.
    """

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise ConversionError("is not an object")
        built = {}
        name = ""
        try:
            for name, element in value.items():
                if name not in members:
                    raise ConversionError("is not expected here")
                convert_member = members[name]
                built[name] = element if convert_member is None else convert_member(element)
        except ConversionError as error:
            error.path.append(name)
            raise
        for name in required:
            if name not in built:
                raise ConversionError(f"lacks {name!r}")
        try:
            return construct(**built)
        except (ValueError, TypeError) as error:
            text = error.args[0] if isinstance(error, ValueError) and len(error.args) == 1 else None
            raise ConversionError(refusal_text(text, value, type(error).__name__)) from error

    return convert


def refusal_text(text: Any, value: Any, kind: str) -> str:
    """Return the text for the client of a refusal by code of the author (TYPED-43).

    Args:
        text: of the error.
        value: the JSON value that was refused.
        kind: of the error, which is told if `text` is no string or repeats a part of `value`.
    """
    if type(text) is not str or _echoes(text, value):
        return f"was refused ({kind})"
    return f"was refused: {text[:_LONGEST_REFUSAL]}"


def _echoes(text: str, value: Any) -> bool:
    """Return whether `text` quotes a string or a number of `value`."""
    if isinstance(value, dict):
        return any(_echoes(text, element) for element in value.values())
    if isinstance(value, list):
        return any(_echoes(text, element) for element in value)
    if value is None or isinstance(value, bool):
        return False
    spellings = {str(value), repr(value).strip("'\"")}
    return any(len(echo) >= _SHORTEST_ECHO and echo in text for echo in spellings)
