"""The walk over a return type: the schema of its values, as they are written.

It is simpler than that of a parameter: no union has to be told apart, and an instance has all of
its attributes. Its members have other names: attributes, not parameters of a constructor
(TYPED-26).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, time
from functools import wraps
from typing import TYPE_CHECKING, Any

from ...protocol.plain_values import ExplicitResult, settled
from .schema_deriver import Deriver
from .type_schema import ANYTHING, Schema, TypeSchema, UnsupportedType

if TYPE_CHECKING:
    from .annotations import Names
    from .binding import Handler
    from .classes import Member
    from .writers import Writer


def derive_output(hint: Any, names: Names) -> tuple[Schema, Writer | None]:
    """Return the schema of the results of a function, and what is applied before one is written.

    Args:
        hint: the return type, resolved.
        names: those that the annotations of the function may use.

    Raises:
        UnsupportedType: the type has no schema.
    """
    deriver = OutputDeriver(names)
    derived = deriver.derive(hint)
    definitions = deriver.definitions()
    schema: Schema = {}
    if derived.accepts == {dict} and "type" not in derived.schema:
        # Until 2025-11-25 a root needs `type` itself.
        root = {"allOf": [derived.schema]} if "$ref" in derived.schema else derived.schema
        schema |= {"type": "object", **root}
    else:
        schema |= derived.schema
    if definitions:
        schema["definitions"] = definitions
    write: Writer | None = None
    if deriver.has_writers:
        from .writers import writer_of

        write = writer_of(hint, names)
    return schema, _listing(write) if derived.accepts == {list} else write


def _listing(write: Writer | None) -> Writer:
    """Return a writer that makes a list of an iterator first: of `map(...)`, of a generator."""

    def listed(value: Any) -> Any:
        value = list(value) if hasattr(type(value), "__next__") else value
        return value if write is None else write(value)

    return listed


def writing(handler: Handler, write: Writer) -> Handler:
    """Return a handler whose results are replaced as their annotation says (TYPED-81)."""

    async def write_settled(value: Any) -> Any:
        return write(await settled(value))

    @wraps(handler)
    def writing(arguments: dict[str, Any], context: Any) -> Any:
        value = handler(arguments, context)
        return write_settled(value) if hasattr(type(value), "__await__") else write(value)

    return writing


def is_structure(schema: Schema) -> bool:
    """Return whether all results with this schema are values for programs (TYPED-49).

    Text is for models. Where anything may be returned, as in `list`, it may be content.
    """
    members = schema.get("anyOf", (schema,))
    if any(_is_open(each) or _has_open_items(each) for each in members):
        return False
    return not all(
        each.get("type") in ("string", "null") and not each.keys() & {"enum", "format"}
        for each in members
    )


def _has_open_items(schema: Schema) -> bool:
    if schema.get("type") != "array":
        return False
    return any(map(_is_open, schema.get("prefixItems", [schema.get("items", {})])))


def _is_open(schema: Schema) -> bool:
    """Return whether a schema allows any value."""
    members = schema.get("anyOf", (schema,))
    return any(each.keys() <= {"description", "default", "title"} for each in members)


class OutputDeriver(Deriver):
    """Derives the type schemas of results of tools.

    Its objects are open: a function may return an instance of a subclass.
    """

    is_written = True

    def _anything(self) -> TypeSchema:
        return TypeSchema({}, ANYTHING)

    def _derive_plain(self, hint: Any) -> TypeSchema:
        if isinstance(hint, type) and issubclass(hint, ExplicitResult):
            raise UnsupportedType(f"{hint.__name__} is content, which any tool may return")
        if hint is datetime or hint is time:
            # A handler may return one without an offset, which the format would not allow.
            return TypeSchema({"type": "string"}, frozenset((str,)))
        return super()._derive_plain(hint)

    def _union(self, alternatives: Sequence[TypeSchema]) -> TypeSchema:
        from .unions import union_schema

        accepts = frozenset[type]().union(*(derived.accepts for derived in alternatives))
        return TypeSchema(union_schema([derived.schema for derived in alternatives]), accepts)

    def _mapping(self, key: TypeSchema, item: TypeSchema) -> TypeSchema:
        if key.accepts & {list, dict} or "$ref" in key.schema:
            raise UnsupportedType("the keys of a JSON object are texts, and no arrays or objects")
        if key.accepts != {str} and key.schema:  # numbers and the like are written as texts
            key = TypeSchema({"type": "string"}, frozenset((str,)))
        return super()._mapping(TypeSchema(key.schema, key.accepts), item)

    def members(self, hint: Any) -> Sequence[Member]:
        from .classes import written_members_of

        return written_members_of(hint, self.names)
