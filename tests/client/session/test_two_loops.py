"""A client belongs to one event loop: on another one nothing waits for what cannot come."""

from __future__ import annotations

import asyncio

import pytest

from foundation_rt import Server
from foundation_rt.client import ConnectionLostError, StdioServer, connect
from foundation_rt.errors import UsageError
from tests.lab.checks.leaks import ResourceSnapshot
from tests.lab.servers.process import command


def local() -> Server:
    return Server("here", config={"logging": {"level": "error"}})


@pytest.mark.rule("CLIENT-52")
@pytest.mark.parametrize("is_child", [False, True])
def test_one_that_was_closed_is_closed_on_every_loop(is_child: bool) -> None:
    program, *words = command("serve")
    client = connect(StdioServer(program, words) if is_child else local(), require=())

    async def first() -> None:
        async with client:
            await client.ping()

    async def second() -> None:
        await client.close()
        with pytest.raises(ConnectionLostError, match="closed"):
            await client.ping()

    before = ResourceSnapshot.now()
    asyncio.run(first())
    asyncio.run(second())
    ResourceSnapshot.now().must_equal(before)


@pytest.mark.rule("CLIENT-52")
def test_one_that_was_not_closed_is_of_use_to_its_own_loop_only() -> None:
    client = connect(local(), require=())

    async def elsewhere() -> None:
        for use in (client.ping, client.initialize, client.close):
            with pytest.raises(UsageError, match="event loop"):
                await use()

    with asyncio.Runner() as home, asyncio.Runner() as other:
        home.run(client.ping())
        other.run(elsewhere())
        assert home.run(client.ping()) >= 0
        home.run(client.close())
