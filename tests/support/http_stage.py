"""A server as an ASGI application for tests, whose tools wait until they are let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from attrs import define, field

from foundation_rt import Server, ToolContext
from foundation_rt.transports.http.app import HttpApplication

STOP_SECONDS = 10.0


@define(eq=False)
class Stage:
    """The application, and what its tools wait for and have come to.

    Attributes:
        entered: the calls of `wait` that have begun, by their tag.
        ended: how they ended.
        go: lets them return.
    """

    server: Server
    app: HttpApplication = field(init=False)
    entered: list[str] = field(factory=list)
    ended: dict[str, str] = field(factory=dict)
    go: asyncio.Event = field(factory=asyncio.Event)
    changed: asyncio.Event = field(factory=asyncio.Event)

    async def until(self, condition: Any) -> None:
        """Wait for a tool."""
        async with asyncio.timeout(20):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def idle(self) -> None:
        """Wait until no handler runs."""
        async with asyncio.timeout(20):
            while self.server.runtime.engine.running:
                await asyncio.sleep(0)


def make_server(stage_of: list[Stage], settings: Mapping[str, Any] | None = None) -> Server:
    """A server with the tools that tests call."""
    http = {"no_auth": True, **(settings or {})}
    server = Server("test", version="1", config={"http": http, "logging": {"level": "error"}})

    @server.tool(inline=True)
    def echo(text: str) -> str:
        return text

    @server.tool
    def work(text: str) -> str:
        return text

    @server.tool
    async def wait(tag: str, context: ToolContext) -> str:
        stage = stage_of[0]
        stage.entered.append(tag)
        stage.changed.set()
        try:
            await stage.go.wait()
        except asyncio.CancelledError:
            stage.ended[tag] = str(context.abort_signal.reason)
            stage.changed.set()
            raise
        stage.ended[tag] = "returned"
        stage.changed.set()
        return tag

    @server.tool
    async def progress(count: int, context: ToolContext) -> str:
        for each in range(count):
            context.report_progress(each + 1, count)
        return "done"

    @server.tool
    async def let_go(tag: str, context: ToolContext) -> str:
        context.close_stream()
        return await wait(tag, context)

    @server.tool
    async def ask_roots(context: ToolContext) -> int:
        return len(await context.roots())

    @server.resource("note://{name}")
    def note(name: str) -> str:
        return name

    return server


@asynccontextmanager
async def stage(**settings: Any) -> AsyncIterator[Stage]:
    """The application, started, and stopped in the end; `settings` are of the section `http`."""
    stages: list[Stage] = []
    server = make_server(stages, settings)
    one = Stage(server)
    stages.append(one)
    one.app = server.asgi_app()
    await one.app.start()
    try:
        yield one
    finally:
        one.go.set()
        one.app.begin_stop()
        await one.app.stop(STOP_SECONDS)
        server.runtime.close_logs(1.0)
