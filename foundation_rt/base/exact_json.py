"""JSON of others: integers of any size, and no deeper than can be written again (RPC-19).

orjson reads an integer beyond 64 bits as a float and refuses to write one. `loads` and `dumps`
behave as orjson's, except that such integers stay exact. orjson reads 1,024 levels and writes 254:
what `loads_bounded` returns can be written, also as a part of something else.

Applications may import this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

MAX_LEVELS: Final = 200
"""The most levels that `loads_bounded` reads."""

_SPARE: Final = 254 - MAX_LEVELS

DIGITS: Final = bytes(ord("0") if chr(code).isdecimal() else code for code in range(128)) + bytes(
    range(128, 256)
)
"""A translation table that maps every digit to `0`."""

STRIDE: Final = 4
SAMPLED: Final = b"0" * 4
_TWENTY: Final = b"0" * 20
_NEGATIVE_NINETEEN: Final = b"-" + b"0" * 19
_NEVER_NAN: Final = frozenset((str, int, bool, type(None)))


def loads(data: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises:
        orjson.JSONDecodeError: `data` is not JSON, or an integer in it has more digits than a
            double can hold (309).
    """
    value = orjson.loads(data)
    encoded = data.encode() if isinstance(data, str) else data
    # The first look of `may_hold_long_integer`, which nearly always ends it: results come here.
    # By `find`: for `in` Python makes a TypeError first, and drops it (0.3 us).
    if encoded[::STRIDE].translate(DIGITS).find(SAMPLED) >= 0 and may_hold_long_integer(encoded):
        return read_exactly(encoded)
    return value


def loads_bounded(data: bytes | str) -> Any:
    """Return the value of a JSON text that somebody else has written.

    Raises:
        orjson.JSONDecodeError: as `loads`; or it is nested deeper than `MAX_LEVELS`.
    """
    value = loads(data)
    if may_be_deep(data.encode() if isinstance(data, str) else data):
        try:
            check_levels(value)
        except TypeError as error:
            raise orjson.JSONDecodeError(str(error), "", 0) from None
    return value


def may_be_deep(text: bytes) -> bool:
    """Return whether a JSON text has brackets enough for more than `MAX_LEVELS` levels."""
    return text.count(b"[") + text.count(b"{") > MAX_LEVELS


def check_levels(value: Any) -> None:
    """Raise `TypeError` if a value that is JSON has more than `MAX_LEVELS` levels."""
    for _ in range(_SPARE):
        value = [value]
    try:
        dumps(value)
    except TypeError:
        raise TypeError(f"it is nested deeper than {MAX_LEVELS} levels") from None


def dumps(
    value: Any, default: Callable[[Any], Any] | None = None, option: int | None = None
) -> bytes:
    """Return the JSON text of a value.

    Args:
        value: the value.
        default: returns what is written for a value of another type, as that of orjson.
        option: an option of orjson, such as `orjson.OPT_INDENT_2`.

    Raises:
        TypeError: orjson cannot write the value, for another reason than the size of an integer.
    """
    try:
        return orjson.dumps(value, default, option)
    except TypeError:
        from .long_integers import LongIntegers

        digits = LongIntegers(default, option or 0)
        try:
            return orjson.dumps(digits.of(value), digits.default, option)
        except (RecursionError, ValueError) as error:
            raise TypeError(str(error)) from None


def read_exactly(text: bytes) -> Any:
    """Return the value of a text that orjson has read; four times slower, with all digits."""
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise orjson.JSONDecodeError(f"an integer cannot be read exactly: {error}", "", 0) from None


def may_hold_long_integer(text: bytes) -> bool:
    """Return whether `text` has enough digits in a row for an integer beyond 64 bits.

    A run of 19 digits has 4 of every fourth byte. Most texts have no 4 such digits in a row, so
    the whole text is rarely searched: 2 MB of numbers take a tenth of the time of parsing them.
    """
    if SAMPLED not in text[::STRIDE].translate(DIGITS):
        return False
    digits = text.translate(DIGITS)
    return _TWENTY in digits or _NEGATIVE_NINETEEN in digits


def may_hold_nan(value: Any) -> bool:
    """Return False if no float in a value is NaN or infinite: 0.8 us where orjson took 0.2."""
    kind = type(value)
    if kind is dict:
        value = value.values()
    elif kind is not list:
        value = (value,)
    for each in value:
        kind = type(each)
        if kind in _NEVER_NAN:
            continue
        if kind is float:
            if each - each != 0:
                return True
        elif kind is dict or kind is list:
            if may_hold_nan(each):
                return True
        else:
            return True
    return False


def compact(data: bytes) -> bytes:
    """Return a copy without spare memory, for bytes that are kept (RES-19).

    Bytes from orjson keep the buffer in which they were written: 4 to 8 KiB for 500 bytes, all of
    it resident, and ten times their length and more from 100 kB on (orjson 3.13).
    """
    return bytes(memoryview(data))
