"""Clients that do not read large answers, over real sockets."""

from __future__ import annotations

from contextlib import ExitStack

import orjson
import pytest

from tests.lab.peers.raw_http import RawClient
from tests.lab.servers.http_server import serve_http

APP = """
import os

from foundation_rt import Server

server = Server("hostile", version="1")


@server.tool
async def large() -> str:
    return "x" * (12 << 20)


@server.tool
async def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
"""

DEAF = 10
BOUND = 32 << 20
KERNEL = 5 << 20
"""What the system takes of an answer for a client that does not read, at most."""


@pytest.mark.rule("HTTP-29")
def test_answers_that_nobody_reads_are_bounded_over_all_connections() -> None:
    settings = {"http.max_unread_bytes": BOUND}
    with serve_http(APP, settings=settings) as server, ExitStack() as stack:
        bystander = stack.enter_context(RawClient(server.url))

        def descriptors() -> int:
            answer = bystander.fetch(bystander.call("descriptors")).json
            found: int = orjson.loads(answer["result"]["content"][0]["text"])
            return found

        before = descriptors()
        for _ in range(DEAF):
            deaf = stack.enter_context(RawClient(server.url, receive_buffer=4096))
            deaf.send(deaf.call("large"))
            deaf.read_until(b"\r\n\r\n")  # the head is there, so the answer was written
        most = BOUND // ((12 << 20) - KERNEL)
        for _ in range(2000):
            if descriptors() - before <= most:
                break
        else:
            raise AssertionError("nobody was cut off")
        # Who reads gets everything.
        keen = stack.enter_context(RawClient(server.url))
        answer = keen.fetch(keen.call("large"))
        assert answer.status == 200
        assert len(answer.body) > 12 << 20
