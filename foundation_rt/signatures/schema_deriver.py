"""The walk over a type.

The keywords have one meaning in draft-07 and in 2020-12; the one exception comes with its dialect
(TYPED-12). A class stands in the schema where it is used; one that is used more than once, by
itself for example, stands in ``definitions`` (TYPED-11).

Modules that only some types need are imported with the first such type.
"""

from __future__ import annotations

import collections.abc
import enum
import types
import typing
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any
from uuid import UUID

from . import converters
from .annotations import Names, UnresolvedName
from .converters import Converter
from .type_schema import (
    ANYTHING,
    NUMBERS,
    REQUIRED,
    NoneType,
    Schema,
    TypeSchema,
    UnsupportedType,
    enumeration,
    json_default,
)

if TYPE_CHECKING:
    from .classes import Member

DIALECT = "http://json-schema.org/draft-07/schema#"


class _Named:
    """A class or an alias, and the places in the schema that refer to it."""

    def __init__(self, name: str, derived: TypeSchema) -> None:
        self.name = name
        self.derived = derived
        self.places: list[Schema] = []


def _text(make_converter: Callable[[], Converter], **keywords: str) -> Callable[[], TypeSchema]:
    return lambda: TypeSchema({"type": "string", **keywords}, frozenset((str,)), make_converter())


# draft-07 knows no format "uuid", so the pattern says it as well.
_UUID = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"

_SCALARS: dict[Any, Callable[[], TypeSchema]] = {
    Any: lambda: TypeSchema({}, ANYTHING),
    object: lambda: TypeSchema({}, ANYTHING),
    None: lambda: TypeSchema({"type": "null"}, frozenset((NoneType,))),
    NoneType: lambda: TypeSchema({"type": "null"}, frozenset((NoneType,))),
    str: lambda: TypeSchema({"type": "string"}, frozenset((str,))),
    bool: lambda: TypeSchema({"type": "boolean"}, frozenset((bool,))),
    int: lambda: TypeSchema({"type": "integer"}, NUMBERS, converters.convert_integer),
    float: lambda: TypeSchema({"type": "number"}, NUMBERS, converters.convert_number),
    date: _text(converters.date_converter, format="date"),
    datetime: _text(converters.date_time_converter, format="date-time"),
    time: _text(converters.time_converter, format="time"),
    UUID: _text(converters.uuid_converter, format="uuid", pattern=_UUID),
}

_LISTS = (
    list,
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Collection,
    collections.abc.Iterable,
)
_SETS: dict[Any, Callable[[list[Any]], Any]] = {
    set: set,
    frozenset: frozenset,
    collections.abc.Set: frozenset,
    collections.abc.MutableSet: set,
}
_DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


class Deriver:
    """Derives the type schemas of one function, and keeps the classes that they share.

    Attributes:
        names: those that its annotations may use; the classes it uses may use them too.
        needs_dialect: a schema uses a keyword that draft-07 and 2020-12 read differently.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self.needs_dialect = False
        self._named: dict[Any, _Named] = {}
        self._classes: list[type] = []  # the ones whose members are being derived, outermost first

    def derive(self, hint: Any, *, description: str = "", default: Any = REQUIRED) -> TypeSchema:
        """Return the type schema of a parameter or of a member.

        Args:
            hint: its type, resolved.
            description: of the place; one inside the type's own ``Annotated`` comes first.
            default: advertised if JSON can express it and the type takes it (TYPED-03).

        Raises:
            UnsupportedType: the type has no schema.
        """
        derived = self._derive(hint)
        if description:
            derived.schema.setdefault("description", description)
        if default is not REQUIRED:
            advertised = json_default(default)
            if type(advertised) in derived.accepts:
                derived.schema["default"] = advertised
        return derived

    def definitions(self) -> dict[str, Schema]:
        """Return the schemas for ``definitions``; call it once, after the last `derive`."""
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

    def _derive(self, hint: Any) -> TypeSchema:
        origin = typing.get_origin(hint)
        if origin is None:
            return self._derive_plain(hint)
        arguments = typing.get_args(hint)
        if origin is typing.Annotated:
            return self._annotated(arguments[0], arguments[1:])
        if origin in (typing.Union, types.UnionType):
            return self._union([self._derive(argument) for argument in arguments])
        if origin is typing.Literal:
            return enumeration([(v.value if isinstance(v, enum.Enum) else v, v) for v in arguments])
        if origin is tuple:
            return self._tuple(arguments)
        if origin in (typing.Required, typing.NotRequired):
            return self._derive(arguments[0])
        return self._container(origin, arguments)

    def _derive_plain(self, hint: Any) -> TypeSchema:
        """Return the type schema of a type without arguments."""
        if hint is None or isinstance(hint, type):
            scalar = _SCALARS.get(hint)
            if scalar is not None:
                return scalar()
        if isinstance(hint, typing.NewType):
            return self._derive(hint.__supertype__)
        if hint is typing.Self and self._classes:
            return self._class(self._classes[-1])
        if type(hint).__name__ == "TypeAliasType":
            return self._alias(hint)
        if not isinstance(hint, type):
            raise UnsupportedType(f"{hint!r} is not a type that JSON Schema can describe")
        if hint is tuple:
            return self._tuple((Any, ...))
        if hint in _DICTS or hint in _LISTS or hint in _SETS:
            return self._container(hint, ())
        if issubclass(hint, enum.Enum) and not issubclass(hint, enum.Flag):
            return enumeration([(member.value, member) for member in hint])
        from .classes import is_class_with_members

        if is_class_with_members(hint):
            return self._class(hint)
        raise UnsupportedType(f"{hint.__module__}.{hint.__qualname__} has no form in JSON")

    def _annotated(self, hint: Any, metadata: Sequence[Any]) -> TypeSchema:
        derived = self._derive(hint)
        for marker in metadata:
            if isinstance(marker, str):
                derived.schema["description"] = marker
            else:
                from .constraints import constrain

                constrain(derived, marker)
        return derived

    def _union(self, alternatives: Sequence[TypeSchema]) -> TypeSchema:
        from .unions import union

        return union(alternatives)

    def _container(self, origin: Any, arguments: Sequence[Any]) -> TypeSchema:
        if origin in _LISTS:
            (item,) = map(self._derive, arguments or (Any,))
            convert = item.convert and converters.array_converter(None, item.convert)
            return TypeSchema(_array(item), frozenset((list,)), convert)
        if origin in _SETS:
            (item,) = map(self._derive, arguments or (Any,))
            # In Python True and 1 are one element, in JSON two.
            if item.accepts & {list, dict} or {bool, int} <= item.accepts:
                raise UnsupportedType("a set can hold strings, or numbers, or booleans: say which")
            convert = converters.array_converter(_SETS[origin], item.convert)
            return TypeSchema({**_array(item), "uniqueItems": True}, frozenset((list,)), convert)
        if origin in _DICTS:
            return self._mapping(*map(self._derive, arguments or (str, Any)))
        raise UnsupportedType(f"{origin!r} with type arguments has no form in JSON")

    def _mapping(self, key: TypeSchema, item: TypeSchema) -> TypeSchema:
        if key.accepts != {str} or (key.convert and "enum" not in key.schema):
            raise UnsupportedType(
                "the keys of a JSON object can only be str, or members of an Enum of strings"
            )
        schema: Schema = {"type": "object"}
        if key.schema != {"type": "string"}:
            schema["propertyNames"] = key.schema
        if item.schema:
            schema["additionalProperties"] = item.schema
        converts = key.convert or item.convert
        convert = converters.mapping_converter(key.convert, item.convert) if converts else None
        return TypeSchema(schema, frozenset((dict,)), convert)

    def _tuple(self, arguments: Sequence[Any]) -> TypeSchema:
        if len(arguments) == 2 and arguments[1] is ...:
            item = self._derive(arguments[0])
            convert = converters.array_converter(tuple, item.convert)
            return TypeSchema(_array(item), frozenset((list,)), convert)
        count = len(arguments)
        schema: Schema = {"type": "array", "minItems": count, "maxItems": count}
        if all(argument == arguments[0] for argument in arguments):
            items = [self._derive(argument) for argument in arguments[:1]] * count
            if items:
                schema["items"] = items[0].schema
        else:
            items = [self._derive(argument) for argument in arguments]
            schema.update(items=[item.schema for item in items], additionalItems=False)
            self.needs_dialect = True
        convert = converters.tuple_converter([item.convert for item in items])
        return TypeSchema(schema, frozenset((list,)), convert)

    def _class(self, cls: type) -> TypeSchema:
        if cls in self._named:
            return _refer(self._named[cls])
        from .classes import class_description, is_typed_dict, tags

        members = self._members(cls)
        converters_: dict[str, Converter | None] = {}
        required = [member.key for member in members if member.default is REQUIRED]
        convert = converters.object_converter(
            dict if is_typed_dict(cls) else cls, converters_, required
        )
        properties: Schema = {}
        schema: Schema = {"type": "object", "properties": properties, "required": required}
        schema["additionalProperties"] = False
        if description := class_description(cls):
            schema["description"] = description
        named = self._name(cls, TypeSchema(schema, frozenset((dict,)), convert, members))
        self._classes.append(cls)
        for member in members:
            derived = self._member(member)
            properties[member.key], converters_[member.key] = (
                derived.schema,
                derived.convert,
            )
        self._classes.pop()
        # Tags first: a tag then rules out a member of a union before anything inside it is checked.
        # In classes that contain their own union the other order takes 2^depth steps.
        ordered = {key: properties[key] for key in tags(members)} | properties
        properties.clear()
        properties.update(ordered)
        if is_typed_dict(cls) and not any(converters_.values()):
            named.derived.convert = None
        return _refer(named)

    def _members(self, cls: type) -> Sequence[Member]:
        from .classes import members_of

        return members_of(cls, self.names)

    def _member(self, member: Member) -> TypeSchema:
        try:
            return self.derive(member.hint, description=member.description, default=member.default)
        except UnsupportedType as error:
            raise UnsupportedType(f"{self._classes[-1].__name__}.{member.key}: {error}") from None

    def _alias(self, alias: Any) -> TypeSchema:
        """Return the type schema of a ``type`` statement; one that contains itself is shared."""
        if alias in self._named:
            return _refer(self._named[alias])

        def convert(value: Any) -> Any:
            return value if derived.convert is None else derived.convert(value)

        named = self._name(alias, TypeSchema({}, ANYTHING, convert))
        try:
            value = self.names.resolve(alias.__value__)
        except (UnresolvedName, NameError) as error:  # a `type` statement is evaluated here
            raise UnsupportedType(f"{alias.__name__} cannot be resolved: {error}") from None
        derived = self._derive(value)
        if not named.places:
            del self._named[alias]
            return derived
        named.derived = derived
        return _refer(named)

    def _name(self, key: Any, derived: TypeSchema) -> _Named:
        taken = {named.name for named in self._named.values()}
        # A $ref is a URI reference, and a name in it is a step of a JSON pointer.
        stem = "".join(c if c.isascii() and c.isalnum() else "_" for c in key.__name__)
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


def _array(item: TypeSchema) -> Schema:
    return {"type": "array", "items": item.schema} if item.schema else {"type": "array"}
