"""Agents whose messages outlive the process: what `AgentCoordinator` does, and AACP besides.

`send_message` is as it was: in memory, in this process, at once. `send_reliable_message` and
`send_request` enter the message in a ledger first. What they promise is in spec/aacp.md; the agents
are the same, with the same handlers, and take both kinds in the same turns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from ..abort import AbortSignal
from ..agents.coordinator import AgentCoordinator
from ..agents.errors import AgentNotFoundError
from ..agents.messages import AgentHandler
from ..agents.turns import current_turn, waiting_for
from ..clock import Clock, SystemClock
from ..configuration.sections import AacpSection, ServerConfig
from ..errors import (
    ErrorCode,
    StructuredError,
    ToolError,
    UsageError,
    describe_exception,
)
from ..ids import IdGenerator
from ..logs.logger import StructuredLogger
from .cancellation import is_cancelled
from .encoder import is_agent_id, is_request_id
from .errors import (
    OutcomeUnknownError,
    RequestConflictError,
    RequestFailedError,
    invalid,
)
from .ledger import conflict_error, digest_of
from .payloads import encode_message
from .persistence import StoreError
from .retransmitter import MAX_DELAY_MS, PATIENT_POLICY, Retransmitter, RetryPolicy
from .setup import check_settings, make_store, make_transport
from .status import MessageStatus, message_status, request_status
from .types import (
    Draft,
    Envelope,
    MessageType,
    Outcome,
    RequestRecord,
)
from .waiting import Entry, fail_when_aborted, time_out

if TYPE_CHECKING:
    import asyncio

    from ..calls.invocation import Invocation
    from ..calls.invocation import Outcome as CallOutcome
    from .driver import Driver
    from .late_calls import LateCalls
    from .persistence import AACPPersistenceAdapter
    from .transports import AACPTransport

_MAX_BACKLOG = 10_000
"""Messages that may wait to be entered in the ledger: what a slow disk can pile up."""

_ENVELOPE_BYTES = 8192
"""More than the rest of an envelope takes: most of it for two ids of 256 characters of any kind."""

_STOPPED = "the coordinator was stopped while it was being used"

_START_RETRY_SECONDS = 5.0

_LAST_GRACE_SECONDS = 0.2
"""For handlers when the server ends: its calls have had their time already."""

MessageHook = Callable[[Envelope], Awaitable[None]]
CompletedHook = Callable[[str], Awaitable[None]]
FailedHook = Callable[[str, StructuredError], Awaitable[None]]


@define(eq=False, repr=False)
class AgentCoordinatorV2(AgentCoordinator):
    """An `AgentCoordinator` with a ledger (spec/aacp.md).

    It is started by its first use, by the server it belongs to, or by ``async with coordinator:``,
    which also stops it.

    Args:
        store: the ledger; by default what `aacp.store` says: in memory, which forgets.
        transport: the way to other ledgers; by default what `aacp.transport` says: none.
        name: who sends what no agent sends; by default `aacp.name`. The same after a restart, and
            in all processes that serve the same clients on one ledger; unique among ledgers that a
            transport joins.
        policy: when messages are sent, and requests executed, again; by default what suits the
            transport.
        clock: gives the time.
        on_message_received: called with every message for an agent here, once it is in the ledger.
        on_message_completed: called with the message id of every message sent from here that has
            been completed: a request when its outcome is recorded, an event when its receiver has
            it. What was sent before a restart is not told of.
        on_message_failed: likewise, with the error.
    """

    store: AACPPersistenceAdapter | None = field(default=None, kw_only=True)
    transport: AACPTransport | None = field(default=None, kw_only=True)
    name: str | None = field(default=None, kw_only=True)
    policy: RetryPolicy | None = field(default=None, kw_only=True)
    aacp: AacpSection = field(factory=AacpSection, kw_only=True)
    clock: Clock = field(factory=SystemClock, kw_only=True)
    on_message_received: MessageHook | None = field(default=None, kw_only=True)
    on_message_completed: CompletedHook | None = field(default=None, kw_only=True)
    on_message_failed: FailedHook | None = field(default=None, kw_only=True)
    _driver: Driver | None = field(default=None, init=False)
    _starting: asyncio.Future[None] | None = field(default=None, init=False)
    _late_calls: LateCalls | None = field(default=None, init=False)

    @name.validator
    def _check_name(self, attribute: object, name: object) -> None:
        if name is not None and not is_agent_id(name):
            raise UsageError("the name of a coordinator has the form of an agent's id")

    def attach(self, logger: StructuredLogger, config: ServerConfig, ids: IdGenerator) -> None:
        """Use these from now on: what a server does with its coordinator.

        Raises:
            UsageError: the ledger, or the transport, that the configuration names cannot be.
        """
        AgentCoordinator.attach(self, logger, config, ids)
        self.aacp = config.aacp
        if self.store is None and self.transport is None:
            check_settings(config.aacp)

    def new_request_id(self) -> str:
        """A request id that is nobody's yet."""
        return self._ids.run_id()

    # -- its life -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Open ledger and transport and resume what is pending; once, however often it is called.

        Raises:
            StoreError, TransportError: one of them cannot be reached; a later call tries again.
            UsageError: says what to change.
        """
        import asyncio

        self._enter_loop()
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._try_to_start())
        try:
            await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise UsageError(_STOPPED) from None

    async def _try_to_start(self) -> None:
        try:
            await self._start()
        except BaseException:
            self._starting = None
            raise

    async def _start(self) -> None:
        import asyncio
        from random import random

        from .driver import Driver, NodeClock
        from .execution import Executor
        from .late_calls import LateCalls
        from .node import Node, NodeSettings

        logger = self._own_logger()
        store = self.store or make_store(self.aacp.store, logger)
        transport = self.transport or make_transport(self.aacp.transport, logger)
        settings = NodeSettings(
            owner=f"{self._name}/{self._ids.run_id()}",
            lease_ms=self.aacp.lease_ms,
            ttl_ms=self.aacp.default_ttl_ms,
            has_transport=transport is not None,
            shared=store.shared,
        )
        retransmitter = sending = Retransmitter(self.policy or RetryPolicy(), random)
        if self.policy is None and transport is not None and transport.keeps:
            sending = Retransmitter(PATIENT_POLICY, random)
        node = Node(settings, self._ids.run_id, retransmitter, sending=sending)
        executor = Executor(self, logger, store.takes_writes, self._max_payload_bytes)
        driver = Driver(node, store, transport, NodeClock(self.clock), logger, executor.execute)
        self._attach_hooks(driver)
        await driver.start()
        driver.listen(self._name)
        for agent_id in self.agent_ids():
            driver.add_agent(agent_id)
        self._late_calls = LateCalls(
            store,
            driver.now_ms,
            logger,
            asyncio.get_running_loop(),
            self._name,
            self.aacp.default_ttl_ms,
            self.aacp.max_payload_bytes,
        )
        self._driver = driver

    @property
    def _name(self) -> str:
        return self.name or self.aacp.name

    def _attach_hooks(self, driver: Driver) -> None:
        driver.on_received = self.on_message_received
        if self.on_message_completed is not None or self.on_message_failed is not None:
            driver.on_settled = self._on_settled
        driver.node.notices = driver.on_received is not None or driver.on_settled is not None

    async def _on_settled(self, message_id: str, error: StructuredError | None) -> None:
        if error is not None:
            if self.on_message_failed is not None:
                await self.on_message_failed(message_id, error)
        elif self.on_message_completed is not None:
            await self.on_message_completed(message_id)

    async def stop(self, grace: float = 5.0) -> None:
        """Stop; what is not finished stays in the ledger, to be resumed (AACP-25).

        Args:
            grace: seconds in which handlers may still end; then they are aborted and cancelled.
        """
        import asyncio

        starting = self._starting
        if starting is not None and not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
        driver, late_calls = self._driver, self._late_calls
        if driver is not None and late_calls is not None:
            # Until it has ended, handlers may still send.
            await driver.stop(grace, late_calls.finish)
        if self._driver is driver:
            self._driver = self._late_calls = self._starting = None

    def background(self) -> Coroutine[Any, Any, None]:
        """What a server runs: the coordinator is started, and stopped when this is cancelled.

        A ledger that cannot be reached yet is tried again and again, and said so in the log.
        """
        return self._serve()

    async def _serve(self) -> None:
        import asyncio

        try:
            while True:
                try:
                    await self.start()
                    break
                except Exception as error:
                    described = {"error": describe_exception(error)}
                    self._own_logger().error("agents not started; it is tried again", described)
                    await asyncio.sleep(_START_RETRY_SECONDS)
            await asyncio.get_running_loop().create_future()
        finally:
            await self.stop(_LAST_GRACE_SECONDS)

    def note_call(self, call: Invocation, outcome: CallOutcome | None) -> None:
        """A tool call was left without an answer, or has ended after that (AACP-28)."""
        late_calls = self._late_calls  # which another thread may take away
        if late_calls is not None:
            late_calls.note(call, outcome)
        else:
            what = {"runId": call.run_id}
            self._own_logger().warn("late tool call not recorded: no ledger is open", what)

    async def __aenter__(self) -> AgentCoordinatorV2:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    # -- agents -------------------------------------------------------------------------------

    def register_agent(self, agent_id: str, handler: AgentHandler) -> None:
        """As of `AgentCoordinator`; what the ledger has for the agent is executed from now on."""
        AgentCoordinator.register_agent(self, agent_id, handler)
        if self._driver is not None:
            self._driver.add_agent(agent_id)

    def unregister_agent(self, agent_id: str) -> bool:
        """As of `AgentCoordinator`; what the ledger has for the agent waits there (AACP-25)."""
        present = AgentCoordinator.unregister_agent(self, agent_id)
        if present and self._driver is not None:
            self._driver.remove_agent(agent_id)
        return present

    # -- sending ------------------------------------------------------------------------------

    async def send_reliable_message(
        self, target_agent_id: str, message: Any, *, timeout_ms: int | None = None
    ) -> str:
        """Send an EVENT: it is in the ledger when this returns, and arrives once (AACP-01).

        Args:
            message: an `AgentMessage`, or the payload of one; JSON.
            timeout_ms: how long the ledger is waited for; by default `aacp.request_timeout_ms`.

        Returns:
            The message id, by which `status` knows it.

        Raises:
            OutcomeUnknownError: the ledger did not answer in that time; the message may be in it,
                under the id in `request_id`.
            AgentNotFoundError: there is no such agent, and no other process that could have it.
            ToolError: INVALID_ARGUMENT, the payload cannot be said in JSON; RESOURCE_EXHAUSTED,
                it is too large, or too much waits for the ledger already.
            StoreError, TransportError: as `start`.
        """
        import asyncio

        driver = await self._started()
        draft = self._draft(driver, MessageType.EVENT, target_agent_id, message, None, None)
        entered = driver.open_ticket()
        timeout = _milliseconds(timeout_ms, self.aacp.request_timeout_ms) / 1000
        timer = asyncio.get_running_loop().call_later(timeout, time_out, entered, draft.message_id)
        try:
            self._enter(driver, draft, entered)
            await entered
        finally:
            timer.cancel()
            driver.close_ticket(entered)
        return draft.message_id

    async def send_request(
        self,
        target_agent_id: str,
        message: Any,
        *,
        request_id: str | None = None,
        timeout_ms: int | None = None,
        ttl_ms: int | None = None,
        abort_signal: AbortSignal | None = None,
    ) -> Any:
        """Send a REQUEST and wait for its outcome; return the result (AACP-26).

        Args:
            message: an `AgentMessage`, or the payload of one; JSON.
            request_id: the same id with the same message is the same request (AACP-12); by default
                a new one.
            timeout_ms: how long to wait; by default `aacp.request_timeout_ms`.
            ttl_ms: how long the request counts; by default `aacp.default_ttl_ms`.
            abort_signal: ends the waiting when it fires, not the request; by default that of the
                message that is being handled.

        Raises:
            OutcomeUnknownError: the time is over.
            RequestFailedError: the request FAILED.
            RequestConflictError: another request has this id.
            AgentCycleError: the agent waits, directly or not, for the handler that sends.
            AbortError: the signal fired.
            AgentNotFoundError, ToolError, StoreError, TransportError: as `send_reliable_message`.
        """
        driver = self._driver_here() or await self._started()
        draft = self._draft(
            driver, MessageType.REQUEST, target_agent_id, message, request_id, ttl_ms
        )
        turn = current_turn()
        if abort_signal is None and turn is not None:
            abort_signal = turn.context.abort_signal
        if abort_signal is not None:
            abort_signal.raise_if_aborted()
        timeout = _milliseconds(timeout_ms, self.aacp.request_timeout_ms) / 1000
        lane = None if turn is None else self._lanes.get(target_agent_id)
        with nullcontext() if lane is None else waiting_for(lane, turn):
            record = await self._outcome(driver, draft, timeout, abort_signal)
        if record.error is not None:
            raise RequestFailedError(
                draft.key, StructuredError.from_wire(orjson.loads(record.error))
            )
        return None if record.result is None else orjson.loads(record.result)

    async def _outcome(
        self, driver: Driver, draft: Draft, timeout: float, abort_signal: AbortSignal | None
    ) -> RequestRecord:
        """Enter a request and wait until it is finished."""
        import asyncio

        loop = asyncio.get_running_loop()
        finished: asyncio.Future[RequestRecord] = driver.open_ticket()
        # First: it may be finished before this task hears that it was entered.
        driver.node.wait_for(draft.key, finished, driver.now_ms())
        timer = loop.call_later(timeout, time_out, finished, draft.key)
        remove = fail_when_aborted(abort_signal, finished, loop)
        try:
            self._enter(driver, draft, Entry(draft.key, finished))
            record = await finished
        except StoreError as error:
            raise OutcomeUnknownError(draft.key) from error
        finally:
            driver.close_ticket(finished)
            timer.cancel()
            remove()
            driver.node.stop_waiting(draft.key, finished)
        if record.digest != draft.digest:
            # Another request of this id was finished before this one was refused.
            raise RequestConflictError(conflict_error(draft.key))
        return record

    def _draft(
        self,
        driver: Driver,
        message_type: MessageType,
        target_agent_id: str,
        message: Any,
        request_id: str | None,
        ttl_ms: int | None,
    ) -> Draft:
        if not is_agent_id(target_agent_id):
            raise invalid("The target must be the id of an agent.", "invalid_agent_id")
        local = target_agent_id in self._agents
        if not local and driver.transport is None and not driver.store.shared:
            raise AgentNotFoundError(target_agent_id)
        local = local or driver.transport is None
        if message_type is MessageType.REQUEST:
            request_id = request_id or self._ids.run_id()
            if not is_request_id(request_id):
                raise invalid(
                    "A request id is 1 to 128 letters, digits and . _ : -, the first a letter or a"
                    " digit.",
                    "invalid_request_id",
                )
        turn = current_turn()
        source_agent_id = self._name if turn is None else turn.lane.agent_id
        payload = encode_message(message, self._max_payload_bytes())
        now_ms = driver.now_ms()
        return Draft(
            self._ids.run_id(),
            request_id,
            source_agent_id,
            target_agent_id,
            message_type,
            payload,
            digest_of(source_agent_id, target_agent_id, message_type, payload),
            now_ms,
            now_ms + _milliseconds(ttl_ms, self.aacp.default_ttl_ms),
            local,
            0 if local else now_ms + driver.node.sending.backoff_delay_ms(1),
        )

    def _enter(self, driver: Driver, draft: Draft, ticket: Any) -> None:
        if driver.node.backlog >= _MAX_BACKLOG:
            raise ToolError(
                ErrorCode.RESOURCE_EXHAUSTED,
                "Too many messages wait for the ledger; try again later.",
                {"reason": "ledger_backlog"},
            )
        driver.node.send(draft, ticket, driver.now_ms())
        driver.kick()

    # -- asking -------------------------------------------------------------------------------

    async def status(self, message_or_request_id: str) -> MessageStatus | None:
        """What is known of a request, by its request id, or of an event, by its message id.

        Returns:
            None if the ledger does not know it, or not any more.

        Raises:
            StoreError: the ledger cannot be asked.
        """
        if not is_request_id(message_or_request_id):
            return None
        driver, late_calls = await self._started(), self._late_calls
        # First: it may be written while the ledger is being asked.
        is_late = late_calls is not None and late_calls.is_unwritten(message_or_request_id)
        record = await driver.store.get_request_record(message_or_request_id)
        if record is not None:
            return request_status(record)
        message = await driver.store.get_message_record(message_or_request_id)
        if message is not None:
            return message_status(message)
        if is_late:
            return MessageStatus(None, message_or_request_id, Outcome.UNKNOWN, driver.now_ms())
        return None

    def process_retries_once(self) -> None:
        """Send again, now, what is due to be sent again; it happens by itself as well."""
        if self._driver is not None:
            self._driver.node.process_retries_once(self._driver.now_ms())
            self._driver.kick()

    async def purge_expired(self) -> int:
        """Delete what has expired, now; it happens by itself as well (AACP-15)."""
        driver = await self._started()
        return await driver.store.purge_expired(driver.now_ms())

    # -- executing ----------------------------------------------------------------------------

    def _driver_here(self) -> Driver | None:
        """What runs, if it runs on this event loop: all that most calls need."""
        driver = self._driver
        return driver if driver is not None and driver.is_here() else None

    async def _started(self) -> Driver:
        self._enter_loop()
        if self._driver is None:
            await self.start()
        driver = self._driver
        if driver is None:
            raise UsageError(_STOPPED)
        return driver

    def _enter_loop(self) -> None:
        """As of `AgentCoordinator`; what ran on a loop that was closed is gone with it."""
        before = self._loop
        AgentCoordinator._enter_loop(self)
        if self._loop is not before:
            self._driver = self._late_calls = self._starting = None

    def _max_payload_bytes(self) -> int:
        """What the ledger may hold, and the transport, if there is one, can carry."""
        limit = self.aacp.max_payload_bytes
        transport = None if self._driver is None else self._driver.transport
        if transport is None:
            return limit
        return min(limit, transport.max_envelope_bytes - _ENVELOPE_BYTES)


def _milliseconds(given: int | None, default: int) -> int:
    if given is None:
        return default
    if type(given) is not int or not 0 < given <= MAX_DELAY_MS:
        raise invalid(f"A time is a number of ms from 1 to {MAX_DELAY_MS}.", "invalid_time")
    return given
