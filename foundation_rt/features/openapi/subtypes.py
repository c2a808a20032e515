"""Subtypes that a `discriminator` tells apart (OAPI-55).

A supertype names its subtypes, and each of them has the supertype in its `allOf`. So as a part of
another schema a supertype is itself alone: with its subtypes it would contain itself.
"""

from __future__ import annotations

from typing import Any

from .documents import OpenApiError, References


def subtypes(schema: dict[str, Any], references: References) -> dict[str, list[str]]:
    """Return the values that mean each subtype of a schema, by the reference to it.

    Args:
        schema: any. The `mapping` of its `discriminator` names its subtypes, or each of them has
            the schema in its `allOf`. Alternatives of its own are not repeated.
        references: of the document.
    """
    discriminator = schema.get("discriminator")
    if not isinstance(discriminator, dict) or "oneOf" in schema or "anyOf" in schema:
        return {}
    mapping = discriminator.get("mapping")
    if not isinstance(mapping, dict):
        mapping = {name: name for name in references.extensions(schema)}
    found: dict[str, list[str]] = {}
    for value, given in mapping.items():
        reference = f"#/components/schemas/{given}"
        for each in (reference, str(given)):
            try:
                references.follow({"$ref": each})
            except OpenApiError:
                continue
            found.setdefault(each, []).append(value)
            break
    return found


def descendants(supertype: dict[str, Any], references: References) -> set[int]:
    """Return the `id` of every schema that is a subtype, or a part of one, of a supertype."""
    found = {id(supertype)}
    seen: set[str] = set()
    waiting = [supertype]
    while waiting:
        schema = waiting.pop()
        named = references.once(subtypes, schema, references).keys() - seen
        seen |= named
        below = [{"$ref": each} for each in named]
        below += _list(schema.get("oneOf")) + _list(schema.get("anyOf"))
        if schema is not supertype:
            below += _list(schema.get("allOf"))
        for each in below:
            try:
                final = references.follow(each)
            except OpenApiError:
                continue
            if isinstance(final, dict) and id(final) not in found:
                found.add(id(final))
                waiting.append(final)
    return found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def without_subtypes(supertype: dict[str, Any]) -> dict[str, Any]:
    """Return a supertype as a part of its subtypes, which have more members than it."""
    left_out = ("discriminator", "oneOf", "anyOf", "additionalProperties")
    return {keyword: value for keyword, value in supertype.items() if keyword not in left_out}
