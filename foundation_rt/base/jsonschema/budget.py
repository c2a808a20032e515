"""One check of a value: how it ends, its budget in steps, its memory of what it has decided.

A step is some 50 ns of generated code. Steps are counted, never timed, so that a value gets the
same result on every machine (SCHEMA-27).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .formats import Predicate

MAX_STEPS: Final = 6_000_000
"""The most steps of one check: about 0.3 s."""

IDENTITY: Final = 20
"""The steps to compute an identity, for each value within a value (see `equality`)."""

DIVISION: Final = 20
"""The steps to divide a float exactly."""

CHARACTER: Final = {
    "date-time": 0.3,
    "duration": 0.7,
    "json-pointer": 0.6,
    "regex": 20,
    "relative-json-pointer": 0.6,
    "time": 0.3,
    "uri": 0.5,
    "uri-reference": 1,
}
"""The steps for each character of a string of a format; other formats bound the length."""

_UNCOUNTED: Final = 2
"""The steps for each byte of a value that formats may take without being counted."""


def counted_formats(formats: Counter[str]) -> tuple[str, ...]:
    """Return the formats whose characters have to be counted.

    There are none if the formats of a schema, each at all its places, are within the budget for a
    value of 1 MiB.
    """
    steps = sum(CHARACTER.get(name, 0) * places for name, places in formats.items())
    return () if steps <= _UNCOUNTED else tuple(formats.keys() & CHARACTER.keys())


class Mismatch(Exception):
    """The value is invalid; replaces fastjsonschema's exception, which takes longer to make."""


class TooComplex(Exception):
    """The check has used up its steps; whether the value is valid is unknown."""


class CheckRun(dict[str, Any]):
    """One check of one value.

    It is a dict of formats because that is the only object that the generated functions pass on.

    Attributes:
        left: the number of steps left.
        decided: whether a value is valid, by function and value, for functions that are called
            for one value more than once. The value is identified by `id`: it outlives the check.
    """

    __slots__ = ("decided", "left")

    def __init__(
        self, formats: dict[str, Predicate], steps: int, counted: Collection[str] = ()
    ) -> None:
        super().__init__(formats)
        self.left: float = steps
        self.decided: dict[tuple[int, int], bool] = {}
        for name in counted:
            self[name] = partial(self._fits, CHARACTER[name], formats[name])

    def take(self, steps: float) -> None:
        """Take `steps` from the budget.

        Raises:
            TooComplex: the budget is used up.
        """
        self.left -= steps
        if self.left < 0:
            raise TooComplex

    def _fits(self, steps: float, fits: Predicate, text: str) -> bool:
        self.take(steps * len(text))
        return fits(text)
