"""A schedule of some scenarios: what declares it, and what must have become of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attrs import define

from foundation_rt.agents.ledger.rules import digest_of
from foundation_rt.agents.ledger.schedules import MissedRuns, Schedule, run_id
from foundation_rt.agents.ledger.types import MessageType, OutgoingMessage

from .disk import Disk
from .scenario import START_MS

if TYPE_CHECKING:
    from .process import Process

_NAME = "tick"
_PAYLOAD = b'{"n":3000000}'
_SECOND_MS = 1_000


@define(eq=False)
class EverySecond:
    """The times of the schedule: each second until the scenario heals."""

    until_ms: int

    def after(self, at_ms: int) -> Iterator[int]:
        """Yield the times after that one."""
        first = at_ms // _SECOND_MS + 1
        yield from range(first * _SECOND_MS, self.until_ms + 1, _SECOND_MS)


def declare(process: Process, agent_id: str) -> None:
    """Have a process keep the schedule that sends to an agent."""
    scenario = process.simulator.scenario
    times = EverySecond(START_MS + scenario.heal_ms)

    def make_run(schedule: Schedule, run_at_ms: int, now_ms: int) -> OutgoingMessage:
        kind = MessageType.REQUEST
        return OutgoingMessage(
            process.simulator.new_id(),
            run_id(schedule.name, run_at_ms),
            agent_id,
            agent_id,
            kind,
            schedule.payload,
            digest_of(agent_id, agent_id, kind, schedule.payload),
            now_ms,
            now_ms + schedule.ttl_ms,
            True,
            0,
        )

    keeper = process.node.schedules
    keeper.recurrence_of, keeper.make_run = lambda expression, timezone: times, make_run
    keeper.change(
        Schedule(_NAME, "", "UTC", agent_id, _PAYLOAD, MissedRuns.ALL, scenario.ttl_ms, 0), None
    )


def unfinished(disk: Disk) -> str | None:
    """Return in words that a run is still to be entered; None when none is."""
    schedule = disk.schedules.get(_NAME)
    return None if schedule is None or schedule.next_run_at_ms is None else "a schedule has runs"


def runs_of(disk: Disk, until_ms: int) -> Iterator[str]:
    """Yield the ids of the runs that must have been entered in a ledger."""
    schedule = disk.schedules.get(_NAME)
    if schedule is not None:
        for at_ms in EverySecond(until_ms).after(schedule.created_at_ms):
            yield run_id(_NAME, at_ms)
