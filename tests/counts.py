"""Count the code, and the work of one call: `python -m tests.counts`.

A line of code is a line without blanks, comments and docstrings. The call is one of an inline tool
over stdio, in a process of its own: which modules it has loaded, how many frames lie between the
event loop and the handler, and how many Python functions are called before and after the handler.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.test_purity import entries, largest_circle, words_of_features_in_kernel

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "foundation_rt"
KERNEL = ("protocol", "kernel")
CEILINGS = {"package": (755, 94_400), "tests": (781, 136_100)}
"""Files and lines of code at most. A change that needs more raises them, and says what for."""

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
    lines = enumerate(source.splitlines(), 1)
    code = {number for number, line in lines if line.strip() and line.lstrip()[0] != "#"}
    documentation: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(ast.Constant(str())):
                documentation.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            case ast.Constant(str() | bytes()) | ast.JoinedStr():  # what looks blank is text there
                code.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
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


def totals() -> dict[str, tuple[int, int]]:
    """Return the files, and the lines of code, of the package and of the tests."""
    files = {"package": list(files_of([""])), "tests": sorted((ROOT / "tests").rglob("*.py"))}
    ours = {
        name: [each for each in paths if "node_modules" not in each.parts]
        for name, paths in files.items()
    }
    return {name: (len(paths), sum(map(lines_of_code, paths))) for name, paths in ours.items()}


def above(counted: dict[str, tuple[int, int]]) -> list[str]:
    """Return in words which totals are above their ceilings."""
    return [
        f"{name}: {count:,} {unit}, more than {ceiling:,}"
        for name, counts in counted.items()
        for count, ceiling, unit in zip(counts, CEILINGS[name], ("files", "lines"), strict=True)
        if count > ceiling
    ]


def report(counted: dict[str, tuple[int, int]]) -> str:
    """Return the counts beside the targets of the project."""
    seen = inline_call()
    before, after = calls_of(seen["events"])
    loaded = loaded_files(seen)
    rows = [
        ("", "files", "lines of code", "at most"),
        ("kernel", str(len([*files_of(KERNEL)])), f"{kernel_lines():,}", "5,620 lines"),
        (
            "loaded for one call over stdio",
            str(len(loaded)),
            f"{sum(map(lines_of_code, loaded)):,}",
            "9,000 lines",
        ),
    ]
    for name, (files, lines) in counted.items():
        most_files, most_lines = CEILINGS[name]
        rows.append((name, str(files), f"{lines:,}", f"{most_lines:,} lines, {most_files} files"))
    rows += [
        ("frames to an inline handler", "", str(frames_of(seen["stack"])), "9"),
        ("Python calls before it", "", str(before), "36"),
        ("Python calls after it", "", str(after), "40"),
        ("largest circle of files", "", str(largest_circle()), "8"),
        ("words of features in kernel", "", str(len(words_of_features_in_kernel())), "0"),
        ("entries of the package", "", str(len(entries())), "15"),
    ]
    return "\n".join(f"{a:32}{b:>8}{c:>16}   {d}" for a, b, c, d in rows)


def main() -> int:
    """Print the counts; return 1 where a total is above its ceiling."""
    counted = totals()
    print(report(counted))
    for each in (found := above(counted)):
        print(f"{each}: take out as much, or raise CEILINGS and say in the commit what needs it")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
