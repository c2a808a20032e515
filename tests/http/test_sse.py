"""Server-sent events, and the bodies that carry them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.http.sse import (
    KEEP_ALIVE,
    MAX_PENDING_BYTES,
    EventBody,
    encode_event,
    encode_priming,
    encode_retry,
)
from tests.lab.waiting import until

LONG = 60.0


class SlowClient:
    """Takes what is sent; blocks while it does not read."""

    def __init__(self) -> None:
        self.body = b""
        self.ended = False
        self.reads = asyncio.Event()
        self.reads.set()
        self.waiting = asyncio.Event()

    async def send(self, event: Any) -> None:
        self.waiting.set()
        await self.reads.wait()
        self.body += event["body"]
        self.ended = not event["more_body"]


@pytest.mark.rule("HTTP-07")
def test_event_has_standard_form() -> None:
    assert encode_event(b"{}") == b"data: {}\n\n"
    assert encode_event(b"{}", "a-1") == b"id: a-1\ndata: {}\n\n"
    assert encode_event(b"/x", kind="endpoint") == b"event: endpoint\ndata: /x\n\n"
    assert encode_priming("a-0", 5, visible=True) == b"id: a-0\nretry: 5\ndata: \n\n"
    assert encode_priming("a-0", 5, visible=False) == b"id: a-0\nretry: 5\n\n"
    assert encode_retry(0) == b"retry: 0\n\n"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=20))
def test_chunks_are_sent_in_order(chunks: list[bytes]) -> None:
    async def scenario() -> SlowClient:
        client, body = SlowClient(), EventBody()
        sending = asyncio.create_task(body.pump(client.send, LONG))
        for index, chunk in enumerate(chunks):
            body.write(chunk)
            if index % 3 == 0:
                await asyncio.sleep(0)
        body.end()
        body.write(b"late")
        await sending
        return client

    client = asyncio.run(scenario())
    assert client.body == b"".join(chunks)
    assert client.ended


@pytest.mark.rule("HTTP-09")
def test_comment_is_sent_after_silence() -> None:
    async def scenario() -> bytes:
        client, body = SlowClient(), EventBody()
        sending = asyncio.create_task(body.pump(client.send, 0.001))
        await until(lambda: client.body.count(KEEP_ALIVE) >= 3, "three comments come")
        body.end()
        await sending
        return client.body

    assert asyncio.run(scenario()).replace(KEEP_ALIVE, b"") == b""


@pytest.mark.rule("HTTP-17")
@pytest.mark.parametrize("can_cut", [True, False])
async def test_slow_reader_is_cut_off(can_cut: bool) -> None:
    cut: list[bool] = []
    client = SlowClient()
    client.reads.clear()

    def cut_connection() -> None:
        cut.append(True)
        client.reads.set()

    body = EventBody(cut_connection if can_cut else None)
    sending = asyncio.create_task(body.pump(client.send, LONG))
    body.write(b"x" * (2 * MAX_PENDING_BYTES))  # one message is taken whatever its size
    await client.waiting.wait()
    body.write(b"y")
    assert not body.gone
    body.write(b"z")
    assert body.gone and body.ended
    await asyncio.wait([sending])
    assert cut == [True] * can_cut
    assert sending.cancelled() != can_cut
    assert not client.ended


def test_unsent_body_is_bounded() -> None:
    body = EventBody()
    for _ in range(3):
        body.write(b"x" * (MAX_PENDING_BYTES // 2))
    assert body.gone


async def test_send_error_means_client_has_gone() -> None:
    async def gone(event: Any) -> None:
        raise OSError

    body = EventBody()
    sending = asyncio.create_task(body.pump(gone, LONG))
    body.write(b"x")
    await asyncio.sleep(0)
    body.leave()
    await sending
