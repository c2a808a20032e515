"""Agents whose messages outlive the process: what `AgentCoordinator` does, and AACP besides.

`send_message` is as it was: in memory, in this process, at once. `send_reliable_message` and
`send_request` enter the message in a ledger first. What they promise is in spec/aacp.md; the agents
are the same, with the same handlers, and take both kinds in the same turns.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from ...abort import AbortSignal, is_task_cancelled
from ...clock import Clock, SystemClock
from ...config.settings import AacpSection, ServerConfig
from ...core.records import identity_fields
from ...errors import ErrorCode, StructuredError, ToolError, UsageError
from ...ids import IdGenerator
from ...logs.logger import StructuredLogger
from ...protocol.principal import identity_of
from ..errors import AgentNotFoundError
from ..local import AgentCoordinator
from ..mailbox import current_turn, waiting_for
from ..messages import AgentHandler
from ..persistence import StoreError
from .arguments import check_request_id, milliseconds
from .encoder import is_agent_id
from .errors import (
    LedgerRefusalError,
    OutcomeUnknownError,
    RequestConflictError,
    RequestFailedError,
    invalid,
)
from .ownership import given_id, is_request_id, owned_id, owner_of
from .payloads import encode_message
from .retransmitter import PATIENT_POLICY, Retransmitter, RetryPolicy
from .rules import conflict_error, digest_of
from .setup import check_settings, make_limits, make_store, make_transport
from .status import MessageStatus, message_status, request_status
from .types import MessageType, Outcome, OutgoingMessage, RequestRecord, Verdict
from .waiting import Entry, fail_when_aborted, time_out

if TYPE_CHECKING:
    import asyncio

    from ...core.invocation import Invocation
    from ...core.invocation import Outcome as CallOutcome
    from ...protocol.principal import Principal
    from ..persistence import AACPPersistenceAdapter
    from ..transports import AACPTransport
    from .hooks import CompletedHook, FailedHook, MessageHook
    from .late_calls import LateCalls
    from .runner import NodeRunner

_MAX_BACKLOG, _MAX_BACKLOG_BYTES = 10_000, 64 * 1024 * 1024
"""Messages, and bytes of their payloads, that may wait to be entered: what a slow disk piles up."""

_ENVELOPE_BYTES = 8192
"""More than the rest of an envelope takes: most of it for two ids of 256 characters of any kind."""

_STOPPED = "the coordinator was stopped while it was being used"


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
    _shares: ServerConfig | None = field(default=None, init=False)
    _runner: NodeRunner | None = field(default=None, init=False)
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
        self._shares = config
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
            if is_task_cancelled():
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

        from ..stores.memory_usage import Usage
        from .execution import Executor
        from .hooks import Hooks
        from .late_calls import LateCalls
        from .node import Node
        from .operations import NodeSettings
        from .runner import NodeClock, NodeRunner

        logger = self._own_logger()
        store = self.store or make_store(self.aacp, logger, self._shares)
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
        limits = make_limits(_MAX_BACKLOG, _MAX_BACKLOG_BYTES, self._shares)
        backlog = Usage(limits)
        hooks = Hooks(
            self.on_message_received, self.on_message_completed, self.on_message_failed, logger
        )
        node = Node(
            settings,
            self._ids.run_id,
            retransmitter,
            sending=sending,
            notices=hooks.are_set,
            backlog=backlog,
        )
        executor = Executor(self, logger, store.takes_writes, self._max_payload_bytes)
        runner = NodeRunner(
            node, store, transport, NodeClock(self.clock), logger, executor.execute, hooks
        )
        await runner.start()
        runner.listen(self._name)
        for agent_id in self.agent_ids():
            runner.add_agent(agent_id)
        self._late_calls = LateCalls(
            store,
            runner.now_ms,
            logger,
            asyncio.get_running_loop(),
            self._name,
            self.aacp.default_ttl_ms,
            self.aacp.max_payload_bytes,
            Usage(limits),
        )
        self._runner = runner

    @property
    def _name(self) -> str:
        return self.name or self.aacp.name

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
        runner, late_calls = self._runner, self._late_calls
        if runner is not None and late_calls is not None:
            # Until it has ended, handlers may still send.
            await runner.stop(grace, late_calls.finish)
        if self._runner is runner:
            self._runner = self._late_calls = self._starting = None

    def background(self) -> Coroutine[Any, Any, None]:
        """What a server runs: the coordinator is started, and stopped when this is cancelled.

        A ledger that cannot be reached yet is tried again and again, and said so in the log.
        """
        from .background import run_until_cancelled

        return run_until_cancelled(self, self._own_logger())

    def note_call(self, call: Invocation, outcome: CallOutcome | None) -> None:
        """A tool call was left without an answer, or has ended after that (AACP-28)."""
        late_calls = self._late_calls  # which another thread may take away
        if late_calls is not None:
            late_calls.note(call, outcome)
        else:
            what = identity_fields(call)
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

    def register_agent(
        self, agent_id: str, handler: AgentHandler, *, scopes: Iterable[str] = ()
    ) -> None:
        """As of `AgentCoordinator`; what the ledger has for the agent is executed from now on."""
        AgentCoordinator.register_agent(self, agent_id, handler, scopes=scopes)
        if self._runner is not None:
            self._runner.add_agent(agent_id)

    def unregister_agent(self, agent_id: str) -> bool:
        """As of `AgentCoordinator`; what the ledger has for the agent waits there (AACP-25)."""
        present = AgentCoordinator.unregister_agent(self, agent_id)
        if present and self._runner is not None:
            self._runner.remove_agent(agent_id)
        return present

    # -- sending ------------------------------------------------------------------------------

    async def send_reliable_message(
        self,
        target_agent_id: str,
        message: Any,
        *,
        timeout_ms: int | None = None,
        principal: Principal | None = None,
    ) -> str:
        """Send an EVENT: it is in the ledger when this returns, and arrives once (AACP-01).

        Args:
            message: an `AgentMessage`, or the payload of one; JSON.
            timeout_ms: how long the ledger is waited for; by default `aacp.request_timeout_ms`.
            principal: to whom the message id belongs (AACP-48); by default to the host.

        Returns:
            The message id, by which `status` knows it.

        Raises:
            OutcomeUnknownError: the ledger did not answer in that time; the message may be in it,
                under the id in `request_id`.
            AgentNotFoundError: there is no such agent, and no other process that could have it.
            ToolError: INVALID_ARGUMENT, the payload cannot be said in JSON; RESOURCE_EXHAUSTED,
                it is too large, too much waits for the ledger already, or the ledger is full.
            StoreError, TransportError: as `start`.
        """
        import asyncio

        runner = await self._started()
        message_id = self._ids.run_id()
        # Only an id that has an owner needs to be kept beside the message id.
        key = None if principal is None else owned_id(message_id, identity_of(principal))
        outgoing = self._outgoing(runner, message_id, key, target_agent_id, message, None)
        entered = runner.open_waiter()
        timeout = milliseconds(timeout_ms, self.aacp.request_timeout_ms) / 1000
        timer = asyncio.get_running_loop().call_later(
            timeout, time_out, entered, outgoing.message_id
        )
        try:
            self._enter(runner, outgoing, entered)
            appended = await entered
        finally:
            timer.cancel()
            runner.close_waiter(entered)
        if appended.verdict is Verdict.FULL:
            raise LedgerRefusalError
        return outgoing.message_id

    async def send_request(
        self,
        target_agent_id: str,
        message: Any,
        *,
        request_id: str | None = None,
        timeout_ms: int | None = None,
        ttl_ms: int | None = None,
        abort_signal: AbortSignal | None = None,
        principal: Principal | None = None,
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
            principal: to whom the request id belongs (AACP-48): `context.principal` in a tool that
                sends on behalf of its caller; by default to the host.

        Raises:
            OutcomeUnknownError: the time is over.
            RequestFailedError: the request FAILED.
            RequestConflictError: another request has this id.
            AgentCycleError: the agent waits, directly or not, for the handler that sends.
            AbortError: the signal fired.
            AgentNotFoundError, ToolError, StoreError, TransportError: as `send_reliable_message`.
        """
        runner = self._runner_here() or await self._started()
        given = self._ids.run_id() if request_id is None else check_request_id(request_id)
        key = owned_id(given, identity_of(principal))
        outgoing = self._outgoing(runner, None, key, target_agent_id, message, ttl_ms)
        turn = current_turn()
        if abort_signal is None and turn is not None:
            abort_signal = turn.context.abort_signal
        if abort_signal is not None:
            abort_signal.raise_if_aborted()
        timeout = milliseconds(timeout_ms, self.aacp.request_timeout_ms) / 1000
        lane = None if turn is None else self._lanes.get(target_agent_id)
        with nullcontext() if lane is None else waiting_for(lane, turn):
            record = await self._outcome(runner, outgoing, timeout, abort_signal)
        if record.error is not None:
            raise RequestFailedError(given, StructuredError.from_wire(orjson.loads(record.error)))
        return None if record.result is None else orjson.loads(record.result)

    async def _outcome(
        self,
        runner: NodeRunner,
        outgoing: OutgoingMessage,
        timeout: float,
        abort_signal: AbortSignal | None,
    ) -> RequestRecord:
        """Enter a request and wait until it is finished."""
        import asyncio

        loop, given = asyncio.get_running_loop(), given_id(outgoing.key)
        finished: asyncio.Future[RequestRecord] = runner.open_waiter()
        # First: it may be finished before this task hears that it was entered.
        runner.node.wait_for(outgoing.key, finished, runner.now_ms())
        timer = loop.call_later(timeout, time_out, finished, given)
        remove = fail_when_aborted(abort_signal, finished, loop)
        try:
            self._enter(runner, outgoing, Entry(given, finished))
            record = await finished
        except StoreError as error:
            raise OutcomeUnknownError(given) from error
        finally:
            runner.close_waiter(finished)
            timer.cancel()
            remove()
            runner.node.stop_waiting(outgoing.key, finished)
            # Its exception has this frame in its traceback: the two would keep the message until
            # the garbage collector runs (RES-13).
            del finished, remove
        if record.digest != outgoing.digest:
            # Another request of this id was finished before this one was refused.
            raise RequestConflictError(conflict_error(given))
        return record

    def _outgoing(
        self,
        runner: NodeRunner,
        event_id: str | None,
        key: str | None,
        target_agent_id: str,
        message: Any,
        ttl_ms: int | None,
    ) -> OutgoingMessage:
        """Make what is to be entered in the ledger.

        Args:
            event_id: the message id of an EVENT; None for a REQUEST.
            key: under which the ledger keeps it; of an EVENT None if that is its message id.
        """
        if not is_agent_id(target_agent_id):
            raise invalid("The target must be the id of an agent.", "invalid_agent_id")
        local = target_agent_id in self._agents
        if not local and runner.transport is None and not runner.store.shared:
            raise AgentNotFoundError(target_agent_id)
        local = local or runner.transport is None
        message_type = MessageType.REQUEST if event_id is None else MessageType.EVENT
        turn = current_turn()
        source_agent_id = self._name if turn is None else turn.lane.agent_id
        payload = encode_message(message, self._max_payload_bytes())
        now_ms = runner.now_ms()
        return OutgoingMessage(
            event_id or self._ids.run_id(),
            key,
            source_agent_id,
            target_agent_id,
            message_type,
            payload,
            digest_of(source_agent_id, target_agent_id, message_type, payload),
            now_ms,
            now_ms + milliseconds(ttl_ms, self.aacp.default_ttl_ms),
            local,
            0 if local else now_ms + runner.node.sending.backoff_delay_ms(1),
        )

    def _enter(self, runner: NodeRunner, outgoing: OutgoingMessage, waiter: Any) -> None:
        backlog = runner.node.backlog
        # What need not wait is never refused, however large it is.
        if backlog.records and not backlog.has_room(outgoing.request_id, 1, len(outgoing.payload)):
            raise ToolError(
                ErrorCode.RESOURCE_EXHAUSTED,
                "Too many messages wait for the ledger; try again later.",
                {"reason": "ledger_backlog"},
            )
        runner.node.send(outgoing, waiter, runner.now_ms())
        runner.kick()

    # -- asking -------------------------------------------------------------------------------

    async def status(
        self, message_or_request_id: str, principal: Principal | None = None
    ) -> MessageStatus | None:
        """Return what is known of a request, by its request id, or an event, by its message id.

        Args:
            principal: whose id it is (AACP-48); by default the host's.

        Returns:
            None if the ledger does not know it, or not any more, or it is another's.

        Raises:
            StoreError: the ledger cannot be asked.
        """
        if not is_request_id(message_or_request_id):
            return None
        runner, late_calls = await self._started(), self._late_calls
        key = owned_id(message_or_request_id, identity_of(principal))
        # First: it may be written while the ledger is being asked.
        is_late = late_calls is not None and late_calls.is_unwritten(key)
        record = await runner.store.get_request_record(key)
        if record is not None:
            return request_status(record)
        message = await runner.store.get_message_record(message_or_request_id)
        if message is not None and owner_of(message.request_id or "") == owner_of(key):
            return message_status(message)
        if is_late:
            return MessageStatus(None, message_or_request_id, Outcome.UNKNOWN, runner.now_ms())
        return None

    def process_retries_once(self) -> None:
        """Send again, now, what is due to be sent again; it happens by itself as well."""
        if self._runner is not None:
            self._runner.node.process_retries_once(self._runner.now_ms())
            self._runner.kick()

    async def schedule_retry(self, message_id: str, delay_ms: int) -> bool:
        """Have one message sent again after `delay_ms`, whenever it was due (AACP-50).

        Args:
            message_id: that of its first attempt, of which hooks and `send_reliable_message` tell.

        Returns:
            Whether it waits for its acknowledgement; else nothing is sent.

        Raises:
            ToolError: INVALID_ARGUMENT, the delay is no number of ms.
            StoreError: the ledger cannot be asked.
        """
        return await self._reschedule(message_id, milliseconds(delay_ms, delay_ms), give_up=False)

    async def cancel_retry(self, message_id: str) -> bool:
        """Give one message up: it is not sent again, only its number is (AACP-14, AACP-50).

        Returns:
            Whether it waited for its acknowledgement. It may have been received all the same.

        Raises:
            StoreError: the ledger cannot be asked.
        """
        return await self._reschedule(message_id, 0, give_up=True)

    async def _reschedule(self, message_id: str, delay_ms: int, *, give_up: bool) -> bool:
        runner = await self._started()
        at_ms = runner.now_ms() + delay_ms
        message = await runner.store.reschedule(message_id, at_ms, give_up=give_up)
        if message is not None:
            runner.node.rescheduled(message, runner.now_ms(), given_up=give_up)
            runner.kick()
        return message is not None

    async def purge_expired(self) -> int:
        """Delete what has expired, now; it happens by itself as well (AACP-15)."""
        runner = await self._started()
        return await runner.store.purge_expired(runner.now_ms())

    # -- executing ----------------------------------------------------------------------------

    def _runner_here(self) -> NodeRunner | None:
        """What runs, if it runs on this event loop: all that most calls need."""
        runner = self._runner
        return runner if runner is not None and runner.is_here() else None

    async def _started(self) -> NodeRunner:
        self._enter_loop()
        if self._runner is None:
            await self.start()
        runner = self._runner
        if runner is None:
            raise UsageError(_STOPPED)
        return runner

    def _enter_loop(self) -> None:
        """As of `AgentCoordinator`; what ran on a loop that was closed is gone with it."""
        before = self._loop
        AgentCoordinator._enter_loop(self)
        if self._loop is not before:
            self._runner = self._late_calls = self._starting = None

    def _max_payload_bytes(self) -> int:
        """What the ledger may hold, and the transport, if there is one, can carry."""
        limit = self.aacp.max_payload_bytes
        transport = None if self._runner is None else self._runner.transport
        if transport is None:
            return limit
        return min(limit, transport.max_envelope_bytes - _ENVELOPE_BYTES)
