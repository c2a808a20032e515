"""One check of a value: how it ends, its budget in steps, its memory of what it has decided.

A step is some 50 ns of generated code. Steps are counted, never timed, so that a value gets the
same result on every machine (SCHEMA-27).
"""

from __future__ import annotations

from typing import Any, Final

MAX_STEPS: Final = 6_000_000
"""The most steps of one check: about 0.3 s."""

IDENTITY: Final = 20
"""The steps to compute an identity, for each value within a value (see `equality`)."""

DIVISION: Final = 20
"""The steps to divide a float exactly."""

PATTERN: Final = 20
"""The steps for each character of a string whose format is `regex`."""


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

    def __init__(self, formats: dict[str, Any], steps: int) -> None:
        super().__init__(formats)
        self.left = steps
        self.decided: dict[tuple[int, int], bool] = {}
        if "regex" in formats:
            self["regex"] = self._is_pattern

    def take(self, steps: int) -> None:
        """Take `steps` from the budget.

        Raises:
            TooComplex: the budget is used up.
        """
        self.left -= steps
        if self.left < 0:
            raise TooComplex

    def _is_pattern(self, text: str) -> bool:
        from .patterns import is_pattern

        self.take(PATTERN * len(text))
        return is_pattern(text)
