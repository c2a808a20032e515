"""SIGUSR1, with which an operator has a program read its files again."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from .abort import call_in_loop


@contextmanager
def calls_on_signal(function: Callable[[], object]) -> Iterator[None]:
    """Call a function in this loop for each SIGUSR1, within the block (GATE-42).

    What a block around this one calls is called too. In the main thread alone: elsewhere the
    signals are those of a program that embeds the application. Windows has no such signal.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()

    def call(number: int, frame: FrameType | None) -> None:
        call_in_loop(loop, function)
        if callable(before):
            before(number, frame)

    # Not by the loop's own means: the watchdog needs the descriptor that signals are written to.
    before = signal.signal(signal.SIGUSR1, call)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)
