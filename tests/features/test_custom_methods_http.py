"""Methods of an author over HTTP: heads, statuses, sessions, scopes, and several workers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from foundation_rt import Server, ToolContext
from foundation_rt.http.app import HttpApplication
from tests.lab.servers.asgi import META, REVISION, ask, open_session, post, request

KEY = "k" * 32
READER = {"x-api-key": KEY}
WRITER = {"x-api-key": f"{KEY[:-1]}w"}
KEYS = (f"reader:{KEY}:other", f"writer:{KEY[:-1]}w:reports")


@asynccontextmanager
async def serving(**http: Any) -> AsyncIterator[HttpApplication]:
    server = Server("methods", config={"http": http, "logging": {"level": "error"}})

    @server.method("acme/report", scopes=["reports"])
    async def report(city: str, *, ctx: ToolContext) -> dict[str, str | None]:
        ctx.report_progress(1)
        return {"city": city, "session": ctx.session_key}

    app = server.asgi_app()
    await app.start()
    try:
        yield app
    finally:
        app.begin_stop()
        await app.stop(5)


@pytest.mark.rule("EXT-03", "EXT-04", "HTTP-11")
async def test_stateless_request_has_the_status_of_its_answer() -> None:
    async with serving(no_auth=True) as app:
        for method, params, status in (
            ("acme/report", {"city": "Oslo"}, 200),
            ("acme/report", {"city": 5}, 400),
            ("acme/other", {}, 404),
        ):
            answer = await ask(app, method, params).finish()
            assert answer.status == status
        done = await ask(app, "acme/report", {"city": "Oslo", "name": "no header"}).finish()
        assert done.json["error"]["data"]["code"] == "INVALID_ARGUMENT"


@pytest.mark.rule("EXT-03", "HEAD-11")
async def test_head_of_a_stateless_request_names_the_method() -> None:
    async with serving(no_auth=True) as app:
        message = request("acme/report", {"city": "Oslo", "_meta": META})
        version = {"mcp-protocol-version": REVISION}
        for headers, status in (
            ({**version, "mcp-method": "acme/report"}, 200),
            ({**version, "mcp-method": "acme/other"}, 400),
            (version, 400),
        ):
            assert (await post(app, message, headers).finish()).status == status


@pytest.mark.rule("EXT-03")
async def test_request_of_a_session_has_its_session() -> None:
    async with serving(no_auth=True) as app:
        session = await open_session(app)
        asked = request("acme/report", {"city": "Oslo", "_meta": {"progressToken": 1}}, 7)
        done = await session.post(asked).finish()
        assert done.status == 200
        progress, answer = done.messages
        assert progress["method"] == "notifications/progress"
        assert answer["result"]["session"]
        again = await session.post(request("acme/report", {"city": "Bergen"}, 8)).finish()
        assert again.json["result"]["session"] == answer["result"]["session"]
        gone = await post(app, request("acme/report", {"city": "Oslo"})).finish()
        assert gone.status == 400


@pytest.mark.rule("EXT-05", "AUTH-12")
async def test_scopes_are_challenged() -> None:
    async with serving(api_keys=KEYS) as app:
        refused = await ask(app, "acme/report", {"city": "Oslo"}, headers=READER).finish()
        assert refused.status == 403
        challenge = 'Bearer error="insufficient_scope", scope="reports"'
        assert refused.headers["www-authenticate"] == challenge
        done = await ask(app, "acme/report", {"city": "Oslo"}, headers=WRITER).finish()
        assert done.status == 200


@pytest.mark.rule("AUTH-12")
async def test_call_that_names_nothing_needs_no_scopes_and_is_refused() -> None:
    async with serving(api_keys=KEYS) as app:
        info = {"name": "c", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        opened = await post(app, request("initialize", hello), READER).finish()
        head = {**READER, "mcp-session-id": opened.headers["mcp-session-id"]}
        initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await post(app, initialized, head).finish()
        for params, code in ((None, -32601), ([1], -32602)):
            refused = await post(app, request("resources/read", params), head).finish()
            assert (refused.status, refused.json["error"]["code"]) == (200, code)
