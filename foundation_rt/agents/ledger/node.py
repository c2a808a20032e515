"""One participant of AACP: decides what is done when, and does nothing itself.

A node takes in what happens (an agent sends, envelopes arrive, a handler ends, the ledger answers,
time passes) and gives out `effects`: operations of the ledger, envelopes to send, requests to
execute. Whoever performs them reports back: `runner` in a process, the simulator in tests. Time
comes in as `now_ms`, ids and chance come from what the node was made with.

The order of work (AACP-17) is the order of the continuations below: what an operation of the ledger
leads to is decided when it has succeeded, and not before. Of each kind of operation at most one is
under way; what comes up meanwhile goes into the next, so that load makes batches, and batches share
one commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import orjson
from attrs import Factory, define, evolve, field, frozen

from ...errors import ErrorCode, StructuredError
from ..stores.memory_usage import MemoryLimits, Usage
from .effects import (
    Abandon,
    Effect,
    Execute,
    NoticeAbandoned,
    NoticeFailure,
    NoticeOutdated,
    NoticeReceived,
    NoticeSettled,
    Operation,
    Persist,
    Resolve,
    Send,
    Waiter,
)
from .retransmitter import Retransmitter
from .rules import digest_of
from .status import recorded_error
from .types import (
    TERMINAL,
    VOID_PAYLOAD,
    Appended,
    Claim,
    Claimed,
    Completed,
    Completion,
    Due,
    Envelope,
    IncomingEnvelope,
    Link,
    MessageRecord,
    MessageType,
    OutgoingMessage,
    Received,
    Release,
    RequestRecord,
    RequestState,
    Verdict,
)

if TYPE_CHECKING:
    from ..messages import Write

_MAX_CACHED_ACKS = 10_000


@frozen
class NodeSettings:
    """Limits and intervals, in ms.

    Attributes:
        owner: names this node, in this life, in its claims.
        lease_ms: how long a claim lasts unless it is renewed; it is, three times in that time.
        ttl_ms: lifetime of messages that do not state their own.
        poll_ms: how often a shared ledger is looked at unasked.
        purge_ms: how often expired records are deleted.
        store_retry_ms: after which a failed operation of the ledger is tried again.
        max_batch: the most that one operation of the ledger takes of what waits for it.
        max_held_by_agent: the most claims held at once for one agent.
        has_transport: whether there are other ledgers to send to.
        shared: whether other processes use this ledger.
    """

    owner: str
    lease_ms: int = 30_000
    ttl_ms: int = 86_400_000
    poll_ms: int = 1_000
    purge_ms: int = 60_000
    store_retry_ms: int = 500
    max_batch: int = 500
    max_held_by_agent: int = 100
    has_transport: bool = False
    shared: bool = False


@define(eq=False, repr=False)
class _Lane:
    """One kind of operation: what waits for it, and whether one is under way.

    Attributes:
        in_doubt: the last one failed, and may have happened.
    """

    pending: list[Any] = field(factory=list)
    wanted: bool = False
    busy: bool = False
    in_doubt: bool = False
    not_before_ms: int = 0


@define(eq=False, repr=False)
class _Seat:
    """An agent that is here.

    Attributes:
        held: how many claims are held for it.
        room: how many may be. It begins with one, and has twice as many with every outcome that is
            recorded: so what is claimed ahead, and may be lost with this process, is in proportion
            to what it gets done.
    """

    held: int = 0
    room: int = 1


@define(eq=False, repr=False)
class Node:
    """See the module."""

    settings: NodeSettings
    new_id: Callable[[], str]
    retransmitter: Retransmitter
    sending: Retransmitter = field(
        default=Factory(lambda node: node.retransmitter, takes_self=True), kw_only=True
    )
    """Decides when messages are sent again; `retransmitter`, when requests are executed again."""
    notices: bool = False
    """Whether `NoticeReceived` and `NoticeSettled` are wanted."""
    backlog: Usage = field(factory=lambda: Usage(MemoryLimits()), kw_only=True)
    """Messages that are not in the ledger yet, and their payloads: for who sends, to ask first."""
    incarnation: int = 0
    """That of its ledger: to be set when this is open, before anything is sent or comes in."""
    held: dict[str, Claim] = field(factory=dict, init=False)
    """The claims that are being executed, by request id."""
    _agents: dict[str, _Seat] = field(factory=dict, init=False)
    _lanes: dict[Operation, _Lane] = field(init=False)
    _timers: dict[Operation, int] = field(factory=dict, init=False)
    _effects: list[Effect] = field(factory=list, init=False)
    # What is acknowledged: the number, and of which incarnation it is.
    _acks: dict[Link, tuple[int, int]] = field(factory=dict, init=False)
    # Links on which an older ledger still speaks, which was noticed.
    _outdated: set[Link] = field(factory=set, init=False)
    _waiting: dict[str, list[Waiter]] = field(factory=dict, init=False)
    # Messages sent from here whose end is still to be noticed, by the key of their record.
    _unsettled: dict[str, tuple[str, int]] = field(factory=dict, init=False)
    # Those among the claims held that were executed, and whose outcome is being recorded.
    _ended: set[str] = field(factory=set, init=False)
    # Agents for which claims were given back while a CLAIM was under way: what that brings for
    # them is behind those.
    _overtaken: set[str] = field(factory=set, init=False)
    _lost_claims: int = field(default=0, init=False)
    _stopping: bool = field(default=False, init=False)
    _now_ms: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._lanes = {operation: _Lane() for operation in Operation}

    # -- what happens -------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Resume what is pending (AACP-27)."""
        self._want(Operation.PURGE)
        self._want(Operation.CLAIM)
        if self.settings.has_transport:
            self._want(Operation.TAKE_DUE)
        self._now_ms = now_ms

    def stop(self) -> None:
        """Claim nothing any more."""
        self._stopping = True

    def add_agent(self, agent_id: str, now_ms: int) -> None:
        """An agent was registered: what waits for it may be claimed."""
        self._agents.setdefault(agent_id, _Seat())
        self._want(Operation.CLAIM)
        self._now_ms = now_ms

    def remove_agent(self, agent_id: str) -> None:
        """An agent was unregistered; claims that do not run are to be given back."""
        self._agents.pop(agent_id, None)

    def send(self, outgoing: OutgoingMessage, waiter: Waiter, now_ms: int) -> None:
        """Enter a message, then send it; `waiter` is told `Appended`."""
        self._lanes[Operation.APPEND].pending.append((outgoing, waiter))
        self.backlog.change(outgoing.request_id, 1, len(outgoing.payload))
        self._now_ms = now_ms

    def deliver(self, envelopes: Iterable[Envelope], waiter: Waiter, now_ms: int) -> None:
        """Envelopes have come in; `waiter` is told None when they are in the ledger."""
        self._lanes[Operation.RECEIVE].pending.append(
            ([self._incoming(envelope, now_ms) for envelope in envelopes], waiter)
        )
        self._now_ms = now_ms

    def executed(
        self,
        claim: Claim,
        result: bytes | None,
        error: StructuredError | None,
        now_ms: int,
        in_transaction: Write | None = None,
    ) -> None:
        """A handler has ended, with a result in JSON or with an error (AACP-13, AACP-23).

        Args:
            in_transaction: what it wants to have written with its outcome (AACP-05).
        """
        if self.held.get(claim.request_id) is not claim:
            return  # it was lost meanwhile
        if error is not None and self.retransmitter.should_execute_again(claim.executions, error):
            delay = self.retransmitter.backoff_delay_ms(claim.executions)
            behind = self._held_behind(claim)
            self.give_back(claim, now_ms, now_ms + delay, begun=True)
            for each in behind:
                self.give_back(each, now_ms)
            return
        completion = Completion(
            claim.request_id,
            claim.epoch,
            RequestState.COMPLETED if error is None else RequestState.FAILED,
            result,
            None if error is None else orjson.dumps(error.to_wire()),
            *self._reply(now_ms),
            in_transaction,
        )
        self._lanes[Operation.COMPLETE].pending.append((completion, claim))
        self._ended.add(claim.request_id)
        self._now_ms = now_ms

    def give_back(
        self, claim: Claim, now_ms: int, not_before_ms: int | None = None, *, begun: bool = False
    ) -> None:
        """A claim is not executed, or not any more: it may be claimed again (AACP-25).

        Args:
            begun: whether its execution was begun, and so counts (AACP-13, AACP-46).
        """
        if self.held.get(claim.request_id) is claim:
            self._let_go(claim)
            if self._lanes[Operation.CLAIM].busy:
                self._overtaken.add(claim.target_agent_id)
            self._release(claim, not_before_ms, begun)
            self._now_ms = now_ms

    def _release(self, claim: Claim, not_before_ms: int | None, begun: bool) -> None:
        executions = claim.executions if begun else claim.executions - 1
        release = Release(claim.request_id, claim.epoch, executions, not_before_ms)
        self._lanes[Operation.RELEASE].pending.append(release)

    def _held_behind(self, claim: Claim) -> list[Claim]:
        """What must not be executed before a request that will be executed again (AACP-04)."""
        held = list(self.held.values())
        return [
            each
            for each in held[held.index(claim) + 1 :]
            if each.target_agent_id == claim.target_agent_id and each.request_id not in self._ended
        ]

    def holds(self, claim: Claim) -> bool:
        """Return whether a claim that was given out may still be executed: ask before beginning."""
        return self.held.get(claim.request_id) is claim

    def wait_for(self, request_id: str, waiter: Waiter, now_ms: int) -> None:
        """Have `waiter` told the record of a request when it is finished."""
        self._waiting.setdefault(request_id, []).append(waiter)
        if self.settings.shared:
            self._arm(Operation.LOOK_UP, now_ms + self.settings.poll_ms)

    def stop_waiting(self, request_id: str, waiter: Waiter) -> None:
        """The waiter is void."""
        waiters = self._waiting.get(request_id, [])
        if waiter in waiters:
            waiters.remove(waiter)
        if not waiters:
            self._waiting.pop(request_id, None)

    def look_around(self, now_ms: int) -> None:
        """Others may have changed the ledger."""
        self._want(Operation.CLAIM)
        if self._waiting:
            self._want(Operation.LOOK_UP)
        self._now_ms = now_ms

    def process_retries_once(self, now_ms: int) -> None:
        """Send again what is due now; a tick does the same when it is time."""
        self._want(Operation.TAKE_DUE)
        self._now_ms = now_ms

    def rescheduled(self, message: MessageRecord, now_ms: int, *, given_up: bool) -> None:
        """One message is due at another time, or was given up, by the host (AACP-50)."""
        if message.next_attempt_at_ms is not None:
            self._arm(Operation.TAKE_DUE, message.next_attempt_at_ms)
        if given_up:
            self._notice_end(message.request_id or message.message_id, _GIVEN_UP)
        self._now_ms = now_ms

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        for operation, due_ms in list(self._timers.items()):
            if due_ms <= now_ms:
                del self._timers[operation]
                self._want(operation)
        self._now_ms = now_ms

    def shift_timers(self, by_ms: int) -> None:
        """The clock was put right: what is due in a while is still due in that while."""
        for operation in self._timers:
            self._timers[operation] += by_ms
        for lane in self._lanes.values():
            lane.not_before_ms += by_ms

    @property
    def wake_at_ms(self) -> int | None:
        """When `tick` is due; None when nothing waits for time to pass."""
        return min(self._timers.values(), default=None)

    @property
    def is_quiet(self) -> bool:
        """Return whether no operation of the ledger is under way or waits to be."""
        return not any(lane.busy or lane.pending for lane in self._lanes.values())

    def take_effects(self) -> list[Effect]:
        """What is to be done now, in this order.

        Operations of the ledger begin here, so that all that was told to the node before makes one.
        """
        self._flush(self._now_ms)
        effects, self._effects = self._effects, []
        return effects

    # -- operations of the ledger -------------------------------------------------------------

    def _want(self, operation: Operation) -> None:
        self._lanes[operation].wanted = True

    def _arm(self, operation: Operation, due_ms: int) -> None:
        armed = self._timers.get(operation)
        if armed is None or due_ms < armed:
            self._timers[operation] = due_ms

    def _flush(self, now_ms: int) -> None:
        """Begin every operation that is wanted and not under way."""
        for operation, lane in self._lanes.items():
            if lane.busy or not (lane.pending or lane.wanted):
                continue
            if lane.not_before_ms > now_ms:
                self._arm(operation, lane.not_before_ms)
                continue
            lane.wanted = False
            batch = lane.pending[: self.settings.max_batch]
            arguments = _ARGUMENTS[operation](self, batch, now_ms)
            if arguments is not None:
                del lane.pending[: len(batch)]
                lane.busy = True
                self._effects.append(Persist(operation, arguments, batch))

    def persisted(self, persist: Persist, result: Any, now_ms: int) -> None:
        """An operation has succeeded: go on with what it leads to."""
        lane = self._lanes[persist.operation]
        lane.busy = False
        lane.not_before_ms = 0
        if lane.in_doubt:
            lane.in_doubt = False
            for consequence in _CONSEQUENCES.get(persist.operation, ()):
                self._want(consequence)
        _CONTINUATIONS[persist.operation](self, persist, result, now_ms)
        self._now_ms = now_ms

    def failed(self, persist: Persist, error: Exception, now_ms: int) -> None:
        """An operation may have happened or not: it is repeated after a while (AACP-30).

        What came in is not kept for that: it was not acknowledged, so it comes again.
        """
        lane = self._lanes[persist.operation]
        lane.busy = False
        lane.not_before_ms = now_ms + self.settings.store_retry_ms
        if persist.operation is Operation.RECEIVE:
            self._effects += [Resolve(waiter, error) for _, waiter in persist.batch]
        elif persist.operation in _QUEUED:
            lane.pending[:0] = persist.batch
        elif persist.operation is Operation.CLAIM:
            self._forget_claims()
        lane.wanted = lane.in_doubt = True
        self._arm(persist.operation, lane.not_before_ms)
        self._now_ms = now_ms

    # -- their arguments ----------------------------------------------------------------------

    def _forget_claims(self) -> None:
        """What a failed CLAIM may have claimed belongs to nobody, and must lapse before it, or what
        is behind it, is claimed again: as of another owner it bars the way (AACP-22)."""
        self._lost_claims += 1
        self._overtaken.clear()

    @property
    def _owner(self) -> str:
        owner = self.settings.owner
        return f"{owner}+{self._lost_claims}" if self._lost_claims else owner

    def _append_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        return ([outgoing for outgoing, _ in batch], now_ms)

    def _receive_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        arrivals = [incoming for arrivals, _ in batch for incoming in arrivals]
        return (arrivals, now_ms, self.settings.ttl_ms)

    def _claim_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        wanted = {
            agent_id: seat.room - seat.held
            for agent_id, seat in self._agents.items()
            if seat.held < seat.room
        }
        releases = self._lanes[Operation.RELEASE]
        if self._stopping or not wanted or releases.busy or releases.pending:
            return None  # what is being given back comes before what is behind it
        idle = {agent_id for agent_id in wanted if not self._agents[agent_id].held}
        return (wanted, self._owner, now_ms, now_ms + self.settings.lease_ms, idle)

    def _complete_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        return ([completion for completion, _ in batch], now_ms)

    def _renew_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        batch += [(claim, claim.epoch) for claim in self.held.values()]
        if not batch:
            return None
        claims = [(claim.request_id, epoch) for claim, epoch in batch]
        return (claims, now_ms + self.settings.lease_ms)

    def _release_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        return (batch,)

    def _take_due_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        sending = self.sending

        def decide(message: MessageRecord) -> int | None:
            return sending.next_attempt_at_ms(message, now_ms)

        return (now_ms, self.settings.max_batch, decide)

    def _look_up_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        if not self._waiting:
            return None
        self._arm(Operation.LOOK_UP, now_ms + self.settings.poll_ms)
        return (list(self._waiting),)

    def _purge_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        return (now_ms,)

    # -- what they lead to --------------------------------------------------------------------

    def _appended(self, persist: Persist, results: list[Appended], now_ms: int) -> None:
        envelopes = []
        for (outgoing, waiter), appended in zip(persist.batch, results, strict=True):
            self.backlog.change(outgoing.request_id, -1, -len(outgoing.payload))
            self._effects.append(Resolve(waiter, appended))
            if appended.message is not None:
                envelopes.append(self._first_attempt(appended.message))
            if outgoing.local:
                self._want(Operation.CLAIM)
            else:
                self._arm(Operation.TAKE_DUE, outgoing.next_attempt_at_ms)
            if self.notices and appended.verdict is Verdict.NEW:
                self._notice_appended(outgoing, appended.seq)
        self._send(envelopes)

    def _received(self, persist: Persist, received: Received, now_ms: int) -> None:
        for link, ack in received.acks.items():
            self._remember_ack(link, (ack, received.incarnation[link]))
        for envelope in received.outdated:
            self._notice_outdated(envelope)
        self._effects += [Resolve(waiter, None) for _, waiter in persist.batch]
        if self.notices:
            self._effects += [NoticeReceived(envelope) for envelope in received.accepted]
        for message in received.acknowledged:
            if message.message_type is MessageType.EVENT:
                self._notice_end(message.request_id or message.message_id, None)
        for record in received.finished:
            self._settle(record)
        responses = [self._first_attempt(message) for message in received.responses]
        answered = {(each.target_agent_id, each.source_agent_id) for each in responses}
        for message in received.responses:
            if message.next_attempt_at_ms is not None:
                self._arm(Operation.TAKE_DUE, message.next_attempt_at_ms)
        acks = [
            self._bare_ack(link, ack, received.incarnation[link], now_ms)
            for link, ack in received.acks.items()
            if link not in answered
        ]
        self._send(responses + acks)
        if received.ready:
            self._want(Operation.CLAIM)

    def _claimed(self, persist: Persist, claimed: Claimed, now_ms: int) -> None:
        overtaken, self._overtaken = self._overtaken, set()
        for claim in claimed.claims:
            held = self.held.get(claim.request_id)
            if held is not None:
                held.epoch = claim.epoch  # its lease lapsed unnoticed: it goes on
            elif claim.target_agent_id in overtaken or claim.target_agent_id not in self._agents:
                self._release(claim, None, begun=False)
            else:
                self.held[claim.request_id] = claim
                self._agents[claim.target_agent_id].held += 1
                self._begin(claim, now_ms)
        if claimed.claims:
            self._arm(Operation.RENEW, now_ms + self.settings.lease_ms // 3)
        wanted: dict[str, int] = persist.arguments[0]
        counts = Counter(claim.target_agent_id for claim in claimed.claims)
        if any(count == wanted[agent_id] for agent_id, count in counts.items()):
            self._want(Operation.CLAIM)  # there may be more, and room for it by now
        if claimed.next_at_ms is not None:
            self._arm(Operation.CLAIM, max(claimed.next_at_ms, now_ms + 1))
        if self.settings.shared and self._agents:
            self._arm(Operation.CLAIM, now_ms + self.settings.poll_ms)

    def _completed(self, persist: Persist, results: list[Completed], now_ms: int) -> None:
        responses = []
        ended: list[tuple[Completion, Claim]] = persist.batch
        for (completion, claim), completed in zip(ended, results, strict=True):
            record = completed.record
            if completed.failure is not None:
                self._fail_writes(claim, completed.failure, now_ms)
                continue
            if self.held.get(completion.request_id) is claim:
                if record is None and claim.epoch > completion.epoch:
                    # Its lease had lapsed, and it was claimed anew, from here: it still counts.
                    again = evolve(completion, epoch=claim.epoch)
                    self._lanes[Operation.COMPLETE].pending.append((again, claim))
                    continue
                if record is None:
                    self._lose(claim, now_ms)
                else:
                    self._let_go(claim)
                    self._make_room(claim.target_agent_id)
            if record is not None:
                self._settle(record)
            if completed.response is not None:
                responses.append(self._first_attempt(completed.response))
                self._arm(Operation.TAKE_DUE, completion.reply_next_attempt_at_ms)
        self._send(responses)
        self._want(Operation.CLAIM)

    def _renewed(self, persist: Persist, results: list[bool], now_ms: int) -> None:
        renewed: list[tuple[Claim, int]] = persist.batch
        for (claim, epoch), still_held in zip(renewed, results, strict=True):
            is_newest = self.held.get(claim.request_id) is claim and claim.epoch == epoch
            # One that has ended may have been completed, by an operation that seemed to fail.
            if not still_held and is_newest and claim.request_id not in self._ended:
                self._lose(claim, now_ms)
        if self.held:
            self._arm(Operation.RENEW, now_ms + self.settings.lease_ms // 3)

    def _released(self, persist: Persist, result: None, now_ms: int) -> None:
        self._want(Operation.CLAIM)

    def _taken(self, persist: Persist, due: Due, now_ms: int) -> None:
        self._send([self._envelope(message, self.new_id()) for message in due.messages])
        for message in due.given_up:
            self._notice_end(message.request_id or message.message_id, _GIVEN_UP)
        if due.next_at_ms is not None:
            self._arm(Operation.TAKE_DUE, max(due.next_at_ms, now_ms))

    def _looked_up(self, persist: Persist, records: list[RequestRecord], now_ms: int) -> None:
        for record in records:
            if record.state in TERMINAL:
                self._settle(record)

    def _purged(self, persist: Persist, purged: int, now_ms: int) -> None:
        self._arm(Operation.PURGE, now_ms + self.settings.purge_ms)
        if purged and self.settings.has_transport:
            self._want(Operation.TAKE_DUE)  # there may be new tombstones
        for key, (_, expires_at_ms) in list(self._unsettled.items()):
            if expires_at_ms > now_ms:
                break
            del self._unsettled[key]

    # -- parts of that ------------------------------------------------------------------------

    def _begin(self, claim: Claim, now_ms: int) -> None:
        """Have a claim executed, unless that was begun too often and never ended (AACP-46)."""
        if self.retransmitter.may_begin(claim.executions):
            self._effects.append(Execute(claim))
        else:
            self._effects.append(NoticeAbandoned(claim))
            self.executed(claim, None, _abandoned(claim.executions - 1), now_ms)

    def _fail_writes(self, claim: Claim, failure: Exception, now_ms: int) -> None:
        """What a handler wanted to have written with its outcome could not be: it has failed."""
        self._effects.append(NoticeFailure(claim, failure))
        self._ended.discard(claim.request_id)
        self.executed(claim, None, _WRITES_FAILED, now_ms)

    def _lose(self, claim: Claim, now_ms: int) -> None:
        """A claim was lost, and with it what is behind it, unless it only expired."""
        behind = self._held_behind(claim) if claim.expires_at_ms > now_ms else []
        self._let_go(claim)
        if claim.target_agent_id in self._agents:
            self._agents[claim.target_agent_id].room = 1
        self._effects.append(Abandon(claim))
        for each in behind:
            self.give_back(each, now_ms)
            self._effects.append(Abandon(each))
        self._want(Operation.CLAIM)  # there is room again

    def _let_go(self, claim: Claim) -> None:
        del self.held[claim.request_id]
        self._ended.discard(claim.request_id)
        seat = self._agents.get(claim.target_agent_id)
        if seat is not None and seat.held:
            seat.held -= 1

    def _make_room(self, agent_id: str) -> None:
        """An agent has got something done: more may be claimed for it at once."""
        seat = self._agents.get(agent_id)
        if seat is not None:
            seat.room = min(2 * seat.room, self.settings.max_held_by_agent)

    def _settle(self, record: RequestRecord) -> None:
        """A request has its outcome: tell whoever waits for it."""
        self._effects += [
            Resolve(waiter, record) for waiter in self._waiting.pop(record.request_id, ())
        ]
        if record.request_id in self._unsettled:
            self._notice_end(record.request_id, recorded_error(record))

    def _notice_appended(self, outgoing: OutgoingMessage, seq: int) -> None:
        self._unsettled[outgoing.key] = (outgoing.message_id, outgoing.expires_at_ms)
        if not outgoing.local:
            return
        self._effects.append(
            NoticeReceived(
                Envelope(
                    outgoing.message_id,
                    outgoing.request_id,
                    outgoing.source_agent_id,
                    outgoing.target_agent_id,
                    seq,
                    None,
                    outgoing.message_type,
                    outgoing.created_at_ms,
                    outgoing.payload,
                    outgoing.expires_at_ms,
                    incarnation=self.incarnation,
                )
            )
        )
        if outgoing.message_type is MessageType.EVENT:
            self._notice_end(outgoing.key, None)

    def _notice_outdated(self, envelope: Envelope) -> None:
        """Once for each link: what it has stored on its way may be much."""
        link = (envelope.source_agent_id, envelope.target_agent_id)
        if link not in self._outdated:
            if len(self._outdated) >= _MAX_CACHED_ACKS:
                self._outdated.clear()
            self._outdated.add(link)
            self._effects.append(NoticeOutdated(envelope))

    def _notice_end(self, key: str, error: StructuredError | None) -> None:
        unsettled = self._unsettled.pop(key, None)
        if unsettled is not None:
            self._effects.append(NoticeSettled(unsettled[0], error))

    def _reply(self, now_ms: int) -> tuple[str, int]:
        """Id and next attempt of a RESPONSE, should there be one to send."""
        if not self.settings.has_transport:
            return self.new_id(), now_ms
        return self.new_id(), now_ms + self.sending.backoff_delay_ms(1)

    def _incoming(self, envelope: Envelope, now_ms: int) -> IncomingEnvelope:
        if envelope.ack is not None and envelope.ack_incarnation != self.incarnation:
            # It is about the numbers of a ledger that was here before this one (AACP-19).
            envelope = evolve(envelope, ack=None, ack_incarnation=None)
        digest = digest_of(
            envelope.source_agent_id,
            envelope.target_agent_id,
            envelope.message_type,
            envelope.payload,
        )
        return IncomingEnvelope(envelope, digest, *self._reply(now_ms))

    def _send(self, envelopes: list[Envelope]) -> None:
        if envelopes:
            self._effects.append(Send(envelopes))

    def _first_attempt(self, message: MessageRecord) -> Envelope:
        return self._envelope(message, message.message_id)

    def _envelope(self, message: MessageRecord, message_id: str) -> Envelope:
        """One attempt; it takes along what the other direction has received."""
        reverse = (message.target_agent_id, message.source_agent_id)
        ack, ack_incarnation = self._acks.get(reverse, (None, None))
        return message.envelope(message_id, ack, self.incarnation, ack_incarnation)

    def _remember_ack(self, link: Link, ack: tuple[int, int]) -> None:
        if len(self._acks) >= _MAX_CACHED_ACKS:
            self._acks.clear()
        self._acks[link] = ack

    def _bare_ack(self, link: Link, ack: int, ack_incarnation: int, now_ms: int) -> Envelope:
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


_QUEUED = frozenset({Operation.APPEND, Operation.COMPLETE, Operation.RELEASE})
"""The operations that are made of what waits for them."""

_CONSEQUENCES = {
    Operation.RECEIVE: (Operation.CLAIM, Operation.TAKE_DUE, Operation.LOOK_UP),
    Operation.COMPLETE: (Operation.TAKE_DUE,),
}
"""What one that failed may have led to all the same, and nobody was told of."""

_WRITES_FAILED = StructuredError(
    ErrorCode.INTERNAL, "The agent failed.", {"reason": "writes_failed"}
)

_GIVEN_UP = StructuredError(
    ErrorCode.TIMEOUT,
    "The message was given up before it was acknowledged; it may have been received.",
    {"reason": "given_up"},
)


def _abandoned(executions: int) -> StructuredError:
    return StructuredError(
        ErrorCode.INTERNAL,
        f"Its execution was begun {executions} times and never ended: its process died, or lost its"
        " lease, each time.",
        {"reason": "abandoned"},
    )


_ARGUMENTS: dict[Operation, Callable[[Node, list[Any], int], tuple[Any, ...] | None]] = {
    Operation.APPEND: Node._append_arguments,
    Operation.RECEIVE: Node._receive_arguments,
    Operation.CLAIM: Node._claim_arguments,
    Operation.COMPLETE: Node._complete_arguments,
    Operation.RENEW: Node._renew_arguments,
    Operation.RELEASE: Node._release_arguments,
    Operation.TAKE_DUE: Node._take_due_arguments,
    Operation.LOOK_UP: Node._look_up_arguments,
    Operation.PURGE: Node._purge_arguments,
}

_CONTINUATIONS: dict[Operation, Callable[[Node, Persist, Any, int], None]] = {
    Operation.APPEND: Node._appended,
    Operation.RECEIVE: Node._received,
    Operation.CLAIM: Node._claimed,
    Operation.COMPLETE: Node._completed,
    Operation.RENEW: Node._renewed,
    Operation.RELEASE: Node._released,
    Operation.TAKE_DUE: Node._taken,
    Operation.LOOK_UP: Node._looked_up,
    Operation.PURGE: Node._purged,
}
