"""A server that has no use for asyncio does not import it, nor a client or the gateway."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.lab.servers.process import serve

APP = """
import atexit, sys, threading, time
from foundation_rt import Server, ToolContext, ToolError

UNUSED = ("asyncio", "ssl", "foundation_rt.client", "foundation_rt.apps.coordinator",
          "foundation_rt.apps.gateway")
server = Server("plain")
go_on = threading.Event()


@server.tool
def modules() -> list[str]:
    return sorted(name for name in sys.modules if name.startswith(UNUSED))


@server.tool(inline=True)
def modules_inline() -> list[str]:
    return modules()


@server.tool(timeout_ms=50)
def times_out(ctx: ToolContext):
    aborted = threading.Event()
    ctx.abort_signal.add_callback(aborted.set)
    aborted.wait()
    ctx.abort_signal.raise_if_aborted()


@server.tool
def waits(ctx: ToolContext):
    ctx.logger.info("waiting")
    aborted = threading.Event()
    ctx.abort_signal.add_callback(aborted.set)
    aborted.wait()
    ctx.abort_signal.raise_if_aborted()


@server.tool
def fails():
    raise ValueError("as it should")


@server.tool
def blocks_for_a_while(large: int) -> str:
    return "x" * large


atexit.register(lambda: print("asyncio" in sys.modules, file=sys.stderr))
"""


BRIEF = """

@server.tool
async def names(count: int) -> list[str]:
    return [name for name in sys.modules if name.startswith(UNUSED)][:count]


@server.tool
async def refuses():
    raise ToolError("NOT_FOUND", "it is not there")


@server.tool
async def passes_on(of: int):
    return names(of)


@server.tool(timeout_ms=1)
async def takes_long():
    until = time.monotonic() + 0.01
    while time.monotonic() < until:
        pass


@server.tool
async def imports():
    import asyncio

    return asyncio.current_task() is not None
"""

IN_PLACE = """

@server.tool
async def has_task() -> bool:
    return asyncio.current_task() is not None
"""

LATER = """

@server.tool
async def later(ctx: ToolContext) -> bool:
    return await ctx.run_in_worker(bool, 1)
"""


@pytest.mark.rule("PROC-08")
@pytest.mark.parametrize("end", ["end of file", "signal"])
def test_without_a_coroutine_asyncio_is_never_imported(end: str) -> None:
    with serve(APP, {"server.eof_grace_ms": 20}, start=subprocess.Popen) as server:
        server.request("tools/list")
        assert server.call("modules") == server.call("modules_inline") == []
        assert server.call("times_out")["code"] == "TIMEOUT"
        assert server.call("fails")["code"] == "INTERNAL"
        assert server.call("nowhere")["code"] == "NOT_FOUND"
        assert len(server.call("blocks_for_a_while", large=200_000)) == 200_000
        server.call("health")
        cancelled = server.start("waits")
        server.record(message="waiting")
        server.cancel(cancelled)
        server.completion("waits")
        if end == "signal":
            server.signal(signal.SIGTERM)
            assert server.wait() == 143
        else:
            server.start("waits")
            assert server.finish() == 0
        assert "False" in server.stderr.splitlines()


@pytest.mark.rule("PROC-08")
def test_with_a_coroutine_asyncio_is_there() -> None:
    with serve(APP + LATER) as server:
        assert server.call("later") is True
        assert "asyncio" in server.call("modules")
        assert server.finish() == 0
        assert "True" in server.stderr.splitlines()


@pytest.mark.rule("PROC-08", "CALL-44")
def test_coroutine_that_never_waits_runs_in_place() -> None:
    brief = BRIEF.replace("    import asyncio\n", "")
    with serve(APP + brief, start=subprocess.Popen) as server:
        assert server.call("names", count=9) == []
        assert server.call("refuses")["code"] == "NOT_FOUND"
        assert server.call("takes_long")["code"] == "TIMEOUT"
        assert server.call("modules") == []
        assert server.finish() == 0
        assert "False" in server.stderr.splitlines()


@pytest.mark.rule("CALL-12", "CALL-44")
def test_coroutine_is_a_task_if_asyncio_is_there() -> None:
    with serve(APP + BRIEF, start=subprocess.Popen) as server:
        assert server.call("imports") is True
        assert server.call("names", count=9)


@pytest.mark.rule("CALL-40", "CALL-44")
def test_what_a_coroutine_in_place_returns_is_awaited() -> None:
    with serve(APP + BRIEF.replace("    import asyncio\n", "")) as server:
        assert server.call("passes_on", of=9)


@pytest.mark.rule("CALL-44")
def test_coroutine_that_never_waits_is_no_task_once_there_is_a_loop() -> None:
    with serve(f"import asyncio\n{APP}{IN_PLACE}") as server:
        assert server.call("has_task") is True  # which makes the loop
        assert server.call("has_task") is False
