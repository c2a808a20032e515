"""A child that a handler forks never speaks for the server (PROC-12).

A forked child has copies of everything: of the descriptors the protocol is spoken over, of the
signal handlers, of the engine that waits for the handler to end. So in the child

* those descriptors lead to the null device, and the signals have their default again;
* the locks that another thread may have held at the fork are new ones;
* the handler's end is the child's end: the engine's dispatcher is exchanged for one that exits;
* a coroutine that suspends ends it too: the loop would go on with the calls of the parent;
* so does the end of a function in a thread of an executor, as with `asyncio.to_thread`: the thread
  would wait for more work, and there is no other thread to give it any.

None of it costs a call anything: the interpreter runs it after a fork, and only in the child.
"""

from __future__ import annotations

import os
import signal
import sys
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ..core.invocation import CallOutcome, Raised, Returned
from .executor import Engine
from .shutdown import FINAL_FLUSH_SECONDS

if TYPE_CHECKING:
    from ..core.dispatcher import Dispatcher
    from ..core.invocation import Invocation

_FAILURE_EXIT = 1
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_MULTIPROCESSING = "multiprocessing.popen_fork"  # its children never return to whoever forked them
_EXECUTOR = "concurrent.futures.thread"


class ForkGuard:
    """Turns the children of this process into processes of their own, until `stop`.

    A plain class: as an attrs class it would cost every start 0.25 ms.

    Args:
        engine: runs the handlers.
        descriptors: gives those that no child may use.
        on_signal: the handler that children must not inherit.
        flush_logs: writes out what the child has logged, in so many seconds at most.
    """

    __slots__ = ("__weakref__", "_descriptors", "_engine", "_flush_logs", "_is_on", "_on_signal")

    def __init__(
        self,
        engine: Engine,
        descriptors: Callable[[], Iterable[int]],
        on_signal: Callable[[int, FrameType | None], object],
        flush_logs: Callable[[float], object],
    ) -> None:
        self._engine = engine
        self._descriptors = descriptors
        self._on_signal = on_signal
        self._flush_logs = flush_logs
        self._is_on = True
        this = weakref.ref(self)

        # Until a child has let go of them, a signal to it would be written to the parent's pipe.
        masks: dict[int, set[int]] = {}

        def hold_signals() -> None:
            if (guard := this()) is not None and guard._is_on:
                masks[get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)

        def release_signals() -> None:
            mask = masks.pop(get_ident(), None)
            if mask is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        def let_go() -> None:
            if (guard := this()) is not None and guard._is_on:
                guard._let_go()
            release_signals()

        os.register_at_fork(
            before=hold_signals, after_in_parent=release_signals, after_in_child=let_go
        )

    def stop(self) -> None:
        """Leave later children alone: the descriptors may be somebody else's by then."""
        self._is_on = False

    def _let_go(self) -> None:
        self._release_signals()
        self._release_descriptors()
        self._engine.renew_locks()
        self._engine.dispatcher = cast("Dispatcher", _Leaving(self._flush_logs))
        _leave_when_left()

    def _release_signals(self) -> None:
        # Written to the pipe that is shared with the parent, a signal of ours would end the parent.
        signal.set_wakeup_fd(-1)
        for number in _ENDING:
            if signal.getsignal(number) == self._on_signal:
                default = signal.SIG_DFL
                signal.signal(
                    number, signal.default_int_handler if number == signal.SIGINT else default
                )

    def _release_descriptors(self) -> None:
        # Their numbers stay taken: what is left of the server in here knows them by number.
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in self._descriptors():
            with suppress(OSError):
                os.dup2(null, descriptor, inheritable=False)
        os.close(null)


class _Leaving:
    """Stands where the dispatcher was, which takes the end of a handler."""

    __slots__ = ("_flush_logs",)

    def __init__(self, flush_logs: Callable[[float], object]) -> None:
        self._flush_logs = flush_logs

    def conclude(self, call: Invocation, outcome: CallOutcome, duration_ms: float) -> NoReturn:
        """End the process as the interpreter would after the handler's code."""
        leave(_exit_code(outcome), self._flush_logs)

    break_off = expire = conclude


def leave(exit_code: int, flush_logs: Callable[[float], object]) -> NoReturn:
    """End this process at once, with what it has printed and logged written out."""
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


def _leave_when_left() -> None:
    """Have the process end when the code that forked it gives way to a loop or an executor."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not Engine._run_in_task.__code__:
        module = frame.f_globals.get("__name__")
        if module == _MULTIPROCESSING:
            return
        if module == _EXECUTOR:
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
