"""What no vector can show of hostile input: slots and ids that stay taken, a line without an end.

Every other row of the table in spec/errors.md that a client causes is in spec/vectors, which are
replayed through a process.
"""

from __future__ import annotations

import subprocess

import pytest

from tests.lab.servers.process import serve

APP = """
import threading
from foundation_rt import Server, ToolContext

server = Server("target")


@server.tool(inline=True)
def add(first: int, second: int = 0) -> int:
    return first + second


@server.tool
def hold(ctx: ToolContext):
    ctx.logger.info("holding")
    threading.Event().wait()
"""

SETTINGS = {"resources.max_concurrent_executions": 2, "server.shutdown_timeout_ms": 300}


@pytest.mark.rule("ERR-06", "RPC-05", "CALL-07", "RES-06", "RES-08", "RES-09", "CALL-13")
def test_an_id_and_a_slot_can_be_taken() -> None:
    with serve(APP, SETTINGS) as server:
        for number in (1001, 1002):
            server.send("tools/call", {"name": "hold"}, id=number)
        server.wait_until(lambda: len(server.records_with(message="holding")) == 2, "both")
        server.send("tools/call", {"name": "add", "arguments": {"first": 1}}, id=1001)
        server.send("ping", id=1002)
        server.request("ping")
        duplicates = server.messages[1:3]
        assert [each["id"] for each in duplicates] == [None, None]
        assert {each["error"]["code"] for each in duplicates} == {-32600}
        assert {each["error"]["data"]["reason"] for each in duplicates} == {"duplicate_id"}
        for _ in range(3):
            error = server.call("add", first=1)
            assert error["code"] == "RESOURCE_EXHAUSTED"
            assert error["details"] == {"reason": "concurrency_limit", "maxConcurrentExecutions": 2}
        health = server.call("health")
        assert health["status"] == "unhealthy"
        assert health["resources"]["concurrentExecutions"] == 2
        [*_, record] = server.records_with(errorCode="RESOURCE_EXHAUSTED") or [
            server.record(errorCode="RESOURCE_EXHAUSTED")
        ]
        assert record["outcome"] == "tool_error"
        assert "backoff" in record["retryHint"]
        server.cancel(1001)
        server.cancel(1002)
        assert server.call("health")["resources"]["concurrentExecutions"] == 2
        server.close_input()
        assert server.wait() == 0
        assert server.answers(1001) == server.answers(1002) == []


@pytest.mark.rule("FRAME-04", "FRAME-01")
def test_a_line_without_an_end_is_discarded_as_it_comes() -> None:
    with serve(APP, {"transport.max_line_bytes": 65_536}, start=subprocess.Popen) as server:
        server.write(b"z" * 20_000_000 + b"\n")
        assert server.call("add", first=1) == 1
        [refused, _] = server.messages[1:]
        assert refused["id"] is None
        assert refused["error"]["data"]["reason"] == "line_too_long"
        assert refused["error"]["data"]["maxLineBytes"] == 65_536
        memory = server.call("health")["resources"]["memoryUsageBytes"]
        assert memory < 60_000_000
        server.write(b"z" * 100_000)  # and one that ends with the input
        assert server.finish() == 0
        assert server.messages[-1]["error"]["data"]["reason"] == "line_too_long"
