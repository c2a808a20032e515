"""The end of a serving process: the shares of its time, its signals, and its last resort.

`server.shutdown_timeout_ms` is the time from the end of the input, or from a signal, to the end of
the process. Its parts, in order:

    until HANDLER_SHARE   calls may finish by themselves; then they are aborted
    until STOP_SHARE      aborted calls and lifespan hooks may end; then they are left behind
    the rest              the log is written
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import FrameType
from typing import TYPE_CHECKING

from ..records import identity_fields

if TYPE_CHECKING:
    from ...base.logs.logger import StructuredLogger
    from .executor import Engine

HANDLER_SHARE = 0.8
STOP_SHARE = 0.9

FINAL_FLUSH_SECONDS = 0.2
"""Seconds to settle calls at the end, and then as many again to write the log."""

LOOP_GRACE_SECONDS = 0.5
"""Seconds in which cancelled tasks that handlers left behind may end."""

POLL_SECONDS = 0.02
"""The interval at which a stopping transport checks whether calls still run."""


if sys.platform == "win32":
    ENDING_SIGNALS = signal.SIGTERM, signal.SIGINT, signal.SIGBREAK
    _COUNTS_AS = {int(signal.SIGBREAK): int(signal.SIGTERM)}
else:
    ENDING_SIGNALS = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
    _COUNTS_AS: dict[int, int] = {}


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a process that serves (PROC-04, WIN-05).

    The last one, SIGHUP or Ctrl-Break, is left to who handles or ignores it already: `nohup`, or
    the application.
    """
    if signal.getsignal(ENDING_SIGNALS[-1]) is signal.SIG_DFL:
        return ENDING_SIGNALS
    return ENDING_SIGNALS[:2]


def exit_code(number: int) -> int:
    """Return the exit code after a signal; Ctrl-Break counts as SIGTERM (WIN-05)."""
    return 128 + _COUNTS_AS.get(number, number)


@contextmanager
def handling_signals(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle the ending signals by `handler` within the block; in the main thread only.

    The end of a console of Windows is SIGHUP, number 1, in any thread (WIN-05).
    """
    previous = {each: signal.signal(each, handler) for each in ending_signals()}
    console: AbstractContextManager[object] = nullcontext()
    if sys.platform == "win32":
        from ...base.windows import handling_console_end

        console = handling_console_end(lambda: handler(1, None))
    try:
        with console:
            yield
    finally:
        for number, former in previous.items():
            signal.signal(number, former)


def abandon_calls(engine: Engine, logger: StructuredLogger) -> bool:
    """Log and record the calls that have not ended; return whether there are any (PROC-10)."""
    running = engine.give_up()
    for call in running:
        logger.warn("handler has not ended; the process ends without it", identity_fields(call))
    return bool(running)


def end_process(
    settle: Callable[[], object], close_logs: Callable[[float], object], exit_code: int
) -> None:
    """End the process at once, as the last resort; does not return.

    Args:
        settle: gives every call its record; runs in a thread of its own and within a bound, since
            it waits for locks and fires abort callbacks.
        close_logs: writes what the log holds, within a number of seconds.
        exit_code: the exit code of the process.
    """
    last = threading.Thread(target=settle, daemon=True)
    with suppress(RuntimeError):
        last.start()
        last.join(FINAL_FLUSH_SECONDS)
    close_logs(FINAL_FLUSH_SECONDS)
    os._exit(exit_code)
