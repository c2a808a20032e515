"""Clients that do not read: their answers, or the log."""

from __future__ import annotations

import os
import signal

import orjson
import pytest

from tests.lab.programs.processes import peak_memory
from tests.lab.servers.process import ServerProcess, serve
from tests.lab.sizes import size as size_of_test

APP = '''
import asyncio, threading
from foundation_rt import Server, ToolContext

server = Server("pressed")


@server.tool(inline=True)
def big(size: int) -> str:
    return "x" * size


@server.tool
def big_in_thread(size: int) -> str:
    return "x" * size


@server.tool
async def big_async(size: int) -> str:
    await asyncio.sleep(0)
    return "x" * size


@server.tool(timeout_ms=300)
async def time_out(ctx: ToolContext):
    """Its deadline comes while nobody reads."""
    await ctx.abort_signal.wait()
    ctx.abort_signal.raise_if_aborted()


@server.tool
async def tick(ctx: ToolContext, ms: int, name: str = "tick") -> str:
    await asyncio.sleep(ms / 1000)
    ctx.logger.info("tick", {"tick": name})
    return "ticked"


@server.tool
async def wait_for_abort(ctx: ToolContext):
    await ctx.abort_signal.wait()
    ctx.abort_signal.raise_if_aborted()


@server.tool(inline=True)
def log_much(count: int, ctx: ToolContext):
    for _ in range(count):
        ctx.logger.info("y" * 1000)
'''

SIZE = 100_000
HIGH_WATER = 4 * 1024 * 1024
PIPE = 65_536


def call(identifier: int, tool: str, size: int = SIZE) -> bytes:
    params = {"name": tool, "arguments": {"size": size}}
    return (
        orjson.dumps({"jsonrpc": "2.0", "id": identifier, "method": "tools/call", "params": params})
        + b"\n"
    )


def press(server: ServerProcess, tool: str = "big", first: int = 10_000) -> list[int]:
    """Ask for twice as much as the server holds, without reading; return the ids."""
    server.reading = False
    count = 2 * HIGH_WATER // SIZE
    ids = list(range(first, first + count))
    server.write(b"".join(call(each, tool) for each in ids))
    return ids


@pytest.mark.rule("PROC-05", "ERR-06")
@pytest.mark.parametrize("tool", ["big", "big_in_thread", "big_async"])
def test_nothing_is_lost_while_a_client_does_not_read(tool: str) -> None:
    settings = {"resources.max_concurrent_executions": 1000}
    with serve(APP, settings) as server:
        server.reading = False
        timed_out = server.start("time_out")
        tick = server.start("tick", ms=300)
        ids = press(server, tool)
        # Timers and handlers go on; the log tells of it.
        server.record(message="tick")
        server.completion("time_out")
        assert server.answers(tick) == server.answers(timed_out) == []
        server.reading = True
        for each in ids:
            assert server.outcome(each) == "x" * SIZE
        assert server.outcome(tick) == "ticked"
        assert server.outcome(timed_out)["code"] == "TIMEOUT"
        assert server.call("health")["resources"]["concurrentExecutions"] == 0
        assert server.finish() == 0
        answered = [each["id"] for each in server.messages]
        assert len(answered) == len(set(answered))


@pytest.mark.rule("PROC-05")
def test_a_client_that_does_not_read_is_not_read_either() -> None:
    with serve(APP) as server:
        before = peak_memory(server.pid)
        ticks = [
            server.start("tick", ms=ms, name=name)
            for ms, name in ((0, "pressed"), (150, "first"), (300, "second"), (450, "third"))
        ]
        pressed = press(server)
        # 50 MB of answers are asked for, as far as the requests are taken: before each tick the
        # server has had time to take more, and all that is taken is what fits into the pipe, and
        # one read by the server.
        asked = list(range(20_000, 22_500))
        requests = b"".join(call(each, "big", 20_000) for each in asked)
        assert len(requests) > 3 * PIPE
        taken = 0
        for name in ("pressed", "first", "second", "third"):
            server.record(tick=name)
            taken += server.offer(requests[taken:])
        assert taken <= 2 * PIPE
        assert peak_memory(server.pid) - before < 5 * HIGH_WATER
        server.reading = True
        server.write(requests[taken:])
        server.wait_for_messages(1 + len(ticks) + len(pressed) + len(asked))
        assert peak_memory(server.pid) - before < 5 * HIGH_WATER
        assert server.finish() == 0
        answered = [each["id"] for each in server.messages]
        assert sorted(answered) == sorted([1, *ticks, *pressed, *asked])


@pytest.mark.rule("PROC-05", "PROC-03")
def test_what_was_asked_before_the_end_of_the_input_is_answered_when_it_is_read() -> None:
    with serve(APP) as server:
        ids = press(server)
        server.close_input()
        server.record(message="tool call completed")
        server.reading = True
        assert server.wait() == 0
        assert [each["id"] for each in server.messages[1:]] == ids


@pytest.mark.rule("PROC-05", "PROC-06", "PROC-03")
@pytest.mark.parametrize("with_output", [True, False])
def test_a_client_that_will_never_read_keeps_no_process_alive(with_output: bool) -> None:
    with serve(APP, {"server.shutdown_timeout_ms": 400}) as server:
        server.start("wait_for_abort")
        press(server)
        server.close_input()
        if not with_output:
            server.close_output()
        assert server.wait() == 0
        assert server.completion("wait_for_abort")["outcome"] == "aborted"


@pytest.mark.rule("PROC-05", "PROC-14")
def test_a_signal_ends_a_process_that_nobody_reads() -> None:
    with serve(APP, {"server.shutdown_timeout_ms": 1000}) as server:
        server.start("wait_for_abort")
        press(server)
        server.record(message="tool call completed")
        server.signal(signal.SIGTERM)
        assert server.wait() == 143
        assert server.completion("wait_for_abort")["outcome"] == "aborted"


@pytest.mark.rule("PROC-04", "PROC-05", "TIME-08")
def test_an_output_that_is_closed_in_mid_write_ends_the_process() -> None:
    with serve(APP, {"server.shutdown_timeout_ms": 3_600_000}) as server:
        server.start("wait_for_abort")
        press(server)
        server.record(message="tool call completed")
        server.close_output()
        assert server.wait() == 0
        assert server.completion("wait_for_abort")["outcome"] == "aborted"


@pytest.mark.rule("PROC-07")
def test_a_log_that_nobody_reads_blocks_no_call_and_is_written_at_the_end() -> None:
    reader, writer = os.pipe()
    with serve(APP, stderr=(writer, None)) as server:
        for _ in range(10):
            server.call("log_much", count=100)  # 1 MB altogether; a pipe holds 64 KiB
        assert server.call("tick", ms=1) == "ticked"
        server.close_input()
        server.log = reader
        os.set_blocking(reader, False)
        assert server.wait() == 0
        assert len(server.records_with(message="y" * 1000)) == 1000
        assert len(server.records_with(message="tool call completed", toolName="tick")) == 1


@pytest.mark.rule("PROC-07", "LOG-16", "LOG-39")
def test_calls_go_on_though_nobody_reads_the_log_and_what_is_dropped_is_counted() -> None:
    reader, writer = os.pipe()
    calls = size_of_test(20_000, 100_000)  # the buffer has room for 13,000 records
    with serve(APP, stderr=(writer, None)) as server:
        before = peak_memory(server.pid)
        for first in range(1000, 1000 + calls, 500):
            server.write(b"".join(call(each, "big", 1) for each in range(first, first + 500)))
            server.wait_for_messages(first - 499)
        assert peak_memory(server.pid) - before < 3 * HIGH_WATER
        server.close_input()
        server.log = reader
        os.set_blocking(reader, False)
        assert server.wait() == 0
        dropped = sum(each["dropped"] for each in server.records_with(message="log lines dropped"))
        assert 0 < dropped < calls
        kept = len(server.records_with(message="tool call completed"))
        assert kept + dropped == calls


@pytest.mark.rule("PROC-07", "PROC-06")
def test_a_log_that_nobody_ever_reads_keeps_no_process_alive() -> None:
    reader, writer = os.pipe()
    settings = {"server.shutdown_timeout_ms": 300, "logging.buffer_bytes": 100_000}
    with serve(APP, settings, stderr=(writer, None)) as server:
        for _ in range(10):
            server.call("log_much", count=100)
        assert server.finish() == 0
    os.close(reader)
