"""The agents of a process: each executes its claims one after another, or as many as it may."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from attrs import define, field

from foundation_rt.agents.ledger.types import Claim, Executed

from .database import Write
from .faults import Fault
from .scenario import PERMANENT, TEMPORARY
from .workload import result_of

if TYPE_CHECKING:
    from .process import Process

_ABORTED_MS = 20
"""The time that a handler may go on after its abort signal."""

_STUCK_MS = 3_600_000

_FAILS_EVERY = 7
"""Every so many executions, one fails for good."""

_WRITES_EVERY = 2
"""Every so many executions, one writes with its outcome, where handlers write."""

_WRITE_FAILS_EVERY = 10
"""Every so many executions, one has a write that fails."""


@define(eq=False, repr=False)
class Run:
    """One execution of a claim."""

    claim: Claim
    number: int
    fault: Fault | None


@define(eq=False, repr=False)
class AgentSlot:
    """An agent of a process: what it executes, and a queue."""

    agent_id: str
    queue: deque[Claim] = field(factory=deque)
    runs: list[Run] = field(factory=list)


Execution: TypeAlias = tuple[int, AgentSlot, Run]
"""The life of the process, the agent and the run."""


@define(eq=False, repr=False)
class SimulatedExecutor:
    """Executes in one life of a process.

    Attributes:
        slots: the agents that are registered.
    """

    process: Process
    slots: dict[str, AgentSlot] = field(factory=dict, init=False)
    _leaving: list[AgentSlot] = field(factory=list, init=False)

    def add_agent(self, agent_id: str) -> None:
        """Add an agent; one that left lately first ends its execution."""
        again = [slot for slot in self._leaving if slot.agent_id == agent_id and slot.runs]
        self.slots[agent_id] = again[0] if again else AgentSlot(agent_id)

    def remove_agent(self, agent_id: str) -> list[Claim]:
        """Remove an agent; return the claims that it has not begun. It may end its execution."""
        slot = self.slots.pop(agent_id)
        self._leaving = [each for each in self._leaving if each.runs]
        self._leaving.append(slot)
        return clear_queue(slot)

    def runs(self, agent_id: str) -> list[Run]:
        """Return the runs of an agent."""
        return [run for slot in self._all() if slot.agent_id == agent_id for run in slot.runs]

    def _all(self) -> list[AgentSlot]:
        present = self.slots.values()
        return [*present, *(slot for slot in self._leaving if slot not in present)]

    # -- one execution ------------------------------------------------------------------------

    def execute(self, claim: Claim) -> bool:
        """Queue a claim; return False when its agent is not there."""
        slot = self.slots.get(claim.target_agent_id)
        if slot is None:
            return False
        slot.queue.append(claim)
        self._next(slot)
        return True

    def _next(self, slot: AgentSlot) -> None:
        """Begin the first claims of the queue, unless as many as it may are being executed."""
        process = self.process
        while slot.queue:
            claim = max(slot.queue, key=lambda each: each.priority)  # of several the first
            if len(slot.runs) >= claim.workers:
                return
            slot.queue.remove(claim)
            if process.node.claims.holds(claim):
                fault = process.simulator.dice.on_execution()
                if fault is Fault.CRASH_BEFORE_EXECUTION:
                    process.crash()
                    return
                self._begin(slot, claim, fault)

    def _begin(self, slot: AgentSlot, claim: Claim, fault: Fault | None) -> None:
        process, simulator = self.process, self.process.simulator
        run = Run(claim, simulator.next_run(), fault)
        slot.runs.append(run)
        simulator.note("begin", process.number, claim, run.number, fault or "")
        simulator.check_alone(process, claim)
        simulator.witness.begun(process.disk, claim, run.number)
        execution = (process.life, slot, run)
        simulator.after(self._duration_ms(fault), self.end, execution)
        if fault is Fault.STUCK_EXECUTOR:
            simulator.stuck.append((self, execution))

    def _duration_ms(self, fault: Fault | None) -> int:
        simulator = self.process.simulator
        if fault is Fault.STUCK_EXECUTOR:
            return _STUCK_MS
        if fault is Fault.SLOW_EXECUTOR:
            return simulator.below(2 * simulator.scenario.lease_ms)
        return simulator.below(simulator.scenario.handler_ms)

    def end(self, execution: Execution) -> None:
        """End a handler, unless it or its process has ended before."""
        life, slot, run = execution
        process = self.process
        if process.life != life or run not in slot.runs:
            return
        if process.paused_ms > 0:
            process.simulator.after(process.paused_ms, self.end, execution)
            return
        if run.fault in (Fault.CRASH_IN_EXECUTION, Fault.CRASH_AFTER_EXECUTION):
            process.crash()
            return
        slot.runs.remove(run)
        self._report(run)
        self._next(slot)
        if process.life == life:
            process.perform()

    def _report(self, run: Run) -> None:
        """Tell the node how a handler ended."""
        process, simulator = self.process, self.process.simulator
        result, error = None, None
        if simulator.dice.on_end() is not None:
            error = TEMPORARY
        elif run.number % _FAILS_EVERY == 0:
            error = PERMANENT
        else:
            result = result_of(run.claim.payload, run.number)
        simulator.note("end", process.number, run.claim, result or error)
        held = process.node.claims.holds(run.claim)
        in_transaction = None if error is not None else self._write(run)
        ended = Executed(result, error, in_transaction)
        process.node.claims.executed(run.claim, ended, process.now_ms)
        if held and not process.node.claims.holds(run.claim):
            simulator.witness.to_be_repeated(process.disk, run.claim)

    def _write(self, run: Run) -> Write | None:
        """Return what is to be written with the result of a run."""
        if not self.process.simulator.scenario.writes or run.number % _WRITES_EVERY:
            return None
        fails = run.number % _WRITE_FAILS_EVERY == 0
        return Write((run.claim.request_id, run.number), fails)

    def abandon(self, claim: Claim) -> None:
        """Abort the execution of a claim that was lost."""
        simulator = self.process.simulator
        for slot in self._all():
            for run in slot.runs:
                if run.claim is claim:
                    delay_ms = simulator.below(_ABORTED_MS)
                    simulator.after(delay_ms, self.end, (self.process.life, slot, run))

    def unfinished(self) -> str | None:
        """Return in words what is still to be done; None when nothing is."""
        for slot in self._all():
            if slot.runs or slot.queue:
                return f"{slot.agent_id} executes"
        return None


def clear_queue(slot: AgentSlot) -> list[Claim]:
    """Empty a queue; return what was in it."""
    claims = list(slot.queue)
    slot.queue.clear()
    return claims
