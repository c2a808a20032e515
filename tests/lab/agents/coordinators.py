"""A harness of durable coordinators, in virtual time; nothing may be left when they stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from foundation_rt.agents.ledger.coordinator import AgentCoordinatorV2
from foundation_rt.agents.ledger.status import MessageStatus
from foundation_rt.agents.ledger.types import RequestRecord
from foundation_rt.base.clock import Clock, ManualClock, SystemClock
from foundation_rt.base.config.feature_sections import AacpSection
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.base.ids import UuidGenerator
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.protocol.principal import Principal
from tests.lab.agents.faulty_store import FaultyStore
from tests.lab.clock.virtual_loop import run_virtual


def attach(
    coordinator: AgentCoordinatorV2,
    sink: MemorySink | None = None,
    clock: Clock | None = None,
    **aacp: Any,
) -> MemorySink:
    """Give a coordinator of no server a log and these `aacp` settings; return where it logs."""
    sink = sink or MemorySink()
    logger = StructuredLogger(sink, clock or SystemClock())
    config = ServerConfig(aacp=AacpSection(**aacp))
    coordinator.attach(logger, config, UuidGenerator())
    return sink


class CoordinatorHarness:
    """Makes coordinators with one clock and one log.

    Attributes:
        sink: the log records of all coordinators.
        coordinators: those that were made here; the ones that still run are stopped at the end.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.sink = MemorySink()
        self.coordinators: list[AgentCoordinatorV2] = []

    def coordinator(
        self, name: str = "host", *, aacp: dict[str, Any] | None = None, **options: Any
    ) -> AgentCoordinatorV2:
        """Return a coordinator with these `aacp` settings; by default with a ledger of its own."""
        options.setdefault("store", FaultyStore())
        coordinator = AgentCoordinatorV2(name=name, clock=self.clock, **options)
        attach(coordinator, self.sink, self.clock, **(aacp or {}))
        self.coordinators.append(coordinator)
        return coordinator

    def logged(self, message: str) -> list[dict[str, Any]]:
        """Return the log records so far with this message."""
        return [line for line in self.sink.lines if line["message"] == message]


@asynccontextmanager
async def harness_of(clock: ManualClock) -> AsyncIterator[CoordinatorHarness]:
    """Yield a harness in virtual time; afterwards no task and no timer may be left."""
    harness = CoordinatorHarness(clock)
    yield harness
    for coordinator in harness.coordinators:
        await coordinator.stop()
    await asyncio.sleep(5)  # envelopes under way arrive without a receiver
    loop = asyncio.get_running_loop()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    timers = loop._scheduled  # type: ignore[attr-defined]
    assert [each for each in timers if not each.cancelled()] == []


def run(scenario: Callable[[CoordinatorHarness], Awaitable[None]]) -> None:
    """Run a scenario with a harness of its own, for tests that make many."""

    async def main(clock: ManualClock) -> None:
        async with harness_of(clock) as harness:
            await scenario(harness)

    run_virtual(main)


async def record_of(coordinator: AgentCoordinatorV2, request_id: str) -> RequestRecord:
    """Return the record of a request in the ledger of a coordinator."""
    assert coordinator.store is not None
    record = await coordinator.store.get_request_record(request_id)
    assert record is not None
    return record


async def status_of(
    coordinator: AgentCoordinatorV2, key: str, principal: Principal | None = None
) -> MessageStatus:
    """Return the status of a request or event that a coordinator must know."""
    status = await coordinator.status(key, principal)
    assert status is not None
    return status
