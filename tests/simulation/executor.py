"""The agents of a process: each executes what was claimed for it, one after another."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from attrs import define, field

from foundation_rt.agents.ledger.types import Claim

from .database import Write
from .faults import Fault
from .scenario import PERMANENT, TEMPORARY
from .workload import result_of

if TYPE_CHECKING:
    from .process import Process

_ABORTED_MS = 20
"""How long a handler may go on when it is told to end."""

_STUCK_MS = 3_600_000

_FAILS_EVERY = 7
"""Of so many executions one fails for good."""

_WRITES_EVERY = 2
"""Of so many executions one has something written with its outcome, where handlers write."""

_WRITE_FAILS_EVERY = 10
"""Of so many executions one has something written that fails."""


@define(eq=False, repr=False)
class Run:
    """One execution of a claim."""

    claim: Claim
    number: int
    fault: Fault | None


@define(eq=False, repr=False)
class Seat:
    """An agent, as a process has it: one execution at a time, the rest in line."""

    agent_id: str
    line: deque[Claim] = field(factory=deque)
    run: Run | None = None


Execution: TypeAlias = tuple[int, Seat, Run]
"""A run, where it takes place, and in which life of the process."""


@define(eq=False, repr=False)
class Executor:
    """Executes in one life of a process.

    Attributes:
        seats: the agents that are registered.
    """

    process: Process
    seats: dict[str, Seat] = field(factory=dict, init=False)
    _vacated: list[Seat] = field(factory=list, init=False)

    def take_seat(self, agent_id: str) -> None:
        """An agent comes; if it left lately, it first ends what it still does."""
        again = [seat for seat in self._vacated if seat.agent_id == agent_id and seat.run]
        self.seats[agent_id] = again[0] if again else Seat(agent_id)

    def leave_seat(self, agent_id: str) -> list[Claim]:
        """An agent goes; return what it has not begun. What it does it may end."""
        seat = self.seats.pop(agent_id)
        self._vacated = [each for each in self._vacated if each.run is not None]
        self._vacated.append(seat)
        return take_all(seat)

    def runs(self, agent_id: str) -> list[Run]:
        """What is being executed for an agent."""
        return [seat.run for seat in self._all() if seat.agent_id == agent_id and seat.run]

    def _all(self) -> list[Seat]:
        present = self.seats.values()
        return [*present, *(seat for seat in self._vacated if seat not in present)]

    # -- one execution ------------------------------------------------------------------------

    def execute(self, claim: Claim) -> bool:
        """Put a claim in line; False when its agent is not there."""
        seat = self.seats.get(claim.target_agent_id)
        if seat is None:
            return False
        seat.line.append(claim)
        self._next(seat)
        return True

    def _next(self, seat: Seat) -> None:
        """Begin what is first in line, unless something is being executed."""
        process = self.process
        while seat.line and seat.run is None:
            claim = seat.line.popleft()
            if process.node.holds(claim):
                fault = process.simulator.dice.on_execution()
                if fault is Fault.CRASH_BEFORE_EXECUTION:
                    process.crash()
                    return
                self._begin(seat, claim, fault)

    def _begin(self, seat: Seat, claim: Claim, fault: Fault | None) -> None:
        process, simulator = self.process, self.process.simulator
        run = seat.run = Run(claim, simulator.next_run(), fault)
        simulator.note("begin", process.number, claim, run.number, fault or "")
        simulator.check_alone(process, claim)
        simulator.witness.begun(process.disk, claim, run.number)
        execution = (process.life, seat, run)
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
        """A handler ends, if it has not ended before, and its process has not."""
        life, seat, run = execution
        process = self.process
        if process.life != life or seat.run is not run:
            return
        if process.paused_ms > 0:
            process.simulator.after(process.paused_ms, self.end, execution)
            return
        if run.fault in (Fault.CRASH_IN_EXECUTION, Fault.CRASH_AFTER_EXECUTION):
            process.crash()
            return
        seat.run = None
        self._report(run)
        self._next(seat)
        if process.life == life:
            process.pump()

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
        held = process.node.holds(run.claim)
        in_transaction = None if error is not None else self._write(run)
        process.node.executed(run.claim, result, error, process.now_ms, in_transaction)
        if held and not process.node.holds(run.claim):
            simulator.witness.to_be_repeated(process.disk, run.claim)

    def _write(self, run: Run) -> Write | None:
        """Return what is to be written with the result of a run."""
        if not self.process.simulator.scenario.writes or run.number % _WRITES_EVERY:
            return None
        fails = run.number % _WRITE_FAILS_EVERY == 0
        return Write((run.claim.request_id, run.number), fails)

    def abandon(self, claim: Claim) -> None:
        """A claim was lost: if it is being executed, that is told to end."""
        simulator = self.process.simulator
        for seat in self._all():
            if seat.run is not None and seat.run.claim is claim:
                delay_ms = simulator.below(_ABORTED_MS)
                simulator.after(delay_ms, self.end, (self.process.life, seat, seat.run))

    def unfinished(self) -> str | None:
        """What is still to be done, in words; None when nothing is."""
        for seat in self._all():
            if seat.run is not None or seat.line:
                return f"{seat.agent_id} executes"
        return None


def take_all(seat: Seat) -> list[Claim]:
    """Empty a line; return what was in it."""
    claims = list(seat.line)
    seat.line.clear()
    return claims
