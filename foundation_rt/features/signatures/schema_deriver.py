"""The walk over a type.

The keywords have one meaning in draft-07 and in 2020-12, but for those of tuples
(TYPED-86).

Modules that only some types need are imported with the first such type.
"""

from __future__ import annotations

import collections.abc
import enum
import sys
import types
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .annotations import Names
from .type_schema import (
    ANYTHING,
    COMPUTED,
    REQUIRED,
    NoneType,
    Schema,
    TypeSchema,
    UnsupportedType,
    any_value,
    plain_type,
)

if TYPE_CHECKING:
    from .classes import Member
    from .converters import Converter
    from .named_types import NamedTypes


_MODULES_OF_TEXTS = ("datetime", "uuid")
"""Their classes are found first, as plain types; of the other classes written as texts, few are."""

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
        self._named_types: NamedTypes | None = None

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
            self._put_default(derived, default, hint)
        return derived

    def _put_default(self, derived: TypeSchema, default: Any, hint: Any) -> None:
        """Advertise a default; refuse one that is no value of its type (TYPED-69)."""
        from .defaults import is_value, json_default

        advertised = json_default(self._written(default, hint))
        if advertised is not REQUIRED:
            if type(advertised) in derived.accepts:
                derived.schema["default"] = advertised
        elif not is_value(default, hint):
            raise UnsupportedType(
                f"its default, of the type {type(default).__qualname__}, is no value of its type:"
                " give it one, or None, or remove it"
            )

    def _written(self, default: Any, hint: Any) -> Any:
        """Return a default as its type says that it is written."""
        if not self.has_writers:
            return default
        from .writers import writer_of

        write = writer_of(hint, self.names)
        return default if write is None else write(default)

    def definitions(self) -> dict[str, Schema]:
        """Return the schemas for ``definitions``; call it once, after the last `derive`."""
        return {} if self._named_types is None else self._named_types.definitions()

    @property
    def _named(self) -> NamedTypes:
        if self._named_types is None:
            from .named_types import NamedTypes

            self._named_types = NamedTypes(self)
        return self._named_types

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
            from .enumerations import enumeration

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
        if (plain := plain_type(hint)) is not None:
            return plain
        is_text = isinstance(hint, type) and hint.__module__ in _MODULES_OF_TEXTS
        if is_text and (derived := self._text(hint)):
            return derived
        if isinstance(hint, typing.NewType):
            return self._derive(hint.__supertype__)
        if hint is typing.Self and self._named.classes:
            return self._named.of_class(self._named.classes[-1])
        if type(hint).__name__ == "TypeAliasType":
            return self._named.of_alias(hint)
        if isinstance(hint, typing.TypeVar):
            from .generics import meaning

            return self._derive(meaning(hint))
        if not isinstance(hint, type):
            raise UnsupportedType(f"{hint!r} is not a type that JSON Schema can describe")
        if hint is tuple:
            return self._tuple((Any, ...))
        if hint in _DICTS or hint in _LISTS or hint in _SETS:
            return self._container(hint, ())
        if issubclass(hint, enum.Enum) and not issubclass(hint, enum.Flag):
            from .enumerations import enumerated, is_by_name

            self.has_writers |= is_by_name(hint)
            return enumerated(hint)
        if adapted := self._adapted(hint):
            return adapted
        from .classes import is_class_with_members, is_typed_class

        if is_class_with_members(hint):
            return self._named.of_class(hint)
        if derived := self._text(hint):
            return derived
        if self.is_written and is_typed_class(hint):
            self.has_writers = True
            return self._named.of_class(hint)
        raise UnsupportedType(f"{hint.__module__}.{hint.__qualname__} has no form in JSON")

    def _text(self, hint: type) -> TypeSchema | None:
        """Return the type schema of a type of the standard library that is written as a text."""
        from .scalars import text_schema

        return text_schema(hint, is_written=self.is_written)

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
            from .enumerations import enumerated

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
            return TypeSchema(_array(item), frozenset((list,)), _array_converter(item, make))
        if origin in _SETS:
            (item,) = map(self._derive, arguments or (Any,))
            # In Python True and 1 are one element, in JSON two.
            if item.accepts & {list, dict} or {bool, int} <= item.accepts:
                if self.is_written:
                    return TypeSchema(_array(item), frozenset((list,)))
                raise UnsupportedType("a set can hold strings, or numbers, or booleans: say which")
            convert = _array_converter(item, _SETS[origin])
            return TypeSchema({**_array(item), "uniqueItems": True}, frozenset((list,)), convert)
        derived = self._mapping(*map(self._derive, arguments or (str, Any)))
        if origin is collections.OrderedDict:
            from .containers import then

            derived.convert = then(derived.convert, collections.OrderedDict)
        return derived

    def _with_arguments(self, hint: Any, origin: Any, arguments: Sequence[Any]) -> TypeSchema:
        """Return the type schema of a set, or of a generic class or alias with its arguments."""
        if origin in _SETS:
            return self._container(origin, arguments)
        if type(origin).__name__ == "TypeAliasType":
            from .generics import alias_value

            return self._derive(alias_value(origin, tuple(arguments)))
        from .classes import is_class_with_members

        if isinstance(origin, type) and is_class_with_members(origin):
            return self._named.of_class(hint)
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
        self._named.share(
            adapted.schema, definitions, {n: closure(n, definitions) for n in definitions}
        )
        return adapted.type_schema()

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
        if key.convert is None and item.convert is None:
            return TypeSchema(schema, frozenset((dict,)))
        from .containers import mapping_converter

        return TypeSchema(schema, frozenset((dict,)), mapping_converter(key.convert, item.convert))

    def _tuple(self, arguments: Sequence[Any]) -> TypeSchema:
        if len(arguments) == 2 and arguments[1] is ...:
            item = self._derive(arguments[0])
            return TypeSchema(_array(item), frozenset((list,)), _array_converter(item, tuple))
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
        from .containers import tuple_converter

        convert = tuple_converter([item.convert for item in items])
        return TypeSchema(schema, frozenset((list,)), convert)

    def members(self, hint: Any) -> Sequence[Member]:
        from .classes import members_of

        return members_of(hint, self.names)


def _array(item: TypeSchema) -> Schema:
    return {"type": "array", "items": item.schema} if item.schema else {"type": "array"}


def _array_converter(item: TypeSchema, make: Callable[[list[Any]], Any] | None) -> Converter | None:
    """Return the converter of an array; None if its JSON value is its value."""
    if make is None and item.convert is None:
        return None
    from .containers import array_converter

    return array_converter(make, item.convert)
