"""A server over stdio as a real process on Windows: input, output, children, its end."""

from __future__ import annotations

import os
import sys

import orjson
import pytest

from tests.lab.servers.process import PATIENCE, serve

pytestmark = pytest.mark.skipif(sys.platform != "win32", reason="only on Windows")

APP = """
import asyncio, signal, subprocess, sys, threading, time
from foundation_rt import Server

server = Server("windows")

@server.tool
def echo(text: str) -> str:
    return text

@server.tool
async def later(text: str) -> str:
    await asyncio.sleep(0.01)
    return text

@server.tool
def speak() -> str:
    print("a tool: é→")
    subprocess.run([sys.executable, "-c", "print('a child')"], check=True)
    return "said"

@server.tool
def leave_child(seconds: float) -> str:
    command = [sys.executable, "-c", f"import time; time.sleep({seconds})"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return str(child.pid)

@server.tool
def block(seconds: float) -> str:
    time.sleep(seconds)
    return "done"

@server.tool
def close_console() -> str:
    from foundation_rt.base import windows
    # As Windows does, in a thread of its own.
    threading.Thread(target=windows._handlers[-1], args=(2,), daemon=True).start()
    return "closed"

@server.tool
def signalled(name: str) -> str:
    signal.raise_signal(getattr(signal, name))
    return name
"""


def call(number: int, tool: str, text: str) -> bytes:
    params = {"name": tool, "arguments": {"text": text}}
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return orjson.dumps(message)


@pytest.mark.rule("WIN-03")
def test_every_line_before_the_end_is_answered_without_carriage_returns() -> None:
    with serve(APP) as server:  # which looks at the ends of lines
        calls = [("echo", "a\r\né→"), ("later", "b"), ("echo", "c")]
        lines = [call(number, tool, text) for number, (tool, text) in enumerate(calls, 2)]
        server.write(b"\n".join(lines))
        assert server.finish() == 0
        assert [server.outcome(number) for number in (2, 3, 4)] == ["a\r\né→", "b", "c"]
        assert len(server.messages) == 4


@pytest.mark.rule("WIN-03")
def test_client_that_reads_late_gets_every_answer() -> None:
    count, text = 300, "x" * 30_000
    with serve(APP) as server:
        server.reading = False
        rest = b"".join(call(each, "echo", text) + b"\n" for each in range(2, count))
        while server.takes_input(3):
            rest = rest[server.offer(rest) :]
        assert rest  # the server has stopped reading: 9 MB are not in pipes
        server.reading = True
        server.write(rest)
        assert server.finish() == 0
        assert [each["id"] for each in server.messages] == list(range(1, count))


@pytest.mark.rule("WIN-04")
def test_what_tools_and_their_children_print_is_utf8_on_stderr() -> None:
    with serve(APP) as server:
        assert server.call("speak") == "said"
        assert server.finish() == 0
        assert "a tool: é→" in server.stderr
        assert "a child" in server.stderr


@pytest.mark.rule("WIN-04")
def test_child_of_a_tool_does_not_keep_the_output_open() -> None:
    with serve(APP) as server:
        child = int(server.call("leave_child", seconds=PATIENCE * 3))
        try:
            assert server.finish() == 0
            server.drain_output()  # to its end, which a copy of the handle would withhold
        finally:
            os.kill(child, 9)


@pytest.mark.rule("WIN-05")
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGBREAK", 143), ("SIGTERM", 143)])
def test_signal_ends_the_process_after_its_calls(name: str, code: int) -> None:
    with serve(APP) as server:
        assert server.call("signalled", name=name) == name
        assert server.wait() == code


@pytest.mark.rule("WIN-05")
def test_signal_ends_a_process_with_an_event_loop() -> None:
    with serve(APP) as server:
        assert server.call("later", text="a") == "a"
        assert server.call("signalled", name="SIGINT") == "SIGINT"
        assert server.wait() == 130


@pytest.mark.rule("WIN-05")
def test_end_of_the_console_ends_the_process() -> None:
    with serve(APP) as server:
        assert server.call("close_console") == "closed"
        assert server.wait() == 129


@pytest.mark.rule("WIN-05")
def test_client_that_has_closed_the_output_ends_it_at_the_next_answer() -> None:
    with serve(APP) as server:
        server.close_output()
        server.ask("ping")
        assert server.wait() == 0


@pytest.mark.rule("WIN-05")
def test_handler_that_blocks_does_not_outlive_the_client() -> None:
    with serve(APP, {"server.shutdown_timeout_ms": 500}) as server:
        server.start("block", seconds=PATIENCE * 3)
        assert server.finish() == 0
