"""What an operator does at the command line: migrate, import, export, and what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest

from foundation_rt.apps.task_server.jobs import NewJob
from foundation_rt.apps.task_server.services import LOCAL
from foundation_rt.apps.task_server.stores.sqlite import SqliteTaskStore
from foundation_rt.apps.task_server.transfer import part_key
from foundation_rt.apps.task_server.validation import encode_payload, read_tasks
from tests.apps.task_server.app.servers import STORES, TASK, Database, call, over_stdio
from tests.lab.servers import fork_server
from tests.lab.servers.process import PATIENCE, environment
from tests.lab.servers.process import run as run_command
from tests.lab.sizes import cases
from tests.lab.waiting import block_until

AWAY = "postgresql://ann:hunter2@127.0.0.1:1/tasks"
FILES = ("tasks.json", "tasks.jsonl", "tasks.csv")
OTHERS = {"id", "version", "jobId", "createdBy", "createdAt", "updatedAt"}


def run(
    database: Database, *words: str, input: bytes = b"", settings: Any = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command of the task server on a database."""
    return fork_server.run(
        database.command(*words),
        env=environment(settings),
        capture_output=True,
        input=input,
        timeout=PATIENCE,
        check=False,
    )


def exported(database: Database) -> list[dict[str, Any]]:
    """Return all tasks of a database, without what the store has given them."""
    ended = run(database, "export", "-", "--format", "json")
    assert ended.returncode == 0, ended.stderr
    return [
        {name: value for name, value in task.items() if name not in OTHERS}
        for task in orjson.loads(ended.stdout)
    ]


@pytest.mark.rule("TASKS-03")
def test_check_changes_nothing_and_fails_before_migrate(database: Database) -> None:
    before = run(database, "migrate", "--check")
    migrated = run(database, "migrate")
    after = run(database, "migrate", "--check")

    assert before.returncode == 1
    assert before.stderr.strip()
    assert (migrated.returncode, migrated.stdout) == (0, b"")
    assert (after.returncode, after.stderr) == (0, b"the tables are up to date\n")


@pytest.mark.rule("TASKS-03")
def test_check_only_reads_a_file(tmp_path: Path) -> None:
    database = Database(f"sqlite:{tmp_path / 'tasks.db'}")
    assert run(database, "migrate").returncode == 0
    (tmp_path / "tasks.db-presence").unlink()
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    ended = run(database, "migrate", "--check")

    assert (ended.returncode, ended.stderr) == (0, b"the tables are up to date\n")
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


@pytest.mark.rule("TASKS-03")
@pytest.mark.parametrize("words", [("migrate", "--check"), ("export", "-")])
def test_command_that_only_looks_makes_no_file(tmp_path: Path, words: tuple[str, str]) -> None:
    file = tmp_path / "tasks.db"
    ended = run(Database(f"sqlite:{file}"), *words)

    assert ended.returncode == 1
    assert str(file).encode() in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.rule("TASKS-47")
async def test_import_is_repeated_after_its_job_has_failed(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    payload, digest, text_bytes = encode_payload(read_tasks([TASK]))
    store = SqliteTaskStore(file)
    await store.open()
    for failures in range(2):
        job_id = str(UUID(int=failures, version=4))
        key = part_key(payload, 0, failures)
        await store.submit_job(NewJob(job_id, LOCAL, key, digest, payload, 1, text_bytes, "c"), 10)
        claim = await store.claim_job("owner", 60_000, 3)
        assert claim is not None
        await store.fail_job(claim, "The disk is full.")
    await store.close()
    database = Database(f"sqlite:{file}")
    again = run(database, "import", "-", input=orjson.dumps(TASK))
    twice = run(database, "import", "-", input=orjson.dumps(TASK))

    assert (again.returncode, again.stderr) == (0, b"1 tasks are stored\n")
    assert twice.stderr == b"0 tasks are stored, 1 had been stored before\n"
    assert len(exported(database)) == 1


@pytest.mark.rule("TASKS-03", "TASKS-21", "TASKS-44")
@pytest.mark.parametrize(
    ("name", "database"),
    cases([*zip(FILES, (*STORES, *STORES), strict=False)], [*product(FILES, STORES)]),
    indirect=["database"],
)
def test_export_imports_as_the_same_tasks(database: Database, tmp_path: Path, name: str) -> None:
    file, other = tmp_path / name, Database(f"sqlite:{tmp_path / 'other.db'}")
    quoted = {"title": 'a "quoted", title\nof two lines', "dueDate": "2026-01-01"}
    tasks = [TASK, {**quoted, "description": ""}]
    imported = run(database, "import", "-", "--format", "json", input=orjson.dumps(tasks))
    out = run(database, "export", str(file))
    back = run(other, "import", str(file))
    again = run(other, "import", str(file))

    assert imported.stderr == b"2 tasks are stored\n"
    assert out.stderr == b"2 tasks are exported\n"
    assert back.stderr == b"2 tasks are stored\n"
    assert again.stderr == b"0 tasks are stored, 2 had been stored before\n"
    assert [each.returncode for each in (imported, out, back, again)] == [0] * 4
    assert exported(other) == exported(database)
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.rule("TASKS-03", "TASKS-47")
async def test_import_is_split_into_jobs_beside_a_server(database: Database) -> None:
    lines = b"".join(orjson.dumps({"title": f"Task {n}"}) + b"\n" for n in range(12_000))
    async with over_stdio(database) as client:
        await call(client, "mcp-tasks", tasks=[TASK], waitMs=25_000)
        ended = run(database, "import", "-", input=lines)
        summary = await call(client, "mcp-tasks-summary")
        last = await call(client, "mcp-tasks-list", sort="-id", pageSize=1)

    assert (ended.returncode, ended.stderr) == (0, b"12000 tasks are stored\n")
    assert (summary["totalCount"], summary["jobsPending"]) == (12_001, 0)
    assert last["tasks"][0]["title"] == "Task 11999"


@pytest.mark.rule("TASKS-98", "TASKS-99")
def test_import_ends_with_what_to_do_where_its_quota_is_full(tmp_path: Path) -> None:
    database = Database(f"sqlite:{tmp_path / 'tasks.db'}")
    few = {"task_server.max_bytes_per_key": 20}
    ended = run(database, "import", "-", input=orjson.dumps({"title": "x" * 30}), settings=few)

    assert ended.returncode == 1
    assert b"0 of at most 20 bytes" in ended.stderr
    assert b"max_bytes_per_key. 0 tasks are stored" in ended.stderr


@pytest.mark.rule("TASKS-04")
def test_import_is_refused_where_the_server_only_reads(tmp_path: Path) -> None:
    database = Database(f"sqlite:{tmp_path / 'tasks.db'}")
    refused = run(database, "import", "-", input=b"{}", settings={"task_server.read_only": "true"})

    assert refused.returncode == 1
    assert b"task_server.read_only is set: nothing can be imported" in refused.stderr
    assert not (tmp_path / "tasks.db").exists()


@pytest.mark.rule("TASKS-03", "TASKS-48")
def test_wrong_task_of_an_import_is_named(tmp_path: Path) -> None:
    database = Database(f"sqlite:{tmp_path / 'tasks.db'}")
    lines = [orjson.dumps({"title": "x"})] * 5_000 + [b'{"title":"secret\\u0000"}', b"{}"]
    wrong = run(database, "import", "-", input=b"\n".join(lines))
    broken = run(database, "import", "-", input=b"{")
    missing = run(database, "import", str(tmp_path / "none.csv"))
    unknown = run(database, "import", str(tmp_path / "tasks.txt"))

    assert [each.returncode for each in (wrong, broken, missing, unknown)] == [1] * 4
    assert b"5000 tasks are stored" in wrong.stderr
    assert b"task 5001, title must not be blank" in wrong.stderr
    assert b"task 5002 must have" in wrong.stderr
    assert b"secret" not in wrong.stderr
    assert b"line 1" in broken.stderr
    assert b"cannot be read" in missing.stderr
    assert b"--format" in unknown.stderr


@pytest.mark.rule("TASKS-03")
def test_export_that_fails_leaves_no_file(tmp_path: Path) -> None:
    database = Database(f"sqlite:{tmp_path / 'tasks.db'}")
    run(database, "import", "-", input=b'{"title":"x"}\n')
    (tmp_path / "taken.json").mkdir()
    for target in (tmp_path / "none" / "tasks.json", tmp_path / "taken.json"):
        ended = run(database, "export", str(target))
        assert ended.returncode == 1
        assert b"cannot be written" in ended.stderr
    full = subprocess.run(
        [*database.command("export", "-", "--format", "json")],
        env=environment(),
        stdout=os.open("/dev/full", os.O_WRONLY),
        stderr=subprocess.PIPE,
        timeout=PATIENCE,
        check=False,
    )

    assert full.returncode == 4
    assert b"cannot be written" in full.stderr
    assert b"Traceback" not in full.stderr
    assert [each for each in tmp_path.iterdir() if each.suffix == ".json"] == [
        tmp_path / "taken.json"
    ]


@pytest.mark.rule("TASKS-03")
def test_export_writes_into_a_pipe_or_device_instead_of_replacing_it(tmp_path: Path) -> None:
    database, pipe = Database(f"sqlite:{tmp_path / 'tasks.db'}"), tmp_path / "tasks.jsonl"
    run(database, "import", "-", input=b'{"title":"x"}\n')
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)  # a line fits into it
    try:
        ended = run(database, "export", str(pipe))
        line = orjson.loads(os.read(reader, 65_536))
    finally:
        os.close(reader)

    assert (ended.returncode, line["title"]) == (0, "x")
    assert pipe.is_fifo()


@pytest.mark.rule("TASKS-02")
@pytest.mark.parametrize(
    "words",
    [
        ("serve",),
        ("--workers", "2"),
        ("--http",),
        ("--database", "mysql://root:hunter2@db/tasks"),
        ("--database", "/tmp/tasks.db"),
        ("migrate", "now"),
        ("import",),
        ("export", "a", "b"),
        ("--check",),
    ],
)
def test_wrong_command_line_is_refused(words: tuple[str, ...]) -> None:
    ended = run_command("task-server", *words)

    assert ended.returncode == 2
    of_its_own = words[0] in ("migrate", "import", "export")
    command = f"task-server {words[0]}" if of_its_own else "task-server"
    assert f"see foundation-rt {command} --help" in ended.stderr
    assert "hunter2" not in ended.stderr


@pytest.mark.rule("TASKS-02")
@pytest.mark.parametrize(
    ("words", "url", "problem"),
    [
        ((), AWAY, "the database cannot be used: PostgreSQL"),
        (("migrate",), AWAY, "the database cannot be used: PostgreSQL"),
        (("export", "-"), "sqlite::memory:", "tasks are kept in a file"),
    ],
)
def test_database_that_cannot_be_used_ends_the_start_with_the_reason(
    words: tuple[str, ...], url: str, problem: str
) -> None:
    reading, writing = os.pipe()  # a server whose input ends may end before it has tried
    with os.fdopen(reading), os.fdopen(writing, "wb"):
        ended = fork_server.run(
            Database(url).command(*words),
            env=environment(),
            stdin=reading,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )

    assert ended.returncode == 1
    assert f"foundation-rt: {problem}" in ended.stderr.decode()
    assert b"hunter2" not in ended.stderr


@pytest.mark.rule("TASKS-03")
def test_interrupted_import_ends_while_it_waits_for_input(tmp_path: Path) -> None:
    database = Database(f"sqlite:{tmp_path / 'tasks.db'}")
    command = database.command("import", "-")
    with fork_server.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b'{"title":"x"}\n' * 5_000)
        process.stdin.flush()
        block_until(lambda: exported(database), "a batch is stored")
        process.send_signal(signal.SIGINT)
        code, said = process.wait(PATIENCE), process.stderr.read()

    assert (code, said) == (130, b"")
    assert len(exported(database)) == 5_000


@pytest.mark.rule("TASKS-02")
def test_help_has_every_command_and_option() -> None:
    ended = run_command("task-server", "--help")
    general = run_command("--help")

    for word in ("migrate", "import", "export", "--database", "--http", "--workers"):
        assert word in ended.stdout
    assert ended.returncode == 0
    assert "--check" in run_command("task-server", "migrate", "--help").stdout
    assert "task-server" in general.stdout
