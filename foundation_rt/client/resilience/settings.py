"""Checking the numbers that can be set of a client: what cannot be used is refused by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import ConfigError

Check = Callable[[Any, Any, Any], None]
"""A validator of attrs: takes the object, the attribute and its value."""


def positive(_: Any, attribute: Any, value: Any) -> None:
    """Refuse what is no number greater than 0; one without end is a number."""
    check_positive(attribute.name, value)


def check_positive(name: str, value: Any) -> None:
    """Hold that the value of that name is a number greater than 0.

    Raises:
        ConfigError: it is not.
    """
    if not (_is_number(value) and value > 0):
        raise ConfigError(f"{name} must be a number greater than 0, not {value!r}")


def at_least(least: int, *, whole: bool = True) -> Check:
    """Refuse what is less, no number, or without end.

    Args:
        whole: refuse what is no integer, too.
    """
    kind = "whole number" if whole else "number"

    def check(_: Any, attribute: Any, value: Any) -> None:
        fits = _is_number(value) and least <= value < float("inf")  # so that NaN is refused too
        if not fits or (whole and not isinstance(value, int)):
            raise ConfigError(f"{attribute.name} must be a {kind} from {least} on, not {value!r}")

    return check


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
