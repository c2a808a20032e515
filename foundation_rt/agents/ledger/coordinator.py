"""Agents with a ledger: `AgentCoordinator`, and messages that outlive the process (AACP).

`send_message` is as in `AgentCoordinator`: in memory, in this process, at once.
`send_reliable_message` and `send_request` enter the message in a ledger first; spec/aacp.md says
what they promise. The agents and their handlers are the same, and take both kinds of messages from
the same mailboxes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from attrs import define, field

from ...base.abort import AbortSignal, is_task_cancelled
from ...base.clock import Clock, SystemClock
from ...base.config.feature_sections import AacpSection
from ...base.config.settings import ServerConfig
from ...base.exact_json import loads
from ...base.ids import IdGenerator
from ...base.logs.logger import StructuredLogger
from ...errors import UsageError, describe_exception
from ...kernel.records import identity_fields
from ...protocol.principal import identity_of
from ..local import AgentCoordinator
from ..mailbox import current_entry, waiting_for
from ..messages import AgentHandler
from ..persistence import StoreError
from .administration import MAX_PAGE, PAGE_START, PENDING, Changed, RequestQuery, Verdict, key_of
from .agent_limits import AgentLimits, read_limits
from .effects import Operation
from .encoder import is_agent_id
from .errors import RequestConflictError, RequestFailedError
from .ownership import given_id, is_request_id, owned_id, owner_of
from .payloads import encode_message, max_payload_bytes
from .retransmitter import RetransmissionPolicy
from .rules import conflict_error, recorded_error
from .sending import Sender, milliseconds
from .setup import check_settings, make_limits, make_node, make_store, make_transport
from .status import MessageStatus, message_status, request_status
from .types import LedgerNews, MessageType, Outcome

if TYPE_CHECKING:
    import asyncio

    from ...features.instruments import MetricSource
    from ...kernel.invocation import CallOutcome, Invocation
    from ...protocol.principal import Principal
    from ..persistence import AACPPersistenceAdapter
    from ..transports import AACPTransport
    from .hooks import CompletedHook, FailedHook, MessageHook
    from .late_calls import LateCalls
    from .operator import LedgerOperator
    from .runner import NodeRunner
    from .schedules import Schedule
    from .sending import BatchOptions, MessageOptions
    from .types import RequestRecord, RequestState

_MAX_BACKLOG, _MAX_BACKLOG_BYTES = 10_000, 64 * 1024 * 1024
"""Messages, and bytes of their payloads, that may wait for the ledger: behind a slow disk."""

_STOPPED = "the coordinator was stopped while it was being used"

_START_RETRY_SECONDS = 5.0

_FINAL_GRACE_SECONDS = 0.2
"""For handlers when the server ends: its calls have had their time already."""


@define(eq=False, repr=False)
class _Running:
    """The parts that exist from start to stop."""

    runner: NodeRunner
    sender: Sender
    late_calls: LateCalls


@define(eq=False, repr=False)
class AgentCoordinatorV2(AgentCoordinator):
    """An `AgentCoordinator` with a ledger (spec/aacp.md).

    Its first use starts it, or the server it belongs to, or ``async with coordinator:``, which also
    stops it.

    Args:
        store: the ledger; by default the one that `aacp.store` names: in memory, which forgets.
        transport: connects to other ledgers; by default the one that `aacp.transport` names: none.
        name: the source of messages that no agent sends; by default `aacp.name`. The same after a
            restart, and in all processes that serve the same clients on one ledger; unique among
            ledgers that a transport joins.
        policy: when messages are sent, and requests executed, again; by default one that suits the
            transport.
        clock: gives the time.
        on_message_received: called with every message for an agent here, once it is in the ledger.
        on_message_completed: called with the message id of every message sent from here that has
            been completed: a request when its outcome is recorded, an event when its receiver has
            it. It is not called for messages sent before a restart.
        on_message_failed: called with the message id and the error of every message that failed.
    """

    store: AACPPersistenceAdapter | None = field(default=None, kw_only=True)
    transport: AACPTransport | None = field(default=None, kw_only=True)
    name: str | None = field(default=None, kw_only=True)
    policy: RetransmissionPolicy | None = field(default=None, kw_only=True)
    aacp: AacpSection = field(factory=AacpSection, kw_only=True)
    clock: Clock = field(factory=SystemClock, kw_only=True)
    on_message_received: MessageHook | None = field(default=None, kw_only=True)
    on_message_completed: CompletedHook | None = field(default=None, kw_only=True)
    on_message_failed: FailedHook | None = field(default=None, kw_only=True)
    _shares: ServerConfig | None = field(default=None, init=False)
    # By agent: what it may do in all processes.
    _agent_limits: dict[str, AgentLimits] = field(factory=dict, init=False)
    # By agent: how long an execution may take; None for as long as it needs.
    _timeouts_ms: dict[str, int | None] = field(factory=dict, init=False)
    # Declared here, by name.
    _schedules: dict[str, Schedule] = field(factory=dict, init=False)
    _running: _Running | None = field(default=None, init=False)
    _starting: asyncio.Future[None] | None = field(default=None, init=False)

    @name.validator
    def _check_name(self, attribute: object, name: object) -> None:
        if name is not None and not is_agent_id(name):
            raise UsageError("the name of a coordinator has the form of an agent's id")

    def attach(self, logger: StructuredLogger, config: ServerConfig, ids: IdGenerator) -> None:
        """Use a server's logger, configuration and ids from now on.

        Raises:
            UsageError: the configuration names a ledger or a transport that cannot be used.
        """
        super().attach(logger, config, ids)
        self.aacp = config.aacp
        self._shares = config
        if self.store is None and self.transport is None:
            check_settings(config.aacp)

    def new_request_id(self) -> str:
        """Return a new request id."""
        return self._ids.run_id()

    def execution_timeout_ms(self, agent_id: str) -> int | None:
        """Return how long one execution of an agent may take, in ms; None: as long as it needs."""
        return self._timeouts_ms.get(agent_id)

    def is_ready(self) -> bool:
        """Return whether this machine's clock is right enough to execute requests (AACP-94)."""
        running = self._running
        return running is None or running.runner.node.time.is_right is not False

    def metric_source(self) -> MetricSource:
        """Return what gives the metrics of its agents (AACP-160)."""
        from .metrics import LedgerMetrics

        return LedgerMetrics(self._running_node, self.agent_ids)

    def _running_node(self) -> NodeRunner | None:
        return None if self._running is None else self._running.runner

    # -- its life -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Open ledger and transport and resume what is pending; a second call does nothing.

        Raises:
            StoreError, TransportError: one of them cannot be reached; a later call tries again.
            AgentServedElsewhereError: another ledger serves one of the agents over the transport.
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

        from ..stores.memory_usage import Usage
        from .hooks import Hooks
        from .late_calls import LateCalls
        from .runner import NodeClock, NodeRunner
        from .workers import Executor

        logger, name = self._own_logger(), self.name or self.aacp.name
        store = self.store or make_store(self.aacp, logger, self._shares)
        transport = self.transport or make_transport(self.aacp.transport, logger)
        hooks = Hooks(
            self.on_message_received, self.on_message_completed, self.on_message_failed, logger
        )
        limits = make_limits(_MAX_BACKLOG, _MAX_BACKLOG_BYTES, self._shares)
        node = make_node(
            self.aacp,
            name,
            self._ids.run_id,
            self.policy,
            store,
            transport,
            notices=hooks.are_set,
            backlog=Usage(limits),
        )
        executor = Executor(
            self,
            logger,
            store.takes_writes,
            partial(max_payload_bytes, self.aacp, transport),
            node.claims.counts.begun,
        )
        now_ms = NodeClock(self.clock)
        runner = NodeRunner(node, store, transport, now_ms, logger, executor.execute, hooks)
        await runner.start({name, *self.agent_ids()})
        for agent_id in self.agent_ids():
            runner.add_agent(agent_id, self._agent_limits[agent_id])
        late_calls = LateCalls(
            store,
            now_ms,
            logger,
            asyncio.get_running_loop(),
            name,
            self.aacp.default_ttl_ms,
            self.aacp.max_payload_bytes,
            Usage(limits),
        )
        is_registered = self._agents.__contains__
        sender = Sender(runner, name, self.aacp, is_registered, self._ids.run_id)
        self._running = _Running(runner, sender, late_calls)
        for schedule in self._schedules.values():
            self._keep_schedule(self._running, schedule)

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
        running = self._running
        if running is not None:
            # Until it has ended, handlers may still send.
            await running.runner.stop(grace, running.late_calls.finish)
        if self._running is running:
            self._running = self._starting = None

    async def background(self) -> None:
        """Start the coordinator, and stop it when this is cancelled.

        A start that fails is logged and tried again.
        """
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
            await self.stop(_FINAL_GRACE_SECONDS)

    def note_call(self, call: Invocation, outcome: CallOutcome | None) -> None:
        """Record a tool call that was left without an answer, or has ended after that (AACP-28)."""
        running = self._running  # another thread may take it away
        if running is not None:
            running.late_calls.note(call, outcome)
        else:
            fields = identity_fields(call)
            self._own_logger().warn("late tool call not recorded: no ledger is open", fields)

    async def __aenter__(self) -> AgentCoordinatorV2:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    # -- agents -------------------------------------------------------------------------------

    def register_agent(
        self,
        agent_id: str,
        handler: AgentHandler,
        *,
        scopes: Iterable[str] = (),
        timeout_ms: int | None = None,
        workers: int = 1,
        rate: str | None = None,
    ) -> None:
        """Add an agent, as `AgentCoordinator` does; execute what the ledger has for it.

        Args:
            agent_id: as there.
            handler: as there.
            scopes: as there.
            timeout_ms: how long one execution may take; by default as long as it needs (AACP-96).
            workers: how many requests it executes at a time, in all processes together, from 1 to
                100. With more than one their order does not matter, and its handler, and
                `context.state`, are used by several at a time (AACP-190).
            rate: how many of its executions may begin in any second, minute or hour, in all
                processes together: ``"10/s"``, ``"100/min"``, ``"5000/h"`` (AACP-191).

        Raises:
            ToolError: INVALID_ARGUMENT, the time is no number of ms.
            RegistrationError, UsageError: as there.
        """
        limit = None if timeout_ms is None else milliseconds(timeout_ms, timeout_ms)
        limits = read_limits(agent_id, workers, rate)
        super().register_agent(agent_id, handler, scopes=scopes)
        self._timeouts_ms[agent_id], self._agent_limits[agent_id] = limit, limits
        self._agents[agent_id].mailbox.places = limits.workers
        if self._running is not None:
            self._running.runner.add_agent(agent_id, limits)

    def unregister_agent(self, agent_id: str) -> bool:
        """Remove an agent; its messages wait in the ledger (AACP-25)."""
        present = super().unregister_agent(agent_id)
        self._timeouts_ms.pop(agent_id, None)
        self._agent_limits.pop(agent_id, None)
        if present and self._running is not None:
            self._running.runner.remove_agent(agent_id)
        return present

    # -- sending ------------------------------------------------------------------------------

    async def send_reliable_message(
        self,
        target_agent_id: str,
        message: Any,
        *,
        timeout_ms: int | None = None,
        **options: Unpack[MessageOptions],
    ) -> str:
        """Send an EVENT: it is in the ledger when this returns, and arrives once (AACP-01).

        Args:
            target_agent_id: the receiver.
            message: an `AgentMessage`, or the payload of one; JSON.
            timeout_ms: how long to wait for the ledger; by default `aacp.request_timeout_ms`.
            options: `MessageOptions`.

        Returns:
            The request id that was given, or else a new message id: for `status`.

        Raises:
            OutcomeUnknownError: the ledger did not answer in that time; the message may be in it,
                under the id in `request_id`.
            RequestConflictError: another message has this id.
            AgentNotFoundError: there is no such agent, and no other process that could have it.
            ToolError: INVALID_ARGUMENT, the payload cannot be said in JSON; RESOURCE_EXHAUSTED,
                it is too large, too much waits for the ledger already, or the ledger is full.
            StoreError, TransportError: as `start`.
        """
        sender = (await self._started()).sender
        event = sender.make(MessageType.EVENT, target_agent_id, message, **options)
        await sender.enter([event], milliseconds(timeout_ms, self.aacp.request_timeout_ms) / 1000)
        return given_id(event.key)

    async def submit_request(
        self,
        target_agent_id: str,
        message: Any,
        *,
        timeout_ms: int | None = None,
        **options: Unpack[MessageOptions],
    ) -> str:
        """Send a REQUEST without waiting for its outcome: it is in the ledger when this returns.

        For what is executed later, or takes long: `status` has the outcome (AACP-126).

        Args:
            target_agent_id: the receiver.
            message: an `AgentMessage`, or the payload of one; JSON.
            timeout_ms: how long to wait for the ledger; by default `aacp.request_timeout_ms`.
            options: `MessageOptions`.

        Returns:
            The request id.

        Raises:
            OutcomeUnknownError, RequestConflictError, AgentNotFoundError, ToolError, StoreError,
                TransportError: as `send_reliable_message`.
        """
        sender = (await self._started()).sender
        request = sender.make(MessageType.REQUEST, target_agent_id, message, **options)
        await sender.enter([request], milliseconds(timeout_ms, self.aacp.request_timeout_ms) / 1000)
        return given_id(request.key)

    async def submit_many(
        self,
        target_agent_id: str,
        messages: Sequence[Any],
        *,
        request_ids: Sequence[str] | None = None,
        timeout_ms: int | None = None,
        **options: Unpack[BatchOptions],
    ) -> list[str]:
        """Send REQUESTs to one agent in one transaction: all are in the ledger, or none (AACP-169).

        Args:
            target_agent_id: the receiver.
            messages: a list of `AgentMessage`s, or of payloads, at most 1,000; JSON.
            request_ids: one for each, all distinct; by default new ones.
            timeout_ms: how long to wait for the ledger; by default `aacp.request_timeout_ms`.
            options: `BatchOptions`, for all of them.

        Returns:
            The request ids, in the order of the messages.

        Raises:
            OutcomeUnknownError: the ledger did not answer in that time; either all may be in it or
                none, the first under the id in `request_id`.
            RequestConflictError: another request has one of the ids, which it names.
            AgentNotFoundError, StoreError, TransportError: as `send_reliable_message`.
            ToolError: as there; RESOURCE_EXHAUSTED also when they are more than 64 MiB together.
        """
        sender = (await self._started()).sender
        batch = sender.make_batch(target_agent_id, messages, request_ids, **options)
        timeout = milliseconds(timeout_ms, self.aacp.request_timeout_ms) / 1000
        if batch:
            await sender.enter(batch, timeout)
        return [given_id(request.key) for request in batch]

    async def send_request(
        self,
        target_agent_id: str,
        message: Any,
        *,
        timeout_ms: int | None = None,
        abort_signal: AbortSignal | None = None,
        **options: Unpack[MessageOptions],
    ) -> Any:
        """Send a REQUEST and wait for its outcome; return the result (AACP-26).

        Args:
            target_agent_id: the receiver.
            message: an `AgentMessage`, or the payload of one; JSON.
            timeout_ms: how long to wait; by default `aacp.request_timeout_ms`.
            abort_signal: ends the waiting when it fires, not the request; by default that of the
                message that is being handled.
            options: `MessageOptions`.

        Raises:
            OutcomeUnknownError: the time is over.
            RequestFailedError: the request FAILED.
            RequestConflictError: another request has this id.
            AgentCycleError: the agent waits, directly or not, for the handler that sends.
            AbortError: the signal fired.
            AgentNotFoundError, ToolError, StoreError, TransportError: as `send_reliable_message`.
        """
        sender = (self._running_here() or await self._started()).sender
        request = sender.make(MessageType.REQUEST, target_agent_id, message, **options)
        entry = current_entry()
        if abort_signal is None and entry is not None:
            abort_signal = entry.context.abort_signal
        if abort_signal is not None:
            abort_signal.raise_if_aborted()
        timeout = milliseconds(timeout_ms, self.aacp.request_timeout_ms) / 1000
        mailbox = None if entry is None else self._mailboxes.get(target_agent_id)
        with waiting_for(mailbox, entry):
            record = await sender.outcome(request, timeout, abort_signal)
        error = recorded_error(record)
        if error is not None:
            raise RequestFailedError(given_id(request.key), error)
        return None if record.result is None else loads(record.result)

    async def request_in(
        self,
        connection: Any,
        target_agent_id: str,
        message: Any,
        **options: Unpack[MessageOptions],
    ) -> str:
        """Send a REQUEST if, and only if, the caller's own transaction commits (AACP-150).

        Until then nobody knows of it, and nobody waits for the transaction. It is executed soon
        after the commit. It needs a ledger in PostgreSQL, in the database of the transaction.

        Args:
            connection: a `psycopg.AsyncConnection` of the caller, in a transaction.
            target_agent_id: the receiver.
            message: an `AgentMessage`, or the payload of one; JSON.
            options: `MessageOptions`. A lifetime counts from when it is in the ledger.

        Returns:
            The request id, for `status`, and for `send_request`, which then waits for it.

        Raises:
            UsageError: the ledger or the connection cannot do it; says what to change. Nothing was
                done in the transaction.
            RequestConflictError: another request has this id. One that comes later is in the log.
            psycopg.Error: the transaction has failed.
            AgentNotFoundError, ToolError, StoreError, TransportError: as `send_reliable_message`.
        """
        running = await self._started()
        store = running.runner.store
        submission = running.sender.make_submission(target_agent_id, message, **options)
        given = given_id(submission.request_id)
        if options.get("request_id") is not None:
            # Not in the caller's transaction: there it would be locked for as long as that is open.
            record = await store.get_request_record(submission.request_id)
            if record is not None and record.digest != submission.digest:
                raise RequestConflictError(conflict_error(given))
        await store.submit(connection, submission)
        return given

    # -- schedules ----------------------------------------------------------------------------

    def every(
        self,
        expression: str,
        target_agent_id: str,
        message: Any,
        *,
        timezone: str = "UTC",
        name: str | None = None,
        missed: str = "once",
        ttl_ms: int | None = None,
    ) -> str:
        """Send a REQUEST at the times of a cron expression, once for all processes (AACP-140).

        It may be called before the start, as `register_agent`, and at any time later. The schedule
        is in the ledger from then on, and in every process that has a schedule: until
        `remove_schedule`, also when no program declares it any more.

        Args:
            expression: minute, hour, day of month, month and day of week, as in ``"0 6 * * *"``;
                with six fields the first is the second.
            target_agent_id: the receiver. The id of its message is that of the run:
                ``every:NAME:2026-11-26T06:00Z``, its time in UTC.
            message: an `AgentMessage`, or the payload of one; JSON.
            timezone: an IANA name, as in ``"Europe/Berlin"``. What happens when clocks are changed,
                AACP-146 says.
            name: of the schedule: the same name is the same schedule, whose place this one takes.
                By default it is made of the agent and the expression.
            missed: what becomes of runs that nobody has entered within a minute: ``"once"``: of
                several the latest is entered; ``"all"``: all, at most the latest 100; ``"none"``.
            ttl_ms: how long each request counts; by default `aacp.default_ttl_ms`.

        Returns:
            The name.

        Raises:
            UsageError: says what to change.
            MissingExtraError: the extra `schedules` is not installed.
            ToolError: INVALID_ARGUMENT, the payload cannot be said in JSON, or the lifetime is not
                valid; RESOURCE_EXHAUSTED, it is too large.
        """
        from .cron import declared_schedule

        transport = None if self._running is None else self._running.runner.transport
        schedule = declared_schedule(
            expression,
            target_agent_id,
            encode_message(message, max_payload_bytes(self.aacp, transport)),
            timezone,
            name,
            missed,
            milliseconds(ttl_ms, self.aacp.default_ttl_ms),
            known=self._schedules,
        )
        self._schedules[schedule.name] = schedule
        if self._running is not None:
            self._keep_schedule(self._running, schedule)
        return schedule.name

    async def remove_schedule(self, name: str) -> bool:
        """Remove a schedule from the ledger; what its runs have entered stays (AACP-142).

        A program that declares it adds it again when it is started.

        Returns:
            Whether there was one of this name, as far as is known: not if the answer was lost.

        Raises:
            StoreError: the coordinator stops.
        """
        from .schedules import RemoveSchedule

        self._schedules.pop(name, None)
        runner = (await self._started()).runner
        removed = runner.waiters.open()
        try:
            runner.node.schedules.change(RemoveSchedule(name), removed)
            runner.kick()
            return bool(await removed)
        finally:
            runner.waiters.close(removed)

    async def list_schedules(self, after: str = "", limit: int = 100) -> list[Schedule]:
        """Return a page of the schedules in the ledger, by name (AACP-147).

        Args:
            after: the last name of the page before.
            limit: the most of a page, from 1 to 1,000.

        Raises:
            UsageError: the limit is not a number from 1 to 1,000.
            StoreError: the ledger cannot be asked.
        """
        if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
            raise UsageError(f"list_schedules: limit is a number from 1 to {MAX_PAGE:,}")
        return await (await self._started()).runner.store.list_schedules(after, limit)

    def _keep_schedule(self, running: _Running, schedule: Schedule) -> None:
        from .cron import cron_recurrence

        most = max_payload_bytes(self.aacp, running.runner.transport)
        if len(schedule.payload) > most:  # it was declared before the transport was known
            fields = {"schedule": schedule.name, "maxPayloadBytes": most}
            self._own_logger().error("schedule not kept: its message is too large", fields)
            return
        keeper = running.runner.node.schedules
        keeper.recurrence_of, keeper.make_run = cron_recurrence, running.sender.make_run
        keeper.change(schedule, None)
        running.runner.kick()

    # -- asking -------------------------------------------------------------------------------

    async def status(
        self, message_or_request_id: str, principal: Principal | None = None
    ) -> MessageStatus | None:
        """Return the status of a request, by its request id, or of an event, by its message id.

        Args:
            message_or_request_id: the id.
            principal: the owner of the id (AACP-48); by default the host.

        Returns:
            None if the ledger does not have it, or not any more, or it has another owner.

        Raises:
            StoreError: the ledger cannot be asked.
        """
        if not is_request_id(message_or_request_id):
            return None
        running = await self._started()
        runner, key = running.runner, owned_id(message_or_request_id, identity_of(principal))
        # First: it may be written while the ledger is being asked.
        is_late = running.late_calls.is_unwritten(key)
        record = await runner.store.get_request_record(key)
        if record is not None:
            return request_status(record)
        message = await runner.store.get_message_record(message_or_request_id)
        if message is not None and owner_of(message.request_id or "") == owner_of(key):
            return message_status(message)
        target = None
        if runner.store.takes_submissions:
            target = await runner.store.submitted_to(key)
            # It may have been taken over between the two.
            record = await runner.store.get_request_record(key)
            if record is not None:
                return request_status(record)
        if target is None and not is_late:
            return None
        now_ms = runner.now_ms()
        return MessageStatus(
            None, message_or_request_id, Outcome.UNKNOWN, now_ms, target_agent_id=target
        )

    async def pending_requests(self, limit: int = 200) -> list[MessageStatus]:
        """Return the requests in the ledger that have no outcome yet, of all owners.

        Args:
            limit: the most that are returned.

        Raises:
            StoreError: the ledger cannot be asked.
        """
        store = (await self._started()).runner.store
        records = await store.list_requests(RequestQuery(states=PENDING, limit=limit))
        return [request_status(each) for each in records]

    def process_retries_once(self) -> None:
        """Send again now the messages that are due; it happens by itself as well."""
        if self._running is not None:
            runner = self._running.runner
            runner.node.operations.want(Operation.TAKE_DUE)
            runner.kick()

    async def schedule_retry(self, message_id: str, delay_ms: int) -> bool:
        """Have one message sent again after `delay_ms`, whenever it was due (AACP-50).

        Args:
            message_id: that of its first attempt, as hooks and `send_reliable_message` give it.
            delay_ms: from now on.

        Returns:
            Whether it waits for its acknowledgement; else nothing is sent.

        Raises:
            ToolError: INVALID_ARGUMENT, the delay is no number of ms.
            StoreError: the ledger cannot be asked.
        """
        return await self._reschedule(message_id, milliseconds(delay_ms, delay_ms), give_up=False)

    async def cancel_retry(self, message_id: str) -> bool:
        """Give up one message: it is not sent again, only its number is (AACP-14, AACP-50).

        Returns:
            Whether it waited for its acknowledgement. It may have been received all the same.

        Raises:
            StoreError: the ledger cannot be asked.
        """
        return await self._reschedule(message_id, 0, give_up=True)

    async def _reschedule(self, message_id: str, delay_ms: int, *, give_up: bool) -> bool:
        runner = (await self._started()).runner
        at_ms = runner.now_ms() + delay_ms
        message = await runner.store.reschedule(message_id, at_ms, give_up=give_up)
        if message is not None:
            runner.node.exchange.rescheduled(message, given_up=give_up)
            runner.kick()
        return message is not None

    async def purge_expired(self) -> int:
        """Delete what has expired, now; it happens by itself as well (AACP-15).

        Raises:
            StoreError: the ledger cannot be asked, or the clock of this machine is wrong (AACP-94).
        """
        runner = (await self._started()).runner
        if not self.is_ready():
            raise StoreError("the clock of this machine is wrong: set it right before you purge")
        purged = 0
        while batch := await runner.store.purge_expired(runner.now_ms()):
            purged += batch
        return purged

    # -- what operators ask -------------------------------------------------------------------

    async def list_requests(
        self,
        *,
        agent_id: str | None = None,
        states: Collection[RequestState] = (),
        older_than_ms: int | None = None,
        after: RequestRecord | None = None,
        limit: int = 100,
        principal: Principal | None = None,
    ) -> list[RequestRecord]:
        """Return a page of the requests in the ledger, the oldest first (AACP-111).

        Args:
            agent_id: their target; by default all.
            states: those that count; none for all.
            older_than_ms: only requests made at least so long ago.
            after: the last request of the page before.
            limit: the most of a page, from 1 to 1,000.
            principal: the owner of the ids (AACP-48); by default the host, who sees all.

        Returns:
            Records without payloads and results: `status` gives the result of one.

        Raises:
            UsageError: the limit is not a number from 1 to 1,000.
            StoreError: the ledger cannot be asked.
        """
        if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
            raise UsageError(f"list_requests: limit is a number from 1 to {MAX_PAGE:,}")
        runner = (await self._started()).runner
        query = RequestQuery(
            agent_id,
            states,
            None if older_than_ms is None else runner.now_ms() - older_than_ms + 1,
            owner_of(owned_id("any", identity_of(principal))),
            PAGE_START if after is None else key_of(after),
            limit,
        )
        return await runner.store.list_requests(query)

    async def cancel_request(
        self, request_id: str, *, reason: str | None = None, principal: Principal | None = None
    ) -> bool:
        """Make a request FAILED with `cancelled`, whether it was begun or not (AACP-114).

        The handler of one that is executed has its abort signal fired: at once in this process and
        with PostgreSQL, else with the next renewal of its lease.

        Args:
            request_id: the id; of the host also one of another owner, as `list_requests` gives it.
            reason: for the audit record.
            principal: the owner of the id (AACP-48); by default the host.

        Returns:
            Whether it had no outcome yet and is executed in this ledger; else nothing happens.

        Raises:
            StoreError: the ledger cannot be asked.
        """
        key = owned_id(request_id, identity_of(principal))
        [changed] = await (await self.operator()).cancel([key], reason)
        return changed.verdict is Verdict.DONE

    async def requeue_request(
        self,
        request_id: str,
        reason: str,
        *,
        ttl_ms: int | None = None,
        principal: Principal | None = None,
    ) -> bool:
        """Have a request that FAILED executed again, behind the others of its agent (AACP-112).

        Args:
            request_id: the id; of the host also one of another owner, as `list_requests` gives it.
            reason: for the audit record.
            ttl_ms: how long it counts from now on; by default `aacp.default_ttl_ms`.
            principal: the owner of the id (AACP-48); by default the host.

        Returns:
            Whether it had FAILED and is executed in this ledger for nobody in another one; else
            nothing happens.

        Raises:
            ToolError: INVALID_ARGUMENT, the time is no number of ms.
            StoreError: the ledger cannot be asked.
        """
        lifetime = milliseconds(ttl_ms, self.aacp.default_ttl_ms)
        key = owned_id(request_id, identity_of(principal))
        [changed] = await (await self.operator()).requeue([key], reason, lifetime)
        return changed.verdict is Verdict.DONE

    async def operator(self, by: Mapping[str, Any] | None = None) -> LedgerOperator:
        """Return an operator at the ledger, for all of its requests (AACP-116).

        Args:
            by: fields of the audit records that say who asked.

        Raises:
            StoreError, TransportError: as `start`.
        """
        from .operator import LedgerOperator

        running = await self._started()
        runner = running.runner
        return LedgerOperator(
            runner.store,
            self._own_logger(),
            self._ids.run_id,
            runner.now_ms,
            by or {},
            partial(self._follow, running),
        )

    def _follow(self, running: _Running, changed: Changed) -> None:
        """Have the node look at what was changed."""
        runner, record = running.runner, changed.record
        if record is None:
            return
        news = LedgerNews([record.target_agent_id], [record.request_id])
        runner.node.look_around(news)
        runner.node.claims.check()
        if changed.response is not None:
            runner.node.operations.want(Operation.TAKE_DUE)
        runner.kick()

    # -- the running parts --------------------------------------------------------------------

    def _running_here(self) -> _Running | None:
        """Return what runs if it runs on this event loop: all that most calls need."""
        running = self._running
        return running if running is not None and running.runner.is_here() else None

    async def _started(self) -> _Running:
        self._enter_loop()
        if self._running is None:
            await self.start()
        if self._running is None:
            raise UsageError(_STOPPED)
        return self._running

    def _enter_loop(self) -> None:
        """Enter the loop; what ran on a loop that was closed is gone with it."""
        before = self._loop
        super()._enter_loop()
        if self._loop is not before:
            self._running = self._starting = None
