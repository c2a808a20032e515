"""Validators for the numbers in a client's settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import ConfigError

Check = Callable[[Any, Any, Any], None]
"""A validator of attrs: takes the object, the attribute and its value."""


def positive(_: Any, attribute: Any, value: Any) -> None:
    """Refuse values that are not a number greater than 0; infinity is allowed."""
    check_positive(attribute.name, value)


def check_positive(name: str, value: Any) -> None:
    """Raise unless the value of that name is a number greater than 0.

    Raises:
        ConfigError: it is not.
    """
    if not (_is_number(value) and value > 0):
        raise ConfigError(f"{name} must be a number greater than 0, not {value!r}")


def at_least(least: int, *, whole: bool = True) -> Check:
    """Return a validator that refuses smaller values, infinity, and values that are no number.

    Args:
        least: the smallest value.
        whole: whether only integers are allowed.
    """
    kind = "whole number" if whole else "number"

    def check(_: Any, attribute: Any, value: Any) -> None:
        fits = _is_number(value) and least <= value < float("inf")  # so that NaN is refused too
        if not fits or (whole and not isinstance(value, int)):
            raise ConfigError(f"{attribute.name} must be a {kind} from {least} on, not {value!r}")

    return check


def true_or_false(_: Any, attribute: Any, value: Any) -> None:
    """Refuse values that are no boolean."""
    if not isinstance(value, bool):
        raise ConfigError(f"{attribute.name} must be true or false, not {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
