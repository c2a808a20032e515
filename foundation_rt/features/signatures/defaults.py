"""Defaults: as JSON values, or values of their type that JSON cannot express (TYPED-03, TYPED-69).

Imported for the first parameter or member with a default.
"""

from __future__ import annotations

import enum
import math
import types
import typing
from typing import Any

from .enumerations import JSON_TYPES, is_by_name
from .type_schema import REQUIRED


def json_default(default: Any) -> Any:
    """Return `default` as a JSON value; `REQUIRED` if there is no such value."""
    if isinstance(default, enum.Enum):
        return json_default(default.name if is_by_name(type(default)) else default.value)
    if type(default) in (list, tuple):
        items = [json_default(item) for item in default]
        return REQUIRED if REQUIRED in items else items
    if type(default) is dict:
        members = {key: json_default(value) for key, value in default.items()}
        strange = REQUIRED in members.values() or any(type(key) is not str for key in members)
        return REQUIRED if strange else members
    if type(default) is float and not math.isfinite(default):
        return REQUIRED
    if type(default) is int and not -(2**63) <= default < 2**64:
        return REQUIRED
    return default if type(default) in JSON_TYPES else REQUIRED


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
