"""SIGTERM and SIGINT, for as long as a process serves HTTP or keeps those that do."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def handling_signals(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """While this lasts, have `handler` called for either; in the main thread alone."""
    previous = {each: signal.signal(each, handler) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, former in previous.items():
            signal.signal(number, former)
