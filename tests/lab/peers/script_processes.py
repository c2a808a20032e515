"""Processes of servers that misbehave, with their scripts, logs and leftovers; and their clients.

    with MisbehavingHarness({"initialize": [["kill"]]}, {}) as harness:
        connect(harness.command, cwd=ROOT) ...
        assert len(harness.messages("initialize")) == 2

At the end of the `with` block every process that a server has started must be gone. A process that
no signal reaches (`grandchild elsewhere`) is killed there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from foundation_rt.client import CallResult, Client, StdioServer, connect
from foundation_rt.client.options import ClientOptions
from foundation_rt.files import replacing
from tests.lab.peers.script import Act, ScriptRecord
from tests.lab.peers.script_memory import ONCE, MemoryHarness
from tests.lab.peers.script_stdio import KILL
from tests.lab.programs.processes import has_ended, started
from tests.lab.servers import fork_server

ROOT = Path(__file__).parents[3]
HANDSHAKE = "2025-11-25"

PATIENCE = 60.0
"""Seconds within which a killed process must have ended."""

Acts = dict[str, list[Act]]

SOON = 0.3
"""Seconds that a call is given which is never answered."""

ANSWER: Act = ["answer"]

DEATHS: dict[str, list[Act]] = {
    "exits": [["exit", 3]],
    "is killed": [["kill"]],
    "exits within its answer": [["part", 0.5], ["exit", 1]],
    "exits with much to say": [["stderr", 300_000], ["exit", 1]],
    "closes its output": [["close", "stdout"]],
    "closes its output and ignores all": [["stubborn"], ["close", "stdout"], ["deaf"]],
    "leaves a process that holds its pipes": [["grandchild"], ["kill"]],
    "leaves one in another session": [["grandchild", "elsewhere"], ["exit", 0]],
}
"""What a server over stdio may end in; the client knows at once."""


class MisbehavingHarness(ScriptRecord):
    """A script in a file, and the log of the servers that run it.

    Args:
        starts: for each start of the server, its acts by point; further starts use the last.
        revision: the protocol revision of the server.
    """

    def __init__(self, *starts: Acts, revision: str = HANDSHAKE) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="misbehaving-")
        self._script = Path(self._directory.name, "script.json")
        self._log = Path(self._directory.name, "log.jsonl")
        self._log.touch()
        self.revision = revision
        self.play(*starts)

    def __enter__(self) -> MisbehavingHarness:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        left = self.left()
        for each in filter(is_alive, self.processes()):
            os.kill(each["pid"], KILL)
        self._directory.cleanup()
        if kind is None:
            assert left == []

    def play(self, *starts: Acts) -> None:
        """Replace the script."""
        with replacing(self._script) as file:
            file.write(json.dumps({"revision": self.revision, "starts": starts}).encode())

    def forget(self) -> None:
        """Empty the log."""
        os.truncate(self._log, 0)

    @property
    def arguments(self) -> tuple[str, str]:
        """The arguments of a server: the paths of script and log."""
        return str(self._script), str(self._log)

    @property
    def command(self) -> list[str]:
        """The command of the server over stdio; it must run in `ROOT`."""
        return [sys.executable, "-m", "tests.lab.peers.script_stdio", *self.arguments]

    def events(self, event: str) -> list[dict[str, Any]]:
        lines = map(json.loads, self._log.read_text().splitlines())
        return [each for each in lines if each["event"] == event]

    def processes(self) -> list[dict[str, Any]]:
        """Return all processes that were started: `pid`, `started`, and `where` of a grandchild."""
        return self.events("start") + self.events("grandchild")

    def left(self) -> list[dict[str, Any]]:
        """Return the processes that have not ended, after up to `PATIENCE` seconds for each."""
        ours = [each for each in self.processes() if each.get("where") != "elsewhere"]
        return [each for each in ours if is_alive(each) and not has_ended(each["pid"], PATIENCE)]


def is_alive(process: dict[str, Any]) -> bool:
    """Return whether a process of the log still runs, or is a zombie child of this process."""
    return started(process["pid"]) == process["started"]


class MisbehavingHttpHarness(MisbehavingHarness):
    """A harness for a server over HTTP, which the test starts and kills.

    Attributes:
        url: the endpoint of the server, from the first start on.
    """

    def __init__(self, *starts: Acts, revision: str = HANDSHAKE) -> None:
        super().__init__(*starts, revision=revision)
        self._port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/mcp"

    def __enter__(self) -> MisbehavingHttpHarness:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        super().__exit__(kind, error, traceback)

    def start(self) -> None:
        """Start the server, on the same port each time."""
        command = [sys.executable, "-m", "tests.lab.peers.script_http", *self.arguments]
        self._process = fork_server.Popen(
            [*command, str(self._port)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        with self._process.stdout as output:
            self._port = int(output.readline())

    def stop(self) -> None:
        """Kill the server, unless it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@asynccontextmanager
async def client_of(
    harness: MemoryHarness | MisbehavingHarness, *, introduced: bool = True, **options: Any
) -> AsyncIterator[Client]:
    """Yield a client of a server that misbehaves.

    Args:
        introduced: whether both have introduced themselves before, so that all the time of a call
            is for the server.
    """
    async with _connect(harness, options) as client:
        if introduced:
            await client.initialize()
        yield client


def _connect(harness: MemoryHarness | MisbehavingHarness, options: dict[str, Any]) -> Client:
    if isinstance(harness, MemoryHarness):
        return Client(harness.make_transport, ClientOptions(**options))
    if isinstance(harness, MisbehavingHttpHarness):
        return connect(harness.url, **{"retries": ONCE, **options})
    command = harness.command
    server = StdioServer(command[0], command[1:], cwd=ROOT, shutdown_grace=0.2)
    return connect(server, **options)


async def call(
    client: Client, nonce: str, acts: list[Act] | None = None, **more: Any
) -> CallResult:
    """Make a call, and check that it is answered with its own nonce."""
    arguments = {"nonce": nonce} if acts is None else {"nonce": nonce, "acts": acts}
    result = await client.call("play", arguments, **more)
    assert (result.structured, result.text) == ({"nonce": nonce}, nonce)
    return result
