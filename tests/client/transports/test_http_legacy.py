"""The transport of revision 2024-11-05: one stream down, POSTs up."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from foundation_rt.client.errors import (
    CallTimeoutError,
    ConnectionLostError,
    InvalidResponseError,
    MCPError,
)
from foundation_rt.client.transports import http as http_channel
from foundation_rt.protocol.framing import LineTooLong
from tests.lab.peers.scripted_http import (
    SESSIONS,
    ReceivedRequest,
    Script,
    ScriptedReply,
    answer_to,
    talking,
)

TOLD = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}


class OldServer:
    """A server of the old transport, for one client.

    Args:
        endpoint: what it names in its stream.
        status: of what is POSTed to the stream's place.
    """

    def __init__(self, endpoint: str = "/messages?session=1", status: int = 405) -> None:
        self.endpoint = endpoint
        self.status = status
        self.stream: ScriptedReply | None = None

    async def __call__(self, asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.method == "GET":
            self.stream = out
            out.stream()
            out.say(f"event: endpoint\ndata: {self.endpoint}\n\n".encode())
        elif asked.target == "/mcp":
            out.whole(self.status, b"no", content_type="text/plain")
        else:
            await self.take(asked, out)

    async def take(self, asked: ReceivedRequest, out: ScriptedReply) -> None:
        assert self.stream is not None
        if asked.rpc == "tools/refused":
            out.whole(400)
            return
        out.whole(202)
        if asked.rpc == "tools/end":
            self.stream.end()
        elif asked.rpc == "tools/cut":
            self.stream.cut()
        elif "id" in asked.message:
            self.stream.event(TOLD, "event: message\n")
            self.stream.event(TOLD, "event: ping\n")
            self.stream.event(answer_to(asked, {"n": 1}))


@pytest.mark.rule("CHTTP-30", "CHTTP-31", "CHTTP-32")
@pytest.mark.parametrize("status", [400, 404, 405])
@pytest.mark.parametrize("endpoint", ["/messages?session=1", "messages?session=1"])
async def test_where_initialize_is_refused_the_old_transport_is_looked_for(
    status: int, endpoint: str
) -> None:
    server = OldServer(endpoint, status)

    async with talking(server) as talk:
        assert await talk.begin(SESSIONS) == {"n": 1}
        assert await talk.call("tools/list") == {"n": 1}
        assert [request_id for _, request_id in talk.heard.told] == [None, None]
        assert not talk.heard.ended
        asked = [(each.method, each.target, each.rpc) for each in talk.server.asked]
        place = "/messages?session=1"
        assert asked == [
            ("POST", "/mcp", "initialize"),
            ("GET", "/mcp", None),
            ("POST", place, "initialize"),
            ("POST", place, "notifications/initialized"),
            ("POST", place, "tools/list"),
        ]


@pytest.mark.rule("CHTTP-31")
async def test_a_whole_url_of_the_same_origin_is_taken() -> None:
    server = OldServer()

    async with talking(server) as talk:
        server.endpoint = talk.server.url.replace("/mcp", "/there")
        assert await talk.begin(SESSIONS) == {"n": 1}


@pytest.mark.rule("CHTTP-31", "CHTTP-03")
@pytest.mark.parametrize(
    "endpoint", ["http://127.0.0.2/messages", "//evil/messages", "https:///x", "file:///etc/passwd"]
)
async def test_an_endpoint_elsewhere_is_refused_and_hears_nothing(endpoint: str) -> None:
    async with talking(OldServer(endpoint), headers={"Authorization": "secret"}) as talk:
        with pytest.raises(InvalidResponseError, match="not its own"):
            await talk.call("initialize")
        assert len(talk.server.asked) == 2
        assert not talk.heard.ended


async def _no_stream(asked: ReceivedRequest, out: ScriptedReply) -> None:
    out.whole(404)


async def _another_first_event(asked: ReceivedRequest, out: ScriptedReply) -> None:
    if asked.method == "GET":
        out.stream()
        out.event(TOLD)
        out.end()
    else:
        out.whole(404)


async def _cut(asked: ReceivedRequest, out: ScriptedReply) -> None:
    out.cut() if asked.method == "GET" else out.whole(404)


async def _silent(asked: ReceivedRequest, out: ScriptedReply) -> None:
    if asked.method == "GET":
        out.stream()
        await out.gone()
    else:
        out.whole(404)


@pytest.mark.rule("CHTTP-30")
@pytest.mark.parametrize("script", [_no_stream, _another_first_event, _cut, _silent])
async def test_where_there_is_none_the_refusal_counts(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    if script is _silent:
        monkeypatch.setattr(http_channel, "CONNECT_SECONDS", 0.05)

    async with talking(script) as talk:
        assert (await talk.refused("initialize")).data == {"status": 404}
        assert not talk.heard.ended
        while talk.transport._tasks:
            await asyncio.sleep(0)


@pytest.mark.rule("CHTTP-30")
async def test_only_initialize_looks_for_it() -> None:
    async with talking(OldServer()) as talk:
        with pytest.raises(MCPError):
            await talk.call("server/discover")
        assert [each.method for each in talk.server.asked] == ["POST"]


@pytest.mark.rule("CHTTP-30")
async def test_a_request_that_is_forgotten_while_it_is_looked_for_leaves_nothing() -> None:
    looked = asyncio.Event()

    async def script(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.method == "GET":
            out.stream()
            looked.set()
            await out.gone()
        else:
            out.whole(405)

    async with talking(script) as talk:
        request_id = talk.send("initialize")
        await looked.wait()
        talk.transport.forget(request_id)
        while talk.transport._tasks:
            await asyncio.sleep(0)


@pytest.mark.rule("CHTTP-32")
@pytest.mark.parametrize("how", ["tools/end", "tools/cut"])
async def test_end_of_the_stream_loses_the_transport(how: str) -> None:
    async with talking(OldServer()) as talk:
        await talk.begin(SESSIONS)
        with pytest.raises(ConnectionLostError) as raised:
            await talk.call(how)
        assert raised.value.may_have_run
        assert len(talk.heard.ended) == 1


@pytest.mark.rule("CHTTP-32")
async def test_a_stream_that_names_its_endpoint_and_ends_is_lost_at_once() -> None:
    async def script(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.method == "GET":
            out.stream()
            out.say(b"event: endpoint\ndata: /x\n\n")
            out.end()
        else:
            out.whole(404 if asked.target == "/mcp" else 202)

    async with talking(script) as talk:
        with pytest.raises(ConnectionLostError):
            await talk.call("initialize")
        assert len(talk.heard.ended) == 1


@pytest.mark.rule("CHTTP-30")
async def test_where_authentication_fails_for_the_stream_the_refusal_counts() -> None:
    class Once(httpx2.Auth):
        def auth_flow(self, request: httpx2.Request) -> Any:
            if request.method == "GET":
                raise RuntimeError("no token to be had")
            yield request

    async with talking(OldServer(), auth=Once()) as talk:
        assert (await talk.refused("initialize")).data == {"status": 405}


@pytest.mark.rule("CHTTP-32")
async def test_a_message_that_is_not_taken_has_failed_alone() -> None:
    async with talking(OldServer()) as talk:
        await talk.begin(SESSIONS)
        assert (await talk.refused("tools/refused")).data == {"status": 400}
        assert await talk.call("tools/list") == {"n": 1}


@pytest.mark.rule("CHTTP-11", "CHTTP-32")
async def test_an_answer_may_come_where_its_request_was_never_taken_note_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_channel, "ACKNOWLEDGE_TIMEOUT", 0.5)

    class Silent(OldServer):
        async def take(self, asked: ReceivedRequest, out: ScriptedReply) -> None:
            assert self.stream is not None
            if "id" in asked.message:
                self.stream.event(answer_to(asked, {"n": 2}))
                await out.gone()
            else:
                out.whole(202)

    async with talking(Silent()) as talk:
        assert await talk.begin(SESSIONS) == {"n": 2}
        assert await talk.call("tools/list") == {"n": 2}
        while len(talk.transport._tasks) > 1:  # the stream goes on, and nothing else
            await asyncio.sleep(0.01)


@pytest.mark.rule("CHTTP-16", "CHTTP-32")
async def test_a_status_that_says_timeout_is_no_silence() -> None:
    class Late(OldServer):
        async def take(self, asked: ReceivedRequest, out: ScriptedReply) -> None:
            out.whole(504)

    async with talking(Late()) as talk:
        with pytest.raises(CallTimeoutError) as raised:
            await talk.call("initialize")
        assert raised.value.data == {"status": 504}


@pytest.mark.rule("CHTTP-14", "CHTTP-32")
async def test_message_that_is_too_long_is_reported() -> None:
    server = OldServer()
    async with talking(server, max_message_bytes=1_000) as talk:
        await talk.begin(SESSIONS)
        assert server.stream is not None
        server.stream.say(b"data: " + b"x" * 2_000 + b"\n\n")
        assert await talk.call("tools/list") == {"n": 1}
        assert [line for line, _ in talk.heard.told].count(LineTooLong(1_000)) == 1
