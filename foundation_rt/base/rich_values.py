"""Values of Python that orjson does not write, as values that it does (CALL-16, CALL-20).

Imported with the first result that holds one. No module is imported for a type: whoever has such a
value has imported its type.
"""

from __future__ import annotations

import math
import sys
from base64 import b64encode
from collections import deque
from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from enum import Enum
from typing import Any, Final
from weakref import WeakKeyDictionary

import orjson

_MAX_LEVELS: Final = 1024
"""The most levels of a value that are read: twice those that orjson writes, with their forms."""

_ARRAYS: Final = (tuple, deque, range, KeysView, ValuesView, ItemsView)
"""Types that are written as an array; each can be read twice, as `write_json` may."""


_SPELLED: Final = (
    ("decimal", "Decimal"),
    ("pathlib", "PurePath"),
    ("ipaddress", "_IPAddressBase"),
)
"""Modules and types whose values are written as `str` spells them."""

_serializers: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def _no_form(value: Any) -> Any:
    """Refuse a value of a type that orjson does not write."""
    raise TypeError(f"{type(value).__name__} is not JSON-serializable")


def plain_form(value: Any, write: Callable[[Any], bytes]) -> Any:
    """Return `value` as one of the types that orjson writes, or that have a form here.

    Args:
        value: of any type.
        write: writes a member of a set as JSON, for the order of the members.

    Raises:
        TypeError: it has no form in JSON.
    """
    kind = type(value)
    if hasattr(kind, "__pydantic_serializer__"):
        return _serializer_of(kind).to_python(value, mode="json", by_alias=True)
    if hasattr(kind, "__dataclass_fields__"):
        return _dataclass_form(value)
    if isinstance(value, set | frozenset):
        return _sorted(value, write)
    if isinstance(value, tuple) and hasattr(kind, "_asdict"):
        return value._asdict()  # type: ignore[attr-defined]
    if isinstance(value, _ARRAYS):
        return list(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, _imported("datetime", "timedelta")):
        return iso_duration(value)
    if isinstance(value, bytes | bytearray):
        return b64encode(value).decode()
    if isinstance(value, tuple(each for spelled in _SPELLED for each in _imported(*spelled))):
        return str(value)
    return _no_form(value)


def _serializer_of(kind: Any) -> Any:
    """Return the serializer of a class of pydantic, which leaves NaN for `problem_in` (CALL-42).

    By itself pydantic makes null of it where the type is `Any`, unless the class says otherwise.
    """
    found = _serializers.get(kind)
    if found is None:
        config = getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", {})
        own = {name: each for name, each in config.items() if name.startswith("ser_json_")}
        schema = kind.__pydantic_core_schema__
        make = sys.modules["pydantic_core"].SchemaSerializer
        found = _serializers[kind] = make(schema, {"ser_json_inf_nan": "constants"} | own)
    return found


class _Problem(Exception):
    """A place of a value that JSON cannot represent."""


def problem_in(value: Any, form: Callable[[Any], Any] = _no_form) -> str | None:
    """Return the first place of a value that JSON cannot represent, and why: "$.a is NaN".

    It finds what orjson writes as something else, too: NaN, the infinities, keys that become equal.

    Args:
        value: any value.
        form: returns the form in which a value of another type is written; raises `TypeError`.
    """
    levels = [iter([("$", value)])]
    try:
        while levels:
            if len(levels) > _MAX_LEVELS:
                return "$ is nested too deeply, or holds itself"
            found = next(levels[-1], None)
            if found is None:
                levels.pop()
            elif inner := _within(*found, form):
                levels.append(inner)
    except _Problem as problem:
        return str(problem)
    return None


def _within(place: str, value: Any, form: Callable[[Any], Any]) -> Iterator[tuple[str, Any]] | None:
    """Return the places within a value, if it may have any; raise `_Problem` about itself."""
    kind = type(value)
    if value is None or kind is int or kind is bool or (kind is str and value.isascii()):
        return None
    if issubclass(kind, Enum):
        return iter([(place, value.value)])
    if issubclass(kind, float):
        if math.isfinite(value):
            return None
        raise _Problem(f"{place} is {'NaN' if math.isnan(value) else 'infinite'}")
    if issubclass(kind, dict):
        return _within_object(place, value)
    if issubclass(kind, list | tuple) and not hasattr(kind, "_asdict"):
        return ((f"{place}[{index}]", each) for index, each in enumerate(value))
    try:
        return iter([(place, form(value))])
    except TypeError as refused:
        try:
            orjson.dumps(value)  # a type of its own
        except TypeError as error:
            text = error if issubclass(kind, str | int) else refused
            raise _Problem(f"{place}: {text}") from None
        return None


def _within_object(place: str, value: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    names = set[str]()
    for key, member in value.items():
        if isinstance(key, float) and not math.isfinite(key):
            raise _Problem(f"{place} has a key that is {key}")
        try:
            name = key if type(key) is str else _name_of(key)
        except TypeError:
            raise _Problem(f"{place} has a key of the type {type(key).__name__}") from None
        if name in names:
            raise _Problem(f"{place} has two keys that are {name!r} in JSON")
        names.add(name)
        yield (f"{place}.{name}" if name.isidentifier() else f"{place}[{name!r}]"), member


def _name_of(key: Any) -> str:
    """Return a key as `write_json` writes it."""
    written = orjson.loads(orjson.dumps({key: None}, option=orjson.OPT_NON_STR_KEYS))
    return str(*written)


def iso_duration(value: Any) -> str:
    """Return a timedelta as ISO 8601 has it: "P1DT2H" is a day and two hours."""
    sign, value = ("-", -value) if value.days < 0 else ("", value)
    hours, rest = divmod(value.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    fraction = f".{value.microseconds:06}".rstrip("0") if value.microseconds else ""
    days = f"{value.days}D" if value.days else ""
    clock = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    if seconds or fraction or not days + clock:
        clock += f"{seconds}{fraction}S"
    return f"{sign}P{days}" + (f"T{clock}" if clock else "")


def _dataclass_form(value: Any) -> dict[str, Any]:
    """Return the attributes of a dataclass that orjson would write."""
    names = [name for name in type(value).__dataclass_fields__ if not name.startswith("_")]
    held = getattr(value, "__dict__", None)
    if held is None:
        return {name: getattr(value, name) for name in names}
    return {name: held[name] for name in names if name in held}


def _sorted(members: set[Any] | frozenset[Any], write: Callable[[Any], bytes]) -> list[Any]:
    """Return the members in one order, whatever the seed of the hashes."""
    kinds = {type(member) for member in members}
    if len(kinds) == 1 and not kinds & {frozenset}:  # `<` of sets is no order
        try:
            return sorted(members)
        except TypeError:
            pass
    return sorted(members, key=write)


def _imported(module: str, name: str) -> tuple[type, ...]:
    """Return the class if its module has been imported."""
    return (getattr(sys.modules[module], name),) if module in sys.modules else ()
