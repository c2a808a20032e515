"""A child process and everything that it starts: three pipes, and an end that leaves nothing.

The life of a child:

    started ──► running ──► it exited, or closed its input or output: drained ──► over: ending
                   └─────── end() ──► ending

    ending: input closed ─ grace ─► SIGTERM ─ grace ─► SIGKILL ─ _REAP ─► given up
                └── exited: at once ──►└── the whole group has gone ─► pipes closed ─► gone

The child leads a session, and so a process group, of its own: signals go to all of it, and a Ctrl-C
at our terminal to none of it. A group may outlive its leader, whose id then still is the group's:
as long as one of it is left, nobody else can get that id. So the group is looked after from the
moment its leader exits, and never again once it was empty.

Timers and callbacks do the ending, no task: whoever waits for it may be cancelled, or the loop may
be cancelling all tasks, and it goes on. While a group is ended it is polled; there is no other way
to learn that the last of it has gone.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import signal
import socket
import stat
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from attrs import define, field

log = logging.getLogger("foundation_rt.client")

_INPUT, _OUTPUT, _ERRORS = range(3)

_DRAIN = 0.25  # seconds for what is in the pipes when the first sign of the end is seen
_POLL = 0.005  # seconds until a group whose leader has exited is looked at again; doubled each time
_REAP = 2.0  # seconds in which what was killed must vanish; it does so in milliseconds
_PIPE_CAPACITY = 64 * 1024  # bytes


@define(eq=False, repr=False)
class ChildProcess(asyncio.SubprocessProtocol):
    """A child process that is talked to over its standard input and output.

    Args:
        on_output: given what comes from its standard output, cut anywhere, until it is over.
        on_errors: given what comes from its stderr, which is read as long as it is there.
        on_over: called once when nothing more will be exchanged, unless `end` was called before.
        grace: seconds it has to end by itself after its input was closed, and again after SIGTERM.

    Attributes:
        exit_code: None while it runs; negative for the signal that ended it.
        left_pipe: the one of 0 and 1 that was closed, by the child, before it was over; the first.
        room: set while little is unsent.
        has_read: whether it has read anything of what was sent to it, as far as the system says;
            known when it is over.
    """

    _on_output: Callable[[bytes], object]
    _on_errors: Callable[[bytes], object]
    _on_over: Callable[[], object]
    _grace: float
    exit_code: int | None = field(default=None, init=False)
    left_pipe: int | None = field(default=None, init=False)
    room: asyncio.Event = field(factory=asyncio.Event, init=False)
    has_read: bool = field(default=True, init=False)
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop, init=False)
    _starting: asyncio.Task[object] | None = field(default=None, init=False)
    _transport: asyncio.SubprocessTransport | None = field(default=None, init=False)
    _input: asyncio.WriteTransport | None = field(default=None, init=False)
    _open_pipes: set[int] = field(factory=set, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    # What has not been sent yet of what ends it; None until it is over.
    _signals: list[signal.Signals] | None = field(default=None, init=False)
    _deadline: float = field(default=0.0, init=False)
    _pause: float = field(default=_POLL, init=False)
    _group_is_gone: bool = field(default=False, init=False)
    _is_draining: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)
    _written_bytes: int = field(default=0, init=False)
    _watched_input: int | None = field(default=None, init=False)  # a descriptor of our own
    _gone: asyncio.Future[None] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.room.set()
        self._gone = self._loop.create_future()

    async def start(
        self, words: Sequence[str], env: Mapping[str, str], cwd: str | os.PathLike[str] | None
    ) -> None:
        """Start it. Cancelled in the middle, it is killed.

        Args:
            words: the command and its arguments.
            env: its environment, all of it.
            cwd: where it runs; None: where we do.

        Raises:
            OSError: it cannot be started.
        """
        spawning = self._loop.subprocess_exec(
            lambda: self, *words, env=env, cwd=cwd, start_new_session=True
        )
        self._starting = asyncio.ensure_future(spawning)
        try:
            # Not cut short: asyncio would kill the child alone, without what it may have started.
            await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            self.kill()
            await self._ended()
            raise

    @property
    def is_started(self) -> bool:
        """Return whether it runs, or has run."""
        return self._transport is not None

    @property
    def unsent_bytes(self) -> int:
        """How much it has not taken yet."""
        return 0 if self._input is None else self._input.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """Send bytes, or keep them until they are taken; does nothing once its input is closed."""
        if _INPUT in self._open_pipes and self._signals is None:
            assert self._input is not None
            # asyncio is told first, and warns of what is written from then on (CHILD-16).
            if not self._input.is_closing():
                self._written_bytes += len(data)
                self._input.write(data)

    # -- what asyncio tells ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It runs."""
        # Those of uvloop are of no class of asyncio's.
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._input = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(_INPUT))
        self._open_pipes = {_INPUT, _OUTPUT, _ERRORS}
        _read_less(self._transport.get_pipe_transport(_OUTPUT))
        pipe = self._input.get_extra_info("pipe")
        if pipe is not None:  # uvloop shows none
            with suppress(ValueError):  # the child has ended, and asyncio has closed the pipe
                self._watched_input = os.dup(pipe.fileno())

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """It has written."""
        if fd == _ERRORS:
            self._on_errors(data)
        elif self._signals is None:
            self._on_output(data)

    def pause_writing(self) -> None:
        """Its input is full, and something is unsent."""
        if self._signals is None:
            self.room.clear()

    def resume_writing(self) -> None:
        """It has read."""
        self.room.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """A pipe is closed, by whichever side."""
        self._open_pipes.discard(fd)
        if fd == _INPUT and exc is not None:
            self.has_read = False  # so it ended, or closed it, before it was written to
        if fd != _ERRORS and self._signals is None and self.left_pipe is None:
            self.left_pipe = fd
        if fd != _ERRORS or self.exit_code is not None:
            self.wind_up()
        if fd == _ERRORS and self._is_draining:
            self._release()

    def process_exited(self) -> None:
        """It has ended, and is no zombie any more."""
        assert self._transport is not None
        self.exit_code = self._transport.get_returncode()
        if self._signals is None:
            self.wind_up()
        else:
            self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended, and all descriptors are closed."""
        self._is_closed = True
        if self._group_is_gone:
            self._conclude()

    # -- the end -----------------------------------------------------------------------------

    def wind_up(self) -> None:
        """It is of no use any more: over as soon as what it wrote is read, and soon in any case."""
        if self._signals is not None:
            return
        if self.exit_code is not None and self._open_pipes <= {_INPUT}:
            self._be_over()
        elif self._timer is None:
            # Somebody else may hold the pipes open: what a child has started, say.
            self._timer = self._loop.call_later(_DRAIN, self._be_over)

    async def end(self) -> None:
        """Have it end, and wait until it and its group have gone; bounded by the graces.

        Cancelled in the middle, it kills them and waits the milliseconds that this takes.
        """
        try:
            await self._ended()
        except asyncio.CancelledError:
            self.kill()
            await self._ended()
            raise

    def kill(self) -> None:
        """There is no grace any more."""
        self._grace = 0.0
        if self._signals:
            self._deadline = self._loop.time()
            self._go_on()

    async def _ended(self) -> None:
        if self._starting is not None and not self._starting.done():
            await asyncio.wait([self._starting])
        if self._transport is not None:
            self._begin_to_end()
            if not self._gone.done():
                await asyncio.wait([self._gone])

    def _be_over(self) -> None:
        self._begin_to_end()
        self._on_over()

    def _begin_to_end(self) -> None:
        if self._signals is None:
            assert self._input is not None
            self._look_at_input()
            self._signals = [signal.SIGTERM, signal.SIGKILL]
            self.room.set()  # whoever waits for it has waited in vain
            self._input.close()
            self._deadline = self._loop.time() + self._grace
            self._go_on()

    def _look_at_input(self) -> None:
        """Find out if anything was read; the descriptor would keep the pipe open."""
        if self._watched_input is not None:
            if self.exit_code is not None and _has_unread(self._watched_input, self._written_bytes):
                self.has_read = False
            os.close(self._watched_input)
            self._watched_input = None

    def _go_on(self) -> None:
        """See what is left of it, and do what is due."""
        if self._timer is not None:
            self._timer.cancel()
        assert self._signals is not None
        left = self._deadline - self._loop.time()
        exited = self.exit_code is not None
        was_asked = len(self._signals) < 2
        if exited and self._group_has_gone():
            self._group_is_gone = self._is_draining = True
            if _ERRORS in self._open_pipes:
                # Its last words: they can be read now, and then the end of the file.
                self._timer = self._loop.call_later(_DRAIN, self._release)
            else:
                self._release()
        elif left > 0 and (was_asked or not exited):
            pause = min(left, self._pause) if exited else left
            self._pause *= 2
            self._timer = self._loop.call_later(pause, self._go_on)
        elif self._signals:
            self._signal(self._signals.pop(0))
            self._deadline = self._loop.time() + (self._grace if self._signals else _REAP)
            self._pause = _POLL
            self._go_on()
        else:
            log.warning("processes that were killed are still there")
            self._release()

    def _group_has_gone(self) -> bool:
        """Return whether nothing is left of the group; its leader has exited."""
        assert self._transport is not None
        group = self._transport.get_pid()
        if self._signal(0):
            if _has_living(group):
                return False
            # Where we are the first process of a container, orphans become our children.
            with suppress(ChildProcessError):
                while os.waitpid(-group, os.WNOHANG)[0]:
                    pass
        return True

    def _signal(self, number: int) -> bool:
        """Send a signal to the group; return whether there was anybody to send it to."""
        assert self._transport is not None
        if not self._group_is_gone:
            try:
                os.killpg(self._transport.get_pid(), number)
            except (ProcessLookupError, PermissionError):  # macOS: only zombies are left
                self._group_is_gone = True
        return not self._group_is_gone

    def _release(self) -> None:
        assert self._transport is not None and self._input is not None
        self._group_is_gone, self._is_draining = True, False
        if self._timer is not None:
            self._timer.cancel()
        if self.unsent_bytes:
            self._input.abort()  # closing would wait until it is sent
        self._transport.close()
        if self._is_closed or self.exit_code is None:
            self._conclude()

    def _conclude(self) -> None:
        if not self._gone.done():
            self._gone.set_result(None)


def _read_less(output: Any) -> None:
    """Have no more read at once than a pipe holds.

    asyncio has room for 256 KiB made for every read, which malloc maps and unmaps each time: 25 of
    the 105 us of CPU that a call takes. Less than 128 KiB comes from the heap.
    """
    if hasattr(output, "max_size"):  # uvloop has a buffer of its own
        output.max_size = _PIPE_CAPACITY


def _has_unread(descriptor: int, written: int) -> bool:
    """Return whether an input that nobody reads any more was never read; Linux tells.

    It is a pipe from Python 3.12 on, and a socket before: a socket whose peer was closed with
    something unread says ECONNRESET.
    """
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        unread = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))
        return 0 < written == int.from_bytes(unread, sys.byteorder)
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return error == errno.ECONNRESET


def _has_living(group: int) -> bool:
    """Return whether a group that exists has more than zombies, which only their parent can remove.

    Many first processes of containers never do so, and nothing but this tells. It takes 25 us for
    each process of the machine.
    """
    try:
        found = [entry.path for entry in os.scandir("/proc") if entry.name.isdecimal()]
    except FileNotFoundError:
        return True  # macOS: there zombies cannot be signalled
    for path in found:
        with suppress(OSError):
            # pid (name) state parent group ...; a name may have spaces and parentheses
            state, _, its_group = Path(path, "stat").read_bytes().rpartition(b")")[2].split()[:3]
            if int(its_group) == group and state not in b"ZX":
                return True
    return False
