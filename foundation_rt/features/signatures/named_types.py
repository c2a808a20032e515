"""Classes and aliases in the types of one function; each is derived once.

A class stands in the schema where it is used; one that is used more than once, by itself for
example, stands in ``definitions`` (TYPED-11). Imported for the first class or alias.
"""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any

from .annotations import UnresolvedName
from .classes import class_description, class_name, is_typed_dict, tags
from .containers import object_converter
from .type_schema import ANYTHING, REQUIRED, Schema, TypeSchema, UnsupportedType

if TYPE_CHECKING:
    from .classes import Member
    from .converters import Converter
    from .schema_deriver import Deriver


class _Named:
    """A class or an alias, and the places in the schema that refer to it."""

    def __init__(self, name: str, derived: TypeSchema) -> None:
        self.name = name
        self.derived = derived
        self.places: list[Schema] = []


class NamedTypes:
    """Derives the classes and aliases of one function.

    Args:
        deriver: derives the types of their members.

    Attributes:
        classes: those whose members are being derived, outermost first.
    """

    def __init__(self, deriver: Deriver) -> None:
        self.classes: list[type] = []
        self._deriver = deriver
        self._named: dict[Any, _Named] = {}

    def of_class(self, hint: Any) -> TypeSchema:
        """Return the type schema of a class with members, generic or not."""
        if hint in self._named:
            return _refer(self._named[hint])
        cls: type = typing.get_origin(hint) or hint
        members = self._deriver.members(hint)
        converters_: dict[str, Converter | None] = {}
        required = [member.key for member in members if member.default is REQUIRED]
        convert = object_converter(dict if is_typed_dict(cls) else cls, converters_, required)
        properties: Schema = {}
        schema: Schema = {"type": "object", "properties": properties, "required": required}
        if not self._deriver.is_written:  # a function may return an instance of a subclass
            schema["additionalProperties"] = False
        if description := class_description(cls):
            schema["description"] = description
        written = TypeSchema(schema, frozenset((dict,)), convert, members)
        named = self._name(hint, class_name(hint), written)
        self.classes.append(hint)
        for member in members:
            derived = self._member(member)
            properties[member.key], converters_[member.key] = (
                derived.schema,
                derived.convert,
            )
        self.classes.pop()
        # Tags first: a tag then rules out a member of a union before anything inside it is checked.
        # In classes that contain their own union the other order takes 2^depth steps.
        ordered = {key: properties[key] for key in tags(members)} | properties
        properties.clear()
        properties.update(ordered)
        if is_typed_dict(cls) and not any(converters_.values()):
            named.derived.convert = None
        return _refer(named)

    def _member(self, member: Member) -> TypeSchema:
        try:
            derived = self._deriver.derive(
                member.hint, description=member.description, default=member.default
            )
            if member.validator is not None:
                from .attrs_validators import put_limits

                put_limits(member.validator, derived.schema)
            return derived
        except UnsupportedType as error:
            raise UnsupportedType(f"{self.classes[-1].__name__}.{member.key}: {error}") from None

    def of_alias(self, alias: Any) -> TypeSchema:
        """Return the type schema of a ``type`` statement; one that contains itself is shared."""
        if alias in self._named:
            return _refer(self._named[alias])

        def convert(value: Any) -> Any:
            return value if derived.convert is None else derived.convert(value)

        named = self._name(alias, alias.__name__, TypeSchema({}, ANYTHING, convert))
        try:
            value = self._deriver.names.resolve(alias.__value__)
        except (UnresolvedName, NameError) as error:  # a `type` statement is evaluated here
            raise UnsupportedType(f"{alias.__name__} cannot be resolved: {error}") from None
        derived = self._deriver.derive(value)
        if not named.places:
            del self._named[alias]
            return derived
        named.derived = derived
        return _refer(named)

    def share(self, schema: Schema, definitions: dict[str, Schema], keys: dict[str, bytes]) -> None:
        """Make the references in a schema of pydantic refer to definitions of our own."""
        from .pydantic_models import places, reference_name

        for place in [*places(schema)]:
            name = reference_name(place)
            is_new = keys[name] not in self._named
            named = (
                self._name(keys[name], name, TypeSchema(definitions[name], ANYTHING))
                if is_new
                else self._named[keys[name]]
            )
            place["$ref"] = f"#/definitions/{named.name}"
            named.places.append(place)
            if is_new:
                self.share(definitions[name], definitions, keys)

    def definitions(self) -> dict[str, Schema]:
        """Return the schemas for ``definitions``; call it once, after the last type."""
        shared = {}
        # A class named later stands inside one named earlier: it has to be in place first.
        for named in reversed(self._named.values()):
            schema = named.derived.schema
            if len(named.places) == 1:
                (place,) = named.places
                del place["$ref"]
                place.update({**schema, **place})
                continue
            shared[named.name] = schema
            for place in named.places:
                reference = {"$ref": place.pop("$ref")}
                # draft-07 ignores the keywords beside a $ref, 2020-12 does not.
                place.update({"allOf": [reference]} if place else reference)
        return shared

    def _name(self, key: Any, wanted: str, derived: TypeSchema) -> _Named:
        taken = {named.name for named in self._named.values()}
        # A $ref is a URI reference, and a name in it is a step of a JSON pointer.
        stem = "".join(c if c.isascii() and c.isalnum() else "_" for c in wanted)
        name, count = stem, 1
        while name in taken:
            count += 1
            name = f"{stem}_{count}"
        named = self._named[key] = _Named(name, derived)
        return named


def _refer(named: _Named) -> TypeSchema:
    place = {"$ref": f"#/definitions/{named.name}"}
    named.places.append(place)
    return TypeSchema(place, named.derived.accepts, named.derived.convert, named.derived.members)
