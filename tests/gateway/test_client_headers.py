"""Headers of clients that their servers get: of two values nothing is ever mixed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.client import Client, connect
from tests.gateway.test_command import SECRET
from tests.gateway.test_faults import APP, write
from tests.gateway.test_through import NEW, OLD, speaking
from tests.support.gateway import serve_gateway
from tests.support.http_server import serve_http


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mcp.json"


@pytest.mark.rule("COORD-54", "GATE-43")
async def test_header_of_the_client_reaches_its_server_alone(file: Path) -> None:
    with serve_http(Path(APP)) as first, serve_http(Path(APP)) as second:
        write(
            file,
            first={"url": first.url, "headersFrom": {"Authorization": "X-First-Token"}},
            second={"url": second.url, "headersFrom": {"X-B": "X-Second"}},
        )
        with serve_gateway(str(file)) as gateway:
            sent = {"X-First-Token": f"Bearer {SECRET}", "X-Third": "never"}
            async with connect(gateway.url, headers=sent) as client, connect(gateway.url) as bare:
                got, other, none = await asyncio.gather(
                    client.call("first__headers"),
                    client.call("second__headers"),
                    bare.call("first__headers"),
                )
                assert got.value() == {"authorization": f"Bearer {SECRET}"}
                assert other.value() == none.value() == {}
            assert SECRET not in gateway.process.stderr
        assert SECRET not in first.process.stderr + second.process.stderr


@pytest.mark.rule("COORD-54", "GATE-13")
@pytest.mark.parametrize("ours", [OLD, NEW])
async def test_two_values_at_one_server_are_never_mixed(file: Path, ours: str) -> None:
    """The clients differ by nothing but the header; the server keeps a counter for each session."""
    with serve_http(Path(APP)) as server:
        write(file, one={"url": server.url, "headersFrom": {"Authorization": "X-Token"}})
        with serve_gateway(str(file), env=speaking(OLD)) as gateway:
            async with (
                connect(gateway.url, revision=ours, headers={"X-Token": "ann"}) as ann,
                connect(gateway.url, revision=ours, headers={"X-Token": "bob"}) as bob,
            ):
                await asyncio.gather(_calls(ann, "ann"), _calls(bob, "bob"))
                await _subscriptions(ann, bob)


async def _calls(client: Client, name: str) -> None:
    """Make 200 calls; the server has seen this client's header and counter alone."""

    async def call(number: int) -> Any:
        seen = (await client.call("one__headers")).value()
        assert seen == {"authorization": name}
        return (await client.call("one__count", {"mine": f"{name} {number}"})).value()

    counted = await asyncio.gather(*(call(number) for number in range(100)))
    assert [each[0] for each in counted] == [f"{name} {number}" for number in range(100)]
    assert sorted(each[2] for each in counted) == [*range(1, 101)]


async def _subscriptions(ann: Client, bob: Client) -> None:
    """Notify each session of its own resource; no other client is notified of it."""
    uris = ("note://app", "note://shared")
    async with ann.subscribe(*uris) as anns, bob.subscribe(*uris) as bobs:
        await ann.call("one__touch_mine", {"uri": uris[0]})
        assert await anext(aiter(anns)) == uris[0]
        await bob.call("one__touch_mine", {"uri": uris[1]})
        assert await anext(aiter(bobs)) == uris[1]
        await ann.call("one__touch_mine", {"uri": uris[0]})
        assert await anext(aiter(anns)) == uris[0]
