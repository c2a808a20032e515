"""The asyncio side of the reactor; imported with the first coroutine, not before."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .reactor import Reactor


class ReactorSelector(selectors.DefaultSelector):
    """A selector that gets its waiting done by a reactor.

    The platform's selector (epoll, kqueue) is itself a descriptor that can be waited for: it is
    one of those the reactor watches, so asyncio's descriptors cost the reactor one entry.
    """

    def __init__(self, reactor: Reactor) -> None:
        super().__init__()
        self._reactor = reactor
        self._ready = False
        reactor.watch(self.fileno(), 1, self._on_ready)

    def _on_ready(self, events: int) -> None:
        self._ready = True

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Take one turn of the reactor; what is ready of asyncio's own is reported."""
        self._reactor.turn(None if timeout is None else max(0.0, timeout))
        if not self._ready:
            return []
        self._ready = False
        events: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        return events

    def close(self) -> None:
        """Leave the reactor and give the descriptor back."""
        self._reactor.unwatch(self.fileno())
        super().close()


def make_loop(reactor: Reactor) -> asyncio.AbstractEventLoop:
    """A loop whose waiting is done by `reactor`, set as the thread's own."""
    loop = asyncio.SelectorEventLoop(ReactorSelector(reactor))
    asyncio.set_event_loop(loop)
    return loop


def finish_loop(loop: asyncio.AbstractEventLoop, timeout: float = 0.5) -> None:
    """Cancel what still runs on `loop`, give it `timeout` seconds to end, and close the loop."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=timeout))
    loop.run_until_complete(loop.shutdown_asyncgens())
    asyncio.set_event_loop(None)
    loop.close()
