"""Entering messages in the ledger and waiting for outcomes (AACP-26)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from attrs import define

from ...errors import ErrorCode, ToolError
from ...protocol.principal import identity_of
from ..errors import AgentNotFoundError
from ..mailbox import current_entry
from ..persistence import StoreError
from .encoder import is_agent_id
from .errors import LedgerRefusalError, OutcomeUnknownError, RequestConflictError, invalid
from .ownership import given_id, is_request_id, owned_id
from .payloads import encode_message, max_payload_bytes
from .request_options import (
    MAX_PRIORITY,
    ExecutionRetries,
    RequestOptions,
    begin_of,
    is_priority,
)
from .rules import conflict_error, digest_of
from .schedules import ID_PREFIX, Schedule, run_id
from .submissions import SubmittedRequest, submission_of
from .types import TERMINAL, Appended, EntryVerdict, MessageType, OutgoingMessage, RequestRecord

if TYPE_CHECKING:
    import asyncio

    from ...base.abort import AbortSignal
    from ...base.config.feature_sections import AacpSection
    from ...protocol.principal import Principal
    from .runner import NodeRunner


class BatchOptions(TypedDict, total=False):
    """The options that all requests of a batch share.

    Attributes:
        ttl_ms: how long it counts from when it may be executed; by default `aacp.default_ttl_ms`.
        delay_ms: it is not executed earlier than after so many ms (AACP-120).
        not_before: the same as a time, with a time zone; one of both.
        priority: from 0 to 9; within its agent a higher one is executed first (AACP-122).
        retry: when it is executed again if its handler fails (AACP-124); by default the policy of
            the coordinator says so.
        principal: the owner of the id (AACP-48): `context.principal` in a tool that sends on
            behalf of its caller; by default the host.
    """

    ttl_ms: int | None
    delay_ms: int | None
    not_before: datetime | None
    priority: int
    retry: ExecutionRetries | None
    principal: Principal | None


class MessageOptions(BatchOptions, total=False):
    """The options of one request or event: those of `BatchOptions`, and an id.

    Attributes:
        request_id: the same id with the same message is the same request or event (AACP-12); by
            default a new one.
    """

    request_id: str | None


MAX_BATCH = 1_000
"""The most requests of a batch (AACP-169): in memory they take the event loop 12 ms."""


def check_request_id(request_id: str) -> str:
    """Return a caller's request id (AACP-12).

    Raises:
        ToolError: INVALID_ARGUMENT, it is not valid.
    """
    if not is_request_id(request_id):
        raise invalid(
            "A request id is 1 to 128 letters, digits and . _ : -, the first a letter or a digit.",
            "invalid_request_id",
        )
    if request_id.startswith(ID_PREFIX):
        raise invalid(
            f"A request id that begins with {ID_PREFIX!r} is that of a schedule's run.",
            "invalid_request_id",
        )
    return request_id


_MAX_AHEAD_MS = 10 * 366 * 86_400_000


def milliseconds(given: int | None, default: int) -> int:
    """Return a caller's time in ms, at most ten years, or else the default.

    Raises:
        ToolError: INVALID_ARGUMENT, it is not valid.
    """
    if given is None:
        return default
    if type(given) is not int or not 0 < given <= _MAX_AHEAD_MS:
        raise invalid(f"A time is a number of ms from 1 to {_MAX_AHEAD_MS}.", "invalid_time")
    return given


@define(eq=False, repr=False)
class Sender:
    """Sends messages through a node that runs.

    Args:
        name: the source of messages that no agent sends.
        is_registered: tells whether an agent is registered here.
        new_id: returns a new UUID of version 4.
    """

    runner: NodeRunner
    name: str
    settings: AacpSection
    is_registered: Callable[[str], bool]
    new_id: Callable[[], str]

    def make(
        self,
        message_type: MessageType,
        target_agent_id: str,
        message: Any,
        *,
        request_id: str | None = None,
        ttl_ms: int | None = None,
        delay_ms: int | None = None,
        not_before: datetime | None = None,
        priority: int = 0,
        retry: ExecutionRetries | None = None,
        principal: Principal | None = None,
    ) -> OutgoingMessage:
        """Return a message to enter in the ledger.

        Args:
            message_type: REQUEST or EVENT.
            target_agent_id: the receiver.
            message: an `AgentMessage`, or the payload of one.
            request_id, ttl_ms, delay_ms, not_before, priority, retry, principal: as in
                `MessageOptions`.

        Raises:
            AgentNotFoundError, ToolError: it cannot be sent.
        """
        key = None if request_id is None else check_request_id(request_id)
        self.check_target(target_agent_id)
        now_ms, message_id = self.runner.now_ms(), self.new_id()
        not_before_ms = _begin(delay_ms, not_before, now_ms)
        options = None
        if not_before_ms is not None or priority or retry is not None:
            options = _options(not_before_ms, priority, retry)
        # An event needs an id beside its message id only if it was given one, or has an owner.
        if key is None and (message_type is MessageType.REQUEST or principal is not None):
            key = self.new_id() if message_type is MessageType.REQUEST else message_id
        return self._outgoing(
            message_type,
            message_id,
            None if key is None else owned_id(key, identity_of(principal)),
            self.source(),
            target_agent_id,
            self.encode(message),
            now_ms,
            milliseconds(ttl_ms, self.settings.default_ttl_ms),
            options,
        )

    def make_batch(
        self,
        target_agent_id: str,
        messages: Sequence[Any],
        request_ids: Sequence[str] | None,
        **options: Unpack[BatchOptions],
    ) -> list[OutgoingMessage]:
        """Return REQUESTs that are entered together or not at all (AACP-169).

        Raises:
            AgentNotFoundError, ToolError: they cannot be sent.
        """
        if not isinstance(messages, list | tuple) or len(messages) > MAX_BATCH:
            raise invalid(f"A batch is a list of at most {MAX_BATCH} messages.", "invalid_batch")
        ids = [None] * len(messages) if request_ids is None else request_ids
        if request_ids is not None and not len(messages) == len(ids) == len(set(ids)):
            raise invalid("A batch has one id for each message, all distinct.", "invalid_batch")
        batch = [
            self.make(MessageType.REQUEST, target_agent_id, message, request_id=key, **options)
            for message, key in zip(messages, ids, strict=True)
        ]
        for each in batch:
            each.batch = batch[0].message_id
        return batch

    def make_run(self, schedule: Schedule, run_at_ms: int, now_ms: int) -> OutgoingMessage:
        """Return the REQUEST of a schedule's run (AACP-143)."""
        return self._outgoing(
            MessageType.REQUEST,
            self.new_id(),
            run_id(schedule.name, run_at_ms),
            self.name,
            schedule.target_agent_id,
            schedule.payload,
            now_ms,
            schedule.ttl_ms,
        )

    def make_submission(
        self, target_agent_id: str, message: Any, **options: Unpack[MessageOptions]
    ) -> SubmittedRequest:
        """Return a REQUEST for a transaction of the application (AACP-150).

        Args:
            target_agent_id: the receiver.
            message: an `AgentMessage`, or the payload of one.
            options: `MessageOptions`.

        Raises:
            AgentNotFoundError, ToolError: it cannot be sent.
        """
        return submission_of(self.make(MessageType.REQUEST, target_agent_id, message, **options))

    def check_target(self, target_agent_id: str) -> None:
        """Raise the error of a target to which nothing can be sent.

        Raises:
            AgentNotFoundError, ToolError: nothing can be sent to it.
        """
        if type(target_agent_id) is str and self.is_registered(target_agent_id):
            return
        if not is_agent_id(target_agent_id):
            raise invalid("The target must be the id of an agent.", "invalid_agent_id")
        if self.runner.transport is None and not self.runner.store.shared:
            raise AgentNotFoundError(target_agent_id)

    def source(self) -> str:
        """Return the source of what is sent now: the agent that handles a message, or the host."""
        entry = current_entry()
        return self.name if entry is None else entry.mailbox.agent_id

    def encode(self, message: Any) -> bytes:
        """Return a message as the ledger keeps it.

        Raises:
            ToolError: JSON cannot represent it, or it is too large.
        """
        return encode_message(message, max_payload_bytes(self.settings, self.runner.transport))

    def _outgoing(
        self,
        message_type: MessageType,
        message_id: str,
        key: str | None,
        source_agent_id: str,
        target_agent_id: str,
        payload: bytes,
        now_ms: int,
        ttl_ms: int,
        options: RequestOptions | None = None,
    ) -> OutgoingMessage:
        node, registered = self.runner.node, self.is_registered(target_agent_id)
        local = registered or self.runner.transport is None  # its queue is here (AACP-42)
        return OutgoingMessage(
            message_id,
            key,
            source_agent_id,
            target_agent_id,
            message_type,
            payload,
            digest_of(source_agent_id, target_agent_id, message_type, payload),
            now_ms,
            begin_of(options, now_ms) + ttl_ms,
            local,
            0 if local else now_ms + node.sending.backoff_delay_ms(1),
            options,
        )

    async def enter(self, messages: Sequence[OutgoingMessage], timeout: float) -> None:
        """Enter a message or a batch; wait until it is in the ledger, `timeout` seconds at most.

        Raises:
            OutcomeUnknownError, LedgerRefusalError, RequestConflictError, StoreError: it is not,
                as far as is known.
        """
        waiters = self.runner.waiters
        entered = waiters.open(timeout, given_id(messages[0].key))
        try:
            self._enter(messages, entered)
            appended: Appended = await entered
        finally:
            waiters.close(entered, timeout)
        if appended.verdict is EntryVerdict.FULL:
            raise LedgerRefusalError
        if appended.verdict is EntryVerdict.CONFLICT and appended.existing is not None:
            taken = given_id(appended.existing.request_id)
            raise RequestConflictError(conflict_error(taken))

    async def outcome(
        self, message: OutgoingMessage, timeout: float, abort_signal: AbortSignal | None
    ) -> RequestRecord:
        """Enter a REQUEST and return its record when it is finished, in `timeout` seconds at most.

        Raises:
            OutcomeUnknownError, LedgerRefusalError, RequestConflictError, AbortError: it is not.
        """
        runner, given = self.runner, given_id(message.key)
        finished: asyncio.Future[RequestRecord] = runner.waiters.open(timeout, given)
        # First: it may be finished before this task learns that it was entered.
        runner.node.outcomes.wait_for(message.key, finished, message.created_at_ms)
        remove = _nothing if abort_signal is None else abort_signal.fail(finished)
        try:
            self._enter([message], _EntryWaiter(given, finished))
            record = await finished
        except StoreError as error:
            raise OutcomeUnknownError(given) from error
        finally:
            runner.waiters.close(finished, timeout)
            remove()
            runner.node.outcomes.stop_waiting(message.key, finished)
            # Its exception has this frame in its traceback: the two would keep the message until
            # the garbage collector runs (RES-13).
            del finished, remove
        if record.digest != message.digest:
            # Another request of this id was finished before this one was refused.
            raise RequestConflictError(conflict_error(given))
        return record

    def _enter(self, messages: Sequence[OutgoingMessage], waiter: Any) -> None:
        runner = self.runner
        backlog, number = runner.node.backlog, len(messages)
        size = sum(len(message.payload) for message in messages)
        # A message that need not wait is never refused, however large it is.
        may_be_refused = backlog.records or number > 1
        if may_be_refused and not backlog.has_room(messages[0].request_id, number, size):
            raise ToolError(
                ErrorCode.RESOURCE_EXHAUSTED,
                "Too many messages wait for the ledger; try again later, or send fewer at once.",
                {"reason": "ledger_backlog"},
            )
        runner.node.exchange.send(messages, waiter)
        runner.kick()


@define(eq=False, repr=False)
class _EntryWaiter:
    """The waiter for a request's entry: passes on what that decides to the waiter for its end."""

    request_id: str
    finished: asyncio.Future[RequestRecord]

    def done(self) -> bool:
        """Return whether the request's waiter is resolved, as `asyncio.Future.done` does."""
        return self.finished.done()

    def set_result(self, appended: Appended) -> None:
        """Pass on that the ledger refused the request, or had finished it before."""
        if appended.verdict is EntryVerdict.CONFLICT:
            self.finished.set_exception(RequestConflictError(conflict_error(self.request_id)))
        elif appended.verdict is EntryVerdict.FULL:
            self.finished.set_exception(LedgerRefusalError())
        elif appended.existing is not None and appended.existing.state in TERMINAL:
            self.finished.set_result(appended.existing)

    def set_exception(self, error: Exception) -> None:
        """Pass on that the request may not be in the ledger."""
        self.finished.set_exception(error)


def _options(
    not_before_ms: int | None, priority: int, retry: ExecutionRetries | None
) -> RequestOptions:
    if not is_priority(priority):
        raise invalid(f"A priority is an integer from 0 to {MAX_PRIORITY}.", "invalid_priority")
    if retry is not None and not isinstance(retry, ExecutionRetries):
        raise invalid("retry is an ExecutionRetries.", "invalid_retry")
    return RequestOptions(not_before_ms, priority, None if retry is None else retry.to_json())


def _begin(delay_ms: int | None, not_before: datetime | None, now_ms: int) -> int | None:
    """Return when a message may be executed, in ms since 1970; None: now.

    Raises:
        ToolError: INVALID_ARGUMENT, it is no such time.
    """
    if not_before is None:
        return now_ms + milliseconds(delay_ms, 0) if delay_ms else None
    if delay_ms is not None:
        raise invalid("Give delay_ms or not_before, not both.", "invalid_time")
    is_time = isinstance(not_before, datetime)
    if not is_time or not_before.utcoffset() is None:
        raise invalid("not_before is a datetime with a time zone.", "invalid_time")
    at_ms = int(not_before.timestamp() * 1000)
    if at_ms - now_ms > _MAX_AHEAD_MS:
        raise invalid("not_before is at most ten years ahead.", "invalid_time")
    return at_ms if at_ms > now_ms else None


def _nothing() -> None:
    pass
