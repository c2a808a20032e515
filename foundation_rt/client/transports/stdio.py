"""Line-delimited JSON-RPC with a server that is a child process (spec/client-stdio.md)."""

from __future__ import annotations

import errno
import logging
import math
import os
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from ...errors import UsageError
from ...protocol.framing import LineReader
from ..errors import ConnectionLostError
from .process import ChildProcess
from .stderr_tail import StderrTail
from .transport import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from ...protocol.framing import LineTooLong
    from ...protocol.revisions import Revision
    from .transport import ClientMessage, Receiver

log = logging.getLogger("foundation_rt.client")

_INHERITED = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
_HARMLESS_OPTIONS = ("-y", "--yes", "-m")
_SHOWN = 80  # characters
_PIPES = ("input", "output")
# What may pass by itself: the system is short of something now.
_PASSING = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY)


def _words(args: Sequence[str]) -> tuple[str, ...]:
    if isinstance(args, str | bytes):
        raise UsageError("args is a sequence of strings, one for each argument, not a string")
    return tuple(args)


def _is_plain(word: object) -> bool:
    return isinstance(word, str) and "\0" not in word


@frozen
class StdioServer:
    """A server that runs as a child process (CHILD-01, CHILD-02).

    Args:
        command: a program: its path, or its name on the `PATH` of its environment.
        args: its arguments, as they are; no shell reads them.
        env: added to the few variables that every child gets.
        cwd: its working directory; None: that of this process.
        shutdown_grace: seconds it has to end after its input was closed, and again after SIGTERM.

    Raises:
        UsageError: an argument is invalid.
    """

    command: str
    # These may hold tokens, so the repr leaves them out.
    args: Sequence[str] = field(default=(), repr=False, converter=_words)
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | os.PathLike[str] | None = None
    shutdown_grace: float = 2.0

    def __attrs_post_init__(self) -> None:
        if not all(map(_is_plain, (self.command, *self.args))):
            raise UsageError("a command and its arguments are strings without NUL characters")
        if not self.command:
            raise UsageError("a command is needed to start a server")
        for name, value in (self.env or {}).items():
            if not name or not _is_plain(name) or "=" in name:
                raise UsageError(f"env: no variable can be named {name!r}")
            if not _is_plain(value):
                raise UsageError(f"env: {name} must be a string without NUL characters")
        grace: object = self.shutdown_grace
        if not isinstance(grace, int | float) or not 0 <= grace < math.inf:
            raise UsageError("shutdown_grace is a number of seconds, at least 0")

    @classmethod
    def from_command_line(cls, text: str) -> StdioServer:
        """Return the server of a command line, split into words as a shell does.

        Raises:
            UsageError: it is empty, or a quotation does not end.
        """
        try:
            command, *args = shlex.split(text)
        except ValueError as error:
            what = "empty" if not text.strip() else str(error)
            raise UsageError(f"the command line is not usable: {what}") from None
        return cls(command, args)

    @property
    def description(self) -> str:
        """Its program and first argument, for people; no option, which may hold a secret."""
        shown = [self.command.rpartition("/")[2] or self.command]
        for word in self.args:
            if word in _HARMLESS_OPTIONS:
                continue
            if not word.startswith("-") and "=" not in word and "://" not in word:
                shown.append(word)
            break
        text = " ".join(shown)
        return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."

    def environment(self) -> dict[str, str]:
        """Return its environment: the variables that programs need, and `env`."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name in _INHERITED or name.startswith("LC_")
        }
        return inherited | dict(self.env or {})


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
    _stderr_tail: StderrTail = field(factory=StderrTail, init=False)
    _closed: bool = field(default=False, init=False)
    _is_overfed: bool = field(default=False, init=False)
    _is_introduced: bool = field(default=False, init=False)
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
            raise self._not_opened("is opened once, and not after it was closed")
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
            lost = self._not_opened(self._end)
            lost.suggested_action = remedy
            lost.retryable = error.errno in _PASSING
            raise lost from error
        if self._closed:
            raise self._not_opened("was closed while it was opened")

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
        self._deliver(self._lines.feed(data))

    def _deliver(self, lines: list[bytes | LineTooLong]) -> None:
        for line in lines:
            if self._closed:
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
        self._deliver(self._lines.end())
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
        error = ConnectionLostError(what, may_have_run=self._child.has_read, retryable=False)
        error.suggested_action = "Correct the command, or what the server says is wrong."
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
        return f"ended with exit code {child.exit_code}"

    def _stderr_text(self) -> str:
        excerpt = self._stderr_tail.excerpt()
        return f"; the last lines of its stderr:\n{excerpt}\n" if excerpt else ""

    def _not_opened(self, reason: str) -> ConnectionLostError:
        return ConnectionLostError(f"{self.description} {reason}", may_have_run=False)


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
        if "/" not in command:
            return f"there is no program {command} on the PATH", "Install it, or give its path."
        if not os.access(Path(cwd, command), os.F_OK):
            return f"there is no file {command}", "Correct the path, or install the program."
        return f"the interpreter in the first line of {command} is not there", "Install it."
    if isinstance(error, PermissionError):
        return f"{command} is not executable", "Make it so, or start its interpreter with it."
    if error.errno == errno.ENOEXEC:
        return f"{command} is no program", "Start its interpreter, or name that in its first line."
    return f"{error.strerror}", "Try again later."
