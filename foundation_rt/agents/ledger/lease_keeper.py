"""Leases are renewed while the event loop is blocked, from a thread with a loop of its own.

A handler that computes or waits without `await` blocks the loop on which its node renews leases:
other processes would take its requests over and execute them again. A thread asks the loop for a
sign of life six times in a lease. When none comes, it says what blocks the loop and renews the
leases itself until one does. It costs nothing while nothing is executed.

It cannot help where the thread does not run either: in a process that is stopped, or in an
extension that keeps the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field

from ...base.abort import call_in_loop
from ...base.shown import Shown
from ..persistence import StoreError

if TYPE_CHECKING:
    from types import FrameType

    from ...base.logs.logger import StructuredLogger
    from ..persistence import LeaseRenewer
    from .types import Claim

_PACKAGE = str(Path(__file__).parents[2])


@define(eq=False, repr=False)
class LeaseKeeper(Shown):
    """Watches one event loop; made in it.

    Args:
        held: returns the claims that are held; called in the thread.
        agent_of: returns the agent that executes in a task, if it is one of an agent.
        renewer: renews leases from the thread's own event loop.
        now_ms: returns the time of the ledger.
    """

    held: Callable[[], Iterable[Claim]]
    agent_of: Callable[[asyncio.Task[object] | None], str | None]
    renewer: LeaseRenewer
    now_ms: Callable[[], int]
    lease_ms: int
    logger: StructuredLogger
    _watched: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop, init=False)
    _watched_thread: int = field(factory=threading.get_ident, init=False)
    # Of the thread, which is started when something is executed for the first time.
    _own: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _thread: threading.Thread = field(init=False)
    _keeping: asyncio.Task[None] | None = field(default=None, init=False)
    _is_over: bool = field(default=False, init=False)
    # Whether something is, or was a moment ago, executed; `_needed` says so in the thread's loop.
    _is_needed: bool = field(default=False, init=False)
    _needed: asyncio.Event = field(factory=asyncio.Event, init=False)

    def need(self) -> None:
        """Begin to watch, now that something is executed; in the watched loop."""
        if self._is_needed:
            return
        self._is_needed = True
        if self._own is None:
            self._own = own = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._run, args=(own,), name="foundation-rt-leases", daemon=True
            )
            self._thread.start()
        self._own.call_soon_threadsafe(self._needed.set)

    async def stop(self) -> None:
        """End the thread."""
        self._is_over = True
        if self._own is not None:
            call_in_loop(self._own, self._end)
            await asyncio.to_thread(self._thread.join)

    # -- in the thread ------------------------------------------------------------------------

    def _run(self, own: asyncio.AbstractEventLoop) -> None:
        with suppress(asyncio.CancelledError), asyncio.Runner(loop_factory=lambda: own) as runner:
            runner.run(self._keep(own))

    def _end(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()

    async def _keep(self, own: asyncio.AbstractEventLoop) -> None:
        self._keeping = asyncio.current_task()
        pause_s = self.lease_ms / 6000
        try:
            while not self._is_over:
                await self._needed.wait()
                if not list(self.held()):
                    # Before the next look: what is executed from now on needs it again.
                    self._needed.clear()
                    self._is_needed = False
                    if not list(self.held()):
                        continue
                    self._is_needed = True
                    self._needed.set()
                sign = asyncio.Event()
                if not call_in_loop(self._watched, call_in_loop, own, sign.set):
                    return  # its leases lapse
                await self._see_through(sign, pause_s)
                await asyncio.sleep(pause_s)
        finally:
            await self.renewer.close()

    async def _see_through(self, sign: asyncio.Event, pause_s: float) -> None:
        """Renew leases until the sign of life comes."""
        named = False
        while True:
            asked = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await sign.wait()
                    return
            # Where this thread was late too, the whole process was stopped.
            if not named and time.monotonic() - asked < 2 * pause_s:
                named = self._name_what_blocks()
            claims = [(claim.request_id, claim.epoch) for claim in list(self.held())]
            with suppress(StoreError):  # the next one may succeed
                await self.renewer.renew(claims, self.now_ms() + self.lease_ms)

    def _name_what_blocks(self) -> bool:
        """Say what blocks the watched loop; return False where no task runs: it is only late."""
        frame = sys._current_frames().get(self._watched_thread)
        task = None
        with suppress(RuntimeError):
            task = asyncio.current_task(self._watched)
        if task is None:
            return False
        what = "an agent blocks the event loop: nothing else runs; its leases are renewed"
        fields = {"agentId": self.agent_of(task), "at": None if frame is None else _place(frame)}
        self.logger.warn(what, fields)
        return True


def _place(innermost: FrameType) -> str:
    """Return the file, line and function of the user's code that was called last by the runtime."""
    found = innermost
    frame: FrameType | None = innermost
    while frame is not None and not frame.f_code.co_filename.startswith(_PACKAGE):
        found, frame = frame, frame.f_back
    return f"{found.f_code.co_filename}:{found.f_lineno} in {found.f_code.co_name}"
