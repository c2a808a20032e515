"""A channel to a server of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from foundation_rt import Server, ToolContext
from foundation_rt.client.errors import ConnectionLostError
from foundation_rt.client.transports.memory import MemoryChannel
from foundation_rt.client.transports.transport import Outgoing
from foundation_rt.protocol.revisions import NEWEST_HANDSHAKE_REVISION
from tests.support.told import Told, run


def quiet_server() -> Server:
    server = Server("in memory", config={"logging": {"level": "error"}})

    @server.tool(inline=True)
    def double(value: int) -> int:
        return 2 * value

    @server.tool
    async def wait(ctx: ToolContext) -> None:
        await ctx.abort_signal.wait()

    return server


def message(method: str, params: dict[str, Any] | None = None, **members: Any) -> Outgoing:
    return Outgoing(
        orjson.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}, **members})
    )


async def connected(server: Server) -> tuple[MemoryChannel, Told]:
    """A channel after its handshake."""
    channel, told = MemoryChannel(server), Told()
    await channel.open(told)
    info = {"name": "tests", "version": "0"}
    params = {
        "protocolVersion": NEWEST_HANDSHAKE_REVISION,
        "capabilities": {},
        "clientInfo": info,
    }
    channel.send(message("initialize", params, id="first"))
    await told.count(1)
    channel.send(message("notifications/initialized"))
    return channel, told


def call(tool: str, request_id: str, **arguments: Any) -> Outgoing:
    return message("tools/call", {"name": tool, "arguments": arguments}, id=request_id)


@pytest.mark.rule("CHILD-13")
def test_what_the_server_says_comes_later_than_what_it_answers() -> None:
    async def main() -> None:
        channel, told = await connected(quiet_server())
        channel.send(call("double", "a", value=21))
        channel.send(call("double", "b", value=4))
        assert len(told.lines) == 1
        lines = await told.count(3)
        answers = [orjson.loads(line) for line in lines[1:]]  # type: ignore[arg-type]
        assert [each["id"] for each in answers] == ["a", "b"]
        assert [each["result"]["content"][0]["text"] for each in answers] == ["42", "8"]
        assert not channel.congested
        await channel.drained()
        assert channel.diagnosis() == ""
        await channel.close()

    run(main())


@pytest.mark.rule("CHILD-13")
def test_lines_are_checked_as_everywhere() -> None:
    server = Server("strict", config={"transport": {"max_line_bytes": 1024}})

    async def main() -> None:
        channel, told = MemoryChannel(server), Told()
        await channel.open(told)
        channel.send(Outgoing(b"no JSON"))
        channel.send(Outgoing(b'"%s"' % (b"x" * 2000)))
        codes = [orjson.loads(line)["error"]["code"] for line in await told.count(2)]  # type: ignore[arg-type]
        assert codes == [-32700, -32600]
        await channel.close()

    run(main())


@pytest.mark.rule("CHILD-13")
def test_nothing_comes_after_close_and_what_runs_is_aborted() -> None:
    async def main() -> None:
        server = quiet_server()
        channel, told = await connected(server)
        channel.send(call("wait", "w"))
        channel.send(call("double", "d", value=1))
        await channel.close()
        await channel.close()
        channel.send(call("double", "e", value=1))
        while server.runtime.engine.running:
            await asyncio.sleep(0)
        assert len(told.lines) == 1
        assert told.errors == []

    run(main())


def living_server(events: list[str]) -> Server:
    server = quiet_server()

    @server.lifespan
    async def live(server: Server) -> AsyncIterator[None]:
        events.append("enter")
        yield
        events.append("leave")

    return server


@pytest.mark.rule("CHILD-14")
def test_the_lifespan_is_held_from_the_first_channel_to_the_last() -> None:
    events: list[str] = []

    async def main() -> None:
        server = living_server(events)
        for _ in range(2):
            channels = [await connected(server) for _ in range(3)]
            assert events == ["enter"]
            for channel, _ in channels[:-1]:
                await channel.close()
                await channel.close()
            last, told = channels[-1]
            last.send(call("double", "still", value=1))
            await told.count(2)
            assert events == ["enter"]
            await last.close()
            assert events == ["enter", "leave"]
            events.clear()

    run(main())


@pytest.mark.rule("CHILD-14")
def test_channels_may_be_opened_and_closed_together() -> None:
    events: list[str] = []

    async def main() -> None:
        server = living_server(events)
        channels = [MemoryChannel(server) for _ in range(5)]
        await asyncio.gather(*(each.open(Told()) for each in channels))
        await asyncio.gather(*(each.close() for each in channels for _ in range(2)))
        assert events == ["enter", "leave"]

    run(main())


@pytest.mark.rule("CHILD-14")
def test_what_runs_beside_connections_ends_with_the_last() -> None:
    stopped: list[str] = []

    async def main() -> None:
        server = quiet_server()
        runtime = server.runtime

        async def stop_agents() -> None:
            stopped.append("agents")

        async def close_middleware() -> None:
            stopped.append("operations")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(runtime), "stop_agents", lambda runtime: stop_agents())
            patch.setattr(type(runtime), "close_middleware", lambda runtime: close_middleware())
            host = runtime.connect_host(lambda line: None, "memory")
            first, _ = await connected(server)
            second, _ = await connected(server)
            await first.close()
            await second.close()
            assert stopped == []  # somebody else is served
            host.close()
            third, _ = await connected(server)
            await third.close()
            assert stopped == ["agents", "operations"]

    run(main())


@pytest.mark.rule("CHILD-14")
def test_a_server_that_cannot_start_says_why() -> None:
    server = quiet_server()

    @server.lifespan
    async def fails(server: Server) -> AsyncIterator[None]:
        raise ValueError("no database")
        yield

    async def main() -> None:
        channel = MemoryChannel(server)
        with pytest.raises(ConnectionLostError, match="no database") as caught:
            await channel.open(Told())
        assert not caught.value.may_have_run
        await channel.close()

    run(main())


@pytest.mark.rule("CHILD-14")
def test_a_configuration_that_is_refused_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOUNDATION_RT_TOOLS__DEFAULT_TIMEOUT_MS", "soon")

    async def main() -> None:
        with pytest.raises(ConnectionLostError, match="default_timeout_ms"):
            await MemoryChannel(Server("refused")).open(Told())

    run(main())


@pytest.mark.rule("CHILD-14")
@pytest.mark.parametrize("steps", range(6))
def test_close_ends_an_open_that_is_under_way(steps: int) -> None:
    events: list[str] = []

    async def main() -> None:
        channel = MemoryChannel(living_server(events))
        opening = asyncio.ensure_future(channel.open(Told()))
        for _ in range(steps):
            await asyncio.sleep(0)
        was_open = opening.done()
        await channel.close()
        await asyncio.wait([opening])
        assert isinstance(opening.exception(), ConnectionLostError | None)
        if was_open:
            assert opening.exception() is None
        await settled()
        assert events in ([], ["enter", "leave"])

    run(main())


@pytest.mark.rule("CHILD-14")
@pytest.mark.parametrize("steps", range(6))
def test_an_open_that_is_cancelled_leaves_nothing(steps: int) -> None:
    events: list[str] = []

    async def main() -> None:
        channel = MemoryChannel(living_server(events))
        opening = asyncio.ensure_future(channel.open(Told()))
        for _ in range(steps):
            await asyncio.sleep(0)
        if opening.cancel():
            await asyncio.wait([opening])
            assert opening.cancelled()
        await channel.close()
        await settled()
        assert events in ([], ["enter", "leave"])

    run(main())


@pytest.mark.rule("CHILD-14")
def test_a_close_that_is_cancelled_goes_on() -> None:
    events: list[str] = []

    async def main() -> None:
        server = living_server(events)
        channel, _ = await connected(server)
        closing = asyncio.ensure_future(channel.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        await channel.close()
        assert events == ["enter", "leave"]

    run(main())


@pytest.mark.rule("CHILD-14")
def test_a_channel_is_opened_once() -> None:
    async def main() -> None:
        channel = MemoryChannel(quiet_server())
        channel.send(message("ping", id="nobody hears it"))
        await channel.open(Told())
        with pytest.raises(ConnectionLostError, match="opened once"):
            await channel.open(Told())
        await channel.close()
        with pytest.raises(ConnectionLostError, match="opened once"):
            await channel.open(Told())

    run(main())


async def settled() -> None:
    """Wait until no other task is left."""
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0)
