"""Coordinators on a stage: made alike, in virtual time, and nothing may be left when they go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from foundation_rt.agents.ledger.coordinator import AgentCoordinatorV2
from foundation_rt.agents.ledger.types import RequestRecord
from foundation_rt.clock import ManualClock
from foundation_rt.config.settings import AacpSection, ServerConfig
from foundation_rt.ids import UuidGenerator
from foundation_rt.logs.logger import MemorySink, StructuredLogger
from tests.support.faulty_store import FaultyStore
from tests.support.virtual_loop import run_virtual


class Stage:
    """Where a scene is played.

    Attributes:
        sink: what all coordinators logged.
        cast: the coordinators that were made here; those that still run are stopped at the end.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.sink = MemorySink()
        self.cast: list[AgentCoordinatorV2] = []

    def coordinator(
        self, name: str = "host", *, aacp: dict[str, Any] | None = None, **options: Any
    ) -> AgentCoordinatorV2:
        """A coordinator with these `aacp` settings; by default with a ledger of its own."""
        options.setdefault("store", FaultyStore())
        coordinator = AgentCoordinatorV2(name=name, clock=self.clock, **options)
        logger = StructuredLogger(self.sink, self.clock)
        config = ServerConfig(aacp=AacpSection(**(aacp or {})))
        coordinator.attach(logger, config, UuidGenerator())
        self.cast.append(coordinator)
        return coordinator

    def logged(self, message: str) -> list[dict[str, Any]]:
        """The log records so far with this message."""
        return [line for line in self.sink.lines if line["message"] == message]


def play(scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    """Run a scene in virtual time; afterwards no task and no timer may be left."""

    async def main(clock: ManualClock) -> None:
        stage = Stage(clock)
        await scene(stage)
        for coordinator in stage.cast:
            await coordinator.stop()
        await asyncio.sleep(5)  # envelopes on their way arrive, at nobody
        loop = asyncio.get_running_loop()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        timers = loop._scheduled  # type: ignore[attr-defined]
        assert [each for each in timers if not each.cancelled()] == []

    run_virtual(main)


async def record_of(coordinator: AgentCoordinatorV2, request_id: str) -> RequestRecord:
    """What the ledger of a coordinator has of a request."""
    assert coordinator.store is not None
    record = await coordinator.store.get_request_record(request_id)
    assert record is not None
    return record
