"""asyncio's loop in a stdio process on Windows; imported with the first coroutine, not before."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    if TYPE_CHECKING:
        from .windows import WindowsReactor

    class ReactorProactor(asyncio.IocpProactor):
        """A proactor that leaves the waiting to a reactor, which waits by it."""

        def __init__(self, reactor: WindowsReactor) -> None:
            super().__init__()
            self._reactor = reactor

        def select(self, timeout: float | None = None) -> list[Any]:
            """Take one turn of the reactor."""
            self._reactor.turn(timeout)
            return []  # what was ready is done: the loop ignores what a proactor returns

        def wait(self, timeout: float | None) -> None:
            """Wait for completions, `timeout` seconds at most (None: no limit)."""
            super().select(timeout)

    class ReactorLoop(asyncio.ProactorEventLoop):
        """A loop that waits by a reactor, and leaves the descriptor of signals to the watchdog."""

        def __init__(self, reactor: WindowsReactor) -> None:
            proactor = ReactorProactor(reactor)
            descriptor = signal.set_wakeup_fd(-1)
            super().__init__(proactor)
            signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
            reactor.wait_by(proactor.wait, lambda: self.call_soon_threadsafe(_nothing))

    def make_loop(reactor: WindowsReactor) -> ReactorLoop:
        """Return a loop that waits by `reactor`, set as the thread's event loop."""
        loop = ReactorLoop(reactor)
        asyncio.set_event_loop(loop)
        return loop

    def _nothing() -> None: ...
