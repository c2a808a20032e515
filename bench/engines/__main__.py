"""Measure the ledger in PostgreSQL beside DBOS, procrastinate and a loop with SKIP LOCKED.

    python -m bench.engines [--units N] [--rounds N] [--only NAME,NAME...]

All use one server, each a database of its own, which is dropped in the end. In every round each
does the units of a scenario in its turn; a figure is the median of the rounds. Commits and bytes of
WAL are those of the server meanwhile, so nothing else may use it. The versions of the others are
pinned in `entrants`; they are installed into environments that are kept until `make clean`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit, urlunsplit

import psycopg
from attrs import define, frozen

from bench.aacp_load import POSTGRES_URL
from bench.peers.environments import FOLDER, install_python
from bench.report import say

ENTRANTS = {
    "ledger": ("ledger.py", ()),
    "floor": ("floor.py", ()),
    "DBOS": ("dbos_start.py", ("dbos==3.4.0", "psycopg[binary]==3.3.9")),
    "procrastinate": ("procrastinate_task.py", ("procrastinate==3.10.0", "psycopg[binary]==3.3.9")),
}
SCENARIOS = ((1, 1), (32, 1), (256, 1), (32, 4))
"""Clients altogether, and processes among which they are divided."""
_STATISTICS_S = 0.5
"""After so long the server has counted what backends did that have ended."""


@frozen
class Measured:
    """What so many units took: units a second, commits, bytes of WAL and CPU ms for each."""

    rate: float
    commits: float
    wal: float
    cpu_ms: float


@define
class Entrant:
    """A program under test, with its database."""

    command: list[str]
    url: str

    def measure(self, clients: int, processes: int, units: int) -> Measured:
        """Do units with so many clients, divided among new processes."""
        commits, wal, seconds, cpu = self._run(clients, processes, units)
        idle_commits, idle_wal, _, _ = self._run(processes, processes, 0)
        return Measured(
            units / seconds,
            (commits - idle_commits) / units,
            (wal - idle_wal) / units,
            cpu / units * 1e3,
        )

    def _run(self, clients: int, processes: int, units: int) -> tuple[int, int, float, float]:
        """Return the commits and bytes of WAL of a run, the start included; seconds; and CPU."""
        before = _counted(self.url)
        with ExitStack() as stack:
            running = [stack.enter_context(_process(self.command)) for _ in range(processes)]
            for each in running:
                assert each.stdin is not None
                each.stdin.write(f"{clients // processes} {units // processes}\n")
                each.stdin.flush()
            done = [json.loads(_line(each)) for each in running]
        after = _counted(self.url)
        seconds, cpu = max(each[0] for each in done), sum(each[1] for each in done)
        return after[0] - before[0], after[1] - before[1], seconds, cpu


@contextmanager
def _process(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    )
    try:
        while _line(process) != "ready":
            pass
        yield process
    finally:
        process.kill()
        process.wait()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{process.args!r} ended")
    return line.strip()


def _counted(url: str) -> tuple[int, int]:
    """Return the commits in a database, and the end of the server's WAL."""
    time.sleep(_STATISTICS_S)
    with psycopg.connect(POSTGRES_URL, autocommit=True) as connection:
        row = connection.execute(
            "SELECT xact_commit, (pg_current_wal_lsn() - '0/0')::bigint FROM pg_stat_database"
            " WHERE datname = %s",
            (urlsplit(url).path[1:],),
        ).fetchone()
    assert row is not None
    return row[0], row[1]


@contextmanager
def _database(name: str) -> Iterator[str]:
    """Yield the URL of a new database, and drop it in the end."""
    database = f"bench_engines_{name.lower()}"
    with psycopg.connect(POSTGRES_URL, autocommit=True) as connection:
        drop = f"DROP DATABASE IF EXISTS {database} WITH (FORCE)".encode()
        connection.execute(drop)
        connection.execute(f"CREATE DATABASE {database}".encode())
        try:
            yield urlunsplit(urlsplit(POSTGRES_URL)._replace(path=f"/{database}"))
        finally:
            connection.execute(drop)


def main(arguments: Sequence[str]) -> None:
    """Measure, and print a table for the guide."""
    parser = argparse.ArgumentParser(prog="python -m bench.engines")
    parser.add_argument("--units", type=int, default=2_000, help="of one measurement (2000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(ENTRANTS), help="names, with commas")
    options = parser.parse_args(arguments)
    found = defaultdict[tuple[str, int, int], list[Measured]](list)
    with ExitStack() as stack:
        entrants = {}
        for name in options.only.split(","):
            script, requirements = ENTRANTS[name]
            python = install_python(FOLDER / name, requirements) if requirements else sys.executable
            url = stack.enter_context(_database(name))
            program = Path(__file__).parent / "entrants" / script
            entrants[name] = Entrant([python, str(program), url], url)
        for _ in range(options.rounds):
            for clients, processes in SCENARIOS:
                units = options.units if clients > 1 else max(20, options.units // 10)
                for name, entrant in entrants.items():
                    measured = entrant.measure(clients, processes, units)
                    found[name, clients, processes].append(measured)
    say("| clients | processes | engine | units/s | commits | WAL bytes | CPU ms |")
    say("|---|---|---|---|---|---|---|")
    for clients, processes in SCENARIOS:
        for name in entrants:
            runs = found[name, clients, processes]
            rate, commits, wal, cpu = (
                median(getattr(run, each) for run in runs)
                for each in ("rate", "commits", "wal", "cpu_ms")
            )
            figures = f"{rate:.0f} | {commits:.2f} | {wal:.0f} | {cpu:.2f}"
            say(f"| {clients} | {processes} | {name} | {figures} |")


if __name__ == "__main__":
    main(sys.argv[1:])
