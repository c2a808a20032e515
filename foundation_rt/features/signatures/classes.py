"""The members of classes that are objects in JSON, in one form (TYPED-10, TYPED-67).

These are attrs classes, dataclasses, typed dicts and named tuples, with type arguments or without.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from .annotations import Names, UnresolvedName, names_of_class, without_metadata
from .docstrings import parse_docstring
from .enumerations import exact
from .type_schema import COMPUTED, REQUIRED, UnsupportedType


@attrs.frozen
class Member:
    """One member of the JSON object that stands for an instance.

    Attributes:
        key: its name: that of the constructor's parameter, which is the alias in an attrs class.
        hint: its type.
        default: its value by default; `REQUIRED` without one; `COMPUTED` if it may be left out
            and there is no value to show.
        description: from the docstring of the class; "" if there is none.
        validator: of the attribute of an attrs class.
    """

    key: str
    hint: Any
    default: Any
    description: str
    validator: Any = None


def is_typed_dict(cls: type) -> bool:
    """Return whether `cls` is a ``TypedDict``, of `typing` or of a backport."""
    return issubclass(cls, dict) and hasattr(cls, "__required_keys__")


def is_class_with_members(cls: type) -> bool:
    """Return whether `members_of` can find the members of `cls`."""
    return (
        attrs.has(cls)
        or dataclasses.is_dataclass(cls)
        or is_typed_dict(cls)
        or _is_named_tuple(cls)
    )


def is_typed_class(cls: type) -> bool:
    """Return whether `cls` is another class whose annotations say what its instances have."""
    if issubclass(cls, str | int | float | dict | list | tuple) or is_class_with_members(cls):
        return False
    if cls.__module__.partition(".")[0] in sys.stdlib_module_names:
        return False
    is_protocol = getattr(cls, "_is_protocol", False)
    return not is_protocol and any(map(_has_annotations, cls.__mro__))


def _has_annotations(cls: type) -> bool:
    # From Python 3.14 a function makes them, which raises for a name that is not there.
    return bool(getattr(cls, "__annotate__", None) or getattr(cls, "__annotations__", None))


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def class_name(hint: Any) -> str:
    """Return a name for a class, or for a generic one with its arguments: "Box_int"."""
    if not typing.get_args(hint):
        return str(hint.__name__)
    from .generics import generic_name

    return generic_name(hint)


def class_description(cls: type) -> str:
    """Return the docstring of `cls` without its sections; "" if it has none of its own."""
    text = _own_docstring(cls)
    return parse_docstring(text, ())[0] if text else ""


def members_of(hint: Any, around: Names) -> Sequence[Member]:
    """Return the members of a class, in order.

    Args:
        hint: a class for which `is_class_with_members` holds; it may have type arguments.
        around: the names of the function or class that uses it.

    Raises:
        UnsupportedType: a type is missing or cannot be resolved.
    """
    cls, hints = _hints(hint, around)
    if is_typed_dict(cls):
        found = _typed_dict_members(cls, hints)
    elif attrs.has(cls):
        validators = {field.alias: field.validator for field in attrs.fields(cls)}
        members = _described(cls, _attrs_members(cls, hints))
        return [attrs.evolve(one, validator=validators[one.key]) for one in members]
    elif _is_named_tuple(cls):
        found = _named_tuple_members(cls, hints)
    else:
        found = _dataclass_members(cls, hints)
    return _described(cls, found)


def written_members_of(hint: Any, around: Names) -> Sequence[Member]:
    """Return the members of an instance of a class as `write_json` writes them, in order.

    Arguments and errors are those of `members_of`. An instance has all of its attributes, so each
    is required; only a typed dict can lack some.
    """
    cls, hints = _hints(hint, around)
    if is_typed_dict(cls):
        return _described(cls, _typed_dict_members(cls, hints))
    if attrs.has(cls):
        names = [field.name for field in attrs.fields(cls)]
        return _described(cls, [(name, hints.get(name), REQUIRED) for name in names])
    if _is_named_tuple(cls):
        return _described(cls, [(name, hints.get(name), REQUIRED) for name in _fields_of(cls)])
    if is_typed_class(cls):
        return _described(cls, [(name, hints[name], REQUIRED) for name in _attributes_in(hints)])
    return _described(cls, _written_by_orjson(cls, hints))


def _attributes_in(hints: dict[str, Any]) -> list[str]:
    """Return the names of attributes of instances among the annotations of a typed class."""
    return [
        name
        for name, hint in hints.items()
        if not name.startswith("_") and typing.ClassVar not in (hint, typing.get_origin(hint))
    ]


def _written_by_orjson(cls: Any, hints: dict[str, Any]) -> _Found:
    """Return the attributes of a dataclass without those that orjson leaves out."""
    found: _Found = []
    for field in dataclasses.fields(cls):
        if not field.name.startswith("_"):
            # A default that no constructor sets stays in the class, where orjson does not look.
            in_class = not field.init and field.default is not dataclasses.MISSING
            found.append((field.name, hints[field.name], COMPUTED if in_class else REQUIRED))
    return found


def _hints(hint: Any, around: Names) -> tuple[Any, dict[str, Any]]:
    """Return a class without its type arguments, and the types of its attributes with them."""
    cls = typing.get_origin(hint) or hint
    try:
        hints = names_of_class(cls, around).hints(cls)
    except UnresolvedName as error:
        raise UnsupportedType(
            f"the annotations of {cls.__name__} cannot be resolved: {error}"
        ) from None
    if any(type(one) is typing.TypeVar or hasattr(one, "__parameters__") for one in hints.values()):
        from .generics import member_hints

        hints = member_hints(cls, typing.get_args(hint), hints)
    return cls, hints


def _described(cls: type, found: _Found) -> Sequence[Member]:
    for key, hint, _ in found:
        if hint is None:
            raise UnsupportedType(f"{cls.__name__}.{key} has no type")
    text = _own_docstring(cls)
    described = parse_docstring(text, [key for key, _, _ in found])[1] if text else {}
    return [Member(key, hint, default, described.get(key, "")) for key, hint, default in found]


def tags(members: Sequence[Member]) -> Mapping[str, frozenset[tuple[bool, Any]]]:
    """Return the required members with few possible values, and these values (`exact`)."""
    found = {}
    for member in members:
        hint = without_metadata(member.hint)
        if member.default is REQUIRED and typing.get_origin(hint) is typing.Literal:
            values = [getattr(value, "value", value) for value in typing.get_args(hint)]
            found[member.key] = frozenset(map(exact, values))
    return found


_Found = list[tuple[str, Any, Any]]


def _typed_dict_members(cls: Any, hints: dict[str, Any]) -> _Found:
    found = []
    for key, hint in hints.items():
        # Under postponed evaluation the class itself cannot see NotRequired[...]; the hint can.
        wrapper = typing.get_origin(without_metadata(hint))
        if wrapper in (typing.Required, typing.NotRequired):
            required = wrapper is typing.Required
        else:
            required = key in cls.__required_keys__
        found.append((key, hint, REQUIRED if required else COMPUTED))
    return found


def _attrs_members(cls: type[attrs.AttrsInstance], hints: dict[str, Any]) -> _Found:
    found: _Found = []
    for field in attrs.fields(cls):
        if field.init:
            default: Any = REQUIRED if field.default is attrs.NOTHING else field.default
            if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
                default = COMPUTED
            found.append((field.alias or field.name, hints.get(field.name, field.type), default))
    return found


def _named_tuple_members(cls: Any, hints: dict[str, Any]) -> _Found:
    defaults = cls._field_defaults
    return [(key, hints.get(key), defaults.get(key, REQUIRED)) for key in _fields_of(cls)]


def _fields_of(cls: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = cls._fields
    return names


def _dataclass_members(cls: Any, hints: dict[str, Any]) -> _Found:
    if any(isinstance(hint, dataclasses.InitVar) for hint in hints.values()):
        raise UnsupportedType(f"{cls.__name__} has an InitVar")
    found: _Found = []
    for field in dataclasses.fields(cls):
        if field.init:
            default = field.default
            if default is dataclasses.MISSING:
                computed = field.default_factory is not dataclasses.MISSING
                default = COMPUTED if computed else REQUIRED
            found.append((field.name, hints[field.name], default))
    return found


def _own_docstring(cls: type) -> str:
    """Return the docstring written in `cls`: not inherited, not made by the standard library."""
    text = cls.__dict__.get("__doc__") or ""
    made_up = text.startswith(f"{cls.__name__}(") and not attrs.has(cls)
    return "" if made_up else text
