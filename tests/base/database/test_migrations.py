"""Migrations on both databases: once each, unchanged, and with the tables that they make."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from attrs import evolve

from foundation_rt.base.database.errors import DatabaseError
from foundation_rt.base.database.migrations import (
    Migration,
    MigrationReport,
    check_postgres,
    check_sqlite,
    migrate_postgres,
    migrate_sqlite,
    migrations_of,
    read_migrations,
)
from foundation_rt.base.database.postgres import PostgresConnections, read_url
from foundation_rt.errors import UsageError
from tests.lab.places.services import postgres_schema
from tests.lab.servers import fork_server
from tests.lab.sizes import size
from tests.lab.waiting import PATIENCE, block_until

ROOT = Path(__file__).parents[3]
APPLICATION_ID = 0x54455354

TEXTS = (
    """
    CREATE TABLE {schema}.stock (
        n integer PRIMARY KEY,  -- semicolons in comments; are no ends
        name text NOT NULL DEFAULT 'a;b' CHECK (name <> '')
    );
    CREATE INDEX by_name ON {schema}.stock (name);
    """,
    "ALTER TABLE {schema}.stock ADD COLUMN price integer;"
    " INSERT INTO {schema}.stock (n) VALUES (1)",
    "CREATE TABLE {schema}.sale (n integer REFERENCES {schema}.stock)",
)


class Place:
    """A database of each kind, and the same migrations for it."""

    migrations: tuple[Migration, ...]

    def migrate(self, migrations: Sequence[Migration], verify: bool = True) -> MigrationReport:
        raise NotImplementedError

    def check(self, migrations: Sequence[Migration]) -> MigrationReport:
        raise NotImplementedError

    def run(self, statement: str) -> list[Any]:
        """Execute a statement as an operator would."""
        raise NotImplementedError

    def process(self) -> list[str]:
        """Return the arguments of a process that migrates this place."""
        raise NotImplementedError


class SqlitePlace(Place):
    def __init__(self, path: Path) -> None:
        self.path = str(path)
        texts = [each.replace("INDEX by_name ON {schema}.", "INDEX by_name ON ") for each in TEXTS]
        self.migrations = migrations_of(each.replace("{schema}.", "") for each in texts)

    def migrate(self, migrations: Sequence[Migration], verify: bool = True) -> MigrationReport:
        with closing(sqlite3.connect(self.path, timeout=20, isolation_level=None)) as connection:
            return migrate_sqlite(
                connection,
                self.path,
                migrations,
                application="test",
                application_id=APPLICATION_ID,
                verify=verify,
            )

    def check(self, migrations: Sequence[Migration]) -> MigrationReport:
        return check_sqlite(
            self.path, migrations, application="test", application_id=APPLICATION_ID
        )

    def run(self, statement: str) -> list[Any]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(statement.replace("{schema}.", "")).fetchall()

    def process(self) -> list[str]:
        return ["SqlitePlace", self.path]


class PostgresPlace(Place):
    migrations = migrations_of(TEXTS)

    def __init__(self, address: str) -> None:
        self.url, self.schema = address.split()

    def migrate(self, migrations: Sequence[Migration], verify: bool = True) -> MigrationReport:
        async def main(connections: PostgresConnections) -> MigrationReport:
            return await migrate_postgres(
                connections, migrations, application="test", verify=verify
            )

        return self._with_connections(main)

    def check(self, migrations: Sequence[Migration]) -> MigrationReport:
        async def main(connections: PostgresConnections) -> MigrationReport:
            return await check_postgres(connections, migrations, application="test")

        return self._with_connections(main)

    def _with_connections(self, main: Any) -> MigrationReport:
        async def bounded() -> MigrationReport:
            connections = PostgresConnections(read_url(self.url), self.schema, 1)
            try:
                async with asyncio.timeout(PATIENCE):
                    work: Coroutine[Any, Any, MigrationReport] = main(connections)
                    return await work
            finally:
                await connections.close()

        return asyncio.run(bounded())

    def run(self, statement: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.replace("{schema}", self.schema).encode())
            return cursor.fetchall() if cursor.description else []

    def process(self) -> list[str]:
        return ["PostgresPlace", f"{self.url} {self.schema}"]


@contextmanager
def a_place(kind: str, folder: Path) -> Iterator[Place]:
    if kind == "SQLite":
        yield SqlitePlace(folder / "app.db")
    else:
        with postgres_schema() as (url, schema):
            yield PostgresPlace(f"{url} {schema}")


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with a_place(request.param, tmp_path) as found:
        yield found


# -- files ----------------------------------------------------------------------------------------


def files(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> str:
    """Make a package with files; return its name."""
    package = folder / f"app_{folder.name}"
    (package / "sql").mkdir(parents=True)
    (package / "__init__.py").touch()
    for name in names:
        (package / "sql" / name).write_text(f"-- {name}\n")
    monkeypatch.syspath_prepend(str(folder))
    return package.name


@pytest.mark.rule("DB-20")
def test_migrations_are_read_in_the_order_of_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"V{n}__step_{n}.sql" for n in range(1, 12)]
    package = files(tmp_path, monkeypatch, *reversed(names), "notes.md")
    found = read_migrations(package, "sql")
    assert [(each.version, each.name) for each in found] == list(enumerate(names, 1))
    assert found[9].text == "-- V10__step_10.sql\n"
    assert evolve(found[9], text="-- V10__step_10.sql\r\n").checksum == found[9].checksum


@pytest.mark.rule("DB-20")
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["V1__a.sql", "V3__c.sql"], "no or two V2"),
        (["V1__a.sql", "V1__b.sql"], "no or two V2"),
        (["V2__a.sql"], "no or two V1"),
        (["V01__a.sql"], "V01__a.sql cannot be a migration"),
        (["V1_a.sql"], "V1_a.sql cannot be a migration"),
    ],
)
def test_files_with_other_names_or_gaps_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        read_migrations(files(tmp_path, monkeypatch, *names), "sql")


# -- migrating ------------------------------------------------------------------------------------


@pytest.mark.rule("DB-21", "DB-22")
def test_every_version_becomes_the_newest_with_its_data(tmp_path: Path) -> None:
    for kind in ("SQLite", "PostgreSQL"):
        for version in range(len(TEXTS)):
            folder = tmp_path / f"{kind}{version}"
            folder.mkdir()
            with a_place(kind, folder) as place:
                names = tuple(each.name for each in place.migrations)
                if version:
                    done = place.migrate(place.migrations[:version])
                    assert done == MigrationReport(0, names[:version])
                    place.run("INSERT INTO {schema}.stock (n, name) VALUES (7, 'kept')")
                done = place.migrate(place.migrations)
                assert done == MigrationReport(version, names[version:])
                assert place.migrate(place.migrations) == MigrationReport(3)
                found = place.run("SELECT n, name FROM {schema}.stock ORDER BY n")
                assert found == [(1, "a;b"), (7, "kept")][: 2 if version else 1]
                recorded = place.run("SELECT version, name, checksum FROM {schema}.migration")
                assert sorted(recorded) == [
                    (each.version, each.name, each.checksum) for each in place.migrations
                ]


@pytest.mark.rule("DB-23")
def test_tables_that_a_migration_has_found_instead_of_making_are_refused(place: Place) -> None:
    text = "CREATE TABLE IF NOT EXISTS {schema}.sale (n integer, price integer)"
    if isinstance(place, SqlitePlace):
        text = text.replace("{schema}.", "")
    place.migrate(place.migrations[:2])
    place.run("CREATE TABLE {schema}.sale (n integer)")
    with pytest.raises(UsageError, match="column price of table sale"):
        place.migrate([*place.migrations[:2], Migration(3, "V3", text)])


@pytest.mark.rule("DB-21")
def test_migration_that_fails_leaves_the_version_before_it(place: Place) -> None:
    bad = Migration(3, "V3__bad.sql", "INSERT INTO {schema}.stock (n) VALUES (2); nonsense")
    if isinstance(place, SqlitePlace):
        bad = evolve(bad, text=bad.text.replace("{schema}.", ""))
    with pytest.raises((DatabaseError, sqlite3.Error)):
        place.migrate([*place.migrations[:2], bad])
    assert place.run("SELECT n FROM {schema}.stock") == [(1,)]
    assert place.migrate(place.migrations) == MigrationReport(2, ("V3",))


PROCESS = """
import sys
from tests.base.database import test_migrations
kind, address = sys.argv[1:]
place = getattr(test_migrations, kind)(address)
print("ready", flush=True)
sys.stdin.readline()
print(len(place.migrate(place.migrations).applied))
"""


@pytest.mark.rule("DB-21")
def test_tables_are_not_read_while_another_process_migrates() -> None:
    """PostgreSQL fails to describe an index that was dropped since its statement began."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
        " AND wait_event = 'advisory'"
    )
    with (
        postgres_schema() as (url, schema),
        psycopg.connect(url, autocommit=True) as connection,
        ThreadPoolExecutor() as pool,
    ):
        place = PostgresPlace(f"{url}?application_name={schema} {schema}")
        migrations = migrations_of((*TEXTS, f"SELECT pg_advisory_xact_lock(hashtext('{schema}'))"))
        place.migrate(migrations[:3])
        connection.execute("SELECT pg_advisory_lock(hashtext(%s))", (schema,))
        works = (place.migrate, migrations), (place.migrate, migrations[:3]), (place.check, [])
        running = []
        for count, work in enumerate(works, 1):
            running.append(pool.submit(*work))
            block_until(
                lambda: connection.execute(waiting, (schema,)).fetchone(),
                f"{count} wait",
                lambda row, count=count: row == (count,),
            )
            assert not any(each.done() for each in running)
        connection.execute("SELECT pg_advisory_unlock_all()")
        assert running[0].result().applied == ("V4",)
        for each in running[1:]:
            with pytest.raises(UsageError, match="version 4"):
                each.result()


@pytest.mark.rule("DB-21")
def test_many_processes_migrate_at_once(place: Place) -> None:
    count = size(4, 8)
    processes = [
        fork_server.Popen(
            [sys.executable, "-c", PROCESS, *place.process()],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ends = [process.communicate(timeout=PATIENCE) for process in processes]
    assert [process.returncode for process in processes] == [0] * count, ends
    assert sum(int(output) for output, _ in ends) == len(TEXTS)
    assert place.run("SELECT n FROM {schema}.stock") == [(1,)]


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.rule("DB-22")
def test_changed_migration_is_refused_with_its_name(place: Place) -> None:
    place.migrate(place.migrations)
    one, two, three = place.migrations
    changed = [one, evolve(two, name="V2__add_price.sql", text=f"{two.text} "), three]
    for act in (place.migrate, place.check):
        with pytest.raises(UsageError, match=r"^V2__add_price.sql is not the migration"):
            act(changed)


@pytest.mark.rule("DB-22")
def test_newer_version_is_refused(place: Place) -> None:
    place.migrate(place.migrations)
    for act in (place.migrate, place.check):
        with pytest.raises(UsageError, match=r"has version 3, .* up to 2: use the newer"):
            act(place.migrations[:2])
    assert place.migrate(place.migrations) == MigrationReport(3)


@pytest.mark.rule("DB-25")
@pytest.mark.parametrize("id_too", [False, True])
def test_file_of_another_application_is_refused_unchanged(tmp_path: Path, id_too: bool) -> None:
    place = SqlitePlace(tmp_path / "app.db")
    place.run("PRAGMA application_id = 7" if id_too else "CREATE TABLE theirs (x)")
    before = Path(place.path).read_bytes()
    for act in (place.migrate, place.check):
        with pytest.raises(UsageError, match="another application, not of test"):
            act(place.migrations)
    assert Path(place.path).read_bytes() == before


# -- tables ---------------------------------------------------------------------------------------


@pytest.mark.rule("DB-23", "DB-24")
@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("ALTER TABLE {schema}.stock ADD COLUMN more text", "column more of table stock is not"),
        (
            "ALTER TABLE {schema}.stock RENAME COLUMN price TO cost",
            "column price of table stock is",
        ),
        (
            "CREATE INDEX more ON {schema}.stock (price)",
            "index more of table stock is not",
        ),
        ("DROP INDEX {schema}.by_name", "index by_name of table stock is missing"),
        ("DROP TABLE {schema}.sale", "table sale is missing"),
    ],
)
def test_other_tables_are_refused_with_a_list(
    place: Place, statement: str, found: str, pending: bool
) -> None:
    known = place.migrations
    place.migrate(known)
    place.run("CREATE TABLE {schema}.own (x text)")  # an operator's, of no concern
    assert place.migrate(known) == MigrationReport(3)
    place.run(statement.replace("ON {schema}.", "ON ") if _is_sqlite(place) else statement)
    newest = migrations_of([*(each.text for each in known), "SELECT 1"]) if pending else known
    with pytest.raises(UsageError, match=f"has other tables than its migrations make: .*{found}"):
        place.migrate(newest)
    assert any(found in each for each in place.check(newest).differences)
    assert place.migrate(known, verify=False) == MigrationReport(3)


def _is_sqlite(place: Place) -> bool:
    return isinstance(place, SqlitePlace)


@pytest.mark.rule("DB-23")
@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("ALTER TABLE {schema}.stock ALTER n TYPE bigint", "'bigint not null' instead of"),
        ("ALTER TABLE {schema}.stock ALTER name DROP DEFAULT", "column name of table stock is"),
        (
            "ALTER TABLE {schema}.stock DROP CONSTRAINT stock_name_check",
            "stock_name_check of table",
        ),
        ("ALTER TABLE {schema}.sale DROP CONSTRAINT sale_n_fkey", "constraint sale_n_fkey of"),
    ],
)
def test_types_defaults_checks_and_keys_are_compared(
    tmp_path: Path, statement: str, found: str
) -> None:
    with a_place("PostgreSQL", tmp_path) as place:
        place.migrate(place.migrations)
        place.run(statement)
        with pytest.raises(UsageError, match=found):
            place.migrate(place.migrations)


@pytest.mark.rule("DB-23")
def test_description_in_the_words_of_another_server_is_made_anew(tmp_path: Path) -> None:
    with a_place("PostgreSQL", tmp_path) as place:
        place.migrate(place.migrations)
        [(parts,)] = place.run("SELECT parts FROM {schema}.migration WHERE version = 3")
        place.run("UPDATE {schema}.migration SET parts = replace(parts, 'integer', 'int')")
        assert place.migrate(place.migrations) == MigrationReport(3)
        assert place.run("SELECT parts FROM {schema}.migration WHERE version = 3") == [(parts,)]


@pytest.mark.rule("DB-24")
def test_check_reports_and_changes_nothing(place: Place, tmp_path: Path) -> None:
    names = tuple(each.name for each in place.migrations)
    assert place.check(place.migrations) == MigrationReport(0, pending=names)
    if isinstance(place, SqlitePlace):
        assert not list(tmp_path.iterdir())
    else:
        assert place.run("SELECT to_regnamespace('{schema}')") == [(None,)]
    place.migrate(place.migrations[:1])
    assert place.check(place.migrations) == MigrationReport(1, pending=names[1:])
    assert place.migrate(place.migrations) == MigrationReport(1, names[1:])
    assert place.check(place.migrations) == MigrationReport(3)


@contextmanager
def without_root() -> Iterator[None]:
    """Be another user, as permissions do not bind root."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.rule("DB-24")
@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_file_that_may_only_be_read_is_checked(mode: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        place = SqlitePlace(Path(folder) / "a.db")
        place.migrate(place.migrations)
        place.run(f"PRAGMA journal_mode = {mode}")
        Path(place.path).chmod(0o444)
        Path(folder).chmod(0o555)
        with without_root():
            assert place.check(place.migrations) == MigrationReport(3)
        assert [each.name for each in Path(folder).iterdir()] == ["a.db"]
        Path(folder).chmod(0o755)


@pytest.mark.rule("DB-24")
def test_file_is_checked_with_what_is_in_its_wal(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path / "a.db")
    place.run("PRAGMA journal_mode = WAL")
    with closing(sqlite3.connect(place.path)) as user:
        user.execute("SELECT * FROM sqlite_master").fetchall()
        place.migrate(place.migrations)
        assert Path(f"{place.path}-wal").stat().st_size
        assert place.check(place.migrations) == MigrationReport(3)
