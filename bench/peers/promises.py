"""Look whether four libraries of Python keep what the README says of them: a table, in Markdown.

    python -m bench.peers.promises [--here]

Each library is installed into an environment of its own first; with `--here` nothing is installed,
and what this environment has is looked at. Every server has the same two tools, and its client is
a pipe.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from bench.peers.contestants import RUNTIME, Contestant
from bench.peers.environments import Environment, NotInstalledError, installed, present
from bench.report import say

LIBRARIES = tuple(
    Contestant(name, "promises.py", (name,)) for name in (RUNTIME, "fastmcp", "mcp", "anodize-mcp")
)
_CLIENT = {"name": "promises", "version": "1"}
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": _CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
_BLOCKED_S, _PATIENCE_S = 4, 40.0


class Pipe:
    """A server over stdio, and its client's ends of the pipes."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def send(self, method: str, params: dict[str, Any], request_id: int | None = None) -> None:
        """Send a request, or without an id a notification."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if request_id is not None:
            message["id"] = request_id
        assert self.process.stdin is not None
        self.process.stdin.write(orjson.dumps(message) + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request: an error, or a result."""
        self.send(method, params, 1)
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            message: dict[str, Any] = orjson.loads(line)
            if message.get("id") == 1 and "method" not in message:
                return message
        raise RuntimeError(f"the server ended with exit code {self.process.wait()}")

    def close(self) -> None:
        """Close both ends, as the system does when the host is killed."""
        for end in (self.process.stdin, self.process.stdout):
            assert end is not None
            end.close()

    def call(self, **arguments: object) -> bool:
        """Return whether a call of `block` succeeds."""
        answer = self.ask("tools/call", {"name": "block", "arguments": arguments})
        return "result" in answer and not answer["result"].get("isError")


@contextmanager
def _served(command: Sequence[str], revision: str | None = "2025-06-18") -> Iterator[Pipe]:
    pipe = Pipe(command)
    try:
        if revision is not None:
            params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": _CLIENT}
            pipe.ask("initialize", params)
            pipe.send("notifications/initialized", {})
        yield pipe
    finally:
        pipe.process.kill()
        pipe.process.wait()
        pipe.close()


# -- what is looked at: each returns what a cell says


def _text_for_an_integer(command: Sequence[str]) -> str:
    with _served(command) as pipe:
        return "taken as 0" if pipe.call(seconds="0") else "refused"


def _false_for_an_integer(command: Sequence[str]) -> str:
    with _served(command) as pipe:
        return "taken as 0" if pipe.call(seconds=False) else "refused"


def _argument_that_is_not_there(command: Sequence[str]) -> str:
    with _served(command) as pipe:
        return "ignored" if pipe.call(seconds=0, minutes=1) else "refused"


def _deadline_of_a_tool_that_blocks(command: Sequence[str]) -> str:
    with _served(command) as pipe:
        start = time.monotonic()
        if pipe.call(seconds=_BLOCKED_S):
            return "no deadline"
        return f"answered after {time.monotonic() - start:.1f} s"


def _end_with_the_host(command: Sequence[str]) -> str:
    """Close both pipes during a call of 20 s."""
    with tempfile.TemporaryDirectory() as folder, _served(command) as pipe:
        begun = Path(folder) / "begun"
        call = {"name": "work", "arguments": {"begun": str(begun)}}
        pipe.send("tools/call", call, 2)
        until = time.monotonic() + _PATIENCE_S
        while not begun.exists() and time.monotonic() < until:
            time.sleep(0.01)
        start = time.monotonic()
        pipe.close()
        pipe.process.wait(_PATIENCE_S)
        return f"ended after {time.monotonic() - start:.1f} s"


def _stateless_request(command: Sequence[str]) -> str:
    with _served(command, revision=None) as pipe:
        answer = pipe.ask("tools/list", {"_meta": _META})
        return (
            "spoken" if answer.get("result", {}).get("resultType") == "complete" else "not spoken"
        )


PROMISES: dict[str, Callable[[Sequence[str]], str]] = {
    '`"0"` for an integer': _text_for_an_integer,
    "`false` for an integer": _false_for_an_integer,
    "an argument that is not there": _argument_that_is_not_there,
    f"deadline of 1 s, `def` that blocks {_BLOCKED_S} s": _deadline_of_a_tool_that_blocks,
    "host killed during a call of 20 s": _end_with_the_host,
    "revision 2026-07-28": _stateless_request,
}


def table(find: Callable[[Contestant], Environment]) -> str:
    """Return a column for each library that can be had, a row for each promise."""
    columns: dict[str, list[str]] = {}
    for library in LIBRARIES:
        try:
            environment = find(library)
        except NotInstalledError as error:
            say(f"  {library.name} is missing: {error}")
            continue
        command = [*environment.command, library.name]
        title = f"`{library.name}` {environment.version}"
        columns[title] = [look(command) for look in PROMISES.values()]
    rows = zip(PROMISES, *columns.values(), strict=True)
    lines = [("", *columns), ("---",) * (1 + len(columns)), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    say(table(present if "--here" in sys.argv[1:] else installed))
