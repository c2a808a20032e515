"""The processes of a soak: started with their log read, and looked at from outside (Linux)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from attrs import define, field, frozen

from bench.over_http import wait_until_listening
from tests.lab.servers.process import PATIENCE, environment

SETTINGS = {"resources.max_concurrent_executions": 256, "tools.cancel_grace_ms": 0}
_RECORD = b'"message":"tool call completed"'
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@frozen
class Reading:
    """What a process holds at one moment.

    Attributes:
        memory: resident, in bytes.
        threads: of the process.
        descriptors: open ones.
        children: processes that it has started and that are there, zombies too.
    """

    memory: int
    threads: int
    descriptors: int
    children: int

    @classmethod
    def of(cls, pid: int) -> Self:
        """Read it."""
        folder = Path(f"/proc/{pid}")
        tasks = list((folder / "task").iterdir())
        children = [each for task in tasks for each in (task / "children").read_text().split()]
        pages = int((folder / "statm").read_text().split()[1])
        descriptors = len(os.listdir(folder / "fd"))
        return cls(pages * _PAGE_BYTES, len(tasks), descriptors, len(children))


@define(eq=False)
class Watched:
    """A process whose standard error is read to its end.

    Attributes:
        name: in the report.
        process: itself.
        port: where it listens; 0 for one over stdio.
        records: how many calls of tools it has logged.
    """

    name: str
    process: subprocess.Popen[bytes]
    port: int
    records: int = field(default=0, init=False)
    _last: bytes = field(default=b"", init=False)
    _reader: threading.Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @classmethod
    def over_stdio(cls, name: str, *words: str) -> Self:
        """Start `foundation-rt` with these words, with pipes for its input and output."""
        return cls(name, _start(words, {}, stdin=subprocess.PIPE, stdout=subprocess.PIPE), 0)

    @classmethod
    def over_http(cls, name: str, *words: str, variables: Mapping[str, str] | None = None) -> Self:
        """Start `foundation-rt` with these words and a port, and wait until it listens."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        words = tuple(each.format(port=port) for each in words)
        process = _start(
            words, variables or {}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        watched = cls(name, process, port)
        if wait_until_listening(process, port):
            return watched
        watched.stop()
        raise RuntimeError(f"{name} does not listen: {watched._last!r}")

    @property
    def input(self) -> int:
        """The descriptor of its standard input."""
        assert self.process.stdin is not None
        return self.process.stdin.fileno()

    @property
    def output(self) -> int:
        """The descriptor of its standard output."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    @property
    def url(self) -> str:
        """Its endpoint for MCP."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def reading(self) -> Reading:
        """Look at it."""
        return Reading.of(self.process.pid)

    def stop(self) -> int:
        """End it as its client or its operator does; return its exit code."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        else:
            self.process.terminate()
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self._reader.join(PATIENCE)

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self._last = line
                self.records += _RECORD in line


def _start(
    words: tuple[str, ...], variables: Mapping[str, str], **pipes: Any
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "foundation_rt", *words],
        stderr=subprocess.PIPE,
        env={**environment(SETTINGS), **variables},
        **pipes,
    )
