"""Defaults that are values of their type, though JSON cannot express them (TYPED-69).

Imported for the first such default: a date, an instance of a class, an object of another framework.
"""

from __future__ import annotations

import types
import typing
from typing import Any


def is_value(default: Any, hint: Any) -> bool:
    """Return whether `default` is an instance of a class that occurs in `hint`.

    ``Any`` and ``object`` have no such class: there, a default has to be a JSON value.
    """
    kind = type(hint).__name__
    origin = typing.get_origin(hint)
    if hint is float and type(default) is int:
        return True
    if kind == "NewType":
        return is_value(default, hint.__supertype__)
    if kind == "TypeAliasType" or type(origin).__name__ == "TypeAliasType":
        return is_value(default, hint.__value__)  # an alias with arguments has it as well
    if origin in (typing.Annotated, typing.Required, typing.NotRequired):
        return is_value(default, typing.get_args(hint)[0])
    if origin in (typing.Union, types.UnionType):
        return any(is_value(default, one) for one in typing.get_args(hint))
    if isinstance(hint, typing.TypeVar):
        return is_value(default, hint.__bound__) if hint.__bound__ else False
    cls = origin or hint
    if not isinstance(cls, type) or cls is object:
        return False
    if hasattr(cls, "__required_keys__"):
        return isinstance(default, dict)
    try:
        return isinstance(default, cls)
    except TypeError:  # a protocol, which has no instances at run time
        return False
