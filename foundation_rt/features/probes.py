"""Probes: functions of an application that are asked for a value, whatever they do (OPS-35).

A probe reads a gauge of an application, or checks whether it is ready. It may ask a database that
is slow, or that never answers. So the time of those who ask is bounded, not that of the function:
a probe has one run at a time, and its answer is kept for a second. A run that takes too long is
left alone (a coroutine is cancelled), and until it has ended the answer is "timeout". So a function
that hangs costs one thread or one task, however often it is asked.

A plain function runs in a daemon thread of its own: it may block, and the process can end without
it. A coroutine runs as a task on the event loop that asks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Literal

from attrs import define, field

from ..base.abort import call_in_loop
from ..base.clock import Clock, SystemClock
from ..errors import UsageError, describe_exception
from ..kernel.registry.tools import is_async_callable

if TYPE_CHECKING:
    import asyncio

    from ..base.logs.logger import StructuredLogger

KEEP_SECONDS = 1.0
"""The time for which the answer of a run is the answer of the probe, by default."""


@define(eq=False, repr=False)
class ProbeAnswer:
    """The value that a run returned, or the reason why it returned none.

    Attributes:
        problem: None if it returned.
        error: the exception of a run that failed.
    """

    value: Any = None
    problem: Literal["failed", "timeout"] | None = None
    error: BaseException | None = None


_TIMEOUT = ProbeAnswer(problem="timeout")


def _nothing() -> None:
    """Do nothing at the end of a run."""


@define(eq=False, repr=False)
class _Run:
    """One run of the function.

    Attributes:
        until: when those who wait for it give up, by `time.monotonic`.
        answer: None until it has ended.
        waiters: called when it has ended.
        loop: the event loop of a coroutine.
        task: the coroutine; asyncio itself keeps only a weak reference.
    """

    until: float
    answer: ProbeAnswer | None = field(default=None, init=False)
    waiters: list[Callable[[], object]] = field(factory=list, init=False)
    loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    task: asyncio.Task[None] | None = field(default=None, init=False)

    @property
    def is_under_way(self) -> bool:
        """Return whether it may still end: that of a closed event loop never does."""
        return self.answer is None and not (self.loop is not None and self.loop.is_closed())

    @property
    def seconds_left(self) -> float:
        """Return how long it may be waited for."""
        return max(0.0, self.until - time.monotonic())


@define(eq=False, repr=False)
class Probe:
    """Asks one function, in bounded time and with one run at a time; safe from any thread.

    Args:
        what: names the function in the log: "readiness check 'database'".
        function: takes no arguments; a coroutine function, or a plain one, which may block.
        timeout_ms: the longest that a run is waited for, from its start.
        accept: turns what the function returned into the value; what it raises is a failure.

    Attributes:
        keep_seconds: the time for which the answer of a run is the answer of the probe.

    Raises:
        UsageError: the function is none, or the time is not between 1 ms and a minute.
    """

    what: str
    function: Callable[[], Any]
    timeout_ms: int
    accept: Callable[[Any], Any]
    keep_seconds: float = field(default=KEEP_SECONDS, init=False)
    _clock: Clock = field(factory=SystemClock, init=False)
    _logger: StructuredLogger | None = field(default=None, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _run: _Run | None = field(default=None, init=False)
    _answered_at: float = field(default=0.0, init=False)
    _is_failing: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        function: object = self.function
        if not callable(function):
            raise UsageError(f"{self.what}: {function!r} is not a function")
        given: object = self.timeout_ms
        if type(given) is not int or not 1 <= given <= 60_000:
            raise UsageError(f"{self.what}: timeout_ms is 1 to 60000 milliseconds")

    def attach(self, clock: Clock, logger: StructuredLogger | None) -> None:
        """Measure the age of answers by `clock`; log failures and recoveries to `logger`."""
        self._clock, self._logger = clock, logger

    async def ask(self) -> ProbeAnswer:
        """Return the answer; wait for a run for `timeout_ms` at most."""
        import asyncio

        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def settle() -> None:
            if not ended.done():
                ended.set_result(None)

        def wake() -> None:
            call_in_loop(loop, settle)

        run = self._join(wake, loop)
        try:
            if run.answer is None:
                await asyncio.wait([ended], timeout=run.seconds_left)
        finally:
            self._leave(run, wake)
        return self._answer_of(run)

    def start(self) -> None:
        """Start a run where `ask_blocking` would; do not wait for it."""
        if not is_async_callable(self.function):
            self._join(_nothing, None)

    def ask_blocking(self) -> ProbeAnswer:
        """Return the answer, in a thread without an event loop; wait for `timeout_ms` at most.

        A coroutine function is not started: its answer is that of the run before, or "timeout".
        """
        if is_async_callable(self.function):
            return self.latest()
        ended = threading.Event()
        run = self._join(ended.set, None)
        if run.answer is None:
            ended.wait(run.seconds_left)
        self._leave(run, ended.set)
        return self._answer_of(run)

    def latest(self) -> ProbeAnswer:
        """Return the answer of the last run, which may not have ended; do not wait."""
        return _TIMEOUT if self._run is None else self._answer_of(self._run)

    # -- a run and those who wait for it

    def _join(self, wake: Callable[[], object], loop: asyncio.AbstractEventLoop | None) -> _Run:
        """Return the run whose answer is to be waited for; `wake` is called at its end."""
        with self._lock:
            run = self._run
            if run is None or not (run.is_under_way or self._is_fresh(run)):
                run = self._run = self._start(loop)
            if run.answer is None:
                run.waiters.append(wake)
            return run

    def _is_fresh(self, run: _Run) -> bool:
        age = self._clock.monotonic() - self._answered_at
        return run.answer is not None and 0 <= age < self.keep_seconds

    def _leave(self, run: _Run, wake: Callable[[], object]) -> None:
        with self._lock:
            if wake in run.waiters:
                run.waiters.remove(wake)

    def _answer_of(self, run: _Run) -> ProbeAnswer:
        answer = run.answer or _TIMEOUT
        self._note(answer)
        return answer

    # -- running the function

    def _start(self, loop: asyncio.AbstractEventLoop | None) -> _Run:
        run = _Run(time.monotonic() + self.timeout_ms / 1000)
        if not is_async_callable(self.function):
            thread = threading.Thread(
                target=self._run_function, args=(run,), name=f"foundation-rt {self.what}"
            )
            thread.daemon = True
            try:
                thread.start()
            except RuntimeError as error:  # the limit of threads
                run.answer = ProbeAnswer(problem="failed", error=error)
                self._answered_at = self._clock.monotonic()
        elif loop is not None:
            from contextvars import Context

            run.loop = loop
            # Of its own, since the request that asks first is not the only one that asks.
            run.task = loop.create_task(self._run_coroutine(run), context=Context())
        return run

    def _run_function(self, run: _Run) -> None:
        try:
            value = self.function()
            if isinstance(value, CoroutineType):
                value.close()  # Python would warn that it was never awaited
                raise TypeError("it returned a coroutine: declare it with async def")
            answer = ProbeAnswer(self.accept(value))
        except BaseException as error:
            answer = ProbeAnswer(problem="failed", error=error)
        self._end(run, answer)

    async def _run_coroutine(self, run: _Run) -> None:
        import asyncio

        answer = _TIMEOUT
        try:
            async with asyncio.timeout(run.seconds_left):
                value = await self.function()
            answer = ProbeAnswer(self.accept(value))
        except TimeoutError as error:
            if run.seconds_left > 0:
                answer = ProbeAnswer(problem="failed", error=error)
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:
            answer = ProbeAnswer(problem="failed", error=error)
        finally:
            self._end(run, answer)

    def _end(self, run: _Run, answer: ProbeAnswer) -> None:
        with self._lock:
            run.answer, run.task = answer, None
            self._answered_at = self._clock.monotonic()
            waiters, run.waiters = run.waiters, []
        for wake in waiters:
            wake()

    def _note(self, answer: ProbeAnswer) -> None:
        """Log that the function begins to fail, or that it has recovered."""
        with self._lock:
            is_failing = answer.problem is not None
            changed, self._is_failing = self._is_failing is not is_failing, is_failing
        if not changed or self._logger is None:
            return
        if not is_failing:
            self._logger.info(f"{self.what} has recovered")
        elif answer.error is None:
            self._logger.warn(f"{self.what} takes too long", {"timeoutMs": self.timeout_ms})
        else:
            self._logger.warn(f"{self.what} failed", {"error": describe_exception(answer.error)})
