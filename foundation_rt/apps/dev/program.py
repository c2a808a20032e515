"""One program under development: its state, and the processes that run it (DEV-10 to DEV-16).

    starting ──► running ──► restarting ──► running
        │           │            │  ▲
        └───────────┴─► failed ◄─┘  └── a file has changed, or it ended by itself after a while
                          │
                          └── a file has changed ──► restarting

A program that has failed is started again by a change of its files alone, whoever calls it: each
call gets the error that it has failed with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from ...client import ConnectionLostError, HttpServer, MCPError, StdioServer
from ...errors import UsageError
from .file_watch import WatchedFiles
from .journal import now_ms
from .log_lines import LogLine
from .problems import Problem, problem_of_report, problem_of_text

if TYPE_CHECKING:
    from .program_link import ProgramLink

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

    def __call__(self) -> ProgramLink:
        """Return a transport to the program.

        Raises:
            UsageError: there is none for such a server.
        """
        from .program_link import ProgramLink

        if not isinstance(self.program.launch, StdioServer | HttpServer):
            raise UsageError("a program is started by a command, or reached at a URL")
        return ProgramLink(self.program, self.generation)
