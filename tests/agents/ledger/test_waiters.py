"""Waiters fail exactly at their deadlines, and leave neither a timer nor a waiter behind."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.agents.ledger.errors import OutcomeUnknownError
from foundation_rt.agents.ledger.runner import Waiters
from foundation_rt.agents.persistence import StoreError
from foundation_rt.base.clock import ManualClock
from tests.lab.clock.virtual_loop import run_virtual

TIMEOUTS = st.sampled_from([0.5, 1.0, 3.0, None])
CALLERS = st.tuples(st.integers(0, 8), TIMEOUTS, st.sampled_from([0.25, 0.75, 2.0, None]))
"""When it begins, in halves of a second; its timeout; when it is answered, in seconds."""


async def _call(
    waiters: Waiters, name: str, start: int, timeout: float | None, answer_s: float | None
) -> None:
    loop = waiters.loop
    await asyncio.sleep(start / 2)
    began = loop.time()
    waiter = waiters.open(timeout, name)
    answering = None if answer_s is None else loop.call_later(answer_s, waiter.set_result, name)
    expected = min(each for each in (timeout, answer_s, 100.0) if each is not None)
    try:
        assert await waiter == name
        assert expected == answer_s
    except OutcomeUnknownError as error:
        assert (error.request_id, expected) == (name, timeout)
    except StoreError:
        assert timeout is None
    finally:
        if answering is not None:
            answering.cancel()
        await asyncio.sleep(0)  # a caller may be slow to close it
        waiters.close(waiter, timeout)
    assert expected == 100.0 or loop.time() - began == pytest.approx(expected, abs=0.002)


@pytest.mark.rule("AACP-26")
@given(st.lists(CALLERS, max_size=12))
def test_waiters_end_with_their_answer_or_at_their_deadline(
    callers: list[tuple[int, float | None, float | None]],
) -> None:
    async def main(clock: ManualClock) -> None:
        waiters = Waiters(asyncio.get_running_loop())
        async with asyncio.TaskGroup() as group:
            for n, (start, timeout, answer_s) in enumerate(callers):
                group.create_task(_call(waiters, f"r{n}", start, timeout, answer_s))
            waiters.loop.call_later(100, waiters.fail, "closed")
        assert len(waiters) == 0

    run_virtual(main)
