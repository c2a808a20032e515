"""Output schemas for revisions in which a structured result is an object (CONT-12).

There a result that may be something else is the member `result` of an object, and so is its schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_SHARED: Final = ("$schema", "definitions", "$defs")
"""The keywords that stay at the root: references lead to them."""

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def is_wrapped(schema: Mapping[str, Any] | None) -> bool:
    """Return whether results with this schema are wrapped for these revisions."""
    return (
        schema is not None
        and schema.get("type") != "object"
        and all(each.startswith(("#/definitions/", "#/$defs/")) for each in _references(schema))
    )


def wrapped(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of ``{"result": value}`` for a schema of the value that is wrapped."""
    shared = {keyword: schema[keyword] for keyword in _SHARED if keyword in schema}
    own = {keyword: value for keyword, value in schema.items() if keyword not in shared}
    return {**shared, "type": "object", "properties": {"result": own}, "required": ["result"]}


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from _references(each)
    elif isinstance(schema, Mapping):
        for keyword, value in schema.items():
            if keyword in _REFERENCES and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
