"""Progress that extends the deadline of a call, up to its limit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client.client import Client
from foundation_rt.client.errors import CallTimeoutError
from foundation_rt.client.resilience.deadline import Deadline
from tests.lab.peers.script_memory import (
    BOTH,
    MemoryHarness,
    begun,
    error_of,
    play,
    scripted,
)

pytestmark = pytest.mark.virtual_time

CALL: dict[str, Any] = {"name": "play", "arguments": {"nonce": "one", "acts": []}}
TICK = 0.25


def progress(harness: MemoryHarness, value: Any = 1) -> None:
    token = harness.of("tools/call")[-1]["params"]["_meta"]["progressToken"]
    harness.transport.tell("notifications/progress", progressToken=token, progress=value)


def expected_end(timeout: float, limit: float, times: list[float]) -> float:
    """Return when a call ends whose progress comes at these times."""
    end = min(timeout, limit)
    for time in times:
        if time < end:
            end = min(time + timeout, limit)
    return end


@pytest.mark.rule("CLIENT-57")
@given(
    timeout=st.integers(1, 12),
    limit=st.integers(1, 40),
    gaps=st.lists(st.integers(1, 8), max_size=8),
    revision=st.sampled_from(BOTH),
)
def test_each_progress_begins_the_time_again(
    timeout: int, limit: int, gaps: list[int], revision: str
) -> None:
    # Progress between two ticks, so that none comes when the time is just over.
    times = [TICK * (sum(gaps[: number + 1]) - 0.5) for number in range(len(gaps))]
    end = expected_end(TICK * timeout, TICK * limit, times)

    async def scenario(client: Client, harness: MemoryHarness) -> None:
        await client.initialize()
        loop = asyncio.get_running_loop()
        began = loop.time()
        call = asyncio.ensure_future(
            client.request("tools/call", CALL, timeout=TICK * timeout, max_timeout=TICK * limit)
        )
        call.add_done_callback(lambda _: ended.append(loop.time()))
        ended: list[float] = []
        for time in times:
            await asyncio.sleep(began + time - loop.time())
            progress(harness)
        error = await error_of(call)
        assert isinstance(error, CallTimeoutError)
        assert error.may_have_run
        assert ended[0] - began == pytest.approx(end, abs=0.01)

    play(scenario, revision=revision)


@pytest.mark.rule("CLIENT-57")
@pytest.mark.parametrize(
    ("value", "max_timeout", "lasts"),
    [(1, 60, True), (0.5, 60, True), ("1", 60, False), (True, 60, False), (1, None, False)],
)
async def test_what_is_no_progress_extends_nothing(
    value: Any, max_timeout: float | None, lasts: bool
) -> None:
    seen: list[float] = []
    async with scripted() as (client, harness):
        (call,) = await begun(
            client.call(
                "play",
                CALL["arguments"],
                timeout=2,
                max_timeout=max_timeout,
                on_progress=lambda done, *_: seen.append(done),
            )
        )
        await asyncio.sleep(1.5)
        progress(harness, value)
        await asyncio.sleep(1)
        assert call.done() is not lasts
        assert seen == ([value] if type(value) in (int, float) else [])
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


@pytest.mark.rule("CLIENT-57")
@pytest.mark.parametrize(("timeout", "max_timeout"), [(1, 0), (1, -1), (1, float("nan")), (0, 5)])
async def test_a_call_without_time_is_over_before_it_begins(
    timeout: float, max_timeout: float
) -> None:
    async with scripted() as (client, harness):
        call = client.request("tools/call", CALL, timeout=timeout, max_timeout=max_timeout)
        error = await error_of(call)
        assert isinstance(error, CallTimeoutError)
        assert not error.may_have_run
        assert harness.sent == []


@pytest.mark.rule("CLIENT-57", "CLIENT-20")
async def test_a_pause_counts_neither_for_the_time_nor_for_the_limit() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    deadline = Deadline(began + 2, 10, span=2, limit=began + 5)
    with pytest.raises(TimeoutError):
        async with deadline:
            await asyncio.sleep(1)
            deadline.hold()
            await asyncio.sleep(3)
            deadline.extend()  # 2 s from the end of the pause on
            await asyncio.sleep(1)
            deadline.resume()
            await asyncio.sleep(1.5)
            deadline.extend()  # up to the limit, which the pause has moved by 4 s
            await asyncio.sleep(60)
    assert loop.time() - began == pytest.approx(8.5, abs=0.01)


@pytest.mark.rule("CLIENT-57")
async def test_the_limit_holds() -> None:
    async with scripted() as (client, harness):
        began = asyncio.get_running_loop().time()
        (call,) = await begun(client.request("tools/call", CALL, timeout=2, max_timeout=7))
        for _ in range(20):
            await asyncio.sleep(1)
            if not call.done():
                progress(harness)
        error = await error_of(call)
        assert "last progress" in error.message
        assert harness.count("notifications/cancelled") == 1
        assert asyncio.get_running_loop().time() - began == pytest.approx(20, abs=0.1)
