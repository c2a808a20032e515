"""From a JSON value to a value of a Python type: small functions, composed by `schema_deriver`.

Nothing is coerced: a number never becomes a string, a string never a number. The schema has
refused values of other types before any of this runs. The converters check again for the limits
that a schema cannot express (an integer that may have been rounded, a day that does not exist),
and for values that a schema given by hand may let through.

A value that does not fit raises `ConversionError`. Each container adds its step to the path while
the error passes, so that a value that fits costs nothing (TYPED-19).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any
from uuid import UUID

from ...errors import ErrorCode, ToolError

Converter = Callable[[Any], Any]
"""Takes an accepted JSON value, returns the value of the Python type; raises `ConversionError`."""

_EXACT_FLOAT = 2**53
"""From here on a float may differ from the integer that was written (RFC 8259)."""

_LONGEST_REFUSAL = 200
_SHORTEST_ECHO = 4


class ConversionError(Exception):
    """A JSON value that cannot become a value of its type.

    Attributes:
        text: the problem, as a predicate ("is not an array"); it never quotes the value.
        reason: for programs.
        path: keys and indexes from the value outwards.
        issues: all that is wrong inside of the value, if more is known than the first problem:
            pairs of a JSON pointer from the value on and a text.
    """

    def __init__(
        self,
        text: str,
        reason: str = "not_structurable",
        issues: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(text)
        self.text = text
        self.reason = reason
        self.issues = issues
        self.path: list[str | int] = []

    def to_tool_error(self) -> ToolError:
        """Return the error for the client, with a JSON pointer (RFC 6901) to the value."""
        pointer = json_pointer(reversed(self.path))
        details: dict[str, Any] = {"reason": self.reason, "path": pointer}
        if self.issues:
            details["path"] = pointer + self.issues[0][0]
            details["errors"] = [
                {"path": pointer + inside, "message": text} for inside, text in self.issues
            ]
        where = details["path"] or "the object of arguments"
        return ToolError(ErrorCode.INVALID_ARGUMENT, f"{where} {self.text}", details)


def json_pointer(steps: Iterable[str | int]) -> str:
    """Return the JSON pointer (RFC 6901) of these steps."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def convert_integer(value: Any) -> int:
    """Return an integer as JSON Schema counts them: ``5.0`` is 5 (TYPED-16)."""
    if type(value) is int:
        if -(2**63) <= value < 2**64:
            return value
        raise ConversionError("has to be within 64 bits", "integer_out_of_range")
    if type(value) is float and value.is_integer():
        if -_EXACT_FLOAT < value < _EXACT_FLOAT:
            return int(value)
        raise ConversionError(
            "may have been rounded: an integer has to be within 64 bits, written in digits only",
            "integer_out_of_range",
        )
    raise ConversionError("is not an integer")


def convert_number(value: Any) -> float:
    """Return a float, also for a number written without a fraction (TYPED-17)."""
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise ConversionError("is not a number")


def text_converter(parse: Callable[[str], Any], noun: str) -> Converter:
    """Return the converter of a type that is written as a string; `parse` raises ValueError."""

    def convert(value: Any) -> Any:
        if type(value) is str:
            try:
                return parse(value)
            except ValueError:
                pass
        raise ConversionError(f"is not {noun}")

    return convert


def date_converter() -> Converter:
    """Return the converter of a day, written as RFC 3339 ``full-date``."""

    def parse(text: str) -> date:
        day = date.fromisoformat(text)
        if day.isoformat() != text:  # ISO 8601 knows more spellings: 20260131, 2026-W05-6
            raise ValueError
        return day

    return text_converter(parse, "a date")


def date_time_converter() -> Converter:
    """Return the converter of a moment, written as RFC 3339 ``date-time``."""
    return _clock_converter(
        "[0-9]{4}-[0-9]{2}-[0-9]{2}T", datetime.fromisoformat, "a date and time"
    )


def time_converter() -> Converter:
    """Return the converter of a time of day, written as RFC 3339 ``full-time``."""
    return _clock_converter("", time.fromisoformat, "a time")


def _clock_converter(before: str, read: Callable[[str], Any], noun: str) -> Converter:
    import re  # compiled when a tool needs it: at import it would cost every start 0.3 ms

    spelling = re.compile(
        before + r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})"
    )

    def parse(text: str) -> Any:
        if not spelling.fullmatch(text.upper()):
            raise ValueError
        return read(text.upper())

    return text_converter(parse, f"{noun} with an offset, to the microsecond at most")


def uuid_converter() -> Converter:
    """Return the converter of a UUID of 36 characters (RFC 9562), in either case."""

    def parse(text: str) -> UUID:
        value = UUID(text)
        if str(value) != text.lower():  # braces, no hyphens, urn:uuid:
            raise ValueError
        return value

    return text_converter(parse, "a UUID")


def exact(value: Any) -> tuple[bool, Any]:
    """Return `value` as a key: ``True`` and ``1`` differ, ``1`` and ``1.0`` do not."""
    return type(value) is bool, value


def finite_converter(members: Mapping[Any, Any]) -> Converter:
    """Return the converter of one of a few values, by their JSON values (`exact`)."""

    def convert(value: Any) -> Any:
        try:
            return members[exact(value)]
        except (KeyError, TypeError):  # TypeError: a list or an object
            raise ConversionError("is not one of the values allowed") from None

    return convert


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


def checked_converter(
    convert: Converter | None, holds: Callable[[Any], Any], text: str
) -> Converter:
    """Return a converter that refuses a value with `text` if it does not hold.

    Args:
        convert: makes the value; None if the JSON value is the value.
        holds: takes the value; a ``ValueError`` or ``TypeError`` is a refusal.
        text: a predicate.
    """

    def checked(value: Any) -> Any:
        made = value if convert is None else convert(value)
        try:
            if holds(made):
                return made
        except (ValueError, TypeError) as error:
            raise ConversionError(text) from error
        raise ConversionError(text)

    return checked


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
