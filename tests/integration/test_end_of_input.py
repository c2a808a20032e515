"""The client leaves: its last answers, the calls that run, and the end of the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from tests.lab.servers.process import (
    PATIENCE,
    ServerProcess,
    command,
    decode,
    environment,
    serve,
    serve_each,
)

APP = '''
import asyncio, atexit, sys, threading, time
from foundation_rt import Server, ToolContext

server = Server("leaving")
go_on = threading.Event()


@server.tool(inline=True)
def echo(text: str) -> str:
    return text


@server.tool
async def wait_for_abort(ctx: ToolContext):
    """Ends when it is aborted."""
    ctx.logger.info("started")
    ctx.logger.info("aborted", {"reason": await ctx.abort_signal.wait()})
    ctx.abort_signal.raise_if_aborted()


@server.tool
async def finish_anyway(ctx: ToolContext) -> str:
    """Has a result, but only after it was aborted."""
    ctx.logger.info("started")
    await ctx.abort_signal.wait()
    return "too late"


@server.tool
async def fail_anyway(ctx: ToolContext) -> str:
    ctx.logger.info("started")
    await ctx.abort_signal.wait()
    raise ValueError("too late")


@server.tool
async def tidy_up(ctx: ToolContext):
    """Needs to be cancelled, and a moment more."""
    ctx.logger.info("started")
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.01)
        ctx.logger.info("tidied up")


@server.tool
async def refuse_to_end(ctx: ToolContext):
    """Is cancelled, again and again, in vain."""
    ctx.logger.info("started")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass


@server.tool
async def finish_soon(ctx: ToolContext) -> str:
    ctx.logger.info("started")
    await asyncio.to_thread(go_on.wait)
    return "in time"


@server.tool
def finish_soon_in_thread(ctx: ToolContext) -> str:
    ctx.logger.info("started")
    go_on.wait()
    return "in time"


@server.tool(inline=True)
def end_soon():
    """Lets `finish_soon` go on in a moment."""
    threading.Timer(0.1, go_on.set).start()


@server.tool
async def stuck_to_thread(ctx: ToolContext):
    ctx.logger.info("started")
    await asyncio.to_thread(threading.Event().wait)


@server.tool(inline=True)
def leave_thread():
    """Leaves a thread that would keep any Python process alive."""
    threading.Thread(target=threading.Event().wait, daemon=False).start()


@server.tool
async def leave_tasks():
    """Leaves tasks that nobody waits for, on the loop and in its threads."""
    leave_tasks.kept = [
        asyncio.create_task(asyncio.sleep(3600)),
        asyncio.create_task(asyncio.to_thread(threading.Event().wait)),
    ]
    await asyncio.sleep(0)


@server.tool(inline=True)
def leave_exit_function():
    """Leaves a function that the interpreter calls at exit, and that does not return."""
    atexit.register(threading.Event().wait)


@server.tool
async def block_when_cancelled(ctx: ToolContext):
    """Blocks the event loop when it is told to end."""
    ctx.logger.info("started")
    try:
        await asyncio.Event().wait()
    finally:
        threading.Event().wait()
'''

SOON = {"server.eof_grace_ms": 50, "server.shutdown_timeout_ms": 600, "tools.cancel_grace_ms": 50}
NEVER = {"server.eof_grace_ms": 3_600_000, "server.shutdown_timeout_ms": 3_600_000}


def initialize(identifier: int) -> bytes:
    params = {"protocolVersion": "2025-11-25"}
    return request(identifier, "initialize", params)


def request(identifier: int, method: str, params: object) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})


INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'


@pytest.mark.rule("PROC-03", "FRAME-05")
@pytest.mark.parametrize("tool", ["echo", "finish_soon_in_thread", "finish_soon"])
def test_every_line_before_the_end_is_answered_the_unterminated_last_one_too(tool: str) -> None:
    settings = {"server.eof_grace_ms": 3_600_000}
    with serve(APP, settings, handshake=False) as server:
        lines = [initialize(1) + b"\n", INITIALIZED]
        lines += [
            request(number, "tools/call", {"name": "echo", "arguments": {"text": "x" * 100}})
            + b"\n"
            for number in range(2, 1000)
        ]
        lines.append(request(1000, "tools/call", {"name": "end_soon"}) + b"\n")
        arguments = {"text": "last"} if tool == "echo" else {}
        lines.append(request(1001, "tools/call", {"name": tool, "arguments": arguments}))
        server.write(b"".join(lines))
        assert server.finish() == 0
        assert sorted(each["id"] for each in server.messages) == list(range(1, 1002))
        last = "last" if tool == "echo" else "in time"
        assert decode(server.answer(1001)) == last
        assert len(server.records_with(message="tool call completed")) == 1000


ABORTED = {
    "wait_for_abort": ("aborted", None),
    "finish_anyway": ("disconnected_completed", None),
    "fail_anyway": ("disconnected_completed", "INTERNAL"),
    "tidy_up": ("aborted", None),
}


@pytest.mark.rule("PROC-03", "TIME-03", "TIME-06", "TIME-08")
def test_calls_that_run_on_after_the_grace_are_aborted_and_not_answered() -> None:
    settings = {"server.eof_grace_ms": 50, "tools.cancel_grace_ms": 50}
    with serve(APP, settings) as server:
        calls = [server.start(tool) for tool in ABORTED]
        started = "each of them to start"
        server.wait_until(lambda: len(server.records_with(message="started")) == 4, started)
        assert server.finish() == 0
        assert [server.answers(call) for call in calls] == [[]] * 4
        records = server.records_with(message="tool call completed")
        assert {
            each["toolName"]: (each["outcome"], each.get("errorCode")) for each in records
        } == ABORTED
        assert len(records) == 4
        assert server.record(message="aborted")["reason"] == "disconnected"
        server.record(message="tidied up")


KEEPING = (
    *("refuse_to_end", "block_when_cancelled", "stuck_to_thread"),
    *("leave_thread", "leave_tasks", "leave_exit_function"),
)


@pytest.mark.rule("PROC-06")
def test_nothing_keeps_the_process_alive() -> None:
    with serve_each(KEEPING, APP, SOON) as servers:
        for tool, server in servers.items():
            call = server.start(tool)
            if tool.startswith("leave"):
                assert server.outcome(call) is None
            else:
                server.record(message="started")
            server.close_input()
        for server in servers.values():
            assert server.wait() == 0


@pytest.mark.rule("PROC-03", "PROC-04", "TIME-08")
def test_a_closed_output_aborts_at_once() -> None:
    # It would be served for an hour if it waited for anything.
    with serve(APP, NEVER) as server:
        server.start("wait_for_abort")
        server.record(message="started")
        server.close_output()
        assert server.wait() == 0
        assert server.record(message="aborted")["reason"] == "disconnected"
        assert server.completion("wait_for_abort")["outcome"] == "aborted"


@pytest.mark.rule("PROC-03", "PROC-04")
def test_a_closed_output_ends_an_idle_process() -> None:
    with serve(APP, NEVER) as server:
        server.close_output()
        assert server.wait() == 0
        assert server.records_with(message="tool call completed") == []


@pytest.mark.rule("PROC-03", "PROC-04", "LIFE-06")
def test_an_output_that_is_closed_during_the_grace_ends_the_grace() -> None:
    with serve(APP, NEVER) as server:
        server.start("wait_for_abort")
        server.record(message="started")
        server.close_input()
        server.close_output()
        assert server.wait() == 0
        assert server.completion("wait_for_abort")["outcome"] == "aborted"


VANISHING_PARENT = """
import subprocess, sys
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for line in sys.stdin.buffer:
    server.stdin.write(line)
    server.stdin.flush()
    if b'"id"' in line:
        sys.stdout.buffer.write(server.stdout.readline())
        sys.stdout.flush()
"""


@pytest.mark.rule("PROC-03", "TIME-08")
def test_a_client_that_is_killed_ends_the_server(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP)
    words = [sys.executable, "-c", VANISHING_PARENT, *command("serve", str(app))]
    with ServerProcess(words, environment(NEVER)) as parent:
        parent.handshake()
        assert parent.call("echo", text="hello") == "hello"
        parent.send("tools/call", {"name": "wait_for_abort"}, id="x")
        parent.record(message="started")
        parent.process.kill()
        parent.wait()
        # The server is the last one that holds the log: its end is the server's.
        parent.drain_log()
        assert parent.records_with(message="tool call completed", outcome="aborted")


@pytest.mark.rule("PROC-01", "PROC-04", "LIFE-06")
def test_a_script_goes_on_after_serving_without_the_client(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(APP + "server.run()\nprint('afterwards', repr(sys.stdin.read()))\n")
    done = subprocess.run(
        [sys.executable, str(script)],
        input=b"".join([initialize(1), b"\n", request(2, "ping", {})]),
        capture_output=True,
        env=environment(),
        timeout=PATIENCE,
    )
    assert [orjson.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2]
    assert done.stderr.splitlines()[-1] == b"afterwards ''"
    assert done.returncode == 0
