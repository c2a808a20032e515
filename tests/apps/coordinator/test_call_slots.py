"""Calls that wait for a full server."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.coordinator import Priority
from foundation_rt.apps.coordinator.call_slots import MAX_WAITING, CallSlots
from foundation_rt.client import MCPError
from tests.lab.clock.virtual_loop import run_virtual

steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from(Priority)),
        st.tuples(st.just("release"), st.integers(0, 9)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
    ),
    max_size=40,
)


@pytest.mark.rule("COORD-23")
@given(steps, st.integers(1, 3))
def test_slots_go_to_the_highest_priority_and_then_to_the_earliest(
    history: list[tuple[str, int]], limit: int
) -> None:
    async def scenario(_: object) -> None:
        slots = CallSlots(limit)
        running: list[int] = []
        waiting: list[tuple[int, int, asyncio.Task[None]]] = []

        async def ask(number: int, priority: Priority) -> None:
            await slots.wait(priority, "files")
            running.append(number)

        for number, (step, value) in enumerate(history):
            if step == "ask":
                if slots.is_free():
                    slots.take()
                    running.append(number)
                else:
                    task = asyncio.create_task(ask(number, Priority(value)))
                    waiting.append((value, number, task))
            elif step == "release" and running:
                running.pop(value % len(running))
                expected = min(waiting, default=None)
                slots.release()
                await asyncio.sleep(0)
                if expected is not None:
                    waiting.remove(expected)
                    assert running[-1] == expected[1]
            elif step == "cancel" and waiting:
                waiting.pop(value % len(waiting))[2].cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert slots.running == len(running) <= limit
            assert slots.waiting == len(waiting)
        for _, _, task in waiting:
            task.cancel()

    run_virtual(scenario)


@pytest.mark.rule("COORD-23")
async def test_call_beyond_a_thousand_waiting_ones_is_refused() -> None:
    slots = CallSlots(1)
    slots.take()
    waiting = [
        asyncio.create_task(slots.wait(Priority.NORMAL, "files")) for _ in range(MAX_WAITING)
    ]
    await asyncio.sleep(0)
    with pytest.raises(MCPError) as raised:
        await slots.wait(Priority.HIGH, "files")
    assert raised.value.code == "E208"
    assert raised.value.data == {"code": "RESOURCE_EXHAUSTED", "reason": "server_queue"}
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
    assert slots.waiting == 0
    await asyncio.sleep(0)
    slots.release()
    assert slots.is_free()


@pytest.mark.rule("COORD-23")
async def test_slot_given_to_a_call_that_is_cancelled_goes_on() -> None:
    slots = CallSlots(1)
    slots.take()
    first = asyncio.create_task(slots.wait(Priority.NORMAL, "files"))
    second = asyncio.create_task(slots.wait(Priority.NORMAL, "files"))
    await asyncio.sleep(0)
    slots.release()
    first.cancel()
    await second
    assert (slots.running, slots.waiting) == (1, 0)


@pytest.mark.rule("COORD-73")
async def test_call_of_a_principal_that_has_its_share_lets_others_pass() -> None:
    slots = CallSlots(3, share=2)
    for _ in range(2):
        slots.take("ann")
    assert not slots.is_free("ann")
    third = asyncio.create_task(slots.wait(Priority.HIGH, "files", "ann"))
    await asyncio.sleep(0)
    slots.take("bob")
    waiting = asyncio.create_task(slots.wait(Priority.LOW, "files", "bob"))
    await asyncio.sleep(0)
    slots.release("bob")
    await waiting
    assert not third.done()
    slots.release("ann")
    await third
    assert (slots.running, slots.waiting) == (3, 0)
