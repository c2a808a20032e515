"""The targets of `$ref`, and circles of them. Pure; nothing is ever fetched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import RegistrationError
from .dialects import Schema
from .issues import place


def at_pointer(root: Any, pointer: str) -> Any:
    """Return what a JSON pointer leads to (RFC 6901); None if it leads nowhere."""
    start, *parts = pointer.split("/")
    found = None if start else root
    for part in parts:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(key)
        elif isinstance(found, list) and key.isascii() and key.isdigit() and len(key) < 9:
            found = found[int(key)] if int(key) < len(found) else None
        else:
            return None
    return found


def target_of(root: Mapping[str, Any], own_id: str, reference: str, at: str) -> Any:
    """Return the target of a `$ref` (RFC 6901).

    Args:
        root: the whole schema.
        own_id: the schema's identifier, which may precede the `#`.
        reference: the value of `$ref`.
        at: the place of the reference, for errors.

    Raises:
        RegistrationError: it has no target, leaves the schema, or is not a pointer.
    """
    from urllib.parse import unquote

    document, _, fragment = reference.partition("#")
    if document and document != own_id.partition("#")[0]:
        raise RegistrationError(
            f"{place(at)}: {reference!r} is outside of this schema, and nothing is ever fetched:"
            " copy what it means into `definitions` and refer to that"
        )
    if fragment and not fragment.startswith("/"):
        raise RegistrationError(
            f"{place(at)}: {reference!r} refers by name: refer by path, as in '#/definitions/city'"
        )
    found = at_pointer(root, unquote(fragment))
    if found is None:
        raise RegistrationError(f"{place(at)}: {reference!r} leads nowhere")
    return found


def is_circle(
    schema: Schema, references: Mapping[str, Schema], on_the_way: set[int], done: set[int]
) -> bool:
    """Return whether applying `schema` to a value would never end."""
    if isinstance(schema, bool) or id(schema) in done:
        return False
    if id(schema) in on_the_way:
        return True
    on_the_way.add(id(schema))
    found = any(
        is_circle(one, references, on_the_way, done) for one in _on_same_value(schema, references)
    )
    on_the_way.discard(id(schema))
    done.add(id(schema))
    return found


def _on_same_value(schema: dict[str, Any], references: Mapping[str, Schema]) -> list[Schema]:
    """Return the schemas that `schema` applies to its own value."""
    if "$ref" in schema:
        return [references[schema["$ref"]]]
    alternatives = (schema.get(keyword, ()) for keyword in ("allOf", "anyOf", "oneOf"))
    single = [schema[keyword] for keyword in ("not", "if", "then", "else") if keyword in schema]
    dependent = schema.get("dependencies", {}).values()
    return [
        *(one for several in alternatives for one in several),
        *single,
        *(one for one in dependent if not isinstance(one, list)),
    ]
