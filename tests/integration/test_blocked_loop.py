"""Handlers that block the event loop: named, answered late, and no reason for the process to stay.

The blocking ones wait on something that is not asyncio's for as long as the process lives; where a
test lets them go on, it opens a named pipe for them.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.process import serve

APP = '''
import asyncio, threading
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


@server.tool(timeout_ms=100)
async def times_out():
    await asyncio.Event().wait()
'''

BLOCKS = "a handler blocks the event loop"
BUDGET = {"server.shutdown_timeout_ms": 400, "server.eof_grace_ms": 50}


@pytest.mark.rule("PROC-06", "TIME-09")
@pytest.mark.parametrize(("tool", "how"), [("block_async", "spin"), ("block_inline", "sleep")])
def test_end_of_file_ends_a_process_whose_loop_is_blocked(tool: str, how: str) -> None:
    with serve(APP, BUDGET) as server:
        server.start(tool, how=how)
        warning = server.record(message=BLOCKS)
        assert warning["level"] == "warn"
        assert warning["toolName"] == tool
        assert warning["blockedSeconds"] >= 1
        assert server.finish() == 0
        assert len(server.records_with(message=BLOCKS)) == 1


@pytest.mark.rule("PROC-06", "PROC-03")
@pytest.mark.parametrize("how", ["sleep", "spin"])
def test_end_of_file_ends_a_process_with_a_stuck_thread(how: str) -> None:
    with serve(APP, BUDGET) as server:
        server.start("block_thread", how=how)
        server.record(message="started")
        assert server.finish() == 0
        left = "handler has not ended; the process ends without it"
        [stuck] = server.records_with(message=left)
        assert stuck["toolName"] == "block_thread"


@pytest.mark.rule("PROC-04", "PROC-06")
@pytest.mark.parametrize(
    ("tool", "number", "exit_code"),
    [
        ("block_async", signal.SIGTERM, 143),
        ("block_inline", signal.SIGINT, 130),
        ("block_thread", signal.SIGTERM, 143),
        ("block_thread", signal.SIGINT, 130),
    ],
)
def test_a_signal_ends_a_blocked_process(tool: str, number: signal.Signals, exit_code: int) -> None:
    with serve(APP, BUDGET) as server:
        server.start(tool, how="sleep")
        server.record(message="started")
        server.signal(number)
        assert server.wait() == exit_code


@pytest.mark.rule("PROC-04")
@pytest.mark.parametrize("tool", ["block_async", "block_thread"])
def test_a_client_that_is_gone_ends_a_blocked_process(tool: str) -> None:
    with serve(APP, BUDGET) as server:
        server.start(tool, how="sleep")
        server.record(message="started")
        server.close_output()
        server.close_input()
        assert server.wait() == 0


@pytest.mark.rule("TIME-09")
def test_of_many_calls_the_one_that_blocks_is_named() -> None:
    with serve(APP, BUDGET) as server:
        calls = [
            b'{"jsonrpc":"2.0","id":%d,"method":"tools/call",'
            b'"params":{"name":"%s","arguments":%s}}\n' % (number, tool, arguments)
            for number, (tool, arguments) in enumerate(
                [(b"quick", b"{}")] * 3
                + [(b"block_async", b'{"how":"sleep"}')]
                + [(b"quick", b"{}")] * 3
            )
        ]
        server.write(b"".join(calls))
        assert server.record(message=BLOCKS)["toolName"] == "block_async"
        assert server.finish() == 0


@pytest.mark.rule("TIME-09")
@pytest.mark.parametrize("tool", ["late_async", "late_inline"])
def test_a_handler_that_blocked_the_loop_is_answered_and_the_others_go_on(
    tool: str, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with serve(APP, {"tools.cancel_grace_ms": 50}) as server:
        other = server.start("times_out")
        late = server.start(tool, path=str(pipe))
        after = server.start("quick")
        assert server.record(message=BLOCKS)["toolName"] == tool
        assert not server.answers(late)
        assert not server.answers(after)
        pipe.write_text("at last")
        assert server.outcome(late) == "at last"
        assert server.outcome(after) is None
        assert server.outcome(other)["code"] == "TIMEOUT"
        assert server.finish() == 0


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
