"""Subscriptions to what a server that misbehaves tells, or does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from foundation_rt.client.client import Client
from foundation_rt.client.errors import CallTimeoutError, ConnectionLostError, MCPError
from foundation_rt.client.options import ClientOptions
from tests.support.misbehaving_harness import HANDSHAKE
from tests.support.misbehaving_script import STATELESS, Act
from tests.support.misbehaving_transport import MemoryHarness

Scene = Callable[[Client, MemoryHarness], Awaitable[None]]

both_modes = pytest.mark.parametrize(
    ("revision", "point"),
    [(HANDSHAKE, "resources/subscribe"), (STATELESS, "subscriptions/listen")],
)


pytestmark = pytest.mark.virtual_time


@asynccontextmanager
async def play(
    points: dict[str, list[Act]], revision: str
) -> AsyncIterator[tuple[Client, MemoryHarness]]:
    harness = MemoryHarness(revision)
    harness.play(points)
    async with Client(harness.make_transport, ClientOptions()) as client:
        yield client, harness


def updated(uri: Any, times: int = 1) -> Act:
    params = {"uri": uri}
    return [
        "flood",
        times,
        {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params},
    ]


async def turns() -> None:
    """All that needs no time is done."""
    for _ in range(30):
        await asyncio.sleep(0)


@both_modes
@pytest.mark.rule("CLIENT-31")
async def test_a_subscription_that_is_never_confirmed_is_given_up_in_time(
    revision: str, point: str
) -> None:
    async with play({point: []}, revision) as (client, _):
        began = asyncio.get_running_loop().time()
        with pytest.raises(CallTimeoutError):
            async with client.subscribe("play://one", timeout=3.0):
                pass
        assert asyncio.get_running_loop().time() - began == pytest.approx(3.0)


@both_modes
@pytest.mark.rule("CLIENT-31")
async def test_a_subscription_that_is_refused(revision: str, point: str) -> None:
    refusal = ["reply", {"error": {"code": -32602, "message": "no"}}]
    async with play({point: [refusal]}, revision) as (client, _):
        with pytest.raises(MCPError) as caught:
            async with client.subscribe("play://one"):
                pass
        assert caught.value.original_code == -32602


@both_modes
@pytest.mark.rule("CLIENT-51", "CLIENT-31")
async def test_subscribing_ends_with_an_error_when_the_client_is_closed(
    revision: str, point: str
) -> None:
    async with play({point: []}, revision) as (client, _):

        async def subscribe() -> None:
            async with client.subscribe("play://one"):
                pass

        early = asyncio.create_task(subscribe())
        await turns()
        hasty = asyncio.create_task(subscribe())
        await client.close()
        late = asyncio.create_task(subscribe())
        for each in await asyncio.gather(early, hasty, late, return_exceptions=True):
            assert isinstance(each, ConnectionLostError)


@both_modes
@pytest.mark.rule("CLIENT-54")
async def test_iteration_ends_after_all_changes_when_the_client_is_closed(
    revision: str, point: str
) -> None:
    async with play({}, revision) as (client, _), client.subscribe("play://one") as changes:
        await client.call("play", {"nonce": "x", "acts": [updated("play://one"), ["answer"]]})
        await client.close()
        assert [uri async for uri in changes] == ["play://one"]


@pytest.mark.rule("CLIENT-55")
async def test_a_lost_connection_is_made_again_and_everything_counts_as_changed() -> None:
    async with (
        play({}, HANDSHAKE) as (client, harness),
        client.subscribe("play://one", "play://two") as changes,
    ):
        harness.transports[-1].lose()
        assert [await anext(changes), await anext(changes)] == ["play://one", "play://two"]
        assert len(harness.transports) == 2


@pytest.mark.rule("CLIENT-32")
async def test_invented_changes_of_a_server_are_bounded() -> None:
    """10,000 parts of a resource have changed: whoever listens is told of some, and of it."""
    async with play({}, HANDSHAKE) as (client, _), client.subscribe("play://one") as changes:
        parts = [updated(f"play://one/{each}") for each in range(10_000)]
        nonsense = [
            updated(5),
            updated(None),
            updated("play://three"),
            updated("play://onetwo"),
        ]
        acts = [*nonsense, *parts, ["answer"]]
        await client.call("play", {"nonce": "x", "acts": acts})
        await client.close()
        told = [uri async for uri in changes]
        assert len(told) == 1_001
        assert told[0] == "play://one/0"
        assert told[-1] == "play://one"
