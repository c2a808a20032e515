"""The walk over a type.

The keywords have one meaning in draft-07 and in 2020-12, but for those of tuples
(TYPED-86). A class stands in the schema where it is used; one that is used more than once, by
itself for example, stands in ``definitions`` (TYPED-11).

Modules that only some types need are imported with the first such type.
"""

from __future__ import annotations

import collections.abc
import enum
import sys
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
    COMPUTED,
    NUMBERS,
    ORDER,
    REQUIRED,
    Checked,
    NoneType,
    Schema,
    TypeSchema,
    UnsupportedType,
    any_value,
    enumerated,
    enumeration,
    is_by_name,
    json_default,
)

if TYPE_CHECKING:
    from .classes import Member


class _Named:
    """A class or an alias, and the places in the schema that refer to it."""

    def __init__(self, name: str, derived: TypeSchema) -> None:
        self.name = name
        self.derived = derived
        self.places: list[Schema] = []


def _text(
    make_converter: Callable[[], Converter], compared: type | None = None, **keywords: str
) -> Callable[[], TypeSchema]:
    checked = None if compared is None else Checked(ORDER, compared)
    return lambda: TypeSchema(
        {"type": "string", **keywords}, frozenset((str,)), make_converter(), checked=checked
    )


# draft-07 knows no format "uuid", so the pattern says it as well.
_UUID = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"

_SCALARS: dict[Any, Callable[[], TypeSchema]] = {
    None: lambda: TypeSchema({"type": "null"}, frozenset((NoneType,))),
    NoneType: lambda: TypeSchema({"type": "null"}, frozenset((NoneType,))),
    str: lambda: TypeSchema({"type": "string"}, frozenset((str,))),
    bool: lambda: TypeSchema({"type": "boolean"}, frozenset((bool,))),
    int: lambda: TypeSchema({"type": "integer"}, NUMBERS, converters.convert_integer),
    float: lambda: TypeSchema({"type": "number"}, NUMBERS, converters.convert_number),
    date: _text(converters.date_converter, date, format="date"),
    datetime: _text(converters.date_time_converter, datetime, format="date-time"),
    time: _text(converters.time_converter, time, format="time"),
    UUID: _text(converters.uuid_converter, format="uuid", pattern=_UUID),
}

_LISTS = (
    list,
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Collection,
    collections.abc.Iterable,
    collections.deque,
)
_SETS: dict[Any, Callable[[list[Any]], Any]] = {
    set: set,
    frozenset: frozenset,
    collections.abc.Set: frozenset,
    collections.abc.MutableSet: set,
}
_DICTS = (
    dict,
    collections.abc.Mapping,
    collections.abc.MutableMapping,
    collections.OrderedDict,
)


class Deriver:
    """Derives the type schemas of one function, and keeps the classes that they share.

    Attributes:
        names: those that its annotations may use; the classes it uses may use them too.
        is_written: the values are those that are written, not those that are read.
        has_writers: a type says itself how its values are written (`writers`).
    """

    is_written = False
    has_writers = False

    def __init__(self, names: Names) -> None:
        self.names = names
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
        if default is not REQUIRED and default is not COMPUTED:
            advertised = json_default(self._written(default, hint))
            if advertised is REQUIRED:
                _check_default(default, hint)
            elif type(advertised) in derived.accepts:
                derived.schema["default"] = advertised
        return derived

    def _written(self, default: Any, hint: Any) -> Any:
        """Return a default as its type says that it is written."""
        if not self.has_writers:
            return default
        from .writers import writer_of

        write = writer_of(hint, self.names)
        return default if write is None else write(default)

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
            return self._adapted(hint) or self._union([self._derive(one) for one in arguments])
        if origin is typing.Literal:
            return enumeration([(v.value if isinstance(v, enum.Enum) else v, v) for v in arguments])
        if origin is tuple:
            return self._tuple(arguments)
        if origin in (typing.Required, typing.NotRequired):
            return self._derive(arguments[0])
        if origin in _LISTS or origin in _DICTS:
            return self._container(origin, arguments)
        return self._adapted(hint) or self._with_arguments(hint, origin, arguments)

    def _derive_plain(self, hint: Any) -> TypeSchema:
        """Return the type schema of a type without arguments."""
        if hint is Any or hint is object:
            return self._anything()
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
        if isinstance(hint, typing.TypeVar):
            from .generics import meaning

            return self._derive(meaning(hint))
        if not isinstance(hint, type):
            if adapted := self._adapted(hint):
                return adapted
            raise UnsupportedType(f"{hint!r} is not a type that JSON Schema can describe")
        if hint is tuple:
            return self._tuple((Any, ...))
        if hint in _DICTS or hint in _LISTS or hint in _SETS:
            return self._container(hint, ())
        if issubclass(hint, enum.Enum) and not issubclass(hint, enum.Flag):
            self.has_writers |= is_by_name(hint)
            return enumerated(hint)
        if adapted := self._adapted(hint):
            return adapted
        from .classes import is_class_with_members, is_typed_class

        if is_class_with_members(hint):
            return self._class(hint)
        from .scalars import text_schema

        if derived := text_schema(hint, is_written=self.is_written):
            return derived
        if self.is_written and is_typed_class(hint):
            self.has_writers = True
            return self._class(hint)
        raise UnsupportedType(f"{hint.__module__}.{hint.__qualname__} has no form in JSON")

    def _anything(self) -> TypeSchema:
        """Return the type schema of any JSON value (TYPED-06)."""
        return TypeSchema(any_value(), ANYTHING)

    def _annotated(self, hint: Any, metadata: Sequence[Any]) -> TypeSchema:
        from .constraints import ByName, constrain

        derived: TypeSchema | None = None
        if "pydantic" in sys.modules:
            from .pydantic_fields import divided

            theirs, metadata = divided(metadata)
            if theirs:
                derived = self._adapt(typing.Annotated[hint, *theirs])
        if any(isinstance(marker, ByName) for marker in metadata):
            metadata = [marker for marker in metadata if not isinstance(marker, ByName)]
            derived = self._by_name(hint)
        derived = derived or self._derive(hint)
        for marker in metadata:
            constrain(derived, marker)
        return derived

    def _by_name(self, hint: Any) -> TypeSchema:
        """Return the type schema of an enumeration by its names, alone or in a union."""
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            self.has_writers = True
            return enumerated(hint, by_name=True)
        if typing.get_origin(hint) not in (typing.Union, types.UnionType):
            raise UnsupportedType("ByName applies to an Enum or to a union with one")
        found = [
            self._derive(one) if one is NoneType else self._by_name(one)
            for one in typing.get_args(hint)
        ]
        return self._union(found)

    def _union(self, alternatives: Sequence[TypeSchema]) -> TypeSchema:
        from .unions import union

        return union(alternatives)

    def _container(self, origin: Any, arguments: Sequence[Any]) -> TypeSchema:
        if origin in _LISTS:
            (item,) = map(self._derive, arguments or (Any,))
            make = collections.deque if origin is collections.deque else None
            convert = (make or item.convert) and converters.array_converter(make, item.convert)
            return TypeSchema(_array(item), frozenset((list,)), convert)
        if origin in _SETS:
            (item,) = map(self._derive, arguments or (Any,))
            # In Python True and 1 are one element, in JSON two.
            if item.accepts & {list, dict} or {bool, int} <= item.accepts:
                if self.is_written:
                    return TypeSchema(_array(item), frozenset((list,)))
                raise UnsupportedType("a set can hold strings, or numbers, or booleans: say which")
            convert = converters.array_converter(_SETS[origin], item.convert)
            return TypeSchema({**_array(item), "uniqueItems": True}, frozenset((list,)), convert)
        if origin in _DICTS:
            derived = self._mapping(*map(self._derive, arguments or (str, Any)))
            if origin is collections.OrderedDict:
                derived.convert = converters.then(derived.convert, collections.OrderedDict)
            return derived
        raise UnsupportedType(f"{origin!r} with type arguments has no form in JSON")

    def _with_arguments(self, hint: Any, origin: Any, arguments: Sequence[Any]) -> TypeSchema:
        """Return the type schema of a set, or of a generic class or alias with its arguments."""
        if origin in _SETS:
            return self._container(origin, arguments)
        if type(origin).__name__ == "TypeAliasType":
            from .generics import alias_value

            return self._derive(alias_value(origin, tuple(arguments)))
        from .classes import is_class_with_members

        if isinstance(origin, type) and is_class_with_members(origin):
            return self._class(hint)
        raise UnsupportedType(f"{origin!r} with type arguments has no form in JSON")

    def _adapted(self, hint: Any) -> TypeSchema | None:
        """Return the type schema of what only pydantic can convert; None for anything else."""
        if "pydantic" not in sys.modules:
            return None
        from .pydantic_models import needs_pydantic

        return self._adapt(hint) if needs_pydantic(hint) else None

    def _adapt(self, hint: Any) -> TypeSchema:
        from .pydantic_fields import is_serialized
        from .pydantic_models import Adapted, closure

        adapted = Adapted(hint, is_written=self.is_written)
        self.has_writers |= any(map(is_serialized, (hint, *typing.get_args(hint))))
        definitions = adapted.definitions
        self._share(adapted.schema, definitions, {n: closure(n, definitions) for n in definitions})
        return adapted.type_schema()

    def _share(
        self, schema: Schema, definitions: dict[str, Schema], keys: dict[str, bytes]
    ) -> None:
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
                self._share(definitions[name], definitions, keys)

    def _mapping(self, key: TypeSchema, item: TypeSchema) -> TypeSchema:
        if key.accepts != {str} or (key.convert and "enum" not in key.schema):
            raise UnsupportedType(
                "the keys of a JSON object can only be str, or members of an Enum of strings"
            )
        schema: Schema = {"type": "object"}
        if key.schema != {"type": "string"}:
            schema["propertyNames"] = key.schema
        if item.schema not in ({}, any_value()):
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
            from .unions import tuple_items

            # Derived again, for each place has a schema of its own.
            again = [self._derive(argument).schema for argument in arguments]
            schema |= tuple_items([item.schema for item in items], again)
        convert = converters.tuple_converter([item.convert for item in items])
        return TypeSchema(schema, frozenset((list,)), convert)

    def _class(self, hint: Any) -> TypeSchema:
        """Return the type schema of a class with members, generic or not."""
        if hint in self._named:
            return _refer(self._named[hint])
        from .classes import class_description, class_name, is_typed_dict, tags

        cls: type = typing.get_origin(hint) or hint
        members = self._members(hint)
        converters_: dict[str, Converter | None] = {}
        required = [member.key for member in members if member.default is REQUIRED]
        convert = converters.object_converter(
            dict if is_typed_dict(cls) else cls, converters_, required
        )
        properties: Schema = {}
        schema: Schema = {"type": "object", "properties": properties, "required": required}
        if not self.is_written:  # a function may return an instance of a subclass
            schema["additionalProperties"] = False
        if description := class_description(cls):
            schema["description"] = description
        written = TypeSchema(schema, frozenset((dict,)), convert, members)
        named = self._name(hint, class_name(hint), written)
        self._classes.append(hint)
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

    def _members(self, hint: Any) -> Sequence[Member]:
        from .classes import members_of

        return members_of(hint, self.names)

    def _member(self, member: Member) -> TypeSchema:
        try:
            derived = self.derive(
                member.hint, description=member.description, default=member.default
            )
            if member.validator is not None:
                from .attrs_validators import put_limits

                put_limits(member.validator, derived.schema)
            return derived
        except UnsupportedType as error:
            raise UnsupportedType(f"{self._classes[-1].__name__}.{member.key}: {error}") from None

    def _alias(self, alias: Any) -> TypeSchema:
        """Return the type schema of a ``type`` statement; one that contains itself is shared."""
        if alias in self._named:
            return _refer(self._named[alias])

        def convert(value: Any) -> Any:
            return value if derived.convert is None else derived.convert(value)

        named = self._name(alias, alias.__name__, TypeSchema({}, ANYTHING, convert))
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


def _check_default(default: Any, hint: Any) -> None:
    """Refuse a default that JSON cannot express and that is no value of the type (TYPED-69)."""
    from .defaults import is_value

    if not is_value(default, hint):
        raise UnsupportedType(
            f"its default, of the type {type(default).__qualname__}, is no value of its type: give "
            "it one, or None, or remove it"
        )


def _array(item: TypeSchema) -> Schema:
    return {"type": "array", "items": item.schema} if item.schema else {"type": "array"}
