"""Measure the runtime beside its peers; write JSON, tables and a chart.

    python -m bench.peers FOLDER [--shortest] [--here] [--only NAME,NAME...]

Each peer is installed into an environment of its own first, which is kept until `make clean`. One
that cannot be had is a gap with a name. With `--shortest` everything runs once: what it writes says
that it works, and no more. With `--here` nothing is installed: what this environment has is
measured. `--only` names the contestants, as the tables have them.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from attrs import asdict

from bench.peers import environments, reporting
from bench.peers.contestants import HTTP, RUNTIME, STDIO, Contestant, with_each_extra
from bench.peers.environments import Environment, NotInstalledError, installed, present
from bench.peers.measuring import (
    FULL,
    SHORTEST,
    Gap,
    HttpEntrant,
    Rounds,
    StdioEntrant,
    Turns,
    installation,
    measure_http,
    measure_stdio,
)
from bench.report import say


def main(arguments: Sequence[str]) -> int:
    """Measure, write the files and print the table; return 2 if a name is unknown."""
    options = _parser().parse_args(arguments)
    names = {each.name for each in (*STDIO, *HTTP)}
    only = set(options.only.split(",")) if options.only else names
    if unknown := only - names:
        say(f"no contestant {', '.join(sorted(unknown))}: there are {', '.join(sorted(names))}")
        return 2
    rounds = SHORTEST if options.shortest else FULL
    find = present if options.here else installed
    report = measure(only, rounds, find)
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "peers.json").write_bytes(
        orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    )
    (options.folder / "peers.md").write_text(reporting.page(report), "utf-8")
    (options.folder / "peers.svg").write_text(reporting.chart(report), "utf-8")
    say(f"\n{reporting.tables(report)}\n{options.folder / 'peers.json'}, peers.md, peers.svg")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("bench.peers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--shortest", action="store_true", help="run everything once")
    parser.add_argument("--here", action="store_true", help="install nothing")
    parser.add_argument("--only", metavar="NAME,NAME...", help="measure these contestants")
    return parser


def measure(
    only: set[str], rounds: Rounds, find: Callable[[Contestant], Environment]
) -> dict[str, Any]:
    """Return the report of a run of these contestants; `find` returns the environment of each."""
    stdio = _turns("stdio", STDIO, StdioEntrant, only, find)
    http = _turns("HTTP", HTTP, HttpEntrant, only, find)
    figures = {"stdio": measure_stdio(stdio, rounds), "http": measure_http(http, rounds)}
    highest = max(stdio.load, http.load)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "highest_load": round(highest, 1),
        },
        "python": platform.python_version(),
        "node": _node_version(),
        "rounds": asdict(rounds),
        "gaps": [asdict(gap) for gap in (*stdio.gaps, *http.gaps)],
        **_rounded(figures),
        "extras": _rounded(installations(find)) if RUNTIME in only and find is installed else [],
    }


def installations(find: Callable[[Contestant], Environment]) -> list[dict[str, Any]]:
    """Return what the runtime installs with each of its extras."""
    rows = []
    for each in with_each_extra():
        try:
            rows.append(installation(each, find(each)))
        except NotInstalledError as error:
            say(f"  {each.name} is missing: {error}")
        # Together they take gigabytes.
        shutil.rmtree(environments.FOLDER / each.folder, ignore_errors=True)
    return rows


def _rounded(figures: Any) -> Any:
    """Return the figures with three digits after the point: the rest is noise."""
    if isinstance(figures, dict):
        return {key: _rounded(each) for key, each in figures.items()}
    if isinstance(figures, list):
        return [_rounded(each) for each in figures]
    return round(figures, 3) if isinstance(figures, float) else figures


def _turns(
    transport: str,
    contestants: Sequence[Contestant],
    kind: type[StdioEntrant] | type[HttpEntrant],
    only: set[str],
    find: Callable[[Contestant], Environment],
) -> Turns:
    turns = Turns(transport, {}, [])
    for contestant in contestants:
        if contestant.name in only:
            try:
                environment = find(contestant)
            except NotInstalledError as error:
                turns.gaps.append(Gap(contestant.name, transport, str(error)))
                say(f"  {contestant.name} is missing: {error}")
            else:
                turns.entrants[contestant.name] = kind(contestant, environment)
    return turns


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _node_version() -> str | None:
    node = shutil.which("node")
    if node is None:
        return None
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    return said.stdout.strip().removeprefix("v")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
