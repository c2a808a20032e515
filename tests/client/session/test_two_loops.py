"""A client belongs to one event loop: on another one nothing waits for what cannot come."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from foundation_rt import Server
from foundation_rt.client import ConnectionLostError, StdioServer, connect
from foundation_rt.errors import UsageError
from tests.support.http_server import serve_http
from tests.support.leaks import ResourceSnapshot
from tests.support.process import command

APP = """
from foundation_rt import Server

server = Server("there")
"""


def local() -> Server:
    return Server("here", config={"logging": {"level": "error"}})


@pytest.fixture(params=["memory", "stdio", "http"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server | StdioServer | str]:
    if request.param == "memory":
        yield local()
    elif request.param == "stdio":
        program, *words = command("serve")
        yield StdioServer(program, words)
    else:
        (tmp_path / "app.py").write_text(APP)
        with serve_http(tmp_path / "app.py") as served:
            yield served.url


@pytest.mark.rule("CLIENT-52")
def test_one_that_was_closed_is_closed_on_every_loop(target: Server | StdioServer | str) -> None:
    client = connect(target, require=())

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
