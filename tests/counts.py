"""Count the code, and the work of one call: `python -m tests.counts`.

A line of code is a line without blanks, comments and docstrings. The call is one of an inline tool
over stdio, in a process of its own: which modules it has loaded, how many frames lie between the
event loop and the handler, and how many Python functions are called before and after the handler.
"""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.test_purity import entries, largest_circle, words_of_features_in_kernel

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "foundation_rt"
KERNEL = ("protocol", "kernel")
INVISIBLE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}

PROBE = """
import sys
from foundation_rt import Server

server = Server("counts", version="1")
events, stacks, loaded = [], [], []

def note(frame, event, argument):
    if event in ("call", "return"):
        caller = frame.f_back.f_code.co_filename if frame.f_back else ""
        events.append((event, frame.f_code.co_filename, frame.f_code.co_name, caller))

@server.tool(inline=True)
def probe(number: int) -> dict:
    frame, stack = sys._getframe(), []
    while frame is not None:
        stack.append((frame.f_code.co_filename, frame.f_code.co_name))
        frame = frame.f_back
    stacks.append(stack)
    if number == 1:
        loaded.extend(m.__file__ for n, m in sys.modules.items() if n.startswith("foundation_rt"))
        sys.setprofile(note)
    if number < 5:
        return {}
    sys.setprofile(None)
    return {"events": events, "stack": stacks[2], "loaded": loaded}

server.run()
"""


def lines_of_code(path: Path) -> int:
    """Return how many lines of a file hold code."""
    source = path.read_text("utf-8")
    documentation: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            documentation.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in INVISIBLE:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - documentation)


def files_of(parts: Iterable[str]) -> Iterator[Path]:
    """Yield the Python files of folders and files of the package."""
    for part in parts:
        path = PACKAGE / part
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def inline_call() -> dict[str, Any]:
    """Make calls of a server in a process, and return what its tool saw of one."""
    client = {"name": "counts", "version": "1"}
    first = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    with subprocess.Popen(
        [sys.executable, "-c", PROBE],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def send(*messages: dict[str, Any]) -> list[Any]:
            for message in messages:
                process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            process.stdin.flush()
            return [json.loads(process.stdout.readline()) for each in messages if "id" in each]

        calls = [
            {
                "id": number,
                "method": "tools/call",
                "params": {"name": "probe", "arguments": {"number": number}},
            }
            for number in range(6)
        ]
        # At once: while requests wait the server does nothing else, as generating checks (REG-18).
        send(
            {"id": "i", "method": "initialize", "params": first},
            {"method": "notifications/initialized"},
            *calls[:2],
        )
        for call in calls[2:]:
            [reply] = send(call)
        process.stdin.close()
    return json.loads(reply["result"]["content"][0]["text"])


def frames_of(stack: list[list[str]]) -> int:
    """Return how many frames lie between the event loop and the handler, which is one of them."""
    return next(at for at, (file, _) in enumerate(stack) if file.endswith("reactor.py"))


def calls_of(events: list[list[str]]) -> tuple[int, int]:
    """Return how many Python functions are called before the handler, and how many after it.

    Of several calls the least: one may wake the thread that writes the log, which takes two more.
    """
    *handlers, _ = (
        at for at, each in enumerate(events) if each[:1] + each[2:3] == ["call", "probe"]
    )
    by_the_loop = [at for at, each in enumerate(events) if each[3].endswith("reactor.py")]
    counted = []
    for handler in handlers:
        begin = max(at for at in by_the_loop if at < handler and events[at][0] == "call")
        name = events[begin][2]
        end = min(at for at in by_the_loop if at > handler and events[at][::2] == ["return", name])
        parts = events[begin:handler], events[handler + 1 : end]
        counted.append([sum(each[0] == "call" for each in part) for part in parts])
    before, after = map(min, zip(*counted, strict=True))
    return before, after


def kernel_lines() -> int:
    """Return how many lines of code a newcomer reads."""
    return sum(map(lines_of_code, files_of(KERNEL)))


def loaded_files(seen: dict[str, Any]) -> list[Path]:
    """Return the files of this package that a process had loaded at its first call."""
    return [Path(each) for each in seen["loaded"] if each]


def report() -> str:
    """Return the counts beside the targets of the project."""
    seen = inline_call()
    before, after = calls_of(seen["events"])
    rows = [("", "files", "lines of code", "target")]
    for name, files, target in (
        ("kernel", list(files_of(KERNEL)), "5,620 lines"),
        (
            "loaded for one call over stdio",
            loaded_files(seen),
            "9,000 lines",
        ),
        ("package", list(files_of([""])), "69,000 lines, 430 files"),
        ("tests", sorted((ROOT / "tests").rglob("*.py")), "86,000 lines"),
    ):
        ours = [each for each in files if "node_modules" not in each.parts]
        rows.append((name, str(len(ours)), f"{sum(map(lines_of_code, ours)):,}", target))
    rows += [
        ("frames to an inline handler", "", str(frames_of(seen["stack"])), "9"),
        ("Python calls before it", "", str(before), "36"),
        ("Python calls after it", "", str(after), "40"),
        ("largest circle of files", "", str(largest_circle()), "8"),
        ("words of features in kernel", "", str(len(words_of_features_in_kernel())), "0"),
        ("entries of the package", "", str(len(entries())), "15"),
    ]
    return "\n".join(f"{a:32}{b:>8}{c:>16}   {d}" for a, b, c, d in rows)


if __name__ == "__main__":
    print(report())
