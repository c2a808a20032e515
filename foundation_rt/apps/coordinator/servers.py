"""The servers of a coordinator: how each is reached, with which settings (COORD-07 to COORD-09).

A program that starts the servers of a file marks the environment of its children. If it finds its
own mark there, it was started by itself, directly or through others, and would do so for ever
(COORD-70).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from ...base.mcp_json import (
    Agreement,
    OAuthEntry,
    ServerEntry,
    ServerFile,
    ServerFileError,
    ServerSettings,
    WaitingEntry,
    record_path,
)
from ...client import HttpServer, OAuth, StdioServer
from ...errors import UsageError
from .names import id_problem

if TYPE_CHECKING:
    from ...server import Server

    Target = str | Path | StdioServer | HttpServer | Server | ServerEntry | Callable[[], Any]
    Listed = Target | Mapping[str, Any]


@frozen
class ServerPlan:
    """One server: the target to connect to, or the reason why there is none.

    Two plans are equal if a reload leaves the server alone.

    Attributes:
        target: as `connect` takes it; None if `problem` says why. A function that makes transports
            may name as `described` the server that they lead to.
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
    def login_target(self) -> ServerEntry | HttpServer | None:
        """The server, if a person logs in to it; else None."""
        target = getattr(self.target, "described", self.target)
        if isinstance(target, ServerEntry):
            return None if target.oauth is None else target
        is_one = isinstance(target, HttpServer) and isinstance(target.auth, OAuth)
        return target if is_one else None

    @property
    def identity(self) -> str:
        """A hash of the command, its arguments and absolute folder, or of the URL (COORD-79)."""
        target = self.target
        where = str(Path(getattr(target, "cwd", None) or "").resolve()) if self.is_child else None
        if not isinstance(target, str | Path):
            target = [getattr(target, name, None) for name in ("command", "args", "url")]
        return sha256(repr((target, where)).encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def transport_type(self) -> str:
        """`stdio`, `http`, or `memory` for a server of this process."""
        if self.is_child:
            return "stdio"
        is_remote = isinstance(self.target, ServerEntry | HttpServer | str)
        return "http" if is_remote else "memory"

    @property
    def is_shared(self) -> bool:
        """Return whether all users may act as the person who logged in, as its entry says."""
        target = self.target
        return isinstance(target, ServerEntry) and target.oauth is not None and target.oauth.shared


Plans = dict[str, ServerPlan]
PlanSource = Callable[[], Plans]
"""Returns the plans of all servers, in order; called at the start and for each reload."""

NOT_SHARED = (
    'its login is one person\'s, and there are several users here: set "shared": true in the'
    ' "oauth" of its entry if all of them may act as that person'
)


def for_many(read: PlanSource) -> PlanSource:
    """Return what reads the same plans for several users: no login of one person (COORD-84)."""

    def of_one_person(plan: ServerPlan) -> bool:
        return plan.login_target is not None and not plan.is_shared

    def read_for_many() -> Plans:
        return {
            server: evolve(plan, target=None, problem=NOT_SHARED) if of_one_person(plan) else plan
            for server, plan in read().items()
        }

    return read_for_many


def with_logins(read: PlanSource) -> PlanSource:
    """Return what reads the same plans for one person, whose logins count without `oauth`, too.

    An entry with a credential of its own, or with those of clients, stays as it is (COORD-85).
    """

    def read_with_logins() -> Plans:
        return {server: _with_login(plan) for server, plan in read().items()}

    return read_with_logins


def _with_login(plan: ServerPlan) -> ServerPlan:
    target = plan.target
    if not isinstance(target, ServerEntry) or target.url is None or plan.settings.headers_from:
        return plan
    if target.oauth is not None:
        return plan
    try:
        HttpServer(target.url, headers=target.headers, auth=OAuth())
    except UsageError:  # it has a user or a token of its own, or is reached without TLS
        return plan
    return evolve(plan, target=evolve(target, oauth=OAuthEntry()))


def shared_logins(plans: Plans) -> list[str]:
    """Return the servers at which everybody acts as the person who logged in."""
    return [server for server, plan in plans.items() if plan.is_shared]


def plans_of_file(path: Path, agreement: Agreement | None = None) -> Plans:
    """Return the plans of the servers that a file lists (COORD-08).

    Args:
        path: of the file.
        agreement: of the person, without which an entry is a plan with a problem (MCPJSON-11).

    Raises:
        ServerFileError: the file cannot be used; an entry that cannot is a plan with a problem.
    """
    return _plans_of_entries(ServerFile.read(path), agreement)


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
    from ...server import Server

    known = str | Path | StdioServer | HttpServer | Server | ServerEntry
    if not (isinstance(target, known) or callable(target)):
        raise UsageError(
            f"server {server!r} is a command line, a URL, a Path, a StdioServer, a HttpServer, a "
            f"Server, the dict of an entry or a function that makes transports, not {target!r}"
        )
    settings = target.settings if isinstance(target, ServerEntry) else ServerSettings()
    return ServerPlan(server, target, settings, id_problem(server))


def _plans_of_entries(file: ServerFile, agreement: Agreement | None = None) -> Plans:
    return {server: _plan_of_entry(file, server, agreement) for server in file.entries}


def _plan_of_entry(file: ServerFile, server: str, agreement: Agreement | None) -> ServerPlan:
    if file.is_disabled(server):
        return ServerPlan(server, None, ServerSettings(disabled=True))
    problem = id_problem(server)
    if problem is not None:
        return ServerPlan(server, None, problem=f"{file.path}, server {server!r}: {problem}")
    waits = None if agreement is None else agreement.problem(file, server)
    try:
        entry = file.entry(server, os.environ if agreement is None else agreement.variables)
    except ServerFileError as error:
        problem = "; it ".join(filter(None, (str(error), waits)))
        return ServerPlan(server, None, problem=problem)
    if waits is not None:
        return ServerPlan(server, None, problem=f"{file.path}, server {server!r}: {waits}")
    return ServerPlan(server, entry, entry.settings)


CHAIN_VARIABLE = "FOUNDATION_RT_GATEWAYS"
"""The marks of the programs that started this process, separated by commas."""


def chain_mark(identity: str) -> str:
    """Return the mark of a program.

    Args:
        identity: the same for programs that start the same servers.
    """
    return sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def file_identity(path: Path) -> str:
    """Return the identity of the programs that start the servers of a file."""
    return f"file {os.path.realpath(path)}"


def is_own_child(mark: str, environment: Mapping[str, str]) -> bool:
    """Return whether the program of a mark has started this process, directly or through others."""
    return mark in _marks(environment)


def mark_children(
    plans: Mapping[str, ServerPlan], mark: str, environment: Mapping[str, str]
) -> dict[str, ServerPlan]:
    """Return plans whose children get the chain, with a mark more, in their environment.

    Args:
        plans: by the id of the server.
        mark: of this program.
        environment: of this process.
    """
    chain = ",".join([*_marks(environment), mark])
    return {server: _marked(plan, chain) for server, plan in plans.items()}


def _marks(environment: Mapping[str, str]) -> list[str]:
    return [each for each in environment.get(CHAIN_VARIABLE, "").split(",") if each]


def _marked(plan: ServerPlan, chain: str) -> ServerPlan:
    target = plan.target
    if not isinstance(target, ServerEntry) or target.command is None:
        return plan
    return evolve(plan, target=evolve(target, env={**target.env, CHAIN_VARIABLE: chain}))


@frozen(eq=False)
class Source:
    """The origin of the servers of an application.

    Attributes:
        read: returns the plans of the servers, at the start and for each reload.
        files: those that list them.
        identity: the same for programs that start the same servers.
        is_bridge: of a gateway: it is one server, whose names are kept.
        waiting: returns the entries that wait for the person (GATE-58, HOST-43).
    """

    read: PlanSource
    files: tuple[Path, ...]
    identity: str
    is_bridge: bool = False
    waiting: Callable[[], list[WaitingEntry]] = list

    @property
    def watched(self) -> tuple[Path, ...]:
        """The files whose change is a reason to reload: those, and what the person agrees to."""
        return (*self.files, record_path()) if self.files else ()

    @property
    def mark(self) -> str:
        """The mark of the program in the environment of its children (COORD-70)."""
        return chain_mark(self.identity)
