"""JSON with integers of any size.

orjson reads an integer beyond 64 bits as a float and refuses to write one. `loads` and `dumps`
behave as orjson's, except that such integers stay exact.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Final

import orjson

_DIGITS: Final = bytes(ord("0") if chr(code).isdecimal() else code for code in range(128)) + bytes(
    range(128, 256)
)
"""A translation table that maps every digit to `0`."""

_STRIDE: Final = 4
_SAMPLED: Final = b"0" * 4
_TWENTY: Final = b"0" * 20
_NEGATIVE_NINETEEN: Final = b"-" + b"0" * 19
_MIN: Final = -(2**63)
_MAX: Final = 2**64 - 1


def loads(data: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises:
        orjson.JSONDecodeError: `data` is not JSON, or an integer in it has more digits than a
            double can hold (309).
    """
    value = orjson.loads(data)
    encoded = data.encode() if isinstance(data, str) else data
    if not _may_hold_long_integer(encoded):
        return value
    try:
        # 4 times slower than orjson, so it only reads texts with a long run of digits.
        return json.loads(encoded)
    except (ValueError, RecursionError) as error:
        raise orjson.JSONDecodeError(f"an integer cannot be read exactly: {error}", "", 0) from None


def dumps(value: Any, option: int | None = None) -> bytes:
    """Return the JSON text of a value.

    Args:
        value: the value.
        option: an option of orjson, such as `orjson.OPT_INDENT_2`.

    Raises:
        TypeError: orjson cannot write the value, for another reason than the size of an integer.
    """
    try:
        return orjson.dumps(value, option=option)
    except TypeError:
        try:
            return orjson.dumps(_with_fragments(value), option=option)
        except (RecursionError, ValueError) as error:
            raise TypeError(str(error)) from None


def _may_hold_long_integer(text: bytes) -> bool:
    """Return whether `text` has enough digits in a row for an integer beyond 64 bits.

    A run of 19 digits has 4 of every fourth byte. Most texts have no 4 such digits in a row, so
    the whole text is rarely searched: 2 MB of numbers take a tenth of the time of parsing them.
    """
    if _SAMPLED not in text[::_STRIDE].translate(_DIGITS):
        return False
    digits = text.translate(_DIGITS)
    return _TWENTY in digits or _NEGATIVE_NINETEEN in digits


def _with_fragments(value: Any) -> Any:
    """Return `value` with every integer beyond 64 bits replaced by its digits."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if _MIN <= value <= _MAX else orjson.Fragment(str(int(value)))
    if isinstance(value, dict):
        return {name: _with_fragments(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_fragments(one) for one in value]
    if isinstance(value, Enum):
        return _with_fragments(value.value)
    names = getattr(type(value), "__dataclass_fields__", None)
    if names is None:
        return value
    # As orjson does, without the fields that begin with an underscore.
    return {name: _with_fragments(getattr(value, name)) for name in names if name[:1] != "_"}
