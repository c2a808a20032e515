"""One program under development: its state, and the processes that run it (DEV-10 to DEV-16).

    starting ──► running ──► restarting ──► running
        │           │            │  ▲
        └───────────┴─► failed ◄─┘  └── a file has changed, or it ended by itself after a while
                          │
                          └── a file has changed ──► restarting

A program that has failed is started again by a change of its files alone, whoever calls it: each
call gets the error that it has failed with.

`ProgramLink` is the transport to a program. It records every message (DEV-22).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from ...client import ConnectionLostError, HttpServer, MCPError, StdioServer
from ...client.transports.stdio import ChildProcessTransport
from ...protocol.framing import LineTooLong
from .file_watch import WatchedFiles
from .journal import now_ms
from .log_lines import LogLine, read_line
from .problems import Problem, problem_of_report, problem_of_text

if TYPE_CHECKING:
    from ...client.transports.transport import ClientMessage, Receiver, Transport
    from ...protocol.revisions import Revision


CALL_GRACE_SECONDS = 5.0
"""The longest time that running calls may go on after a change."""

_END_SECONDS = 10.0
"""The longest time that the next process waits for the end of the one before."""

_SOON_SECONDS = 5.0
"""A program that ends by itself within this time after its handshake is not started again."""

_MAX_REPORTED_FILES = 5_000

Launch = StdioServer | HttpServer


class ProgramState(StrEnum):
    """The state of a program."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    FAILED = "failed"


@define(eq=False)
class ProgramObserver:
    """The ways of a program to tell the front; plain functions, called in the loop.

    Attributes:
        changed: gets a program whose state has changed.
        logged: gets a program and a line of its stderr.
        passed: gets a program, `in` or `out`, and a message as it went to or from it.
    """

    changed: Callable[[Program], object]
    logged: Callable[[Program, LogLine], object]
    passed: Callable[[Program, str, bytes], object]


@define(eq=False)
class Program:
    """One program; belongs to the event loop of the front.

    Args:
        server_id: of its server.
        launch: how it is started or reached.
        own_files: that belong to it whatever it imports.
        observer: is told what happens.

    Attributes:
        generation: how often its files have changed; a link belongs to one.
        state: the present one.
        problem: why it has failed; None otherwise.
        pid: of its process, if it has told.
        started_at: Unix time in ms of the latest start; None before it.
        restarts: how often it was started again.
        imported: files that it has told to have imported.
    """

    server_id: str
    launch: Launch
    own_files: WatchedFiles
    observer: ProgramObserver
    generation: int = field(default=0, init=False)
    state: ProgramState = field(default=ProgramState.STARTING, init=False)
    problem: Problem | None = field(default=None, init=False)
    pid: int | None = field(default=None, init=False)
    started_at: float | None = field(default=None, init=False)
    restarts: int = field(default=0, init=False)
    imported: frozenset[Path] = field(factory=frozenset, init=False)
    _links: set[ProgramLink] = field(factory=set, init=False)
    _reported: Problem | None = field(default=None, init=False)
    _because: str = field(default="its files have changed", init=False)

    @property
    def watched(self) -> WatchedFiles:
        """Its own files and those that it has imported."""
        return evolve(self.own_files, files=self.own_files.files | self.imported)

    @property
    def is_child(self) -> bool:
        """True for a process of the front's."""
        return isinstance(self.launch, StdioServer)

    def renew(self, because: str) -> None:
        """Begin the next generation: end the processes of this one when their calls have ended.

        Args:
            because: why, for the calls that do not end in time.
        """
        self.generation += 1
        self.restarts += 1
        self._because = because
        self.problem = self._reported = None
        self._enter(ProgramState.RESTARTING)
        loop = asyncio.get_running_loop()
        for link in self._links:
            loop.call_later(CALL_GRACE_SECONDS, link.expire, self._ended_for_restart())

    def _ended_for_restart(self) -> MCPError:
        return ConnectionLostError(
            f"the program was restarted while the call ran, since {self._because}",
            may_have_run=True,
            retryable=False,
        )

    # -- called by links

    async def admit(self, link: ProgramLink) -> None:
        """Let a link start the program, when the processes of earlier generations have ended.

        Raises:
            ConnectionLostError: the program has failed and waits for a change, or has changed.
        """
        self._refuse(link)
        self._links.add(link)
        end = asyncio.get_running_loop().time() + CALL_GRACE_SECONDS + _END_SECONDS
        while any(each.generation < link.generation for each in self._links):
            if asyncio.get_running_loop().time() > end:
                break  # it cannot be ended: a second one is better than none
            await asyncio.sleep(0.02)
            self._refuse(link)
        self.started_at = now_ms()
        self.pid = None
        self._reported = None

    def _refuse(self, link: ProgramLink) -> None:
        if self.problem is not None:
            raise self.unavailable()
        if link.generation != self.generation:
            raise ConnectionLostError(
                "the program is being restarted", may_have_run=False, retryable=True
            )

    def unavailable(self) -> ConnectionLostError:
        """Return the error for calls while the program has failed."""
        said = "" if self.problem is None else self.problem.sentence()
        return ConnectionLostError(
            f"the program cannot run until it is changed. {said}",
            may_have_run=False,
            retryable=False,
        )

    def negotiated(self, link: ProgramLink) -> None:
        """Note that a process has completed its handshake."""
        if link.generation == self.generation:
            self.problem = None
            self._enter(ProgramState.RUNNING)

    def ended(self, link: ProgramLink, error: MCPError, stderr: str) -> MCPError:
        """Note that a process has ended by itself; return the error for its calls."""
        if link.generation != self.generation:
            return self._ended_for_restart()
        if link.seconds > _SOON_SECONDS:
            self.restarts += 1
            self._enter(ProgramState.RESTARTING)
            return error
        said = error.message.partition("; the last lines of its stderr:")[0]
        said = said.replace(f"the server {link.description} ", "the program ")
        self.problem = self._reported or problem_of_text(stderr, said)
        self._enter(ProgramState.FAILED)
        failed = self.unavailable()
        failed.may_have_run = error.may_have_run and link.is_negotiated
        return failed

    def not_started(self, link: ProgramLink, error: MCPError) -> None:
        """Note that a process could not be started at all."""
        if link.generation == self.generation and self.problem is None:
            self.problem = Problem(error.message)
            self._enter(ProgramState.FAILED)

    def give_up(self, reason: str) -> None:
        """Note that a process has not come to run; a URL is tried again all the same."""
        if self.is_child and self.problem is None:
            self.problem = self._reported or Problem(reason)
            self._enter(ProgramState.FAILED)

    def closed(self, link: ProgramLink) -> None:
        """Note that nothing of a link is left."""
        self._links.discard(link)

    def reported(self, report: dict[str, Any]) -> None:
        """Take what the loader in the process tells."""
        if isinstance(report.get("pid"), int):
            self.pid = report["pid"]
        problem = problem_of_report(report.get("problem"))
        if problem is not None:
            self._reported = problem
        files = report.get("files")
        if isinstance(files, list):
            named = [each for each in files[:_MAX_REPORTED_FILES] if isinstance(each, str)]
            self.imported = frozenset(map(Path, named))
        self.observer.changed(self)

    def _enter(self, state: ProgramState) -> None:
        self.state = state
        self.observer.changed(self)


@frozen
class ProgramTarget:
    """A program as the coordinator connects to it: another one for each generation."""

    program: Program
    generation: int

    @property
    def described(self) -> Launch:
        """The server that the transports lead to."""
        return self.program.launch

    def __call__(self) -> ProgramLink:
        """Return a transport to the program."""
        return ProgramLink(self.program, self.generation)


@define(eq=False, repr=False)
class ProgramLink:
    """A `Transport` around another one, and the receiver of that.

    Args:
        program: to which it leads.
        generation: of the program that it belongs to.

    Attributes:
        is_negotiated: whether the handshake is complete.
    """

    program: Program
    generation: int
    is_negotiated: bool = field(default=False, init=False)
    _negotiated_at: float = field(default=0.0, init=False)
    _inner: Transport = field(init=False)
    _receiver: Receiver = field(init=False)
    _is_lost: bool = field(default=False, init=False)
    _is_admitted: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        launch = self.program.launch
        if isinstance(launch, StdioServer):
            self._inner = ChildProcessTransport(launch, on_stderr=self._on_stderr)
        else:
            from ...client.transports.http import HttpTransport

            self._inner = HttpTransport(launch)

    # -- a transport

    @property
    def description(self) -> str:
        """The program, for people."""
        return self._inner.description

    @property
    def has_exchanges(self) -> bool:
        """Return whether each request has an exchange of its own."""
        return self._inner.has_exchanges

    @property
    def is_congested(self) -> bool:
        """Return whether a new request has to wait."""
        return self._inner.is_congested

    @property
    def seconds(self) -> float:
        """The time since its handshake, in s; 0 before it."""
        if not self.is_negotiated:
            return 0.0
        return asyncio.get_running_loop().time() - self._negotiated_at

    async def open(self, receiver: Receiver) -> None:
        """Start the program, unless it has failed.

        Raises:
            MCPError: there is no connection.
        """
        self._receiver = receiver
        await self.program.admit(self)
        self._is_admitted = True
        try:
            await self._inner.open(self)
        except MCPError as error:
            self.program.not_started(self, error)
            raise

    def send(self, message: ClientMessage) -> None:
        """Send a message."""
        self.program.observer.passed(self.program, "in", message.line)
        self._inner.send(message)

    async def drained(self) -> None:
        """Wait until a request can be sent."""
        await self._inner.drained()

    def forget(self, request_id: str) -> None:
        """Stop waiting for the response to a request."""
        self._inner.forget(request_id)

    def negotiated(self, revision: Revision) -> None:
        """Note that the handshake is complete."""
        self.is_negotiated = True
        self._negotiated_at = asyncio.get_running_loop().time()
        self._inner.negotiated(revision)
        self.program.negotiated(self)

    def stderr_tail(self) -> str:
        """Return the state of the process and its last stderr lines; nothing once it has failed."""
        return "" if self.program.problem is not None else self._inner.stderr_tail()

    async def close(self) -> None:
        """Close it with the process."""
        try:
            await self._inner.close()
        finally:
            self.program.closed(self)

    def expire(self, error: MCPError) -> None:
        """End it with the calls that still run, if it is there: the program is replaced."""
        if self._is_admitted and not self._is_lost:
            self._is_lost = True
            self._receiver.lost(error)

    # -- the receiver of the inner transport

    def received(self, line: bytes | LineTooLong, request_id: str | None) -> None:
        """Pass a message on."""
        if isinstance(line, bytes):
            self.program.observer.passed(self.program, "out", line)
        self._receiver.received(line, request_id)

    def awaits(self, request_id: str) -> bool:
        """Return whether this request has no response yet."""
        return self._receiver.awaits(request_id)

    def failed(self, request_id: str, error: MCPError) -> None:
        """Pass the failure of a request on."""
        self._receiver.failed(request_id, error)

    def lost(self, error: MCPError) -> None:
        """Pass on that the process has ended, in words that name the place in its source."""
        if self._is_lost:
            return
        self._is_lost = True
        stderr = getattr(self._inner, "stderr", "")
        self._receiver.lost(self.program.ended(self, error, stderr))

    def _on_stderr(self, line: str) -> None:
        read = read_line(line)
        if isinstance(read, dict):
            if self.generation == self.program.generation:
                self.program.reported(read)
        else:
            self.program.observer.logged(self.program, read)
