"""Line-delimited JSON-RPC with a server that is a child process (spec/client-stdio.md)."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...protocol.framing import LineReader
from ..errors import ConnectionLostError
from ..targets import StdioServer
from .process import ChildProcess
from .stderr_tail import StderrTail, missing_variable
from .transport import MAX_MESSAGE_BYTES, not_opened

if TYPE_CHECKING:
    from ...protocol.framing import LineTooLong
    from ...protocol.revisions import Revision
    from .transport import ClientMessage, Receiver

log = logging.getLogger("foundation_rt.client")

_NTSTATUS = 0x80000000  # from here on, Windows says why it has ended a process
_PIPES = ("input", "output")
# One read has up to 32,768 lines, and each costs 30 us of the event loop if it is no message.
_LINES_AT_ONCE = 64
# Before the handshake, more than any banner or log that ends up on stdout by mistake (CHILD-25).
_MAX_EARLY_LINES = 10_000
_MAX_EARLY_BYTES = 4 * 1024 * 1024
# What may pass by itself: the system is short of something now.
_PASSING = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY)


@define(eq=False, repr=False)
class ChildProcessTransport:
    """A `Transport` to a child process, which it starts and ends.

    Args:
        server: what to start.
        max_message_bytes: longest message, in bytes; also the most that is buffered for a server
            that does not read (CHILD-07).
        on_stderr: gets every line of its stderr; a plain function.
    """

    server: StdioServer
    max_message_bytes: int = MAX_MESSAGE_BYTES
    on_stderr: Callable[[str], object] | None = None
    description: str = field(init=False)
    has_exchanges: bool = field(default=False, init=False)
    _receiver: Receiver = field(init=False)
    _child: ChildProcess | None = field(default=None, init=False)
    _lines: LineReader = field(init=False)
    _undelivered: deque[bytes | LineTooLong] = field(factory=deque, init=False)
    _is_paused: bool = field(default=False, init=False)
    _stderr_tail: StderrTail = field(factory=StderrTail, init=False)
    _closed: bool = field(default=False, init=False)
    _is_overfed: bool = field(default=False, init=False)
    _is_introduced: bool = field(default=False, init=False)
    _early_lines: int = field(default=0, init=False)
    _early_bytes: int = field(default=0, init=False)
    _end: str = field(default="", init=False)

    def __attrs_post_init__(self) -> None:
        self.description = self.server.description
        self._lines = LineReader(self.max_message_bytes)

    @property
    def stderr(self) -> str:
        """The last 64 KiB of the server's stderr, as they came."""
        return self._stderr_tail.text

    # -- to the server

    async def open(self, receiver: Receiver) -> None:
        """Start the server; once.

        Raises:
            ConnectionLostError: it cannot be started.
        """
        if self._closed or self._child is not None:
            raise not_opened(self, "is opened once, and not after it was closed")
        self._receiver = receiver
        server = self.server
        self._child = child = ChildProcess(
            self._on_output, self._on_errors, self._on_over, server.shutdown_grace
        )
        words = (server.command, *server.args)
        try:
            await child.start(words, server.environment(), server.cwd)
        except OSError as error:
            reason, remedy = _explain(error, server)
            self._end = f"could not be started: {reason}"
            lost = not_opened(self, self._end)
            lost.suggested_action = remedy
            lost.retryable = error.errno in _PASSING
            raise lost from error
        if self._closed:
            raise not_opened(self, "was closed while it was opened")

    def send(self, message: ClientMessage) -> None:
        """Write a message to the server's stdin, or buffer it."""
        child = self._child
        if child is None or self._is_overfed:
            return
        if not child.writable.is_set() and child.unsent_bytes > self.max_message_bytes:
            self._is_overfed = True
            child.end_soon()
            return
        child.write(message.line + b"\n")

    @property
    def is_congested(self) -> bool:
        """Return whether the server does not read its stdin."""
        return self._child is not None and not self._child.writable.is_set()

    async def drained(self) -> None:
        """Wait until it reads again, or has ended."""
        # In a loop: only the first waiter to go on finds room for sure.
        while self._child is not None and not self._child.writable.is_set():
            await self._child.writable.wait()

    def forget(self, request_id: str) -> None:
        """Do nothing: a late response is dropped when it arrives."""

    def negotiated(self, revision: Revision) -> None:
        """Note that the server has started; the transport is the same for every revision."""
        self._is_introduced = True

    async def close(self) -> None:
        """End the server, and all processes it has started; see `ChildProcess.end`."""
        self._closed = True
        if self._child is not None:
            await self._child.end()

    # -- from the server

    def _on_output(self, data: bytes) -> None:
        lines = self._lines.feed(data)
        if not self._is_introduced:
            self._early_lines += len(lines)
            self._early_bytes += len(data)
            if self._is_flooding:
                self._end_flood()
                return
        self._undelivered.extend(lines)
        if not self._is_paused:
            self._deliver_some()

    @property
    def _is_flooding(self) -> bool:
        return self._early_lines > _MAX_EARLY_LINES or self._early_bytes > _MAX_EARLY_BYTES

    def _end_flood(self) -> None:
        """End a server that writes without end instead of answering; read no more of it."""
        assert self._child is not None
        self._undelivered.clear()
        self._lines = LineReader(self.max_message_bytes)
        self._child.pause_output()
        self._child.end_soon()

    def _deliver_some(self) -> None:
        """Deliver some lines; the event loop has its turn before the next ones (CHILD-24)."""
        if self._is_flooding:
            return
        self._deliver(_LINES_AT_ONCE)
        assert self._child is not None
        was_paused, self._is_paused = self._is_paused, bool(self._undelivered)
        if self._is_paused:
            if not was_paused:
                self._child.pause_output()
            asyncio.get_running_loop().call_soon(self._deliver_some)
        elif was_paused:
            self._child.resume_output()

    def _deliver(self, most: int) -> None:
        for _ in range(min(most, len(self._undelivered))):
            line = self._undelivered.popleft()
            if self._closed:
                self._undelivered.clear()
                return
            self._receiver.received(line, None)

    def _on_errors(self, data: bytes) -> None:
        self._show(self._stderr_tail.feed(data))

    def _show(self, lines: list[str]) -> None:
        for line in lines:
            if self.on_stderr is None:
                return
            try:
                self.on_stderr(line)
            except Exception:
                self.on_stderr = None
                told: dict[str, Any] = {"server": self.description}
                log.warning("on_stderr raised: it is called no more", exc_info=True, extra=told)

    def _on_over(self) -> None:
        self._undelivered.extend(self._lines.end())
        self._deliver(len(self._undelivered))
        self._show(self._stderr_tail.end())
        if not self._closed:
            self._end = self._state_text()
            what = f"the server {self.description} {self._end}{self._stderr_text()}"
            self._receiver.lost(self._lost(what))

    def _lost(self, what: str) -> ConnectionLostError:
        """Return the error for a server that has ended, also before its handshake (CHILD-15)."""
        assert self._child is not None
        if self._is_introduced:
            return ConnectionLostError(what, may_have_run=True)
        may_have_run = self._child.has_read and not self._is_flooding
        error = ConnectionLostError(what, may_have_run=may_have_run, retryable=False)
        error.suggested_action = "Correct the command, or what the server says is wrong."
        missing = missing_variable(self._stderr_tail.excerpt())
        if missing is not None:
            how = f"set it in `env`, or with --env {missing}"
            error.suggested_action = f"It seems to need the variable {missing}: {how}."
        if self._is_flooding:
            error.suggested_action = "Let the server write to stderr what is no message."
        return error

    # -- texts

    def stderr_tail(self) -> str:
        """Return the state of the server, and the last lines of its stderr."""
        if self._child is None:
            return ""
        return f"{self.description} {self._end or self._state_text()}{self._stderr_text()}"

    def _state_text(self) -> str:
        child = self._child
        assert child is not None
        if self._is_overfed:
            return "does not read what is sent to it"
        if self._is_flooding:
            mib = _MAX_EARLY_BYTES // 1024**2
            return (
                f"wrote more than {_MAX_EARLY_LINES:,} lines, or {mib} MiB, to its stdout before"
                " it answered"
            )
        if not child.is_started:
            return "has not been started"
        if child.exit_code is None:
            return (
                "runs"
                if child.closed_pipe is None
                else f"has closed its {_PIPES[child.closed_pipe]}"
            )
        if child.exit_code < 0:
            return f"was ended by {_signal_name(-child.exit_code)}"
        if child.exit_code >= _NTSTATUS:
            return f"ended with exit code {child.exit_code:#x}"
        return f"ended with exit code {child.exit_code}"

    def _stderr_text(self) -> str:
        excerpt = self._stderr_tail.excerpt()
        return f"; the last lines of its stderr:\n{excerpt}\n" if excerpt else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # a real-time signal


def _explain(error: OSError, server: StdioServer) -> tuple[str, str]:
    """Return why a server could not be started, and what to change."""
    command, cwd = server.command, server.cwd or os.curdir
    if not os.access(cwd, os.X_OK):
        return f"there is no directory {os.fspath(cwd)} that can be entered", "Correct cwd."
    if isinstance(error, FileNotFoundError):
        if not command.isprintable():  # C:\tools\new has a tab and a newline
            return f"there is no program {command!r}", r"In JSON, write \\ for each backslash."
        if "/" not in command and os.sep not in command:
            return f"there is no program {command} on the PATH", "Install it, or give its path."
        if not os.access(Path(cwd, command), os.F_OK):
            return f"there is no file {command}", "Correct the path, or install the program."
        return f"the interpreter in the first line of {command} is not there", "Install it."
    if isinstance(error, PermissionError):
        return f"{command} is not executable", "Make it so, or start its interpreter with it."
    if error.errno == errno.ENOEXEC:
        return f"{command} is no program", "Start its interpreter, or name that in its first line."
    if error.errno == errno.EINVAL:
        return f"{error.strerror}", "Start the program that it starts."
    return f"{error.strerror}", "Try again later."
