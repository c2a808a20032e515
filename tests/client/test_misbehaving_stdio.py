"""Processes that misbehave while they are called: what only stdio and a process can show."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from foundation_rt.client import ConnectionLostError
from tests.lab.peers.script import Act
from tests.lab.peers.script_memory import error_of
from tests.lab.peers.script_processes import (
    ANSWER,
    DEATHS,
    SOON,
    MisbehavingHarness,
    call,
    client_of,
)

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def harness() -> Iterator[MisbehavingHarness]:
    with MisbehavingHarness() as harness:
        yield harness


HARMLESS: dict[str, list[Act]] = {
    "prints a line": [["noise", "GET /mcp 200\n"], ANSWER],
    "prints JSON that is no message": [["noise", '5\n"x"\n[]\n{}\nnull\n[[]]\n{"a":1}\n'], ANSWER],
    "prints what is not UTF-8": [["noise", "\xff\xfe\x00\n"], ANSWER],
    "prints a thousand levels": [["noise", "[" * 100_000 + "\n"], ANSWER],
    "prints empty lines": [["noise", "\n\r\n \n" * 100], ANSWER],
    "writes a hundred megabytes to stderr": [["stderr", 100_000_000], ANSWER],
}
"""What a client takes, and gets its answer all the same."""


@pytest.mark.parametrize("acts", HARMLESS.values(), ids=HARMLESS)
async def test_noise_leaves_the_response(harness: MisbehavingHarness, acts: list[Act]) -> None:
    async with client_of(harness) as client:
        await call(client, "first", acts)
        await call(client, "second")
        assert harness.nonces() == ["first", "second"]
        assert harness.events("malformed") == []
        assert len(harness.events("start")) == 1


async def test_half_a_line_spoils_the_next_one_and_no_more(harness: MisbehavingHarness) -> None:
    """What follows half a line is part of it: two calls are lost, the third is not."""
    async with client_of(harness) as client:
        await error_of(call(client, "first", [["part", 0.5]], timeout=SOON))
        error = await error_of(call(client, "second", timeout=SOON))
        assert error.may_have_run
        await call(client, "third")


@pytest.mark.parametrize("acts", DEATHS.values(), ids=DEATHS)
async def test_a_server_that_ends_during_a_call(
    harness: MisbehavingHarness, acts: list[Act]
) -> None:
    async with client_of(harness) as client:
        error = await error_of(call(client, "first", acts))
        assert isinstance(error, ConnectionLostError)
        assert (error.code, error.may_have_run) == ("E201", True)
        await call(client, "second")
        assert harness.nonces() == ["first", "second"]
        assert len(harness.events("start")) == 2


async def test_a_server_that_ends_under_many_calls_is_started_once(
    harness: MisbehavingHarness,
) -> None:
    count = 20
    async with client_of(harness) as client:
        waiting = [
            asyncio.create_task(error_of(call(client, f"call {each}", [["wait", "never"]])))
            for each in range(count)
        ]
        await error_of(call(client, "the last", [["wait", f"call {count - 1}"], ["kill"]]))
        for error in await asyncio.gather(*waiting):
            assert (error.code, error.may_have_run) == ("E201", True)
        await asyncio.gather(*(call(client, f"again {each}") for each in range(count)))
        assert len(harness.events("start")) == 2
        assert len(set(harness.nonces())) == len(harness.nonces()) == 2 * count + 1


async def test_server_that_stops_reading_blocks_no_call(harness: MisbehavingHarness) -> None:
    """The pipe to it is full: neither the next call nor the end waits longer than it may."""
    async with client_of(harness) as client:
        await error_of(call(client, "first", [["deaf"]], timeout=SOON))
        big = {"nonce": "second", "acts": ["x" * 1_000_000]}
        for _ in range(3):
            await error_of(client.call("play", big, timeout=SOON))
        error = await error_of(call(client, "third", timeout=SOON))
        assert error.code == "E202"


async def test_a_server_that_is_gone_before_it_is_called(harness: MisbehavingHarness) -> None:
    """It died between two calls; the next one goes to a new server, or says why not."""
    async with client_of(harness) as client:
        await call(client, "first", [ANSWER, ["kill"]])
        again = await asyncio.gather(call(client, "second"), return_exceptions=True)
        for error in again:
            assert not isinstance(error, BaseException) or isinstance(error, ConnectionLostError)
        await call(client, "third")
        assert harness.nonces().count("second") <= 1
