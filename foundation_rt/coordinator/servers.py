"""The servers of a coordinator: how each is reached, with which settings (COORD-07 to COORD-09)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from ..client import HttpServer, StdioServer
from ..errors import UsageError
from ..mcp_json import ServerEntry, ServerFile, ServerFileError, ServerSettings
from .names import id_problem

if TYPE_CHECKING:
    from ..server import Server

    Target = str | Path | StdioServer | HttpServer | Server | ServerEntry | Callable[[], Any]
    Listed = Target | Mapping[str, Any]


@frozen
class ServerPlan:
    """One server: the target to connect to, or the reason why there is none.

    Two plans are equal if a reload leaves the server alone.

    Attributes:
        target: as `connect` takes it; None if `problem` says why.
        problem: None if the entry can be used.
    """

    server_id: str
    target: Any = field(repr=False)
    settings: ServerSettings = field(factory=ServerSettings)
    problem: str | None = None

    @property
    def is_child(self) -> bool:
        """Return whether the server is a child process."""
        target = self.target
        if isinstance(target, ServerEntry):
            return target.command is not None
        if isinstance(target, str):
            return "://" not in target
        return isinstance(target, StdioServer | Path)

    @property
    def transport_type(self) -> str:
        """`stdio`, `http`, or `memory` for a server of this process."""
        if self.is_child:
            return "stdio"
        is_remote = isinstance(self.target, ServerEntry | HttpServer | str)
        return "http" if is_remote else "memory"


Plans = dict[str, ServerPlan]
PlanSource = Callable[[], Plans]
"""Returns the plans of all servers, in order; called at the start and for each reload."""


def plans_of_file(path: Path) -> Plans:
    """Return the plans of the servers that a file lists (COORD-08).

    Raises:
        ServerFileError: the file cannot be used; an entry that cannot is a plan with a problem.
    """
    return _plans_of_entries(ServerFile.read(path))


def plans_of(servers: Mapping[str, Listed]) -> Plans:
    """Return the plans of servers that a program lists (COORD-07).

    Raises:
        UsageError: a value is no server.
    """
    plans: Plans = {}
    for server, listed in servers.items():
        if isinstance(listed, Mapping):
            plans |= _plans_of_entries(ServerFile(Path("servers"), {server: listed}))
        else:
            plans[server] = _plan(server, listed)
    return plans


def _plan(server: str, target: Target) -> ServerPlan:
    from ..server import Server

    known = str | Path | StdioServer | HttpServer | Server | ServerEntry
    if not (isinstance(target, known) or callable(target)):
        raise UsageError(
            f"server {server!r} is a command line, a URL, a Path, a StdioServer, a HttpServer, a "
            f"Server, the dict of an entry or a function that makes transports, not {target!r}"
        )
    settings = target.settings if isinstance(target, ServerEntry) else ServerSettings()
    return ServerPlan(server, target, settings, id_problem(server))


def _plans_of_entries(file: ServerFile) -> Plans:
    return {server: _plan_of_entry(file, server) for server in file.entries}


def _plan_of_entry(file: ServerFile, server: str) -> ServerPlan:
    if file.is_disabled(server):
        return ServerPlan(server, None, ServerSettings(disabled=True))
    problem = id_problem(server)
    if problem is not None:
        return ServerPlan(server, None, problem=f"{file.path}, server {server!r}: {problem}")
    try:
        entry = file.entry(server, os.environ)
    except ServerFileError as error:
        return ServerPlan(server, None, problem=str(error))
    return ServerPlan(server, entry, entry.settings)
