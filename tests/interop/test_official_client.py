"""The official Python client against a real server process.

The server runs under a shell that notes its exit code: a client that had to terminate the server
would leave no note, or another one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from attrs import define
from mcp import Client, ClientSession, MCPError, StdioServerParameters, stdio_client
from mcp_types import CallToolResult, TextContent

from tests.lab.servers.process import PATIENCE, decode_text, environment

TYPED_APP = '''
from __future__ import annotations

import asyncio
import enum
from typing import Annotated, Literal, TypedDict

import attrs

from foundation_rt import ErrorCode, Server, ToolContext, ToolError

server = Server("weather", version="1.2.3", instructions="Ask for one city at a time.")


class Unit(enum.Enum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


@attrs.frozen
class Place:
    city: str
    country: str = "NO"


class Report(TypedDict):
    place: str
    days: int
    unit: str


@server.tool(version="2")
async def forecast(
    place: Place, days: Annotated[int, "How many days ahead."] = 3, unit: Unit = Unit.CELSIUS
) -> Report:
    """Forecast for a place.

    Args:
        place: Where.
    """
    await asyncio.sleep(0)
    return {"place": f"{place.city}, {place.country}", "days": days, "unit": unit.value}


@server.tool("forecast", version="1", inline=True, deprecated="use version 2")
def forecast_of_today(city: str) -> Report:
    return {"place": city, "days": 0, "unit": "celsius"}


@server.tool
def find(city: str, kind: Literal["town", "village"] = "town") -> dict:
    """Find a city."""
    print("looking for", city)
    raise ToolError(ErrorCode.NOT_FOUND, "no such city", {"city": city})


@server.tool(inline=True)
def hello() -> str:
    return "hei"


@server.tool
async def wait(ctx: ToolContext) -> str:
    """Wait until nobody wants the answer."""
    ctx.logger.info("waiting")
    reason = await ctx.abort_signal.wait()
    ctx.logger.info("no longer", {"reason": reason})
    ctx.abort_signal.raise_if_aborted()
    return reason
'''


@define
class StderrLog:
    """What the server writes to stderr, as it comes."""

    descriptor: int
    text: bytes = b""

    async def record(self, **fields: object) -> dict[str, object]:
        """Wait for a log record with these fields."""
        while True:
            for line in self.text.split(b"\n")[:-1]:
                record = orjson.loads(line) if line.startswith(b"{") else {}
                if fields.items() <= record.items():
                    return record
            await anyio.wait_readable(self.descriptor)
            self.text += os.read(self.descriptor, 65_536)

    def rest(self) -> bytes:
        """All of it, once the server has ended."""
        while more := os.read(self.descriptor, 65_536):
            self.text += more
        return self.text


class Host:
    """Starts servers for the client, and tells how they ended."""

    def __init__(self, folder: Path, log: StderrLog) -> None:
        self.exit_note = folder / "exit_code"
        self.log = log

    def parameters(self, *words: str) -> StdioServerParameters:
        """How the client is to start `foundation-rt serve`."""
        script = f'"$@"; echo $? > {self.exit_note}'
        server = [sys.executable, "-m", "foundation_rt", "serve", *words]
        return StdioServerParameters(
            command="sh", args=["-c", script, "sh", *server], env=environment()
        )

    @asynccontextmanager
    async def transport(self, *words: str) -> AsyncIterator[Any]:
        """Yield the streams to a server, which must end by itself afterwards, with exit code 0."""
        self.log.descriptor, writer = os.pipe()
        with open(writer, "w") as log:
            async with stdio_client(self.parameters(*words), errlog=log) as streams:
                yield streams
        assert self.exit_note.read_text() == "0\n"

    @asynccontextmanager
    async def connect(self, *words: str) -> AsyncIterator[ClientSession]:
        """Yield a session after its handshake."""
        async with self.transport(*words) as streams, ClientSession(*streams) as session:
            await session.initialize()
            yield session


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    log = StderrLog(-1)
    yield Host(tmp_path, log)
    os.close(log.descriptor)


@pytest.fixture
def app(tmp_path: Path) -> str:
    file = tmp_path / "tools.py"
    file.write_text(TYPED_APP)
    return str(file)


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a coroutine, with a bound on how long it takes."""

    async def bounded() -> None:
        with anyio.fail_after(PATIENCE):
            await test()

    anyio.run(bounded)


def text_of(result: CallToolResult) -> object:
    [content] = result.content
    assert isinstance(content, TextContent)
    return decode_text(content.text)


@pytest.mark.rule("LIFE-02", "LIFE-04", "LIFE-08", "REG-02", "CLI-01", "PROC-03", "PROC-04")
async def test_the_demo_tools_are_listed_and_called(host: Host) -> None:
    async with host.connect() as session:
        assert session.initialize_result is not None
        assert session.initialize_result.protocol_version == "2025-11-25"
        assert session.initialize_result.server_info.name == "foundation-rt-demo"
        assert session.initialize_result.capabilities.tools is not None
        listed = await session.list_tools()
        assert [tool.name for tool in listed.tools] == ["echo", "health", "sleep"]
        assert listed.next_cursor is None
        echo = await session.call_tool("echo", {"message": "hello"})
        assert echo.is_error is False
        assert text_of(echo) == {"message": "hello"}
        assert text_of(await session.call_tool("sleep", {"ms": 5})) == {"sleptMs": 5}
        health = text_of(await session.call_tool("health"))
        assert isinstance(health, dict)
        assert health["status"] in ("healthy", "degraded")  # on a busy machine
        await session.send_ping()


@pytest.mark.rule("VERS-04", "VERS-06", "VERS-08")
async def test_an_older_version_of_a_tool_is_called(host: Host, app: str) -> None:
    async with host.connect(app) as session:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        meta = tools["forecast"].meta
        assert meta is not None
        assert meta["foundation-rt/versions"]["1"]["inputSchema"]["required"] == ["city"]
        oslo = {"city": "Oslo"}
        by_name = await session.call_tool("forecast@1", oslo)
        by_meta = await session.call_tool("forecast", oslo, meta={"foundation-rt/version": "1"})
        for result in (by_name, by_meta):
            assert text_of(result) == {"place": "Oslo", "days": 0, "unit": "celsius"}
            assert result.meta == {"foundation-rt/deprecated": "use version 2"}
        assert (await session.call_tool("forecast", oslo)).is_error
        assert (await session.call_tool("forecast@3", oslo)).is_error


@pytest.mark.rule("LIFE-02", "REG-02", "CALL-10", "TYPED-01", "CLI-02")
async def test_typed_tools_are_listed_and_called(host: Host, app: str) -> None:
    async with host.connect(app) as session:
        assert session.initialize_result is not None
        assert session.initialize_result.server_info.name == "weather"
        assert session.initialize_result.server_info.version == "1.2.3"
        assert session.initialize_result.instructions == "Ask for one city at a time."
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert sorted(tools) == ["find", "forecast", "health", "hello", "wait"]
        assert tools["forecast"].description == "Forecast for a place."
        schema = tools["forecast"].input_schema
        assert schema["required"] == ["place"]
        assert schema["properties"]["days"]["description"] == "How many days ahead."
        arguments = {"place": {"city": "Oslo"}, "days": 5, "unit": "kelvin"}
        result = await session.call_tool("forecast", arguments)
        assert result.is_error is False
        assert text_of(result) == {"place": "Oslo, NO", "days": 5, "unit": "kelvin"}
        assert text_of(await session.call_tool("hello")) == "hei"


@pytest.mark.rule("ERR-02", "ERR-04", "CALL-06", "CALL-08", "PROC-01")
async def test_errors_of_tools_arrive_as_results(host: Host, app: str) -> None:
    async with host.connect(app) as session:
        expected = [
            ("find", {"city": "Atlantis"}, "NOT_FOUND"),
            ("find", {"city": 5}, "INVALID_ARGUMENT"),
            ("find", {"city": "Oslo", "spare": 1}, "INVALID_ARGUMENT"),
            ("forecast", {"place": {"city": "Oslo"}, "days": "5"}, "INVALID_ARGUMENT"),
            ("conquer", {}, "NOT_FOUND"),
        ]
        for tool, arguments, code in expected:
            result = await session.call_tool(tool, arguments)
            assert result.is_error is True
            error = text_of(result)
            assert isinstance(error, dict)
            assert error["code"] == code
    assert b"looking for Atlantis\n" in host.log.rest()


@pytest.mark.rule("RPC-11", "ERR-01")
async def test_errors_of_the_protocol_arrive_as_errors(host: Host) -> None:
    async with host.connect() as session:
        with pytest.raises(MCPError) as raised:
            await session.list_resources()
        assert raised.value.error.code == -32601
        await session.send_ping()


@pytest.mark.rule("TIME-05", "TIME-03", "CALL-15")
async def test_a_call_can_be_cancelled(host: Host, app: str) -> None:
    async with host.connect(app) as session:
        async with anyio.create_task_group() as group:
            group.start_soon(session.call_tool, "wait")
            await host.log.record(message="waiting")
            group.cancel_scope.cancel()
        assert (await host.log.record(message="no longer"))["reason"] == "cancelled"
        completed = await host.log.record(message="tool call completed", toolName="wait")
        assert completed["outcome"] == "aborted"
        assert text_of(await session.call_tool("hello")) == "hei"
        health = text_of(await session.call_tool("health"))
        assert isinstance(health, dict)
        assert health["resources"]["concurrentExecutions"] == 0


@pytest.mark.rule("PROC-03", "PROC-04", "TIME-08")
async def test_a_client_that_leaves_during_a_call_has_nothing_to_terminate(
    host: Host, app: str
) -> None:
    async with anyio.create_task_group() as group, host.connect(app) as session:
        group.start_soon(session.call_tool, "wait")
        await host.log.record(message="waiting")
        group.cancel_scope.cancel()
    assert b'"outcome":"aborted"' in host.log.rest()


@pytest.mark.rule("CALL-15", "RPC-05")
async def test_many_calls_at_once_each_get_their_own_answer(host: Host) -> None:
    async with host.connect() as session:
        answers: dict[int, object] = {}

        async def call(number: int) -> None:
            result = await session.call_tool("echo", {"message": str(number)})
            answers[number] = text_of(result)

        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(call, number)
        assert answers == {number: {"message": str(number)} for number in range(50)}


@pytest.mark.rule("LIFE-03", "LIFE-04", "REV-02")
@pytest.mark.parametrize(("mode", "revision"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_the_client_finds_out_what_the_server_speaks(
    host: Host, app: str, mode: str, revision: str
) -> None:
    # In `auto` the client asks for `server/discover` first, and stays with what it is told.
    async with Client(host.transport(app), mode=mode) as client:
        assert client.protocol_version == revision
        assert len((await client.list_tools()).tools) == 5
        assert text_of(await client.call_tool("hello")) == "hei"
