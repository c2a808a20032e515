"""The signals that end a process, for as long as it serves HTTP or keeps those that do."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from ..stdio.watchdog import ending_signals


@contextmanager
def handling_signals(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """While this lasts, have `handler` called for each of them; in the main thread alone."""
    previous = {each: signal.signal(each, handler) for each in ending_signals()}
    try:
        yield
    finally:
        for number, former in previous.items():
            signal.signal(number, former)
