"""SIGTERM, SIGINT, SIGHUP: what is still answered, how the process ends, and its exit code."""

from __future__ import annotations

import ctypes
import signal
from pathlib import Path

import orjson
import pytest

from tests.lab.servers.process import Hanging, ServerProcess, command, environment, serve

APP = '''
import asyncio, hashlib, signal, threading, time
from foundation_rt import Server, ToolContext

server = Server("signals")
go_on = threading.Event()


@server.tool
async def finish_later(ctx: ToolContext) -> str:
    ctx.logger.info("started")
    await asyncio.to_thread(go_on.wait)
    return "in time"


@server.tool
def finish_later_in_thread(ctx: ToolContext) -> str:
    ctx.logger.info("started")
    go_on.wait()
    return "in time"


@server.tool(timeout_ms=300)
async def time_out_later(ctx: ToolContext):
    """Its deadline comes after the signal, and lets the others finish."""
    await ctx.abort_signal.wait()
    go_on.set()
    ctx.abort_signal.raise_if_aborted()


@server.tool
async def wait_for_abort(ctx: ToolContext):
    ctx.logger.info("started")
    ctx.logger.info("aborted", {"reason": await ctx.abort_signal.wait()})
    ctx.abort_signal.raise_if_aborted()


@server.tool
def stuck(ctx: ToolContext):
    ctx.logger.info("started")
    threading.Event().wait()


@server.tool(inline=True)
def inline() -> None:
    pass


@server.tool
def in_thread() -> None:
    pass


@server.tool
async def in_task() -> None:
    await asyncio.sleep(0)


@server.tool(inline=True)
def take_signals(ctx: ToolContext):
    def report(number, frame):
        ctx.logger.info("got a signal", {"number": number})

    signal.signal(signal.SIGUSR1, report)


@server.tool
async def block_for_a_while():
    time.sleep(1.2)


@server.tool
async def block_the_loop(ctx: ToolContext):
    """Blocks the main thread in a library that looks for no signals."""
    ctx.logger.info("started")
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)
'''

ENDS = [
    pytest.param(signal.SIGTERM, 143, id="SIGTERM"),
    pytest.param(signal.SIGINT, 130, id="SIGINT"),
    pytest.param(signal.SIGHUP, 129, id="SIGHUP"),
]
PATIENT = {"server.shutdown_timeout_ms": 3_600_000}
HASTY = {"server.shutdown_timeout_ms": 300}
ABORTING = {"server.shutdown_timeout_ms": 1000}


def call(number: int, tool: str) -> bytes:
    params = {"name": tool}
    request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return orjson.dumps(request) + b"\n"


def finish(server: ServerProcess, number: signal.Signals) -> int:
    server.signal(number)
    return server.wait()


@pytest.mark.rule("PROC-14")
@pytest.mark.parametrize(("number", "exit_code"), ENDS)
def test_an_idle_process_ends_at_once(number: signal.Signals, exit_code: int) -> None:
    with serve(None, PATIENT) as server:
        server.call("echo", message="hello")
        assert finish(server, number) == exit_code
        assert "Traceback" not in server.stderr


@pytest.mark.rule("PROC-13", "PROC-14")
@pytest.mark.parametrize("by", ["nohup", "application"])
def test_sighup_that_somebody_has_decided_on_before_ends_nothing(by: str, tmp_path: Path) -> None:
    words = command("serve")
    if by == "nohup":
        words = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *words]
    else:
        handles = "import signal; signal.signal(signal.SIGHUP, lambda number, frame: None)\n"
        (tmp_path / "app.py").write_text(handles + APP)
        words = command("serve", str(tmp_path / "app.py"))
    with ServerProcess(words, environment(HASTY)) as server:
        server.handshake()
        for _ in range(3):
            server.signal(signal.SIGHUP)
            assert server.request("ping")["result"] == {}
        assert server.finish() == 0


@pytest.mark.rule("PROC-14")
def test_a_process_that_was_not_initialized_ends_at_once() -> None:
    with serve(APP, PATIENT, handshake=False) as server:
        server.request("ping")
        assert finish(server, signal.SIGTERM) == 143


@pytest.mark.rule("PROC-14")
@pytest.mark.parametrize(("number", "exit_code"), ENDS)
def test_running_calls_may_finish_and_are_answered(number: signal.Signals, exit_code: int) -> None:
    with serve(APP, PATIENT) as server:
        calls = [server.start(tool) for tool in ("finish_later", "finish_later_in_thread")]
        server.wait_until(lambda: len(server.records_with(message="started")) == 2, "both")
        timed_out = server.start("time_out_later")
        server.call("health")
        assert finish(server, number) == exit_code
        assert [server.outcome(each) for each in calls] == ["in time", "in time"]
        assert server.outcome(timed_out)["code"] == "TIMEOUT"
        outcomes = [each["outcome"] for each in server.records if "outcome" in each]
        assert sorted(outcomes) == ["success", "success", "success", "timeout"]


@pytest.mark.rule("PROC-14", "TIME-03", "LIFE-06")
@pytest.mark.parametrize(("number", "exit_code"), ENDS)
def test_calls_that_do_not_finish_in_time_are_aborted_and_not_answered(
    number: signal.Signals, exit_code: int
) -> None:
    with serve(APP, ABORTING) as server:
        call = server.start("wait_for_abort")
        server.record(message="started")
        assert finish(server, number) == exit_code
        assert server.answers(call) == []
        assert server.record(message="aborted")["reason"] == "shutdown"
        assert server.completion("wait_for_abort")["outcome"] == "aborted"


@pytest.mark.rule("PROC-14")
def test_after_a_signal_no_more_input_is_served() -> None:
    with serve(APP, PATIENT) as server:
        running = server.start("finish_later")
        server.record(message="started")
        server.start("time_out_later")
        server.call("health")
        # While it stands still, the signal comes first and the request second. It is sent to the
        # main thread: one for the process is taken by whichever thread wakes first.
        server.signal(signal.SIGSTOP)
        assert ctypes.CDLL(None).tgkill(server.pid, server.pid, signal.SIGTERM) == 0
        server.write(b'{"jsonrpc":"2.0","id":"late","method":"ping"}\n')
        server.signal(signal.SIGCONT)
        assert server.wait() == 143
        assert server.outcome(running) == "in time"
        assert server.answers("late") == []


@pytest.mark.rule("PROC-14", "CALL-13")
def test_signal_under_load_leaves_no_call_half_served() -> None:
    tools = ("inline", "in_thread", "in_task")
    with serve(APP, PATIENT) as server:
        first = 2
        with pytest.raises(Hanging):  # the process has ended
            while True:
                numbers = range(first, first + 90)
                server.write(b"".join(call(each, tools[each % 3]) for each in numbers))
                first = numbers.stop
                if first == 2 + 10 * 90:
                    server.signal(signal.SIGTERM)
        assert server.exit_code == 143
        # What was read before the signal is answered, whole and once, and nothing after it.
        answered = sorted(each["id"] for each in server.messages)
        assert answered == list(range(1, len(answered) + 1))
        assert len(server.records_with(message="tool call completed")) == len(answered) - 1


@pytest.mark.rule("PROC-14")
@pytest.mark.parametrize(("number", "exit_code"), ENDS)
@pytest.mark.parametrize("tool", ["stuck", "block_the_loop"])
def test_a_second_signal_ends_the_process_at_once(
    tool: str, number: signal.Signals, exit_code: int
) -> None:
    # Asked once, it would wait an hour for the call.
    with serve(APP, PATIENT) as server:
        server.start(tool)
        server.record(message="started")
        server.insist(number)
        assert server.exit_code == exit_code


@pytest.mark.rule("PROC-14")
def test_a_signal_after_end_of_file_still_counts() -> None:
    with serve(APP, {**HASTY, "server.eof_grace_ms": 3_600_000}) as server:
        server.start("stuck")
        server.record(message="started")
        server.close_input()
        assert finish(server, signal.SIGTERM) == 143


@pytest.mark.rule("PROC-14")
def test_a_signal_that_a_tool_handles_is_the_tools_business() -> None:
    with serve(APP, {"server.shutdown_timeout_ms": 1}) as server:
        server.call("take_signals")
        for _ in range(3):
            server.signal(signal.SIGUSR1)
            server.record(message="got a signal", number=signal.SIGUSR1)
        # The watchdog, which is told of every signal, looks once a second.
        server.start("block_for_a_while")
        server.record(message="a handler blocks the event loop")
        assert server.call("health")["resources"]["concurrentExecutions"] == 0
        assert server.finish() == 0
