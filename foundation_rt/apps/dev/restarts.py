"""Restarts: from a change of files to what it has changed in the lists (DEV-11 to DEV-15)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import define, field

from ..coordinator import Coordinator, ServerState
from .file_watch import (
    INTERVAL_SECONDS,
    LONGEST_BURST_SECONDS,
    QUIET_SECONDS,
    Stamps,
    WatchedFiles,
    changed_files,
    shown_path,
)
from .journal import Journal
from .log_lines import LogLine
from .problems import Problem
from .program import Program, ProgramState

KINDS = ("tools", "resources", "resourceTemplates", "prompts", "skills")
_KEY_OF = {"resources": "uri", "resourceTemplates": "uriTemplate", "skills": "uri"}

_POLL_SECONDS = 0.02
_SETTLE_SECONDS = 120.0
_SLOW_SECONDS = 5.0
"""A start that takes longer is told while it lasts."""

_MAX_NAMED = 20
"""The most files that one restart names."""

Lists = dict[str, dict[str, Any]]
"""By kind, the definitions by their name or URI."""


@define(eq=False)
class _Baseline:
    """The files of a program as they were when they were looked at last."""

    watched: WatchedFiles
    stamps: Stamps


@define(eq=False)
class Restarts:
    """Restarts programs whose files change, and tells what came of it.

    Args:
        journal: gets the events.
        programs: by the id of their server; it changes with the file of servers.
        coordinator: has the servers.
        reload: lets the coordinator take the next generation of programs.
        folder: to which paths are shown.
    """

    journal: Journal
    programs: Mapping[str, Program]
    coordinator: Coordinator
    reload: Callable[[], Awaitable[object]]
    folder: Path
    _baselines: dict[str, _Baseline] = field(factory=dict, init=False)
    _tasks: set[asyncio.Task[None]] = field(factory=set, init=False)
    _following: dict[str, int] = field(factory=dict, init=False)
    _is_closed: bool = field(default=False, init=False)

    async def watch(self) -> None:
        """Restart programs as their files change, for ever."""
        await self._changes()
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            changed = await self._changes()
            if not changed:
                continue
            changed = await self._end_of_burst(changed)
            for server_id, files in changed.items():
                program = self.programs.get(server_id)
                if program is not None:
                    await self.restart(program, sorted(files))

    async def _end_of_burst(self, changed: dict[str, set[str]]) -> dict[str, set[str]]:
        """Wait until nothing changes any more; return all that has changed."""
        until = time.monotonic() + LONGEST_BURST_SECONDS
        while time.monotonic() < until:
            await asyncio.sleep(QUIET_SECONDS)
            more = await self._changes()
            if not more:
                break
            for server_id, files in more.items():
                changed.setdefault(server_id, set()).update(files)
        return changed

    async def _changes(self) -> dict[str, set[str]]:
        """Return the files that have changed since the last time, by server."""
        watched = {server: program.watched for server, program in self.programs.items()}
        stamps = await asyncio.to_thread(_stamps_of, watched)
        found: dict[str, set[str]] = {}
        for server_id, now in stamps.items():
            before = self._baselines.get(server_id)
            if before is not None:
                known = before.stamps
                if before.watched != watched[server_id]:
                    # More files belong to it now: they have not changed by that.
                    known = {
                        path: stamp for path, stamp in now.items() if path not in known
                    } | known
                    known = {path: stamp for path, stamp in known.items() if _still(path, now)}
                files = changed_files(known, now)
                if files:
                    found[server_id] = set(files)
            self._baselines[server_id] = _Baseline(watched[server_id], now)
        for server_id in self._baselines.keys() - stamps.keys():
            del self._baselines[server_id]
        return found

    async def restart(self, program: Program, files: Iterable[str]) -> None:
        """Replace the processes of a program."""
        names = [shown_path(each, self.folder) for each in files]
        unnamed = len(names) - _MAX_NAMED
        shown = names[:_MAX_NAMED] + ([f"and {unnamed} more"] if unnamed > 0 else [])
        before = self.lists(program.server_id)
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        program.renew(f"{names[0]}{more} changed")
        self.follow(program, shown, before)
        await self.reload()

    def follow(
        self, program: Program, because: list[str], before: Lists, *, is_first: bool = False
    ) -> None:
        """Tell what a start comes to, when it is known."""
        if self._is_closed:
            return
        number = self._following.get(program.server_id, 0) + 1
        self._following[program.server_id] = number
        task = asyncio.create_task(self._follow(program, number, because, before, is_first))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def is_following(self, program: Program) -> bool:
        """Return whether the end of a start is being waited for."""
        return program.server_id in self._following

    def count(self, server_id: str) -> int:
        """Return how many files of a program are watched."""
        baseline = self._baselines.get(server_id)
        return 0 if baseline is None else len(baseline.stamps)

    def close(self) -> None:
        """Stop waiting for starts."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()

    async def _follow(
        self, program: Program, number: int, because: list[str], before: Lists, is_first: bool
    ) -> None:
        began = time.perf_counter()
        settled = await self._settled(program, number, began + _SETTLE_SECONDS)
        if self._following.get(program.server_id) != number:
            return  # a later start is followed
        del self._following[program.server_id]
        if program.server_id not in self.programs:
            return  # its entry is gone
        took = round((time.perf_counter() - began) * 1000, 1)
        changes = _differences(before, self.lists(program.server_id) if settled else before)
        self.journal.add(
            "restart",
            {
                "server": program.server_id,
                "first": is_first,
                "because": because,
                "outcome": "running" if settled else self._failure(program),
                "durationMs": took,
                "error": None if settled else self._error(program),
                **changes,
            },
        )

    def _failure(self, program: Program) -> str:
        status = self.coordinator.states.get(program.server_id)
        is_waiting = status is not None and status.state is ServerState.NEEDS_LOGIN
        return "needs login" if is_waiting else "failed"

    async def _settled(self, program: Program, number: int, until: float) -> bool:
        """Wait until the program runs and its lists are read; return False if it has failed."""
        slow_at: float | None = time.perf_counter() + _SLOW_SECONDS
        while self._following.get(program.server_id) == number and time.perf_counter() < until:
            await asyncio.sleep(_POLL_SECONDS)
            status = self.coordinator.states.get(program.server_id)
            if program.state is ProgramState.FAILED or status is None:
                return False
            if status.state in (ServerState.FAILED, ServerState.NEEDS_LOGIN):
                program.give_up(status.reason or "it did not answer")
                return False
            if program.state is ProgramState.RUNNING and status.state is ServerState.READY:
                return True
            if slow_at is not None and time.perf_counter() > slow_at:
                slow_at = None
                self._tell_slow(program)
        return False

    def _tell_slow(self, program: Program) -> None:
        missing = (
            "a list" if program.state is ProgramState.RUNNING else "initialize, the first request"
        )
        said = (
            f"slow start: after {_SLOW_SECONDS:g} s the program has not answered {missing}."
            " It is waited for; what it does before it serves may take long, or never end"
        )
        self.journal.add(
            "log", {"server": program.server_id, "call": None, **LogLine("warn", said).to_json()}
        )

    def _error(self, program: Program) -> dict[str, Any]:
        if program.problem is not None:
            return program.problem.to_json()
        status = self.coordinator.states.get(program.server_id)
        said = None if status is None else status.reason or status.last_error
        return Problem(said or "it did not answer").to_json()

    def lists(self, server_id: str) -> Lists:
        """Return what a server lists now."""
        server = self.coordinator.server(server_id)
        if server is None:
            return {kind: {} for kind in KINDS}
        return {
            kind: {
                str(each.get(_KEY_OF.get(kind, "name"))): each for each in server.definitions(kind)
            }
            for kind in KINDS
        }


def _still(path: str, now: Stamps) -> bool:
    """Return whether a file may have changed: one that is watched no more has not."""
    return path in now or not Path(path).exists()


def _stamps_of(watched: Mapping[str, WatchedFiles]) -> dict[str, Stamps]:
    return {server: files.stamps() for server, files in watched.items()}


def _differences(before: Lists, after: Lists) -> dict[str, dict[str, list[str]]]:
    """Return by kind the names that came, that went, and whose definitions differ."""
    return {
        kind: {
            "added": [name for name in after[kind] if name not in before[kind]],
            "removed": [name for name in before[kind] if name not in after[kind]],
            "changed": [
                name
                for name, definition in after[kind].items()
                if name in before[kind] and before[kind][name] != definition
            ],
        }
        for kind in KINDS
    }
