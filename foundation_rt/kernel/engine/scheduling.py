"""Schedulers: where a connection's timers and coroutines run.

The engine needs timers, a place for asyncio tasks, and a way back to the thread in which its host
expects calls. There are three schedulers (EMBED-02):

* `Reactor` in `kernel.stdio`, for the main thread of the stdio process;
* `HostLoop`, for a host with an event loop of its own;
* `Background`, for a host without one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from ...base.timers import Callback, Timer

if TYPE_CHECKING:
    import asyncio


ReportError = Callable[[str, BaseException | None], object]
"""Takes a message and an exception, or None, of an event loop that has failed."""


class Scheduler(Protocol):
    """The place where the timers and coroutines of a connection run."""

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """Run `callback` in `seconds`; only from the thread that feeds messages."""

    def run_later(self, seconds: float, callback: Callback) -> None:
        """Run `callback` in `seconds`; safe from any thread. A closed loop drops it."""

    def start_task(
        self, coroutine: Coroutine[Any, Any, None], started: Callable[[asyncio.Task[None]], object]
    ) -> None:
        """Run `coroutine` as a task in a context of its own.

        `started(task)` is called in the loop's thread after the first step of the task: a task that
        ends in it needs no deadline, with eager start and without.
        """

    def can_step(self) -> bool:
        """Return whether coroutines that never wait may run in this thread, in place (CALL-44)."""

    def call_in_loop(self, callback: Callback) -> None:
        """Run `callback` in the thread of the tasks' event loop; safe from any thread."""

    def is_here(self) -> bool:
        """Return whether the host may be called in this thread; safe from any thread."""

    def return_to_host(self, callback: Callback) -> None:
        """Run `callback` in the thread in which the host expects calls; safe from any thread.

        It is dropped if the host's loop is closed.
        """


def ignore_error(message: str, error: BaseException | None) -> None:
    """Ignore an error of a loop."""


def run_protected(loop: asyncio.AbstractEventLoop) -> None:
    """Run `loop` until it is stopped, or a task of a handler raises through it.

    asyncio raises `SystemExit` and `KeyboardInterrupt` of a task out of the loop. The task keeps
    the exception as well, so the handler that waits for it fails with it (ERR-05), and the loop can
    run again. The same holds after another thread has thrown an exception into this one (ERR-07).
    """
    try:
        loop.run_forever()
    except BaseException as error:
        if loop.is_closed():
            raise
        loop.call_exception_handler({"message": interruption(error), "exception": error})


def interruption(error: BaseException) -> str:
    """Return the log message for an exception that left a running loop."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return "a task tried to end the process"
    return "the loop was interrupted"


def report_errors(loop: asyncio.AbstractEventLoop, report: ReportError) -> None:
    """Report what asyncio would print, such as exceptions that were never retrieved."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        report(str(context.get("message")), context.get("exception"))

    loop.set_exception_handler(handle)


def start_task_on(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, None],
    started: Callable[[asyncio.Task[None]], object],
) -> None:
    """Start a task in the thread of its loop; call `started` after its first step."""
    # A loop runs callbacks in their order: this one after the first step of the task.
    loop.call_soon(started, create_task(loop, coroutine))


def create_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]
) -> asyncio.Task[None]:
    """Return a task in a context of its own; with Python 3.12 it starts at once."""
    import asyncio

    if sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, eager_start=True)
    return loop.create_task(coroutine)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, without importing asyncio."""
    if "asyncio" not in sys.modules:
        return None
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
