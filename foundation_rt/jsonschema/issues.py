"""The issues of an invalid value, and their messages.

Every message says what was expected and never repeats the value, which may be a secret
(SCHEMA-20). The names of properties are the exception, since a caller cannot correct arguments
without them; they come from outside, so they are truncated (SCHEMA-22). Both engines
(`interpreter` and `rust_validator`) take their messages from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from attrs import frozen

from ..errors import ErrorCode, ToolError
from ..protocol.exact_json import dumps

MAX_ISSUES: Final = 20
"""The most issues reported for one value (SCHEMA-21)."""

MAX_NAME_CHARACTERS: Final = 100
MAX_NAMES: Final = 5
_MAX_LISTING_CHARACTERS: Final = 1000


@frozen
class ValidationIssue:
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


class Selection:
    """Selects which issues of a value are reported: one of each item of an array, then others.

    So the issues of one item do not hide those of the next ones (SCHEMA-39).

    Attributes:
        is_brief: as many issues as are reported have been found; only the first issue of a further
            item can still be selected.
        is_complete: no further issue can be selected.
    """

    __slots__ = ("_found", "_items", "_others", "is_brief", "is_complete")

    def __init__(self) -> None:
        self._found: list[tuple[ValidationIssue, bool]] = []
        self._items: set[object] = set()
        self._others = 0
        self.is_brief = False
        self.is_complete = False

    def add(self, issue: ValidationIssue, item: object) -> None:
        """Note the next issue of the value.

        Args:
            issue: to be reported, perhaps.
            item: identifies the item of the outermost array that has it; None if none has it.
        """
        is_other = item is not None and item in self._items
        if is_other and self.is_brief:
            return
        self._items.add(item)
        self._others += is_other
        self._found.append((issue, is_other))
        self.is_brief = len(self._found) >= MAX_ISSUES
        self.is_complete = len(self._found) - self._others >= MAX_ISSUES

    def issues(self) -> tuple[ValidationIssue, ...]:
        """Return the selected issues, in the order in which they were found."""
        others = max(0, MAX_ISSUES - (len(self._found) - self._others))
        selected = []
        for issue, is_other in self._found:
            others -= is_other
            if not is_other or others >= 0:
                selected.append(issue)
        return tuple(selected)


def step(path: str, key: str | int) -> str:
    """Return `path` extended by `key`, escaped as RFC 6901 says; truncate long keys (SCHEMA-22)."""
    if isinstance(key, int):
        return f"{path}/{key}"
    return f"{path}/{_cut(key, MAX_NAME_CHARACTERS).replace('~', '~0').replace('/', '~1')}"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + "..."


def _json(value: Any) -> str:
    return _cut(dumps(value).decode(), _MAX_LISTING_CHARACTERS)


def _listing(values: Iterable[Any]) -> str:
    return _cut(", ".join(map(_json, values)), _MAX_LISTING_CHARACTERS)


def _names(names: list[str]) -> str:
    """Return `the property "a"`, or `the properties "a", "b" and 3 more`."""
    shown = ", ".join(_json(_cut(name, MAX_NAME_CHARACTERS)) for name in names[:MAX_NAMES])
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"the {'property' if len(names) == 1 else 'properties'} {shown}{more}"


def _types(types: str | list[str]) -> str:
    return types if isinstance(types, str) else " or ".join(types)


MESSAGES: Final[dict[str, Callable[[Any], str]]] = {
    "additionalItems": lambda limit: f"must have at most {limit} items",
    "additionalProperties": lambda names: f"must not have {_names(names)}",
    "anyOf": lambda _: "must fit at least one of the schemas in anyOf",
    "const": lambda value: f"must be {_json(value)}",
    "contains": lambda _: "must contain items that fit its contains schema",
    "enum": lambda values: f"must be one of {_listing(values)}",
    "exclusiveMaximum": lambda limit: f"must be less than {_json(limit)}",
    "exclusiveMinimum": lambda limit: f"must be greater than {_json(limit)}",
    "falseSchema": lambda _: "must not be there",
    "format": lambda name: f"must be a valid {name}",
    "maxItems": lambda limit: f"must have at most {limit} items",
    "maxLength": lambda limit: f"must have at most {limit} characters",
    "maxProperties": lambda limit: f"must have at most {limit} properties",
    "maximum": lambda limit: f"must be at most {_json(limit)}",
    "minItems": lambda limit: f"must have at least {limit} items",
    "minLength": lambda limit: f"must have at least {limit} characters",
    "minProperties": lambda limit: f"must have at least {limit} properties",
    "minimum": lambda limit: f"must be at least {_json(limit)}",
    "multipleOf": lambda limit: f"must be a multiple of {_json(limit)}",
    "not": lambda _: "must not fit the schema in not",
    "oneOf": lambda _: "must fit exactly one of the schemas in oneOf",
    "pattern": lambda pattern: f"must match the pattern {_json(pattern)}",
    "propertyNames": lambda _: "must have property names that fit its propertyNames schema",
    "required": lambda names: f"must have {_names(names)}",
    "type": lambda types: f"must be {_types(types)}",
    "unevaluatedProperties": lambda names: f"must not have {_names(names)}",
    "uniqueItems": lambda _: "must have no two equal items",
}
"""The message of each keyword, made from the keyword's value, or from the names concerned."""


def place(path: str) -> str:
    """Return a place in a schema as a URI fragment: `#/properties/city`."""
    return f"#{path}"
