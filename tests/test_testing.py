"""The in-memory client: a whole server behind it, and everything it can do wrong, said."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from foundation_rt import (
    ErrorCode,
    Image,
    Server,
    Text,
    ToolContext,
    ToolDefinition,
    ToolError,
    ToolResult,
)
from foundation_rt.errors import JsonRpcErrorCode
from foundation_rt.testing import ManualClock, ProtocolError, SequentialIds, TestClient
from tests.lab.clock.virtual_loop import run_bounded
from tests.lab.servers.fixture import LIST_CHANGED
from tests.lab.waiting import PATIENCE, until

UUID_4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def weather() -> Server:
    server = Server("weather", version="1.0.0")

    @server.tool
    async def forecast(city: str, days: int = 3, *, ctx: ToolContext) -> dict[str, Any]:
        ctx.logger.info("looking", {"city": city})
        await asyncio.sleep(0)
        if city == "Atlantis":
            raise ToolError(ErrorCode.NOT_FOUND, "no such city", {"city": city})
        return {"city": city, "days": days}

    @server.tool
    def who(*, ctx: ToolContext) -> list[str]:
        return [ctx.run_id, ctx.correlation_id]

    @server.tool
    async def hold(*, ctx: ToolContext) -> None:
        await ctx.abort_signal.wait()
        ctx.abort_signal.raise_if_aborted()

    return server


@pytest.mark.rule("EMBED-07")
async def test_a_tool_is_called_with_keyword_arguments_and_its_result_comes_back_decoded() -> None:
    async with TestClient(weather(), clock=ManualClock()) as client:
        assert await client.call("forecast", city="Oslo") == {"city": "Oslo", "days": 3}
        assert await client.call_tool("forecast", {"city": "Rome", "days": 1}) == {
            "city": "Rome",
            "days": 1,
        }
        listed = await client.list_tools()
        assert [tool["name"] for tool in listed] == ["forecast", "health", "hold", "who"]
        assert await client.request("ping") == {}
        assert client.notifications == []


@pytest.mark.rule("EMBED-07", "ERR-04", "CALL-08")
async def test_failed_call_raises_the_chosen_error() -> None:
    async with TestClient(weather(), clock=ManualClock()) as client:
        with pytest.raises(ToolError, match="no such city") as caught:
            await client.call("forecast", city="Atlantis")
        assert caught.value.code is ErrorCode.NOT_FOUND
        assert caught.value.details == {"city": "Atlantis"}
        with pytest.raises(ToolError) as caught:
            await client.call("forecast", city=5)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        with pytest.raises(ToolError) as caught:
            await client.call("no such tool")
        assert caught.value.code is ErrorCode.NOT_FOUND


@pytest.mark.rule("EMBED-07", "LIFE-03", "RPC-11")
async def test_a_request_that_is_refused_raises_a_protocol_error() -> None:
    async with TestClient(weather(), clock=ManualClock(), handshake=False) as client:
        with pytest.raises(ProtocolError, match="-32002 Not initialized") as caught:
            await client.call("forecast", city="Oslo")
        assert caught.value.code is JsonRpcErrorCode.NOT_INITIALIZED
        assert caught.value.data["code"] == "NOT_INITIALIZED"
        result = await client.request("initialize", {"protocolVersion": "2025-06-18"})
        assert result["protocolVersion"] == "2025-06-18"
        assert result["serverInfo"] == {"name": "weather", "version": "1.0.0"}
        client.notify("notifications/initialized")
        with pytest.raises(ProtocolError) as caught:
            await client.request("no/such/method")
        assert caught.value.code is JsonRpcErrorCode.METHOD_NOT_FOUND
        assert (await client.call("forecast", city="Oslo"))["days"] == 3


@pytest.mark.rule("EMBED-07", "ID-03", "ID-07")
def test_fixed_clock_and_counted_ids_make_sessions_repeatable() -> None:
    def converse() -> tuple[Any, Any]:
        told: list[Any] = []

        async def main() -> None:
            clock = ManualClock()
            async with TestClient(weather(), clock=clock, ids=SequentialIds()) as client:
                clock.advance(5)
                told.append(await client.call("who"))
                await client.call("forecast", city="Oslo")
                told.append(client.logs)

        run_bounded(main)
        return told[0], told[1]

    ids, logs = converse()
    assert ids == [
        "00000000-0000-4000-8000-000000000001",
        "00000000-0000-4000-9000-000000000001",
    ]
    completed = [line for line in logs if line["message"] == "tool call completed"]
    assert completed[0] == {
        "timestamp": "2024-01-01T00:00:05.000Z",
        "level": "info",
        "message": "tool call completed",
        "connectionCorrelationId": "00000000-0000-4000-a000-000000000001",
        "runId": ids[0],
        "correlationId": ids[1],
        "toolName": "who",
        "durationMs": 0.0,
        "outcome": "success",
        "payloadBytes": 2,
    }
    [looked] = [line for line in logs if line["message"] == "looking"]
    assert looked["city"] == "Oslo"
    assert looked["runId"] == completed[1]["runId"]
    assert converse() == (ids, logs)


@pytest.mark.rule("EMBED-07", "ID-01")
def test_either_of_clock_and_ids_can_be_fixed_and_neither_has_to_be(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def main() -> None:
        async with TestClient(weather(), ids=SequentialIds()) as client:
            assert (await client.call("who"))[0] == "00000000-0000-4000-8000-000000000001"
            assert client.logs is not None
            assert not client.logs[-1]["timestamp"].startswith("2024-01-01")
        async with TestClient(weather(), clock=ManualClock()) as client:
            assert UUID_4.fullmatch((await client.call("who"))[0])
            assert client.logs is not None
            assert client.logs[-1]["timestamp"] == "2024-01-01T00:00:00.000Z"
        server = weather()
        async with TestClient(server) as client:
            assert UUID_4.fullmatch((await client.call("who"))[0])
            assert client.logs is None
        server.runtime.close_logs(PATIENCE)

    run_bounded(main)
    assert capfd.readouterr().err.count("tool call completed") == 1


@pytest.mark.rule("EMBED-07", "TIME-05", "TIME-06")
async def test_cancelling_the_task_that_awaits_a_call_cancels_the_call() -> None:
    async with TestClient(weather(), clock=ManualClock()) as client:
        call = asyncio.create_task(client.call("hold"))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: (client.logs or [{}])[-1].get("outcome"), "the call is recorded")
        assert client.logs is not None
        assert client.logs[-1]["outcome"] == "aborted"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await client.call("hold")
        assert client.notifications == []
        assert await client.request("ping") == {}


@pytest.mark.rule("EMBED-07")
async def test_calls_can_be_made_at_once() -> None:
    async with TestClient(weather(), clock=ManualClock()) as client:
        cities = [f"city {number}" for number in range(10)]
        answers = await asyncio.gather(*(client.call("forecast", city=c) for c in cities))
        assert [answer["city"] for answer in answers] == cities


@pytest.mark.rule("EMBED-07", "LIFE-06", "TIME-08")
async def test_leaving_aborts_running_calls_and_fails_pending_requests() -> None:
    server = weather()
    async with TestClient(server, clock=ManualClock()) as client:
        call = asyncio.create_task(client.call("hold"))
        await asyncio.sleep(0)
    with pytest.raises(ConnectionError, match="was closed"):
        await call
    with pytest.raises(ConnectionError, match="is closed"):
        await client.call("forecast", city="Oslo")
    await until(lambda: not server.runtime.resources.concurrent_executions, "no call runs")
    assert client.logs is not None
    assert client.logs[-1]["outcome"] == "aborted"


@pytest.mark.rule("EMBED-07", "REG-06")
async def test_a_server_can_be_connected_to_again_and_logs_where_it_did() -> None:
    server = weather()
    for _ in range(2):
        async with TestClient(server, clock=ManualClock(), ids=SequentialIds()) as client:
            assert (await client.call("who"))[0] == "00000000-0000-4000-8000-000000000001"
            definition = ToolDefinition("late", "", {"type": "object"})
            server.register(definition, lambda arguments, context: None, is_dynamic=True)
            server.unregister("late")
            assert client.logs is not None
            registered = [line["message"] for line in client.logs if line["level"] == "warn"]
            assert registered == ["Dynamic tool registered: late", "Tool unregistered: late"]
    logged = len(client.logs or [])
    server.register(definition, lambda arguments, context: None, is_dynamic=True)
    assert len(client.logs or []) == logged
    server.runtime.close_logs(PATIENCE)


@pytest.mark.rule("EMBED-07", "LIFE-10")
async def test_a_client_has_word_of_every_change_of_the_tools() -> None:
    server = weather()
    async with TestClient(server) as client, TestClient(server, ids=SequentialIds()) as other:
        server.register(
            ToolDefinition("late", "", {"type": "object"}), lambda arguments, context: None
        )
        await client.list_tools()
        server.unregister("late")
        async with asyncio.timeout(PATIENCE):
            while len(other.notifications) < 2:  # the second comes after 50 ms (LIFE-10)
                await other.request("ping")
        await client.request("ping")
        assert client.notifications == other.notifications == [LIST_CHANGED] * 2
    server.runtime.close_logs(PATIENCE)


@pytest.mark.rule("EMBED-07")
def test_unrequested_messages_are_kept() -> None:
    client = TestClient(weather())
    client.received(b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}', None)
    client.received(b'{"jsonrpc":"2.0","id":99,"result":{}}', None)
    assert [each.get("method") for each in client.notifications] == ["notifications/message", None]


@pytest.mark.rule("CONT-01", "CONT-03", "CONT-06")
async def test_results_that_a_tool_has_shaped_are_given_as_they_are() -> None:
    server = Server("shaping")
    results: dict[str, Any] = {
        "picture": Image(b"abc", "image/png"),
        "words": Text("No JSON."),
        "failure": ToolResult("5", is_error=True),
        "nothing": ToolResult(),
        "both": ToolResult("One.", structured={"count": 1}),
    }

    @server.tool(inline=True)
    def give(what: str) -> Any:
        return results[what]

    @server.tool(inline=True)
    def numbers() -> list[int]:
        return [1, 2]

    @server.tool(inline=True)
    def count() -> dict[str, int]:
        return {"count": 2}

    async with TestClient(server) as client:
        image = {"type": "image", "data": "YWJj", "mimeType": "image/png"}
        assert await client.call("give", what="picture") == {
            "content": [image],
            "isError": False,
        }
        assert await client.call("give", what="words") == "No JSON."
        assert (await client.call("give", what="failure"))["isError"] is True
        assert (await client.call("give", what="nothing"))["content"] == []
        assert await client.call("give", what="both") == {"count": 1}
        assert await client.call("count") == {"count": 2}
        assert await client.call("numbers") == [1, 2]


@pytest.mark.rule("EMBED-07", "ASK-01")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_client_answers_requests_of_the_server(revision: str) -> None:
    server = Server("asking")

    @server.tool
    async def greet(ctx: ToolContext) -> str:
        name = await ctx.elicit("Who?", {"type": "object", "properties": {"n": {"type": "string"}}})
        reply = await ctx.sample(f"Greet {name.content}", max_tokens=5)
        return f"{reply.text} {len(await ctx.roots())}"

    def answers(method: str, params: dict[str, Any]) -> Any:
        if method == "elicitation/create":
            return {"action": "accept", "content": {"n": params["message"]}}
        if method == "roots/list":
            return {"roots": []}
        content = params["messages"][0]["content"]
        return {"role": "assistant", "model": "m", "content": content}

    async with TestClient(server, revision=revision, answers=answers) as client:
        assert await client.call("greet") == "Greet {'n': 'Who?'} 0"
    async with TestClient(server, revision=revision) as client:
        with pytest.raises((ToolError, ProtocolError)) as lacking:
            await client.call("greet")
        assert "elicitation" in str(lacking.value) or lacking.value.code == -32021


async def test_the_client_may_refuse_to_answer() -> None:
    server = Server("asking")

    @server.tool
    async def ask(ctx: ToolContext) -> None:
        await ctx.roots()

    def refuse(method: str, params: dict[str, Any]) -> Any:
        raise ProtocolError(-1, "The user said no.")

    async with TestClient(server, answers=refuse) as client:
        with pytest.raises(ToolError, match="The user said no"):
            await client.call("ask")


async def test_updates_reach_a_client_with_a_clock_of_its_own() -> None:
    server = Server("notes")
    server.resource("note://a")(lambda: "")

    async with TestClient(server, clock=ManualClock()) as client:
        await client.request("resources/subscribe", {"uri": "note://a"})
        server.resource_updated("note://a")
        await asyncio.sleep(0)
        [update] = client.notifications
        assert update["params"] == {"uri": "note://a"}


def test_own_clock_leaves_the_server_description_unchanged() -> None:
    server = Server("s", title="Title", instructions="Be kind.", website_url="https://e.example")
    request = {"protocolVersion": "2025-11-25", "capabilities": {}}

    async def main() -> list[Any]:
        said = []
        for options in ({}, {"clock": ManualClock(), "ids": SequentialIds()}):
            async with TestClient(server, handshake=False, **options) as client:
                said.append(await client.request("initialize", request))
        return said

    usual, clocked = asyncio.run(main())
    assert usual == clocked
    assert usual["instructions"] == "Be kind."
    assert usual["serverInfo"]["title"] == "Title"
