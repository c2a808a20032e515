"""The waiting of a stdio process on Windows, where no system call waits for pipes (WIN-03).

`PipePoll` has the place of `select.poll`: a thread for each pipe reads ahead, at most
`_MOST_AHEAD` pieces, and wakes the thread that waits. Before the first coroutine that one waits for
a lock, then for asyncio's completion port.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attrs import define, field

from .reactor import GONE, READABLE, Reactor

if sys.platform == "win32":
    from _winapi import PeekNamedPipe
    from msvcrt import get_osfhandle

if TYPE_CHECKING:
    from .loop import ReactorLoop

WAKE = -1
"""The number that `PipePoll.poll` reports after `wake`; no descriptor has it."""

_CHUNK_BYTES = 65_536
_MOST_AHEAD = 16


@define(eq=False, repr=False)
class PipePoll:
    """Waits for pipes, and for `wake`, which any thread and signal handler may call.

    Attributes:
        select: waits for asyncio's completions, a number of seconds at most (None: no limit).
        interrupt: ends that wait; from any thread.
    """

    select: Callable[[float | None], object] | None = field(default=None)
    interrupt: Callable[[], object] | None = field(default=None)
    _pipes: dict[int, _PipeReader] = field(factory=dict, init=False)
    _events: dict[int, int] = field(factory=dict, init=False)
    _wake_up: threading.Lock = field(factory=threading.Lock, init=False)
    _woken: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._wake_up.acquire()

    def register(self, descriptor: int, events: int) -> None:
        """Report `events` of a pipe from now on; one without events is written to."""
        self._events[descriptor] = events
        if events and descriptor not in self._pipes:
            self._pipes[descriptor] = _PipeReader(descriptor, self._interrupt)

    def unregister(self, descriptor: int) -> None:
        """Report nothing of a pipe; what was read of it is kept."""
        del self._events[descriptor]

    def read(self, descriptor: int, size: int) -> bytes:
        """Return the next piece of a pipe that `poll` has reported, of any size; b"" at its end."""
        return self._pipes[descriptor].take()

    def has_ended(self, descriptor: int) -> bool:
        """Return whether a pipe was read to its end; its last pieces may not be taken yet."""
        pipe = self._pipes.get(descriptor)
        return pipe is not None and pipe.ended

    def wake(self) -> None:
        """End the present wait, or the next one."""
        if not self._woken:
            self._woken = True
            self._interrupt()

    def poll(self, timeout_ms: float | None = None) -> list[tuple[int, int]]:
        """Return the descriptors with their events, once there are any or the time is up."""
        seconds = None if timeout_ms is None else timeout_ms / 1000
        if self._woken or self._ready():
            seconds = 0.0
        if self.select is not None:
            self.select(seconds)
        else:
            limit = -1 if seconds is None else min(seconds, threading.TIMEOUT_MAX)
            self._wake_up.acquire(timeout=limit)
        ready = self._ready()
        if self._woken:
            self._woken = False
            ready.append((WAKE, READABLE))
        return ready

    def close(self) -> None:
        """Let later wake-ups do nothing."""
        self._woken = True
        self.select = self.interrupt = None

    def _ready(self) -> list[tuple[int, int]]:
        found = []
        for descriptor, events in self._events.items():
            pipe = self._pipes.get(descriptor)
            if pipe is not None and (seen := pipe.events & (events | GONE)):
                found.append((descriptor, seen))
        return found

    def _interrupt(self) -> None:
        interrupt = self.interrupt
        if interrupt is not None:
            with suppress(RuntimeError):  # the loop has been closed
                interrupt()
        else:
            with suppress(RuntimeError):  # it is to wake up already
                self._wake_up.release()


class _PipeReader:
    """A thread that reads a pipe to its end, and never far ahead of who takes it."""

    __slots__ = ("_chunks", "_descriptor", "_on_change", "_room", "ended")

    def __init__(self, descriptor: int, on_change: Callable[[], object]) -> None:
        self._descriptor = descriptor
        self._on_change = on_change
        self._chunks: deque[bytes] = deque()
        self._room = threading.Semaphore(_MOST_AHEAD)
        self.ended = False
        threading.Thread(target=self._run, name="foundation-rt-input", daemon=True).start()

    @property
    def events(self) -> int:
        """Return what `poll` reports of the pipe."""
        if self.ended:
            return READABLE | GONE
        return READABLE if self._chunks else 0

    def take(self) -> bytes:
        """Return the next piece; nothing at the end."""
        if not self._chunks:
            return b""
        self._room.release()
        return self._chunks.popleft()

    def _run(self) -> None:
        while self._room.acquire():
            try:
                data = os.read(self._descriptor, _CHUNK_BYTES)
            except OSError:
                data = b""  # a console that was closed has ended
            if not data:
                break
            self._chunks.append(data)
            self._on_change()
        self.ended = True
        self._on_change()


class WindowsReactor(Reactor):
    """A reactor whose handlers take from it what was read of their pipes."""

    _poll: PipePoll  # type: ignore[assignment]

    def _open(self) -> None:
        self._poll = PipePoll()
        self._wake_pipe = ()
        self._handlers[WAKE] = lambda events: self._on_woken()

    def read(self, descriptor: int, size: int) -> bytes:
        """Return the next piece of a pipe, of 64 KiB at most."""
        return self._poll.read(descriptor, size)

    def has_ended(self, descriptor: int) -> bool:
        """Return whether a pipe was read to its end, in whichever thread."""
        return self._poll.has_ended(descriptor)

    def has_input(self, descriptor: int) -> bool:
        """Return whether a pipe that is not watched can be read at once."""
        if sys.platform == "win32":
            with suppress(OSError):  # it has ended, or is no pipe
                return bool(PeekNamedPipe(get_osfhandle(descriptor), 0)[0])
        return False

    def wake(self) -> None:
        """End the present wait and let `on_wake` be called; from any thread or signal handler."""
        self._poll.wake()

    def wait_by(
        self, select: Callable[[float | None], object], interrupt: Callable[[], object]
    ) -> None:
        """Wait by asyncio's completion port from now on."""
        self._poll.select, self._poll.interrupt = select, interrupt

    def _make_loop(self) -> ReactorLoop:
        if sys.platform == "win32":
            from .windows_loop import make_loop
        else:
            from .loop import make_loop
        return make_loop(self)

    def close(
        self, grace: float, first: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> None:
        """End the asyncio loop, if any, as the other reactor does."""
        super().close(grace, first)
        self._poll.close()
