"""`Coordinator`: the tools of many servers, and calls of them (spec/coordinator.md)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from attrs import define

from ...base.file_changes import FileWatch
from ...client import CallResult, InvalidResponseError, MCPError, ToolCallError, ToolSchema
from ...errors import ErrorCode, UsageError
from ...protocol.methods import TOOLS_CALL
from .catalogue import Definition
from .connection_pool import ConnectionKey, PooledConnection
from .guarded_request import CircuitRefusal, GuardedRequest
from .names import UnknownName, inside_name
from .options import CoordinatorOptions, CoordinatorSettings
from .requests import (
    INTERNAL_ERROR,
    ONE_RETRY,
    REQUEST_CANCELLED,
    CoordinatorError,
    ExecutionContext,
    Priority,
    RetryOptions,
    ToolCallFailure,
    ToolCallRequest,
    ToolCallResponse,
    ToolCircuitOpenError,
    ToolExecutionError,
    ToolExecutionOptions,
    ToolNotFoundError,
    ToolValidationError,
    failure_of,
)
from .server_connections import ServerConnections, key_of_call
from .server_group import ServerGroup, ServerStatus
from .server_state import ServerState
from .servers import PlanSource, plans_of, plans_of_file
from .supervisor import ServerSupervisor
from .tool_record import ToolRegistryEntry

if TYPE_CHECKING:
    from ...client import ValidationIssue
    from .servers import Listed

log = logging.getLogger("foundation_rt.coordinator")

_NOTHING_TO_WAIT_FOR = (ServerState.READY, ServerState.DISABLED)


@define(eq=False)
class _Execution:
    """A call that runs, for `abort`."""

    task: asyncio.Task[Any]
    is_aborted: bool = False


@define(eq=False, repr=False, init=False)
class Coordinator:
    """The tools of many servers as one list, and calls of them.

    ::

        async with Coordinator.from_file("mcp.json") as servers:
            result = await servers.call("files:read_file", {"path": "notes.txt"})

    It has to be closed, as `async with` does. It belongs to one event loop.
    """

    _source: PlanSource
    _watched: tuple[Path, ...]
    _settings: CoordinatorSettings
    _group: ServerGroup | None
    _watching: asyncio.Task[None] | None
    _running: dict[str, _Execution]
    _numbers: Iterator[int]
    _is_closed: bool

    def __init__(
        self, servers: Mapping[str, Listed], **options: Unpack[CoordinatorOptions]
    ) -> None:
        """Make a coordinator of servers that a program lists; nothing is started yet.

        Args:
            servers: by id: what `connect` takes, a `ServerEntry`, or the dict of an entry.
            options: see `CoordinatorOptions`.

        Raises:
            UsageError: a value is no server, or a list has no such name.
        """
        given = dict(servers)
        plans_of(given)  # so that this raises, and not only start
        self._begin(partial(plans_of, given), (), CoordinatorSettings(**options))

    @classmethod
    def from_file(
        cls, path: str | Path, *, watch: bool = False, **options: Unpack[CoordinatorOptions]
    ) -> Coordinator:
        """Return a coordinator of the servers in a file, which is read when it starts.

        Args:
            path: of the file.
            watch: whether the file is read again when it changes.
            options: see `CoordinatorOptions`.
        """
        self = cls.__new__(cls)
        place = Path(path)
        source = partial(plans_of_file, place)
        self._begin(source, (place,) if watch else (), CoordinatorSettings(**options))
        return self

    @classmethod
    def from_plans(
        cls,
        source: PlanSource,
        watched: Iterable[Path] = (),
        **options: Unpack[CoordinatorOptions],
    ) -> Coordinator:
        """Return a coordinator of servers that a function returns, at the start and to reload.

        Args:
            source: returns the plans by id, in order; see `plans_of` and `plans_of_file`.
            watched: files whose change is a reason to reload.
            options: see `CoordinatorOptions`.
        """
        self = cls.__new__(cls)
        self._begin(source, tuple(watched), CoordinatorSettings(**options))
        return self

    def _begin(
        self, source: PlanSource, watched: tuple[Path, ...], settings: CoordinatorSettings
    ) -> None:
        self._source, self._watched, self._settings = source, watched, settings
        self._group = self._watching = None
        self._running, self._numbers = {}, count(1)
        self._is_closed = False

    # -- start and end

    async def __aenter__(self) -> Coordinator:
        try:
            await self.initialize()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def start(self) -> None:
        """Start all servers, without waiting for any. A second call does nothing.

        Raises:
            ServerFileError: the file cannot be used.
            UsageError: it was closed.
        """
        if self._is_closed:
            raise UsageError("the coordinator is closed: make another one")
        if self._group is not None:
            return
        watch = FileWatch(self._watched)
        plans = self._source()
        self._group = ServerGroup(self._settings)
        self._group.start(plans)
        if self._watched:
            self._watching = asyncio.create_task(self._keep_reading(watch))

    async def initialize(self) -> None:
        """Start all servers; wait until all are ready or failed, or `start_wait_ms` (COORD-16).

        Raises:
            ServerFileError: the file cannot be used.
        """
        self.start()
        await asyncio.wait([self._servers.starting])

    async def close(self) -> None:
        """End all connections and calls. A second call does nothing."""
        self._is_closed = True
        if self._watching is not None:
            self._watching.cancel()
        if self._group is not None:
            await self._group.close()

    async def reload(self, servers: Mapping[str, Listed] | None = None) -> None:
        """Read the servers again; leave those alone that have not changed (COORD-43).

        Servers that were removed or changed end when their running calls have.

        Args:
            servers: the servers of the program from now on; None: read the file, or the same ones.

        Raises:
            UsageError: the file or a value cannot be used; then nothing has changed.
        """
        if servers is not None:
            source: PlanSource = partial(plans_of, dict(servers))
            plans = source()
            self._source = source
        else:
            plans = self._source()
        self._servers.replace(plans)

    # -- tools

    @property
    def tools(self) -> tuple[ToolRegistryEntry, ...]:
        """The tools of all servers that are listed, in the order of the servers."""
        return self._servers.entries()

    def listed(self, kind: str) -> list[tuple[str, Definition]]:
        """Return the entries of one of `lists` as they came, each with the id of its server."""
        return self._servers.catalogue.listed(kind)

    def admits(self, server_id: str, kind: str, definition: Definition) -> bool:
        """Return whether the option `admits` lets a definition be used (COORD-75)."""
        return self._settings.admits(server_id, kind, definition)

    def entry(self, tool_name: str) -> ToolRegistryEntry | None:
        """Return a tool by its name; None if the name leads to none."""
        return self._servers.entry(tool_name)

    def entry_of_outside(self, outside_name: str) -> ToolRegistryEntry | None:
        """Return a tool by its outside name (COORD-05); None if the name leads to none."""
        return self._servers.entry_of_outside(outside_name)

    def resolve(self, tool_name: str) -> str:
        """Return the qualified name of a tool (COORD-03).

        Raises:
            ToolNotFoundError: the name leads to none, or to several.
        """
        return inside_name(*self._resolved(tool_name))

    def validate(self, tool_name: str, arguments: Mapping[str, Any]) -> tuple[ValidationIssue, ...]:
        """Return the problems of a call's arguments; `()` if there are none.

        Raises:
            ToolNotFoundError: the name leads to no tool, or to several.
        """
        server, tool = self._resolved(tool_name)
        return self._servers.supervisors[server].tools[tool].check_arguments(arguments)

    def guidance(self, server_id: str) -> str | None:
        """Return a server's own guidance for a model; None if it has none (COORD-40)."""
        supervisor = self._servers.supervisors.get(server_id)
        return None if supervisor is None else supervisor.guidance

    def description_prompt(self, server_id: str) -> str | None:
        """Return the guidance of a server for a model; None if there is no such server."""
        supervisor = self._servers.supervisors.get(server_id)
        return None if supervisor is None else supervisor.guidance_or_fallback

    @property
    def states(self) -> dict[str, ServerStatus]:
        """The state of every server, in order."""
        servers = self._servers
        return {server: servers.status(each) for server, each in servers.supervisors.items()}

    def server(self, server_id: str) -> ServerConnections | None:
        """Return one server, for raw requests; None if there is none of this id."""
        servers = self._servers
        return ServerConnections(servers, server_id) if server_id in servers.supervisors else None

    # -- calls

    async def call(
        self,
        tool_name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        request_id: str | None = None,
        timeout_ms: float | None = None,
        priority: Priority | str = Priority.NORMAL,
        retry_options: RetryOptions | None = None,
        session: str | None = None,
        principal: str | None = None,
        **more: Any,
    ) -> CallResult:
        """Call a tool.

        Args:
            tool_name: qualified, or bare if only one server has it.
            arguments: by name; JSON.
            request_id: names the call, for `abort`; by default a new one.
            timeout_ms: for all of it; by default that of the server, which progress extends up to
                its `maxTimeoutMs`.
            priority: among calls that wait for the same server.
            retry_options: by default one retry, where it is safe.
            session: the key of the caller's session, for servers whose entry has `isolation`.
            principal: the caller's principal, for the same; None if it is not known.
            more: `idempotent`, `on_progress`, `on_log`, `correlation_id`, `meta` and `handlers`, as
                `Client.call` takes them.

        Returns:
            The result, also if the tool says that it failed (`is_error`).

        Raises:
            ToolNotFoundError: the name leads to no tool, or to several.
            ToolCircuitOpenError: the tool, or its server, has failed too often.
            ToolValidationError: the arguments do not fit.
            ToolExecutionError: there is no result.
        """
        called_id = self._new_id() if request_id is None else request_id
        given = {} if arguments is None else arguments
        if called_id in self._running:
            problem = MCPError("E203", f"a call with the request id {called_id!r} is running")
            raise _execution_error(tool_name, "", called_id, given, problem)
        task = asyncio.current_task()
        assert task is not None
        execution = self._running[called_id] = _Execution(task)
        before, began = task.cancelling(), asyncio.get_running_loop().time()
        try:
            supervisor, tool = await self._find(tool_name, given, called_id, timeout_ms)
            asked = (timeout_ms, priority, more.get("idempotent"), principal)
            retries = retry_options or ONE_RETRY
            guarded = GuardedRequest(supervisor, TOOLS_CALL, tool, began, *asked, retries)
            definition = supervisor.tools[tool]
            key = key_of_call(supervisor.plan.settings.isolation, session, principal)
            try:
                return await _call(guarded, definition, given, more, key)
            except CircuitRefusal as refusal:
                assert guarded.record is not None
                last = guarded.record.metrics.reliability.last_failure
                raise ToolCircuitOpenError(
                    guarded.name,
                    refusal.failures,
                    last,
                    refusal.retry_after or 0.0,
                    refusal.server_id,
                ) from None
            except MCPError as error:
                server = supervisor.server_id
                raise _execution_error(guarded.name, server, called_id, given, error) from error
        except asyncio.CancelledError:
            if not execution.is_aborted or task.uncancel() > before:
                raise
            raise _execution_error(tool_name, "", called_id, given, _aborted()) from None
        finally:
            del self._running[called_id]

    async def execute(
        self, request: ToolCallRequest, options: ToolExecutionOptions | None = None
    ) -> ToolCallResponse:
        """Call a tool; return its result or its error, and raise none of them (COORD-27)."""
        chosen = options or ToolExecutionOptions()
        began = asyncio.get_running_loop().time()
        request_id = request.request_id or self._new_id()
        result: CallResult | None = None
        error: ToolCallFailure | None
        timeout_ms = chosen.timeout_ms if request.timeout_ms is None else request.timeout_ms
        try:
            result = await self.call(
                request.tool_name,
                request.arguments,
                request_id=request_id,
                timeout_ms=timeout_ms,
                priority=chosen.priority,
                retry_options=chosen.retry_options,
            )
            error = _failure_in(result)
        except CoordinatorError as raised:
            error = failure_of(raised)
        found = self._servers.names.resolve(request.tool_name)
        return ToolCallResponse(
            request.tool_name if isinstance(found, UnknownName) else inside_name(*found),
            None if result is None else result.wire,
            error,
            request_id,
            (asyncio.get_running_loop().time() - began) * 1000,
        )

    def abort(self, request_id: str) -> bool:
        """Abort a running call, which then ends in a `ToolExecutionError`.

        Returns:
            Whether there was one.
        """
        execution = self._running.get(request_id)
        if execution is None or execution.is_aborted:
            return False
        execution.is_aborted = True
        return execution.task.cancel()

    # -- internals

    @property
    def _servers(self) -> ServerGroup:
        """The servers, once they were started.

        Raises:
            UsageError: they were not.
        """
        if self._group is None:
            raise UsageError("the coordinator has not begun: use it with async with, or start it")
        return self._group

    def _resolved(self, tool_name: str) -> tuple[str, str]:
        found = self._servers.names.resolve(tool_name)
        if isinstance(found, UnknownName):
            raise ToolNotFoundError(tool_name, found.candidates, found.nearest)
        return found

    async def _find(
        self, name: str, arguments: Mapping[str, Any], request_id: str, timeout_ms: float | None
    ) -> tuple[ServerSupervisor, str]:
        """Return the server and the tool of a name; wait for servers that start (COORD-20).

        Raises:
            CoordinatorError: there is none.
        """
        prefix, colon, _ = name.partition(":")
        named = self._servers.supervisors.get(prefix) if colon else None
        if named is None:
            # While servers start, a bare name may yet become ambiguous.
            starting = self._servers.starting
            if not starting.done():
                longest = None if timeout_ms is None else timeout_ms / 1000
                await asyncio.wait([starting], timeout=longest)
        elif (
            isinstance(self._servers.names.resolve(name), UnknownName)
            and named.lifecycle.state not in _NOTHING_TO_WAIT_FOR
        ):
            try:
                await named.ready_within(
                    named.plan.settings.timeout_ms if timeout_ms is None else timeout_ms
                )
            except MCPError as error:
                raise _execution_error(name, prefix, request_id, arguments, error) from error
        server, tool = self._resolved(name)
        return self._servers.supervisors[server], tool

    def _new_id(self) -> str:
        """Return an id for a call that has none: unique in this coordinator, and cheap."""
        return f"call-{next(self._numbers)}"

    async def _keep_reading(self, watch: FileWatch) -> None:
        """Reload whenever a file has changed (COORD-44)."""
        while True:
            await watch.changed()
            try:
                await self.reload()
            except UsageError as error:
                log.error("the servers were not read again: %s", error)
            else:
                log.info("the servers were read again")


async def _call(
    request: GuardedRequest,
    tool: ToolSchema,
    arguments: Mapping[str, Any],
    more: Mapping[str, Any],
    key: ConnectionKey,
) -> CallResult:
    """Return the result of a tool, also one that says that it failed.

    Args:
        request: that guards the call.
        tool: its definition.
        arguments: by name.
        more: further arguments of `Client.call`.
        key: of the connection.

    Raises:
        ToolValidationError: the arguments do not fit; nothing was sent.
        MCPError: there is none.
    """

    async def send(connection: PooledConnection, longest: float | None) -> CallResult:
        client = await request.client(connection)
        remaining = request.remaining()
        return await client.call(
            tool.name, arguments, timeout=remaining, max_timeout=longest, **more
        )

    async def validate() -> None:
        issues = tool.check_arguments(arguments)
        if not issues:
            return
        latest = await _latest_definition(request, tool)
        if latest is not tool:
            issues = latest.check_arguments(arguments)
        if issues:
            raise ToolValidationError(request.name, issues)

    return await request.run(key, send, validate)


async def _latest_definition(request: GuardedRequest, tool: ToolSchema) -> ToolSchema:
    """Return the tool from a list that is fresh: the one known may be stale."""
    supervisor = request.supervisor
    if supervisor.lifecycle.state is not ServerState.READY or supervisor.client is None:
        return tool
    try:
        return await supervisor.client.get_tool_schema(tool.name, timeout=request.remaining())
    except MCPError:
        return tool


def _aborted() -> MCPError:
    return MCPError(
        "E201",
        "the call was aborted",
        user_message="The call was aborted",
        suggested_action="Call again if it is still wanted.",
        retryable=False,
        original_code=REQUEST_CANCELLED,
        may_have_run=True,
    )


def _execution_error(
    tool: str, server: str, request_id: str, arguments: Mapping[str, Any], cause: MCPError
) -> ToolExecutionError:
    context = ExecutionContext(tool, server, request_id, arguments)
    return ToolExecutionError(f"Failed to execute tool: {tool}", cause, context)


def _failure_in(result: CallResult) -> ToolCallFailure | None:
    """Return the error that a result reports; None if the tool succeeded."""
    if not result.is_error:
        return None
    error: ToolCallError | InvalidResponseError | None
    try:
        error = result.error
    except InvalidResponseError as unreadable:
        error = unreadable
    code = error.code if isinstance(error, ToolCallError) else None
    return ToolCallFailure(
        INTERNAL_ERROR,
        "" if error is None else error.message,
        code or ErrorCode.INTERNAL,
        may_have_run=True,
    )
