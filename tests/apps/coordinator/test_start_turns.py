"""The turns in which child processes are started."""

from __future__ import annotations

import asyncio

import pytest

from foundation_rt.apps.coordinator.call_slots import AT_A_TIME, SLOW_AFTER, StartTurns
from foundation_rt.base.clock import ManualClock


@pytest.mark.rule("COORD-11")
async def test_four_start_at_a_time_and_slow_ones_no_longer_count(clock: ManualClock) -> None:
    turns, begun = StartTurns(), list[tuple[int, float]]()

    async def start(number: int, seconds: float) -> None:
        async with turns.turn():
            begun.append((number, clock.monotonic()))
            await asyncio.sleep(seconds)

    hanging = [asyncio.create_task(start(number, 100)) for number in range(AT_A_TIME)]
    quick = [asyncio.create_task(start(number + AT_A_TIME, 1)) for number in range(6)]
    await asyncio.wait(quick)
    times = [round(time, 3) for _, time in begun]
    assert times == [0] * 4 + [SLOW_AFTER] * 4 + [SLOW_AFTER + 1] * 2
    assert [number for number, _ in begun] == list(range(10))
    await asyncio.wait(hanging)
    async with turns.turn():  # each turn ended once
        assert turns._semaphore._value == AT_A_TIME - 1
