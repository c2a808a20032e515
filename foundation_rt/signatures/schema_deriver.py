"""The walk over a type.

Only keywords are used that mean the same in draft-07 and in 2020-12, with one exception that
names its dialect (TYPED-12). A class stands in the schema where it is used; one that is used
more than once, by itself for example, stands in ``definitions`` (TYPED-11).

Modules that only some types need are imported when one of those types turns up.
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
from .annotations import Names, Unresolvable
from .converters import Structure
from .type_schema import (
    ANYTHING,
    NUMBERS,
    REQUIRED,
    Form,
    NoneType,
    Schema,
    Underivable,
    finite_form,
    json_default,
)

if TYPE_CHECKING:
    from .classes import Member

DIALECT = "http://json-schema.org/draft-07/schema#"


class _Named:
    """A class or an alias, and the places in the schema that refer to it."""

    def __init__(self, name: str, form: Form) -> None:
        self.name = name
        self.form = form
        self.places: list[Schema] = []


def _text(make_structure: Callable[[], Structure], **keywords: str) -> Callable[[], Form]:
    return lambda: Form({"type": "string", **keywords}, frozenset((str,)), make_structure())


# draft-07 knows no format "uuid", so the pattern says it as well.
_UUID = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"

_SCALARS: dict[Any, Callable[[], Form]] = {
    Any: lambda: Form({}, ANYTHING),
    object: lambda: Form({}, ANYTHING),
    None: lambda: Form({"type": "null"}, frozenset((NoneType,))),
    NoneType: lambda: Form({"type": "null"}, frozenset((NoneType,))),
    str: lambda: Form({"type": "string"}, frozenset((str,))),
    bool: lambda: Form({"type": "boolean"}, frozenset((bool,))),
    int: lambda: Form({"type": "integer"}, NUMBERS, converters.structure_integer),
    float: lambda: Form({"type": "number"}, NUMBERS, converters.structure_number),
    date: _text(converters.date_structure, format="date"),
    datetime: _text(converters.date_time_structure, format="date-time"),
    time: _text(converters.time_structure, format="time"),
    UUID: _text(converters.uuid_structure, format="uuid", pattern=_UUID),
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
    """Derives the forms of one tool's parameters, and keeps what its schema says once.

    Attributes:
        names: what annotations of the tool may name; the classes it uses may name it too.
        needs_dialect: whether a schema uses what draft-07 and 2020-12 read differently.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self.needs_dialect = False
        self._named: dict[Any, _Named] = {}
        self._classes: list[type] = []  # the ones whose members are being derived, outermost first

    def derive(self, hint: Any, *, description: str = "", default: Any = REQUIRED) -> Form:
        """The form of a parameter or of a member.

        Args:
            hint: its type, resolved.
            description: of the place; one inside the type's own ``Annotated`` comes first.
            default: advertised when JSON can say it and the type takes it (TYPED-03).

        Raises:
            Underivable: the type has no schema.
        """
        form = self._form(hint)
        if description:
            form.schema.setdefault("description", description)
        if default is not REQUIRED:
            advertised = json_default(default)
            if type(advertised) in form.accepts:
                form.schema["default"] = advertised
        return form

    def definitions(self) -> dict[str, Schema]:
        """The schemas to be put under ``definitions``; call it once, after the last `derive`."""
        shared = {}
        # What is named later stands inside what is named earlier: it has to be in place first.
        for named in reversed(self._named.values()):
            schema = named.form.schema
            if len(named.places) == 1:
                (place,) = named.places
                del place["$ref"]
                place.update({**schema, **place})
                continue
            shared[named.name] = schema
            for place in named.places:
                reference = {"$ref": place.pop("$ref")}
                # draft-07 ignores what stands beside a $ref, 2020-12 does not.
                place.update({"allOf": [reference]} if place else reference)
        return shared

    def _form(self, hint: Any) -> Form:
        origin = typing.get_origin(hint)
        if origin is None:
            return self._bare(hint)
        arguments = typing.get_args(hint)
        if origin is typing.Annotated:
            return self._annotated(arguments[0], arguments[1:])
        if origin in (typing.Union, types.UnionType):
            return self._union([self._form(argument) for argument in arguments])
        if origin is typing.Literal:
            return finite_form([(v.value if isinstance(v, enum.Enum) else v, v) for v in arguments])
        if origin is tuple:
            return self._tuple(arguments)
        if origin in (typing.Required, typing.NotRequired):
            return self._form(arguments[0])
        return self._container(origin, arguments)

    def _bare(self, hint: Any) -> Form:
        """A type without arguments."""
        if hint is None or isinstance(hint, type):
            scalar = _SCALARS.get(hint)
            if scalar is not None:
                return scalar()
        if isinstance(hint, typing.NewType):
            return self._form(hint.__supertype__)
        if hint is typing.Self and self._classes:
            return self._class(self._classes[-1])
        if type(hint).__name__ == "TypeAliasType":
            return self._alias(hint)
        if not isinstance(hint, type):
            raise Underivable(f"{hint!r} is not a type that JSON Schema can describe")
        if hint is tuple:
            return self._tuple((Any, ...))
        if hint in _DICTS or hint in _LISTS or hint in _SETS:
            return self._container(hint, ())
        if issubclass(hint, enum.Enum) and not issubclass(hint, enum.Flag):
            return finite_form([(member.value, member) for member in hint])
        from .classes import is_class_with_members

        if is_class_with_members(hint):
            return self._class(hint)
        raise Underivable(f"{hint.__module__}.{hint.__qualname__} has no form in JSON")

    def _annotated(self, hint: Any, metadata: Sequence[Any]) -> Form:
        form = self._form(hint)
        for marker in metadata:
            if isinstance(marker, str):
                form.schema["description"] = marker
            else:
                from .constraints import constrain

                constrain(form, marker)
        return form

    def _union(self, forms: Sequence[Form]) -> Form:
        from .unions import union_form

        return union_form(forms)

    def _container(self, origin: Any, arguments: Sequence[Any]) -> Form:
        if origin in _LISTS:
            (item,) = map(self._form, arguments or (Any,))
            structure = item.structure and converters.array_structure(None, item.structure)
            return Form(_array(item), frozenset((list,)), structure)
        if origin in _SETS:
            (item,) = map(self._form, arguments or (Any,))
            # Python holds True and 1 to be one element, JSON holds them to be two.
            if item.accepts & {list, dict} or {bool, int} <= item.accepts:
                raise Underivable("a set can hold strings, or numbers, or booleans: say which")
            structure = converters.array_structure(_SETS[origin], item.structure)
            return Form({**_array(item), "uniqueItems": True}, frozenset((list,)), structure)
        if origin in _DICTS:
            return self._mapping(*map(self._form, arguments or (str, Any)))
        raise Underivable(f"{origin!r} with type arguments has no form in JSON")

    def _mapping(self, key: Form, item: Form) -> Form:
        if key.accepts != {str} or (key.structure and "enum" not in key.schema):
            raise Underivable(
                "the keys of a JSON object can only be str, or members of an Enum of strings"
            )
        schema: Schema = {"type": "object"}
        if key.schema != {"type": "string"}:
            schema["propertyNames"] = key.schema
        if item.schema:
            schema["additionalProperties"] = item.schema
        converts = key.structure or item.structure
        structure = (
            converters.mapping_structure(key.structure, item.structure) if converts else None
        )
        return Form(schema, frozenset((dict,)), structure)

    def _tuple(self, arguments: Sequence[Any]) -> Form:
        if len(arguments) == 2 and arguments[1] is ...:
            item = self._form(arguments[0])
            structure = converters.array_structure(tuple, item.structure)
            return Form(_array(item), frozenset((list,)), structure)
        count = len(arguments)
        schema: Schema = {"type": "array", "minItems": count, "maxItems": count}
        if all(argument == arguments[0] for argument in arguments):
            items = [self._form(argument) for argument in arguments[:1]] * count
            if items:
                schema["items"] = items[0].schema
        else:
            items = [self._form(argument) for argument in arguments]
            schema.update(items=[item.schema for item in items], additionalItems=False)
            self.needs_dialect = True
        structure = converters.tuple_structure([item.structure for item in items])
        return Form(schema, frozenset((list,)), structure)

    def _class(self, cls: type) -> Form:
        if cls in self._named:
            return _refer(self._named[cls])
        from .classes import class_description, is_typed_dict, tags

        members = self._members(cls)
        structures: dict[str, Structure | None] = {}
        required = [member.key for member in members if member.default is REQUIRED]
        structure = converters.object_structure(
            dict if is_typed_dict(cls) else cls, structures, required
        )
        properties: Schema = {}
        schema: Schema = {"type": "object", "properties": properties, "required": required}
        schema["additionalProperties"] = False
        if description := class_description(cls):
            schema["description"] = description
        named = self._name(cls, Form(schema, frozenset((dict,)), structure, members))
        self._classes.append(cls)
        for member in members:
            form = self._member(member)
            properties[member.key], structures[member.key] = form.schema, form.structure
        self._classes.pop()
        # Tags first: a member of a union is then ruled out by its tag before anything inside it is
        # looked at. In classes that contain their own union the other order takes 2^depth steps.
        ordered = {key: properties[key] for key in tags(members)} | properties
        properties.clear()
        properties.update(ordered)
        if is_typed_dict(cls) and not any(structures.values()):
            named.form.structure = None
        return _refer(named)

    def _members(self, cls: type) -> Sequence[Member]:
        from .classes import members_of

        return members_of(cls, self.names)

    def _member(self, member: Member) -> Form:
        try:
            return self.derive(member.hint, description=member.description, default=member.default)
        except Underivable as error:
            raise Underivable(f"{self._classes[-1].__name__}.{member.key}: {error}") from None

    def _alias(self, alias: Any) -> Form:
        """What a ``type`` statement names: written out, unless it contains itself."""
        if alias in self._named:
            return _refer(self._named[alias])

        def structure(value: Any) -> Any:
            return value if form.structure is None else form.structure(value)

        named = self._name(alias, Form({}, ANYTHING, structure))
        try:
            value = self.names.resolve(alias.__value__)
        except (Unresolvable, NameError) as error:  # a `type` statement is evaluated here
            raise Underivable(f"{alias.__name__} cannot be resolved: {error}") from None
        form = self._form(value)
        if not named.places:
            del self._named[alias]
            return form
        named.form = form
        return _refer(named)

    def _name(self, key: Any, form: Form) -> _Named:
        taken = {named.name for named in self._named.values()}
        # A $ref is a URI reference, and a name in it is a step of a JSON pointer.
        stem = "".join(c if c.isascii() and c.isalnum() else "_" for c in key.__name__)
        name, count = stem, 1
        while name in taken:
            count += 1
            name = f"{stem}_{count}"
        named = self._named[key] = _Named(name, form)
        return named


def _refer(named: _Named) -> Form:
    place = {"$ref": f"#/definitions/{named.name}"}
    named.places.append(place)
    return Form(place, named.form.accepts, named.form.structure, named.form.members)


def _array(item: Form) -> Schema:
    return {"type": "array", "items": item.schema} if item.schema else {"type": "array"}
