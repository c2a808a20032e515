"""Checks of the callables that authors give."""

from __future__ import annotations

from typing import Any

from .signatures.function_signature import signature_of


def takes(function: Any, count: int) -> bool:
    """Return whether `function` can be called with so many arguments, as far as one can see."""
    try:
        signature_of(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:
        pass  # the parameters of the callable are unknown
    return True
