"""Worker threads for `def` handlers: at most as many as slots, each started when first needed.

The standard library's pool joins its threads at exit, so one stuck handler would keep the process
alive for ever. These are daemon threads: the process may end without them (PROC-06).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from .scheduling import ReportError, ignore_error


class WorkerPool:
    """Runs functions in at most `max_threads` threads.

    Args:
        max_threads: the maximum number of concurrent calls, so that none waits for a thread.
        on_error: takes the exception of a function, or one that another thread threw into a worker.
    """

    def __init__(self, max_threads: int, on_error: ReportError = ignore_error) -> None:
        self.max_threads = max_threads
        self.on_error = on_error
        # One entry of `_wake` for each function in `_work`. A waiting thread may be interrupted
        # after it has taken an entry: the function that it was woken for must not be lost.
        self._work: deque[Callable[[], None]] = deque()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._unfinished = 0

    def submit(self, function: Callable[[], None]) -> None:
        """Run `function` in a worker thread; report its exception.

        Raises:
            RuntimeError: there is no thread, and the system cannot start one.
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
            # The system cannot start one: the work waits for the existing threads.
            if self._threads == 0:
                raise
        else:
            self._threads += 1

    def _run(self) -> None:
        while True:
            try:
                self._serve()
            except BaseException as error:  # of the function, or thrown in by a thread (ERR-07)
                self._wake.put(None)
                self.on_error("a worker thread was interrupted", error)

    def _serve(self) -> None:
        while True:
            self._wake.get()
            try:
                function = self._work.popleft()
            except IndexError:
                continue  # every interruption leaves one entry too many
            try:
                function()
            finally:
                del function  # it holds the arguments and the result of the call
                with self._lock:
                    self._unfinished -= 1
