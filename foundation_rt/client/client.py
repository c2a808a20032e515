"""The client of one MCP server.

Nothing is sent before the first call. That call connects, and so does the first call after a
connection was lost (CLIENT-07).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define, field

from ..base.request_ids import RequestIdGenerator, UuidRequestIds
from ..base.skill_format import EXTENSION, SKILLS_GET, SKILLS_LIST
from ..base.tool_versions import VERSION_KEY, at_version
from ..errors import UsageError
from ..protocol.methods import (
    COMPLETION_COMPLETE,
    INITIALIZE,
    METHODS,
    NOTIFICATIONS_MESSAGE,
    NOTIFICATIONS_ROOTS_LIST_CHANGED,
    PING,
    PROMPTS_GET,
    PROMPTS_LIST,
    RESOURCES_LIST,
    RESOURCES_READ,
    RESOURCES_TEMPLATES_LIST,
    SERVER_DISCOVER,
    TOOLS_LIST,
    facts,
)
from .callbacks import (
    LogCallback,
    ProgressCallback,
    call_callback,
    check_plain,
    ignore_progress,
    report_log_message,
)
from .errors import MCPError, NotOfferedError
from .handlers.client_handlers import ClientHandlers
from .handlers.server_requests import ServerRequestHandlers
from .options import ClientOptions
from .resilience.circuit_breaker import CircuitBreaker, CircuitState
from .resilience.deadline import DeadlineTimer
from .resilience.resilience import Breakers, Resilience
from .resilience.retries import Attempt, Retries
from .results.results import (
    CallResult,
    CompletionResult,
    Entry,
    GetPromptResult,
    Prompt,
    ReadResult,
    Resource,
    ResourceTemplate,
    completion_params,
)
from .results.tool_schemas import ToolSchema
from .session.handshake import ServerDescription
from .session.pending_requests import NotificationReceived
from .session.session import ClientSession
from .session.session_link import SessionLink, TransportFactory
from .session.subscriptions import ClientSubscriptions, Subscription
from .tools.input_rounds import InputRounds
from .tools.paging import list_all, missing_arguments, usable
from .tools.server_tools import ServerTools
from .tools.tool_cache import ToolCache
from .tools.tool_call import RawRequest, ToolCall, encode_arguments, encode_meta, read_entry

if TYPE_CHECKING:
    from .results.apps import App
    from .results.skills import Skill

Result = TypeVar("Result")

log = logging.getLogger("foundation_rt.client")
# Without it Python prints warnings on the stderr of programs that have not configured logging.
log.addHandler(logging.NullHandler())


@define(eq=False, repr=False)
class Client:
    """Calls the tools of one server, reads its resources, gets its prompts.

    `connect` makes it. Many tasks of one event loop may use it at once. Every method ends with a
    result or an `MCPError` within its timeout.

    Args:
        make_transport: makes a transport to the server; called once for each session.
        handlers: answer the requests of the server.
        ids: makes the ids of requests.
        draw: gives random numbers, at least 0 and less than 1; they spread retries.

    Attributes:
        watch: of all deadlines.
    """

    make_transport: TransportFactory
    options: ClientOptions = field(factory=ClientOptions)
    handlers: ServerRequestHandlers = field(factory=ClientHandlers)
    ids: RequestIdGenerator = field(factory=UuidRequestIds)
    draw: Callable[[], float] = random.random
    watch: DeadlineTimer = field(factory=DeadlineTimer, init=False)
    _link: SessionLink = field(init=False)
    _tools: ServerTools = field(init=False)
    _rounds: InputRounds = field(init=False)
    _subscriptions: ClientSubscriptions = field(init=False)
    _resilience: Resilience = field(init=False)
    _breakers: Breakers = field(init=False)

    def __attrs_post_init__(self) -> None:
        options = self.options
        self._link = SessionLink(
            self.make_transport, options, self.handlers, self.ids, self, self._prepare, self.watch
        )
        cache = ToolCache(options.tool_cache_ttl_ms)
        self._tools = ServerTools(cache, options.max_pages, options.timeout)
        self._rounds = InputRounds(self.handlers, options.handler_timeout)
        wants_all_lists = not (options.on_list_changed is None and options.on_notification is None)
        self._subscriptions = ClientSubscriptions(
            self._link, self._perform, self._list_changed, wants_all_lists, self._observe
        )
        retries = Retries(options.retries, self.draw)
        self._resilience = Resilience(
            retries, options.handler_timeout, self._link.not_ready, self.watch
        )
        self._breakers = Breakers(options.breaker, options.tool_breakers, options.on_circuit)

    def label(self, name: str) -> None:
        """Name the server so in the log; by default it is what it calls itself."""
        self._tools.label = name

    @property
    def left_out(self) -> tuple[str, ...]:
        """Return the problems of tools in the latest list that cannot be used, a sentence each."""
        return self._tools.left_out

    # -- start and end

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def initialize(self, *, timeout: float | None = None) -> ServerDescription:
        """Connect now instead of with the first call; return the server's description.

        Raises:
            MCPError: it cannot be reached (E201, E202), has no common revision (E206), or lacks a
                required capability (E205).
        """

        async def negotiate(attempt: Attempt) -> ServerDescription:
            return (await self._session(attempt)).server

        return await self._perform(INITIALIZE, negotiate, timeout)

    async def close(self) -> None:
        """End the connection and all running calls. A second call does nothing."""
        self.watch.close()
        try:
            await self._subscriptions.close()
            await self._tools.close()
        finally:  # also if this is cancelled: no server process may stay behind
            await self._link.close()

    # -- state

    @property
    def server(self) -> ServerDescription | None:
        """The server's description; None without a connection."""
        session = self._link.current
        return None if session is None else session.server

    def has_capability(self, capability: str) -> bool:
        """Return whether the server declared a capability such as `resources.subscribe` (AC-003.5).

        Before the first connection nothing is declared.
        """
        return self.server is not None and self.server.can(*capability.split("."))

    @property
    def circuit_state(self) -> CircuitState:
        """State of the server's circuit breaker; for health checks, which need no event loop."""
        return self._breakers.server.state(self._link.now())

    def tool_circuit_state(self, tool: str) -> CircuitState:
        """State of one tool's circuit breaker; CLOSED if it has none."""
        return self._breakers.tool_state(tool, self._link.now())

    @property
    def stderr_tail(self) -> str:
        """The last stderr lines of the server's process, and how it ended; may be empty."""
        return "" if self._link.transport is None else self._link.transport.stderr_tail()

    def roots_changed(self) -> None:
        """Notify the server that the roots have changed, so that it asks for them again (QUEST-30).

        Without a connection, and in the stateless mode, there is nobody to notify: the server asks
        when it needs them.
        """
        session = self._link.current
        if session is not None and not session.server.revision.is_stateless:
            session.notify(NOTIFICATIONS_ROOTS_LIST_CHANGED)

    # -- tools

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        version: str | None = None,
        timeout: float | None = None,
        max_timeout: float | None = None,
        correlation_id: str | None = None,
        idempotent: bool | None = None,
        on_progress: ProgressCallback | None = None,
        on_log: LogCallback | None = None,
        meta: Mapping[str, Any] | None = None,
        handlers: ServerRequestHandlers | None = None,
    ) -> CallResult:
        """Call a tool.

        A call that is cancelled ends at once, and the server is notified (CLIENT-15).

        Args:
            tool: its name.
            arguments: by name; JSON. They are checked against the tool's schema first.
            version: of the tool, as the server lists it; by default the one that `meta` names, or
                the newest (CTOOL-30).
            timeout: in s, for the whole call; by default that of `tool_timeouts` or `timeout`.
            max_timeout: in s, for the whole call, if progress begins the `timeout` again; by
                default progress changes nothing.
            correlation_id: relates the call to others, in the logs of both sides.
            idempotent: whether the tool may run twice; by default as its annotations say.
            on_progress: gets the progress; a plain function, as is `on_log`.
            on_log: gets the log messages of the call.
            meta: further members of the request's `_meta`; those that the protocol has for the
                client itself are the client's own.
            handlers: answer the requests of the server that belong to this call; by default those
                of the client.

        Returns:
            The result, also if the tool says that it failed (`is_error`).

        Raises:
            UsageError: a callback is an `async def` function.
            InvalidArgumentsError: E203: the arguments do not fit; nothing was sent.
            MCPError: there is no result; `may_have_run` says whether there may be an effect.
        """
        check_plain("on_progress", on_progress)
        check_plain("on_log", on_log)
        version = version or (meta or {}).get(VERSION_KEY)
        if version is not None:
            tool = at_version(tool, version)
        encoded = encode_arguments(tool, arguments)
        members = encode_meta(meta) if meta else None
        call = ToolCall(
            self._tools, self._rounds, tool, encoded, correlation_id, idempotent, members
        )
        given = (timeout, max_timeout, on_progress, on_log, handlers)
        return call.read(await self._perform_request(call, *given))

    async def list_tools(
        self, *, timeout: float | None = None, meta: Mapping[str, Any] | None = None
    ) -> tuple[ToolSchema, ...]:
        """Return the tools of the server, from the cache while that is fresh.

        With `meta` they are asked for, by a request of its own, and are not cached.

        Raises:
            MCPError: they cannot be listed.
        """
        members = encode_meta(meta)

        async def operation(attempt: Attempt) -> tuple[ToolSchema, ...]:
            if members is not None:
                return await self._tools.list_apart(await self._session(attempt), attempt, members)
            known = self._tools.known()
            if known is not None:
                self._link.check()
                return known
            return await self._tools.fresh(await self._session(attempt), attempt)

        return await self._perform(TOOLS_LIST, operation, timeout)

    async def get_tool_schema(self, tool: str, *, timeout: float | None = None) -> ToolSchema:
        """Return one tool, from the cache while that is fresh (AC-004.4).

        Raises:
            MCPError: E204: there is none of this name; or they cannot be listed.
        """

        async def operation(attempt: Attempt) -> ToolSchema:
            for each in self._tools.known() or ():
                if each.name == tool:
                    self._link.check()
                    return each
            return await self._tools.look_up(await self._session(attempt), tool, attempt)

        return await self._perform(TOOLS_LIST, operation, timeout)

    def invalidate(self) -> None:
        """Drop the cached tools; the next call that needs them lists them again (AC-004.5)."""
        self._tools.invalidate()

    # -- resources, prompts, completions

    async def list_resources(
        self, *, timeout: float | None = None, meta: Mapping[str, Any] | None = None
    ) -> tuple[Resource, ...]:
        """Return the resources of the server, all pages.

        Raises:
            MCPError: they cannot be listed; E205: the server has none.
        """
        return await self._list(Resource, RESOURCES_LIST, timeout, meta)

    async def list_resource_templates(
        self, *, timeout: float | None = None, meta: Mapping[str, Any] | None = None
    ) -> tuple[ResourceTemplate, ...]:
        """Return the resource templates; see `list_resources`."""
        method = RESOURCES_TEMPLATES_LIST
        return await self._list(ResourceTemplate, method, timeout, meta)

    async def list_prompts(
        self, *, timeout: float | None = None, meta: Mapping[str, Any] | None = None
    ) -> tuple[Prompt, ...]:
        """Return the prompts of the server; see `list_resources`."""
        return await self._list(Prompt, PROMPTS_LIST, timeout, meta)

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: float | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ReadResult:
        """Read a resource.

        Raises:
            MCPError: E204: there is none; or it cannot be read.
        """
        members = encode_meta(meta)
        read = partial(self._ask, RESOURCES_READ, {"uri": uri}, members)
        return ReadResult.read(await self._perform(RESOURCES_READ, read, timeout))

    async def get_prompt(
        self,
        prompt: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> GetPromptResult:
        """Return the messages of a prompt.

        Raises:
            MCPError: there is none, or the arguments do not fit: E203.
        """
        params = {"name": prompt, "arguments": dict(arguments or {})}
        members = encode_meta(meta)

        async def get(attempt: Attempt) -> dict[str, Any]:
            try:
                return await self._ask(PROMPTS_GET, params, members, attempt)
            except MCPError as error:
                session, most = attempt.session, self.options.max_pages
                if session is None:
                    raise
                raise await missing_arguments(session, params, error, attempt, most) from None

        return GetPromptResult.read(await self._perform(PROMPTS_GET, get, timeout))

    async def complete(
        self,
        subject: str,
        argument: str,
        value: str = "",
        *,
        known: Mapping[str, str] | None = None,
        timeout: float | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> CompletionResult:
        """Return the completions of `value`.

        Args:
            subject: the name of a prompt, or the URI template of resources; it has a brace.
            argument: of the prompt or template.
            value: the beginning of its value.
            known: the other arguments, as far as they are known.
            timeout: in s, for the whole request.
            meta: further members of the request's `_meta`.

        Raises:
            MCPError: the server knows no such subject, or completes nothing (E205).
        """
        params = completion_params(subject, argument, value, known)
        members = encode_meta(meta)
        complete = partial(self._ask, COMPLETION_COMPLETE, params, members)
        return CompletionResult.read(await self._perform(COMPLETION_COMPLETE, complete, timeout))

    # -- apps and skills

    async def read_app(self, app: str | Resource, *, timeout: float | None = None) -> App:
        """Return the page of an app, and what it asks its host for (CAPP-02, CAPP-03).

        Nothing of it is to be trusted: it is for a frame without an origin.

        Args:
            app: its URI, as `ToolSchema.ui` has it; or its entry of `list_resources`, which says
                what the contents leave out.
            timeout: in s, for the whole request.

        Raises:
            MCPError: E204: there is none; E209: it is no app, or is larger than 16 MiB; or it
                cannot be read.
        """
        from .results.apps import App

        uri, entry = (app, {}) if isinstance(app, str) else (app.uri, app.wire)
        listed = entry.get("_meta")
        read = await self.read_resource(uri, timeout=timeout)
        return App.read(uri, read.contents, listed if isinstance(listed, Mapping) else {})

    async def skills(
        self, *, timeout: float | None = None, meta: Mapping[str, Any] | None = None
    ) -> tuple[Skill, ...]:
        """Return the skills that the server lists, all pages; nothing of them is read (CSKILL-01).

        A server may have more than it lists. An entry that is not valid is left out, with a
        warning.

        Raises:
            MCPError: they cannot be listed; E205: the server does not offer skills.
        """
        from .results.skills import Skill

        return await self._list(Skill, SKILLS_LIST, timeout, meta)

    async def skill(
        self, skill: str, *, timeout: float | None = None, meta: Mapping[str, Any] | None = None
    ) -> Skill:
        """Return one skill, by the URI of its `SKILL.md`, or by its name (CSKILL-03).

        Raises:
            MCPError: E204: there is none, or several have the name; E205: the server does not offer
                skills; E209: its entry is not valid.
        """
        from .results.skills import Skill, choose_skill

        if "/" not in skill:
            return choose_skill(await self.skills(timeout=timeout, meta=meta), skill)
        get = partial(self._ask, SKILLS_GET, {"uri": skill}, encode_meta(meta))
        return Skill.read((await self._perform(SKILLS_GET, get, timeout)).get("skill"))

    async def read_skill(
        self, skill: Skill, path: str = "SKILL.md", *, timeout: float | None = None
    ) -> bytes:
        """Return the content of a file of a skill, checked against its entry (CSKILL-04).

        If it is refused, ask for the skill anew: its author may have changed it.

        Args:
            skill: from `skills` or `skill`.
            path: from the folder of the skill, as in `references/forms.md`.
            timeout: in s, for the whole request.

        Raises:
            MissingExtraError: the extra `skills` is not installed.
            MCPError: E204: the skill has no such file, or no digests; E209: the content is not what
                the entry says; or it cannot be read.
        """
        file = skill.file(path)
        read = await self.read_resource(file.uri, timeout=timeout)
        return skill.checked(file, read.contents)

    def subscribe(
        self, *uris: str, tasks: Iterable[str] = (), timeout: float | None = None
    ) -> Subscription:
        """Subscribe to changes of resources: ``async with client.subscribe(uri) as changes``.

        It outlives lost connections, and connects again by itself.

        Args:
            uris: the resources; a change of a resource below one of them counts.
            tasks: ids of tasks of the stateless mode; what one is now is in the notification,
                which `on_notification` gets (CLIENT-62).
            timeout: seconds that the server has to confirm it, each time.

        Raises:
            UsageError: there is neither a URI nor a task.
        """
        wait = self.options.timeout if timeout is None else timeout
        return self._subscriptions.open(uris, tuple(tasks), wait)

    # -- any request

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        max_timeout: float | None = None,
        idempotent: bool | None = None,
        on_progress: ProgressCallback | None = None,
        on_log: LogCallback | None = None,
        handlers: ServerRequestHandlers | None = None,
    ) -> dict[str, Any]:
        """Send a request of any method; return its result as it came.

        Nothing of the result is read, answered or asked for: not `input_required`, no handle of a
        task. Neither the server's capabilities nor the arguments of a tool are checked first.

        Args:
            method: of the request, such as `tools/call`.
            params: of the request; JSON. `_meta` in them is one with `meta`.
            meta: further members of `_meta`; those that the protocol has for the client itself are
                the client's own.
            timeout: in s, for the whole call; by default `timeout`, of a tool that of
                `tool_timeouts`.
            max_timeout: see `call`, as `handlers`.
            idempotent: whether it may run twice; by default true of what only reads, and of a tool
                as its annotations say, if it is known.
            on_progress: gets the progress; a plain function, as is `on_log`.
            on_log: gets the log messages of the call.

        Raises:
            UsageError: the method is `initialize`, or that of a notification; a callback is an
                `async def` function.
            MCPError: there is no result. `wire` of it is the server's error as it came.
        """
        check_plain("on_progress", on_progress)
        check_plain("on_log", on_log)
        request = RawRequest(self._tools, method, params, meta, idempotent)
        given = (timeout, max_timeout, on_progress, on_log, handlers)
        return await self._perform_request(request, *given)

    async def request_all(
        self,
        method: str,
        *,
        timeout: float | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the entries of every page of a list, as they came.

        Args:
            method: that lists, such as `tools/list`.
            timeout: in s, for all pages.
            meta: further members of `_meta`, of every page's request.

        Raises:
            UsageError: the method is none that lists.
            MCPError: they cannot be listed; E209: the list is invalid, too long, or does not end.
        """
        if facts(method).entries is None and method != SKILLS_LIST:
            listing = (name for name, each in METHODS.items() if each.entries is not None)
            lists = ", ".join((*listing, SKILLS_LIST))
            raise UsageError(f"request_all takes one of {lists}, not {method!r}")
        members = encode_meta(meta)

        async def operation(attempt: Attempt) -> list[dict[str, Any]]:
            session = await self._session(attempt)
            return usable(
                read_entry, await self._entries(session, method, members, attempt), method
            )

        return await self._perform(method, operation, timeout)

    # -- the server itself

    async def ping(self, *, timeout: float | None = None) -> float:
        """Send `ping` or `server/discover`; return the round-trip time in s.

        Raises:
            MCPError: there was no response.
        """

        async def operation(attempt: Attempt) -> float:
            attempt.is_idempotent = True
            session = await self._session(attempt)
            is_stateless = session.server.revision.is_stateless
            clock = asyncio.get_running_loop().time
            began = clock()
            await session.request(SERVER_DISCOVER if is_stateless else PING, None, attempt)
            return clock() - began

        return await self._perform(PING, operation, timeout)

    # -- internals

    async def _perform(
        self,
        what: str,
        operation: Callable[[Attempt], Awaitable[Result]],
        timeout: float | None,
    ) -> Result:
        return await self._resilience.perform(
            what,
            operation,
            Attempt,
            (self._breakers.server,),
            self.options.timeout if timeout is None else timeout,
        )

    async def _perform_request(
        self,
        request: ToolCall | RawRequest,
        timeout: float | None,
        max_timeout: float | None,
        on_progress: ProgressCallback | None,
        on_log: LogCallback | None,
        handlers: ServerRequestHandlers | None,
    ) -> dict[str, Any]:
        """Perform a request with callbacks of its own; one of a tool with what is set for that."""
        if max_timeout is not None and on_progress is None:
            on_progress = ignore_progress

        async def operation(attempt: Attempt) -> dict[str, Any]:
            return await request.run(await self._session(attempt), attempt)

        def attempt() -> Attempt:
            return Attempt(on_progress=on_progress, on_log=on_log, handlers=handlers)

        tool, what = request.tool, request.method
        breakers: tuple[CircuitBreaker, ...] = (self._breakers.server,)
        if timeout is None:
            timeout = self.options.timeout
            if tool is not None:
                timeout = self.options.tool_timeouts.get(tool, timeout)
        if tool is not None:
            what, breakers = f"{what} {tool}", self._breakers.of_tool(tool)
        try:
            return await self._resilience.perform(
                what, operation, attempt, breakers, timeout, max_timeout
            )
        except MCPError as error:
            if error.code == "E204" and tool is not None:
                self._breakers.forget(tool)
            raise

    async def _session(self, attempt: Attempt) -> ClientSession:
        """Return the session for an attempt, and note it there."""
        if self._link.current is None:
            attempt.admit()
        session = attempt.session = await self._link.session()
        return session

    async def _ask(
        self,
        method: str,
        params: Mapping[str, Any],
        meta: Mapping[str, Any] | None,
        attempt: Attempt,
    ) -> dict[str, Any]:
        """Send a request that may be repeated."""
        attempt.is_idempotent = True
        session = await self._session(attempt)
        _require(session, method)
        return await self._rounds.exchange(session, method, params, attempt, meta)

    async def _list(
        self,
        kind: type[Entry],
        method: str,
        timeout: float | None,
        meta: Mapping[str, Any] | None,
    ) -> tuple[Entry, ...]:
        members = encode_meta(meta)

        async def operation(attempt: Attempt) -> tuple[Entry, ...]:
            session = await self._session(attempt)
            _require(session, method)
            return tuple(
                usable(kind.read, await self._entries(session, method, members, attempt), method)
            )

        return await self._perform(method, operation, timeout)

    async def _entries(
        self,
        session: ClientSession,
        method: str,
        meta: Mapping[str, Any] | None,
        attempt: Attempt,
    ) -> list[Any]:
        """Return the entries of a list, as they came."""
        attempt.is_idempotent = True
        most = self.options.max_pages
        entries, _ = await list_all(session, method, attempt, most, meta)
        return entries

    # -- called by sessions

    async def _prepare(self, session: ClientSession) -> None:
        """Prepare a new session: its tools, its notifications."""
        self._tools.invalidate()
        required = self.options.require
        if session.server.can("tools") if required is None else "tools" in required:
            await self._tools.list(session, Attempt())
        self._subscriptions.began(session)

    def notified(self, notification: NotificationReceived) -> None:
        """Handle a notification; see `SessionObserver`."""
        is_message = notification.method == NOTIFICATIONS_MESSAGE
        if is_message and self.options.on_log is not None:
            report_log_message(self.options.on_log, notification.params)
        if not is_message or notification.request is None:
            self._observe(notification)
        self._subscriptions.notified(notification)

    def connected(self, server: ServerDescription) -> None:
        """Handle the beginning of a session; see `SessionObserver`."""
        if self.options.on_connected is not None:
            call_callback(self.options.on_connected, server)

    def disconnected(self, error: MCPError) -> None:
        """Handle the loss of a session; see `SessionObserver`."""
        if self.options.on_disconnected is not None:
            call_callback(self.options.on_disconnected, error)

    def _observe(self, notification: NotificationReceived) -> None:
        if self.options.on_notification is not None:
            call_callback(self.options.on_notification, notification.method, notification.params)

    def _list_changed(self, kind: str) -> None:
        if kind == "tools":
            self.invalidate()
        if self.options.on_list_changed is not None:
            call_callback(self.options.on_list_changed, kind)


def _require(session: ClientSession, method: str) -> None:
    """Raise E205 if the server lacks a capability; some revisions do not declare completions."""
    server, capability = session.server, facts(method).capability
    if method in (SKILLS_LIST, SKILLS_GET) and not server.can("extensions", EXTENSION):
        raise NotOfferedError(EXTENSION)
    if capability == "completions" and not server.revision.has("capabilities", capability):
        return
    if capability is not None and not server.can(capability):
        raise NotOfferedError(capability)
