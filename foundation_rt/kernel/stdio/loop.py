"""The asyncio side of the reactor; imported with the first coroutine, not before."""

from __future__ import annotations

import asyncio
import math
import select
import selectors
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVarTuple

if TYPE_CHECKING:
    from .reactor import Reactor

_Ts = TypeVarTuple("_Ts")


class ReactorSelector(selectors.DefaultSelector):
    """A selector that leaves the waiting to a reactor.

    The platform's selector (epoll, kqueue) is itself a descriptor that can be waited for. The
    reactor watches it, so all of asyncio's descriptors cost the reactor one entry.
    """

    def __init__(self, reactor: Reactor) -> None:
        super().__init__()
        self.reactor = reactor
        self._ready = False
        reactor.watch(self.fileno(), select.POLLIN, self._on_ready)

    def _on_ready(self, events: int) -> None:
        self._ready = True

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Take turns of the reactor until asyncio has something to do.

        After a turn without work for asyncio (an inline call, a reply from a thread) this does not
        return to the loop, whose bookkeeping would cost such a call 3 us.
        """
        reactor = self.reactor
        loop = reactor.prepare_loop()
        loop.due = False  # `timeout` accounts for everything scheduled so far
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            reactor.turn(timeout)
            if self._ready or loop.due or reactor.stopped:
                break
            if until is not None:
                timeout = until - time.monotonic()
                if timeout <= 0:
                    break
        if not self._ready:
            return []
        self._ready = False
        return super().select(0)

    def close(self) -> None:
        """Leave the reactor, and close the descriptor."""
        self.reactor.unwatch(self.fileno())
        super().close()


class ReactorLoop(asyncio.SelectorEventLoop):
    """An event loop that notes when something was scheduled on it.

    Attributes:
        due: whether something was scheduled since the loop last began to wait.
    """

    def __init__(self, reactor: Reactor) -> None:
        self.due = False
        super().__init__(ReactorSelector(reactor))

    def call_soon(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Schedule `callback` as every loop does, and set `due`."""
        self.due = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule `callback` as every loop does, and set `due`."""
        self.due = True
        return super().call_at(when, callback, *args, context=context)


def make_loop(reactor: Reactor) -> ReactorLoop:
    """Return a loop that waits by `reactor`, set as the thread's event loop."""
    loop = ReactorLoop(reactor)
    asyncio.set_event_loop(loop)
    return loop


def finish_loop(
    loop: asyncio.AbstractEventLoop, timeout: float, first: Coroutine[Any, Any, None] | None
) -> None:
    """Cancel the tasks of `loop`, wait `timeout` seconds for their end, and close the loop.

    Args:
        loop: the loop; it must not be running.
        timeout: the time for the cancelled tasks, in seconds.
        first: runs before, while the tasks still run; bounds its own time.
    """
    if first is not None:
        _run(loop, first, math.inf)
    until = time.monotonic() + timeout
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        _run(loop, asyncio.wait(tasks, timeout=timeout), until)
    _run(loop, loop.shutdown_asyncgens(), until)
    asyncio.set_event_loop(None)
    # The interpreter destroys the remaining tasks when errors can no longer be reported.
    loop.set_exception_handler(lambda loop, context: None)
    with suppress(RuntimeError):  # a task that is left behind may run the loop again
        loop.close()


def _run(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, object], until: float
) -> None:
    """Run `coroutine` on `loop`, despite handlers' tasks that raise through it or stop it."""
    task = loop.create_task(coroutine)
    while not task.done():
        try:
            loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt):
            pass  # a task has ended with it
        except RuntimeError:
            # A cancelled task has stopped the loop: continue while there is time.
            if time.monotonic() > until:
                task.cancel()
                return
