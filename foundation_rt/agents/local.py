"""Agents by id, and messages to them: each agent takes one at a time, in the order they came.

What `mailbox` guarantees for a mailbox, the coordinator guarantees for an id: a mailbox lives as
long as an agent of its id is registered or a message to one is under way. So an agent that is
registered again while the old handler still runs waits for its end (AGENT-08).

A coordinator belongs to one event loop, the first it is used on, and takes no locks (AGENT-10).
asyncio is imported with the first message, not before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from attrs import define, field

from ..base.abort import AbortSignal
from ..base.clock import SystemClock
from ..base.config.feature_sections import AgentsSection
from ..base.config.settings import ServerConfig
from ..base.ids import IdGenerator, UuidGenerator
from ..base.logs.logger import StderrSink, StructuredLogger
from ..errors import RegistrationError, UsageError, describe_exception
from ..kernel.engine.scheduling import running_loop
from ..kernel.registry.tools import check_scopes, is_async_callable
from .errors import AgentNotFoundError, AgentUnregisteredError
from .mailbox import ActingFor, Mailbox, MailboxEntry, current_entry, waiting_for
from .messages import AgentContext, AgentHandler, AgentMessage, Handle
from .state import DEFAULT_MAX_BYTES, AgentState

if TYPE_CHECKING:
    import asyncio

    from ..features.instruments import MetricSource
    from ..kernel.invocation import CallOutcome, Invocation
    from ..protocol.principal import Principal

T = TypeVar("T")

MAX_AGENT_ID_LENGTH = 256

_NO_SCOPES: frozenset[str] = frozenset()

OnStateChange = Callable[[str, Mapping[str, Any]], object]
"""Called with the id of an agent and a snapshot of its state."""


@define(eq=False, repr=False)
class _Agent:
    """One registration; registering the id again makes another."""

    handler: AgentHandler
    mailbox: Mailbox
    state: AgentState
    scopes: frozenset[str]


@define(eq=False, repr=False)
class AgentCoordinator:
    """Registers agents and delivers messages to them, in one process (spec/agents.md).

    Args:
        limits: the `agents` section of the configuration; a server brings its own.
        on_state_change: called with an agent's id and a snapshot of its state after each message
            that changed it (AGENT-13). It can be set later.

    Example::

        async def counter(message: AgentMessage, context: AgentContext) -> int:
            context.state["count"] = context.state.get("count", 0) + message.payload
            return context.state["count"]

        coordinator = AgentCoordinator()
        coordinator.register_agent("counter", counter)
        await coordinator.send_message("counter", AgentMessage("add", 5))
    """

    limits: AgentsSection = field(factory=AgentsSection)
    on_state_change: OnStateChange | None = field(default=None)
    _ids: IdGenerator = field(factory=UuidGenerator, init=False)
    _logger: StructuredLogger | None = field(default=None, init=False)
    _max_state_bytes: int = field(default=DEFAULT_MAX_BYTES, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _agents: dict[str, _Agent] = field(factory=dict, init=False)
    # By id, whether an agent of the id is registered here or not.
    _required_scopes: dict[str, frozenset[str]] = field(factory=dict, init=False)
    # Agents and mailbox entries keep them alive.
    _mailboxes: WeakValueDictionary[str, Mailbox] = field(factory=WeakValueDictionary, init=False)

    @on_state_change.validator
    def _check_hook(self, attribute: object, hook: object) -> None:
        """Check `on_state_change` whenever it is set."""
        if hook is not None and (not callable(hook) or is_async_callable(hook)):
            raise UsageError(
                "on_state_change must be a function (agent_id, state), not async def:"
                " it is called between two messages and must not wait"
            )

    def attach(self, logger: StructuredLogger, config: ServerConfig, ids: IdGenerator) -> None:
        """Use a server's logger, configuration and ids from now on."""
        self._logger, self.limits, self._ids = logger, config.agents, ids
        self._max_state_bytes = config.tools.max_state_bytes
        for agent in self._agents.values():
            agent.state.max_bytes = self._max_state_bytes

    def note_call(self, call: Invocation, outcome: CallOutcome | None) -> None:
        """Ignore a tool call that was left without an answer, or has ended after that."""

    def background(self) -> Coroutine[Any, Any, None] | None:
        """Return the coroutine to run as long as the server does; None: there is nothing to run."""
        return None

    def metric_source(self) -> MetricSource | None:
        """Return what gives the metrics of the agents; None: they have none."""
        return None

    # -- agents ------------------------------------------------------------------------------

    def register_agent(
        self, agent_id: str, handler: AgentHandler, *, scopes: Iterable[str] = ()
    ) -> None:
        """Add an agent with an empty state.

        Args:
            agent_id: a printable string of 1 to 256 characters, no white space at its ends.
            handler: ``async def handler(message, context)``; it returns the response.
            scopes: all scopes that a client's token needs to use the agent by a tool (AUTH-27).

        Raises:
            RegistrationError: the id, the handler or a scope is not valid, or the id is taken.
            UsageError: it is called away from the coordinator's event loop.
        """
        self._stay_on_loop(running_loop())
        _check_agent(agent_id, handler)
        needed = check_scopes(f"agent {agent_id!r}", scopes)
        if agent_id in self._agents:
            raise RegistrationError(
                f"agent {agent_id!r} is already registered: choose another id,"
                " or unregister it first"
            )
        mailbox = self._mailboxes.get(agent_id)
        if mailbox is None:
            self._mailboxes[agent_id] = mailbox = Mailbox(agent_id)
        self._agents[agent_id] = _Agent(handler, mailbox, AgentState(self._max_state_bytes), needed)

    def unregister_agent(self, agent_id: str) -> bool:
        """Remove an agent and its state; return whether there was one.

        Messages that wait for it fail with `AgentUnregisteredError`; the message that it is
        handling, if there is one, is handled to its end (AGENT-07).

        Raises:
            UsageError: it is called away from the coordinator's event loop.
        """
        self._stay_on_loop(running_loop())
        agent = self._agents.pop(agent_id, None)
        if agent is None:
            return False
        agent.mailbox.refuse_waiting(AgentUnregisteredError)
        return True

    def require_scopes(self, agent_id: str, scopes: Iterable[str]) -> None:
        """Set scopes that an id needs, whether or not an agent of it is registered (AGENT-21).

        It is for agents that other processes on the same ledger register, and for agents that come
        and go while the ledger keeps messages for them. The scopes of `register_agent` are needed
        besides.

        Args:
            agent_id: the id.
            scopes: replace the scopes that were set before; none removes those.

        Raises:
            RegistrationError: the id or a scope is not valid.
            UsageError: it is called away from the coordinator's event loop.
        """
        self._stay_on_loop(running_loop())
        _check_agent_id(agent_id)
        needed = check_scopes(f"agent {agent_id!r}", scopes)
        if needed:
            self._required_scopes[agent_id] = needed
        else:
            self._required_scopes.pop(agent_id, None)

    def agent_scopes(self, agent_id: str) -> frozenset[str]:
        """Return the scopes that a client needs to use an agent; from any thread (AUTH-27)."""
        agent = self._agents.get(agent_id)
        needed = _NO_SCOPES if agent is None else agent.scopes
        if not self._required_scopes:
            return needed
        return needed | self._required_scopes.get(agent_id, _NO_SCOPES)

    def is_ready(self) -> bool:
        """Return whether messages can be handled now: the readiness check `agents` (HEALTH-02)."""
        return True

    def agent_ids(self, principal: Principal | None = None) -> list[str]:
        """Return the ids of all agents, sorted by code point; from any thread.

        Args:
            principal: only the agents that it may use are returned; None may use all (AUTH-27).
        """
        found = sorted(self._agents)
        if principal is None:
            return found
        return [each for each in found if not principal.lacks(self.agent_scopes(each))]

    def get_agent_state(self, agent_id: str) -> dict[str, Any] | None:
        """Return a snapshot of an agent's state, None if there is no such agent; from any thread.

        It is a shallow copy: its values are those of the state.
        """
        agent = self._agents.get(agent_id)
        return None if agent is None else dict(agent.state)

    # -- messages ----------------------------------------------------------------------------

    async def send_message(
        self,
        target_agent_id: str,
        message: AgentMessage,
        *,
        abort_signal: AbortSignal | None = None,
        correlation_id: str | None = None,
        logger: StructuredLogger | None = None,
    ) -> Any:
        """Have an agent handle `message` when its turn has come; return its response.

        The handler runs in the calling task: cancelling the caller cancels it, and its exceptions
        are raised here (AGENT-03). A message that a handler sends inherits the keyword arguments
        that are left out from the message that is being handled (AGENT-04).

        Args:
            target_agent_id: the agent that handles it.
            message: passed to the handler as it is.
            abort_signal: passed to the agent. When it fires, a message that still waits is
                withdrawn. By default one that never fires.
            correlation_id: passed to the agent; by default a new one.
            logger: the parent of the agent's logger; by default the server's.

        Raises:
            AgentNotFoundError: there is no such agent.
            AgentQueueFullError: too many messages wait for it.
            AgentCycleError: the agent waits, directly or not, for the handler that sends.
            AgentUnregisteredError: it was unregistered before the message's turn came.
            AbortError: the signal fired before the message's turn came.
            UsageError: it is called on another event loop than the coordinator's.
        """
        return await self.run_in_turn(
            target_agent_id,
            lambda handle: handle(message),
            abort_signal=abort_signal,
            correlation_id=correlation_id,
            logger=logger,
        )

    async def run_in_turn(
        self,
        agent_id: str,
        work: Callable[[Handle], Awaitable[T]],
        *,
        abort_signal: AbortSignal | None = None,
        correlation_id: str | None = None,
        logger: StructuredLogger | None = None,
        max_queue: int | None = None,
    ) -> T:
        """Run ``work(handle)`` when it is an agent's turn; return what it returns.

        It is for callers that have work before or after the handler in the same turn:
        ``await handle(message)`` calls the handler. The next turn begins when `work` has ended.
        Everything else is as for `send_message`, which is built on this (AGENT-12).

        Args:
            agent_id: the agent.
            work: called with a function that calls the agent's handler.
            abort_signal: as for `send_message`.
            correlation_id: as for `send_message`.
            logger: as for `send_message`.
            max_queue: how many messages may wait; by default `agents.max_queue`.
        """
        self._enter_loop()
        agent = self._agents.get(agent_id)
        if agent is None:
            raise AgentNotFoundError(agent_id)
        sender = current_entry()
        context = self._context(agent, sender, abort_signal, correlation_id, logger)
        entry, mailbox = MailboxEntry(agent.mailbox, context), agent.mailbox
        with waiting_for(mailbox, sender):
            await mailbox.take(entry, self.limits.max_queue if max_queue is None else max_queue)
            try:
                if self._agents.get(agent_id) is not agent:
                    raise AgentUnregisteredError(agent_id)
                context.abort_signal.raise_if_aborted()
                with ActingFor(entry):
                    return await work(partial(self._handle, agent, context))
            finally:
                mailbox.release(entry)

    def _context(
        self,
        agent: _Agent,
        sender: MailboxEntry | None,
        abort_signal: AbortSignal | None,
        correlation_id: str | None,
        logger: StructuredLogger | None,
    ) -> AgentContext:
        """Return a context; what is not given is the sender's, or new without a sender."""
        if sender is not None:
            abort_signal = abort_signal or sender.context.abort_signal
            correlation_id = correlation_id or sender.context.correlation_id
            logger = logger or sender.context.base_logger
        return AgentContext(
            agent.mailbox.agent_id,
            agent.state,
            abort_signal or AbortSignal(),
            correlation_id or self._ids.correlation_id(),
            logger or self._own_logger(),
        )

    async def _handle(self, agent: _Agent, context: AgentContext, message: AgentMessage) -> Any:
        if len(agent.mailbox.holders) == 1:  # else another may have changed it, and reports that
            agent.state.changed = False
        try:
            return await agent.handler(message, context)
        finally:
            if agent.state.changed:
                self._report_change(agent, context)

    def _report_change(self, agent: _Agent, context: AgentContext) -> None:
        """Call the hook, unless another agent has been registered with the id."""
        agent_id = agent.mailbox.agent_id
        if self.on_state_change is None or self._agents.get(agent_id) is not agent:
            return
        try:
            self.on_state_change(agent_id, dict(agent.state))
        except Exception as error:
            context.logger.error("on_state_change failed", {"error": describe_exception(error)})

    def _own_logger(self) -> StructuredLogger:
        if self._logger is None:
            clock = SystemClock()
            self._logger = StructuredLogger(StderrSink(clock=clock), clock)
        return self._logger

    # -- the one event loop ------------------------------------------------------------------

    def _enter_loop(self) -> None:
        """Make the running loop the coordinator's if it has none, or its last one was closed."""
        loop = running_loop()
        self._stay_on_loop(loop)
        if loop is self._loop:
            return
        if any(mailbox.holders for mailbox in self._mailboxes.values()):
            raise UsageError(
                "messages were left unfinished on an event loop that was closed:"
                " make a new AgentCoordinator"
            )
        self._loop = loop

    def _stay_on_loop(self, here: asyncio.AbstractEventLoop | None) -> None:
        """Refuse a call from another loop, or from a thread while the loop runs elsewhere."""
        loop = self._loop
        if loop is None or here is loop or loop.is_closed():
            return
        if here is not None or loop.is_running():
            raise UsageError(
                "an AgentCoordinator belongs to the event loop it was first used on: call it there,"
                " by asyncio.run_coroutine_threadsafe or loop.call_soon_threadsafe,"
                " or give each loop a coordinator of its own"
            )


def _check_agent_id(agent_id: object) -> None:
    if not isinstance(agent_id, str) or not 0 < len(agent_id) <= MAX_AGENT_ID_LENGTH:
        raise RegistrationError(
            f"an agent's id must be a string of 1 to {MAX_AGENT_ID_LENGTH} characters,"
            f" not {agent_id!r:.300}"
        )
    if not agent_id.isprintable() or agent_id != agent_id.strip():
        raise RegistrationError(
            f"agent {agent_id!r}: the id must be printable, without white space at its ends"
        )


def _check_agent(agent_id: object, handler: object) -> None:
    _check_agent_id(agent_id)
    if not callable(handler) or not is_async_callable(handler):
        raise RegistrationError(
            f"agent {agent_id!r}: the handler must be async def handler(message, context);"
            " a function that blocks is called from it with asyncio.to_thread"
        )
