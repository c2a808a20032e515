"""`foundation-rt host` in a process of its own."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define

from tests.lab.host.server import Page, connected
from tests.lab.programs.program import home_at, output_file
from tests.lab.servers import fork_server
from tests.lab.servers.process import ServerProcess, command, environment
from tests.lab.waiting import block_until

_OTHERS = ("GEMINI_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "LLM_", "MCP_JSON_PATH", "PORT")


@define(eq=False)
class HostProcess:
    """A running host.

    Attributes:
        url: what it has printed: the page, with its token.
        process: the process, with its log.
    """

    url: str
    process: ServerProcess

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.url.split(":")[2].partition("/")[0])

    @property
    def token(self) -> str:
        """The token of its page."""
        return self.url.partition("token=")[2]

    @asynccontextmanager
    async def page(
        self, session: str | None = None, after: int | None = None
    ) -> AsyncIterator[Page]:
        """Connect as its page does."""
        async with connected(self.port, {"X-API-Key": self.token}, session, after) as page:
            yield page

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self.process.process.kill()
        self.process.wait()


@contextmanager
def host_process(
    folder: Path, *words: str, script: Any = None, env: Mapping[str, str] | None = None
) -> Iterator[HostProcess]:
    """Run `foundation-rt host` in a folder, on a free port, without any key of this machine.

    Args:
        folder: where it runs, and keeps what it has for its user.
        words: further arguments; a port among them is taken.
        script: what its model does; without one, the model is that of the arguments.
        env: added to the environment.
    """
    if script is not None:
        (folder / "script.json").write_text(json.dumps(script))
        words = (*words, "--model", f"script:{folder / 'script.json'}")
    port = () if "--port" in words else ("--port", "0")
    ours = environment({"logging.level": "debug"})
    variables = {
        **{key: each for key, each in ours.items() if not key.startswith(_OTHERS)},
        **home_at(folder),
        "XDG_DATA_HOME": str(folder / "data"),
        **(env or {}),
    }
    printed = folder / "stdout"
    printed.write_text("")
    with ServerProcess(
        command("host", *port, *words),
        variables,
        stdout=(output_file(printed), None),
        start=partial(fork_server.Popen, cwd=folder),
    ) as process:
        process.record(message="serving over HTTP")
        line = block_until(printed.read_text, "the URL is printed", lambda text: "\n" in text)
        found = re.search(r"http://\S+", line)
        assert found is not None, line
        yield HostProcess(found[0], process)
        if process.exit_code is None:
            process.terminate()


def serve_entry(app: Path, log: Path) -> dict[str, object]:
    """Return an entry of `mcp.json` for a server whose records go to a file."""
    words = " ".join(f"'{each}'" for each in command("serve", str(app)))
    # `make test JOBS=5` sets a variable whose value looks like the name of another one.
    env = {key: each for key, each in os.environ.items() if "${" not in each}
    return {"command": "sh", "args": ["-c", f"exec {words} 2>'{log}'"], "env": env}
