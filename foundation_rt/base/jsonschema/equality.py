"""Equality and divisibility of JSON values, exact, and linear in the size of the values.

Numbers are never used as keys of sets or dicts: their sender can choose values with equal hashes,
which make a set quadratic, and the same holds for tuples of numbers. Strings are safe, because
Python hashes them with a secret.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import gcd
from typing import Any, Final

import orjson

_EXACT: Final = 2.0**64
_DIGITS: Final = 17
"""The most digits of the shortest decimal form of a float."""
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


def identities(values: list[Any]) -> tuple[set[str], set[tuple[type, int]]]:
    """Return the identities of `values`, and the types and lengths of the arrays and objects."""
    lengths = {(type(one), len(one)) for one in values if isinstance(one, list | dict)}
    return set(map(identity, values)), lengths


def size(value: Any) -> int:
    """Return an upper bound of the number of values in `value`, itself included."""
    return extent(value)[0]


def extent(value: Any) -> tuple[int, int]:
    """Return upper bounds of the number of values in `value` and of its characters."""
    try:
        text = orjson.dumps(value)  # a fiftieth of the time of a walk
    except TypeError:  # nested deeper, or numbers larger, than orjson writes
        return _extent(value)
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{"), len(text)


def _extent(value: Any) -> tuple[int, int]:
    count, characters, waiting = 0, 0, [value]
    while waiting:
        one = waiting.pop()
        count += 1
        if isinstance(one, str):
            characters += len(one)
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            waiting += one.values()
            characters += sum(map(len, one))
    return count, characters


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
    scale: int = 10 ** max(0, -unit_exponent)
    whole: int = unit * 10 ** max(0, unit_exponent)
    whole //= gcd(scale, whole)  # the least integer that is a multiple

    def is_multiple(value: float) -> bool:
        remainder: int
        if type(value) is int:
            return value % whole == 0
        digits, exponent = _decimal(value)
        shift = exponent - unit_exponent
        if shift >= 0:
            remainder = digits * pow(10, shift, unit) % unit
        elif shift >= -_DIGITS:
            remainder = digits % (unit * 10**-shift)
        else:
            remainder = digits  # of a number that is smaller than the divisor
        return remainder == 0

    return is_multiple


def _decimal(number: float) -> tuple[int, int]:
    """Return the digits and the power of ten whose product is `number`."""
    if type(number) is int:
        return number, 0
    mantissa, _, exponent = repr(number).partition("e")
    whole, _, fraction = mantissa.partition(".")
    return int(whole + fraction), (int(exponent) if exponent else 0) - len(fraction)
