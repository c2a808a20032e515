"""Values of Python that orjson does not write, as values that it does (CALL-16, CALL-20).

Imported with the first result that holds one. No module is imported for a type: whoever has such a
value has imported its type.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from typing import Any


def plain_form(value: Any) -> Any:
    """Return `value` as one of the types that orjson writes, or that have a form here.

    Raises:
        TypeError: it has no form in JSON.
    """
    kind = type(value)
    serializer = getattr(kind, "__pydantic_serializer__", None)
    if serializer is not None:
        return serializer.to_python(value, mode="json", by_alias=True)
    if hasattr(kind, "__dataclass_fields__"):
        return _dataclass_form(value)
    if isinstance(value, set | frozenset):
        return _sorted(value)
    if isinstance(value, tuple) and hasattr(kind, "_asdict"):
        return value._asdict()  # type: ignore[attr-defined]
    if isinstance(value, _imported("datetime", "timedelta")):
        return iso_duration(value)
    if isinstance(value, bytes | bytearray):
        return b64encode(value).decode()
    if isinstance(value, (*_imported("decimal", "Decimal"), *_imported("pathlib", "PurePath"))):
        return str(value)
    raise TypeError(f"{kind.__name__} is not JSON-serializable")


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


def _sorted(members: set[Any] | frozenset[Any]) -> list[Any]:
    """Return the members in one order, whatever the seed of the hashes."""
    kinds = {type(member) for member in members}
    if len(kinds) == 1 and not kinds & {frozenset}:  # `<` of sets is no order
        try:
            return sorted(members)
        except TypeError:
            pass
    from .plain_values import write_json

    return sorted(members, key=write_json)


def _imported(module: str, name: str) -> tuple[type, ...]:
    """Return the class if its module has been imported."""
    return (getattr(sys.modules[module], name),) if module in sys.modules else ()
