"""Measure the ledger in PostgreSQL beside DBOS, procrastinate and a loop with SKIP LOCKED.

    python -m bench.engines [--units N] [--rounds N] [--only NAME,NAME...]

All use one server, each a database of its own, which is dropped in the end. In every round each
does the units of a scenario in its turn; a figure is the median of the rounds. Bytes of WAL are
those of the server meanwhile, so nothing else may use it. Then each gets 100,000 finished units,
and does some more. In the end a process of each is killed while it executes, and another one stands
by. The versions of the others are pinned; they are installed into environments that are kept until
`make clean`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit, urlunsplit

import psycopg
from attrs import define, frozen

from bench.aacp_load import POSTGRES_URL
from bench.peers.environments import FOLDER, install_python
from bench.report import say


@frozen
class Program:
    """A program under test.

    Attributes:
        script: in `entrants`, and the arguments behind its database and its name.
        requirements: of an environment of its own.
        table: where it keeps units, the column of their ids, and a type to make ids of.
        is_done: in SQL, of a unit.
    """

    script: Sequence[str]
    requirements: tuple[str, ...]
    table: tuple[str, str, str]
    is_done: str


_JOBS = ("job", "id", "bigint")
ENTRANTS = {
    "ledger": Program(["ledger.py"], (), ("aacp.request", "request_id", "text"), "finished"),
    "floor": Program(["floor.py", "1"], (), _JOBS, "state = 'done'"),
    "floor of 50": Program(["floor.py", "50"], (), _JOBS, "state = 'done'"),
    "DBOS": Program(
        ["dbos_start.py"],
        ("dbos==3.4.0", "psycopg[binary]==3.3.9"),
        ("dbos.workflow_status", "workflow_uuid", "text"),
        "status = 'SUCCESS'",
    ),
    "procrastinate": Program(
        ["procrastinate_task.py"],
        ("procrastinate==3.10.0", "psycopg[binary]==3.3.9"),
        ("procrastinate_jobs", "id", "bigint"),
        "status = 'succeeded'",
    ),
}
SCENARIOS = ((1, 1), (32, 1), (256, 1), (32, 4))
"""Clients altogether, and processes among which they are divided."""
KEPT = 100_000
_KILLED_UNITS = 16
_KILLED_AFTER_S = 0.5
_PATIENCE_S = 60
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

    program: Program
    command: list[str]
    url: str

    def keep(self, units: int) -> None:
        """Have so many finished units in the database: copies of one."""
        table, column, kind = self.program.table
        statement = (
            f"INSERT INTO {table} SELECT (jsonb_populate_record(done.one, jsonb_build_object("
            f"'{column}', ('-' || number)::{kind}))).* FROM generate_series(1, {units}) AS number,"
            f" (SELECT one FROM {table} AS one WHERE {self.program.is_done} LIMIT 1) AS done"
        )
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())
            connection.execute(b"VACUUM ANALYZE")

    def resume(self) -> float | None:
        """Kill a process that executes; return in how many seconds another one has done the work.

        None: there was some left when it was waited for no more.
        """
        with ExitStack() as stack:
            killed = stack.enter_context(_process(self.command))
            standby = stack.enter_context(self._named("standby"))
            assert killed.stdin is not None
            killed.stdin.write(f"{_KILLED_UNITS} {_KILLED_UNITS} 1\n")
            killed.stdin.flush()
            time.sleep(_KILLED_AFTER_S)
            killed.kill()
            began = time.monotonic()
            while (seconds := time.monotonic() - began) < _PATIENCE_S:
                assert standby.poll() is None
                if self._is_done():
                    return seconds
                time.sleep(0.1)
        return None

    def _named(self, name: str) -> AbstractContextManager[subprocess.Popen[str]]:
        return _process([*self.command[:3], name, *self.command[4:]])

    def _is_done(self) -> bool:
        left = f"SELECT count(*) FROM {self.program.table[0]} WHERE NOT ({self.program.is_done})"
        with psycopg.connect(self.url) as connection:
            return connection.execute(left.encode()).fetchone() == (0,)

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
            names = [f"p{number}" for number in range(processes)]
            running = [stack.enter_context(self._named(name)) for name in names]
            for each in running:
                assert each.stdin is not None
                each.stdin.write(f"{clients // processes} {units // processes} 0\n")
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
    with ExitStack() as stack:
        entrants = {}
        for name in options.only.split(","):
            program = ENTRANTS[name]
            requirements = program.requirements
            python = install_python(FOLDER / name, requirements) if requirements else sys.executable
            url = stack.enter_context(_database(name.replace(" ", "_")))
            script, *rest = program.script
            path = Path(__file__).parent / "entrants" / script
            entrants[name] = Entrant(program, [python, str(path), url, "p0", *rest], url)
        say("| clients | processes | kept | engine | units/s | commits | WAL bytes | CPU ms |")
        say("|---|---|---|---|---|---|---|---|")
        for kept, scenarios in ((0, SCENARIOS), (KEPT, SCENARIOS[1:2])):
            for entrant in entrants.values() if kept else ():
                entrant.keep(kept)
            found = _measure(entrants, scenarios, options.rounds, options.units)
            for (clients, processes, name), runs in found.items():
                rate, commits, wal, cpu = (
                    median(getattr(run, each) for run in runs)
                    for each in ("rate", "commits", "wal", "cpu_ms")
                )
                figures = f"{rate:.0f} | {commits:.2f} | {wal:.0f} | {cpu:.2f}"
                say(f"| {clients} | {processes} | {kept:,} | {name} | {figures} |")
        with ThreadPoolExecutor() as pool:
            resumed = dict(zip(entrants, pool.map(Entrant.resume, entrants.values()), strict=True))
    say("")
    say("| engine | seconds until another process has done the work of one that was killed |")
    say("|---|---|")
    for name, seconds in resumed.items():
        say(f"| {name} | {f'not in {_PATIENCE_S}' if seconds is None else f'{seconds:.0f}'} |")


def _measure(
    entrants: Mapping[str, Entrant], scenarios: Sequence[tuple[int, int]], rounds: int, most: int
) -> dict[tuple[int, int, str], list[Measured]]:
    """Return what was measured, by clients, processes and name; one client does a tenth."""
    found = defaultdict[tuple[int, int, str], list[Measured]](list)
    for _ in range(rounds):
        for clients, processes in scenarios:
            units = most if clients > 1 else max(20, most // 10)
            for name, entrant in entrants.items():
                measured = entrant.measure(clients, processes, units)
                found[clients, processes, name].append(measured)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
