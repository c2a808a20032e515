"""HTTP+SSE of revision 2024-11-05."""

from __future__ import annotations

import orjson
import pytest

from tests.lab.servers.asgi import Visit, request, visit
from tests.lab.servers.http_harness import HttpHarness, harness

INITIALIZE = request(
    "initialize",
    {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t"}},
)


def send(harness: HttpHarness, address: str, message: object) -> Visit:
    path, _, query = address.partition("?")
    return visit(harness.app, "POST", path, body=orjson.dumps(message), query=query)


@pytest.mark.rule("HTTP-18")
async def test_legacy_session() -> None:
    async with harness(session_idle_ms=1) as one:  # nobody who listens is idle
        stream = visit(one.app, "GET", "/sse")
        await stream.until(lambda: stream.events)
        [endpoint] = stream.events
        assert endpoint["event"] == "endpoint"
        address = endpoint["data"]
        assert (await send(one, address, INITIALIZE).finish()).status == 202
        initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await send(one, address, initialized).finish()
        params = {"name": "work", "arguments": {"text": "hi"}}
        answer = await send(one, address, request("tools/call", params, 2)).finish()
        assert (answer.status, answer.body) == (202, b"")
        await stream.until(lambda: len(stream.events) == 3)
        replies = [orjson.loads(each["data"]) for each in stream.events[1:]]
        assert replies[0]["result"]["protocolVersion"] == "2024-11-05"
        assert replies[1]["result"]["content"][0]["text"] == "hi"
        waiting = request("tools/call", {"name": "wait", "arguments": {"tag": "a"}}, 3)
        await send(one, address, waiting).finish()
        await one.until(lambda: one.entered)
        stream.leave()
        await stream.finish()
        running = one.server.runtime.engine.running
        assert [each.phase.name for each in running if each.name == "wait"] == ["DISCONNECTED"]
        assert (await send(one, address, request("ping")).finish()).status == 404


@pytest.mark.rule("HTTP-18")
async def test_legacy_refusals() -> None:
    async with harness(max_sessions=1, max_body_bytes=1024) as one:
        assert (await visit(one.app, "POST", "/sse").finish()).status == 405
        assert (await visit(one.app, "GET", "/messages").finish()).status == 405
        for address in ("/messages", "/messages?session_id=x", "/messages?session_id="):
            assert (await send(one, address, INITIALIZE).finish()).status == 404
        first = visit(one.app, "GET", "/sse")
        await first.until(lambda: first.events)
        address = first.events[0]["data"]
        assert (await visit(one.app, "GET", "/sse").finish()).status == 503
        twice = f"{address}&{address.partition('?')[2]}"
        assert (await send(one, twice, INITIALIZE).finish()).status == 404
        assert (await send(one, address, "x" * 2000).finish()).status == 413
        path, _, query = address.partition("?")
        text = {"content-type": "text/plain"}
        wrong = visit(one.app, "POST", path, text, b"{}", query=query)
        assert (await wrong.finish()).status == 415
        one.app.begin_stop()
        await first.finish()
        assert first.ended
