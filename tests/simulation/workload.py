"""What agents ask of one another, and what they do when they are asked.

A payload is `{"n": number}`; the result of a request names that number and the number of the
execution it came from, so that everybody who sees a result can say whose it is.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field

from foundation_rt.agents.ledger.node import Node
from foundation_rt.agents.ledger.request_options import ExecutionRetries, RequestOptions
from foundation_rt.agents.ledger.rules import digest_of
from foundation_rt.agents.ledger.types import (
    TERMINAL,
    Appended,
    EntryVerdict,
    MessageType,
    OutgoingMessage,
    RequestRecord,
    RequestState,
)

from .accounts import Violation
from .faults import Fault
from .scenario import Scenario

if TYPE_CHECKING:
    from .process import Process
    from .simulator import Simulator

_MAX_BURSTS = 30
_OTHER = 1_000_000
"""Added to the number of an order whose request id is that of another."""


def result_of(payload: bytes, run: int) -> bytes:
    """Return the handler's answer in its `run`-th execution, counted over all handlers."""
    return b'%s,"run":%d}' % (payload[:-1], run)


@define(eq=False)
class Order:
    """A message that an agent is to send.

    Attributes:
        number: of the payload.
        request_id: None leaves the id to the sender, for an EVENT it has none then.
        patience_ms: how long the caller of a REQUEST waits.
        delay_ms, priority, retries: its options, if any.
    """

    at_ms: int
    number: int
    source: str
    target: str
    message_type: MessageType
    request_id: str | None
    patience_ms: int
    delay_ms: int = 0
    priority: int = 0
    retries: ExecutionRetries | None = None


def draw_orders(rng: Random, scenario: Scenario) -> list[Order]:
    """Send requests and events between all agents in bursts, some again, some in conflict."""
    agents = list(scenario.agents)
    options = rng.choice((1, 0.9, 0.5))  # without, with some, with many
    bursts = [rng.randrange(scenario.heal_ms) for _ in range(rng.randint(1, _MAX_BURSTS))]
    orders: list[Order] = []
    for number in range(scenario.requests):
        order = Order(
            rng.choice(bursts),
            number,
            rng.choice(agents),
            rng.choice(agents),
            MessageType.EVENT if rng.random() < 0.2 else MessageType.REQUEST,
            f"r{number}" if rng.random() < 0.9 else None,
            rng.choice((200, 2_000, 600_000)),
        )
        if order.message_type is MessageType.EVENT and rng.random() < 0.7:
            order.request_id = None
        if options < rng.random():
            _draw_options(rng, order)
        orders.append(order)
        if order.request_id is not None and rng.random() < 0.15:
            orders.append(_again(rng, order, scenario))
    return orders


def _draw_options(rng: Random, order: Order) -> None:
    if rng.random() < 0.5:
        order.delay_ms = rng.choice((1, 50, 500, 3_000))
    if rng.random() < 0.5:
        order.priority = rng.choice((1, 1, 5, 9))
    if rng.random() < 0.5:
        order.retries = ExecutionRetries(
            attempts=rng.choice((1, 2, 5)),
            base_delay_ms=rng.choice((1, 100, 1_000)),
            max_delay_ms=2_000,
            final=rng.choice(((), ("INTERNAL",))),
        )


def _again(rng: Random, order: Order, scenario: Scenario) -> Order:
    """Send the same request once more, at once or later; or another one with its id."""
    at_ms = min(order.at_ms + rng.choice((0, 5, 300, 3_000)), scenario.heal_ms)
    if rng.random() < 0.3:
        return evolve(order, at_ms=at_ms, number=order.number + _OTHER)
    return evolve(order, at_ms=at_ms)


def _options(order: Order, now_ms: int) -> RequestOptions | None:
    if not (order.delay_ms or order.priority or order.retries):
        return None
    return RequestOptions(
        now_ms + order.delay_ms if order.delay_ms else None,
        order.priority,
        None if order.retries is None else order.retries.to_json(),
    )


@define(eq=False, repr=False)
class Call:
    """An order that was given to a node; the waiter of its sender.

    Attributes:
        life: of the process, when it was given.
        entered: the ledger has it.
        refused: its id belonged to another request.
        record: what the caller was told.
        gave_up: the caller waits no longer.
    """

    order: Order
    outgoing: OutgoingMessage
    process: Process
    life: int
    entered: bool = False
    refused: bool = False
    record: RequestRecord | None = None
    gave_up: bool = False


@define(eq=False, repr=False)
class Workload:
    """Gives orders to the processes of their senders, and sees what becomes of them."""

    simulator: Simulator
    calls: list[Call] = field(factory=list, init=False)
    to_submit: int = field(default=0, init=False)
    _waiting: dict[int, list[Order]] = field(factory=dict, init=False)
    _said: set[str] = field(factory=set, init=False)

    def plan(self, orders: list[Order]) -> None:
        """Have all orders submitted at their times."""
        self.to_submit = len(orders)
        for order in orders:
            self.simulator.after(order.at_ms, self.submit, order)

    def submit(self, order: Order) -> None:
        """SendEnvelopes, from the process with which the sender is registered, when it runs."""
        process = self.simulator.processes[self.simulator.directory[order.source]]
        if not process.is_up:
            self._waiting.setdefault(process.number, []).append(order)
            return
        if process.paused_ms > 0:
            self.simulator.after(process.paused_ms, self.submit, order)
            return
        self.to_submit -= 1
        self._count(order)
        call = Call(order, self._outgoing(order, process), process, process.life)
        self.calls.append(call)
        if order.message_type is MessageType.REQUEST:
            process.node.outcomes.wait_for(call.outgoing.key, call, process.now_ms)
            self.simulator.after(order.patience_ms, self._lose_patience, call)
        process.send(call)

    def resume(self, process: int) -> None:
        """Send what waited for a process that is up."""
        for order in self._waiting.pop(process, ()):
            self.submit(order)

    def _count(self, order: Order) -> None:
        if order.number >= _OTHER:
            self.simulator.dice.count(Fault.CONFLICT)
            self.simulator.witness.contested.add(order.request_id or "")
        elif order.request_id is not None:
            if order.request_id in self._said:
                self.simulator.dice.count(Fault.REPEATED)
            self._said.add(order.request_id)

    def _outgoing(self, order: Order, process: Process) -> OutgoingMessage:
        """As `AgentCoordinatorV2` makes it."""
        node: Node = process.node
        now_ms = process.now_ms
        payload = b'{"n":%d}' % order.number
        request_id = order.request_id
        if request_id is None and order.message_type is MessageType.REQUEST:
            request_id = self.simulator.new_id()
        return OutgoingMessage(
            self.simulator.new_id(),
            request_id,
            order.source,
            order.target,
            order.message_type,
            payload,
            digest_of(order.source, order.target, order.message_type, payload),
            now_ms,
            now_ms + self.simulator.scenario.ttl_ms,
            order.target in process.executor.slots or not node.settings.has_transport,
            now_ms + node.retransmitter.backoff_delay_ms(1),
            options=_options(order, now_ms),
        )

    def _lose_patience(self, call: Call) -> None:
        """Let the caller go on without the outcome (AACP-26)."""
        if call.record is None and not call.refused and call.process.life == call.life:
            call.gave_up = True
            call.process.node.outcomes.stop_waiting(call.outgoing.key, call)

    # -- what senders are told ----------------------------------------------------------------

    def answered(self, call: Call, answer: Any) -> None:
        """Take the answer of a node for a sender."""
        if isinstance(answer, Appended):
            self._entered(call, answer)
        elif isinstance(answer, RequestRecord):
            self._finished(call, answer)
        else:
            raise Violation("told", f"{call.outgoing.key}: {answer!r}")

    def _entered(self, call: Call, appended: Appended) -> None:
        if appended.verdict is EntryVerdict.CONFLICT:
            call.refused = True
            call.process.node.outcomes.stop_waiting(call.outgoing.key, call)
            return
        call.entered = True
        existing = appended.existing
        if existing is not None and existing.state in TERMINAL and not call.gave_up:
            call.process.node.outcomes.stop_waiting(call.outgoing.key, call)
            self._finished(call, existing)

    def _finished(self, call: Call, record: RequestRecord) -> None:
        if call.gave_up or call.refused:
            raise Violation("told", f"{call.outgoing.key}: a void waiter got an answer")
        if call.record is None:
            self.simulator.witness.answered(record)
            self._check_own(call, record)
            call.record = record

    def _check_own(self, call: Call, record: RequestRecord) -> None:
        if not call.entered or call.outgoing.key in self.simulator.witness.reused:
            return  # the waiter waited for an id that turns out to be another's
        if record.payload != call.outgoing.payload:
            raise Violation("identity", f"{call.outgoing.key} got what another was told")

    # -- the end ------------------------------------------------------------------------------

    def unfinished(self) -> str | None:
        """Whose outcome is still to come, in words; None when all have theirs.

        Nobody has to wait for what expired, or was given up on its way here or there.
        """
        if self.to_submit:
            return f"{self.to_submit} messages are not sent"
        for call in self.calls:
            why = self._unfinished(call)
            if why is not None:
                return why
        return None

    def _unfinished(self, call: Call) -> str | None:
        outgoing, process = call.outgoing, call.process
        alive = call.life == process.life
        if alive and not call.entered and not call.refused:
            return f"{outgoing.key} was never entered"
        if call.refused or not call.entered or outgoing.message_type is MessageType.EVENT:
            return None
        record = process.disk.requests.get(outgoing.key)
        if record is None or record.expires_at_ms <= process.now_ms:
            return None
        if record.state in TERMINAL:
            if alive and not call.gave_up and call.record is None:
                return f"{outgoing.key} is finished, and its caller was not told"
            return None
        if record.state is RequestState.SENT and self._will_not_be_answered(record):
            return None
        if record.state is RequestState.HELD and self._is_orphan(record):
            return None
        return f"{outgoing.key} is {record.state}"

    def _is_orphan(self, record: RequestRecord) -> bool:
        """Whether what comes before it may have been in a ledger that was lost."""
        ends = (record.source_agent_id, record.target_agent_id)
        numbers = {self.simulator.disk_of(agent_id).number for agent_id in ends}
        return not self.simulator.lost.isdisjoint(numbers)

    def _will_not_be_answered(self, record: RequestRecord) -> bool:
        """Return whether request or answer became a tombstone, or was lost with its ledger."""
        simulator, witness = self.simulator, self.simulator.witness
        if simulator.disk_of(record.target_agent_id).number in simulator.lost:
            return True
        there = (record.source_agent_id, record.target_agent_id)
        back = (record.target_agent_id, record.source_agent_id)
        if witness.is_void(
            there, simulator.disk_of(record.source_agent_id).incarnation, record.seq
        ):
            return True
        incarnation = simulator.disk_of(record.target_agent_id).incarnation
        answers = witness.sent_on(back, incarnation).messages
        return any(
            witness.is_void(back, incarnation, seq)
            for seq, (kind, request_id, _) in enumerate(answers, 1)
            if kind is MessageType.RESPONSE and request_id == record.request_id
        )
