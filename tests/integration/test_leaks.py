"""After thousands of calls of every kind a process holds what it held before them."""

from __future__ import annotations

import os

import orjson
import pytest

from tests.lab.programs.processes import descriptors
from tests.lab.servers.process import ServerProcess, serve

APP = '''
import asyncio, subprocess, sys, threading, time
from foundation_rt import Server, ToolContext

server = Server("holding")


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


@server.tool
async def fails(size: int):
    raise ValueError("x" * size)


@server.tool(timeout_ms=1)
async def times_out(size: int, ctx: ToolContext):
    await ctx.abort_signal.wait()
    ctx.abort_signal.raise_if_aborted()


@server.tool(timeout_ms=1)
def times_out_in_thread(size: int, ctx: ToolContext):
    aborted = threading.Event()
    ctx.abort_signal.add_callback(aborted.set)
    aborted.wait()


together = threading.Barrier(20)


@server.tool
def meet(size: int):
    """Returns when all worker threads are here."""
    together.wait(timeout=60)


@server.tool
async def cancelled(size: int):
    await asyncio.Event().wait()
'''

TOOLS = ("inline", "thread", "later", "fails", "times_out", "times_out_in_thread", "nowhere")


def holdings(server: ServerProcess) -> tuple[list[str], int]:
    """Where its descriptors lead, and how many threads it has."""
    return sorted(descriptors(server.pid)), len(os.listdir(f"/proc/{server.pid}/task"))


def completions(server: ServerProcess) -> int:
    return server.stderr.count('"message":"tool call completed"')


def mixed_calls(server: ServerProcess, count: int, first: int) -> None:
    """Make calls of every kind, some refused and some cancelled; return when all have ended."""
    lines = []
    answered = []
    for number in range(first, first + count):
        tool = (*TOOLS, "cancelled")[number % 8]
        arguments = {"size": 10} if number % 5 else {"size": "10"}
        params = {"name": tool, "arguments": arguments}
        lines.append({"id": number, "method": "tools/call", "params": params})
        if tool == "cancelled" and number % 5:
            lines.append({"method": "notifications/cancelled", "params": {"requestId": number}})
        else:
            answered.append(number)
    completed = completions(server) + count
    server.write(b"".join(orjson.dumps({"jsonrpc": "2.0", **line}) + b"\n" for line in lines))
    for number in answered:
        server.answer(number)
    server.wait_until(lambda: completions(server) >= completed, f"{completed} records")


@pytest.mark.rule("CALL-09", "CALL-13", "CALL-15", "ERR-06", "RES-03")
def test_two_thousand_calls_leave_nothing_behind() -> None:
    settings = {"resources.max_concurrent_executions": 20, "tools.cancel_grace_ms": 0}
    with serve(APP, settings) as server:
        assert len(server.call("inline", size=200_000)) == 200_000
        meeting = [server.start("meet", size=1) for _ in range(20)]
        assert [server.outcome(each) for each in meeting] == [None] * 20
        server.wait_until(lambda: completions(server) >= 21, "the records so far")
        mixed_calls(server, 200, first=1000)
        before = holdings(server)
        mixed_calls(server, 2_000, first=1200)
        files, threads = holdings(server)
        assert files == before[0]
        assert threads <= before[1]
        assert server.call("health")["resources"]["concurrentExecutions"] == 0
        assert server.finish() == 0
        identifiers = [each["id"] for each in server.messages]
        assert len(identifiers) == len(set(identifiers))
        records = server.records_with(message="tool call completed")
        assert len(records) == 2_200 + 22
        assert len({each["runId"] for each in records}) == len(records)
