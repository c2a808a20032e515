"""Rounds of connecting to a server that misbehaves, calling it and leaving it: nothing is left.

Each round is any handshake, any calls at once and any end, over a real process or a real socket.
Whatever the server does, every call ends in time, in its own answer or in an `MCPError`; an error
never says of a call that the server has got that it cannot have run; no call runs twice that must
not; and afterwards there is no task, child, thread or descriptor that was not there before, and
nothing of the server's process group.

`python -m tests.client.test_leaks 1000` plays so many rounds of each kind.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from attrs import define, field, frozen
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from foundation_rt.client import CallResult, Client, MCPError, StdioServer, connect
from foundation_rt.client.resilience.retries import RetryPolicy
from foundation_rt.client.session.session import ClientSession
from tests.lab.checks.leaks import ResourceSnapshot, tasks
from tests.lab.peers.script import STATELESS, Act
from tests.lab.peers.script_memory import MemoryHarness
from tests.lab.peers.script_processes import (
    HANDSHAKE,
    ROOT,
    Acts,
    MisbehavingHarness,
    MisbehavingHttpHarness,
)
from tests.lab.peers.script_strategies import (
    acts_at_a_point,
    acts_of_a_call,
    asks_again,
    may_refuse,
    over_http,
    over_stdio,
)
from tests.lab.sizes import size
from tests.lab.waiting import settle

LIVENESS = 60.0
"""Seconds after which a client counts as hanging."""

ROUNDS = size(6, 25)
"""Of each kind, in the suite."""

OPTIONS: dict[str, Any] = {
    "connect_timeout": 0.4,
    "probe_timeout": 0.1,
    "timeout": 0.3,
    "retries": RetryPolicy(base_delay_ms=1, max_delay_ms=10),
}
POINTS = ["server/discover", "initialize", "notifications/initialized", "tools/list"]
HTTP_POINTS = [*POINTS, "GET", "DELETE", "POST", "subscriptions/listen"]


@frozen
class Call:
    """A call, and what becomes of it."""

    tool: str
    acts: list[Act]


@define
class Round:
    """What happens between connecting and leaving.

    Attributes:
        name: of its own, so that what is left on a server's side of earlier rounds is not mixed up
            with it.
        points: what the server does where something other than a call has come.
        calls: all at once.
        turns: of the event loop, after which all of it is cancelled; None lets it end.
    """

    points: Acts
    calls: list[Call]
    turns: int | None
    name: str = field(factory=lambda: os.urandom(8).hex(), init=False)

    def nonce(self, number: int) -> str:
        """Of one of its calls."""
        return f"{self.name} call {number}"

    def acts(self, call: Call) -> list[Act]:
        """Return a strategy for a call that waits for calls of this round only."""
        return [
            [act[0], f"{self.name} {act[1]}"] if act[0] == "wait" and "/" not in act[1] else act
            for act in call.acts
        ]


def rounds(points: list[str], besides: st.SearchStrategy[Act]) -> st.SearchStrategy[Round]:
    calls = st.builds(Call, st.sampled_from(["play", "play_again"]), acts_of_a_call(besides))
    return st.builds(
        Round,
        st.dictionaries(st.sampled_from(points), acts_at_a_point(besides), max_size=1),
        st.lists(calls, min_size=1, max_size=4),
        st.none() | st.integers(0, 3_000),
    )


async def play(client: Client, played: Round, number: int) -> MCPError | None:
    """One call; it ends in its own answer or in an error."""
    call, nonce = played.calls[number], played.nonce(number)
    try:
        result = await client.call(call.tool, {"nonce": nonce, "acts": played.acts(call)})
    except MCPError as error:
        return error
    assert isinstance(result, CallResult)
    assert result.text in (nonce, "")
    assert result.structured in ({"nonce": nonce}, None)
    return None


async def play_all(client: Client, played: Round) -> list[MCPError | None]:
    async with client:
        calls = (play(client, played, number) for number in range(len(played.calls)))
        return await asyncio.gather(*calls)


async def until_left(client: Client, played: Round) -> list[MCPError | None] | None:
    """Play a round to its end, or until it is cancelled; whatever it is, it leaves nothing."""
    async with asyncio.timeout(LIVENESS):
        playing = asyncio.create_task(play_all(client, played))
        if played.turns is not None:
            await settle(played.turns)
            playing.cancel()
        await asyncio.wait([playing])
    assert tasks() == []
    return None if playing.cancelled() else playing.result()


def run(client: Client, harness: MisbehavingHarness, played: Round) -> None:
    before = ResourceSnapshot.now()
    ends = asyncio.run(until_left(client, played))
    ResourceSnapshot.now().must_equal(before)
    received = harness.nonces()
    for number, call in enumerate(played.calls):
        if not may_refuse(call.acts):
            times = received.count(played.nonce(number))
            assert times <= 1 or call.tool == "play_again" or asks_again(call.acts)
            error = None if ends is None else ends[number]
            assert error is None or error.may_have_run or times == 0


def over_a_pipe(revision: str, played: Round) -> None:
    """Play a round with a process of its own."""
    with MisbehavingHarness(played.points, revision=revision) as harness:
        command = harness.command
        server = StdioServer(command[0], command[1:], cwd=ROOT, shutdown_grace=0.1)
        run(connect(server, **OPTIONS), harness, played)


def over_a_socket(harness: MisbehavingHttpHarness, played: Round) -> None:
    """Play a round with a server that plays others too."""
    harness.play(played.points)
    harness.forget()
    run(connect(harness.url, **OPTIONS), harness, played)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the log of the client."""
    logger = logging.getLogger("foundation_rt.client")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def exactly(count: int) -> settings:
    """So many rounds; what fails is not made smaller, for that takes a process a step."""
    return settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def play_over_stdio(revision: str, count: int) -> None:
    @exactly(count)
    @given(rounds([*POINTS, "start"], over_stdio))
    def any_round(played: Round) -> None:
        over_a_pipe(revision, played)

    with quiet(), nothing_kept():
        any_round()


def play_over_http(revision: str, count: int) -> None:
    @exactly(count)
    @given(rounds(HTTP_POINTS, over_http))
    def any_round(played: Round) -> None:
        over_a_socket(harness, played)

    with quiet(), nothing_kept(), MisbehavingHttpHarness(revision=revision) as harness:
        any_round()


@contextmanager
def nothing_kept() -> Iterator[None]:
    """No client and no session of all these rounds is in memory; those of other tests may be."""
    before = clients()
    yield
    assert [each for each in clients() if all(each is not other for other in before)] == []


def clients() -> list[Client | ClientSession]:
    """Return the clients and sessions there are."""
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Client | ClientSession)]


@pytest.mark.rule("CLIENT-29")
@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
def test_rounds_over_stdio_leave_nothing(revision: str) -> None:
    play_over_stdio(revision, ROUNDS)


@pytest.mark.rule("CLIENT-29")
@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
def test_rounds_over_http_leave_nothing(revision: str) -> None:
    play_over_http(revision, ROUNDS)


@pytest.mark.rule("CLIENT-29")
def test_a_client_that_is_gone_has_left_no_object() -> None:
    """A program may make one for each of its users."""

    async def use() -> None:
        harness = MemoryHarness(HANDSHAKE)
        async with connect(harness.make_transport) as client:
            for acts in ([["answer"]], [["die"]], [["reply", {"result": 5}]], [["answer"]]):
                with suppress(MCPError):
                    await client.call("play", {"nonce": "x", "acts": acts})

    async def objects_after(count: int) -> int:
        for _ in range(count):
            await use()
        gc.collect()
        return len(gc.get_objects())

    async def main() -> None:
        before = await objects_after(20)
        assert await objects_after(100) - before < 100

    with quiet():
        asyncio.run(main())


if __name__ == "__main__":
    for spoken in (HANDSHAKE, STATELESS):
        play_over_stdio(spoken, int(sys.argv[1]))
        print(f"{sys.argv[1]} rounds over stdio, {spoken}: nothing is left")
        play_over_http(spoken, int(sys.argv[1]))
        print(f"{sys.argv[1]} rounds over HTTP, {spoken}: nothing is left")
