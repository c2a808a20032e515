"""The budget of one check: how many steps it may take, and which questions it has answered.

A step is some 50 ns of generated code. Steps are counted, never timed, so that a value gets the
same answer on every machine (SCHEMA-27).
"""

from __future__ import annotations

from typing import Any, Final

MAX_STEPS: Final = 6_000_000
"""Most steps of one check: about 0.3 s."""

IDENTITY: Final = 20
"""Steps for each value in a value whose identity is made (see `equality`)."""

DIVISION: Final = 20
"""Steps to divide a float exactly."""


PATTERN: Final = 20
"""Steps for each character of a string whose format is `regex`."""


class TooComplex(Exception):
    """The check of a value has used up its steps; says nothing about the value."""


class Run(dict[str, Any]):
    """One check of one value.

    It is the dict of formats that the generated code hands from function to function, because that
    is the only thing it hands on.

    Attributes:
        left: steps that may still be taken.
        decided: function and value to whether the value fits, for functions that are asked about
            one value more than once. A value is known by its `id`: all of it outlives the check.
    """

    __slots__ = ("decided", "left")

    def __init__(self, formats: dict[str, Any], steps: int) -> None:
        super().__init__(formats)
        self.left = steps
        self.decided: dict[tuple[int, int], bool] = {}
        if "regex" in formats:
            self["regex"] = self._is_pattern

    def take(self, steps: int) -> None:
        """Take `steps` out of the budget.

        Raises:
            TooComplex: there are not as many left.
        """
        self.left -= steps
        if self.left < 0:
            raise TooComplex

    def _is_pattern(self, text: str) -> bool:
        from .patterns import is_pattern

        self.take(PATTERN * len(text))
        return is_pattern(text)
