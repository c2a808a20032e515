"""Requests under way over HTTP: at most so many, the others in turn."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.clock import ManualClock
from foundation_rt.client import HttpServer, MCPError, connect
from foundation_rt.client.transports.http import RequestLimiter
from foundation_rt.errors import UsageError
from tests.lab.clock.virtual_loop import run_virtual
from tests.lab.peers.scripted_http import ReceivedRequest, ScriptedHttp, ScriptedReply
from tests.lab.waiting import until

TOOLS = {"tools": [{"name": "wait", "inputSchema": {"type": "object"}}]}
ABOUT = {"capabilities": {"tools": {}}, "supportedVersions": ["2026-07-28"]}


@pytest.mark.rule("CHTTP-10", "CHTTP-38")
@given(
    most=st.integers(1, 4),
    steps=st.lists(st.sampled_from(["ask", "answer", "cancel", "refuse", "turn"]), max_size=40),
)
def test_any_history_admits_in_order_and_never_too_many(most: int, steps: list[str]) -> None:
    """`refuse` stands for a caller that was let through and sends nothing."""

    async def main(_: ManualClock) -> None:
        places = RequestLimiter(most)
        waiting: list[tuple[int, asyncio.Task[None]]] = []
        sent: list[int] = []
        under_way = 0
        nothing_sent: set[int] = set()

        async def ask(number: int) -> None:
            nonlocal under_way
            await places.wait()
            if number in nothing_sent:
                return
            places.take()
            under_way += 1
            assert under_way <= most
            sent.append(number)

        for number, step in enumerate(steps):
            if step in ("ask", "refuse"):
                if step == "refuse":
                    nothing_sent.add(number)
                waiting.append((number, asyncio.ensure_future(ask(number))))
            elif step == "answer" and under_way:
                under_way -= 1
                places.give_back()
            elif step == "cancel" and waiting:
                waiting[len(waiting) // 2][1].cancel()
            elif step == "turn":
                await asyncio.sleep(0)
        for _wait_for_transport in range(200):
            await asyncio.sleep(0)
            if under_way:
                under_way -= 1
                places.give_back()
        assert all(task.cancelled() or task.exception() is None for _, task in waiting)
        assert sent == sorted(sent)
        assert not places.is_full

    run_virtual(main)


@pytest.mark.rule("CHTTP-10")
async def test_opened_limiter_lets_all_callers_through(clock: ManualClock) -> None:
    places = RequestLimiter(1)
    places.take()
    gone, *waiting = [asyncio.ensure_future(places.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    places.open()
    await asyncio.gather(*waiting)
    assert not places.is_full


@pytest.mark.rule("CHTTP-10")
async def test_slot_that_is_given_back_lets_one_caller_through(clock: ManualClock) -> None:
    places = RequestLimiter(1)
    places.take()
    waiting = [asyncio.ensure_future(places.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    places.give_back()
    await asyncio.sleep(0)
    assert [each.done() for each in waiting] == [True, False, False]
    places.open()
    await asyncio.gather(*waiting)


class Holding:
    """A server that answers calls of tools when it is told, and counts its connections."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.open = self.most = 0
        self.order: list[int] = []

    async def answer(self, asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.rpc == "server/discover":
            out.result(ABOUT)
        elif asked.rpc == "tools/list":
            out.result(TOOLS)
        else:
            self.order.append(asked.message["params"]["arguments"]["number"])
            self.open += 1
            self.most = max(self.most, self.open)
            await self.go.wait()
            self.open -= 1
            out.result({"content": []})


@pytest.mark.rule("CHTTP-10", "CHTTP-38")
async def test_a_thousand_calls_at_once_have_as_many_connections_as_they_may() -> None:
    holding = Holding()
    async with (
        ScriptedHttp(holding.answer).serving() as server,
        connect(HttpServer(server.url, max_connections=7)) as client,
    ):
        await client.initialize()
        calls = [
            asyncio.ensure_future(client.call("wait", {"number": number}))
            for number in range(1_000)
        ]
        await until(lambda: holding.open >= 7, "seven connections are open")
        holding.go.set()
        await asyncio.gather(*calls)
    assert holding.most == 7
    assert sorted(holding.order[:7]) == [*range(7)]
    assert sorted(holding.order) == [*range(1_000)]


@pytest.mark.rule("CHTTP-10")
async def test_calls_that_wait_end_with_the_client() -> None:
    holding = Holding()
    async with ScriptedHttp(holding.answer).serving() as server:
        client = connect(HttpServer(server.url, max_connections=1))
        await client.initialize()
        calls = [
            asyncio.ensure_future(client.call("wait", {"number": number})) for number in range(20)
        ]
        await until(lambda: holding.open, "a connection is open")
        await client.close()
        for each in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(each, MCPError)
        holding.go.set()
    assert holding.order == [0]


@pytest.mark.rule("CHTTP-01")
@pytest.mark.parametrize("most", [0, -1, 1.5, None, True, "100"])
def test_number_of_connections_that_is_none_is_refused(most: object) -> None:
    with pytest.raises(UsageError):
        HttpServer("http://127.0.0.1/mcp", max_connections=most)  # type: ignore[arg-type]


@pytest.mark.rule("CHTTP-10")
@pytest.mark.parametrize("end", ["give_back", "open"])
def test_a_turn_cancelled_just_before_its_place_came_ends_as_cancelled(end: str) -> None:
    async def main() -> None:
        places = RequestLimiter(1)
        places.take()
        first = asyncio.create_task(places.wait())
        second = asyncio.create_task(places.wait())
        await asyncio.sleep(0)
        first.cancel()
        getattr(places, end)()
        ended = await asyncio.gather(first, second, return_exceptions=True)
        assert isinstance(ended[0], asyncio.CancelledError)
        assert ended[1] is None

    asyncio.run(asyncio.wait_for(main(), 30))
