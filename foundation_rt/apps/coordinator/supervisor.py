"""The supervision of one server: attempts to connect, its lists, its end (COORD-10 to COORD-19).

The state is decided by `ServerLifecycle`. This performs it: one attempt at a time, which all
callers wait for, and one timer for what is due next.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, fields

from ...client import (
    AuthorizationError,
    BreakerSettings,
    CallTimeoutError,
    CircuitBreaker,
    Client,
    ClientHandlers,
    ConnectionLostError,
    MCPError,
    RetryPolicy,
    ServerDescription,
    SessionExpiredError,
    ToolSchema,
    connect,
)
from ...errors import UsageError
from .call_slots import CallSlots, StartTurns
from .catalogue import LIST_METHOD_OF, PROMPT, fallback_guidance, guidance_text, offers
from .connection_pool import MAX_CONNECTIONS, ConnectionHandlers, ConnectionKey, ConnectionPool
from .options import CoordinatorSettings
from .requests import METHOD_NOT_FOUND, first_line
from .server_state import ServerLifecycle, ServerState
from .servers import ServerPlan

if TYPE_CHECKING:
    from .server_group import ServerGroup

log = logging.getLogger("foundation_rt.coordinator")
log.addHandler(logging.NullHandler())

_NEVER_OPENS = BreakerSettings(failure_threshold=2**31)
_ONE_ATTEMPT = RetryPolicy(max_attempts=1, repeats_lost=False)
"""Circuits and retries are the coordinator's: they are the same for all connections of a server."""

_ANSWERING = ("handlers", *(each.name for each in fields(ClientHandlers) if each.init))
"""Options of connections that answer what a server asks."""

INSTRUCTIONS = "instructions"
GUIDANCE = "guidance"
GUIDANCE_TIMEOUT = 5.0
_RETIRING_POLL = 0.1


@define(eq=False, repr=False)
class ServerSupervisor:
    """One server of a coordinator, from its start to its removal.

    Args:
        settings: of the coordinator.
        turns: to start child processes.
        group: is told what changes; none of what it does then may raise.

    Attributes:
        lifecycle: its state.
        listed_tools: those that its settings allow.
        left_out: what was wrong with those that cannot be used.
        tools: of these, those that may be used.
        lists: its other lists, by kind.
        connections: how many have begun.
        is_stateless: whether it speaks a revision without sessions; None before it is known.
        ends: how many connections and attempts have ended in an error.
        is_retiring: whether it only waits for its running calls.
        last_error: the latest error of the way to it; None without one.
        is_refused: whether that was the server's answer that a credential is missing.
        handlers: of the connection of the lists.
        hanging: tools that have not answered in time, since anything was answered.
        asks_early: whether it has asked something on that connection, outside of calls.
    """

    plan: ServerPlan
    settings: CoordinatorSettings
    turns: StartTurns
    group: ServerGroup
    breaker: CircuitBreaker
    draw: Callable[[], float] = random.random
    lifecycle: ServerLifecycle = field(init=False)
    slots: CallSlots = field(init=False)
    pool: ConnectionPool = field(init=False)
    client: Client | None = field(default=None, init=False)
    listed_tools: dict[str, ToolSchema] = field(factory=dict, init=False)
    left_out: tuple[str, ...] = field(default=(), init=False)
    tools: dict[str, ToolSchema] = field(factory=dict, init=False)
    lists: dict[str, list[dict[str, Any]]] = field(factory=dict, init=False)
    connections: int = field(default=0, init=False)
    is_stateless: bool | None = field(default=None, init=False)
    ends: int = field(default=0, init=False)
    hanging: set[str] = field(factory=set, init=False)
    is_retiring: bool = field(default=False, init=False)
    last_error: str | None = field(default=None, init=False)
    is_refused: bool = field(default=False, init=False)
    handlers: ConnectionHandlers = field(init=False)
    asks_early: bool = field(default=False, init=False)
    _counted: int = field(default=-1, init=False)
    _renewed: set[Client] = field(factory=set, init=False)  # being closed
    _attempt: asyncio.Task[None] | None = field(default=None, init=False)
    _refresh: asyncio.Task[None] | None = field(default=None, init=False)
    _stale: set[str] = field(factory=set, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop, init=False)
    _is_closed: bool = field(default=False, init=False)
    _is_hurried: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        plan = self.plan
        most = plan.settings.max_concurrent
        share = self.settings.share_of(most)
        self.slots = CallSlots(most, None if share == most else share)
        self.pool = ConnectionPool(
            plan.server_id,
            plan.settings.idle_timeout_ms / 1000,
            self.settings.share_of(MAX_CONNECTIONS),
            self._client_of,
            self._renew,
            lambda: not self.asks_early,
        )
        if plan.settings.disabled:
            self.lifecycle = ServerLifecycle.disabled()
        elif plan.problem is not None:
            self.lifecycle = ServerLifecycle.unusable(plan.problem)
        else:
            self.lifecycle = ServerLifecycle(listed_after_loss=self.settings.listed_after_loss)
            self._make_client()

    @property
    def server_id(self) -> str:
        """The id of the server."""
        return self.plan.server_id

    @property
    def description(self) -> ServerDescription | None:
        """The server's description of itself; None without a connection."""
        return None if self.client is None else self.client.server

    @property
    def guidance(self) -> str | None:
        """The server's own guidance for a model; None if it has none."""
        for definition in self.lists.get(GUIDANCE, ()):
            if self.settings.admits(self.server_id, GUIDANCE, definition):
                return str(definition["text"])
        return None

    @property
    def guidance_or_fallback(self) -> str:
        """The guidance for a model; made of the listed tools where the server has none."""
        listed = (tool.wire for tool in self.tools.values())
        return self.guidance or fallback_guidance(self.server_id, listed)

    # -- start and end

    def start(self) -> asyncio.Task[None] | None:
        """Make the first attempt; return it, or None if there is none to make."""
        if self.client is None:
            if self.lifecycle.state is ServerState.FAILED:
                reason = self.lifecycle.reason
                self._log(logging.ERROR, "server_refused", "server %r cannot be used: %s", reason)
            return None
        return self._begin_attempt()

    async def ready(self) -> Client:
        """Return the client of the connected server; connect at once if it is not (COORD-15).

        Raises:
            MCPError: the attempt failed, or there is none to make.
        """
        client = self.client
        if self._is_closed or client is None:
            reason = self.lifecycle.reason or f"it is {self.lifecycle.state}"
            raise ConnectionLostError(
                f"server {self.server_id!r} cannot be used: {reason}",
                may_have_run=False,
                retryable=False,
            )
        if self.lifecycle.state is not ServerState.READY:
            attempt = self._attempt or self._begin_attempt()
            await asyncio.wait([attempt])  # a caller that is cancelled leaves it to the others
            if attempt.cancelled():
                raise ConnectionLostError("the coordinator is closed", may_have_run=False)
            attempt.result()
        assert self.client is not None
        return self.client

    def time_of(self, tool: str | None, timeout_ms: float | None) -> tuple[float, float]:
        """Return the time of a request, and up to which progress extends it, in ms.

        Args:
            tool: that it calls; None for another method.
            timeout_ms: as its caller says; None for what `tool_timeouts` or the entry says.
        """
        of_tools: Mapping[str, float] = self.settings.connections.get("tool_timeouts", {})
        if timeout_ms is None and tool is not None and tool in of_tools:
            timeout_ms = of_tools[tool] * 1000
        if timeout_ms is None:
            return self.plan.settings.timeout_ms, self.plan.settings.max_timeout_ms
        return timeout_ms, timeout_ms

    async def ready_within(self, timeout_ms: float) -> Client:
        """Return the client of the connected server, as `ready` does, in time.

        Raises:
            MCPError: the attempt failed, took too long (E202), or there is none to make.
        """
        if self.lifecycle.state is ServerState.READY and self.client is not None:
            return self.client
        try:
            async with asyncio.timeout(max(0.0, timeout_ms / 1000)):
                return await self.ready()
        except TimeoutError as error:
            if isinstance(error, MCPError):
                raise
            raise CallTimeoutError(
                f"server {self.server_id!r} was not ready within {timeout_ms / 1000:g} s",
                may_have_run=False,
            ) from None

    async def settled(self) -> None:
        """Wait until the attempt under way has ended, and what it found is read."""
        while (task := self._attempt or self._refresh) is not None:
            await asyncio.wait([task])
            await asyncio.sleep(0)  # its callbacks may begin the next one

    async def close(self) -> None:
        """End the connection, its running calls and everything that is under way."""
        self._is_closed = True
        self._drop_timer()
        tasks = [each for each in (self._attempt, self._refresh) if each is not None]
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                await asyncio.wait(tasks)
        finally:  # also if this is cancelled: no process may stay behind
            try:
                await self.pool.close()
            finally:
                clients = [self.client, *self._renewed]
                ending = [asyncio.ensure_future(each.close()) for each in clients if each]
                if ending:
                    await asyncio.gather(*ending)

    async def retire(self) -> None:
        """Close it when its running calls have ended; new ones go to its successor."""
        self.is_retiring = True
        self._drop_timer()
        longest = self.plan.settings.max_timeout_ms / 1000
        end = self._loop.time() + longest
        try:
            while self.slots.running and not self._is_hurried and self._loop.time() < end:
                await asyncio.sleep(_RETIRING_POLL)
        finally:  # also if this is cancelled
            await self.close()

    def hurry(self) -> None:
        """Let `retire` wait for no call any more."""
        self._is_hurried = True

    def take_over(self, known: ServerSupervisor) -> None:
        """Keep what the predecessor listed until this one is ready, or has failed for a while."""
        if self.client is None or not known.lifecycle.is_listed:
            return
        allows = self.plan.settings.allows
        self.listed_tools = {
            name: tool for name, tool in known.listed_tools.items() if allows(name)
        }
        self.lists = {kind: each for kind, each in known.lists.items() if kind != GUIDANCE}
        self.lifecycle.is_listed = True
        self.lifecycle.listed_until = self._loop.time() + self.settings.listed_after_loss

    def counts(self, error: MCPError) -> bool:
        """Return whether an error is a failure of its own (BREAK-10).

        A connection that is lost, or cannot be made, is one failure however many calls wait for it.
        """
        if isinstance(error, SessionExpiredError):
            return False
        if not isinstance(error, ConnectionLostError) or error.original_code is not None:
            return True
        if self._counted == self.ends:
            return False
        self._counted = self.ends
        return True

    def check_login(self) -> None:
        """Read the lists again: a call was refused for want of a login, and they may be, too."""
        if self.client is not None:
            self.client.invalidate()
            self._read_soon(set(self.settings.lists))

    # -- attempts

    def _make_client(self) -> None:
        self.handlers = self._make_handlers()
        try:
            self.client = self._connect(
                self.plan.target,
                self.handlers,
                on_connected=self._connected,
                on_disconnected=self._disconnected,
                on_list_changed=self._list_changed,
                on_notification=partial(self._notified, None),
            )
        except UsageError as error:
            self.lifecycle = ServerLifecycle.unusable(str(error))

    def _make_handlers(self) -> ConnectionHandlers:
        options = self.settings.connections
        given = {name: value for name, value in options.items() if name in _ANSWERING}
        otherwise = given.pop("handlers", None) or ClientHandlers(**given)
        return ConnectionHandlers(otherwise, self._asked_early)

    def _asked_early(self) -> None:
        self.asks_early = True

    def _client_of(self, key: ConnectionKey) -> tuple[Client, ConnectionHandlers]:
        """Return a client for a connection of its own, and its handlers.

        Raises:
            UsageError: a header cannot be sent.
        """
        handlers = self._make_handlers()
        target = self.plan.target
        if key.headers:
            target = evolve(target, headers={**target.headers, **dict(key.headers)})
        client = self._connect(
            target,
            handlers,
            on_connected=self._note_mode,
            on_disconnected=self._note_error,
            on_notification=partial(self._notified, key.owner),
        )
        return client, handlers

    def _connect(self, target: Any, handlers: ConnectionHandlers, **observers: Any) -> Client:
        settings, given = self.plan.settings, self.settings.connections
        options = {
            "name": "foundation-rt-coordinator",
            "require": (),
            "timeout": settings.timeout_ms / 1000,
            "connect_timeout": settings.connect_timeout_ms / 1000,
            **{name: value for name, value in given.items() if name not in _ANSWERING},
            "handlers": handlers,
        }
        made = connect(target, breaker=_NEVER_OPENS, retries=_ONE_ATTEMPT, **observers, **options)
        made.label(self.server_id)
        return made

    def _renew(self) -> None:
        """Make the connection of the lists anew: its session was that of one client."""
        old = self.client
        if old is None or self._is_closed:
            return
        self._renewed.add(old)
        closing = asyncio.ensure_future(old.close())
        closing.add_done_callback(lambda _: self._renewed.discard(old))
        self._make_client()
        if self.lifecycle.state is ServerState.READY:
            self.lifecycle.renewed(self._loop.time())
            self._begin_attempt()
            self._schedule()

    def _notified(self, owner: str | None, method: str, params: Mapping[str, Any]) -> None:
        # On the connection of the lists it concerns whoever has taken that over.
        concerned = self.pool.lists_owner if owner is None else owner
        self.group.server_notified(self, concerned, method, params)

    def _begin_attempt(self) -> asyncio.Task[None]:
        attempt = self._attempt = asyncio.create_task(self._try_to_connect())
        attempt.add_done_callback(self._attempt_ended)
        return attempt

    async def _try_to_connect(self) -> None:
        client = self.client
        assert client is not None
        timeout = self.plan.settings.connect_timeout_ms / 1000
        async with AsyncExitStack() as stack:
            if self.plan.is_child:
                await stack.enter_async_context(self.turns.turn())
            try:
                await client.initialize(timeout=timeout)
                for kind in self.settings.lists:
                    await self._read_list(client, kind, timeout)
            except MCPError:
                raise
            except Exception as error:
                raise ConnectionLostError(str(error), may_have_run=False) from error

    def _attempt_ended(self, attempt: asyncio.Task[None]) -> None:
        self._attempt = None
        if attempt.cancelled():
            return
        error = attempt.exception()
        if error is None:
            self._note_ready()
            return
        self._note_error(error)
        # With the last lines of its stderr, which the status leaves out: clients see that.
        said = error.message if isinstance(error, MCPError) else str(error)
        text = "server %r is not ready: %s"
        self._log(logging.WARNING, "connection_failed", text, said.rstrip())
        self.lifecycle.attempt_failed(
            self._loop.time(),
            self.last_error or "",
            self.draw(),
            needs_login=isinstance(error, AuthorizationError),
        )
        self._schedule()
        self.group.server_changed(self)

    def _note_ready(self) -> None:
        if self.lifecycle.state is ServerState.NEEDS_LOGIN:
            self.last_error = None  # to wait for a person was no failure
        self.lifecycle.connected(self._loop.time())
        self._log(logging.INFO, "connected", "server %r is ready")
        if self.settings.guidance and not self.lists.get(GUIDANCE):
            self._read_soon({PROMPT})
        self._schedule()
        self.group.server_changed(self)

    def _note_error(self, error: BaseException) -> None:
        self.ends += 1
        self.last_error = first_line(error) if isinstance(error, MCPError) else str(error)
        if isinstance(error, AuthorizationError):
            self.last_error = f"{error.message}. {error.suggested_action}"
        self.is_refused = isinstance(error, MCPError) and error.code == "E207"

    # -- called by the client

    def _note_mode(self, description: ServerDescription) -> None:
        self.is_stateless = description.revision.is_stateless

    def _connected(self, description: ServerDescription) -> None:
        self.connections += 1
        self._note_mode(description)
        if self._attempt is None and not self._is_closed:
            # A call has connected it again, before the attempt that is due.
            if self.lifecycle.state is not ServerState.READY:
                self._note_ready()
            self._read_soon(set(self.settings.lists))

    def _disconnected(self, error: MCPError) -> None:
        if self._is_closed or self.lifecycle.state is not ServerState.READY:
            return  # the attempt that is under way fails with it
        if isinstance(error, SessionExpiredError):
            return  # the next call makes another session; the server is there
        self._note_error(error)
        self.lifecycle.ended(self._loop.time(), self.last_error or "", self.draw())
        text = "server %r has ended: %s"
        self._log(logging.WARNING, "disconnected", text, self.last_error)
        self._schedule()
        self.group.server_changed(self)

    def _log(self, level: int, action: str, text: str, *arguments: object) -> None:
        """Write a record about this server, in the words of `text` (COORD-80)."""
        fields = {"component": "MCP", "action": action, "server": self.server_id}
        log.log(level, text, self.server_id, *arguments, extra={"fields": fields})

    def _list_changed(self, kind: str) -> None:
        kinds = {"resources", "resourceTemplates", "skills"} if kind == "resources" else {kind}
        if kind == "prompts" and self.settings.guidance:
            kinds.add(PROMPT)
        self._read_soon(kinds & {*self.settings.lists, PROMPT})

    # -- time

    def _schedule(self) -> None:
        """Arm the timer for what is due next."""
        self._drop_timer()
        attempt_at = None if self._attempt is not None else self.lifecycle.attempt_at
        due = [each for each in (attempt_at, self.lifecycle.listed_until) if each is not None]
        if due and not (self._is_closed or self.is_retiring):
            self._timer = self._loop.call_at(min(due), self._time_has_come)

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_has_come(self) -> None:
        self._timer = None
        now = self._loop.time()
        was_listed = self.lifecycle.is_listed
        self.lifecycle.pass_time(now)
        attempt_at = self.lifecycle.attempt_at
        if attempt_at is not None and now >= attempt_at and self._attempt is None:
            self._begin_attempt()
        self._schedule()
        if was_listed and not self.lifecycle.is_listed:
            self.group.server_changed(self)

    # -- lists

    def _read_soon(self, kinds: set[str]) -> None:
        """Read lists again, and the guidance; what changes meanwhile is read once more."""
        self._stale |= kinds
        if self._refresh is None and self._stale and not self._is_closed:
            self._refresh = asyncio.create_task(self._read_stale())
            self._refresh.add_done_callback(self._refreshed)

    async def _read_stale(self) -> None:
        client = self.client
        assert client is not None
        while self._stale and self.lifecycle.state is ServerState.READY:
            kind = self._stale.pop()
            try:
                if kind == PROMPT:
                    await self._read_guidance(client)
                else:
                    await self._read_list(
                        client, kind, self.plan.settings.connect_timeout_ms / 1000
                    )
            except MCPError as error:
                self._note_error(error)
                log.warning("%s of server %r not read: %s", kind, self.server_id, error.message)
                if isinstance(error, AuthorizationError):
                    self._note_login_ended()

    def _note_login_ended(self) -> None:
        self.lifecycle.login_ended(self._loop.time(), self.last_error or "", self.draw())
        self._schedule()
        self.group.server_changed(self)

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        self._refresh = None
        if self.lifecycle.state is not ServerState.READY:
            self._stale -= {*self.settings.lists}  # the next attempt reads them all
        elif not task.cancelled():
            self._read_soon(set())

    async def _read_list(self, client: Client, kind: str, timeout: float) -> None:
        if kind == "tools":
            listed = await client.list_tools(timeout=timeout) if client.has_capability(kind) else ()
            allows = self.plan.settings.allows
            self.listed_tools = {tool.name: tool for tool in listed if allows(tool.name)}
            self.left_out = client.left_out
            self.admit()
        elif kind == INSTRUCTIONS:
            text = None if client.server is None else client.server.instructions
            self.lists[kind] = _as_entries(kind, text)
        elif offers(client, kind):
            self.lists[kind] = await self._read_entries(client, kind, timeout)
        else:
            self.lists[kind] = []
        self.group.server_listed(self, kind)

    async def _read_entries(
        self, client: Client, kind: str, timeout: float
    ) -> list[dict[str, Any]]:
        """Return a list of the server; what was known of one that it does not give (COORD-58).

        Many servers with resources have no method for templates, and serve well without.
        """
        try:
            return await client.request_all(LIST_METHOD_OF[kind], timeout=timeout)
        except MCPError as error:
            if error.original_code is None and not isinstance(error, CallTimeoutError):
                raise
            if error.original_code != METHOD_NOT_FOUND:
                log.warning("%s of server %r not read: %s", kind, self.server_id, error.message)
            return self.lists.get(kind, [])

    def admit(self) -> None:
        """Have those of the listed tools that may be used."""
        self.tools = {
            name: tool
            for name, tool in self.listed_tools.items()
            if self.settings.admits(self.server_id, "tools", tool.wire)
        }

    async def _read_guidance(self, client: Client) -> None:
        """Read the prompt for models, if the server lists it (COORD-40, COORD-42)."""
        text = problem = None
        if client.has_capability("prompts") and any(
            prompt.name == PROMPT for prompt in await client.list_prompts(timeout=GUIDANCE_TIMEOUT)
        ):
            try:
                result = await client.get_prompt(PROMPT, timeout=GUIDANCE_TIMEOUT)
            except MCPError as error:
                problem = error.message
            else:
                text = guidance_text(result.wire)
                problem = None if text is not None else "not one user message of text"
        entries = _as_entries(PROMPT, text)
        if entries != self.lists.get(GUIDANCE):  # also that there is none, the first time
            self.lists[GUIDANCE] = entries
            self.group.server_listed(self, GUIDANCE)
        if problem is not None:
            log.warning(
                "'%s' prompt missing/invalid for server %s. Generating fallback description: %s",
                PROMPT,
                self.server_id,
                problem,
            )


def _as_entries(name: str, text: str | None) -> list[dict[str, Any]]:
    """Return a text for models as a list of at most one entry."""
    return [] if text is None else [{"name": name, "text": text}]
