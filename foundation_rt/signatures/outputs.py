"""The walk over a return type: the schema of what its values look like once they are written.

What is written is easier than what is read: a union needs no telling apart, and an instance has
all of its attributes. It also has names of its own: a constructor's parameters are not its
attributes (TYPED-26).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..protocol.shaped import Shaped
from .schema_deriver import DIALECT, Deriver
from .type_schema import Form, Schema, Underivable
from .unions import union_schema

if TYPE_CHECKING:
    from .annotations import Names
    from .classes import Member


def derive_output_schema(hint: Any, names: Names) -> Schema:
    """The schema of the results of a function that returns `hint`.

    Args:
        hint: the return type, resolved.
        names: what the annotations of the function may name.

    Raises:
        Underivable: the type has no schema.
    """
    deriver = OutputDeriver(names)
    form = deriver.derive(hint)
    definitions = deriver.definitions()
    schema: Schema = {"$schema": DIALECT} if deriver.needs_dialect else {}
    if form.accepts == {dict} and "type" not in form.schema:
        # Until 2025-11-25 a root has to say so itself.
        root = {"allOf": [form.schema]} if "$ref" in form.schema else form.schema
        schema |= {"type": "object", **root}
    else:
        schema |= form.schema
    if definitions:
        schema["definitions"] = definitions
    return schema


class OutputDeriver(Deriver):
    """Derives the forms of what a tool returns."""

    def _bare(self, hint: Any) -> Form:
        if isinstance(hint, type) and issubclass(hint, Shaped):
            raise Underivable(f"{hint.__name__} is content, which any tool may return")
        return super()._bare(hint)

    def _union(self, forms: Sequence[Form]) -> Form:
        accepts = frozenset[type]().union(*(form.accepts for form in forms))
        return Form(union_schema([form.schema for form in forms]), accepts)

    def _container(self, origin: Any, arguments: Sequence[Any]) -> Form:
        form = super()._container(origin, arguments)
        if "uniqueItems" in form.schema:
            raise Underivable("JSON has no sets: return a list")
        return form

    def _members(self, cls: type) -> Sequence[Member]:
        from .classes import written_members_of

        return written_members_of(cls, self.names)
