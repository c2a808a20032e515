"""How long a caller waits, what makes that longer, and the one timer for all; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foundation_rt.base.clock import ManualClock
from foundation_rt.client.resilience.deadline import Deadline, DeadlineTimer
from tests.lab.clock.virtual_loop import run_virtual

SECONDS = st.integers(0, 30)


def now() -> float:
    return asyncio.get_running_loop().time()


async def end_of(deadline: Deadline, *holds: tuple[float, float]) -> float:
    """When it is over, if it is held from and until these times; all from now on, in s."""
    began = now()
    loop = asyncio.get_running_loop()
    for since, until in holds:
        loop.call_later(since, deadline.hold)
        loop.call_later(until, deadline.resume)
    with pytest.raises(TimeoutError):
        async with deadline:
            await asyncio.sleep(1_000_000)
    return round(now() - began, 3)


@pytest.mark.rule("CLIENT-20")
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted).map(tuple), max_size=5)
)
@example([(1, 16), (18, 40)])  # the second is as long as the first has left of the allowance
def test_it_ends_when_it_has_run_for_its_time_or_stood_still_for_its_allowance(
    holds: list[tuple[int, int]],
) -> None:
    def expected() -> float:
        """In half seconds, so that nothing is held or let go just when it ends."""
        halves = ran = held = 0
        while ran < 21:
            if held < 40 and any(2 * since <= halves < 2 * until for since, until in holds):
                held += 1
            else:
                ran += 1
            halves += 1
        return halves / 2

    async def main(clock: ManualClock) -> float:
        return await end_of(Deadline(now() + 10.5, 20.0), *holds)

    assert run_virtual(main) == expected()


@pytest.mark.rule("CLIENT-20")
async def test_the_time_is_one_for_all_entries(clock: ManualClock) -> None:
    deadline = Deadline(now() + 10, 50.0)
    async with deadline:
        await asyncio.sleep(6)
    await asyncio.sleep(1)
    assert deadline.remaining() == pytest.approx(3)
    assert await end_of(deadline) == 3
    assert await end_of(deadline) == 0


@pytest.mark.rule("CLIENT-20")
async def test_pause_may_outlive_the_body(clock: ManualClock) -> None:
    """A handler still answers a request, and the server has answered the call already."""
    deadline = Deadline(now() + 10, 50.0)
    async with deadline:
        deadline.hold()
        await asyncio.sleep(8)
    deadline.resume()
    assert deadline.remaining() == pytest.approx(10)
    deadline.hold()
    asyncio.get_running_loop().call_later(20, deadline.resume)
    assert await end_of(deadline) == 30  # entered while it was held
    deadline.hold()
    deadline.resume()


@pytest.mark.rule("CLIENT-20")
async def test_cancellation_from_outside_stays_a_cancellation(clock: ManualClock) -> None:
    async def wait() -> None:
        async with Deadline(now() + 10):
            await asyncio.sleep(1_000_000)

    task = asyncio.create_task(wait())
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# -- one timer for the deadlines of all calls


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
