"""A channel to a server of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from foundation_rt import Server, ToolContext
from foundation_rt.client.errors import ConnectionLostError
from foundation_rt.client.transports.memory import MemoryTransport
from foundation_rt.client.transports.transport import ClientMessage
from foundation_rt.protocol.revisions import NEWEST_HANDSHAKE_REVISION
from tests.lab.peers.recording_receiver import RecordingReceiver
from tests.lab.waiting import settle, until


def quiet_server() -> Server:
    server = Server("in memory", config={"logging": {"level": "error"}})

    @server.tool(inline=True)
    def double(value: int) -> int:
        return 2 * value

    @server.tool
    async def wait(ctx: ToolContext) -> None:
        await ctx.abort_signal.wait()

    return server


def message(method: str, params: dict[str, Any] | None = None, **members: Any) -> ClientMessage:
    return ClientMessage(
        orjson.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}, **members})
    )


async def connected(server: Server) -> tuple[MemoryTransport, RecordingReceiver]:
    """Yield a transport after its handshake."""
    transport, told = MemoryTransport(server), RecordingReceiver()
    await transport.open(told)
    info = {"name": "tests", "version": "0"}
    params = {
        "protocolVersion": NEWEST_HANDSHAKE_REVISION,
        "capabilities": {},
        "clientInfo": info,
    }
    transport.send(message("initialize", params, id="first"))
    await told.count(1)
    transport.send(message("notifications/initialized"))
    return transport, told


def call(tool: str, request_id: str, **arguments: Any) -> ClientMessage:
    return message("tools/call", {"name": tool, "arguments": arguments}, id=request_id)


@pytest.mark.rule("CHILD-13")
async def test_messages_arrive_one_turn_of_the_loop_later() -> None:
    transport, told = await connected(quiet_server())
    transport.send(call("double", "a", value=21))
    transport.send(call("double", "b", value=4))
    assert len(told.lines) == 1
    lines = await told.count(3)
    answers = [orjson.loads(line) for line in lines[1:]]  # type: ignore[arg-type]
    assert [each["id"] for each in answers] == ["a", "b"]
    assert [each["result"]["content"][0]["text"] for each in answers] == ["42", "8"]
    assert not transport.is_congested
    await transport.drained()
    assert transport.stderr_tail() == ""
    await transport.close()


@pytest.mark.rule("CHILD-13")
async def test_lines_are_checked_as_everywhere() -> None:
    server = Server("strict", config={"transport": {"max_line_bytes": 1024}})

    transport, told = MemoryTransport(server), RecordingReceiver()
    await transport.open(told)
    transport.send(ClientMessage(b"no JSON"))
    transport.send(ClientMessage(b'"%s"' % (b"x" * 2000)))
    codes = [orjson.loads(line)["error"]["code"] for line in await told.count(2)]  # type: ignore[arg-type]
    assert codes == [-32700, -32600]
    await transport.close()


@pytest.mark.rule("CHILD-13")
async def test_close_aborts_running_calls_and_ends_delivery() -> None:
    server = quiet_server()
    transport, told = await connected(server)
    transport.send(call("wait", "w"))
    transport.send(call("double", "d", value=1))
    await transport.close()
    await transport.close()
    transport.send(call("double", "e", value=1))
    await until(lambda: not server.runtime.engine.running, "the call ends")
    assert len(told.lines) == 1
    assert told.errors == []


def living_server(events: list[str]) -> Server:
    server = quiet_server()

    @server.lifespan
    async def live(server: Server) -> AsyncIterator[None]:
        events.append("enter")
        yield
        events.append("leave")

    return server


@pytest.mark.rule("CHILD-14")
async def test_lifespan_is_held_from_the_first_transport_to_the_last() -> None:
    events: list[str] = []

    server = living_server(events)
    for _ in range(2):
        transports = [await connected(server) for _ in range(3)]
        assert events == ["enter"]
        for transport, _ in transports[:-1]:
            await transport.close()
            await transport.close()
        last, told = transports[-1]
        last.send(call("double", "still", value=1))
        await told.count(2)
        assert events == ["enter"]
        await last.close()
        assert events == ["enter", "leave"]
        events.clear()


@pytest.mark.rule("CHILD-14")
async def test_transports_may_be_opened_and_closed_together() -> None:
    events: list[str] = []

    server = living_server(events)
    transports = [MemoryTransport(server) for _ in range(5)]
    await asyncio.gather(*(each.open(RecordingReceiver()) for each in transports))
    await asyncio.gather(*(each.close() for each in transports for _ in range(2)))
    assert events == ["enter", "leave"]


@pytest.mark.rule("CHILD-14")
async def test_background_tasks_end_with_the_last_connection() -> None:
    stopped: list[str] = []

    server = quiet_server()
    runtime = server.runtime

    async def stop_agents() -> None:
        stopped.append("agents")

    async def close_features() -> None:
        stopped.append("operations")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(runtime), "stop_background", lambda runtime: stop_agents())
        patch.setattr(type(runtime), "close_features", lambda runtime: close_features())
        host = runtime.embedding.connect(lambda line: None, "memory")
        first, _ = await connected(server)
        second, _ = await connected(server)
        await first.close()
        await second.close()
        assert stopped == []  # somebody else is served
        host.close()
        third, _ = await connected(server)
        await third.close()
        assert stopped == ["agents", "operations"]


@pytest.mark.rule("CHILD-14")
async def test_a_server_that_cannot_start_says_why() -> None:
    server = quiet_server()

    @server.lifespan
    async def fails(server: Server) -> AsyncIterator[None]:
        raise ValueError("no database")
        yield

    transport = MemoryTransport(server)
    with pytest.raises(ConnectionLostError, match="no database") as caught:
        await transport.open(RecordingReceiver())
    assert not caught.value.may_have_run
    await transport.close()


@pytest.mark.rule("CHILD-14")
async def test_refused_configuration_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOUNDATION_RT_TOOLS__DEFAULT_TIMEOUT_MS", "soon")

    with pytest.raises(ConnectionLostError, match="default_timeout_ms"):
        await MemoryTransport(Server("refused")).open(RecordingReceiver())


@pytest.mark.rule("CHILD-14")
@pytest.mark.parametrize("steps", range(6))
async def test_close_ends_an_open_that_is_under_way(steps: int) -> None:
    events: list[str] = []

    transport = MemoryTransport(living_server(events))
    opening = asyncio.ensure_future(transport.open(RecordingReceiver()))
    await settle(steps)
    was_open = opening.done()
    await transport.close()
    await asyncio.wait([opening])
    assert isinstance(opening.exception(), ConnectionLostError | None)
    if was_open:
        assert opening.exception() is None
    await settled()
    assert events in ([], ["enter", "leave"])


@pytest.mark.rule("CHILD-14")
@pytest.mark.parametrize("steps", range(6))
async def test_an_open_that_is_cancelled_leaves_nothing(steps: int) -> None:
    events: list[str] = []

    transport = MemoryTransport(living_server(events))
    opening = asyncio.ensure_future(transport.open(RecordingReceiver()))
    await settle(steps)
    if opening.cancel():
        await asyncio.wait([opening])
        assert opening.cancelled()
    await transport.close()
    await settled()
    assert events in ([], ["enter", "leave"])


@pytest.mark.rule("CHILD-14")
async def test_a_close_that_is_cancelled_goes_on() -> None:
    events: list[str] = []

    server = living_server(events)
    transport, _ = await connected(server)
    closing = asyncio.ensure_future(transport.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    await transport.close()
    assert events == ["enter", "leave"]


@pytest.mark.rule("CHILD-14")
async def test_transport_is_opened_once() -> None:
    transport = MemoryTransport(quiet_server())
    transport.send(message("ping", id="nobody hears it"))
    await transport.open(RecordingReceiver())
    with pytest.raises(ConnectionLostError, match="opened once"):
        await transport.open(RecordingReceiver())
    await transport.close()
    with pytest.raises(ConnectionLostError, match="opened once"):
        await transport.open(RecordingReceiver())


async def settled() -> None:
    """Wait until no other task is left."""
    await until(lambda: len(asyncio.all_tasks()) <= 1, "no other task is left")
