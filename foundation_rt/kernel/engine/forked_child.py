"""The end of a forked child, which never answers for the server (PROC-12); see `forks`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from ..invocation import CallOutcome, Raised, Returned
from .shutdown import FINAL_FLUSH_SECONDS

if TYPE_CHECKING:
    from ..invocation import Invocation

_FAILURE_EXIT = 1
# Its children never return to the code that forked them.
_MULTIPROCESSING = "multiprocessing.popen_fork"
_EXECUTOR = "concurrent.futures.thread"
_COROUTINE = (f"{__package__}.coroutines", "run")
"""`CoroutineRunner.run`: the outermost frame of the runtime in a task, by module and name."""


class ExitingDispatcher:
    """Replaces the dispatcher in a child: the end of a handler ends the process."""

    __slots__ = ("_flush_logs",)

    def __init__(self, flush_logs: Callable[[float], object]) -> None:
        self._flush_logs = flush_logs

    def conclude(self, call: Invocation, outcome: CallOutcome, duration_ms: float) -> NoReturn:
        """End the process as the interpreter would after the code of the handler."""
        exit_process(_exit_code(outcome), self._flush_logs)

    break_off = expire = conclude


def exit_process(exit_code: int, flush_logs: Callable[[float], object]) -> NoReturn:
    """End this process at once, after writing its output and its log."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    try:
        flush_logs(FINAL_FLUSH_SECONDS)
    finally:
        os._exit(exit_code)


def _exit_code(outcome: CallOutcome) -> int:
    if type(outcome) is Returned:
        return 0
    error = outcome.error if type(outcome) is Raised else None
    if not isinstance(error, SystemExit):
        with suppress(BaseException):
            import traceback

            traceback.print_exception(error)
        return _FAILURE_EXIT
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    with suppress(BaseException):
        sys.stderr.write(f"{error.code}\n")
    return _FAILURE_EXIT


def exit_on_return() -> None:
    """End the process when the code that forked it returns to a loop or an executor."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if module == _MULTIPROCESSING:
            return
        if module == _EXECUTOR or (module, frame.f_code.co_name) == _COROUTINE:
            break
        frame = frame.f_back
    if frame is None:
        return

    def on_event(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "return":
            os._exit(_FAILURE_EXIT)
        return on_event

    frame.f_trace = on_event
    frame.f_trace_lines = False
    sys.settrace(lambda frame, event, argument: None)
