"""Handlers that block the event loop: named, answered late, and no reason for the process to stay.

The blocking ones wait on something that is not asyncio's for as long as the process lives; where a
test lets them go on, it opens a named pipe for them.
"""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

from tests.lab.servers.process import decode, serve, serve_each

APP = '''
import asyncio, threading, time
from foundation_rt import Server, ToolContext

server = Server("blocked")


def spin():
    while True:
        pass


def wait_for(path):
    """Block until somebody opens the named pipe."""
    with open(path) as pipe:
        return pipe.read()


BLOCK = {"sleep": threading.Event().wait, "spin": spin}


@server.tool
async def quick():
    await asyncio.sleep(0)


@server.tool
async def block_async(how: str, ctx: ToolContext):
    ctx.logger.info("started")
    BLOCK[how]()


@server.tool(inline=True)
def block_inline(how: str, ctx: ToolContext):
    ctx.logger.info("started")
    BLOCK[how]()


@server.tool
def block_thread(how: str, ctx: ToolContext):
    ctx.logger.info("started")
    BLOCK[how]()


@server.tool
async def late_async(path: str) -> str:
    return wait_for(path)


@server.tool(inline=True)
def late_inline(path: str) -> str:
    return wait_for(path)


@server.tool
async def block_briefly():
    time.sleep(1.3)


@server.tool
def large() -> str:
    return "x" * 1_000_000


@server.tool(timeout_ms=100)
async def times_out():
    await asyncio.Event().wait()
'''

BLOCKS = "a handler blocks the event loop"
BUDGET = {"server.shutdown_timeout_ms": 400, "server.eof_grace_ms": 50}


@pytest.mark.rule("LOG-30", "PROC-06", "TIME-09")
def test_end_of_file_ends_a_process_whose_loop_is_blocked() -> None:
    how = {"block_async": "spin", "block_inline": "sleep"}
    with serve_each(list(how), APP, BUDGET) as servers:
        for tool, server in servers.items():
            server.start(tool, how=how[tool])
        for tool, server in servers.items():
            warning = server.record(message=BLOCKS)
            assert warning["level"] == "warn"
            assert warning["toolName"] == tool
            assert warning["blockedSeconds"] >= 1
            started = server.record(message="started")
            assert warning["correlationId"] == started["correlationId"]
            server.close_input()
        for server in servers.values():
            assert server.wait() == 0
            assert len(server.records_with(message=BLOCKS)) == 1


@pytest.mark.rule("PROC-04")
def test_a_client_that_is_gone_ends_a_blocked_process() -> None:
    with serve_each(["block_async", "block_inline", "block_thread"], APP, BUDGET) as servers:
        for tool, server in servers.items():
            server.start(tool, how="sleep")
            server.record(message="started")
            server.close_output()
            server.close_input()
        for server in servers.values():
            assert server.wait() == 0


@pytest.mark.rule("TIME-09", "RES-10")
def test_of_many_calls_the_one_that_blocks_is_named_and_answered_late(tmp_path: Path) -> None:
    with serve_each(["late_async", "late_inline"], APP, {"tools.cancel_grace_ms": 50}) as servers:
        for tool, server in servers.items():
            os.mkfifo(tmp_path / tool)
            calls = [("times_out", {}), ("quick", {}), (tool, {"path": str(tmp_path / tool)})]
            lines = [
                {"id": name, "method": "tools/call", "params": {"name": name, "arguments": given}}
                for name, given in calls
            ]
            server.write(
                b"".join(orjson.dumps({"jsonrpc": "2.0", **line}) + b"\n" for line in lines)
            )
        for tool, server in servers.items():
            assert server.record(message=BLOCKS)["toolName"] == tool
            assert server.answers(tool) == []
            (tmp_path / tool).write_text("at last")
            assert decode(server.answer(tool)) == "at last"
            assert decode(server.answer("quick")) is None
            assert decode(server.answer("times_out"))["code"] == "TIMEOUT"
            assert server.call("health")["resources"]["eventLoopDelayMs"] > 100
            server.completion("times_out")
            server.close_input()
        for server in servers.values():
            assert server.wait() == 0


@pytest.mark.rule("PROC-06", "PROC-02")
def test_the_end_of_a_file_ends_a_blocked_process(tmp_path: Path) -> None:
    # A file does not hang up, and what blocks the loop is served before its end is read.
    conversation = tmp_path / "conversation"
    conversation.write_bytes(
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":""}}\n'
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call",'
        b'"params":{"name":"block_async","arguments":{"how":"sleep"}}}\n'
    )
    file = os.open(conversation, os.O_RDONLY)
    with serve(APP, BUDGET, handshake=False, stdin=(file, None)) as server:
        assert server.wait() == 0


@pytest.mark.rule("TIME-09")
def test_a_handler_that_blocks_a_little_over_a_second_is_always_named() -> None:
    names = ["first", "second", "third", "fourth"]
    with serve_each(names, APP, {}) as servers:
        calls = {name: server.start("block_briefly") for name, server in servers.items()}
        for name, server in servers.items():
            assert server.outcome(calls[name]) is None
            assert server.record(message=BLOCKS)["toolName"] == "block_briefly"
            assert server.finish() == 0
            assert len(server.records_with(message=BLOCKS)) == 1


@pytest.mark.rule("TIME-09", "PROC-06")
def test_no_handler_is_named_while_answers_wait_that_nobody_reads() -> None:
    settings = {"server.shutdown_timeout_ms": 2000, "server.eof_grace_ms": 50}
    with serve(APP, settings) as server:
        server.reading = False
        server.start("large")
        server.completion("large")
        server.close_input()
        assert server.wait() == 0
        assert server.records_with(message=BLOCKS) == []
