"""From a JSON value to a value of a Python type: small functions, composed by `schema_deriver`.

Those of numbers are here; those of texts in `scalars`, of a few values in `enumerations`, of arrays
and objects in `containers`: a start imports what its types need.

Nothing is coerced: a number never becomes a string, a string never a number. The schema has
refused values of other types before any of this runs. The converters check again for the limits
that a schema cannot express (an integer that may have been rounded, a day that does not exist),
and for values that a schema given by hand may let through.

A value that does not fit raises `ConversionError`. Each container adds its step to the path while
the error passes, so that a value that fits costs nothing (TYPED-19).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...errors import ErrorCode, ToolError

Converter = Callable[[Any], Any]
"""Takes an accepted JSON value, returns the value of the Python type; raises `ConversionError`."""

_EXACT_FLOAT = 2**53
"""From here on a float may differ from the integer that was written (RFC 8259)."""


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
