"""Servers that nobody here wrote, for our client: how each is started.

Every one is a command line that speaks stdio; `listening` starts one that speaks HTTP and is gone,
with its process, when the `with` block is left.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from tests.lab.programs import node
from tests.lab.servers.http_server import free_port
from tests.lab.servers.process import PATIENCE, Hanging, environment

HERE = Path(__file__).parent


def python() -> list[str]:
    """Return the server of `official_server.py`."""
    return [sys.executable, str(HERE / "official_server.py")]


def typescript() -> list[str]:
    """Return the server of `official_server.mjs`."""
    node.install(HERE)
    return [str(node.NODE), str(HERE / "official_server.mjs")]


def npm(name: str, *words: str) -> list[str]:
    """Return the command of npm's `@modelcontextprotocol/server-NAME`."""
    package = node.install(HERE) / "@modelcontextprotocol" / f"server-{name}"
    return [str(node.NODE), str(package / "dist" / "index.js"), *words]


@frozen(eq=False)
class Listening:
    """A server that listens.

    Attributes:
        url: its MCP endpoint.
        port: where it listens, for one that is to come after it.
    """

    url: str
    port: int
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait(PATIENCE)


@contextmanager
def listening(command: Sequence[str], port: int = 0, mode: str = "http") -> Iterator[Listening]:
    """Run an official server over HTTP, which prints its URL when it listens.

    Args:
        mode: `http`, or `plain`: without sessions and streams.
    """
    words = [*command, mode, str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment()) as process:
        try:
            url = _line_with(process, b"http://")
            yield Listening(url, int(url.rpartition(":")[2].partition("/")[0]), process)
        finally:
            process.kill()


@contextmanager
def everything_over(transport: str, path: str, port: int = 0) -> Iterator[Listening]:
    """Run npm's `server-everything` over HTTP (`streamableHttp`) or HTTP+SSE (`sse`).

    It takes its port from the environment and cannot be told to find one.
    """
    port = port or free_port()
    process = subprocess.Popen(
        npm("everything", transport),
        env={**environment(), "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            _line_with(process, f"port {port}".encode())
            yield Listening(f"http://127.0.0.1:{port}{path}", port, process)
        finally:
            process.kill()


def _line_with(process: subprocess.Popen[bytes], words: bytes) -> str:
    """Return the first line with these words that a server writes to its pipe."""
    pipe = process.stdout or process.stderr
    assert pipe is not None
    heard = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            *lines, _ = heard.split(b"\n")
            for line in lines:
                if words in line:
                    return line.decode().strip()
            if not selector.select(PATIENCE) or not (more := os.read(pipe.fileno(), 65_536)):
                raise Hanging(f"{process.args} did not start\n{heard.decode(errors='replace')}")
            heard += more
