"""Checks of the callables that authors give."""

from __future__ import annotations

import inspect
from typing import Any


def takes(function: Any, count: int) -> bool:
    """Return whether `function` can be called with so many arguments, as far as one can see."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:
        pass  # the parameters of the callable are unknown
    return True
