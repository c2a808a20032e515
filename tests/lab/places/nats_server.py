"""A nats-server of a test's own, which can be killed and comes back, with or without its files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.lab.places.services import lacking
from tests.lab.servers.http_server import free_port


def need_nats_server() -> None:
    """Skip the test where there is no program nats-server."""
    if shutil.which("nats-server") is None:
        lacking("there is no program nats-server")


class NatsServer:
    """A server that listens on the same port in all its lives.

    Attributes:
        directory: where it stores its streams; a new life may have another one.
    """

    def __init__(self, directory: Path, *options: str) -> None:
        self._options = options
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self.directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin a life; return when it is ready."""
        command = ["nats-server", "-js", "-sd", str(self.directory), "-a", "127.0.0.1"]
        command += ["-p", str(self.port), *self._options]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert self._process.stderr is not None
        assert any(b"Server is ready" in line for line in self._process.stderr)

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()

    def stop(self) -> None:
        """Have it do nothing (SIGSTOP), until it is killed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)


@asynccontextmanager
async def own_nats_server(
    directory: Path, *options: str
) -> AsyncIterator[tuple[NatsServer, AsyncExitStack]]:
    """Yield a server, and a stack that ends before it."""
    server = NatsServer(directory, *options)
    server.start()
    try:
        async with AsyncExitStack() as stack:
            yield server, stack
    finally:
        server.kill()
