"""Requests that are handed to a forwarder, over HTTP in both protocol modes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from foundation_rt import ForwardedError
from tests.lab.peers.forwarders import ScriptedForwarder
from tests.lab.servers.asgi import ask, call, open_session, request
from tests.lab.servers.http_harness import STOP_SECONDS, HttpHarness, make_server


def answer(asked: Any, context: Any) -> dict[str, Any]:
    if asked.method in ("resources/subscribe", "subscriptions/listen"):
        return {"notifications": asked.params.get("notifications")}
    if asked.name == "missing":
        raise ForwardedError(-32602, "as it came", {"x": 1})
    return {"content": [], "x-y": 1}


@asynccontextmanager
async def forwarding(forwarder: ScriptedForwarder) -> AsyncIterator[HttpHarness]:
    made: list[HttpHarness] = []
    one = HttpHarness(make_server(made))
    made.append(one)
    one.server.forward(forwarder)
    one.app = one.server.asgi_app()
    await one.app.start()
    try:
        yield one
    finally:
        one.app.begin_stop()
        await one.app.stop(STOP_SECONDS)
        one.server.runtime.close_logs(1.0)


@pytest.mark.rule("FWD-05", "FWD-08")
async def test_forwarded_calls_are_answered_over_http() -> None:
    async with forwarding(ScriptedForwarder(answer)) as harness:
        answered = await call(harness.app, "theirs", 7).finish()
        assert (answered.status, answered.json["result"]["x-y"]) == (200, 1)
        refused = await call(harness.app, "missing", 7).finish()
        assert refused.json["error"] == {"code": -32602, "message": "as it came", "data": {"x": 1}}
        session = await open_session(harness.app)
        listed = await session.post(request("tools/list")).finish()
        assert listed.json["result"]["tools"]
        answered = await session.post(request("tools/call", {"name": "theirs"})).finish()
        assert answered.json["result"] == {"content": [], "x-y": 1}


@pytest.mark.rule("FWD-24", "FWD-25")
async def test_listeners_over_http_end_with_their_connection() -> None:
    forwarder = ScriptedForwarder(answer)
    async with forwarding(forwarder) as harness:
        params = {"notifications": {"resourceSubscriptions": ["their://1"]}}
        listening = ask(harness.app, "subscriptions/listen", params, "s")
        await listening.until(lambda: listening.messages)
        harness.server.resource_updated("their://1")
        await listening.until(lambda: len(listening.messages) == 2)
        acknowledged, updated = listening.messages
        assert acknowledged["params"]["notifications"] == params["notifications"]
        assert updated["params"]["uri"] == "their://1"
        assert forwarder.ended == []
        listening.leave()
        await listening.finish()
        assert forwarder.ended == forwarder.requests
        stopped = ask(harness.app, "subscriptions/listen", params, "t")
        await stopped.until(lambda: stopped.messages)
        harness.app.begin_stop()
        await stopped.finish()
        assert stopped.messages[-1]["id"] == "t"
        assert forwarder.ended == forwarder.requests


@pytest.mark.rule("FWD-23", "FWD-25")
async def test_subscriptions_of_a_session_end_with_it() -> None:
    forwarder = ScriptedForwarder(answer)
    async with forwarding(forwarder) as harness:
        session = await open_session(harness.app)
        subscribe = request("resources/subscribe", {"uri": "their://1"})
        answered = await session.post(subscribe).finish()
        assert "result" in answered.json
        assert harness.server.subscribed_resources() == ["their://1"]
        assert (await session.delete().finish()).status == 204
        assert forwarder.ended == forwarder.requests
