"""What tasks and handlers leave behind when the process ends: its code, and a record for each."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.lab.servers.process import serve

APP = """
import asyncio, threading, time
from foundation_rt import Server, ToolContext

server = Server("leftovers")


async def linger(way):
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            if way == "exit":
                raise SystemExit(9)
            if way == "stop":
                asyncio.get_running_loop().stop()
            elif way == "plain":
                raise


@server.tool
async def leave_a_task(way: str) -> int:
    asyncio.create_task(linger(way))
    return 1


@server.tool
async def block(ctx: ToolContext) -> None:
    ctx.logger.info("started")
    time.sleep(3600)


@server.tool
def stuck(ctx: ToolContext) -> None:
    ctx.logger.info("started")
    time.sleep(3600)
"""

HASTY = {"server.shutdown_timeout_ms": 1500}
ENDS = [(None, 0), (signal.SIGTERM, 143)]


@pytest.mark.rule("PROC-04", "PROC-06", "PROC-07")
@pytest.mark.parametrize(("number", "exit_code"), ENDS)
@pytest.mark.parametrize("way", ["plain", "swallow", "exit", "stop"])
def test_a_task_left_behind_changes_neither_the_exit_code_nor_the_log(
    way: str, number: signal.Signals | None, exit_code: int
) -> None:
    with serve(APP, HASTY) as server:
        assert server.call("leave_a_task", way=way) == 1
        end(server, number)
        assert server.wait() == exit_code
        assert "Traceback" not in server.stderr
        assert outcomes(server) == ["success"]


@pytest.mark.rule("LOG-30", "PROC-10", "PROC-06", "CALL-13")
@pytest.mark.parametrize(("number", "exit_code"), ENDS)
@pytest.mark.parametrize("tool", ["block", "stuck"])
def test_a_handler_that_never_ends_has_its_record(
    tool: str, number: signal.Signals | None, exit_code: int
) -> None:
    with serve(APP, HASTY) as server:
        server.start(tool)
        server.record(message="started")
        end(server, number)
        assert server.wait() == exit_code
        assert outcomes(server) == ["aborted"]
        [warning] = [each for each in server.records if "has not ended" in each["message"]]
        assert warning["level"] == "warn"
        assert warning["toolName"] == tool
        assert warning["correlationId"] == server.record(message="started")["correlationId"]


def end(server: Any, number: signal.Signals | None) -> None:
    if number is None:
        server.close_input()
    else:
        server.signal(number)


def outcomes(server: Any) -> list[str]:
    return [each["outcome"] for each in server.records if "outcome" in each]
