"""The section on the task server: jobs, reads and growth, beside what its database does alone.

The floors use the same database library on the same tables: `COPY` (PostgreSQL) or `executemany`
(SQLite) of the rows of a job in one transaction, and the bare query of a read. Each round measures
a floor and the server one after the other; a ratio is the median of the rounds' ratios.

A read has two floors, each with its query: a tool that does nothing on a server without settings,
and a tool with the schemas and the answer of the read on a server that writes an audit log, as the
task server does. The first says what a client waits for, the second what is the task server's own.
The query of SQLite runs with the journal of the server: a journal file that stays beside the
database doubles the time of a read, and saves a tenth of a commit.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import orjson
import psycopg
from attrs import define

from bench.aacp_load import POSTGRES_URL, new_name
from bench.over_http import STATELESS_META, STATELESS_REVISION
from bench.over_http import Server as HttpServer
from bench.processes import Server, Target
from bench.report import head, note, row, say
from bench.sizes import Sizes
from foundation_rt.base.database.sqlite import WAL_VERSION

_JOB_WAIT_MS = 25_000
_CLIENTS = 4

Row = tuple[Any, ...]
_Operations = list[tuple[str, Callable[[], object]]]
_Pair = tuple[list[float], list[float]]

_COLUMNS = (
    "title, status, due_date, project, priority, job_id, created_by, created_at, updated_at,"
    " search_text"
)


def _rows(count: int) -> list[Row]:
    """Return the rows of tasks as a job stores them."""
    job, now = "00000000-0000-4000-8000-000000000000", "2026-01-01T00:00:00.000Z"
    rest = (1, job, "local", now, now)
    return [
        (each["title"], "TODO", each["dueDate"], each["project"], *rest, each["title"].casefold())
        for each in _tasks(count)
    ]


def _tasks(count: int) -> list[dict[str, str]]:
    """Return ordinary tasks: 5,000 of them are 0.5 MB of JSON."""
    return [
        {
            "title": f"Review the draft of chapter {number} and note every open question",
            "dueDate": f"2026-{number % 12 + 1:02}-{number % 28 + 1:02}",
            "project": f"book {number % 7}",
        }
        for number in range(count)
    ]


class Floor(Protocol):
    """The database without the server."""

    def store(self, rows: list[Row]) -> None:
        """Store rows in one transaction."""

    def job(self, job_id: str) -> None:
        """Read a job."""

    def page(self, limit: int) -> None:
        """Read the first tasks by id."""


@define(eq=False)
class _Postgres:
    connection: psycopg.Connection[Row]

    def store(self, rows: list[Row]) -> None:
        statement = f"COPY floor_tasks ({_COLUMNS}) FROM STDIN".encode()
        with (
            self.connection.transaction(),
            self.connection.cursor() as cursor,
            cursor.copy(statement) as copy,
        ):
            for each in rows:
                copy.write_row(each)

    def job(self, job_id: str) -> None:
        query = "SELECT * FROM task_server.batch_jobs WHERE job_id = %s"
        self.connection.execute(query, (job_id,), prepare=True).fetchone()

    def page(self, limit: int) -> None:
        query = "SELECT * FROM task_server.tasks WHERE id > %s ORDER BY id LIMIT %s"
        self.connection.execute(query, (0, limit), prepare=True).fetchall()


@define(eq=False)
class _Sqlite:
    connection: sqlite3.Connection

    def store(self, rows: list[Row]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        marks = ", ".join("?" * len(rows[0]))
        self.connection.executemany(f"INSERT INTO tasks ({_COLUMNS}) VALUES ({marks})", rows)
        self.connection.execute("COMMIT")

    def job(self, job_id: str) -> None:
        self.connection.execute("SELECT * FROM batch_jobs WHERE job_id = ?", (job_id,)).fetchone()

    def page(self, limit: int) -> None:
        query = "SELECT * FROM tasks WHERE id > ? ORDER BY id LIMIT ?"
        self.connection.execute(query, (0, limit)).fetchall()


@define(eq=False)
class _Place:
    """An empty database.

    Attributes:
        url: as the server takes it.
        open_floor: opens it without the server, once the server has made its tables.
    """

    name: str
    url: str
    open_floor: Callable[[], Any]


@contextmanager
def _on_postgres(folder: Path) -> Iterator[_Place]:
    name = new_name()
    url = POSTGRES_URL.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(POSTGRES_URL, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield _Place("PostgreSQL", url, lambda: _open_postgres(url))
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def _open_postgres(url: str) -> Iterator[Floor]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE floor_tasks (LIKE task_server.tasks INCLUDING ALL)")
        yield _Postgres(connection)
        connection.execute("DROP TABLE floor_tasks")


@contextmanager
def _on_sqlite(folder: Path) -> Iterator[_Place]:
    path = folder / f"{new_name()}.db"
    yield _Place("SQLite", f"sqlite:{path}", lambda: _open_sqlite(path))


@contextmanager
def _open_sqlite(path: Path) -> Iterator[Floor]:
    """Open a copy of the empty file: two writers of one file would wait for each other."""
    copy = path.with_suffix(".floor")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        # A file does not say that the journal of another connection is to stay.
        mode = "WAL" if sqlite3.sqlite_version_info >= WAL_VERSION else "PERSIST"
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE written (n)")  # so that there is a journal
        yield _Sqlite(connection)


# -- the client ------------------------------------------------------------------------------------


def _command(place: _Place) -> list[str]:
    return ["-m", "foundation_rt", "task-server", "--database", place.url]


@contextmanager
def _served(place: _Place) -> Iterator[Server]:
    server = Server.spawn(Target("task server", _command(place)))
    try:
        server.initialize()
        yield server
    finally:
        server.stop()


def _ask(server: Server, tool: str, arguments: Any) -> dict[str, Any]:
    """Call a tool; return its structured result."""
    result = server.ask("tools/call", {"name": tool, "arguments": arguments})
    if result["isError"]:
        raise RuntimeError(f"{tool}: {result['content']}")
    structured: dict[str, Any] = result["structuredContent"]
    return structured


def _submit(server: Server, tasks: orjson.Fragment, wait_ms: int) -> str:
    answer = _ask(server, "mcp-tasks", {"tasks": tasks, "waitMs": wait_ms})
    if wait_ms and answer["status"] != "COMPLETED":
        raise RuntimeError(f"a job is {answer['status']}")
    job_id: str = answer["jobId"]
    return job_id


def _wait(server: Server, job_id: str) -> None:
    _ask(server, "mcp-job-status", {"jobId": job_id, "waitMs": _JOB_WAIT_MS})


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


# -- the tables ------------------------------------------------------------------------------------


def report(sizes: Sizes) -> None:
    """Measure and print."""
    for make in (_on_sqlite, _on_postgres):
        with tempfile.TemporaryDirectory() as folder, make(Path(folder)) as place:
            with _served(place) as server:
                _report_jobs(place, server, sizes)
            _report_clients(place, sizes)
            _report_start(place, sizes)
        with (
            tempfile.TemporaryDirectory() as folder,
            make(Path(folder)) as place,
            make(Path(folder)) as another,
        ):
            _report_growth(place, another, sizes)


def _report_jobs(place: _Place, server: Server, sizes: Sizes) -> None:
    rounds, batch = sizes.task_jobs
    rows, tasks = _rows(batch), orjson.Fragment(orjson.dumps(_tasks(batch)))
    seconds: dict[str, list[float]] = {"floor": [], "stored": [], "answered": []}
    # First of all: a server over stdio makes its tables after `initialize`.
    job_id = _submit(server, tasks, _JOB_WAIT_MS)
    with place.open_floor() as floor:
        floor.store(rows)
        for _ in range(rounds):
            seconds["floor"].append(_timed(lambda: floor.store(rows)))
            seconds["stored"].append(_timed(lambda: _submit(server, tasks, _JOB_WAIT_MS)))
            started = time.perf_counter()
            job_id = _submit(server, tasks, 0)
            seconds["answered"].append(time.perf_counter() - started)
            _wait(server, job_id)
        _report_rounds(f"task server, {place.name}, jobs of {batch}", "ms", 1e3, seconds)
    with place.open_floor() as floor:  # with the tasks and jobs that the server has now
        _report_reads(place, server, floor, job_id, sizes)


def _report_rounds(title: str, unit: str, scale: float, seconds: dict[str, list[float]]) -> None:
    """Print one row for each name; the first is the floor."""
    head(title, unit)
    floor, *_ = seconds.values()
    for name, each in seconds.items():
        ratio = median(a / b for a, b in zip(each, floor, strict=True))
        row(name, each, scale, None if each is floor else ratio)


@define
class _Read:
    """A read to measure: the call, its name in the table, and the query that it needs."""

    name: str
    tool: str
    arguments: dict[str, Any]
    query: Callable[[], object]

    def call_of(self, server: Server) -> Callable[[], object]:
        """Return the call, of this server."""
        return lambda: _ask(server, self.tool, self.arguments)


def _report_reads(place: _Place, server: Server, floor: Floor, job_id: str, sizes: Sizes) -> None:
    """Print what reads take beside their two floors."""
    echo = Server.spawn(
        Target("echo", ["-m", "foundation_rt", "serve", "bench/app.py"], "async_noop")
    )
    echo.initialize()
    reads = [
        _Read("job status", "mcp-job-status", {"jobId": job_id}, lambda: floor.job(job_id)),
        _Read("list of 10", "mcp-tasks-list", {"pageSize": 10}, lambda: floor.page(10)),
    ]
    for read in reads:
        with _answering(server, read) as answer:
            seconds = _measure_read(
                read, [echo.call, read.call_of(answer)], read.call_of(server), sizes
            )
        _report_rounds(f"task server, {place.name}, {read.name}", "us", 1e6, seconds)
        _, alike, real = seconds.values()
        own = median(a / b for a, b in zip(real, alike, strict=True))
        say(f"  {'to its answer and query':66}{own:12.2f}")
    echo.stop()


def _measure_read(
    read: _Read, floors: list[Callable[[], object]], real: Callable[[], object], sizes: Sizes
) -> dict[str, list[float]]:
    """Return the seconds of both floors, each with the query, and of the read, round by round."""
    for call in (*floors, real):
        call()  # the first one imports what it needs
    names = ("floor: echo and query", "its answer and query")
    seconds: dict[str, list[float]] = {name: [] for name in (*names, read.name)}
    for _ in range(sizes.task_reads):
        for name, call in zip(names, floors, strict=True):
            seconds[name].append(_timed(call) + _timed(read.query))
        seconds[read.name].append(_timed(real))
    return seconds


@contextmanager
def _answering(server: Server, read: _Read) -> Iterator[Server]:
    """Serve a tool as that of the read, which always answers as the server does now."""
    tools = server.ask("tools/list", {})["tools"]
    [definition] = [each for each in tools if each["name"] == read.tool]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "answer.json")
        answer = _ask(server, read.tool, read.arguments)
        path.write_bytes(orjson.dumps({"definition": definition, "answer": answer}))
        os.environ["BENCH_ANSWER"] = str(path)
        try:
            command = ["-m", "foundation_rt", "serve", "bench/answer_app.py"]
            answering = Server.spawn(Target("its answer", command))
            answering.initialize()
        finally:
            del os.environ["BENCH_ANSWER"]
        yield answering
        answering.stop()


def _report_clients(place: _Place, sizes: Sizes) -> None:
    """Print the rate of four HTTP clients at once, beside that of the floor."""
    rounds, batch = sizes.task_jobs
    rows = _rows(batch)
    body = orjson.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": "mcp-tasks",
                "arguments": {"tasks": _tasks(batch), "waitMs": _JOB_WAIT_MS},
                "_meta": STATELESS_META,
            },
        }
    )
    os.environ["FOUNDATION_RT_RATE_LIMIT__PER_TOOL"] = "0"
    server = HttpServer.spawn(
        "task server", [*_command(place), "--no-auth", "--http"], "127.0.0.1:{}"
    )
    try:
        with place.open_floor() as floor, ThreadPoolExecutor(_CLIENTS) as clients:
            ratios, rates = [], []
            for _ in range(rounds):
                floor_rate = batch / _timed(lambda: floor.store(rows))
                seconds = _timed(
                    lambda: [*clients.map(_post, [(server.port, body)] * _CLIENTS * 2)]
                )
                rates.append(_CLIENTS * 2 * batch / seconds)
                ratios.append(rates[-1] / floor_rate)
    finally:
        server.stop()
        del os.environ["FOUNDATION_RT_RATE_LIMIT__PER_TOOL"]
    title, name = f"task server, {place.name}", f"{_CLIENTS} clients over HTTP"
    say(f"\n{title:32}{'tasks/s':>12}{'ratio':>24}")
    say(f"  {name:30}{median(rates):12.0f}{median(ratios):>24.2f}")
    note(title, name, median(ratios))


def _post(request: tuple[int, bytes]) -> None:
    port, body = request
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": STATELESS_REVISION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "mcp-tasks",
    }
    connection.request("POST", "/mcp", body, headers)
    answer = connection.getresponse().read()
    connection.close()
    if b'"status":"COMPLETED"' not in answer:
        raise RuntimeError(answer[:500].decode())


def _report_growth(place: _Place, another: _Place, sizes: Sizes) -> None:
    """Print what operations take with few tasks and with many, and the memory of the server.

    Two servers are measured in turn: how long a disk takes to force a commit changes by the minute,
    and by a multiple while it still writes what came before.
    """
    small, large = sizes.task_counts
    with _served(place) as few, _served(another) as many:
        job_of_few = _fill(few, 0, small, sizes)
        job_of_many = _fill(many, 0, small, sizes)
        for _, operation in _operations(many, job_of_many):
            operation()
        before = many.resident_mb()
        job_of_many = _fill(many, small, large, sizes)
        measured = _measure_growth(
            _operations(few, job_of_few), _operations(many, job_of_many), sizes.task_reads
        )
        after = many.resident_mb()
    title = f"task server, {place.name}, growth"
    say(f"\n{title:32}{small:>12}{large:>12}{'ratio':>12}")
    for name, (least, most) in measured.items():
        ratio = median(b / a for a, b in zip(least, most, strict=True))
        figures = f"{median(least) * 1e6:12.0f}{median(most) * 1e6:12.0f}{ratio:>12.2f}"
        say(f"  {f'{name}, us':30}{figures}")
        note(title, name, ratio)
    say(f"  {'resident memory, MB':30}{before:12.1f}{after:12.1f}{after - before:>+12.1f}")


def _fill(server: Server, stored: int, count: int, sizes: Sizes) -> str:
    """Store tasks until there are `count`; return the last job."""
    _, batch = sizes.task_jobs
    job_id = ""
    while stored < count:
        some = min(batch, count - stored)
        job_id = _submit(server, orjson.Fragment(orjson.dumps(_tasks(some))), _JOB_WAIT_MS)
        stored += some
    return job_id


def _measure_growth(few: _Operations, many: _Operations, rounds: int) -> dict[str, _Pair]:
    """Return the seconds of each operation with few tasks, and those with many."""
    measured: dict[str, _Pair] = {}
    for (name, of_few), (_, of_many) in zip(few, many, strict=True):
        pair = [(_timed(of_few), _timed(of_many)) for _ in range(rounds)]
        measured[name] = ([one for one, _ in pair], [one for _, one in pair])
    return measured


def _operations(server: Server, job_id: str) -> _Operations:
    """Return what is measured with few tasks and with many."""
    cursor = _ask(server, "mcp-tasks-list", {"pageSize": 100})["nextCursor"]
    following = {"pageSize": 100, "cursor": cursor}
    return [
        ("list by cursor", lambda: _ask(server, "mcp-tasks-list", following)),
        ("summary", lambda: _ask(server, "mcp-tasks-summary", {})),
        ("claim", lambda: _ask(server, "mcp-tasks-claim", {})),
        ("job status", lambda: _ask(server, "mcp-job-status", {"jobId": job_id})),
    ]


def _report_start(place: _Place, sizes: Sizes) -> None:
    demo = Target("demo", ["-m", "foundation_rt", "serve"])
    ours = Target("task server", _command(place))
    answered: dict[str, list[float]] = {"the demo": [], "task server": []}
    listed: dict[str, list[float]] = {"the demo": [], "task server": []}
    for _ in range(sizes.starts):
        for name, target in (("the demo", demo), ("task server", ours)):
            for each, seconds in zip((answered, listed), _cold_start(target), strict=True):
                each[name].append(seconds)
    _report_rounds(f"task server, {place.name}, start to initialize", "ms", 1e3, answered)
    _report_rounds(f"task server, {place.name}, start to tools/list", "ms", 1e3, listed)


def _cold_start(target: Target) -> tuple[float, float]:
    """Return the seconds from spawning a server to its answers to initialize and tools/list."""
    started = time.perf_counter()
    server = Server.spawn(target)
    server.initialize()
    answered = time.perf_counter()
    server.ask("tools/list", {})
    listed = time.perf_counter()
    server.stop()
    return answered - started, listed - started
