"""An operator beside the processes: cancels requests, and requeues those that failed (AACP-112)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define

from foundation_rt.agents.ledger.administration import CANCELLED, Changed, Verdict
from foundation_rt.agents.ledger.types import ClaimCompletion, LedgerNews, RequestState

from .disk import at_once
from .faults import Fault
from .locks import needs_none

if TYPE_CHECKING:
    from .disk import Disk
    from .process import Process
    from .simulator import Simulator

_MOST_AT_ONCE = 5


@define(eq=False, repr=False)
class SimulatedOperator:
    """Changes the ledgers of a simulation, through a process or from the command line."""

    simulator: Simulator

    def cancel(self, chance: int) -> None:
        """Cancel some requests of a ledger, whatever their states are."""
        disk = self.simulator.disks[chance % len(self.simulator.disks)]
        ids = self._some(disk, None)
        if ids:
            now_ms = self.simulator.time_ms()
            cancellations = [
                ClaimCompletion(
                    each, 0, RequestState.FAILED, None, CANCELLED, self.simulator.new_id(), now_ms
                )
                for each in ids
            ]
            changes = at_once(disk.cancel(cancellations, now_ms))
            self.simulator.witness.cancelled(disk, changes)
            self._follow(Fault.CANCELLED, disk, ids, changes)

    def requeue(self, chance: int) -> None:
        """Requeue some requests of a ledger that failed."""
        disk = self.simulator.disks[chance % len(self.simulator.disks)]
        ids = self._some(disk, RequestState.FAILED)
        if ids:
            expires_at_ms = self.simulator.time_ms() + self.simulator.scenario.ttl_ms
            changes = at_once(disk.requeue(ids, expires_at_ms))
            self.simulator.witness.requeued(disk, changes)
            self._follow(Fault.REQUEUED, disk, ids, changes)

    def _some(self, disk: Disk, state: RequestState | None) -> list[str]:
        """Return ids of a ledger whose processes learn of changes, by a word or by polling."""
        simulator = self.simulator
        if not (self._is_shared(disk) or any(each.is_up for each in self._processes(disk))):
            return []
        known = [
            record.request_id
            for record in disk.requests.values()
            if (state is None or record.state is state)
            and needs_none([record.target_agent_id], disk)
        ]
        count = min(len(known), 1 + simulator.below(_MOST_AT_ONCE))
        return simulator.rng.sample(known, count)

    def _is_shared(self, disk: Disk) -> bool:
        return self.simulator.scenario.disks.count(disk.number) > 1

    def _processes(self, disk: Disk) -> list[Process]:
        return [each for each in self.simulator.processes if each.disk is disk]

    def _follow(self, fault: Fault, disk: Disk, ids: list[str], changes: list[Changed]) -> None:
        """Let processes know; on a shared ledger some hear nothing, and poll."""
        simulator = self.simulator
        done = [each.record for each in changes if each.verdict is Verdict.DONE and each.record]
        simulator.note(fault.value, disk.number, ids, [str(each.verdict) for each in changes])
        for _ in done:
            simulator.dice.count(fault)
        if not done:
            return
        news = LedgerNews(
            [each.target_agent_id for each in done], [each.request_id for each in done]
        )
        for process in self._processes(disk):
            if process.is_up and not (self._is_shared(disk) and simulator.below(2)):
                simulator.after(max(0, process.paused_ms), process.hear, (process.life, news))
