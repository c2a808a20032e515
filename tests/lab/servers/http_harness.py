"""A server as an ASGI application for tests, whose tools wait until they are released."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from attrs import define, field

from foundation_rt import Server, ToolContext
from foundation_rt.http.app import HttpApplication
from tests.lab.waiting import Changing, until

STOP_SECONDS = 10.0


@define(eq=False)
class HttpHarness(Changing):
    """The application, with control of its waiting tools.

    Attributes:
        entered: the tags of the calls of `wait` that have begun.
        ended: how they ended, by tag.
        go: lets them return.
    """

    server: Server
    app: HttpApplication = field(init=False)
    entered: list[str] = field(factory=list)
    ended: dict[str, str] = field(factory=dict)
    go: asyncio.Event = field(factory=asyncio.Event)

    async def idle(self) -> None:
        """Wait until no handler runs."""
        await until(lambda: not self.server.runtime.engine.running, "no handler runs")


def make_server(harness_of: list[HttpHarness], settings: Mapping[str, Any] | None = None) -> Server:
    """Return a server with the tools that tests call."""
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
        harness = harness_of[0]
        harness.entered.append(tag)
        harness.has_changed()
        try:
            await harness.go.wait()
        except asyncio.CancelledError:
            harness.ended[tag] = str(context.abort_signal.reason)
            harness.has_changed()
            raise
        harness.ended[tag] = "returned"
        harness.has_changed()
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
async def harness(**settings: Any) -> AsyncIterator[HttpHarness]:
    """Start the application with `settings` of the section `http`; stop it in the end."""
    made: list[HttpHarness] = []
    server = make_server(made, settings)
    one = HttpHarness(server)
    made.append(one)
    one.app = server.asgi_app()
    await one.app.start()
    try:
        yield one
    finally:
        one.go.set()
        one.app.begin_stop()
        await one.app.stop(STOP_SECONDS)
        server.runtime.close_logs(1.0)
