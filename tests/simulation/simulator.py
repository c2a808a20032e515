"""The simulated world: time, random numbers, and the schedule of events.

`Simulator(seed).run()` runs the scenario of a seed. Its faults occur until the scenario heals;
after that everything has to come to rest. A `Violation` names the invariant that did not hold.
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

from foundation_rt.agents.ledger.types import Claim

from . import schedules
from .accounts import Violation
from .database import Database
from .disk import Disk
from .executor import Execution, SimulatedExecutor
from .faults import SPELLS, Dice, Fault
from .invariants import Witness
from .network import SimulatedNetwork
from .operator import SimulatedOperator
from .process import Process
from .scenario import START_MS, Scenario, Topology, draw
from .trace import Event
from .workload import Workload, draw_orders

_REST_CHECK_MS = 251
"""A prime: nothing that happens at regular intervals is under way at every check."""
_PATIENCE_MS = 120_000
"""The time after healing in which everything must have come to rest."""

_SHORT_HOLES = 40

Scheduled: TypeAlias = tuple[int, int, Callable[[Any], object], Any]


class Simulator:
    """One run.

    Args:
        seed: determines everything.
        requests: their number; by default drawn from the seed.
        faults: those that can strike, and no agent has limits; by default drawn from the seed.
        traced: whether events are kept, for who wants to read them.

    Attributes:
        now: ms since the start, by the right clock.
        trace: the events so far, if they are kept.
        directory: for every agent, the process that sends for it.
        registered: for every agent, the processes with which it is registered.
        stuck: executions that end only when the scenario heals.
        lost: the numbers of ledgers that were lost, and replaced by empty ones.
    """

    def __init__(
        self,
        seed: int,
        requests: int | None = None,
        faults: tuple[Fault, ...] | None = None,
        *,
        traced: bool = False,
    ) -> None:
        self.rng = rng = Random(seed)
        self.scenario: Scenario = draw(seed, rng, requests)
        if faults is not None:
            self.scenario.faults, self.scenario.limits = faults, {}
        self.now = 0
        self.trace: list[Event] = []
        self._traced = traced
        self.healed = False
        self.dice = Dice(rng, self.scenario.faults, self.scenario.rate)
        policy = self.scenario.policy
        max_starts = max(policy.max_starts, policy.max_executions)
        limits = self.scenario.limits
        self.witness = Witness(self.dice.count, self._is_alive, max_starts, limits, self.time_ms)
        self.database = Database(self.dice)
        self.network = SimulatedNetwork(self)
        self.workload = Workload(self)
        self.operator = SimulatedOperator(self)
        self.disks = [
            Disk(number, self.database, self.time_ms, incarnation=START_MS + number)
            for number in range(max(self.scenario.disks) + 1)
        ]
        self.processes = [
            Process(self, number, self.disks[disk], self.scenario.clocks_off_ms[number])
            for number, disk in enumerate(self.scenario.disks)
        ]
        self.registered = {agent: list(where) for agent, where in self.scenario.agents.items()}
        self.directory = {agent: where[0] for agent, where in self.scenario.agents.items()}
        self.stuck: list[tuple[SimulatedExecutor, Execution]] = []
        self.lost: set[int] = set()
        self._heap: list[Scheduled] = []
        self._serial = 0
        self._ids = 0
        self._runs = 0
        self._rested = False

    def time_ms(self) -> int:
        """Return the time by a right clock, in ms since 1970."""
        return START_MS + self.now

    # -- for all parts --------------------------------------------------------------------------

    def after(self, delay_ms: int, do: Callable[[Any], object], argument: Any) -> None:
        """Call `do(argument)` in so many ms; calls that are due together keep their order."""
        self._serial += 1
        heapq.heappush(self._heap, (self.now + delay_ms, self._serial, do, argument))

    def note(self, what: str, who: int, *details: Any) -> None:
        """Add an event to the trace, if there is to be one."""
        # Else all that an event names would live on, at the cost of a tenth of the time.
        if self._traced:
            self.trace.append((self.now, what, who, details))

    def below(self, limit: int) -> int:
        """Return a whole number from 0, below the limit."""
        return int(self.rng.random() * limit)

    def latency(self) -> int:
        """Return the duration of a packet or an operation of a ledger without a fault."""
        return 1 + int(self.rng.random() * self.scenario.latency_ms)

    def new_id(self) -> str:
        """Return a new UUID in the form of version 4."""
        self._ids += 1
        return f"{self._ids:08x}-0000-4000-8000-000000000000"

    def next_run(self) -> int:
        """Return the number of the next execution."""
        self._runs += 1
        return self._runs

    def disk_of(self, agent_id: str) -> Disk:
        """Return the ledger that has the queue of an agent."""
        return self.processes[self.directory[agent_id]].disk

    def _is_alive(self, owner: str) -> bool:
        return any(process.is_up and process.owner == owner for process in self.processes)

    # -- the run ------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until everything rests.

        Raises:
            Violation: an invariant did not hold.
        """
        # Nothing of a run is garbage before it ends: looking for it takes a sixth of the time.
        collects = gc.isenabled()
        gc.disable()
        try:
            self._run()
        finally:
            if collects:
                gc.enable()

    def _run(self) -> None:
        for process in self.processes:
            process.start()
        self.workload.plan(draw_orders(self.rng, self.scenario))
        self._plan_spells()
        self.after(self.scenario.heal_ms, self._heal, None)
        try:
            self._live()
        finally:
            self.database.close()
        self.witness.everything(self.disks)
        for disk in self.disks:
            runs = schedules.runs_of(disk, START_MS + self.scenario.heal_ms)
            self.witness.all_entered(disk, runs)
        if self.scenario.keeps_leases:
            self.witness.each_executed_once(claimed_once=Fault.BLOCKED not in self.scenario.faults)

    def _live(self) -> None:
        heap, pop = self._heap, heapq.heappop
        while not self._rested:
            self.now, _, do, argument = pop(heap)
            do(argument)

    def _heal(self, _: None) -> None:
        self.note("healed", 0)
        self.healed = True
        self.dice.heal()
        self.network.cut.clear()
        for process in self.processes:
            process.wall_off_ms = 0
        for executor, execution in self.stuck:
            self.after(0, executor.end, execution)
        self.after(_REST_CHECK_MS, self._check_rest, None)

    def _check_rest(self, _: None) -> None:
        why = self._unrest()
        if why is None:
            self._rested = True
        elif self.now > self.scenario.heal_ms + _PATIENCE_MS:
            raise Violation("liveness", why)
        else:
            self.after(_REST_CHECK_MS, self._check_rest, None)

    def _unrest(self) -> str | None:
        """Return in words what is still to be done, the longest first."""
        lossy = {each for each in self.registered if self.disk_of(each).number in self.lost}
        for process in self.processes:
            why = (
                process.unfinished()
                or process.disk.unfinished(process.now_ms, lossy)
                or schedules.unfinished(process.disk)
            )
            if why is not None:
                return f"process {process.number}: {why}"
        if self.network.in_flight:
            return "envelopes are on their way"
        if not all(process.node.operations.is_quiet for process in self.processes):
            return "operations of ledgers are under way"
        return self.workload.unfinished()

    def check_alone(self, process: Process, claim: Claim) -> None:
        """No two processes execute for one agent at a time, while no lease lapsed (AACP-04).

        Of an agent with several workers no more execute than there are (AACP-190).
        """
        witness, now_ms = self.witness, process.now_ms
        if (process.disk.number, claim.target_agent_id) in witness.taken_over:
            return
        if not witness.is_live(process.disk, claim, now_ms):
            return
        executing = [
            run.claim.request_id
            for other in self.processes
            if other.disk is process.disk
            and other.is_up
            and (other is not process or claim.workers > 1)
            for run in other.executor.runs(claim.target_agent_id)
            if run.claim is not claim and witness.is_live(process.disk, run.claim, now_ms)
        ]
        if len(executing) >= claim.workers:
            raise Violation(
                "one at a time",
                f"{claim.request_id} beside {executing} of {claim.target_agent_id}",
            )

    # -- spells -------------------------------------------------------------------------------

    def _plan_spells(self) -> None:
        for fault in SPELLS:
            if fault in self.scenario.faults:
                for _ in range(_SHORT_HOLES if fault is Fault.SHORT_HOLE else 1 + self.below(3)):
                    at_ms = self.below(self.scenario.heal_ms)
                    self.after(at_ms, _SPELLS[fault].__get__(self), self.below(1_000_000))

    def _process(self, chance: int) -> Process | None:
        """Return a process if it is running."""
        process = self.processes[chance % len(self.processes)]
        return process if process.is_up and process.paused_ms <= 0 else None

    def _begin_partition(self, chance: int) -> None:
        if self.healed or self.scenario.topology is Topology.SHARED:
            return
        count = len(self.processes)
        source, target = chance % count, (chance // count) % count
        self._strike(Fault.PARTITION, source, target)
        self.network.cut.add((source, target))
        self.after(self.below(4_000), self.network.cut.discard, (source, target))

    def _begin_pause(self, chance: int) -> None:
        process = self._process(chance)
        if process is not None:
            for_ms = self.below(2 * self.scenario.lease_ms)
            self._strike(Fault.PAUSE, process.number, for_ms)
            process.pause(for_ms)

    def _crash(self, chance: int) -> None:
        process = self._process(chance)
        if process is not None:
            self._strike(Fault.CRASH, process.number)
            process.crash()

    def _shut_down(self, chance: int) -> None:
        process = self._process(chance)
        if process is not None:
            self._strike(Fault.SHUTDOWN, process.number)
            process.shut_down()

    def _jump_forward(self, chance: int) -> None:
        self._jump(Fault.CLOCK_FORWARD, chance, 1 + self.below(10_000))

    def _jump_backward(self, chance: int) -> None:
        self._jump(Fault.CLOCK_BACKWARD, chance, -1 - self.below(5_000))

    def _jump(self, fault: Fault, chance: int, by_ms: int) -> None:
        process = self._process(chance)
        if process is not None and not self.healed:
            self._strike(fault, process.number, by_ms)
            process.wall_off_ms += by_ms

    def _suspend(self, chance: int) -> None:
        process = self._process(chance)
        if process is not None:
            for_ms = self.below(2 * self.scenario.lease_ms)
            self._strike(Fault.SUSPENSION, process.number, for_ms)
            process.suspend(for_ms)

    def _unregister(self, chance: int) -> None:
        """Move an agent away from a process, and back there or to another with its ledger."""
        agents = list(self.registered)
        agent_id = agents[chance % len(agents)]
        where = self.registered[agent_id]
        if not where:
            return
        process = self.processes[where[chance % len(where)]]
        if process.is_up and process.paused_ms <= 0:
            self._strike(Fault.UNREGISTER, process.number, agent_id)
            where.remove(process.number)
            process.unregister(agent_id)
            self.after(self.below(3_000), self._register, (agent_id, process.number, chance))

    def _register(self, what: tuple[str, int, int]) -> None:
        agent_id, was_with, chance = what
        disk = self.processes[was_with].disk
        candidates = [
            process
            for process in self.processes
            if process.disk is disk and process.number not in self.registered[agent_id]
        ]
        process = candidates[chance % len(candidates)]
        if process.paused_ms > 0:
            self.after(process.paused_ms, self._register, what)
            return
        self.note("register", process.number, agent_id)
        self.registered[agent_id].append(process.number)
        self.directory[agent_id] = process.number
        if process.is_up:
            process.register(agent_id)

    def _lose_ledger(self, chance: int) -> None:
        """Replace a ledger that only one process has by an empty, newer one."""
        process = self.processes[chance % len(self.processes)]
        if self.healed or self.scenario.disks.count(process.disk.number) > 1:
            return
        self._strike(Fault.LOST_LEDGER, process.number)
        number = process.disk.number
        self.lost.add(number)
        self.witness.lost(process.disk)
        self.disks[number] = Disk(
            number, self.database, self.time_ms, incarnation=START_MS + len(self.disks) + self.now
        )
        process.lose_disk(self.disks[number])

    def _freeze(self, chance: int) -> None:
        """Stop a process in a transaction: it keeps rows locked until the server ends that."""
        process = self._process(chance)
        if process is None or self.scenario.disks.count(process.disk.number) < 2:
            return
        served = [agent for agent in self.registered if self.disk_of(agent) is process.disk]
        if not served or process.disk.locked:
            return
        agents = self.rng.sample(served, 1 + self.below(len(served)))
        locked_ms, for_ms = (
            self.below(self.scenario.lease_ms),
            self.below(2 * self.scenario.lease_ms),
        )
        self._strike(Fault.FROZEN, process.number, for_ms, locked_ms, agents)
        process.disk.locked.update(agents)
        self.after(locked_ms, self._unlock, process.disk)
        process.pause(for_ms)

    def _unlock(self, disk: Disk) -> None:
        self.note("unlocked", disk.number)
        disk.locked.clear()

    def _cut_off(self, chance: int) -> None:
        process = self._process(chance)
        if process is not None and not self.healed:
            for_ms = self.below(2 * self.scenario.lease_ms)
            self._strike(Fault.CUT_OFF, process.number, for_ms)
            process.cut_off(for_ms)

    def _tear_short_hole(self, chance: int) -> None:
        process = self._process(chance)
        if process is not None and process.node.claims.held and not self.healed:
            for_ms = self.scenario.lease_ms * (65 + self.below(45)) // 100
            self._strike(Fault.SHORT_HOLE, process.number, for_ms)
            process.cut_off(for_ms)

    def _block(self, chance: int) -> None:
        process = self._process(chance)
        if process is not None and process.node.claims.held:
            for_ms = self.below(4 * self.scenario.lease_ms)
            self._strike(Fault.BLOCKED, process.number, for_ms)
            process.block(for_ms)

    def _operate(self, change: Callable[[int], None], chance: int) -> None:
        if not self.healed:
            change(chance)

    def _cancel(self, chance: int) -> None:
        self._operate(self.operator.cancel, chance)

    def _requeue(self, chance: int) -> None:
        self._operate(self.operator.requeue, chance)

    def _strike(self, fault: Fault, who: int, *details: Any) -> None:
        self.dice.count(fault)
        self.note(fault.value, who, *details)


_SPELLS: dict[Fault, Callable[[Simulator, int], None]] = {
    Fault.PARTITION: Simulator._begin_partition,
    Fault.PAUSE: Simulator._begin_pause,
    Fault.CRASH: Simulator._crash,
    Fault.SHUTDOWN: Simulator._shut_down,
    Fault.CLOCK_FORWARD: Simulator._jump_forward,
    Fault.CLOCK_BACKWARD: Simulator._jump_backward,
    Fault.SUSPENSION: Simulator._suspend,
    Fault.UNREGISTER: Simulator._unregister,
    Fault.LOST_LEDGER: Simulator._lose_ledger,
    Fault.FROZEN: Simulator._freeze,
    Fault.CUT_OFF: Simulator._cut_off,
    Fault.SHORT_HOLE: Simulator._tear_short_hole,
    Fault.BLOCKED: Simulator._block,
    Fault.CANCELLED: Simulator._cancel,
    Fault.REQUEUED: Simulator._requeue,
}
