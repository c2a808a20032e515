"""A server over stdio as a real process on Windows: input, output, children, its end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "win32", reason="only on Windows")

PATIENCE = 60.0
ROOT = Path(__file__).parents[2]

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


class Served:
    """A server's process; a thread reads its log, so that it is never full."""

    def __init__(self, folder: Path, **settings: object) -> None:
        app = folder / "app.py"
        app.write_text(APP, "utf-8")
        extra = {
            f"FOUNDATION_RT_SERVER__{key.upper()}": str(each) for key, each in settings.items()
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "foundation_rt", "serve", str(app)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | extra,
        )
        self.log = b""
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log += line

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def line(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def call(self, tool: str, **arguments: object) -> Any:
        self.send(request(1, "tools/call", {"name": tool, "arguments": arguments}))
        return text_of(self.line())

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self) -> int:
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code


def request(number: int, method: str, params: object = None) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
    return orjson.dumps(message) + b"\n"


INITIALIZE = request(
    0,
    "initialize",
    {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "tests", "version": "0"},
    },
)


def text_of(line: bytes) -> Any:
    return orjson.loads(line)["result"]["content"][0]["text"]


@contextmanager
def serve(folder: Path, **settings: object) -> Iterator[Served]:
    served = Served(folder, **settings)
    try:
        served.send(INITIALIZE)
        assert orjson.loads(served.line())["id"] == 0
        served.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        yield served
    finally:
        served.process.kill()
        served.wait()
        for stream in (served.process.stdin, served.process.stdout, served.process.stderr):
            with suppress(OSError):
                stream.close()


@pytest.mark.rule("WIN-03")
def test_every_line_before_the_end_is_answered_without_carriage_returns(tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        calls = [("echo", "a\r\né→"), ("later", "b"), ("echo", "c")]
        for number, (tool, text) in enumerate(calls, 1):
            params = {"name": tool, "arguments": {"text": text}}
            line = request(number, "tools/call", params)
            served.send(line if number < len(calls) else line.rstrip(b"\n"))
        served.end_input()
        assert served.process.stdout is not None
        lines = served.process.stdout.read().splitlines(keepends=True)
        assert sorted(map(text_of, lines)) == ["a\r\né→", "b", "c"]
        assert not any(line.endswith(b"\r\n") for line in lines)
        assert served.wait() == 0


@pytest.mark.rule("WIN-03")
def test_client_that_reads_late_gets_every_answer(tmp_path: Path) -> None:
    count, text = 300, "x" * 30_000
    with serve(tmp_path) as served:
        lines = [
            request(each, "tools/call", {"name": "echo", "arguments": {"text": text}})
            for each in range(count)
        ]

        def write() -> None:
            for line in lines:
                served.send(line)
            served.end_input()

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        writer.join(3)
        assert writer.is_alive()  # the server has stopped reading: 9 MB are not in pipes
        assert served.process.stdout is not None
        answers = served.process.stdout.read().splitlines()
        assert [orjson.loads(each)["id"] for each in answers] == list(range(count))
        assert served.wait() == 0


@pytest.mark.rule("WIN-04")
def test_what_tools_and_their_children_print_is_utf8_on_stderr(tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        assert served.call("speak") == "said"
        served.end_input()
        assert served.wait() == 0
        assert "a tool: é→".encode() in served.log
        assert b"a child" in served.log


@pytest.mark.rule("WIN-04")
def test_child_of_a_tool_does_not_keep_the_output_open(tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        child = int(served.call("leave_child", seconds=PATIENCE * 3))
        try:
            served.end_input()
            assert served.process.wait(PATIENCE) == 0
            assert served.line() == b""  # the end, which a copy of the handle would withhold
        finally:
            os.kill(child, 9)


@pytest.mark.rule("WIN-05")
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGBREAK", 143), ("SIGTERM", 143)])
def test_signal_ends_the_process_after_its_calls(tmp_path: Path, name: str, code: int) -> None:
    with serve(tmp_path) as served:
        assert served.call("signalled", name=name) == name
        assert served.wait() == code


@pytest.mark.rule("WIN-05")
def test_signal_ends_a_process_with_an_event_loop(tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        assert served.call("later", text="a") == "a"
        assert served.call("signalled", name="SIGINT") == "SIGINT"
        assert served.wait() == 130


@pytest.mark.rule("WIN-05")
def test_end_of_the_console_ends_the_process(tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        assert served.call("close_console") == "closed"
        assert served.wait() == 129


@pytest.mark.rule("WIN-05")
def test_client_that_has_closed_the_output_ends_it_at_the_next_answer(tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        assert served.process.stdout is not None
        served.process.stdout.close()
        served.send(request(1, "ping"))
        assert served.wait() == 0


@pytest.mark.rule("WIN-05")
def test_handler_that_blocks_does_not_outlive_the_client(tmp_path: Path) -> None:
    with serve(tmp_path, shutdown_timeout_ms=500) as served:
        arguments = {"name": "block", "arguments": {"seconds": PATIENCE * 3}}
        served.send(request(1, "tools/call", arguments))
        served.end_input()
        assert served.wait() == 0
