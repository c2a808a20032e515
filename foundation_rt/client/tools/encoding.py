"""Encode the values of callers as JSON, before anything is sent (CLIENT-24)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from math import isfinite
from typing import Any, Final

import orjson

from ...base.exact_json import dumps
from ..errors import MCPError

_NO_NUMBER: Final = "NaN or an infinity is in them"
_NO_OBJECT: Final = "an object with names is needed"


def encode(what: str, value: Any) -> bytes:
    """Encode a value as JSON.

    Args:
        what: the value, for the error: "the arguments of forecast".
        value: to be encoded; integers may be of any size.

    Raises:
        MCPError: E203: it is not JSON.
    """
    try:
        encoded = dumps(value)
    except (TypeError, ValueError) as error:
        raise _not_json(what, error) from None
    if b"null" in encoded and _has_no_number(value):
        raise _not_json(what, _NO_NUMBER)
    return encoded


def encode_arguments(tool: str, arguments: Mapping[str, Any] | None) -> bytes:
    """Encode the arguments of a tool; this form is sent and checked.

    Every call comes here: it is written out, instead of calling `encode`.

    Raises:
        MCPError: E203: they are not JSON.
    """
    try:
        given = dict(arguments or {})
        encoded = dumps(given)
    except (TypeError, ValueError) as error:
        raise _not_json(f"the arguments of {tool}", error) from None
    # orjson writes null for NaN and infinities, without an error.
    if b"null" in encoded and _has_no_number(given):
        raise _not_json(f"the arguments of {tool}", _NO_NUMBER)
    return encoded


def encode_members(what: str, members: Any, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """Return an object whose members are encoded, except those that are strings.

    Args:
        what: the object, for the error.
        members: the object.
        leave_out: names of members that are neither encoded nor returned.

    Raises:
        MCPError: E203: it is not JSON.
    """
    if not isinstance(members, Mapping):
        raise _not_json(what, _NO_OBJECT)
    encoded: dict[str, Any] = {}
    for name, value in members.items():
        if type(name) is not str:
            raise _not_json(what, _NO_OBJECT)
        if name not in leave_out:
            encoded[name] = value if type(value) is str else orjson.Fragment(encode(what, value))
    return encoded


def _not_json(what: str, reason: object) -> MCPError:
    return MCPError("E203", f"{what} are not JSON: {reason}")


def _has_no_number(value: Any) -> bool:
    """Return whether a value that orjson has written holds NaN or an infinity."""
    if isinstance(value, float):
        return not isfinite(value)
    parts: Iterable[Any]
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, list | tuple):
        parts = value
    elif isinstance(value, Enum):
        parts = (value.value,)
    else:  # the fields of a dataclass, if it is one
        names = getattr(type(value), "__dataclass_fields__", ())
        parts = [getattr(value, name) for name in names]
    return any(map(_has_no_number, parts))
