"""The front: a gateway that clients stay with while its programs are replaced (DEV-01)."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from ... import PageAccess, Server, ServerOptions, __version__
from ...base.abort import call_in_loop
from ...base.bounded_dict import BoundedDict
from ...base.clock import SystemClock
from ...base.exact_json import loads
from ...base.logs.logger import StructuredLogger
from ...base.mcp_json import ServerEntry
from ...client import HttpServer, MCPError, StdioServer
from ...client.targets import server_of
from ...protocol.methods import TOOLS_CALL
from ..coordinator import ServerPlan, ServerState, ServerStatus, with_logins
from ..coordinator.servers import Source
from ..gateway.app import DEFAULTS, Gateway, add_gateway
from ..gateway.settings import NEVER, SECTION, GatewaySettings
from ..gateway.source import marked_plans
from ..web_page.logins import PageLogins
from .client_wire import ClientWire, NotingIds, describe_message, member
from .file_watch import WatchedFiles
from .journal import Journal, now_ms
from .log_lines import AGENTS_TOOL, LogLine, read_line
from .page_service import PageService
from .problems import Problem
from .program import Launch, Program, ProgramObserver, ProgramState, ProgramTarget
from .restarts import KINDS, Restarts

NAME = "foundation-rt-dev"

_AGENTS_TIMEOUT_MS = 5_000
_LIST_OF_AGENTS = re.compile(r"agent(?:[/.-]|__?)list")
"""The name of the tool that programs with agents have, with any `tools.name_separator`."""

_NO_AGENTS = (
    "Its agents and ledger are read only if dev loads the program itself: foundation-rt dev FILE.py"
)
_COORDINATOR = "foundation_rt.coordinator"
_MAX_SAID = 100
_MAX_PENDING = 1_000
_MAX_REQUESTS = 200
_LISTED_AFTER_LOSS_MS = 24 * 3600 * 1000
"""A broken program keeps its lists, so that clients can go on when it is mended."""

_TASKS = "io.modelcontextprotocol/tasks"

_FRONT_LOG_LEVEL = "warn"

Watch = Callable[[str, Launch], WatchedFiles]
"""Returns the files of a program, of the id of its server and how it is started."""


@frozen(eq=False)
class DevTarget:
    """The servers that are developed.

    Attributes:
        shown: as the command line has it.
        kind: `program`, `command`, `url` or `file`.
        source: the servers.
        watch: returns the files of each.
        serve: command and arguments that serve the program over stdio without a front; None if
            that is not known.
    """

    shown: str
    kind: str
    source: Source
    watch: Watch
    serve: tuple[str, tuple[str, ...]] | None = None


@define(eq=False)
class Front:
    """A front, not started yet.

    Attributes:
        server: to be served.
        journal: of what happens.
        programs: by the id of their server.
        page_access: with which people open the page.
        url: of the endpoint; set when it serves.
    """

    target: DevTarget
    page_access: PageAccess
    server: Server
    journal: Journal
    programs: dict[str, Program] = field(factory=dict, init=False)
    url: str = field(default="", init=False)
    _plans: dict[str, ServerPlan] = field(factory=dict, init=False)
    _reads_entries: bool = field(default=True, init=False)
    _is_live: bool = field(default=False, init=False)
    _plan_targets: dict[str, Any] = field(factory=dict, init=False)
    _gateway: Gateway = field(init=False)
    _wire: ClientWire = field(init=False)
    _restarts: Restarts = field(init=False)
    _logins: PageLogins = field(init=False)
    _sent: dict[str, dict[Any, str]] = field(factory=dict, init=False)
    _started_at: float = field(factory=now_ms, init=False)
    _requests: dict[str, None] = field(factory=lambda: BoundedDict(_MAX_REQUESTS), init=False)
    """Of agents, the latest."""
    _said: dict[str, None] = field(factory=lambda: BoundedDict(_MAX_SAID), init=False)
    """By the coordinator, the latest."""

    def __attrs_post_init__(self) -> None:
        server = self.server
        self._wire = ClientWire(self.journal, server.load_config().http.path)
        server.http_middleware(self._wire.around)
        source = evolve(self.target.source, read=self._read)
        self._gateway = add_gateway(
            server,
            source,
            has_status=self.target.kind == "file",
            listed_after_loss_ms=_LISTED_AFTER_LOSS_MS,
            announce_interval_ms=0,  # a restart is wanted: what it has changed is told at once
        )
        self._restarts = Restarts(
            self.journal, self.programs, self._gateway.coordinator, self._renewed, Path.cwd()
        )
        is_allowed = not server.load_config().has_shares()
        self._logins = PageLogins(self._gateway.coordinator, is_allowed)
        page = PageService(
            self.journal, self.state, self.tools, self.agents, self.connection, self._logins
        )
        server.http_app(page, public=page.page_paths, page_access=self.page_access, websocket=False)
        server.lifespan(self._live)

    def page_url(self) -> str:
        """Return the URL with which a person opens the page."""
        return self.page_access.url(f"{self._base()}/")

    def _base(self) -> str:
        return self.url.removesuffix(self.server.load_config().http.path).rstrip("/")

    async def _live(self, server: Server) -> AsyncIterator[None]:
        for program in self.programs.values():
            self._restarts.follow(
                program, [], self._restarts.lists(program.server_id), is_first=True
            )
        watching = asyncio.create_task(self._restarts.watch())
        self._is_live = True
        try:
            yield
        finally:
            watching.cancel()
            self._restarts.close()
            await self._logins.close()

    # -- programs

    async def _renewed(self) -> None:
        """Let the coordinator take the next generation of programs, of the entries as they were."""
        self._reads_entries = False
        try:
            await self._gateway.coordinator.reload()
        finally:
            self._reads_entries = True

    def _read(self) -> dict[str, ServerPlan]:
        """Return the plans of the servers, each leading to its program."""
        if self._reads_entries:
            self._plans = marked_plans(self.target.source, os.environ)
        plans = self._plans
        for gone in self.programs.keys() - plans.keys():
            del self.programs[gone]
        return {server_id: self._developed(plan) for server_id, plan in plans.items()}

    def _developed(self, plan: ServerPlan) -> ServerPlan:
        target, server_id = plan.target, plan.server_id
        if target is None or plan.settings.disabled:
            self.programs.pop(server_id, None)
            return plan
        program = self.programs.get(server_id)
        if program is None:
            launch = _launch_of(target)
            observer = ProgramObserver(self._changed, self._logged, self._passed)
            files = self.target.watch(server_id, launch)
            program = self.programs[server_id] = Program(server_id, launch, files, observer)
            if self._is_live:
                self._restarts.follow(program, [], self._restarts.lists(server_id), is_first=True)
        elif self._plan_targets.get(server_id) != target:
            program.launch = _launch_of(target)
            program.own_files = self.target.watch(server_id, program.launch)
            before = self._restarts.lists(server_id)
            program.renew("its entry has changed")
            self._restarts.follow(program, ["its entry"], before)
        self._plan_targets[server_id] = target
        target_now = ProgramTarget(program, program.generation)
        if self.target.kind == "file":
            return evolve(plan, target=target_now)
        # One process for all clients: what one writes, the others read.
        settings = evolve(plan.settings, isolation="shared")
        return evolve(plan, target=target_now, settings=settings)

    def _changed(self, program: Program) -> None:
        """Tell of a program that has ended or failed by itself."""
        is_down = program.state in (ProgramState.RESTARTING, ProgramState.FAILED)
        if is_down and not self._restarts.is_following(program):
            self._restarts.follow(program, [], self._restarts.lists(program.server_id))
        self.journal.wake()

    def _logged(self, program: Program, line: LogLine) -> None:
        self._tell_line(program.server_id, line)

    def _passed(self, program: Program, direction: str, line: bytes) -> None:
        """Keep the record of a message between front and program."""
        message = describe_message(line)
        pending = self._sent.setdefault(program.server_id, BoundedDict(_MAX_PENDING))
        call = None
        if direction == "in" and message.kind == "request":
            correlation = member(message.params, "_meta").get("correlationId")
            call = self._wire.calls_by_correlation.get(str(correlation))
            if message.params.get("name") == AGENTS_TOOL:
                call = AGENTS_TOOL
            if call is not None:
                pending[message.id] = call
        elif direction == "out" and message.kind == "response":
            call = pending.pop(message.id, None)
        if call == AGENTS_TOOL:
            return  # of the front itself
        nobody = {"session": None, "client": None}
        self.journal.add(
            "wire",
            {
                "leg": "server",
                "direction": direction,
                **nobody,
                "server": program.server_id,
                "call": call,
                **message.to_json(),
            },
        )

    def take_log(self, line: bytes) -> None:
        """Keep a log record of the front itself."""
        read = read_line(line.decode("utf-8", "replace").rstrip("\n"))
        if isinstance(read, LogLine) and not self._is_known(read):
            self._tell_line(None, read)

    def _is_known(self, line: LogLine) -> bool:
        """Return whether the coordinator has said so before: it tries a broken server for ever."""
        if (line.fields or {}).get("logger") != _COORDINATOR:
            return False
        is_known = line.message in self._said
        self._said[line.message] = None
        return is_known

    def _tell_line(self, server_id: str | None, line: LogLine) -> None:
        if (line.fields or {}).get("toolName") == AGENTS_TOOL:
            return
        call = self._wire.calls_by_correlation.get(line.correlation_id or "")
        own = {} if line.at is None else {"at": line.at}
        request_id = (line.fields or {}).get("requestId")
        if (
            isinstance(request_id, str)
            and len(request_id) <= 128
            and "agentId" in (line.fields or {})
        ):
            self._requests[request_id] = None
        self.journal.add("log", {**own, "server": server_id, "call": call, **line.to_json()})

    # -- for the page

    def connection(self) -> dict[str, Any]:
        """Return what a client needs to connect (DEV-31)."""
        token = self.page_access.token
        headers = {"Authorization": f"Bearer {token}"}
        serve = self.target.serve
        return {
            "url": self.url,
            "token": token,
            "entry": {"type": "http", "url": self.url, "headers": headers},
            "serve": None if serve is None else {"command": serve[0], "args": [*serve[1]]},
        }

    def state(self) -> dict[str, Any]:
        """Return the state of everything (DEV-30)."""
        settings = self.server.load_config().section(GatewaySettings)
        states = self._gateway.coordinator.states
        return {
            "target": self.target.shown,
            "kind": self.target.kind,
            "frontVersion": __version__,
            "startedAt": self._started_at,
            "servers": [self._server_state(status) for status in states.values()],
            "prefix": settings.prefix != NEVER,
            "clients": [each.to_json() for each in self._wire.sessions],
        }

    def _server_state(self, status: ServerStatus) -> dict[str, Any]:
        server_id = status.server_id
        program = self.programs.get(server_id)
        server = self._gateway.coordinator.server(server_id)
        description = None if server is None else server.description
        counts = {kind: 0 if server is None else len([*server.definitions(kind)]) for kind in KINDS}
        return {
            "id": server_id,
            "state": _state_of(program, status),
            "name": None if description is None else description.name,
            "version": None if description is None else description.version,
            "title": None
            if description is None
            else _text(description.implementation.get("title")),
            "revision": status.revision,
            "transport": "http" if program is not None and not program.is_child else "stdio",
            "pid": None if program is None else program.pid,
            "startedAt": None if program is None else program.started_at,
            "restarts": 0 if program is None else program.restarts,
            "error": _error_of(program, status),
            "login": self._logins.state(server_id),
            **counts,
            "hasTasks": description is not None and description.can("extensions", _TASKS),
            "hasCompletions": description is not None and description.can("completions"),
            "circuit": status.circuit.value.lower(),
            "running": status.running,
            "waiting": status.waiting,
            "calls": status.call_count,
            "lastError": status.last_error,
            "watched": 0 if program is None else self._restarts.count(server_id),
        }

    def tools(self) -> dict[str, Any]:
        """Return of which program each tool is, and its name there (DEV-33)."""
        routes = self._gateway.servers.routes.tools
        return {
            "tools": [
                {"tool": tool, "server": route.server, "name": route.inner}
                for tool, route in routes.items()
            ]
        }

    async def agents(self) -> dict[str, Any]:
        """Return the agents of the programs, as they are now (DEV-32)."""
        asked = [
            self._agents_of(server_id)
            for server_id in self.programs
            if any(map(_LIST_OF_AGENTS.fullmatch, self._restarts.lists(server_id)["tools"]))
        ]
        return {"servers": await asyncio.gather(*asked)}

    async def _agents_of(self, server_id: str) -> dict[str, Any]:
        nothing: dict[str, Any] = {"server": server_id, "agents": [], "ledger": None}
        server = self._gateway.coordinator.server(server_id)
        if server is None:
            return {**nothing, "error": "the server has been removed"}
        try:
            result = await server.request(
                TOOLS_CALL,
                {"name": AGENTS_TOOL, "arguments": {"requestIds": [*self._requests]}},
                timeout_ms=_AGENTS_TIMEOUT_MS,
            )
            found = loads(result["content"][0]["text"])
        except MCPError as error:
            return {**nothing, "error": error.message}
        except (LookupError, TypeError, ValueError):
            return {**nothing, "error": _NO_AGENTS}
        if result.get("isError") or not isinstance(found, dict):
            return {**nothing, "error": _NO_AGENTS}
        return {**nothing, **found, "error": None}


class JournalSink:
    """Writes the log of the front to its journal, from any thread."""

    def __init__(self) -> None:
        self.take: Callable[[bytes], object] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    def write(self, line: bytes) -> None:
        """Write one line; what is logged while nothing is served is dropped."""
        if self.take is not None and self.loop is not None:
            call_in_loop(self.loop, self.take, line)


def create_front(
    target: DevTarget,
    http: Mapping[str, Any],
    page_access: PageAccess | None = None,
) -> Front:
    """Return the front of a target, not started yet.

    Args:
        target: what is developed.
        http: settings of the section `http`, as of a command line.
        page_access: by default that of the user.

    Raises:
        ConfigError: lists every problem of the configuration.
        UsageError: the servers cannot be read, or the key of the page cannot be kept.
    """
    sink = JournalSink()
    options = ServerOptions(
        logger=StructuredLogger(sink, SystemClock(), _FRONT_LOG_LEVEL), id_generator=NotingIds()
    )
    server = Server(
        NAME,
        title=f"{target.shown}, under development",
        config=DEFAULTS,
        sections={SECTION: GatewaySettings},
        options=options,
    )
    server.override("http", **{**http, "host": "127.0.0.1", "no_auth": False})
    if target.kind != "file":
        server.override(SECTION, prefix=NEVER)
    config = server.load_config()
    if target.kind == "file" and not config.has_shares():
        target = evolve(target, source=evolve(target.source, read=with_logins(target.source.read)))
    own_access = page_access or PageAccess.of_user(
        NAME, config.http.port, config.security.state_key
    )
    front = Front(target, own_access, server, Journal())
    server.lifespan(partial(_log_to, sink, front))
    return front


async def _log_to(sink: JournalSink, front: Front, server: Server) -> AsyncIterator[None]:
    sink.take, sink.loop = front.take_log, asyncio.get_running_loop()
    try:
        yield
    finally:
        sink.take = None


def _launch_of(target: Any) -> Launch:
    found = server_of(target) if isinstance(target, ServerEntry) else target
    assert isinstance(found, StdioServer | HttpServer)
    return found


def _state_of(program: Program | None, status: ServerStatus) -> str:
    if status.state is ServerState.DISABLED:
        return "disabled"
    if status.state is ServerState.NEEDS_LOGIN:
        return "needs login"
    if program is None:
        return "failed"
    if program.state is ProgramState.RUNNING and status.state is not ServerState.READY:
        return "starting"  # its lists are being read
    if program.state is ProgramState.STARTING and status.state is ServerState.FAILED:
        return "failed"  # it is there, and has not completed the handshake
    return program.state.value


def _error_of(program: Program | None, status: ServerStatus) -> dict[str, Any] | None:
    if program is not None and program.problem is not None:
        return program.problem.to_json()
    if status.state not in (ServerState.FAILED, ServerState.NEEDS_LOGIN):
        return None
    return Problem(status.reason or status.last_error or "it cannot be used").to_json()


def _text(value: object) -> str | None:
    return value[:256] if isinstance(value, str) else None
