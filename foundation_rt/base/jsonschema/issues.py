"""The issues of an invalid value: where, and what was expected there.

Their messages are in `messages`, which is imported when a value is invalid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ...errors import ErrorCode, ToolError

MAX_NAME_CHARACTERS: Final = 100


class ValidationIssue(NamedTuple):
    """One reason why a value is invalid (SCHEMA-19, SCHEMA-20).

    Attributes:
        path: a JSON pointer (RFC 6901) into the value: `/city`, `/days/0`; `""` is the whole.
        message: what was expected there, such as `must be integer`; never the value.
    """

    path: str
    message: str


UNEXPLAINED: Final = (ValidationIssue("", "must fit its schema"),)
"""The issues of an invalid value whose explanation would take too long."""

TOO_DEEP: Final = (ValidationIssue("", "is nested too deeply"),)
"""The issues of a value that is nested too deeply to be checked (SCHEMA-18)."""

TOO_COMPLEX: Final = (ValidationIssue("", "is too complex to be checked against its schema"),)
"""The issues of a value whose check would exceed the budget of steps (SCHEMA-27).

Whether the value is valid is unknown. Compare with `is` to recognise it.
"""


def refusal(issues: Sequence[ValidationIssue]) -> ToolError:
    """Return the error for arguments with these issues (CALL-08)."""
    first = issues[0]
    return ToolError(
        ErrorCode.INVALID_ARGUMENT,
        f"Invalid arguments: {first.path or 'the arguments'} {first.message}.",
        {
            "reason": "schema_validation",
            "errors": [{"path": each.path, "message": each.message} for each in issues],
        },
    )


def step(path: str, key: str | int) -> str:
    """Return `path` extended by `key`, escaped as RFC 6901 says; truncate long keys (SCHEMA-22)."""
    if isinstance(key, int):
        return f"{path}/{key}"
    return f"{path}/{cut(key, MAX_NAME_CHARACTERS).replace('~', '~0').replace('/', '~1')}"


def cut(text: str, limit: int) -> str:
    """Return the first `limit` characters of `text`, and three dots if there are more."""
    return text if len(text) <= limit else text[:limit] + "..."


def place(path: str) -> str:
    """Return a place in a schema as a URI fragment: `#/properties/city`."""
    return f"#{path}"
