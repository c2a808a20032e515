"""What a handler does with its context, as handlers written for other SDKs do it."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from foundation_rt import Principal, Server, TextContents, ToolContext, ToolError
from foundation_rt.testing import TestClient
from tests.lab.servers.fixture import ServerFixture
from tests.lab.waiting import until

if TYPE_CHECKING:
    from nowhere import AppState

NOT_FOUND = {"reason": "resource_not_found", "uri": "a:none"}


@pytest.mark.rule("NOTE-10", "NOTE-11")
@pytest.mark.parametrize("awaited", [False, True])
async def test_messages_may_be_awaited(awaited: bool) -> None:
    server = Server("logs")

    @server.tool
    def plain(ctx: ToolContext) -> None:
        ctx.debug("too fine")
        ctx.info("started")
        ctx.warning("low", logger="tank", litres=3)
        ctx.error({"code": 5})
        ctx.log("info", "last")

    @server.tool
    async def waiting(ctx: ToolContext) -> None:
        await ctx.debug("too fine")
        await ctx.info("started")
        await ctx.warning("low", logger="tank", litres=3)
        await ctx.error({"code": 5})
        await ctx.log("info", "last")
        await ctx.report_progress(1)

    async with TestClient(server) as client:
        await client.call("waiting" if awaited else "plain")
        sent = [each["params"] for each in client.notifications]
    assert sent == [
        {"level": "info", "data": "started"},
        {"level": "warning", "data": {"message": "low", "litres": 3}, "logger": "tank"},
        {"level": "error", "data": {"code": 5}},
        {"level": "info", "data": "last"},
    ]


@pytest.mark.rule("TYPED-54")
async def test_context_with_a_type_of_state_is_the_context() -> None:
    server = Server("typed")

    @server.tool
    def of_checkers(ctx: ToolContext[AppState]) -> str:
        return ctx.run_id

    @server.tool
    def optional(ctx: ToolContext[dict[str, int]] | None = None) -> bool:
        return ctx is not None

    async with TestClient(server) as client:
        assert await client.call("of_checkers")
        assert await client.call("optional") is True
        tools = await client.list_tools()
    assert {"optional", "of_checkers"} <= {tool["name"] for tool in tools}
    assert all(not tool["inputSchema"]["properties"] for tool in tools)


def library() -> Server:
    server = Server("library")

    @server.resource("a:thread")
    def blocking() -> str:
        return threading.current_thread().name

    @server.resource("a:loop/{n}")
    async def on_loop(n: int, uri: str, ctx: ToolContext) -> list[Any]:
        return [TextContents(uri, f"{n} {ctx.run_id}"), b"x"]

    @server.resource("a:secret", scopes=["read"], inline=True)
    def secret() -> dict[str, int]:
        return {"a": 1}

    @server.tool
    async def read(uri: str, ctx: ToolContext) -> list[Any]:
        try:
            contents = await ctx.read_resource(uri)
        except ToolError as error:
            return [error.code, error.details]
        return [ctx.run_id, *(getattr(each, "text", None) for each in contents)]

    return server


@pytest.mark.rule("MRES-23")
async def test_handler_reads_resources_of_its_server() -> None:
    async with TestClient(library()) as client:
        assert "foundation-rt-worker" in (await client.call("read", uri="a:thread"))[1]
        run_id, text, blob = await client.call("read", uri="a:loop/5")
        assert (text, blob) == (f"5 {run_id}", None)
        assert (await client.call("read", uri="a:secret"))[1] == '{"a":1}'
        assert await client.call("read", uri="a:none") == ["NOT_FOUND", NOT_FOUND]
        client.connection.session.principal = Principal("ann", frozenset(("read",)))
        assert (await client.call("read", uri="a:secret"))[1] == '{"a":1}'
        client.connection.session.principal = Principal("bob")
        assert (await client.call("read", uri="a:secret"))[0] == "UNAUTHORIZED"


@pytest.mark.rule("CALL-18")
async def test_cancelled_handler_waits_for_its_thread() -> None:
    server = Server("threads", config={"tools": {"cancel_grace_ms": 0}})
    started, may_end = threading.Event(), threading.Event()
    ended: list[str] = []

    def block(word: str) -> str:
        started.set()
        may_end.wait(20)
        ended.append(word)
        return word

    @server.tool
    async def work(word: str, ctx: ToolContext) -> str:
        try:
            return await ctx.run_in_worker(block, word)
        finally:
            ended.append("handler")

    @server.tool
    async def failing(ctx: ToolContext) -> str:
        return await ctx.run_in_worker(lambda: str(1 // 0))

    async with TestClient(server) as client:
        call = asyncio.create_task(client.call("work", word="a"))
        await asyncio.to_thread(started.wait, 20)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert server.runtime.engine.running
        may_end.set()
        await until(lambda: not server.runtime.engine.running, "the call ends")
        assert ended == ["a", "handler"]
        assert await client.call("work", word="b") == "b"
        with pytest.raises(ToolError, match="failed"):
            await client.call("failing")


def test_context_made_by_hand_has_no_server() -> None:
    fixture = ServerFixture()
    context = ToolContext("r", "c", None, fixture.server.runtime.logger)  # type: ignore[arg-type]
    for call in (context.read_resource("a:b"), context.run_in_worker(len, "a")):
        with pytest.raises(Exception, match="made by hand"):
            call.send(None)
