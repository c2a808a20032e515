"""The messages of issues, and the selection of those that are reported.

Every message says what was expected and never repeats the value, which may be a secret
(SCHEMA-20). The names of properties are the exception, since a caller cannot correct arguments
without them; they come from outside, so they are truncated (SCHEMA-22). Both engines
(`interpreter` and `rust_validator`) take their messages from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ..exact_json import dumps
from .issues import MAX_NAME_CHARACTERS, ValidationIssue, cut

MAX_ISSUES: Final = 20
"""The most issues reported for one value (SCHEMA-21)."""

MAX_NAMES: Final = 5
_MAX_LISTING_CHARACTERS: Final = 1000


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


def _json(value: Any) -> str:
    return cut(dumps(value).decode(), _MAX_LISTING_CHARACTERS)


def _listing(values: Iterable[Any]) -> str:
    return cut(", ".join(map(_json, values)), _MAX_LISTING_CHARACTERS)


def _names(names: list[str]) -> str:
    """Return `the property "a"`, or `the properties "a", "b" and 3 more`."""
    shown = ", ".join(_json(cut(name, MAX_NAME_CHARACTERS)) for name in names[:MAX_NAMES])
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"the {'property' if len(names) == 1 else 'properties'} {shown}{more}"


def _types(types: str | list[str]) -> str:
    return types if isinstance(types, str) else " or ".join(types)


_PLAIN_PATTERNS: Final = {
    r"\S": "must not be blank",
    r"^[^\u0000]*$": "must not contain U+0000",
    r"^\s*[^\s\u0000][^\u0000]*$": "must not be blank, nor contain U+0000",
}
"""Words for some patterns: JSON Schema has no place for words of its author (SCHEMA-41)."""


def _pattern(pattern: str) -> str:
    return _PLAIN_PATTERNS.get(pattern) or f"must match the pattern {_json(pattern)}"


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
    "pattern": _pattern,
    "propertyNames": lambda _: "must have property names that fit its propertyNames schema",
    "required": lambda names: f"must have {_names(names)}",
    "type": lambda types: f"must be {_types(types)}",
    "unevaluatedProperties": lambda names: f"must not have {_names(names)}",
    "uniqueItems": lambda _: "must have no two equal items",
}
"""The message of each keyword, made from the keyword's value, or from the names concerned."""
