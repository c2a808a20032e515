"""One timer for the deadlines of all calls; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.clock import ManualClock
from foundation_rt.client.resilience.deadline import Deadline, DeadlineTimer
from tests.support.virtual_loop import run_virtual

SECONDS = st.integers(0, 30)


def now() -> float:
    return asyncio.get_running_loop().time()


async def ended_after(watch: DeadlineTimer, timeout: float, work: float) -> tuple[bool, float]:
    """Whether the deadline was over before the work was done, and when that was seen."""
    began = now()
    try:
        async with Deadline(began + timeout, watch=watch):
            await asyncio.sleep(work)
    except TimeoutError:
        return True, round(now() - began, 3)
    return False, round(now() - began, 3)


async def one_by_one(watch: DeadlineTimer, calls: Iterable[tuple[int, int, int]]) -> None:
    """Each begins after a pause; all end as if each had a timer of its own."""
    begun = []
    for pause, timeout, work in calls:
        await asyncio.sleep(pause)
        begun.append((timeout, work, asyncio.create_task(ended_after(watch, timeout, work + 0.5))))
    for timeout, work, task in begun:
        is_late = timeout < work + 0.5
        assert await task == (is_late, timeout if is_late else work + 0.5)


@pytest.mark.rule("CLIENT-20")
@given(st.lists(st.tuples(SECONDS, SECONDS, SECONDS), max_size=8))
def test_each_ends_at_its_own_time(calls: list[tuple[int, int, int]]) -> None:
    async def main(clock: ManualClock) -> None:
        await one_by_one(DeadlineTimer(), calls)

    run_virtual(main)


@pytest.mark.rule("CLIENT-20")
async def test_calls_that_are_answered_in_time_arm_one_timer(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    loop, watch = asyncio.get_running_loop(), DeadlineTimer()
    armed: list[float] = []
    call_at = loop.call_at

    def counted(when: float, *rest: object, **more: object) -> asyncio.TimerHandle:
        armed.append(when)
        return call_at(when, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "call_at", counted)
    for _ in range(100):
        async with Deadline(now() + 60, watch=watch):
            clock.advance(0.001)
            await asyncio.sleep(0)
    assert len(armed) == 1


@pytest.mark.rule("CLIENT-20")
def test_the_timer_of_a_loop_that_has_ended_is_not_waited_for() -> None:
    watch = DeadlineTimer()

    async def leave_a_timer(clock: ManualClock) -> None:
        async with Deadline(now() + 5, watch=watch):
            await asyncio.sleep(0)

    async def main(clock: ManualClock) -> None:
        assert await ended_after(watch, 10, 100) == (True, 10)

    run_virtual(leave_a_timer)
    run_virtual(main)


@pytest.mark.rule("CLIENT-20", "CLIENT-51")
async def test_closed_timer_is_disarmed_and_still_expires_running_deadlines(
    clock: ManualClock,
) -> None:
    timers = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    watch = DeadlineTimer()
    running = asyncio.create_task(ended_after(watch, 10, 100))
    await asyncio.sleep(1)
    watch.close()
    assert await running == (True, 10)
    assert await ended_after(watch, 10, 1) == (False, 1)
    assert [each for each in timers if not each.cancelled()] == []


@pytest.mark.rule("CLIENT-20")
async def test_body_cancelled_by_both_is_cancelled(clock: ManualClock) -> None:
    async def wait() -> None:
        async with Deadline(now() + 10):
            try:
                await asyncio.sleep(1_000_000)
            finally:
                task.cancel()
                await asyncio.sleep(0)

    task = asyncio.create_task(wait())
    with pytest.raises(asyncio.CancelledError):
        await task
