"""A child process with its family and three pipes; its end leaves nothing behind.

The states of a child:

    started ──► running ──► it exited, or closed its input or output: drained ──► over: ending
                   └─────── end() ──► ending

    ending: input closed ─ grace ─► SIGTERM ─ grace ─► SIGKILL ─ _REAP ─► given up
                └── exited: at once ──►└── the whole family has gone ─► pipes closed ─► gone

The child and all that it starts are a `family`: on POSIX signals go to all of a process group, on
Windows a job is terminated, at once after the first grace. A Ctrl-C at our terminal does not reach
it. Timers and callbacks end the child, not a task: the end goes on while callers are cancelled, or
while the loop cancels all tasks. A family that is being ended is polled from the exit of the child
on; there is no other way to learn that its last process has gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from attrs import define, field

from .family import Family, is_unread, watched

log = logging.getLogger("foundation_rt.client")

_INPUT, _OUTPUT, _ERRORS = range(3)

_DRAIN_SECONDS = 0.25  # to read the pipes after the first sign of the end
_POLL_SECONDS = (
    0.005  # seconds until a family whose child has exited is looked at again; doubled each time
)
_REAP_SECONDS = 2.0  # for killed processes to vanish; they do so in milliseconds
_PIPE_CAPACITY = 64 * 1024  # bytes


@define(eq=False, repr=False)
class ChildProcess(asyncio.SubprocessProtocol):
    """A child process with pipes to its stdin, stdout and stderr.

    Args:
        on_output: gets the bytes of its stdout, cut anywhere, until it is over.
        on_errors: gets the bytes of its stderr, until that is closed.
        on_over: called once when no more bytes are exchanged, unless `end` was called before.
        grace: seconds it has to end by itself after its input was closed, and again after SIGTERM.

    Attributes:
        exit_code: None while it runs; negative for the signal that ended it.
        closed_pipe: 0 or 1, the first of them that the child closed before it was over.
        writable: set while the buffer of its stdin is not full.
        has_read: whether it has read anything of what was sent to it, as far as the system says;
            known when it is over.
    """

    _on_output: Callable[[bytes], object]
    _on_errors: Callable[[bytes], object]
    _on_over: Callable[[], object]
    _grace: float
    exit_code: int | None = field(default=None, init=False)
    closed_pipe: int | None = field(default=None, init=False)
    writable: asyncio.Event = field(factory=asyncio.Event, init=False)
    has_read: bool = field(default=True, init=False)
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop, init=False)
    _starting: asyncio.Task[object] | None = field(default=None, init=False)
    _transport: asyncio.SubprocessTransport | None = field(default=None, init=False)
    _input: asyncio.WriteTransport | None = field(default=None, init=False)
    _open_pipes: set[int] = field(factory=set, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    # What has not been sent yet of what ends it; None until it is over.
    _signals: list[int] | None = field(default=None, init=False)
    _deadline: float = field(default=0.0, init=False)
    _pause: float = field(default=_POLL_SECONDS, init=False)
    _family: Family = field(factory=Family, init=False)
    _family_is_gone: bool = field(default=False, init=False)
    _is_draining: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)
    _written_bytes: int = field(default=0, init=False)
    _watched_input: int | None = field(default=None, init=False)  # a descriptor of our own
    _gone: asyncio.Future[None] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.writable.set()
        self._gone = self._loop.create_future()

    async def start(
        self, words: Sequence[str], env: Mapping[str, str], cwd: str | os.PathLike[str] | None
    ) -> None:
        """Start it. If this is cancelled, it is killed.

        Args:
            words: the command and its arguments.
            env: its environment, all of it.
            cwd: its working directory; None: that of this process.

        Raises:
            OSError: it cannot be started.
        """
        spawning = self._family.spawn(lambda: self, words, env, cwd)
        self._starting = asyncio.ensure_future(spawning)
        self._starting.add_done_callback(lambda _: self._family.started())
        try:
            # Shielded: asyncio would kill the child alone, without its children.
            await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            self.kill()
            await self._ended()
            raise

    @property
    def is_started(self) -> bool:
        """Return whether it was started."""
        return self._transport is not None

    @property
    def unsent_bytes(self) -> int:
        """The number of bytes that wait for it."""
        return 0 if self._input is None else self._input.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """Send bytes, or keep them until it reads; do nothing once its input is closed."""
        if _INPUT in self._open_pipes and self._signals is None:
            assert self._input is not None
            # asyncio knows first of a closed pipe, and warns of later writes (CHILD-16).
            if not self._input.is_closing():
                self._written_bytes += len(data)
                self._input.write(data)

    def pause_output(self) -> None:
        """Leave its output in the pipe, until `resume_output`."""
        output = self._output()
        if output is not None:
            output.pause_reading()

    def resume_output(self) -> None:
        """Read its output again."""
        output = self._output()
        if output is not None:
            output.resume_reading()

    def _output(self) -> asyncio.ReadTransport | None:
        """Return the pipe of its output, as long as that is open."""
        if self._transport is None or _OUTPUT not in self._open_pipes:
            return None
        output = cast(asyncio.ReadTransport | None, self._transport.get_pipe_transport(_OUTPUT))
        return None if output is None or output.is_closing() else output

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note that it runs."""
        # The transports of uvloop do not inherit from asyncio's.
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._family.adopt(self._transport.get_pid())
        self._input = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(_INPUT))
        self._open_pipes = {_INPUT, _OUTPUT, _ERRORS}
        _read_less(self._transport.get_pipe_transport(_OUTPUT))
        pipe = self._input.get_extra_info("pipe")
        if pipe is not None:  # uvloop shows none
            self._watched_input = watched(pipe)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Pass on its output."""
        if sys.platform == "win32":
            data = bytes(data)  # the proactor of Python 3.11 gives a bytearray
        if fd == _ERRORS:
            self._on_errors(data)
        elif self._signals is None:
            self._on_output(data)

    def pause_writing(self) -> None:
        """Note that the buffer of its stdin is full."""
        if self._signals is None:
            self.writable.clear()

    def resume_writing(self) -> None:
        """Note that it has read from its stdin."""
        self.writable.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Handle the end of a pipe."""
        self._open_pipes.discard(fd)
        if fd == _INPUT and exc is not None:
            self.has_read = False  # it was closed before the first write
        if fd != _ERRORS and self._signals is None and self.closed_pipe is None:
            self.closed_pipe = fd
        if fd != _ERRORS or self.exit_code is not None:
            self.end_soon()
        if fd == _ERRORS and self._is_draining:
            self._release()

    def process_exited(self) -> None:
        """Handle its exit."""
        assert self._transport is not None
        self.exit_code = self._transport.get_returncode()
        if self._signals is None:
            self.end_soon()
        else:
            self._advance_shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that it has ended, and all descriptors are closed."""
        self._is_closed = True
        if self._family_is_gone:
            self._shut_down()

    # -- the end

    def end_soon(self) -> None:
        """End it once its output is read, and after `_DRAIN_SECONDS` in any case."""
        if self._signals is not None:
            return
        if self.exit_code is not None and self._open_pipes <= {_INPUT}:
            self._finish()
        elif self._timer is None:
            # Another process may hold the pipes open, such as a child of the child.
            self._timer = self._loop.call_later(_DRAIN_SECONDS, self._finish)

    async def end(self) -> None:
        """End it, and wait until it and its family have gone; bounded by the graces.

        If this is cancelled, it kills them, and waits the milliseconds that this takes.
        """
        try:
            await self._ended()
        except asyncio.CancelledError:
            self.kill()
            await self._ended()
            raise

    def kill(self) -> None:
        """Kill it, without a grace."""
        self._grace = 0.0
        if self._signals:
            self._deadline = self._loop.time()
            self._advance_shutdown()

    async def _ended(self) -> None:
        if self._starting is not None and not self._starting.done():
            await asyncio.wait([self._starting])
        if self._transport is not None:
            self._begin_shutdown()
            if not self._gone.done():
                await asyncio.wait([self._gone])

    def _finish(self) -> None:
        self._begin_shutdown()
        self._on_over()

    def _begin_shutdown(self) -> None:
        if self._signals is None:
            assert self._input is not None
            self._check_input()
            self._signals = [*Family.ENDING]
            self.writable.set()  # callers that wait go on, and fail
            self._input.close()
            self._deadline = self._loop.time() + self._grace
            self._advance_shutdown()

    def _check_input(self) -> None:
        """Find out whether it has read anything; close the descriptor that keeps the pipe open."""
        if not self._written_bytes:
            self.has_read = False
        if self._watched_input is not None:
            if is_unread(self._watched_input, self._written_bytes):
                self.has_read = False
            os.close(self._watched_input)
            self._watched_input = None

    def _advance_shutdown(self) -> None:
        """Check the family, and take the next step of the end."""
        if self._timer is not None:
            self._timer.cancel()
        assert self._signals is not None
        left = self._deadline - self._loop.time()
        exited = self.exit_code is not None
        was_asked = len(self._signals) < len(Family.ENDING)
        if exited and self._family.has_gone():
            self._family_is_gone = self._is_draining = True
            if _ERRORS in self._open_pipes:
                # The rest of its stderr can be read now.
                self._timer = self._loop.call_later(_DRAIN_SECONDS, self._release)
            else:
                self._release()
        elif left > 0 and (was_asked or not exited):
            pause = min(left, self._pause) if exited else left
            self._pause *= 2
            self._timer = self._loop.call_later(pause, self._advance_shutdown)
        elif self._signals:
            self._family.send(self._signals.pop(0))
            self._deadline = self._loop.time() + (self._grace if self._signals else _REAP_SECONDS)
            self._pause = _POLL_SECONDS
            self._advance_shutdown()
        else:
            log.warning("processes that were killed are still there")
            self._release()

    def _release(self) -> None:
        assert self._transport is not None and self._input is not None
        self._family_is_gone, self._is_draining = True, False
        self._family.release()
        if self._timer is not None:
            self._timer.cancel()
        if self.unsent_bytes:
            self._input.abort()  # closing would wait until it is sent
        self._transport.close()
        if self._is_closed or self.exit_code is None:
            self._shut_down()

    def _shut_down(self) -> None:
        if not self._gone.done():
            self._gone.set_result(None)


def _read_less(output: Any) -> None:
    """Read no more at once than a pipe holds.

    asyncio allocates 256 KiB for every read, which malloc maps and unmaps each time: 25 of the 105
    us of CPU for a call. Less than 128 KiB comes from the heap.
    """
    if hasattr(output, "max_size"):  # uvloop has a buffer of its own
        output.max_size = _PIPE_CAPACITY
