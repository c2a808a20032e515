"""Isolation of forked children: a child never answers for the server (PROC-12).

A child has copies of everything: of the descriptors of the protocol, of the signal handlers, and of
the engine that waits for the end of the handler. So in the child

* these descriptors lead to the null device, and the signals have their default handlers;
* the locks that another thread may have held at the fork are replaced;
* the end of the handler ends the child: the engine's dispatcher is replaced by one that exits;
* a coroutine that suspends ends it too: the loop would go on with the calls of the parent;
* so does the end of a function in a thread of an executor, as with `asyncio.to_thread`: the thread
  would wait for more work, and no other thread exists that could give it any.

A call pays nothing for this: the interpreter runs it after a fork, and only in the child.
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
from typing import TYPE_CHECKING, cast

from .executor import Engine
from .shutdown import ENDING_SIGNALS

if TYPE_CHECKING:
    from ..dispatcher import Dispatcher


class ForkGuard:
    """Isolates the children of this process, until `stop`.

    A plain class: as an attrs class it would cost every start 0.25 ms.

    Args:
        engine: runs the handlers.
        descriptors: returns the descriptors that no child may use.
        on_signal: the handler that children must not inherit.
        flush_logs: writes the log of the child, within a number of seconds.
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
        if sys.platform == "win32":
            return  # nothing forks there
        this = weakref.ref(self)

        # Until a child has released its signals, one of them would be written to the parent's pipe.
        masks: dict[int, set[int]] = {}

        def block_signals() -> None:
            if (guard := this()) is not None and guard._is_on:
                from . import forked_child  # noqa: F401 - a child should import nothing

                masks[get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)

        def release_signals() -> None:
            mask = masks.pop(get_ident(), None)
            if mask is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        def isolate() -> None:
            if (guard := this()) is not None and guard._is_on:
                guard._isolate()
            release_signals()

        os.register_at_fork(
            before=block_signals, after_in_parent=release_signals, after_in_child=isolate
        )

    def stop(self) -> None:
        """Isolate no further children: the descriptors may be reused for something else."""
        self._is_on = False

    def _isolate(self) -> None:
        self._release_signals()
        self._release_descriptors()
        self._engine.renew_locks()
        from .forked_child import ExitingDispatcher, exit_on_return

        self._engine.dispatcher = cast("Dispatcher", ExitingDispatcher(self._flush_logs))
        exit_on_return()

    def _release_signals(self) -> None:
        # A signal written to the pipe that the parent shares would end the parent.
        signal.set_wakeup_fd(-1)
        for number in ENDING_SIGNALS:
            if signal.getsignal(number) == self._on_signal:
                default = signal.SIG_DFL
                signal.signal(
                    number, signal.default_int_handler if number == signal.SIGINT else default
                )

    def _release_descriptors(self) -> None:
        # Their numbers stay in use: the copy of the server in the child knows them by number.
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in self._descriptors():
            with suppress(OSError):
                os.dup2(null, descriptor, inheritable=False)
        os.close(null)
