"""`make demo`: the messages between a client and a real server process, made readable.

It starts `foundation-rt serve` with the demo tools and small limits, and prints every line in both
directions, then the log of the server.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import IO, Any

import orjson
from attrs import define, field

from ..protocol.revisions import NEWEST_HANDSHAKE_REVISION

_LIMITS = {
    "FOUNDATION_RT_TOOLS__DEFAULT_TIMEOUT_MS": "300",
    "FOUNDATION_RT_TOOLS__MAX_PAYLOAD_BYTES": "1024",
}
_WIDTH = 700


@define(eq=False, repr=False)
class DemoClient:
    """Sends line-delimited JSON-RPC to a process, and prints both directions."""

    process: subprocess.Popen[bytes]
    _last_id: int = field(default=0, init=False)

    def chapter(self, title: str) -> None:
        """Print the heading of the next messages."""
        _say(f"\n# {title}")

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request, wait for its response, print both."""
        self._last_id += 1
        self._send(
            {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params or {}}
        )
        return self._receive()

    def notify(self, method: str) -> None:
        """Send a notification."""
        self._send({"jsonrpc": "2.0", "method": method})

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool."""
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def _send(self, message: dict[str, Any]) -> None:
        line = orjson.dumps(message)
        _say(f"  --> {_shorten(line)}")
        stdin = _pipe(self.process.stdin)
        stdin.write(line + b"\n")
        stdin.flush()

    def _receive(self) -> dict[str, Any]:
        line = _pipe(self.process.stdout).readline()
        if not line:
            raise SystemExit("the server ended before it answered")
        _say(f"  <-- {_shorten(line.strip())}")
        message: dict[str, Any] = orjson.loads(line)
        return message


def main() -> None:
    """Run the demo; exit with 1 if the server's exit code is not 0."""
    command = [sys.executable, "-m", "foundation_rt", "serve"]
    _say(f"$ {' '.join(f'{key}={value}' for key, value in _LIMITS.items())} foundation-rt serve")
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | _LIMITS,
        )
        _run_demo(DemoClient(process))
        _pipe(process.stdin).close()
        exit_code = process.wait()
        _say(f"\n# End of file: the server answers open requests and exits with {exit_code}")
        log.seek(0)
        _say("\n# It has logged one record for each call on stderr, without arguments and results")
        for line in log:
            _say(f"  {_shorten(line.strip())}")
    if exit_code:
        raise SystemExit(1)


def _run_demo(client: DemoClient) -> None:
    client.chapter("Handshake")
    info = {"name": "demo", "version": "1"}
    params = {
        "protocolVersion": NEWEST_HANDSHAKE_REVISION,
        "capabilities": {},
        "clientInfo": info,
    }
    client.request("initialize", params)
    client.notify("notifications/initialized")
    client.chapter("The list of tools")
    client.request("tools/list")
    client.chapter("A call that works")
    client.call("echo", message="hello")
    client.chapter("A call that fails validation: a number is no string")
    client.call("echo", message=5)
    client.chapter("A call that times out: its deadline is 300 ms")
    client.call("sleep", ms=60_000)
    client.chapter("A call over the payload limit of 1,024 bytes")
    client.call("echo", message="x" * 2000)
    client.chapter("Health")
    client.call("health")


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _shorten(line: bytes) -> str:
    text = line.decode()
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}... ({len(text)} characters)"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
