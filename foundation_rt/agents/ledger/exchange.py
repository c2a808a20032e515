"""Messages that enter the ledger from here and from other ledgers, and that are sent to those."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from attrs import define, evolve, field

from ...errors import ErrorCode, StructuredError
from ..persistence import StoreError
from ..stores.memory_usage import MemoryLimits, Usage
from .awake_agents import AwakeAgents
from .effects import AnyWaiter, NoticeReceived, NoticeSettled, Operation, Persist, ResolveWaiter
from .operations import Operations
from .retransmitter import Retransmitter
from .rules import digest_of, recorded_error
from .types import (
    LOCKED,
    OUTBOX_START,
    TERMINAL,
    VOID_PAYLOAD,
    Appended,
    Due,
    EntryVerdict,
    Envelope,
    Hastened,
    IncomingEnvelope,
    Link,
    Locked,
    MessageRecord,
    MessageType,
    OutboxKey,
    OutgoingMessage,
    Received,
    RequestRecord,
)
from .unit_of_work import new_message


@define(eq=False, repr=False)
class Outcomes:
    """The waiters of a node, by request, and the messages sent from it that are not settled."""

    operations: Operations
    waiting: dict[str, list[AnyWaiter]] = field(factory=dict, init=False)
    # Message id and expiry, by the key of the record.
    _unsettled: dict[str, tuple[str, int]] = field(factory=dict, init=False)

    def wait_for(self, request_id: str, waiter: AnyWaiter, now_ms: int) -> None:
        """Resolve `waiter` with the record of a request when it is finished."""
        self.waiting.setdefault(request_id, []).append(waiter)
        settings = self.operations.settings
        if settings.shared:
            self.operations.arm(Operation.LOOK_UP, now_ms + settings.poll_ms)

    def stop_waiting(self, request_id: str, waiter: AnyWaiter) -> None:
        """Forget a waiter: it is not resolved any more."""
        waiters = self.waiting.get(request_id)
        if waiters is None:
            return
        if waiter in waiters:
            waiters.remove(waiter)
        if not waiters:
            del self.waiting[request_id]

    def settle(self, record: RequestRecord) -> None:
        """Resolve the waiters of a request that has its outcome."""
        for waiter in self.waiting.pop(record.request_id, ()):
            self.operations.effects.append(ResolveWaiter(waiter, record))
        if record.request_id in self._unsettled:
            self.notice_end(record.request_id, recorded_error(record))

    def await_end(self, message: OutgoingMessage) -> None:
        """Notice the end of a message from now on."""
        self._unsettled[message.key] = (message.message_id, message.expires_at_ms)

    def notice_end(self, key: str, error: StructuredError | None) -> None:
        """Notice that a message is completed, or failed with `error`; once."""
        unsettled = self._unsettled.pop(key, None)
        if unsettled is not None:
            self.operations.effects.append(NoticeSettled(unsettled[0], error))

    def look_up_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        """Return the requests that are waited for: another process may have finished one."""
        if not self.waiting:
            return None
        self.operations.arm(Operation.LOOK_UP, now_ms + self.operations.settings.poll_ms)
        return (list(self.waiting),)

    def looked_up(self, persist: Persist, records: list[RequestRecord], now_ms: int) -> None:
        """Settle the requests that are finished."""
        for record in records:
            if record.state in TERMINAL:
                self.settle(record)

    def purged(self, persist: Persist, purged: int, now_ms: int) -> None:
        """Forget the messages that have expired too, the oldest first."""
        settings = self.operations.settings
        # Others get their turn between two batches.
        self.operations.arm(Operation.PURGE, now_ms + (1 if purged else settings.purge_ms))
        if purged and settings.has_transport:
            self.operations.want(Operation.TAKE_DUE)  # there may be new tombstones
        for key, (_, expires_at_ms) in list(self._unsettled.items()):
            if expires_at_ms > now_ms:
                break
            del self._unsettled[key]


_MAX_CACHED_ACKS = 10_000
_MAX_LOST = 10_000

_ROUND_MS = 1_000  # from the end of a round of `Operation.HASTEN` to the next one


@define(eq=False, repr=False)
class Exchange:
    """The messages of a node: APPEND, RECEIVE and TAKE_DUE.

    Attributes:
        retransmitter: decides when messages are sent again.
        notices: whether `NoticeReceived` and `NoticeSettled` are wanted.
        backlog: messages that are not in the ledger yet, and their payloads: a sender asks first.
        incarnation: that of the ledger: set once it is open, before anything is sent or comes in.
    """

    operations: Operations
    outcomes: Outcomes
    awake: AwakeAgents
    retransmitter: Retransmitter
    new_id: Callable[[], str]
    notices: bool = False
    backlog: Usage = field(factory=lambda: Usage(MemoryLimits()))
    incarnation: int = 0
    # Agents that lost messages; None: all may have. Those whose messages are sent again now, when
    # that began, and up to which one they are.
    _lost: set[str | None] = field(factory=set, init=False)
    _round: tuple[list[str], int, OutboxKey] | None = field(default=None, init=False)
    _rests: bool = field(default=False, init=False)
    # The number that is acknowledged, and its incarnation.
    _acks: dict[Link, tuple[int, int]] = field(factory=dict, init=False)
    # Links on which a message of an older ledger was noticed.
    _outdated: set[Link] = field(factory=set, init=False)

    def send(self, messages: Sequence[OutgoingMessage], waiter: AnyWaiter) -> None:
        """Enter a message or a batch, then send it; resolve `waiter` with the first `Appended`."""
        self.operations.add(Operation.APPEND, (messages, waiter), messages[0].target_agent_id)
        for message in messages:
            self.backlog.change(message.request_id, 1, len(message.payload))

    def deliver(self, envelopes: Iterable[Envelope], waiter: AnyWaiter, now_ms: int) -> None:
        """Enter envelopes that have come in; resolve `waiter` with None."""
        incoming = [self._incoming(envelope, now_ms) for envelope in envelopes]
        self.operations.add(Operation.RECEIVE, (incoming, waiter))

    def resend(self, agent_id: str | None) -> None:
        """Send again what an agent has not acknowledged; None: all agents (AACP-100).

        A round takes all agents of which that was said meanwhile, since it may read all messages.
        """
        if len(self._lost) < _MAX_LOST or agent_id is None:
            self._lost.add(agent_id)
        if self._round is None and not self._rests:
            self.operations.want(Operation.HASTEN)

    def rescheduled(self, message: MessageRecord, *, given_up: bool) -> None:
        """Follow a change of one message's next attempt by the host (AACP-50)."""
        if message.next_attempt_at_ms is not None:
            self.operations.arm(Operation.TAKE_DUE, message.next_attempt_at_ms)
        if given_up:
            self._notice_given_up(message)

    # -- operations and their results ---------------------------------------------------------

    def append_arguments(self, batch: list[Any]) -> list[OutgoingMessage]:
        """Return the messages to enter: whole batches, of which the last may exceed the limit."""
        outgoing: list[OutgoingMessage] = []
        for place, (messages, _) in enumerate(batch):
            if len(outgoing) >= self.operations.settings.max_batch:
                del batch[place:]
                break
            outgoing += messages
        return outgoing

    def receive_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...]:
        """Return the envelopes to enter."""
        incoming = [each for envelopes, _ in batch for each in envelopes]
        return (incoming, now_ms, self.operations.settings.ttl_ms)

    def take_due_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...]:
        """Return the decision when each message that is due is sent again after that."""
        retransmitter = self.retransmitter

        def decide(message: MessageRecord) -> int | None:
            return retransmitter.next_attempt_at_ms(message, now_ms)

        return (now_ms, self.operations.settings.max_batch, decide)

    def hasten_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        """Return which messages are due next because their agents have lost them."""
        self._rests = False
        if self._round is None:
            if not self._lost:
                return None
            lost = [each for each in self._lost if each is not None]
            agents = [] if None in self._lost else sorted(lost)
            self._round = (agents, now_ms, OUTBOX_START)
            self._lost.clear()
        agents, began_ms, after = self._round
        return (agents, began_ms, after, self.operations.settings.max_batch)

    def appended(self, persist: Persist, results: Sequence[Appended | Locked], now_ms: int) -> None:
        """Send the messages that were entered for other ledgers; claim those for agents here."""
        operations, envelopes = self.operations, []
        answers = iter(results)
        for item in persist.batch:
            messages, waiter = item
            appended: list[Any] = list(islice(answers, len(messages)))
            if appended[0] is LOCKED:
                operations.delay(Operation.APPEND, item, messages[0].target_agent_id, now_ms)
                continue
            operations.effects.append(ResolveWaiter(waiter, appended[0]))
            for message, answer in zip(messages, appended, strict=True):
                self.backlog.change(message.request_id, -1, -len(message.payload))
                envelope = self.entered(message, answer)
                if envelope is not None:
                    envelopes.append(envelope)
        if LOCKED in results:
            operations.sort_out(Operation.APPEND, lambda item: item[0][0].target_agent_id)
        operations.send(envelopes)

    def entered(self, message: OutgoingMessage, appended: Appended) -> Envelope | None:
        """Have a message that was entered claimed here; return what is to be sent of it now."""
        if message.local:
            if appended.delayed_until_ms is not None:
                self.operations.arm(Operation.QUEUE_DELAYED, appended.delayed_until_ms)
            if appended.claim is None:
                self.awake.wake(message.target_agent_id)
            # What has expired makes way for the others of its queue at once (AACP-98).
            self.operations.arm(Operation.PURGE, message.expires_at_ms)
        else:
            self.operations.arm(Operation.TAKE_DUE, message.next_attempt_at_ms)
        if self.notices and appended.verdict is EntryVerdict.NEW:
            self._notice_appended(message, appended.seq)
        return None if appended.message is None else self.first_attempt(appended.message)

    def received(self, persist: Persist, received: Received, now_ms: int) -> None:
        """Acknowledge what came in, settle what it finished, and answer what is finished here."""
        operations = self.operations
        for link, ack in received.acks.items():
            self._remember_ack(link, (ack, received.incarnation[link]))
        for envelope in received.outdated:
            self._notice_outdated(envelope)
        locked = set(map(id, received.locked))
        for incoming, waiter in persist.batch:
            is_locked = any(id(each.envelope) in locked for each in incoming)
            operations.effects.append(ResolveWaiter(waiter, _LOCKED if is_locked else None))
        if self.notices:
            operations.effects += [NoticeReceived(envelope) for envelope in received.accepted]
        for message in received.acknowledged:
            if message.message_type is MessageType.EVENT:
                self.outcomes.notice_end(message.request_id or message.message_id, None)
        for record in received.finished:
            self.outcomes.settle(record)
        responses = [self.first_attempt(message) for message in received.responses]
        answered = {(each.target_agent_id, each.source_agent_id) for each in responses}
        for message in received.responses:
            if message.next_attempt_at_ms is not None:
                operations.arm(Operation.TAKE_DUE, message.next_attempt_at_ms)
        acks = [
            self.bare_ack(link, ack, received.incarnation[link], now_ms)
            for link, ack in received.acks.items()
            if link not in answered
        ]
        operations.send(responses + acks)
        if received.delayed_until_ms is not None:
            operations.arm(Operation.QUEUE_DELAYED, received.delayed_until_ms)
        if received.ready:
            self.awake.wake_some(target for _, target in received.acks)

    def taken(self, persist: Persist, due: Due, now_ms: int) -> None:
        """Send what was due."""
        self.operations.send([self._envelope(each, self.new_id()) for each in due.messages])
        for message in due.given_up:
            self._notice_given_up(message)
        settings = self.operations.settings
        if due.next_at_ms is not None:
            self.operations.arm(Operation.TAKE_DUE, max(due.next_at_ms, now_ms))
        if settings.shared and settings.has_transport:
            # A process that has no transport, or died, may have entered messages (AACP-118).
            self.operations.arm(Operation.TAKE_DUE, now_ms + settings.outbox_poll_ms)

    def hastened(self, persist: Persist, hastened: Hastened, now_ms: int) -> None:
        """Send a page of messages; go on with the next one, or the next round, after a pause."""
        operations, (agents, began_ms, _, _) = self.operations, persist.arguments
        if hastened.count:
            operations.want(Operation.TAKE_DUE)
        if hastened.last is not None:
            self._round = (agents, began_ms, hastened.last)
            pause_ms = operations.settings.resend_pause_ms if hastened.count else 0
            operations.arm(Operation.HASTEN, now_ms + pause_ms)
            return
        self._round, self._rests = None, True
        operations.arm(Operation.HASTEN, now_ms + _ROUND_MS)

    # -- envelopes ----------------------------------------------------------------------------

    def plan_reply(self, now_ms: int) -> tuple[str, int]:
        """Return id and next attempt of the RESPONSE that an operation may have to send."""
        if not self.operations.settings.has_transport:
            return self.new_id(), now_ms
        return self.new_id(), now_ms + self.retransmitter.backoff_delay_ms(1)

    def first_attempt(self, message: MessageRecord) -> Envelope:
        """Return the envelope of a message's first attempt."""
        return self._envelope(message, message.message_id)

    def _envelope(self, message: MessageRecord, message_id: str) -> Envelope:
        """Return one attempt; it carries the acknowledgement of the other direction."""
        reverse = (message.target_agent_id, message.source_agent_id)
        ack, ack_incarnation = self._acks.get(reverse, (None, None))
        return message.envelope(message_id, ack, self.incarnation, ack_incarnation)

    def bare_ack(self, link: Link, ack: int, ack_incarnation: int, now_ms: int) -> Envelope:
        """Return an envelope that carries only an acknowledgement."""
        source, target = link
        return Envelope(
            self.new_id(),
            None,
            target,
            source,
            0,
            ack,
            MessageType.EVENT,
            now_ms,
            VOID_PAYLOAD,
            incarnation=self.incarnation,
            ack_incarnation=ack_incarnation,
            low_watermark=0,
        )

    def _incoming(self, envelope: Envelope, now_ms: int) -> IncomingEnvelope:
        if envelope.ack is not None and envelope.ack_incarnation != self.incarnation:
            # It acknowledges numbers of a ledger that was here before this one (AACP-19).
            envelope = evolve(envelope, ack=None, ack_incarnation=None)
        digest = digest_of(
            envelope.source_agent_id,
            envelope.target_agent_id,
            envelope.message_type,
            envelope.payload,
        )
        return IncomingEnvelope(envelope, digest, *self.plan_reply(now_ms))

    def _remember_ack(self, link: Link, ack: tuple[int, int]) -> None:
        if len(self._acks) >= _MAX_CACHED_ACKS:
            self._acks.clear()
        self._acks[link] = ack

    # -- notices ------------------------------------------------------------------------------

    def _notice_appended(self, message: OutgoingMessage, seq: int) -> None:
        self.outcomes.await_end(message)
        if not message.local:
            return
        envelope = new_message(message, seq).envelope(message.message_id, None, self.incarnation)
        self.operations.effects.append(NoticeReceived(envelope))
        if message.message_type is MessageType.EVENT:
            self.outcomes.notice_end(message.key, None)

    def _notice_outdated(self, envelope: Envelope) -> None:
        """Notice it once for each link: many such messages may be on their way."""
        link = (envelope.source_agent_id, envelope.target_agent_id)
        if link not in self._outdated:
            if len(self._outdated) >= _MAX_CACHED_ACKS:
                self._outdated.clear()
            self._outdated.add(link)
            what = "messages of an older ledger of this agent are refused"
            ends = {"sourceAgentId": link[0], "targetAgentId": link[1]}
            self.operations.log("warn", what, {**ends, "incarnation": envelope.incarnation})

    def _notice_given_up(self, message: MessageRecord) -> None:
        self.outcomes.notice_end(message.request_id or message.message_id, _GIVEN_UP)


_LOCKED = StoreError("another process keeps rows of the ledger locked")

_GIVEN_UP = StructuredError(
    ErrorCode.TIMEOUT,
    "The message was given up before it was acknowledged; it may have been received.",
    {"reason": "given_up"},
)
