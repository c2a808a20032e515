"""HTTP/1.1: what responses may look like, and what ends a connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import orjson
import pytest

from foundation_rt.base.http_client.connection import MAX_HEAD_BYTES
from foundation_rt.client.errors import ConnectionLostError
from tests.lab.peers.scripted_http import (
    ReceivedRequest,
    ScriptedReply,
    answer_to,
    talking,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BODY = "the body"


RESPONSES: dict[str, tuple[bytes, int]] = {
    "whole": (OK + b"Content-Length: %d\r\n\r\n%b", 1),
    "after interim responses": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n"
        + OK
        + b"Content-Length: %d\r\n\r\n%b",
        1,
    ),
    "in a chunk, with trailers": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\nDigest: x\r\n\r\n",
        1,
    ),
    "up to the end of the connection": (OK + b"X-Length: %d\r\n\r\n%b", 2),
    "the last one": (OK + b"Connection: close\r\nContent-Length: %d\r\n\r\n%b", 2),
    "of HTTP/1.0": (OK.replace(b"1.1", b"1.0") + b"Content-Length: %d\r\n\r\n%b", 2),
}
"""Forms of a response, and how many connections two of them take."""


@pytest.mark.rule("CHTTP-13", "CHTTP-41")
@pytest.mark.parametrize("form, connections", RESPONSES.values(), ids=RESPONSES)
@pytest.mark.parametrize("piece", [1, 7, 1000])
async def test_body_arrives_however_it_is_framed_and_cut_into_pieces(
    form: bytes, connections: int, piece: int
) -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        body = orjson.dumps(answer_to(asked, BODY))
        data = form % (len(body), body)
        for start in range(0, len(data), piece):
            out.raw(data[start : start + piece])
            await out.writer.drain()
        if connections > 1:
            out.writer.close()

    async with talking(answer) as talk:
        for _ in range(2):
            assert await talk.call("tools/list") == BODY
        assert talk.server.connections == connections


ENDLESS = {
    "head": (b"HTTP/1.1 200 OK\r\n", b"X: %b\r\n" % (b"y" * 1000)),
    "line": (b"HTTP/1.1 200 OK\r\nX: ", b"y" * 1000),
    "interim responses": (b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
    "trailers": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n",
        b"X: %b\r\n" % (b"y" * 1000),
    ),
    "size of a chunk": (OK + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x" * 1000),
}


@pytest.mark.rule("CHTTP-43")
@pytest.mark.parametrize("begin, more", ENDLESS.values(), ids=ENDLESS)
async def test_what_is_no_body_is_bounded(begin: bytes, more: bytes) -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        out.raw(begin + more * (3 * MAX_HEAD_BYTES // len(more)))
        await out.gone()

    async with talking(answer) as talk:
        error = await talk.refused()
        assert isinstance(error, ConnectionLostError)
        assert error.may_have_run


@pytest.mark.rule("CHTTP-43")
async def test_change_of_the_protocol_is_refused() -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
        out.raw(head + b"\r\n")
        await out.gone()

    async with talking(answer) as talk:
        error = await talk.refused()
        assert isinstance(error, ConnectionLostError)
        assert error.may_have_run


class Elsewhere(httpx2.Auth):
    """Fetches a token from another server, with a body in pieces."""

    def __init__(self) -> None:
        self.url = ""

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[Any, Any]:
        async def pieces() -> AsyncGenerator[bytes]:
            yield b'{"gr'
            yield b'ant": 1}'

        response = yield httpx2.Request("POST", self.url, content=pieces())
        await response.aread()
        request.headers["authorization"] = response.text
        yield request


async def test_token_may_come_from_another_server() -> None:
    async def grant(asked: ReceivedRequest, out: ScriptedReply) -> None:
        assert asked.message == {"grant": 1}
        out.whole(200, b"granted")

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        out.result(asked.headers["authorization"])

    auth = Elsewhere()
    async with talking(grant) as other, talking(answer, auth=auth) as talk:
        auth.url = other.server.url
        assert await talk.call("tools/list") == "granted"
