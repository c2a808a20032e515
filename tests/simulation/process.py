"""A process that performs what a node decides, as `NodeRunner` does, and may die.

The node, the executions and the waiters die with it. Its disk stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import define, field

from foundation_rt.agents.ledger.agent_limits import NO_LIMITS
from foundation_rt.agents.ledger.effects import (
    Abandon,
    Execute,
    FollowTime,
    NoticeReceived,
    NoticeSettled,
    Operation,
    Persist,
    ResolveWaiter,
    SendEnvelopes,
    WriteLog,
)
from foundation_rt.agents.ledger.node import Node
from foundation_rt.agents.ledger.retransmitter import Retransmitter
from foundation_rt.agents.ledger.types import LedgerNews
from foundation_rt.agents.persistence import StoreError

from . import locks, schedules
from .disk import Disk
from .executor import SimulatedExecutor, clear_queue
from .faults import Fault
from .network import Packet
from .scenario import START_MS
from .workload import Call

if TYPE_CHECKING:
    from .simulator import Simulator

_DOWN_MS = 3_000
_SHUTDOWN_MS = 50
_SLOW_STORE_MS = 2_000
_GETS_THROUGH = 0.2
"""How likely only the answer of an operation is lost when a process is cut off."""
_AFTER_DEATH = 0.5
"""How likely something happens that was under way when its process died."""

_STORE_ERROR = StoreError("simulated")


@define(eq=False, repr=False)
class Process:
    """One process over its lives.

    Attributes:
        wall_off_ms: how far the clock of its machine is ahead.
        off_ms: how far the time of its node is ahead.
        life: a number that changes when it starts and when it ends.
        disk_is_new: whether its disk has not been used.
    """

    simulator: Simulator
    number: int
    disk: Disk
    wall_off_ms: int
    off_ms: int = field(default=0, init=False)
    life: int = field(default=0, init=False)
    is_up: bool = field(default=False, init=False)
    disk_is_new: bool = field(default=True, init=False)
    node: Node = field(init=False)
    executor: SimulatedExecutor = field(init=False)
    _paused_until: int = field(default=0, init=False)
    _cut_off_until: int = field(default=0, init=False)
    _wake_at: int | None = field(default=None, init=False)
    # Whether the node has learned something while its effects were performed.
    _has_news: bool = field(default=False, init=False)

    @property
    def now_ms(self) -> int:
        """The time of its node."""
        return START_MS + self.simulator.now + self.off_ms

    @property
    def owner(self) -> str:
        """Its name in this life."""
        return f"p{self.number}/{self.life}"

    @property
    def paused_ms(self) -> int:
        """The time that it will do nothing; at most 0 when it is running."""
        return self._paused_until - self.simulator.now

    # -- life and death -----------------------------------------------------------------------

    def start(self) -> None:
        """Begin a life."""
        simulator = self.simulator
        scenario = simulator.scenario
        self.life += 1
        self.is_up, self.disk_is_new = True, False
        self._paused_until, self._cut_off_until, self._wake_at = 0, 0, None
        self.off_ms = self.off_at_start_ms()
        self.node = Node(
            scenario.node_settings(self.number, self.owner),
            simulator.new_id,
            Retransmitter(scenario.policy, simulator.rng.random),
            notices=scenario.notices,
        )
        self.executor = SimulatedExecutor(self)
        self.node.exchange.incarnation = self.disk.incarnation
        simulator.note("start", self.number)
        self.node.start()
        for agent_id, processes in simulator.registered.items():
            if self.number in processes:
                self._add_agent(agent_id)
        scheduled = next(iter(scenario.agents))
        if scenario.has_schedule and self.number in scenario.agents[scheduled]:
            schedules.declare(self, scheduled)
        self.perform()
        if self.is_up:
            simulator.workload.resume(self.number)

    def off_at_start_ms(self) -> int:
        """Return how far the time of a new node is ahead: the runner reads the ledger's first."""
        return 0

    def crash(self) -> None:
        """End at once; a new life begins later."""
        self._end("crash")

    def shut_down(self) -> None:
        """Give back the claims that are not begun, then end without waiting for the ledger."""
        self.node.claims.stop()
        for slot in self.executor.slots.values():
            for claim in clear_queue(slot):
                self.node.claims.give_back(claim)
        self.simulator.after(_SHUTDOWN_MS, self._after_shutdown, self.life)
        self.perform()

    def _after_shutdown(self, life: int) -> None:
        if self.life == life:
            self._end("shutdown")

    def _end(self, how: str) -> None:
        simulator = self.simulator
        simulator.note(how, self.number)
        self.life += 1
        self.is_up, self._paused_until = False, 0
        down_ms = 0 if simulator.healed else simulator.below(_DOWN_MS)
        simulator.after(1 + down_ms, self._restart, None)

    def _restart(self, _: None) -> None:
        self.simulator.dice.count(Fault.RESTART)
        self.start()

    def lose_disk(self, disk: Disk) -> None:
        """End with the ledger; start again with a new one."""
        if self.is_up:
            self._end("ledger lost")
        self.disk, self.disk_is_new = disk, True

    def pause(self, for_ms: int) -> None:
        """Do nothing for so long, and everything that was due after that."""
        self._paused_until = self.simulator.now + for_ms

    def suspend(self, for_ms: int) -> None:
        """Do nothing for so long, and believe afterwards that no time has passed."""
        self.pause(for_ms)
        self.off_ms -= for_ms

    def block(self, for_ms: int) -> None:
        """Let a handler block the event loop for so long; a thread renews leases (AACP-95)."""
        self.pause(for_ms)
        self._keep_leases(self.life)

    def _keep_leases(self, life: int) -> None:
        if self.life != life or self.paused_ms <= 0:
            return
        lease_ms = self.node.settings.lease_ms
        claims = [(each.request_id, each.epoch) for each in self.node.claims.held.values()]
        if claims:
            self._apply(Persist(Operation.RENEW, (claims, self.now_ms + lease_ms), []))
        self.simulator.after(max(1, lease_ms // 6), self._keep_leases, life)

    def cut_off(self, for_ms: int) -> None:
        """Get no answer of the ledger for so long: a network that swallows everything."""
        self._cut_off_until = self.simulator.now + for_ms

    # -- events from outside -----------------------------------------------------------------

    def send(self, call: Call) -> None:
        """Send the message of a caller."""
        self.simulator.note("send", self.number, call.outgoing)
        self.node.exchange.send([call.outgoing], call)
        self.perform()

    def deliver(self, packet: Packet) -> None:
        """Deliver envelopes."""
        self.simulator.note("deliver", self.number, packet[1])
        self.node.exchange.deliver(packet[1], packet, self.now_ms)
        self.perform()

    def hear(self, heard: tuple[int, LedgerNews]) -> None:
        """Look at what an operator has changed, as the coordinator does (AACP-116)."""
        life, news = heard
        if self.life == life and self.paused_ms <= 0:
            self.node.look_around(news)
            self.node.claims.check()
            self.node.operations.want(Operation.TAKE_DUE)
            self.perform()

    def register(self, agent_id: str) -> None:
        """Register an agent."""
        self._add_agent(agent_id)
        self.perform()

    def _add_agent(self, agent_id: str) -> None:
        self.executor.add_agent(agent_id)
        limits = self.simulator.scenario.limits.get(agent_id, NO_LIMITS)
        self.node.claims.add_agent(agent_id, limits)

    def unregister(self, agent_id: str) -> None:
        """Unregister an agent; give back the claims that it has not begun."""
        self.node.claims.remove_agent(agent_id)
        for claim in self.executor.remove_agent(agent_id):
            self.node.claims.give_back(claim)
        self.perform()

    # -- effects of the node ----------------------------------------------------------------

    def perform(self) -> None:
        """Perform what the node has decided."""
        life = self.life
        self._has_news = True
        while self._has_news:
            self._has_news = False
            for effect in self.node.take_effects(self.now_ms):
                _PERFORM[type(effect)](self, effect)
                if self.life != life:
                    return
        self._arm()

    def _arm(self) -> None:
        """Schedule the node's next tick."""
        due_ms = self.node.operations.wake_at_ms
        if due_ms is None:
            return
        wake_at = due_ms - START_MS - self.off_ms
        if self._wake_at is not None and wake_at >= self._wake_at:
            return
        simulator = self.simulator
        wake_at = max(wake_at, simulator.now)
        if self._wake_at is None or wake_at < self._wake_at:
            self._wake_at = wake_at
            simulator.after(wake_at - simulator.now, self._wake, (self.life, wake_at))

    def _wake(self, due: tuple[int, int]) -> None:
        if due != (self.life, self._wake_at):
            return
        if self.paused_ms > 0:
            self._wake_at = self._paused_until
            self.simulator.after(self.paused_ms, self._wake, (self.life, self._wake_at))
            return
        self._wake_at = None
        self.node.operations.tick(self.now_ms)
        self.perform()

    def _execute(self, execute: Execute) -> None:
        if not self.executor.execute(execute.claim):
            self.node.claims.give_back(execute.claim)
            self._has_news = True

    def _abandon(self, abandon: Abandon) -> None:
        self.simulator.note("abandon", self.number, abandon.claim)
        self.executor.abandon(abandon.claim)

    def _send(self, send: SendEnvelopes) -> None:
        simulator = self.simulator
        has_ack = 0 in [envelope.seq for envelope in send.envelopes]
        fault = simulator.dice.on_send(has_ack=has_ack)
        if fault not in (Fault.CRASH_BEFORE_SEND, Fault.CRASH_BEFORE_ACK):
            simulator.note("sent", self.number, send.envelopes)
            simulator.network.send(self.number, send.envelopes)
        if fault is not None:
            self.crash()

    def _resolve(self, resolve: ResolveWaiter) -> None:
        if isinstance(resolve.waiter, Call):
            self.simulator.note("tell", self.number, resolve.waiter.outgoing, resolve.answer)
            self.simulator.workload.answered(resolve.waiter, resolve.answer)
        elif resolve.answer is not None:
            self.simulator.network.redeliver(resolve.waiter)

    def _follow_time(self, effect: FollowTime) -> None:
        self.off_ms += effect.by_ms
        self.simulator.note("follow", self.number, effect.by_ms, self.wall_off_ms)
        self.node.time.followed(effect.by_ms, self.wall_off_ms - self.off_ms)
        self._wake_at = None
        self._has_news = True

    def _notice(self, notice: NoticeReceived | NoticeSettled | WriteLog) -> None:
        self.simulator.note("notice", self.number, notice)

    # -- its ledger ---------------------------------------------------------------------------

    def _persist(self, persist: Persist) -> None:
        simulator = self.simulator
        simulator.witness.asked(self.node.settings, self.node.time.off_ms, persist)
        fault = simulator.dice.on_operation(persist.operation)
        simulator.after(simulator.latency(), self._on_disk, (self.life, persist, fault))

    def _on_disk(self, job: tuple[int, Persist, Fault | None]) -> None:
        """Perform an operation at its time, or its fault."""
        life, persist, fault = job
        if self.life != life:
            if self._still_happens(life) and self.simulator.rng.random() < _AFTER_DEATH:
                self._apply(persist)
        elif self._cut_off_until > self.simulator.now:
            self._lose_answer(persist)
        elif fault is None:
            self._report((life, persist, self._apply(persist)))
        else:
            _STORE_FAULTS[fault](self, persist)

    def _apply(self, persist: Persist) -> Any:
        operation, arguments = persist.operation, persist.arguments
        try:
            if self.disk.locked:
                arguments, result, answer = locks.perform(self.disk, operation, arguments)
            else:
                answer = result = self.disk.perform(operation, arguments)
        except StoreError:
            self.simulator.note("undone", self.number, operation._value_)
            return _STORE_ERROR
        self.simulator.note(operation._value_, self.number, *arguments[:1], "->", answer)
        self.simulator.witness.performed(self.disk, operation, arguments, result)
        return answer

    def _lose_answer(self, persist: Persist) -> None:
        """Let an operation fail late that happened, or never got to the ledger."""
        simulator = self.simulator
        if simulator.rng.random() < _GETS_THROUGH:
            self._apply(persist)
        late_ms = self._cut_off_until - simulator.now
        simulator.after(late_ms, self._report, (self.life, persist, _STORE_ERROR))

    def _report(self, report: tuple[int, Persist, Any]) -> None:
        """Report a result to the node, unless that is gone."""
        life, persist, result = report
        if self.life != life:
            return
        if self.paused_ms > 0:
            self.simulator.after(self.paused_ms, self._report, report)
            return
        if result is _STORE_ERROR:
            self.simulator.note("failed", self.number, persist.operation._value_)
            self.node.failed(persist, result, self.now_ms)
        else:
            self.node.persisted(persist, result, self.now_ms)
        self.perform()

    def _fail(self, persist: Persist) -> None:
        self._report((self.life, persist, _STORE_ERROR))

    def _apply_and_fail(self, persist: Persist) -> None:
        self._apply(persist)
        self._fail(persist)

    def _fail_and_apply(self, persist: Persist) -> None:
        """Fail an operation whose commit still happens: the connection broke meanwhile."""
        delay_ms = self.simulator.below(self.node.settings.store_retry_ms)
        self.simulator.after(delay_ms, self._apply_late, (self.life, persist))
        self._fail(persist)

    def _apply_late(self, job: tuple[int, Persist]) -> None:
        life, persist = job
        if self.life == life or self._still_happens(life):
            self._apply(persist)

    def _still_happens(self, life: int) -> bool:
        """Return whether an operation of a dead process may still happen, before its next life."""
        return self.life == life + 1 and not self.disk_is_new

    def _apply_slowly(self, persist: Persist) -> None:
        """Delay the operation, or its result."""
        simulator = self.simulator
        delay_ms = simulator.below(_SLOW_STORE_MS)
        if simulator.below(2):
            simulator.after(delay_ms, self._on_disk, (self.life, persist, None))
        else:
            simulator.after(delay_ms, self._report, (self.life, persist, self._apply(persist)))

    def _crash_before(self, persist: Persist) -> None:
        self.crash()

    def _crash_after(self, persist: Persist) -> None:
        self._apply(persist)
        self.crash()

    # -- the end ------------------------------------------------------------------------------

    def unfinished(self) -> str | None:
        """Return in words what it still does; None when it rests."""
        if not self.is_up:
            return "is down"
        if self.node.claims.held:
            return f"holds {list(self.node.claims.held)}"
        return self.executor.unfinished()


_PERFORM: dict[type, Callable[[Process, Any], None]] = {
    Persist: Process._persist,
    SendEnvelopes: Process._send,
    ResolveWaiter: Process._resolve,
    Execute: Process._execute,
    Abandon: Process._abandon,
    NoticeReceived: Process._notice,
    NoticeSettled: Process._notice,
    WriteLog: Process._notice,
    FollowTime: Process._follow_time,
}

_STORE_FAULTS: dict[Fault, Callable[[Process, Persist], None]] = {
    Fault.STORE_ERROR: Process._fail,
    Fault.COMMIT_UNKNOWN: Process._apply_and_fail,
    Fault.LATE_COMMIT: Process._fail_and_apply,
    Fault.SLOW_STORE: Process._apply_slowly,
    Fault.CRASH_BEFORE_LEDGER: Process._crash_before,
    Fault.CRASH_BEFORE_OUTCOME: Process._crash_before,
    Fault.CRASH_AFTER_LEDGER: Process._crash_after,
    Fault.CRASH_AFTER_OUTCOME: Process._crash_after,
}
