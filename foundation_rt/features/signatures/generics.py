"""Types with parameters: what a type variable stands for (TYPED-67).

Imported for the first generic class or alias, or the first type variable.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any

Substitution = Mapping[Any, Any]
"""The type of each type variable."""


def generic_name(hint: Any) -> str:
    """Return a name for a class with its arguments: "Box_int"."""
    return "_".join(map(_short_name, (typing.get_origin(hint), *typing.get_args(hint))))


def _short_name(hint: Any) -> str:
    """Return a name for a type, the same with each version of Python."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " | ".join(map(_short_name, typing.get_args(hint)))
    return "None" if hint is types.NoneType else getattr(hint, "__name__", str(hint))


def substituted(hint: Any, types: Substitution) -> Any:
    """Return `hint` with the type of each variable in its place."""
    if isinstance(hint, typing.TypeVar):
        return types.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    if not parameters or isinstance(hint, type):
        return hint
    return hint[tuple(types.get(parameter, parameter) for parameter in parameters)]


def meaning(variable: Any) -> Any:
    """Return the type that a variable stands for which nothing has set: default, bound, any."""
    default = getattr(variable, "__default__", None)
    # typing has NoDefault from Python 3.13 on, typing_extensions has its own before.
    if default is not None and type(default).__name__ != "NoDefaultType":
        return default
    if variable.__constraints__:
        return typing.Union[variable.__constraints__]  # noqa: UP007 - a tuple
    return variable.__bound__ or Any


def alias_value(alias: Any, arguments: tuple[Any, ...]) -> Any:
    """Return what an alias with parameters stands for: ``Pair[int]``."""
    return substituted(alias.__value__, dict(zip(alias.__type_params__, arguments, strict=False)))


def member_hints(cls: type, arguments: tuple[Any, ...], hints: dict[str, Any]) -> dict[str, Any]:
    """Return the types of the members of a generic class, without variables.

    A variable means what the class that declares the member has it mean: a base may use the same
    variable as the class derived from it for something else.

    Args:
        cls: the class.
        arguments: those of its type parameters.
        hints: the types of its members.
    """
    meanings: dict[type, Substitution] = {}
    _collect(cls, dict(zip(_parameters(cls), arguments, strict=False)), meanings)
    # A typed dict lists the members of its bases as its own, and has no bases at run time.
    bases = tuple(reversed(meanings)) if issubclass(cls, dict) else cls.__mro__
    found = {}
    for name, hint in hints.items():
        owners = (base for base in bases if name in getattr(base, "__annotations__", ()))
        found[name] = substituted(hint, meanings.get(next(owners, cls), {}))
    return found


def _parameters(cls: type) -> tuple[Any, ...]:
    return getattr(cls, "__parameters__", ())


def _collect(cls: type, types: Substitution, meanings: dict[type, Substitution]) -> None:
    """Collect the meaning of the variables of `cls` and of its bases."""
    meanings[cls] = types
    for base in cls.__dict__.get("__orig_bases__", ()):
        origin = typing.get_origin(base)
        if isinstance(origin, type) and origin is not typing.Generic:
            given = tuple(substituted(argument, types) for argument in typing.get_args(base))
            _collect(origin, dict(zip(_parameters(origin), given, strict=False)), meanings)
    for plain in cls.__bases__:
        if plain not in meanings and plain is not object:
            _collect(plain, {}, meanings)
