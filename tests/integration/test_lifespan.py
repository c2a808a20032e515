"""The lifespan of a server in a process, in a host of its own, and in a test."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from foundation_rt import Server, ToolContext, UsageError
from foundation_rt.features.lifespan import LifespanError
from foundation_rt.testing import ManualClock, TestClient
from tests.lab.servers.fixture import HANDSHAKE
from tests.lab.servers.process import ServerProcess, command, environment, run, serve
from tests.lab.waiting import PATIENCE, until

APP = """
import asyncio, os, sys, threading
from foundation_rt import Server, ToolContext

server = Server("living")

def tell(what):
    print(what, file=sys.stderr, flush=True)

@server.lifespan
async def outer(server):
    tell("+outer")
    try:
        yield {"outer": 1}
    finally:
        tell("-outer")

@server.lifespan
async def inner(server):
    tell("+inner")
    await asyncio.sleep(0)
    if os.environ.get("APP_FAILS"):
        raise OSError("no database")
    if os.environ.get("APP_HANGS") == "start":
        await asyncio.Event().wait()
    try:
        yield {"inner": 2}
    finally:
        tell("-inner")
        if os.environ.get("APP_HANGS") == "stop":
            await asyncio.Event().wait()

@server.tool
def state(ctx: ToolContext) -> dict:
    return ctx.state

@server.tool(inline=True)
def state_inline(ctx: ToolContext) -> dict:
    return ctx.state

@server.tool
async def waits(ctx: ToolContext) -> None:
    tell("waiting")
    try:
        await ctx.abort_signal.wait()
    finally:
        await asyncio.sleep(0.01)
        tell(f"ended {ctx.state}")
"""


def told(server: ServerProcess) -> list[str]:
    """Return what the application has printed so far."""
    lines = server.stderr.splitlines()
    return [line for line in lines if line[:1] in "+-" or line.startswith(("waiting", "ended"))]


def wait_for(server: ServerProcess, what: str) -> None:
    server.wait_until(lambda: what in told(server), what)


@pytest.mark.rule("OPS-20", "OPS-02", "OPS-05")
@pytest.mark.parametrize("end", ["end of file", "output closed", "SIGTERM", "SIGINT"])
def test_hooks_are_entered_before_input_is_read_and_left_after_the_last_handler(end: str) -> None:
    with serve(APP, {"server.eof_grace_ms": 20}) as server:
        assert server.call("state") == server.call("state_inline") == {"outer": 1, "inner": 2}
        server.start("waits")
        wait_for(server, "waiting")
        if end == "end of file":
            assert server.finish() == 0
        elif end == "output closed":
            server.close_output()
            assert server.wait() == 0
        else:
            # Calls may go on for four fifths of the budget; the second signal would end it at once.
            server.signal(signal.Signals[end])
            server.close_input()
            server.close_output()
            assert server.wait() == 128 + signal.Signals[end]
        ended = "ended {'outer': 1, 'inner': 2}"
        assert told(server) == ["+outer", "+inner", "waiting", ended, "-inner", "-outer"]


@pytest.mark.rule("OPS-05")
def test_lines_that_came_while_hooks_were_entered_are_served() -> None:
    lines = (
        b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":'
        b'{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}\n'
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"state_inline"}}\n'
    )
    with serve(APP, handshake=False) as server:
        server.write(lines)
        server.close_input()
        assert server.wait() == 0
        assert server.outcome(1) == {"outer": 1, "inner": 2}
        assert told(server) == ["+outer", "+inner", "-inner", "-outer"]


DEFERRED = """
import asyncio, os, sys
from foundation_rt import Server, ToolContext

server = Server("deferred")

@server.lifespan(after_initialize=True)
async def hook(server):
    print("+hook", file=sys.stderr, flush=True)
    while not os.path.exists(os.environ["APP_FILE"]):
        await asyncio.sleep(0.01)
    if os.environ.get("APP_FAILS"):
        raise OSError("no database")
    yield {"entered": True}

@server.tool(inline=True)
def state(ctx: ToolContext) -> dict:
    return ctx.state
"""
"""A server whose hook waits until there is a file."""


INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":'
    b'{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}\n'
)


def deferred(tmp_path: Path, first: bytes, app: str = DEFERRED, **variables: str) -> ServerProcess:
    """Return a process whose input begins with `first` before it starts."""
    (tmp_path / "app.py").write_text(app)
    variables["APP_FILE"] = str(tmp_path / "go")
    theirs, ours = os.pipe()
    os.write(ours, first)
    words = command("serve", str(tmp_path / "app.py"))
    return ServerProcess(words, environment() | variables, stdin=(theirs, ours))


@pytest.mark.rule("OPS-40", "OPS-05")
def test_initialize_is_answered_before_hooks_that_allow_it_and_nothing_else_is(
    tmp_path: Path,
) -> None:
    initialized = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    with deferred(tmp_path, INITIALIZE + initialized) as server:
        assert server.answer(0)["result"]["serverInfo"]["name"] == "deferred"
        wait_for(server, "+hook")
        calls = [server.start("state"), server.start("state")]
        assert len(server.messages) == 1
        (tmp_path / "go").touch()
        assert [server.outcome(each) for each in calls] == [{"entered": True}] * 2
        assert server.finish() == 0


@pytest.mark.rule("OPS-40")
@pytest.mark.parametrize(
    "first",
    [
        b'{"jsonrpc":"2.0","id":0,"method":"ping"}\n',
        b"no JSON\n",
        INITIALIZE[:50],
    ],
)
def test_anything_but_initialize_waits_for_hooks(tmp_path: Path, first: bytes) -> None:
    with deferred(tmp_path, first) as server:
        wait_for(server, "+hook")
        assert server.messages == []
        (tmp_path / "go").touch()
        if first == INITIALIZE[:50]:
            server.write(INITIALIZE[50:])
        server.wait_for_messages(1)
        assert server.finish() == 0


@pytest.mark.rule("OPS-40")
def test_all_hooks_have_to_allow_it(tmp_path: Path) -> None:
    other = "\n@server.lifespan\nasync def other(server):\n    yield {}\n"
    with deferred(tmp_path, INITIALIZE, DEFERRED + other) as server:
        wait_for(server, "+hook")
        assert server.messages == []
        (tmp_path / "go").touch()
        server.answer(0)
        assert server.finish() == 0


@pytest.mark.rule("OPS-40", "OPS-21")
def test_hook_that_fails_after_initialize_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    call = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    with deferred(tmp_path, INITIALIZE + call, APP_FAILS="1") as server:
        assert server.wait() == 1
        assert "lifespan hook 'hook' failed to start: OSError: no database" in server.stderr
        assert [each["id"] for each in server.messages] == [0]


@pytest.mark.rule("OPS-40", "OPS-21")
@pytest.mark.parametrize("end", ["SIGTERM", "client gone", "output closed"])
def test_hook_that_hangs_after_initialize_ends_when_nobody_wants_it(
    tmp_path: Path, end: str
) -> None:
    with deferred(tmp_path, INITIALIZE, FOUNDATION_RT_SERVER__SHUTDOWN_TIMEOUT_MS="2000") as server:
        server.answer(0)
        wait_for(server, "+hook")
        if end == "SIGTERM":
            server.signal(signal.SIGTERM)
        elif end == "client gone":
            server.close_input()
        else:
            server.close_output()
        assert server.wait() == (143 if end == "SIGTERM" else 0)


@pytest.mark.rule("OPS-03", "OPS-21")
@pytest.mark.parametrize("way", ["serve", "python"])
def test_a_start_that_fails_ends_the_process_with_code_1_and_the_reason(
    way: str, tmp_path: Any
) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP + '\nif __name__ == "__main__":\n    server.run()\n')
    words = command("serve", str(app))
    if way == "python":
        words = [words[0], str(app)]
    with ServerProcess(words, environment() | {"APP_FAILS": "1"}) as server:
        assert server.wait() == 1
        assert "lifespan hook 'inner' failed to start: OSError: no database" in server.stderr
        assert told(server)[:3] == ["+outer", "+inner", "-outer"] or way == "python"
        assert server.messages == []


@pytest.mark.rule("OPS-03", "OPS-21")
@pytest.mark.parametrize("end", ["SIGTERM", "SIGINT", "client gone", "output closed"])
def test_a_start_that_hangs_ends_when_nobody_wants_it(end: str, tmp_path: Any) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP)
    env = environment({"server.shutdown_timeout_ms": 2000}) | {"APP_HANGS": "start"}
    with ServerProcess(command("serve", str(app)), env) as server:
        wait_for(server, "+inner")
        if end == "client gone":
            server.close_input()
        elif end == "output closed":
            server.close_output()
        else:
            server.signal(signal.Signals[end])
        code = server.wait()
        assert code == (128 + signal.Signals[end] if end.startswith("SIG") else 0)
        assert told(server) == ["+outer", "+inner", "-outer"]


@pytest.mark.rule("OPS-04", "OPS-05")
@pytest.mark.parametrize("end", ["end of file", "SIGTERM"])
def test_a_stop_that_hangs_is_bounded_by_the_budget(end: str, tmp_path: Any) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP)
    env = environment({"server.shutdown_timeout_ms": 800}) | {"APP_HANGS": "stop"}
    with ServerProcess(command("serve", str(app)), env) as server:
        server.handshake()
        if end == "SIGTERM":
            server.signal(signal.SIGTERM)
            assert server.wait() == 143
        else:
            assert server.finish() == 0
        assert told(server) == ["+outer", "+inner", "-inner", "-outer"]
        assert server.records_with(message="lifespan hook takes too long to stop: cancelled")


@pytest.mark.rule("OPS-05")
def test_foundation_rt_call_enters_and_leaves_them(tmp_path: Any) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP)
    done = run("call", str(app), "state")
    assert json.loads(done.stdout) == {"outer": 1, "inner": 2}
    lines = [line for line in done.stderr.splitlines() if line[:1] in "+-"]
    assert lines == ["+outer", "+inner", "-inner", "-outer"]


# -- hosts of their own


def living_server(entries: list[str]) -> Server:
    server = Server("living")

    @server.lifespan
    async def hook(server: Server) -> AsyncIterator[dict[str, Any]]:
        entries.append("+")
        yield {"thread": threading.current_thread().name}
        entries.append("-")

    @server.tool(inline=True)
    def state(ctx: ToolContext) -> Any:
        return ctx.state

    @server.tool
    async def lingers(ctx: ToolContext) -> None:
        entries.append("started")
        try:
            await ctx.abort_signal.wait()
        finally:
            await asyncio.sleep(0.01)
            entries.append("ended")

    return server


@pytest.mark.rule("OPS-06")
async def test_a_host_with_a_loop_serves_within_its_lifetime() -> None:
    entries: list[str] = []
    server = living_server(entries)

    with pytest.raises(UsageError, match=r"async with server.lifetime\(\)"):
        server.connect(lambda line: None)
    async with asyncio.timeout(PATIENCE), server.lifetime() as state:
        assert state == {"thread": "MainThread"}
        connection = server.connect(lambda line: None)
        with pytest.raises(UsageError, match="this host has an event loop"):
            server.lifetime().__enter__()
        connection.close()
    assert entries == ["+", "-"]
    with pytest.raises(UsageError):
        server.connect(lambda line: None)


@pytest.mark.rule("OPS-06")
def test_a_host_without_a_loop_serves_within_it_too() -> None:
    entries: list[str] = []
    server = living_server(entries)
    with pytest.raises(UsageError, match=r"with server.lifetime\(\)"):
        server.connect(lambda line: None)
    with server.lifetime() as state:
        assert state == {"thread": "foundation-rt-loop"}
        server.connect(lambda line: None).close()
        assert entries == ["+"]
    assert entries == ["+", "-"]


@pytest.mark.rule("OPS-06")
@pytest.mark.parametrize("with_loop", [True, False])
def test_a_server_without_hooks_needs_no_lifetime(with_loop: bool) -> None:
    server = Server("plain")

    async def host() -> None:
        async with server.lifetime() as state:
            assert state is None

    if with_loop:
        asyncio.run(host())
    else:
        with server.lifetime() as state:
            assert state is None
    server.connect(lambda line: None).close()


@pytest.mark.rule("OPS-03", "OPS-06")
def test_a_host_is_told_what_failed() -> None:
    server = Server("failing")

    @server.lifespan
    async def hook(server: Server) -> AsyncIterator[None]:
        raise OSError("refused")
        yield

    with pytest.raises(LifespanError, match="OSError: refused"), server.lifetime():
        raise AssertionError("not reached")

    async def test() -> None:
        async with TestClient(server):
            raise AssertionError("not reached")

    with pytest.raises(LifespanError, match="OSError: refused"):
        asyncio.run(test())


@pytest.mark.rule("OPS-02", "OPS-06")
@pytest.mark.parametrize("clock", [None, ManualClock()])
def test_the_test_client_enters_them_and_waits_for_handlers(clock: Any) -> None:
    entries: list[str] = []
    server = living_server(entries)

    async def test() -> None:
        async with TestClient(server, clock=clock) as client:
            assert await client.call("state") == {"thread": "MainThread"}
            async with TestClient(server) as second:
                assert await second.call("state") == {"thread": "MainThread"}
            call = asyncio.ensure_future(client.call("lingers"))
            await until(lambda: "started" in entries, "the call runs")
        with pytest.raises(ConnectionError):
            await call

    asyncio.run(test())
    assert entries == ["+", "started", "ended", "-"]


@pytest.mark.rule("OPS-01")
def test_hooks_are_registered_before_the_server_is_started() -> None:
    server = Server("late")
    assert server.runtime
    with pytest.raises(UsageError, match="before the server is started"):
        server.lifespan(lambda server: None)


@pytest.mark.rule("OPS-06")
def test_the_hands_that_feed_may_be_in_another_thread_than_the_hooks() -> None:
    entries: list[str] = []
    server = living_server(entries)
    lines: list[bytes] = []
    with server.lifetime():
        connection = server.connect(lines.append)
        import orjson

        for message in (
            {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HANDSHAKE},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "state"}},
        ):
            connection.feed(orjson.dumps(message) + b"\n")
        assert b"foundation-rt-loop" in lines[-1]
        connection.close()
    assert os.getpid() and entries == ["+", "-"]
