"""Integers in arguments as APIs read them: `5` where a model wrote `5.0` (OAPI-53)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..signatures.converters import ConversionError, convert_integer


def with_integers(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with an integer for each whole number that the schema calls one.

    Args:
        arguments: that fit the schema.
        schema: of a tool.

    Raises:
        ToolError: INVALID_ARGUMENT, `integer_out_of_range`; a number may have been rounded.
    """
    try:
        converted: dict[str, Any] = _converted(arguments, [schema], schema.get("$defs", {}))
    except ConversionError as error:
        raise error.to_tool_error() from None
    return converted


def _converted(value: Any, schemas: Iterable[Any], definitions: Mapping[str, Any]) -> Any:
    """Return a value whose integers are those of any of the schemas that it may have to fit."""
    if isinstance(value, float):
        kinds = [each.get("type") for each in _flat(schemas, definitions)]
        return convert_integer(value) if "integer" in kinds and value.is_integer() else value
    steps: Iterable[tuple[Any, Any]]
    if isinstance(value, dict):
        steps = value.items()
    elif isinstance(value, list):
        steps = enumerate(value)
    else:
        return value
    flat = _flat(schemas, definitions)
    found = {}
    for step, each in steps:
        try:
            found[step] = _converted(each, [_at(one, step) for one in flat], definitions)
        except ConversionError as error:
            error.path.append(step)
            raise
    return found if isinstance(value, dict) else [*found.values()]


def _at(schema: Mapping[str, Any], step: str | int) -> Any:
    """Return what a schema says of a member or an item."""
    if isinstance(step, int):
        first = schema.get("prefixItems", ())
        return first[step] if step < len(first) else schema.get("items")
    return schema.get("properties", {}).get(step, schema.get("additionalProperties"))


def _flat(schemas: Iterable[Any], definitions: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas with those that they refer to or consist of, each once."""
    found: dict[int, dict[str, Any]] = {}
    waiting = [*schemas]
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, dict) or id(schema) in found:
            continue
        found[id(schema)] = schema
        waiting += [*schema.get("allOf", ()), *schema.get("anyOf", ())]
        waiting += [schema.get("then"), schema.get("else")]
        if "$ref" in schema:
            waiting.append(definitions.get(schema["$ref"].rpartition("/")[2]))
    return [*found.values()]
