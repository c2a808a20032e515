"""A real server over HTTP with keys: what one principal learns of another's requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.lab.peers import http_calls
from tests.lab.servers.http_server import HttpServerProcess, serve_http

KEYS = {"alice": "4f2a9c" * 6, "bob": "b81d07" * 6}
PATIENCE = 60.0

APP = """
import asyncio

from foundation_rt import AgentContext, AgentMessage, Server

server = Server("agents", version="1.0.0")
executed = []


async def clerk(message: AgentMessage, context: AgentContext) -> object:
    executed.append(message.payload)
    context.state["executions"] = len(executed)
    return {"got": message.payload, "executions": len(executed)}


@server.tool(timeout_ms=50)
async def slow() -> str:
    await asyncio.sleep(0.2)
    return "late"


server.agents.register_agent("clerk", clerk)
"""


def call(server: HttpServerProcess, who: str, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the result of a tool for a principal, or its error."""
    answer = http_calls.call(server.url, tool, arguments, **{"x-api-key": KEYS[who]})
    outcome: dict[str, Any] = orjson.loads(http_calls.text_of(answer))
    return outcome


def ask(server: HttpServerProcess, who: str, payload: str, request_id: str) -> dict[str, Any]:
    message = {"type": "note", "payload": payload}
    arguments = {"targetAgentId": "clerk", "message": message, "requestId": request_id}
    return call(server, who, "agent/request", **arguments)


def refusal(server: HttpServerProcess, who: str, request_id: str) -> dict[str, Any]:
    """Return the error of `agent/status`, without the ids that are new in every answer."""
    error = call(server, who, "agent/status", requestId=request_id)
    assert error["code"] == "NOT_FOUND"
    assert error["details"].pop("requestId") == request_id
    del error["runId"], error["correlationId"]
    return error


@pytest.mark.rule("AACP-48", "AACP-85", "AACP-45", "AACP-82", "AACP-28", "AGENT-19")
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_ids_of_one_key_are_unknown_to_another_and_free_for_it(tmp_path: Path, store: str) -> None:
    settings = {
        "http.api_keys": ",".join(f"{name}:{key}" for name, key in KEYS.items()),
        "aacp.store": store if store == "memory" else f"sqlite:{tmp_path / 'ledger.db'}",
    }
    with serve_http(APP, "--transport", "http", settings=settings) as server:
        # He takes her next id first: it is his own that he gets, and hers that she gets.
        first = ask(server, "bob", "of bob", "r1")
        assert first["result"] == {"got": "of bob", "executions": 1}
        hers = ask(server, "alice", "of alice", "r1")
        assert hers["result"] == {"got": "of alice", "executions": 2}
        assert ask(server, "alice", "of alice", "r1") == hers
        assert ask(server, "bob", "of bob", "r1") == first

        # Agents are everybody's.
        for tool, arguments in [("agent/list", {}), ("agent/getState", {"agentId": "clerk"})]:
            shown = [call(server, who, tool, **arguments) for who in KEYS]
            assert shown[0] == shown[1]
        assert shown[0]["state"] == {"executions": 2}

        # What is hers alone is to him as what never was.
        assert ask(server, "alice", "again", "r2")["outcome"] == "COMPLETED"
        assert refusal(server, "bob", "r2") == refusal(server, "bob", "never")
        assert call(server, "alice", "agent/status", requestId="r2")["outcome"] == "COMPLETED"

        timeout = call(server, "alice", "slow")
        assert timeout["code"] == "TIMEOUT"
        run_id = timeout["runId"]
        while call(server, "alice", "agent/status", requestId=run_id)["outcome"] == "UNKNOWN":
            assert refusal(server, "bob", run_id) == refusal(server, "bob", "never")
        status = call(server, "alice", "agent/status", requestId=run_id)
        assert (status["outcome"], status["result"]) == ("COMPLETED", "late")
        assert refusal(server, "bob", run_id) == refusal(server, "bob", "never")


@pytest.mark.rule("AACP-49", "AACP-88")
def test_one_key_fills_no_more_than_its_share_of_a_ledger_in_memory() -> None:
    settings = {
        "http.api_keys": ",".join(f"{name}:{key}" for name, key in KEYS.items()),
        "aacp.max_memory_bytes": 1024 * 1024,
    }
    with serve_http(APP, "--transport", "http", settings=settings) as server:
        sent = [ask(server, "alice", "x" * 50_000, f"r{n}") for n in range(8)]
        taken = [each for each in sent if each.get("outcome") == "COMPLETED"]
        refused = [each for each in sent if "code" in each]
        assert 1 <= len(taken) <= 2  # a quarter is 256 KiB, of payload and result
        assert {each["code"] for each in refused} == {"RESOURCE_EXHAUSTED"}
        assert {each["details"]["reason"] for each in refused} == {"ledger_full"}
        assert ask(server, "alice", "x" * 50_000, "r0") == sent[0]
        assert ask(server, "bob", "x" * 50_000, "r0")["outcome"] == "COMPLETED"
