"""The health tool: its definition and its report."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.features.composition import ServerOptions
from foundation_rt.features.health import health_report
from foundation_rt.kernel.execution_limits import ResourceManager
from foundation_rt.server import Server
from tests.lab.servers.core import make_config

CONFIG = make_config(
    {
        "server": {"name": "w", "version": "9.8"},
        "tools": {"default_timeout_ms": 5, "max_payload_bytes": 6, "max_state_bytes": 7},
        "resources": {"max_concurrent_executions": 4},
    }
)


@pytest.mark.rule("HEALTH-01", "RES-11", "RES-08")
def test_report_has_identity_limits_and_load() -> None:
    resources = ResourceManager(CONFIG, lambda: 99, lambda: 200.5)
    resources.try_acquire_slot()
    assert health_report(CONFIG, resources) == {
        "server": {"name": "w", "version": "9.8"},
        "config": {
            "toolTimeoutMs": 5,
            "maxConcurrentExecutions": 4,
            "maxPayloadBytes": 6,
            "maxStateBytes": 7,
        },
        "resources": {
            "memoryUsageBytes": 99,
            "eventLoopDelayMs": 200.5,
            "concurrentExecutions": 1,
            "maxConcurrentExecutions": 4,
        },
        "status": "degraded",
    }


def make_server(config: ServerConfig) -> Server:
    logger = StructuredLogger(MemorySink(), ManualClock())
    return Server(options=ServerOptions(config=config, logger=logger))


def speak(server: Server, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    lines: list[bytes] = []
    connection = server.connect(lines.append, "memory")
    opening = {"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    for message in (opening, {"method": "initialized"}, *messages):
        connection.feed(orjson.dumps({"jsonrpc": "2.0", **message}) + b"\n")
    connection.close()
    return [orjson.loads(line) for line in lines]


@pytest.mark.rule("HEALTH-01", "RES-09", "RES-11")
def test_health_answers_when_every_slot_is_taken_and_does_not_count_itself() -> None:
    server = make_server(CONFIG)
    resources = server.runtime.resources
    slots = [resources.try_acquire_slot() for _ in range(4)]
    _, answer = speak(server, {"id": 1, "method": "tools/call", "params": {"name": "health"}})
    assert answer["result"]["isError"] is False
    report = orjson.loads(answer["result"]["content"][0]["text"])
    assert report["status"] == "unhealthy"
    assert report["resources"]["concurrentExecutions"] == len(slots) == 4
    assert report["resources"]["memoryUsageBytes"] > 1_000_000
