"""How long a caller waits, and what makes that longer; in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foundation_rt.base.clock import ManualClock
from foundation_rt.client.resilience.deadline import Deadline
from tests.support.virtual_loop import run_virtual


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
