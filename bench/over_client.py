"""This client beside a bare floor and the official client: calls to the same server, and imports.

Each client is in a process of its own (`client_load`) and is measured in turn with the others,
round by round. The server is the runtime with a tool that returns at once, in yet another process.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from bench.client_load import CLIENTS
from bench.over_http import Load, Server
from bench.report import head, note, percentiles, row, say
from bench.sizes import Sizes

_ROOT = Path(__file__).resolve().parent.parent
APP = ["-m", "foundation_rt", "serve", str(_ROOT / "bench" / "inline_app.py")]
_NAMES = {"floor": "floor", "official": "official client", "ours": "this client"}
_FLOORS = {"stdio": "floor: bare protocol", "http": "floor: bare httpx2"}
_IMPORTS = {
    "the interpreter": "pass",
    "asyncio": "import asyncio",
    "foundation_rt.client": "import foundation_rt.client",
    "and its connect": "from foundation_rt.client import connect",
    "official client": "from mcp.client import Client",
}

Rounds = dict[str, list[dict[str, Any]]]
"""What `client_load` answered in each round, by client."""


def report(sizes: Sizes) -> None:
    """Measure and print."""
    for mode in sizes.modes:
        _report_calls("stdio", mode, " ".join([sys.executable, *APP]), sizes)
    server = Server.spawn("runtime", [*APP, "--no-auth", "--http"], "127.0.0.1:{}")
    try:
        for mode in sizes.modes:
            _report_calls("http", mode, f"http://127.0.0.1:{server.port}/mcp", sizes)
    finally:
        server.stop()
    _report_imports(sizes.starts)


def compare(
    transport: str, mode: str, where: str, in_flight: Sequence[int], rounds: int, seconds: float
) -> Mapping[int, Rounds]:
    """Let every client call the server at `where`; what came of it, by calls in flight."""
    found: dict[int, Rounds] = {number: {name: [] for name in CLIENTS} for number in in_flight}
    loads: dict[str, Load] = {}
    try:
        for name in CLIENTS:
            loads[name] = Load.spawn("bench.client_load", name, transport, mode, where)
        for number, _ in product(in_flight, range(rounds)):
            for name, load in loads.items():
                found[number][name].append(load.do(in_flight=number, seconds=seconds))
    finally:
        for load in loads.values():
            load.stop()
    return found


def _report_calls(transport: str, mode: str, where: str, sizes: Sizes) -> None:
    found = compare(transport, mode, where, sizes.in_flight, *sizes.client)
    for number, rounds in found.items():
        title = f"{transport}, {mode}, {number} in flight"
        say(
            f"\n{title:32}{'calls/s':>9}{'p50 us':>9}"
            f"{'p95 us':>9}{'p99 us':>9}{'CPU us':>9}{'p50':>8}{'calls/s':>10}"
        )
        for name, each in rounds.items():
            shown = _FLOORS[transport] if name == "floor" else _NAMES[name]
            note(title, shown, _say_row(shown, each, rounds))


def _say_row(name: str, each: list[dict[str, Any]], rounds: Rounds) -> float:
    """Return a client's row: its p50 beside the floor's, its rate beside the official client's."""
    cuts = percentiles([seconds for one in each for seconds in one["took"]])
    rate, cpu = (median(one[key] for one in each) for key in ("rate", "cpu"))
    figures = "".join(f"{cuts[at] * 1e6:9.0f}" for at in (50, 95, 99))
    both = zip(each, rounds["floor"], strict=True)
    to_floor: float = median(median(mine["took"]) / median(bare["took"]) for mine, bare in both)
    both = zip(each, rounds["official"], strict=True)
    to_official = median(mine["rate"] / theirs["rate"] for mine, theirs in both)
    say(f"  {name:30}{rate:9.0f}{figures}{cpu * 1e6:9.0f}{to_floor:7.2f}x{to_official:9.2f}x")
    return to_floor


def _report_imports(starts: int) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in _IMPORTS}
    for _ in range(starts):
        for name, program in _IMPORTS.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True, cwd=_ROOT)
            seconds[name].append(time.perf_counter() - started)
    head("importing, beyond the interpreter", "ms")
    bare = seconds.pop("the interpreter")
    for name, each in seconds.items():
        row(name, [mine - its for mine, its in zip(each, bare, strict=True)], 1e3, None)
