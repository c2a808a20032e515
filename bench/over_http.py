"""Calls over HTTP beside a bare ASGI application and the official SDK; the memory of subscribers.

All servers run under uvicorn with httptools and uvloop, each in a process of its own, and are
measured in turn by the same load (`http_load`), round by round.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, Self

import orjson
from attrs import define

from bench.http_load import FIRST_ID
from bench.report import note, say
from bench.sizes import FULL, Sizes

_ROOT = Path(__file__).resolve().parent.parent
_PATIENCE = 30.0
# As many calls may run as there are connections.
_SETTINGS = {"FOUNDATION_RT_RESOURCES__MAX_CONCURRENT_EXECUTIONS": str(2 * max(FULL.connections))}

STATELESS_REVISION = "2026-07-28"
HANDSHAKE_REVISION = "2025-11-25"
_OURS, _SDK = "runtime, ", "official SDK, "
STATELESS_META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS_REVISION,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_CALL: dict[str, Any] = {"name": "async_noop", "arguments": {}}


def wait_until_listening(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until a process accepts connections; return False if it does not in time, or ends."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False


@define(eq=False)
class Server:
    """A server in a process of its own."""

    name: str
    process: subprocess.Popen[bytes]
    port: int

    @classmethod
    def spawn(
        cls, name: str, command: list[str], address: str, program: str = sys.executable
    ) -> Self:
        """Start it and wait until it accepts connections; `address` has {} for the port."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                [program, *command, *address.format(port).split()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, **_SETTINGS},
                cwd=_ROOT,
            )
        if wait_until_listening(process, port):
            return cls(name, process, port)
        process.kill()
        raise RuntimeError(f"{name} does not listen")

    def resident_mb(self) -> float:
        """Resident memory of the process, in MB."""
        ps = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True, check=True
        )
        return int(ps.stdout) / 1024

    def cpu_seconds(self) -> float:
        """CPU time of the process so far, in s; Linux counts it in ticks of 10 ms."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@define(eq=False)
class Load:
    """The process that makes requests."""

    process: subprocess.Popen[bytes]

    @classmethod
    def spawn(cls, module: str = "bench.http_load", *arguments: str) -> Self:
        """Start it."""
        return cls(
            subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=_ROOT,
            )
        )

    def do(self, **job: Any) -> dict[str, Any]:
        """One job."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(orjson.dumps(job) + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the load has ended")
        answer: dict[str, Any] = orjson.loads(line)
        return answer

    def stop(self) -> None:
        """Close all connections."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended by itself
            self.process.stdin.close()
        self.process.wait(timeout=20)
        self.process.stdout.close()


@define(eq=False)
class Target:
    """A way to call a server; `rival` is the target it is compared with besides the floor."""

    name: str
    server: Server
    request: str
    rival: str = ""


def report(sizes: Sizes) -> None:
    """Measure and print."""
    servers: list[Server] = []
    try:
        servers.extend(start() for start in (_floor, _sdk, _runtime))
        floor, sdk, ours = servers
        session = shake_hands(ours.port)
        targets = [
            Target("floor: bare ASGI", floor, _stateless_call(floor.port)),
            Target(_SDK + STATELESS_REVISION, sdk, _stateless_call(sdk.port)),
            Target(
                _OURS + STATELESS_REVISION,
                ours,
                _stateless_call(ours.port),
                _SDK + STATELESS_REVISION,
            ),
            Target(_SDK + HANDSHAKE_REVISION, sdk, _call(sdk.port, {})),
            Target(
                _OURS + HANDSHAKE_REVISION,
                ours,
                _call(ours.port, session),
                _SDK + HANDSHAKE_REVISION,
            ),
        ]
        for connections in sizes.connections:
            _report_calls(targets, connections, *sizes.http)
    finally:
        for server in servers:
            server.stop()
    _report_subscribers(sizes.subscribers)


def _floor() -> Server:
    return Server.spawn("floor", ["-m", "bench.http_floor"], "{}")


def _sdk() -> Server:
    return Server.spawn("official SDK", ["-m", "bench.http_sdk"], "{}")


def _runtime() -> Server:
    command = ["-m", "foundation_rt", "serve", "bench/app.py", "--no-auth", "--http"]
    return Server.spawn("runtime", command, "127.0.0.1:{}")


def _report_calls(targets: list[Target], connections: int, count: int, seconds: float) -> None:
    rounds: dict[str, list[dict[str, float]]] = {target.name: [] for target in targets}
    load = Load.spawn()
    try:
        for _ in range(count):
            for target in targets:
                answer = load.do(
                    job="calls",
                    port=target.server.port,
                    request=target.request,
                    expect='"isError":false',
                    connections=connections,
                    seconds=seconds,
                )
                rounds[target.name].append(answer)
    finally:
        load.stop()
    title = f"HTTP, {connections} connection{'s' if connections > 1 else ''}"
    say(f"\n{title:32}{'calls/s':>12}{'p50 us':>12}{'p95 us':>12}{'ratio':>9}{'to SDK':>9}")
    for target in targets:
        each = rounds[target.name]
        rate, p50, p95 = (median(one[key] for one in each) for key in ("rate", "p50", "p95"))
        to_floor = _ratio(each, rounds[targets[0].name])
        note(title, target.name, to_floor)
        ratio = "" if target is targets[0] else f"{to_floor:.2f}"
        to_sdk = f"{_ratio(each, rounds[target.rival]):.2f}" if target.rival else ""
        say(
            f"  {target.name:30}{rate:12.0f}{p50 * 1e6:12.0f}{p95 * 1e6:12.0f}{ratio:>9}{to_sdk:>9}"
        )


def _ratio(mine: list[dict[str, float]], other: list[dict[str, float]]) -> float:
    return median(a["rate"] / b["rate"] for a, b in zip(mine, other, strict=True))


def _report_subscribers(counts: tuple[int, ...]) -> None:
    say(f"\n{'open subscriptions':32}{'MB':>12}{'KB each':>12}{'seconds':>12}")
    for count in counts:
        server, load = _runtime(), Load.spawn()
        try:
            before = server.resident_mb()
            answer = load.do(
                job="subscribe",
                port=server.port,
                request=_listen(server.port),
                expect="notifications/subscriptions/acknowledged",
                connections=count,
            )
            used = server.resident_mb()
        finally:
            load.stop()
            server.stop()
        each = (used - before) * 1024 / count
        say(f"  {count:<30}{used:12.1f}{each:12.1f}{answer['seconds']:12.1f}")


# -- requests ------------------------------------------------------------------------------------


def _stateless_call(port: int) -> str:
    headers = {
        "MCP-Protocol-Version": STATELESS_REVISION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": _CALL["name"],
    }
    return post(port, rpc_message("tools/call", {**_CALL, "_meta": STATELESS_META}), headers)


def _listen(port: int) -> str:
    headers = {"MCP-Protocol-Version": STATELESS_REVISION, "Mcp-Method": "subscriptions/listen"}
    params = {"notifications": {"toolsListChanged": True}, "_meta": STATELESS_META}
    return post(port, rpc_message("subscriptions/listen", params), headers)


def shake_hands(port: int) -> dict[str, str]:
    """Return the headers of a new session: the revision agreed on, and the id if there is one."""
    hello = {
        "protocolVersion": HANDSHAKE_REVISION,
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    }
    session_id, answer = exchange(port, rpc_message("initialize", hello), {})
    revision = message_of(answer)["result"]["protocolVersion"]
    headers = {"MCP-Protocol-Version": revision}
    if session_id:
        headers["Mcp-Session-Id"] = session_id
    exchange(port, b'{"jsonrpc":"2.0","method":"notifications/initialized"}', headers)
    return headers


def _call(port: int, session: dict[str, str]) -> str:
    """Return a call of the handshake mode, without a session where the server keeps none."""
    headers = {"MCP-Protocol-Version": HANDSHAKE_REVISION, **session}
    return post(port, rpc_message("tools/call", _CALL), headers)


def rpc_message(method: str, params: dict[str, Any]) -> bytes:
    """Return a request whose id the load replaces."""
    message = {"jsonrpc": "2.0", "id": int(FIRST_ID), "method": method, "params": params}
    return orjson.dumps(message)


_FIXED = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}


def exchange(port: int, body: bytes, headers: dict[str, str]) -> tuple[str, bytes]:
    """Send one request; return the session that the answer names, "" without one, and its body."""
    every = {**_FIXED, **headers}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/mcp", body, every, method="POST")
    with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
        return answer.headers["Mcp-Session-Id"] or "", answer.read()


def message_of(answer: bytes) -> dict[str, Any]:
    """Return the message in the body of an answer: JSON, or a stream of one event."""
    for line in answer.splitlines():
        if line.startswith(b"data:") and line[5:].strip():
            answer = line[5:]
    message: dict[str, Any] = orjson.loads(answer)
    return message


def post(port: int, body: bytes, headers: dict[str, str]) -> str:
    """Return a POST of a body as it goes over the wire."""
    lines = {"Host": f"127.0.0.1:{port}", **_FIXED, "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n{body.decode()}"
