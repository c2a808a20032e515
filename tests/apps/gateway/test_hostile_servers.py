"""Servers that send too much or nonsense, behind a gateway: it costs their call and no memory."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.apps.gateway.client_request_bridge import (
    CallHandlers,
    ClientRequestBridge,
    _respond_all,
)
from foundation_rt.client import (
    Client,
    InvalidResponseError,
    MCPError,
    ServerRequestRefused,
    connect,
)
from foundation_rt.features.server_requests.errors import AnswerTimeoutError, ClientErrorResponse
from tests.apps.gateway.test_faults import entry, error_in, names_of, write
from tests.apps.gateway.test_through import OLD, speaking, status_of
from tests.lab.peers.script import Act
from tests.lab.peers.script_processes import (
    ROOT,
    Acts,
    MisbehavingHarness,
    MisbehavingHttpHarness,
)
from tests.lab.programs.processes import peak_memory
from tests.lab.servers.http_server import serve_gateway
from tests.lab.sizes import cases

HUGE = 100_000_000
BOUND = 4 * HUGE
"""Bytes of memory that no server can make a gateway exceed: far less than a few huge answers."""

ANSWERS: dict[str, list[Act]] = {
    "a hundred megabytes": [["huge", HUGE]],
    "a result that is a number": [["reply", {"result": 5}]],
    "neither result nor error": [["reply", {}]],
}
NOISE: list[Act] = [["noise", "\xff\xfe[[[{\n" * 100_000], ["stderr", HUGE], ["answer"]]


@pytest.fixture(params=[MisbehavingHarness, MisbehavingHttpHarness], ids=["stdio", "http"])
def harness(request: pytest.FixtureRequest) -> Iterator[MisbehavingHarness]:
    with request.param(revision=OLD) as harness:
        yield harness


over_stdio = pytest.mark.parametrize(
    "harness",
    cases([MisbehavingHarness], [MisbehavingHarness, MisbehavingHttpHarness]),
    indirect=True,
)
"""What the gateway makes of a message does not depend on how it came."""


def hostile(harness: MisbehavingHarness, **members: Any) -> dict[str, Any]:
    """Return the entry of a server that misbehaves."""
    if isinstance(harness, MisbehavingHttpHarness):
        return {"url": harness.url, **members}
    command, *args = harness.command
    return {"command": command, "args": args, "cwd": str(ROOT), **members}


async def play(client: Client, nonce: str, acts: list[Act]) -> dict[str, Any]:
    """Return the result of a call with these acts."""
    arguments = {"nonce": nonce, "acts": acts}
    return await client.request("tools/call", {"name": "bad__play", "arguments": arguments})


@pytest.mark.rule("GATE-05", "GATE-10")
async def test_answer_too_large_or_no_answer_costs_its_call_alone(
    harness: MisbehavingHarness, tmp_path: Path
) -> None:
    file = write(tmp_path / "mcp.json", bad=hostile(harness), good=entry("good"))
    with serve_gateway(file, env=speaking(OLD)) as gateway:
        async with connect(gateway.url, revision=OLD) as client:
            before = (await client.call("good__pid")).value()
            for name, acts in ANSWERS.items():
                error = error_in(await play(client, name, acts))
                assert (error["appCode"], error["mayHaveRun"]) == ("E209", True), name
            if not isinstance(harness, MisbehavingHttpHarness):
                assert not (await play(client, "noise", NOISE)).get("isError")
            assert not (await play(client, "last", [["answer"]])).get("isError")
            assert (await client.call("good__pid")).value() == before
        assert peak_memory(gateway.process.pid) < BOUND


@pytest.mark.rule("GATE-04")
@over_stdio
async def test_members_that_nobody_knows_come_through(
    harness: MisbehavingHarness, tmp_path: Path
) -> None:
    block = {"type": "audio", "data": "UklG", "mimeType": "audio/wav", "x-of-block": [1, {}]}
    sent = {
        "content": [block, {"type": "x-new", "n": 1.5}],
        "structuredContent": {"nonce": "odd", "more": None},
        "isError": False,
        "_meta": {"x.test/a": {"b": [True]}},
        "x-of-result": {"n": 2**53},
    }
    file = write(tmp_path / "mcp.json", bad=hostile(harness))
    with serve_gateway(file, env=speaking(OLD)) as gateway:
        async with connect(gateway.url, revision=OLD) as client:
            assert await play(client, "odd", [["answer", {"result": sent}]]) == sent


@pytest.mark.rule("GATE-10")
@over_stdio
async def test_list_without_end_fails_its_server_alone(
    harness: MisbehavingHarness, tmp_path: Path
) -> None:
    endless: Acts = {"tools/list": [["page"]]}
    harness.play(endless)
    file = write(tmp_path / "mcp.json", bad=hostile(harness), good=entry("good"))
    with serve_gateway(file, env=speaking(OLD)) as gateway:
        async with connect(gateway.url, revision=OLD) as client:
            assert all(name.startswith("good__") for name in await names_of(client))
            found = await status_of(client, "bad")
            assert found["state"] == "failed"
            assert "pages" in found["reason"]
            assert (await client.call("good__echo", {"text": "x"})).text == "good: x"
        assert peak_memory(gateway.process.pid) < BOUND


@pytest.mark.rule("GATE-05", "COORD-21", "COORD-76")
@over_stdio
async def test_open_circuit_says_when_to_try_again(
    harness: MisbehavingHarness, tmp_path: Path
) -> None:
    bad = hostile(harness, timeoutMs=50)
    file = write(tmp_path / "mcp.json", bad=bad, good=entry("good"))
    with serve_gateway(file, env=speaking(OLD)) as gateway:
        async with connect(gateway.url, revision=OLD) as client:
            codes = [error_in(await play(client, str(n), []))["appCode"] for n in range(5)]
            assert codes == ["E202"] * 5
            refused = error_in(await play(client, "refused", [["answer"]]))
            assert (refused["appCode"], refused["mayHaveRun"]) == ("E201", False)
            assert 0 < refused["retryAfterMs"] <= 60_000
            assert "refused" not in harness.nonces()
            assert (await client.call("good__echo", {"text": "x"})).text == "good: x"
            assert (await status_of(client, "bad"))["circuit"] == "CLOSED"  # it is the tool's


@pytest.mark.rule("COORD-15")
async def test_forgotten_session_is_made_anew_once(tmp_path: Path) -> None:
    calls = [f"call {n}" for n in range(20)]
    with MisbehavingHttpHarness(revision=OLD) as harness:
        file = write(tmp_path / "mcp.json", bad=hostile(harness))
        with serve_gateway(file, env=speaking(OLD)) as gateway:
            async with connect(gateway.url, revision=OLD) as client:
                await play(client, "before", [["answer"], ["forget"]])
                harness.forget()
                results = await asyncio.gather(*(play(client, n, [["answer"]]) for n in calls))
                assert not any(each.get("isError") for each in results)
                assert sorted(harness.nonces()) == sorted(calls)
                assert len(harness.messages("initialize")) == 1


LISTS_ODD_TOOLS = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "tools/list":
        result = {"tools": [{"name": "bare"}, {"name": "good", "inputSchema": {"type": "object"}}]}
    else:
        info = {"name": "odd", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        result["serverInfo"] = info
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.mark.rule("GATE-40")
async def test_tool_without_a_schema_is_in_log_and_status(tmp_path: Path) -> None:
    odd = {"command": sys.executable, "args": ["-c", LISTS_ODD_TOOLS]}
    with serve_gateway(write(tmp_path / "mcp.json", odd=odd), env=speaking(OLD)) as gateway:
        async with connect(gateway.url, revision=OLD) as client:
            assert "odd__good" in await names_of(client)
            said = (
                "the tool 'bare' is left out: a tool is listed whose inputSchema is not an object"
            )
            assert (await status_of(client, "odd"))["leftOut"] == [said]
        process = gateway.process
        process.wait_until(lambda: f"server 'odd': {said}" in process.stderr, "the log")


class Silent:
    """A client that may be asked for roots alone."""

    def can(self, *path: str) -> bool:
        return path == ("roots",)


def handlers(answer: Exception) -> CallHandlers:
    """Return the handlers of a call whose client answers with an error."""

    async def respond(method: str, params: Any) -> dict[str, Any]:
        raise answer

    return CallHandlers(Silent(), respond, lambda: None)  # type: ignore[arg-type]


@pytest.mark.rule("GATE-20")
@pytest.mark.parametrize(
    ("method", "answer", "code", "said", "data"),
    [
        ("sampling/createMessage", None, -32601, "did not declare", {"reason": "not_declared"}),
        ("tools/list", None, -32601, "did not declare", {"reason": "not_declared"}),
        ("roots/list", ClientErrorResponse(-1, "no", {"a": 1}), -1, "no", {"a": 1}),
        ("roots/list", ClientErrorResponse(None, "odd"), -32603, "odd", None),
        ("roots/list", AnswerTimeoutError(5), -32603, "5 ms", {"timeoutMs": 5}),
    ],
)
async def test_server_is_told_why_its_client_does_not_answer(
    method: str, answer: Any, code: int, said: str, data: Any
) -> None:
    one = handlers(answer)
    one.report_progress(1, 2, "of a call that has ended")
    one.log("info", None, "of a call that has ended")
    with pytest.raises(ServerRequestRefused) as refused:
        await one.pass_on(method, {})
    assert (refused.value.original_code, said in refused.value.message) == (code, True)
    assert (refused.value.data or {}).items() >= (data or {}).items()


@pytest.mark.rule("GATE-23")
@pytest.mark.parametrize(
    ("requests", "said"),
    [
        ([], "inputRequests is not an object of at most 100"),
        ({str(each): {} for each in range(101)}, "inputRequests is not an object of at most 100"),
        ({"a": 5}, "one of inputRequests is no request"),
        ({"a": {"method": 5}}, "one of inputRequests is no request"),
        ({"a": {"method": "roots/list"}}, "the client has not answered: .*no"),
    ],
)
async def test_input_that_cannot_be_asked_for_is_an_error_of_the_call(
    requests: Any, said: str
) -> None:
    with pytest.raises(MCPError, match=said):
        await _respond_all({"inputRequests": requests}, handlers(ClientErrorResponse(-1, "no")))


@pytest.mark.rule("GATE-23")
async def test_server_that_asks_without_end_is_left() -> None:
    rounds = 0

    async def send(params: Any, _: CallHandlers) -> dict[str, Any]:
        nonlocal rounds
        rounds += 1
        return {"resultType": "input_required", "inputRequests": {}, "requestState": str(rounds)}

    bridge = ClientRequestBridge(None, None)  # type: ignore[arg-type]
    with pytest.raises(InvalidResponseError, match="asked for input 32 times"):
        await bridge._repeat({}, send, handlers(ValueError()))
    assert rounds == 32
