"""Servers of a test's own, Redis and NATS: it may freeze and kill them, and start them again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import define, field

from tests.lab.places.services import lacking
from tests.lab.servers.http_server import free_port


@define(eq=False)
class ServiceProcess:
    """A server that listens at the same address in all its lives.

    Args:
        url: its address.
        command: what to run.
        ready: what it writes when it accepts connections.
    """

    url: str
    _command: list[str]
    _ready: bytes
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        """Begin a life; return when it accepts connections."""
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self._process.stdout is not None
        assert any(self._ready in line for line in self._process.stdout)

    def freeze(self) -> None:
        """Let it accept connections, and answer none; return when it has stopped."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End its life, unless it has ended."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@contextmanager
def redis_server() -> Iterator[ServiceProcess]:
    """Yield a `redis-server` at a Unix socket that keeps nothing on disk, or skip the test."""
    with TemporaryDirectory() as folder:
        words = ["--port", "0", "--save", "", "--appendonly", "no", "--dir", folder]
        words += ["--unixsocket", f"{folder}/redis.sock"]
        with _running(
            f"unix://{folder}/redis.sock", "redis-server", words, b"eady to accept connections"
        ) as server:
            yield server


@contextmanager
def nats_server(folder: Path, *options: str) -> Iterator[ServiceProcess]:
    """Yield a `nats-server` with its streams in `folder`, or skip the test."""
    port = free_port()
    words = ["-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", str(port), *options]
    with _running(f"nats://127.0.0.1:{port}", "nats-server", words, b"Server is ready") as server:
        yield server


@contextmanager
def _running(url: str, name: str, words: list[str], ready: bytes) -> Iterator[ServiceProcess]:
    if shutil.which(name) is None:
        lacking(f"there is no program {name}")
    server = ServiceProcess(url, [name, *words], ready)
    try:
        server.start()
        yield server
    finally:
        server.kill()
