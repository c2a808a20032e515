"""Connections over HTTP: lent, kept, and closed when nobody has used them; what a head says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.http_client import exchange
from foundation_rt.base.http_client.errors import UnsendableError
from foundation_rt.base.http_client.exchange import HttpConnections, HttpResponse, fetch
from foundation_rt.base.http_client.network import Network

MOST, KEEP_ALIVE, PATIENCE = 3, 4.0, 10.0


class FakeSender:
    """Stands for a sender with a connection."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.closed = 0

    async def aclose(self) -> None:
        self.closed += 1
        await asyncio.sleep(0)
        raise OSError("it has gone already")


Scene = Callable[[Any, list[FakeSender]], Awaitable[None]]


@pytest.fixture
def made() -> list[FakeSender]:
    return []


@pytest.fixture
def connections(made: list[FakeSender], clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(network: object) -> Any:
        made.append(FakeSender(len(made)))
        return made[-1]

    monkeypatch.setattr(exchange, "HttpSender", make)
    return HttpConnections(Network(), MOST, KEEP_ALIVE)


@pytest.mark.rule("CHTTP-39")
async def test_the_one_used_last_is_used_next_and_no_more_are_made_than_needed(
    connections: Any, made: list[FakeSender]
) -> None:
    first, second = [await connections.take(PATIENCE) for _ in range(2)]
    connections.give_back(first)
    connections.give_back(second)
    assert await connections.take(PATIENCE) is second
    assert await connections.take(PATIENCE) is first
    assert len(made) == 2


@pytest.mark.rule("CHTTP-10")
async def test_where_all_are_in_use_the_next_waits_for_one_and_not_for_ever(
    connections: Any, made: list[FakeSender]
) -> None:
    taken = [await connections.take(PATIENCE) for _ in range(MOST)]
    with pytest.raises(TimeoutError):
        await connections.take(PATIENCE)
    waiting = asyncio.ensure_future(connections.take(PATIENCE))
    await asyncio.sleep(PATIENCE / 2)
    connections.give_back(taken[1])
    assert await waiting is taken[1]
    assert len(made) == MOST


@pytest.mark.rule("CHTTP-10")
async def test_cancelled_waiter_takes_no_connection(
    connections: Any, made: list[FakeSender]
) -> None:
    taken = [await connections.take(PATIENCE) for _ in range(MOST)]
    waiting = asyncio.ensure_future(connections.take(PATIENCE))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    connections.give_back(taken[0])
    assert await connections.take(PATIENCE) is taken[0]


@pytest.mark.rule("CHTTP-39")
async def test_idle_connection_is_closed_also_if_its_closer_is_cancelled(
    connections: Any, made: list[FakeSender]
) -> None:
    taken = [await connections.take(PATIENCE) for _ in range(MOST)]
    connections.give_back(taken[0])
    await asyncio.sleep(KEEP_ALIVE - 1)
    connections.give_back(taken[1])
    connections.give_back(taken[2])
    await asyncio.sleep(2)
    closing = asyncio.ensure_future(connections.take(PATIENCE))
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert [each.closed for each in made] == [1, 0, 0]
    assert [(await connections.take(PATIENCE)).number for _ in range(MOST)] == [2, 1, 3]


@pytest.mark.rule("CHTTP-39", "CHTTP-19")
async def test_at_the_end_all_are_closed_once_those_in_use_too(
    connections: Any, made: list[FakeSender]
) -> None:
    taken = [await connections.take(PATIENCE) for _ in range(MOST)]
    connections.give_back(taken[0])
    await connections.close()
    connections.give_back(taken[1])
    await connections.close()
    assert [each.closed for each in made] == [1, 1, 1]


@pytest.mark.rule("CHTTP-13")
@pytest.mark.parametrize(
    ("header", "kind"),
    [
        ("Application/JSON ; charset=utf-8", "application/json"),
        ("text/event-stream", "text/event-stream"),
        ("", ""),
        (None, ""),
        ("application/json, text/html", "application/json, text/html"),
    ],
)
def test_the_type_of_a_response_is_compared_without_case_and_parameters(
    header: str | None, kind: str
) -> None:
    raw = [] if header is None else [(b"Content-Type", header.encode())]
    assert HttpResponse(200, raw, cast(Any, None)).media_type == kind


@pytest.mark.parametrize("token", ["Stra\u00dfe", "a\r\nb: c"])
async def test_header_that_cannot_be_written_is_refused_and_not_repeated(token: str) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        with pytest.raises(UnsendableError) as caught:
            await fetch(Network(http_is_direct=True), url, 60, 100, {"authorization": token})
    assert token not in str(caught.value)
