"""`foundation-rt host` in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import define

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


def serve_entry(app: Path, log: Path) -> dict[str, object]:
    """Return an entry of `mcp.json` for a server whose records go to a file."""
    words = " ".join(f"'{each}'" for each in command("serve", str(app)))
    return {"command": "sh", "args": ["-c", f"exec {words} 2>'{log}'"], "env": dict(os.environ)}
