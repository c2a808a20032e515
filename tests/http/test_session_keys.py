"""The keys of sessions over HTTP, and the reports of their ends."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from foundation_rt import Server, ServerOptions, ToolContext
from foundation_rt.base.clock import ManualClock
from foundation_rt.http.session_table import session_key_of
from tests.lab.servers.asgi import AsgiSession, call, open_session, request, visit

IDLE_MS = 1000


class Application:
    """An application whose sessions tell their keys.

    Attributes:
        ended: the keys of the sessions that have ended.
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ended: list[str] = []
        http = {"no_auth": True, "session_idle_ms": IDLE_MS}
        config = {"http": http, "logging": {"level": "error"}}
        server = Server(config=config, options=ServerOptions(clock=self.clock))
        server.on_session_end(self.ended.append)

        @server.tool
        async def key(context: ToolContext) -> str | None:
            return context.session_key

        self.app = server.asgi_app()


async def key_of(session: AsgiSession) -> str:
    answer = await session.call("key").finish()
    return str(answer.json["result"]["content"][0]["text"])


async def delete(application: Application, session: AsgiSession) -> None:
    assert (await session.delete().finish()).status == 204


async def become_idle(application: Application, session: AsgiSession) -> None:
    application.clock.advance(IDLE_MS / 1000)
    assert (await session.call("key").finish()).status == 404


async def stop(application: Application, session: AsgiSession) -> None:
    application.app.begin_stop()
    await application.app.stop(10.0)


@pytest.mark.rule("LIFE-16", "LIFE-18")
@pytest.mark.parametrize("end", [delete, become_idle, stop])
async def test_end_of_a_session_is_reported_once(
    end: Callable[[Application, AsgiSession], Awaitable[None]],
) -> None:
    application = Application()
    async with application.app.lifespan():
        session = await open_session(application.app)
        key = await key_of(session)
        assert key == await key_of(session) == session_key_of(session.session_id)
        assert re.fullmatch("[0-9a-f]{64}", key)
        await open_session(application.app)  # nothing reads its key
        assert application.ended == []
        await end(application, session)
        assert application.ended == [key]
    assert application.ended == [key]


@pytest.mark.rule("LIFE-17")
async def test_stateless_call_has_no_key() -> None:
    application = Application()
    async with application.app.lifespan():
        answer = await call(application.app, "key").finish()
        assert answer.json["result"]["content"][0]["text"] == "null"
    assert application.ended == []


@pytest.mark.rule("LIFE-16", "LIFE-18")
async def test_session_of_the_legacy_transport_has_a_key_until_its_stream_ends() -> None:
    application = Application()
    async with application.app.lifespan():
        stream = visit(application.app, "GET", "/sse")
        await stream.until(lambda: stream.events)
        path, _, query = stream.events[0]["data"].partition("?")

        async def say(message: Any) -> None:
            body = orjson.dumps(message)
            sent = await visit(application.app, "POST", path, {}, body, query=query).finish()
            assert sent.status == 202

        hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t"}}
        await say(request("initialize", hello))
        await say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        await say(request("tools/call", {"name": "key", "arguments": {}}, 2))
        await stream.until(lambda: len(stream.events) == 3)
        key = orjson.loads(stream.events[-1]["data"])["result"]["content"][0]["text"]
        assert key == session_key_of(query.partition("=")[2])
        stream.leave()
        await stream.finish()
        assert application.ended == [key]
