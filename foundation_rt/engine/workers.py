"""Worker threads for `def` handlers: as many as there are slots, each made when first needed.

The standard library's pool joins its threads at exit, so that one stuck handler would keep the
process alive for ever; these are daemon threads, and the process may end without them (PROC-06).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from attrs import define, field

from .scheduling import ReportError, ignore_error


@define(eq=False, repr=False)
class WorkerPool:
    """Runs functions in at most `max_threads` threads.

    Args:
        max_threads: as many as there can be calls at once, so that none waits for a thread.
        on_error: is given what a function raised, or what another thread threw into this one.
    """

    max_threads: int
    on_error: ReportError = ignore_error
    # One entry of `_wake` for each function in `_work`. A thread that waits is interrupted when it
    # has taken an entry: what it was woken for must not be lost with it.
    _work: deque[Callable[[], None]] = field(factory=deque, init=False)
    _wake: SimpleQueue[None] = field(factory=SimpleQueue, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _threads: int = field(default=0, init=False)
    _unfinished: int = field(default=0, init=False)

    def submit(self, function: Callable[[], None]) -> None:
        """Run `function` in a worker thread. What it raises is reported, and the thread goes on.

        Raises:
            RuntimeError: there is no thread, and the system starts none.
        """
        with self._lock:
            if self._threads < min(self._unfinished + 1, self.max_threads):
                self._add_thread()
            self._unfinished += 1
        self._work.append(function)
        self._wake.put(None)

    def _add_thread(self) -> None:
        name = f"foundation-rt-worker-{self._threads + 1}"
        try:
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except RuntimeError:
            # The system has no more of them: the work waits for those there are.
            if self._threads == 0:
                raise
        else:
            self._threads += 1

    def _run(self) -> None:
        while True:
            try:
                self._serve()
            except BaseException as error:  # its own, or thrown in by another thread (ERR-07)
                self._wake.put(None)
                self.on_error("a worker thread was interrupted", error)

    def _serve(self) -> None:
        while True:
            self._wake.get()
            try:
                function = self._work.popleft()
            except IndexError:
                continue  # there is an entry too many after every interruption
            try:
                function()
            finally:
                del function  # it has what the call was given and what it returned
                with self._lock:
                    self._unfinished -= 1
