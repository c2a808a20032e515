"""Instructions of a call and of a start, as callgrind counts them: alike to 1 % on a busy machine.

`python -m bench.instructions TOOLS IN_FLIGHT CALLS` is the program that is counted. Callgrind
writes a file of its counts whenever `getpriority` is called, which nothing else does: so the work
between two marks has a count of its own.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.floor import make_straight_line
from bench.report import note, say
from bench.sizes import Sizes
from foundation_rt import Server, ToolDefinition

_ROOT = Path(__file__).resolve().parent.parent
FEW_TOOLS = 10
_WARM_UP = 50
_COUNTED = 200
_HANDSHAKE = (
    b'{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25"}}\n'
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)
_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
CASES = ("floor", "inline", "async", "tools", "in_flight", "after")
"""What the program counts, in its order."""


def call_instructions(tools: int, in_flight: int, calls: int) -> dict[str, float] | None:
    """Return the instructions of one call in process, by case; None without valgrind.

    Args:
        tools: how many the server of the case `tools` has; the others have ten.
        in_flight: how many calls wait while one of the case `in_flight` is made.
        calls: how many were made on the connection before the case `after`.
    """
    words = [*("-m", "bench.instructions"), *map(str, (tools, in_flight, calls))]
    counts = _count(words, "", "--dump-before=getpriority")
    if counts is None:
        return None
    between = counts[1::2][: len(CASES)]
    return dict(zip(CASES, (each / _COUNTED for each in between), strict=True))


def start_instructions(app: str) -> float | None:
    """Return the instructions of a server over stdio that answers one call; None without valgrind.

    Args:
        app: the file in this folder that it serves.
    """
    line = _line(1, "inline_noop", b"{}")
    path = str(_ROOT / "bench" / app)
    counts = _count(["-m", "foundation_rt", "serve", path], (_HANDSHAKE + line).decode())
    return None if counts is None else counts[0]


def report(sizes: Sizes) -> None:
    """Print the table, or what is missing for it."""
    tools, in_flight, calls = sizes.flat_instructions
    title = "instructions"
    found = call_instructions(tools, in_flight, calls)
    if found is None:
        say("\ninstructions: install valgrind, which counts them")
        return
    names = {
        "floor": "floor: straight line",
        "inline": "inline",
        "async": "async def that never waits",
        "tools": f"inline, {tools:,} tools",
        "in_flight": f"inline, {in_flight:,} in flight",
        "after": f"inline, after {calls:,} calls",
    }
    say(f"\n{'instructions, a call in process':32}{'thousands':>12}{'ratio':>12}{'to inline':>12}")
    for case, count in found.items():
        ratio = f"{count / found['floor']:.2f}" if case != "floor" else ""
        flat = f"{count / found['inline']:.3f}" if case in ("tools", "in_flight", "after") else ""
        say(f"  {names[case]:30}{count / 1000:12.1f}{ratio:>12}{flat:>12}")
        note(title, names[case], count / 1000)
    say(f"\n{'instructions, start to end':32}{'millions':>12}")
    for name, app in (("inline, no coroutines", "inline_app.py"), ("inline", "app.py")):
        count = start_instructions(app) or 0.0
        say(f"  {name:30}{count / 1e6:12.1f}")
        note(title, f"start, {name}", count / 1e6)


def _count(words: list[str], given: str, *options: str) -> list[int] | None:
    """Run Python below callgrind; return the counts of its files, in their order."""
    if shutil.which("valgrind") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "counts")
        # Alike in every run: no hashes by chance, and bytecode is there.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        subprocess.run(
            [
                *("valgrind", "--tool=callgrind", f"--callgrind-out-file={file}", *options),
                *(sys.executable, *words),
            ],
            input=given,
            text=True,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=_ROOT,
            env={**environment, "PYTHONHASHSEED": "0"},
        )
        dumps = sorted(Path(folder).glob("counts.*"), key=lambda each: int(each.suffix[1:]))
        texts = [each.read_text() for each in (*dumps, file)]
    return [int(re.findall(r"^totals: (\d+)", each, re.MULTILINE)[-1]) for each in texts]


# -- what is counted -----------------------------------------------------------------------------


def _line(number: int, tool: str, arguments: bytes) -> bytes:
    return (
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","arguments":%s}}\n'
        % (number, tool.encode(), arguments)
    )


def make_server(tools: int, in_flight: int = 0) -> Server:
    """Return a server with tools that do nothing, inline and `async def`, and one that waits.

    Args:
        tools: how many do nothing in place.
        in_flight: how many calls of `wait` there may be.
    """
    server = Server("bench", version="1")
    server.override("resources", max_concurrent_executions=in_flight + 10)
    for number in range(tools):
        definition = ToolDefinition(f"tool_{number}", "Does nothing.", _SCHEMA)
        server.register(definition, lambda arguments, context: None, inline=True)

    async def at_once(arguments: object, context: object) -> None:
        pass

    async def wait(arguments: object, context: object) -> None:
        await asyncio.Event().wait()

    server.register(ToolDefinition("at_once", "Does nothing.", _SCHEMA), at_once)
    server.register(ToolDefinition("wait", "Waits.", _SCHEMA), wait, timeout_ms=2**31 - 1)
    return server


class _Caller:
    """Feeds calls to a connection of a server, and checks that each is answered."""

    def __init__(self, server: Server) -> None:
        self.answers: list[bytes] = []
        self._connection = server.connect(self.answers.append)
        self._connection.feed(_HANDSHAKE)
        self._number = 0

    def call(self, tool: str) -> None:
        self._number += 1
        self._connection.feed(_line(self._number, tool, b'{"a":%d}' % self._number))

    def calls(self, tool: str, count: int) -> None:
        """Make calls that end at once."""
        self.answers.clear()
        for _ in range(count):
            self.call(tool)
        if len(self.answers) != count or b'"isError":false' not in self.answers[-1]:
            raise RuntimeError(f"{len(self.answers)} answers: {self.answers[-1:]}")


def _mark() -> None:
    os.getpriority(os.PRIO_PROCESS, 0)


def _between_marks(calls: Callable[[int], object]) -> None:
    calls(_WARM_UP)
    _mark()
    calls(_COUNTED)
    _mark()


async def _main(tools: int, in_flight: int, calls: int) -> None:
    gc.disable()
    straight_line = make_straight_line()

    def floor(count: int) -> None:
        for number in range(count):
            straight_line(_line(number, "noop", b"{}"))

    _between_marks(floor)
    few = _Caller(make_server(FEW_TOOLS))
    _between_marks(lambda count: few.calls("tool_5", count))
    _between_marks(lambda count: few.calls("at_once", count))
    many = _Caller(make_server(tools))
    _between_marks(lambda count: many.calls("tool_5", count))
    busy = _Caller(make_server(FEW_TOOLS, in_flight))
    for _ in range(in_flight):
        busy.call("wait")
    await asyncio.sleep(0)
    _between_marks(lambda count: busy.calls("tool_5", count))
    few.calls("tool_5", calls)
    _between_marks(lambda count: few.calls("tool_5", count))
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_main(*map(int, sys.argv[1:])))
