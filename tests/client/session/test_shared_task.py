"""Waiting together: for a connection, for a list of tools; and the end of the client meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from foundation_rt.client.client import Client
from foundation_rt.client.errors import ConnectionLostError
from foundation_rt.client.options import ClientOptions
from tests.support.misbehaving_script import Act
from tests.support.misbehaving_transport import MemoryHarness

Scene = Callable[[Client, MemoryHarness], Awaitable[None]]


pytestmark = pytest.mark.virtual_time


@asynccontextmanager
async def play(
    points: dict[str, list[Act]], **options: Any
) -> AsyncIterator[tuple[Client, MemoryHarness]]:
    harness = MemoryHarness("2025-11-25")
    harness.play(points)
    async with Client(harness.make_transport, ClientOptions(**options)) as client:
        yield client, harness


async def began(*calls: Awaitable[Any]) -> list[asyncio.Task[Any]]:
    """Return calls that are on their way."""
    begun = [asyncio.ensure_future(each) for each in calls]
    for _ in range(20):
        await asyncio.sleep(0)
    return begun


@pytest.mark.rule("CLIENT-51")
@pytest.mark.parametrize("point", ["initialize", "tools/list"])
async def test_waiting_calls_fail_when_the_client_is_closed(point: str) -> None:
    """It is not cancelled: its own task goes on."""
    async with play({point: []}) as (client, harness):
        calls = await began(*(client.call("play", {"nonce": str(each)}) for each in range(3)))
        await client.close()
        for each in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(each, ConnectionLostError)
            assert (each.may_have_run, each.retryable) == (False, False)
        assert harness.nonces() == []


@pytest.mark.rule("CLIENT-07", "CLIENT-23")
@pytest.mark.parametrize("point", ["initialize", "tools/list"])
async def test_one_that_goes_takes_nothing_from_the_others(point: str) -> None:
    async with play({point: [["wait", "the answer"], ["answer"]]}) as (client, harness):
        first, second = await began(
            client.call("play", {"nonce": "first"}), client.call("play", {"nonce": "second"})
        )
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        harness.transports[0].release("the answer")
        assert (await second).text == "second"
        assert len([each for each in harness.events("message") if each["method"] == point]) == 1
