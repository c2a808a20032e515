"""How often a process that serves HTTP alone looks for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_ALLOCATIONS = 10_000


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """While this lasts, look for cycles after 10,000 new objects, and not among those there are.

    By default Python looks after 700. Those of 128 requests that are open are more than that, so
    each was looked at several times, for a tenth of the time of a call.
    """
    previous = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, *previous[1:])
    try:
        yield
    finally:
        gc.set_threshold(*previous)
        gc.unfreeze()
