"""Servers as processes, and a client that measures them: the same client for every server."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import orjson
from attrs import define, field

_ROOT = Path(__file__).resolve().parent.parent
_INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


@define
class Target:
    """A server to measure.

    Attributes:
        name: in the table.
        arguments: of its program.
        tool: to call.
        payload: the arguments of each call.
        program: runs it: a Python, or that of another language.
    """

    name: str
    arguments: list[str]
    tool: str = "inline_noop"
    payload: dict[str, str] = field(factory=dict)
    program: str = sys.executable


FLOOR = Target("floor: bare loop", [str(_ROOT / "bench" / "floor.py")])


def runtime(name: str, tool: str, app: str = "app.py") -> Target:
    """foundation-rt serving one of the bench apps."""
    app_path = str(_ROOT / "bench" / app)
    return Target(name, ["-m", "foundation_rt", "serve", app_path], tool)


@define
class Server:
    """A running server."""

    target: Target
    process: subprocess.Popen[bytes]
    _pending: bytes = field(default=b"", init=False)
    _last_id: int = field(default=0, init=False)

    @classmethod
    def spawn(cls, target: Target) -> Self:
        """Start it; its log goes to a file, as a host would have it."""
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                [target.program, *target.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                cwd=_ROOT,
            )
        return cls(target, process)

    def initialize(self) -> None:
        """Shake hands."""
        self._write({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _INITIALIZE})
        self._read(1)
        if self.target is not FLOOR:
            self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self) -> None:
        """One call: build it, send it, wait for the answer, parse and check that."""
        self.send()
        self.receive(1)

    def ask(self, method: str, params: dict[str, object]) -> dict[str, Any]:
        """Send a request; return its result, and leave out what comes before it."""
        self._last_id += 1
        self._write({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        while True:
            for message in self._read(1):
                if message.get("id") == self._last_id:
                    if "result" not in message:
                        raise RuntimeError(f"{self.target.name}: {message}")
                    result: dict[str, Any] = message["result"]
                    return result

    def send(self) -> None:
        """Send one call."""
        self._last_id += 1
        params = {"name": self.target.tool, "arguments": self.target.payload}
        self._write(
            {"jsonrpc": "2.0", "id": self._last_id, "method": "tools/call", "params": params}
        )

    def receive(self, at_least: int) -> int:
        """Read answers, at least so many; return how many there were."""
        messages = self._read(at_least)
        for message in messages:
            if message["result"].get("isError"):
                raise RuntimeError(f"{self.target.name}: {message}")
        return len(messages)

    @property
    def calls(self) -> int:
        """How many requests were sent after the handshake."""
        return self._last_id

    def resident_mb(self) -> float:
        """Resident memory of the process, in MB."""
        ps = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True, check=True
        )
        return int(ps.stdout) / 1024

    def stop(self) -> None:
        """Close its input and wait for its end; one that goes on is killed."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def _write(self, message: dict[str, object]) -> None:
        assert self.process.stdin is not None
        os.write(self.process.stdin.fileno(), orjson.dumps(message) + b"\n")

    def _read(self, at_least: int) -> list[dict]:
        assert self.process.stdout is not None
        messages: list[dict] = []
        while len(messages) < at_least:
            data = os.read(self.process.stdout.fileno(), 65_536)
            if not data:
                raise RuntimeError(f"{self.target.name} ended")
            *lines, self._pending = (self._pending + data).split(b"\n")
            messages += map(orjson.loads, lines)
        return messages


def sequential(server: Server, calls: int) -> list[float]:
    """Seconds that each of `calls` calls took, one after the other."""
    seconds = []
    with _on_one_processor(server.process.pid):
        for _ in range(calls):
            started = time.perf_counter()
            server.call()
            seconds.append(time.perf_counter() - started)
    return seconds


@contextmanager
def _on_one_processor(pid: int) -> Iterator[None]:
    """Keep a server and its client on one processor, where the system can.

    Client and server wait for each other, so one is enough. On two, whichever the kernel prefers
    for a while, every message wakes a processor: the same call took 25 or 54 us, and which servers
    of a run were the slow ones was chance.
    """
    if sys.platform != "linux":
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        _keep_on(pid, {min(before)})
        yield
    finally:
        _keep_on(pid, before)


def _keep_on(pid: int, processors: set[int]) -> None:
    os.sched_setaffinity(0, processors)
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), processors)


def pipelined(server: Server, calls: int, depth: int = 8) -> float:
    """Measure calls per second with `depth` of them in flight."""
    sent = received = 0
    started = time.perf_counter()
    while received < calls:
        while sent < calls and sent - received < depth:
            server.send()
            sent += 1
        received += server.receive(1)
    return calls / (time.perf_counter() - started)


def cold_start(target: Target) -> float:
    """Seconds from spawning a server to its answer to `initialize`."""
    started = time.perf_counter()
    server = Server.spawn(target)
    server.initialize()
    seconds = time.perf_counter() - started
    server.stop()
    return seconds
