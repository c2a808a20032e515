"""A whole server for bytes that mean harm, and what has to hold of it after any of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import orjson

from foundation_rt import ToolContext
from foundation_rt.base.config.settings import ServerConfig, ToolsSection, TransportSection
from foundation_rt.errors import JsonRpcErrorCode
from tests.lab.servers.fixture import HANDSHAKE, ServerFixture, ServerPeer

MAX_LINE_BYTES = 4096
PROTOCOL_CODES = {int(code) for code in JsonRpcErrorCode}
TOOL_CODES = {"INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "INTERNAL"}


def rig() -> ServerFixture:
    made = ServerFixture(
        ServerConfig(
            tools=ToolsSection(max_payload_bytes=1024),
            transport=TransportSection(max_line_bytes=MAX_LINE_BYTES),
        )
    )

    @made.server.tool(inline=True)
    def echo(message: str, times: int = 1, *, ctx: ToolContext) -> list[str]:
        ctx.logger.info("echoing", {"message": message})
        return [message] * min(times, 10)

    return made


@cache
def one_rig() -> ServerFixture:
    """Return a server for many connections, since making its tools takes long."""
    return rig()


def assert_json_rpc(message: Any) -> None:
    """Check that a line is a response as JSON-RPC and spec/errors.md have it."""
    assert message["jsonrpc"] == "2.0"
    assert type(message["id"]) in (int, str, type(None))
    if "error" in message:
        assert message.keys() == {"jsonrpc", "id", "error"}
        error = message["error"]
        assert error.keys() == {"code", "message", "data"}
        assert error["code"] in PROTOCOL_CODES - {-32603}
        assert type(error["message"]) is str
        assert type(error["data"]["correlationId"]) is str
        return
    assert message.keys() == {"jsonrpc", "id", "result"}
    assert type(message["result"]) is dict
    if "isError" in message["result"]:
        beside = {"structuredContent", "resultType", "_meta"}
        assert message["result"].keys() - beside == {"content", "isError"}
        [content] = message["result"]["content"]
        assert content.keys() == {"type", "text"}
        value = orjson.loads(content["text"])
        if message["result"]["isError"]:
            assert value["code"] in TOOL_CODES


def feed_in_pieces(peer: ServerPeer, data: bytes, sizes: Sequence[int]) -> None:
    """Feed `data` in pieces of these sizes, over and over; what is held stays bounded."""
    position = turn = 0
    while position < len(data):
        size = sizes[turn % len(sizes)] if sizes else len(data)
        turn += 1
        piece = data[position : position + size]
        peer.connection.feed(piece)
        position += size
        assert peer.connection.reader.pending_bytes <= MAX_LINE_BYTES + len(piece)


def assert_survived(rig: ServerFixture, peer: ServerPeer, data: bytes) -> None:
    """Every answer is one, there are no more than lines, and the next calls work."""
    for message in peer.received:
        assert_json_rpc(message)
    assert len(peer.received) <= data.count(b"\n") + 1
    assert rig.logged("internal error") == []
    peer.connection.feed(b"\n")  # the end of what may be a line begun
    peer.take()
    if not peer.connection.closed:
        peer.ask("initialize", HANDSHAKE)
        peer.notify("notifications/initialized")
        assert peer.answer(peer.ask("ping", id="still there"))["result"] == {}
        assert peer.outcome(peer.start("echo", {"message": "alive"}, id="alive")) == ["alive"]
    rig.assert_all_ended()
    assert peer.connection.session.in_flight == {}
