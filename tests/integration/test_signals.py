"""SIGTERM and SIGINT: what is still answered, how the process ends, and with which exit code."""

from __future__ import annotations

import signal

import pytest

from tests.support.process import ServerProcess, serve

APP = '''
import asyncio, threading
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


@server.tool(timeout_ms=600)
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
'''

ENDS = [
    pytest.param(signal.SIGTERM, 143, id="SIGTERM"),
    pytest.param(signal.SIGINT, 130, id="SIGINT"),
]
PATIENT = {"server.shutdown_timeout_ms": 3_600_000}
HASTY = {"server.shutdown_timeout_ms": 500}


def finish(server: ServerProcess, number: signal.Signals) -> int:
    server.signal(number)
    return server.wait()


@pytest.mark.rule("PROC-04")
@pytest.mark.parametrize(("number", "exit_code"), ENDS)
def test_an_idle_process_ends_at_once(number: signal.Signals, exit_code: int) -> None:
    with serve(None, PATIENT) as server:
        server.call("echo", message="hello")
        assert finish(server, number) == exit_code
        assert "Traceback" not in server.stderr


@pytest.mark.rule("PROC-04")
def test_a_process_that_was_not_initialized_ends_at_once() -> None:
    with serve(APP, PATIENT, handshake=False) as server:
        server.request("ping")
        assert finish(server, signal.SIGTERM) == 143


@pytest.mark.rule("PROC-04")
@pytest.mark.parametrize(("number", "exit_code"), ENDS)
def test_running_calls_may_finish_and_are_answered(
    number: signal.Signals, exit_code: int
) -> None:
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


@pytest.mark.rule("PROC-04", "TIME-03", "LIFE-06")
@pytest.mark.parametrize(("number", "exit_code"), ENDS)
def test_calls_that_do_not_finish_in_time_are_aborted_and_not_answered(
    number: signal.Signals, exit_code: int
) -> None:
    with serve(APP, HASTY) as server:
        call = server.start("wait_for_abort")
        server.record(message="started")
        assert finish(server, number) == exit_code
        assert server.answers(call) == []
        assert server.record(message="aborted")["reason"] == "shutdown"
        assert server.completion("wait_for_abort")["outcome"] == "aborted"


@pytest.mark.rule("PROC-04")
def test_after_a_signal_no_more_input_is_served() -> None:
    with serve(APP, HASTY) as server:
        call = server.start("wait_for_abort")
        server.record(message="started")
        server.signal(signal.SIGTERM)
        server.record(message="aborted")  # so it has seen the signal
        server.offer(b'{"jsonrpc":"2.0","id":77,"method":"ping"}\n')
        assert server.wait() == 143
        assert server.answers(77) == server.answers(call) == []


@pytest.mark.rule("PROC-04", "PROC-06")
@pytest.mark.parametrize(("number", "exit_code"), ENDS)
def test_a_stuck_thread_does_not_keep_it(number: signal.Signals, exit_code: int) -> None:
    with serve(APP, HASTY) as server:
        server.start("stuck")
        server.record(message="started")
        assert finish(server, number) == exit_code


@pytest.mark.rule("PROC-04")
@pytest.mark.parametrize(
    ("first", "second", "exit_code"),
    [
        (signal.SIGTERM, signal.SIGTERM, 143),
        (signal.SIGINT, signal.SIGINT, 130),
        (signal.SIGTERM, signal.SIGINT, 130),
    ],
)
def test_a_second_signal_ends_the_process_at_once(
    first: signal.Signals, second: signal.Signals, exit_code: int
) -> None:
    # It would wait an hour for the call if it were asked once.
    with serve(APP, PATIENT) as server:
        server.start("stuck")
        server.start("wait_for_abort")
        server.wait_until(lambda: len(server.records_with(message="started")) == 2, "both")
        server.signal(first)
        # What proves that the first one was seen: nothing is read any more.
        server.ask("ping")
        assert finish(server, second) == exit_code


@pytest.mark.rule("PROC-04")
def test_a_signal_after_end_of_file_still_counts() -> None:
    with serve(APP, {**PATIENT, "server.eof_grace_ms": 3_600_000}) as server:
        server.start("wait_for_abort")
        server.record(message="started")
        server.close_input()
        assert finish(server, signal.SIGTERM) == 143
