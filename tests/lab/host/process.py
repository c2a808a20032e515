"""`foundation-rt host` in a process of its own, and a proxy before it whose cable can be pulled."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import define, field

from tests.lab.programs.program import end, home_at, output_file
from tests.lab.servers import fork_server
from tests.lab.servers.process import PATIENCE, command, environment

_OTHERS = ("GEMINI_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "LLM_", "MCP_JSON_PATH", "PORT")


@define(eq=False)
class HostProcess:
    """A running host.

    Attributes:
        url: what it has printed: the page, with its token.
    """

    url: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.url.split(":")[2].partition("/")[0])

    def at_port(self, port: int) -> str:
        """Return the address of the page at another port, such as that of a proxy."""
        return self.url.replace(f":{self.port}/", f":{port}/")

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self.process.kill()
        self.process.wait(PATIENCE)


@contextmanager
def host_process(
    folder: Path, *words: str, variables: Mapping[str, str] | None = None
) -> Iterator[HostProcess]:
    """Run `foundation-rt host` in a folder, on a free port, without any key of this machine."""
    variables = variables or {}
    own = {key: each for key, each in environment().items() if not key.startswith(_OTHERS)}
    # What it keeps for its user stays in the folder too.
    env = {**own, **home_at(folder), **variables}
    port = () if "--port" in words else ("--port", "0")
    log = folder / "host.log"
    with open(output_file(log), "wb") as stderr:
        process = fork_server.Popen(
            command("host", *port, *words),
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        yield HostProcess(_printed_url(process, log), process, log)
        if process.poll() is None:
            end(process, PATIENCE)
    finally:
        process.kill()
        process.wait(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()


def _printed_url(process: subprocess.Popen[str], log: Path) -> str:
    assert process.stdout is not None
    # Readline waits for it: one that prints nothing is killed.
    late = threading.Timer(PATIENCE, process.kill)
    late.start()
    line = process.stdout.readline()
    late.cancel()
    found = re.search(r"http://\S+", line)
    assert found is not None, line + log.read_text()
    return found[0]


@define(eq=False)
class Cable:
    """A proxy before a port, which can be cut and mended.

    Attributes:
        port: where it listens.
        cuts: after so many more bytes to the client all connections are cut; the first is next.
        cut_count: how often that has happened.
    """

    target: int
    port: int = 0
    cuts: list[int] = field(factory=list)
    cut_count: int = 0
    _is_cut: bool = False
    _open: set[socket.socket] = field(factory=set)
    _lock: threading.Lock = field(factory=threading.Lock)

    def cut(self) -> None:
        """Cut all connections, and let none through until `mend`."""
        self._is_cut = True
        self._close_all()

    def mend(self) -> None:
        """Let connections through."""
        self._is_cut = False

    def _close_all(self) -> None:
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if self._is_cut:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            for one, other in ((client, server), (server, client)):
                copying = (one, other, one is server)
                threading.Thread(target=self._copy, args=copying, daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, is_counted: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if is_counted:
                    data = self._before_cut(data)
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()

    def _before_cut(self, data: bytes) -> bytes:
        if not self.cuts:
            return data
        if len(data) < self.cuts[0]:
            self.cuts[0] -= len(data)
            return data
        rest = self.cuts.pop(0)
        self.cut_count += 1
        threading.Thread(target=self._close_all, daemon=True).start()
        return data[:rest]


@contextmanager
def cable(port: int) -> Iterator[Cable]:
    """Put a proxy before a port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = Cable(port, listener.getsockname()[1])
        thread = threading.Thread(target=running._accept, args=(listener,), daemon=True)
        thread.start()
        yield running
        listener.shutdown(socket.SHUT_RDWR)
    running.cut()
    thread.join(PATIENCE)


def serve_entry(app: Path, log: Path) -> dict[str, object]:
    """Return an entry of `mcp.json` for a server whose records go to a file."""
    words = " ".join(f"'{each}'" for each in command("serve", str(app)))
    return {"command": "sh", "args": ["-c", f"exec {words} 2>'{log}'"], "env": dict(os.environ)}
