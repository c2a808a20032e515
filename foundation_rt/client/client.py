"""The client: what a program holds that depends on a server it does not control.

Nothing is sent before something is asked for: the first call connects, whoever makes it, and so
does the first one after a connection was lost (CLIENT-07).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define, field

from ..ids import RequestIdGenerator, UuidRequestIds
from .callbacks import LogCallback, ProgressCallback, call_callback, check_plain, report_log_message
from .errors import MCPError, NotOfferedError
from .handlers.client_handlers import ClientHandlers
from .options import ClientOptions
from .resilience.attempt import Attempt
from .resilience.breakers import Breakers
from .resilience.circuit_breaker import CircuitState
from .resilience.resilience import Resilience
from .resilience.retries import RetryBudget
from .results.results import CallResult, CompletionResult, PromptResult, ReadResult
from .results.tool_schemas import ToolSchema
from .session.pending_requests import NotificationReceived
from .session.server_description import ServerDescription
from .session.session import Session
from .session.session_link import SessionLink, TransportFactory
from .session.subscriptions import Subscription, Subscriptions
from .tools.input_rounds import InputRounds
from .tools.paging import list_all, missing_arguments, usable
from .tools.tool_cache import ToolCache
from .tools.tool_call import ToolCall, encode
from .tools.tools import ServerTools

if TYPE_CHECKING:
    from .results.listed import Entry, Prompt, Resource, ResourceTemplate

Result = TypeVar("Result")

log = logging.getLogger("foundation_rt.client")
# Without it Python prints warnings on the stderr of programs that have not configured logging.
log.addHandler(logging.NullHandler())


@define(eq=False, repr=False)
class Client:
    """Calls the tools of one server, reads its resources, gets its prompts.

    Made by `connect`. All methods may be used by many tasks of one event loop at once. Every one of
    them ends in a result or in an `MCPError`, in the time it is given.

    Args:
        make_transport: makes a way to the server, for every session a new one.
        questions: answers what the server asks.
        ids: makes the ids of requests.
        draw: gives random numbers, at least 0 and less than 1; they spread retries.
    """

    make_transport: TransportFactory
    options: ClientOptions = field(factory=ClientOptions)
    handlers: ClientHandlers = field(factory=ClientHandlers)
    ids: RequestIdGenerator = field(factory=UuidRequestIds)
    draw: Callable[[], float] = random.random
    _link: SessionLink = field(init=False)
    _tools: ServerTools = field(init=False)
    _rounds: InputRounds = field(init=False)
    _subscriptions: Subscriptions = field(init=False)
    _resilience: Resilience = field(init=False)
    _breakers: Breakers = field(init=False)

    def __attrs_post_init__(self) -> None:
        options = self.options
        self._link = SessionLink(
            self.make_transport, options, self.handlers, self.ids, self, self._prepare
        )
        cache = ToolCache(options.tool_cache_ttl_ms)
        self._tools = ServerTools(cache, options.max_pages, options.timeout)
        self._rounds = InputRounds(self.handlers, options.handler_timeout)
        self._subscriptions = Subscriptions(
            self._link, self._perform, self._list_changed, options.on_list_changed is not None
        )
        budget = RetryBudget(options.retries)
        self._resilience = Resilience(
            options.retries, budget, options.handler_timeout, self.draw, self._link.not_ready
        )
        self._breakers = Breakers(options.breaker, options.tool_breakers)

    # -- beginning and end

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def initialize(self, *, timeout: float | None = None) -> ServerDescription:
        """Connect now, and not with the first call; return what is known of the server.

        Raises:
            MCPError: it cannot be reached (E201, E202), has no common revision (E206), or lacks a
                required capability (E205).
        """

        async def negotiate(attempt: Attempt) -> ServerDescription:
            return (await self._session(attempt)).server

        return await self._perform("initialize", negotiate, timeout)

    async def close(self) -> None:
        """End the connection, and with it what runs; a second time does nothing."""
        self._resilience.watch.close()
        try:
            await self._subscriptions.close()
            await self._tools.close()
        finally:  # also where this was cancelled: no server may be left
            await self._link.close()

    # -- what is known

    @property
    def server(self) -> ServerDescription | None:
        """What is known of the server; None as long as there is no connection."""
        session = self._link.current
        return None if session is None else session.server

    def has_capability(self, capability: str) -> bool:
        """Whether the server declared one, as in `tools` or `resources.subscribe` (AC-003.5).

        Before the first connection nothing is declared.
        """
        return self.server is not None and self.server.can(*capability.split("."))

    @property
    def circuit_state(self) -> CircuitState:
        """State of the server's circuit breaker; for health checks, which need no event loop."""
        return self._breakers.server.state(self._now())

    def tool_circuit_state(self, tool: str) -> CircuitState:
        """State of one tool's circuit breaker; CLOSED if it has none."""
        return self._breakers.tool_state(tool, self._now())

    @property
    def stderr_tail(self) -> str:
        """What the server's process wrote on stderr last, and how it ended; or nothing."""
        return "" if self._link.transport is None else self._link.transport.stderr_tail()

    # -- tools

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        correlation_id: str | None = None,
        idempotent: bool | None = None,
        on_progress: ProgressCallback | None = None,
        on_log: LogCallback | None = None,
    ) -> CallResult:
        """Call a tool.

        Cancelled, it ends at once, and the server is told that nobody waits (CLIENT-15).

        Args:
            arguments: by name; JSON. They are held against the tool's schema before they are sent.
            timeout: seconds for all of it; by default what `tool_timeouts` or `timeout` says.
            correlation_id: ties the call to others, in logs of both sides.
            idempotent: whether the tool may run twice; by default what its annotations say.
            on_progress: is told how far it is; a plain function, likewise `on_log`.
            on_log: is told the log messages that come meanwhile.

        Returns:
            The result, also if the tool says that it failed (`is_error`).

        Raises:
            UsageError: a callback is an `async def` function.
            InvalidArgumentsError: E203: the arguments do not fit; nothing was sent.
            MCPError: there is no result; `may_have_run` says whether there may be an effect.
        """
        check_plain("on_progress", on_progress)
        check_plain("on_log", on_log)
        encoded = encode(tool, arguments)
        call = ToolCall(self._tools, self._rounds, tool, encoded, correlation_id, idempotent)

        async def operation(attempt: Attempt) -> dict[str, Any]:
            return await call.run(await self._session(attempt), attempt)

        def attempt() -> Attempt:
            return Attempt(on_progress=on_progress, on_log=on_log)

        if timeout is None:
            timeout = self.options.tool_timeouts.get(tool, self.options.timeout)
        breakers = self._breakers.of_tool(tool)
        what = f"tools/call {tool}"
        try:
            answer = await self._resilience.perform(what, operation, attempt, breakers, timeout)
        except MCPError as error:
            if error.code == "E204":
                self._breakers.forget(tool)
            raise
        return call.read(answer)

    async def list_tools(self, *, timeout: float | None = None) -> tuple[ToolSchema, ...]:
        """The tools of the server, from the cache as long as that is fresh.

        Raises:
            MCPError: they cannot be listed.
        """

        async def operation(attempt: Attempt) -> tuple[ToolSchema, ...]:
            known = self._tools.known()
            if known is not None:
                self._link.check()
                return known
            return await self._tools.fresh(await self._session(attempt), attempt)

        return await self._perform("tools/list", operation, timeout)

    async def get_tool_schema(self, tool: str, *, timeout: float | None = None) -> ToolSchema:
        """One tool, from the cache as long as that is fresh (AC-004.4).

        Raises:
            MCPError: E204: there is none of this name; or they cannot be listed.
        """

        async def operation(attempt: Attempt) -> ToolSchema:
            for each in self._tools.known() or ():
                if each.name == tool:
                    self._link.check()
                    return each
            return await self._tools.look_up(await self._session(attempt), tool, attempt)

        return await self._perform("tools/list", operation, timeout)

    def invalidate(self) -> None:
        """Forget the listed tools; they are listed again when they are next needed (AC-004.5)."""
        self._tools.invalidate()

    # -- resources, prompts, completions

    async def list_resources(self, *, timeout: float | None = None) -> tuple[Resource, ...]:
        """The resources of the server, all pages.

        Raises:
            MCPError: they cannot be listed; E205: the server has none.
        """
        from .results.listed import Resource

        return await self._list(Resource, "resources", "resources/list", "resources", timeout)

    async def list_resource_templates(
        self, *, timeout: float | None = None
    ) -> tuple[ResourceTemplate, ...]:
        """The templates of resources; see `list_resources`."""
        from .results.listed import ResourceTemplate

        return await self._list(
            ResourceTemplate,
            "resources",
            "resources/templates/list",
            "resourceTemplates",
            timeout,
        )

    async def list_prompts(self, *, timeout: float | None = None) -> tuple[Prompt, ...]:
        """The prompts of the server; see `list_resources`."""
        from .results.listed import Prompt

        return await self._list(Prompt, "prompts", "prompts/list", "prompts", timeout)

    async def read_resource(self, uri: str, *, timeout: float | None = None) -> ReadResult:
        """Read a resource.

        Raises:
            MCPError: E204: there is none; or it cannot be read.
        """
        read = partial(self._ask, "resources", "resources/read", {"uri": uri})
        return ReadResult.read(await self._perform("resources/read", read, timeout))

    async def get_prompt(
        self,
        prompt: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> PromptResult:
        """The messages of a prompt.

        Raises:
            MCPError: there is none, or the arguments do not fit: E203.
        """
        params = {"name": prompt, "arguments": dict(arguments or {})}

        async def get(attempt: Attempt) -> dict[str, Any]:
            try:
                return await self._ask("prompts", "prompts/get", params, attempt)
            except MCPError as error:
                session, most = attempt.session, self.options.max_pages
                if session is None:
                    raise
                raise await missing_arguments(session, params, error, attempt, most) from None

        return PromptResult.read(await self._perform("prompts/get", get, timeout))

    async def complete(
        self,
        subject: str,
        argument: str,
        value: str = "",
        *,
        known: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CompletionResult:
        """What could complete `value`.

        Args:
            subject: the name of a prompt, or the URI template of resources; it has a brace.
            argument: of the prompt or template, that `value` is the beginning of.
            known: other arguments, as far as they are known.

        Raises:
            MCPError: the server knows no such subject, or completes nothing (E205).
        """
        ref = {"type": "ref/prompt", "name": subject}
        if "{" in subject:
            ref = {"type": "ref/resource", "uri": subject}
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if known:
            params["context"] = {"arguments": dict(known)}
        complete = partial(self._ask, "completions", "completion/complete", params)
        return CompletionResult.read(await self._perform("completion/complete", complete, timeout))

    def subscribe(self, *uris: str, timeout: float | None = None) -> Subscription:
        """Hear of changes of resources: ``async with client.subscribe(uri) as changes``.

        It is kept through lost connections, and makes new ones by itself.

        Args:
            timeout: seconds that the server has to confirm it, each time.

        Raises:
            UsageError: there is no URI.
        """
        return self._subscriptions.open(uris, self.options.timeout if timeout is None else timeout)

    # -- the server itself

    async def ping(self, *, timeout: float | None = None) -> float:
        """Ask for a sign of life; return the seconds it took (`ping`, or `server/discover`).

        Raises:
            MCPError: there was none.
        """

        async def operation(attempt: Attempt) -> float:
            attempt.is_idempotent = True
            session = await self._session(attempt)
            is_stateless = session.server.revision.is_stateless
            clock = asyncio.get_running_loop().time
            began = clock()
            await session.request("server/discover" if is_stateless else "ping", None, attempt)
            return clock() - began

        return await self._perform("ping", operation, timeout)

    # -- how it is done

    def _now(self) -> float:
        """The time of the event loop it lives on, also where that does not run."""
        loop = self._link.loop
        return 0.0 if loop is None else loop.time()

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

    async def _session(self, attempt: Attempt) -> Session:
        """The session for a try, which knows it from now on."""
        if self._link.current is None:
            attempt.admit()
        session = attempt.session = await self._link.session()
        return session

    async def _ask(
        self, capability: str, method: str, params: Mapping[str, Any], attempt: Attempt
    ) -> dict[str, Any]:
        """Something that may be asked any number of times."""
        attempt.is_idempotent = True
        session = await self._session(attempt)
        _require(session, capability)
        return await self._rounds.exchange(session, method, params, attempt)

    async def _list(
        self, kind: type[Entry], capability: str, method: str, member: str, timeout: float | None
    ) -> tuple[Entry, ...]:
        async def operation(attempt: Attempt) -> tuple[Entry, ...]:
            attempt.is_idempotent = True
            session = await self._session(attempt)
            _require(session, capability)
            entries, _ = await list_all(session, method, member, attempt, self.options.max_pages)
            return tuple(usable(kind.read, entries, method))

        return await self._perform(method, operation, timeout)

    # -- what sessions bring

    async def _prepare(self, session: Session) -> None:
        """A new session: its tools are other ones, maybe, and it is listened to."""
        self._tools.invalidate()
        await self._set_log_level(session)
        required = self.options.require
        if session.server.can("tools") if required is None else "tools" in required:
            await self._tools.list(session, Attempt())
        self._subscriptions.began(session)

    async def _set_log_level(self, session: Session) -> None:
        """Once, in the handshake mode; a server that refuses is of use all the same."""
        level = self.options.log_level
        server = session.server
        if level is None or server.revision.is_stateless or not server.can("logging"):
            return
        try:
            await session.request("logging/setLevel", {"level": level}, Attempt())
        except MCPError as error:
            if not session.is_usable:
                raise
            log.warning("the server does not set its log level: %s", error.message)

    def told(self, told: NotificationReceived) -> None:
        """The server says something unasked; see `NotificationObserver`."""
        if told.method == "notifications/message" and self.options.on_log is not None:
            report_log_message(self.options.on_log, told.params)
        self._subscriptions.told(told)

    def _list_changed(self, kind: str) -> None:
        if kind == "tools":
            self.invalidate()
        if self.options.on_list_changed is not None:
            call_callback(self.options.on_list_changed, kind)


def _require(session: Session, capability: str) -> None:
    """E205, if the server lacks it; some revisions have no word for completions."""
    server = session.server
    if capability == "completions" and not server.revision.has("capabilities", capability):
        return
    if not server.can(capability):
        raise NotOfferedError(capability)
