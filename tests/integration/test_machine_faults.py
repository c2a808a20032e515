"""Faults of the machine: no memory is left for a handler, and the clock is set back."""

from __future__ import annotations

import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.lab.servers.process import ServerProcess, command, environment, serve

APP = '''
import asyncio, resource, time
from foundation_rt import Server, ToolContext

server = Server("faults")


def eat() -> None:
    """Take all memory there is: 50 MB more than is used."""
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 50_000_000, resource.RLIM_INFINITY))
    eaten = []
    while True:
        eaten.append(bytearray(1 << 20))
        eaten.append([bytes(64) for _ in range(1000)])


@server.tool(inline=True)
def eat_inline() -> None:
    eat()


@server.tool
def eat_thread() -> None:
    eat()


@server.tool
async def eat_later() -> None:
    await asyncio.sleep(0)
    eat()


@server.tool(inline=True)
def inline(size: int) -> str:
    return "x" * size


@server.tool
def thread(size: int) -> str:
    return "x" * size


@server.tool
async def later(size: int) -> str:
    await asyncio.sleep(0)
    return "x" * size


@server.tool(timeout_ms=300)
async def time_out(ctx: ToolContext) -> None:
    ctx.logger.info("started")
    await ctx.abort_signal.wait()
    ctx.abort_signal.raise_if_aborted()


@server.tool(inline=True)
def set_clock_back(seconds: int) -> None:
    time.set_back(seconds)
'''

CLOCK = """
import time

_time, _time_ns, _offset = time.time, time.time_ns, [0]
time.time = lambda: _time() - _offset[0]
time.time_ns = lambda: _time_ns() - _offset[0] * 1_000_000_000
time.set_back = lambda seconds: _offset.__setitem__(0, seconds)
"""
"""Python imports `sitecustomize` before anything that reads the clock."""


@pytest.mark.rule("ERR-05", "ERR-06")
@pytest.mark.parametrize("tool", ["eat_inline", "eat_thread", "eat_later"])
def test_handler_that_eats_the_memory_fails_alone(tool: str) -> None:
    with serve(APP) as server:
        assert server.call(tool)["code"] == "INTERNAL"
        assert server.completion(tool)["errorCode"] == "INTERNAL"
        assert server.record(message="tool handler failed")["error"]["type"] == "MemoryError"
        for other in ("inline", "thread", "later"):
            assert server.call(other, size=100_000) == "x" * 100_000
        assert server.call("health")["resources"]["concurrentExecutions"] == 0
        assert server.finish() == 0


@pytest.mark.rule("ID-06", "TIME-02")
def test_clock_set_back_by_an_hour_delays_no_deadline(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(CLOCK)
    app = tmp_path / "app.py"
    app.write_text(APP)
    settings = {**environment(), "PYTHONPATH": str(tmp_path)}
    words = command("serve", str(app))
    with ServerProcess(words, settings, start=subprocess.Popen) as server:
        server.handshake()
        call = server.start("time_out")
        before = server.record(message="started")
        server.call("set_clock_back", seconds=3600)
        assert server.outcome(call)["code"] == "TIMEOUT"
        late = server.completion("time_out")
        set_back = datetime.fromisoformat(before["timestamp"]) - timedelta(minutes=50)
        assert datetime.fromisoformat(late["timestamp"]) < set_back
        assert 300 <= late["durationMs"] < 3_000_000
        assert server.call("later", size=1) == "x"
        assert server.finish() == 0
