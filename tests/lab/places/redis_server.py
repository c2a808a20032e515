"""A Redis server of a test's own, which the test may stop, kill and start again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import define, field

from .services import lacking

_PATIENCE_S = 60.0


@define(eq=False)
class RedisServer:
    """A process of `redis-server` that listens at a Unix socket and keeps nothing on disk.

    Args:
        folder: of the socket.
    """

    folder: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def path(self) -> str:
        return str(self.folder / "redis.sock")

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    def start(self) -> None:
        """Start the process, and wait until it accepts connections."""
        words = ["--port", "0", "--unixsocket", self.path, "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            ["redis-server", *words], cwd=self.folder, stdout=subprocess.DEVNULL
        )
        until = time.monotonic() + _PATIENCE_S
        with socket.socket(socket.AF_UNIX) as probe:
            while probe.connect_ex(self.path) != 0:
                assert time.monotonic() < until, "redis-server does not start"
                time.sleep(0.01)

    def freeze(self) -> None:
        """Let it accept connections, and answer none."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End the process, with all that it has."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def redis_server() -> Iterator[RedisServer]:
    """Yield a running server, or skip the test where there is no `redis-server`."""
    if shutil.which("redis-server") is None:
        lacking("redis-server is not installed")
    with TemporaryDirectory() as folder:
        server = RedisServer(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.kill()
