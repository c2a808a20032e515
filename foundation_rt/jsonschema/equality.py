"""Equality and divisibility of JSON values, exact, and linear in the size of the values.

Numbers are never used as keys of sets or dicts: their sender can choose values with equal hashes,
which make a set quadratic, and the same holds for tuples of numbers. Strings are safe, because
Python hashes them with a secret.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import orjson

_EXACT: Final = 2.0**64
_NUMBERS: Final = frozenset((int, float))
_TEXT: Final = frozenset((str,))


def identity(value: Any) -> str:
    """Return a text that two JSON values share if and only if they are equal (SCHEMA-10)."""
    kind = type(value)
    if kind is str:
        return repr(value)
    if kind is int:
        return _integer(value)
    if kind is float:
        return str(int(value)) if -_EXACT < value < _EXACT and value.is_integer() else repr(value)
    if kind is list:
        if not value:
            return "[]"
        return f"[{','.join(map(identity, value))}]"
    if kind is dict:
        if not value:
            return "{}"
        return f"{{{','.join([f'{name!r}:{identity(value[name])}' for name in sorted(value)])}}}"
    return "true" if value is True else "false" if value is False else "null"


def _integer(value: int) -> str:
    """Return the digits; the text of the equal float for an integer that a large float equals."""
    if not -_EXACT < value < _EXACT:
        try:
            rounded = float(value)
        except OverflowError:
            return str(value)
        if rounded == value:
            return repr(rounded)
    return str(value)


def size(value: Any) -> int:
    """Return an upper bound of the number of values in `value`, itself included."""
    try:
        text = orjson.dumps(value)  # a fiftieth of the time of a walk
    except TypeError:  # nested deeper, or numbers larger, than orjson writes
        return _size(value)
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")


def _size(value: Any) -> int:
    count, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        count += 1
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            waiting += one.values()
    return count


def are_different(values: list[Any]) -> bool:
    """Return whether no two values are equal.

    Strings go into a set, numbers are sorted; both take a fraction of the time of identities.
    """
    kinds = set(map(type, values))
    if kinds <= _TEXT:
        return len(set(values)) == len(values)
    if kinds <= _NUMBERS:
        ordered = sorted(values)
        return all(one != other for one, other in pairwise(ordered))
    return len(set(map(identity, values))) == len(values)


def multiple_of(divisor: float) -> Callable[[float], bool]:
    """Return the test for decimal multiples of `divisor` (SCHEMA-11).

    A float stands for its shortest decimal form, which is that of `repr`.
    """
    unit, unit_exponent = _decimal(divisor)

    def is_multiple(value: float) -> bool:
        remainder: int
        if type(value) is int:
            digits, shift = value, -unit_exponent
        else:
            digits, exponent = _decimal(value)
            shift = exponent - unit_exponent
        if shift > 0:
            remainder = digits * pow(10, shift, unit) % unit
        else:
            remainder = digits % (unit * 10**-shift)
        return remainder == 0

    return is_multiple


def _decimal(number: float) -> tuple[int, int]:
    """Return the digits and the power of ten whose product is `number`."""
    if type(number) is int:
        return number, 0
    mantissa, _, exponent = repr(number).partition("e")
    whole, _, fraction = mantissa.partition(".")
    return int(whole + fraction), (int(exponent) if exponent else 0) - len(fraction)
