"""Numbered migrations of tables, for both databases (DB-20 to DB-25).

    migrations = read_migrations("app.migrations")  # V1__create_stock.sql, V2__..., in the package
    await migrate_postgres(connections, migrations, application="app", verify=True)

    def prepare(connection, alone):
        migrate_sqlite(connection, path, migrations, application="app", application_id=0x4150504C)

A migration never changes once it was released: the next change is the next migration. Each runs in
one transaction, under a lock, so any number of processes may start at once. A table `migration`
records each with the checksum of its text, and a database is refused whose migrations are not the
known ones, or which a newer version has migrated.

With `verify` the tables are compared with those that the migrations make: columns, types, defaults,
checks, keys, indexes and triggers. What they make is found by running them in a database in memory
(SQLite, 1 ms), or in the temporary schema of a transaction that is undone (PostgreSQL, 20 ms).
There the description is recorded, so that a start on tables as they should be costs three queries.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import orjson
from attrs import define, field, frozen

from ...errors import UsageError

if TYPE_CHECKING:
    from .postgres import PostgresConnections, Query, Row, Transaction

_FILE = re.compile(r"V([1-9][0-9]{0,5})__[a-z0-9_]+\.sql")

Parts = dict[str, dict[str, str]]
"""The parts of tables: by table, the definition of each column, check, index and so on."""


@frozen
class Migration:
    """One step from a version to the next.

    Attributes:
        version: counted from 1.
        name: of its file, for messages.
        text: its statements, with `{schema}` for the quoted schema in PostgreSQL.
        checksum: of the text.
    """

    version: int
    name: str
    text: str
    checksum: str = field(init=False)

    @checksum.default
    def _digest(self) -> str:
        return hashlib.sha256(self.text.replace("\r\n", "\n").encode()).hexdigest()


@frozen
class MigrationReport:
    """The result of a migration, or of a check.

    Attributes:
        version: of the tables, before; 0 if there are none.
        applied: names of the migrations that were applied.
        pending: names of those that would be, if this was only a check.
        differences: from the tables that the migrations make, a sentence each; only in a check,
            otherwise they are raised.
    """

    version: int
    applied: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


def read_migrations(package: str, folder: str = "") -> tuple[Migration, ...]:
    """Return the migrations in the files of a package, named as V1__create_stock.sql is.

    Args:
        package: its dotted name.
        folder: in the package, with ``/`` between its parts.

    Raises:
        UsageError: a name is not of this form, or a number is missing or doubled.
    """
    found: list[Migration] = []
    for file in resources.files(package).joinpath(folder).iterdir():
        if not file.name.endswith(".sql"):
            continue
        match = _FILE.fullmatch(file.name)
        if match is None:
            raise UsageError(
                f"{file.name} cannot be a migration: its name is V1__what_it_does.sql, in"
                " lower-case letters, digits and _"
            )
        found.append(Migration(int(match[1]), file.name, file.read_text("utf-8")))
    found.sort(key=lambda migration: migration.version)
    for expected, migration in enumerate(found, 1):
        if migration.version != expected:
            raise UsageError(f"the migrations in {package} have no or two V{expected}")
    return tuple(found)


def migrations_of(texts: Iterable[str]) -> tuple[Migration, ...]:
    """Return migrations that are kept in code, from V1 on."""
    return tuple(Migration(n, f"V{n}", text) for n, text in enumerate(texts, 1))


def _pending(
    recorded: Mapping[int, str | None],
    migrations: Sequence[Migration],
    place: str,
    application: str,
) -> Sequence[Migration]:
    """Return the migrations that are not recorded.

    Args:
        recorded: checksums by version; None where an earlier release recorded none.
        migrations: all that are known.
        place: where the tables are, for messages.
        application: that knows the migrations, for messages.

    Raises:
        UsageError: others are recorded.
    """
    version = max(recorded, default=0)
    if version > len(migrations):
        raise UsageError(
            f"{place} has version {version}, and this version of {application} knows those up to"
            f" {len(migrations)}: use the newer version that migrated it"
        )
    for migration in migrations[:version]:
        checksum = recorded.get(migration.version, "")
        if checksum is not None and checksum != migration.checksum:
            raise UsageError(
                f"{migration.name} is not the migration that was applied to {place}: restore the"
                " released file, and put changes into a new migration"
            )
    return migrations[version:]


def _refuse(place: str, differences: Sequence[str]) -> None:
    if differences:
        raise UsageError(
            f"{place} has other tables than its migrations make: {'; '.join(differences)}"
        )


def _compare(expected: Parts, found: Parts) -> tuple[str, ...]:
    """Return the differences of the tables that are expected, a sentence each."""
    differences: list[str] = []
    for table, parts in sorted(expected.items()):
        there = found.get(table)
        if there is None:
            differences.append(f"table {table} is missing")
            continue
        for part in sorted(parts.keys() | there.keys()):
            want, have = parts.get(part), there.get(part)
            if want == have:
                continue
            if have is None:
                differences.append(f"{part} of table {table} is missing")
            elif want is None:
                differences.append(f"{part} of table {table} is not expected")
            else:
                differences.append(f"{part} of table {table} is {have!r} instead of {want!r}")
    return tuple(differences)


# -- SQLite ---------------------------------------------------------------------------------------


def migrate_sqlite(
    connection: sqlite3.Connection,
    path: str,
    migrations: Sequence[Migration],
    *,
    application: str,
    application_id: int,
    verify: bool = True,
) -> MigrationReport:
    """Bring the tables of a file to the newest version; make those of an empty file.

    `application_id` and `user_version` of the file are set, too, and a file of another application
    is refused. Foreign keys are not enforced meanwhile, unless the connection does.

    Args:
        connection: not in a transaction.
        path: for messages.
        migrations: all of them.
        application: its name, for messages.
        application_id: of its files, by which SQLite knows them; not 0.
        verify: compare the tables with those that the migrations make.

    Raises:
        UsageError: the file is of another application or of a newer version, a migration was
            changed, or the tables are different ones.
        sqlite3.Error: a migration failed, and nothing of it has happened.
    """
    applied: list[str] = []
    first = None
    while True:
        connection.execute("BEGIN IMMEDIATE")
        try:
            recorded = _recorded_in_file(connection, path, application, application_id)
            version = max(recorded, default=0)
            first = version if first is None else first
            pending = _pending(recorded, migrations, path, application)
            if None in recorded.values() or not _has_table(connection):
                _adopt(connection, migrations[:version])
            if verify:
                _refuse(path, _compare(_made_in_memory(migrations[:version]), _parts(connection)))
            if pending:
                _apply(connection, pending[0], application_id)
                applied.append(pending[0].name)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        if not pending:
            return MigrationReport(first, tuple(applied))


def check_sqlite(
    path: str, migrations: Sequence[Migration], *, application: str, application_id: int
) -> MigrationReport:
    """Report what `migrate_sqlite` would do, and change nothing; a missing file stays so.

    Neither the file nor its folder need be writable.

    Raises:
        UsageError: as `migrate_sqlite`, except for differences, which are reported.
        sqlite3.Error: the file cannot be read.
    """
    names = tuple(migration.name for migration in migrations)
    if not Path(path).exists():
        return MigrationReport(0, pending=names)
    with closing(sqlite3.connect(_reading_address(path), uri=True)) as connection:
        connection.isolation_level = None
        connection.execute("BEGIN")
        recorded = _recorded_in_file(connection, path, application, application_id)
        _pending(recorded, migrations, path, application)
        version = max(recorded, default=0)
        differences = _compare(_made_in_memory(migrations[:version]), _parts(connection))
    return MigrationReport(version, pending=names[version:], differences=differences)


def _reading_address(path: str) -> str:
    """Return the URI by which a file is read, and no file is made beside it.

    SQLite makes a WAL for a file of that mode, also to read it, unless the file is called
    immutable. It is while it has no WAL, as every process that uses it would need one.
    """
    address = f"file:{quote(path)}?mode=ro"
    is_unused = _has_wal_mode(path) and not Path(f"{path}-wal").exists()
    return f"{address}&immutable=1" if is_unused else address


def _has_wal_mode(path: str) -> bool:
    """Return whether the header of a file says so, in its read and write versions."""
    try:
        with Path(path).open("rb") as file:
            return file.read(20)[18:] == b"\x02\x02"
    except OSError:  # which SQLite then says better
        return False


def _recorded_in_file(
    connection: sqlite3.Connection, path: str, application: str, application_id: int
) -> dict[int, str | None]:
    """Return the checksums by version; those of an earlier release have none."""
    [found_id] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if found_id != application_id:
        [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables or found_id or version:
            raise UsageError(
                f"{path} is the database of another application, not of {application}: choose"
                " another file"
            )
    recorded: dict[int, str | None] = dict.fromkeys(range(1, version + 1))
    if _has_table(connection):
        recorded.update(connection.execute("SELECT version, checksum FROM migration"))
    return recorded


def _has_table(connection: sqlite3.Connection) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'migration'"
    return connection.execute(query).fetchone() is not None


def _adopt(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> None:
    """Record migrations that an earlier release has applied without a record."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migration (version INTEGER PRIMARY KEY, name TEXT NOT NULL,"
        " checksum TEXT NOT NULL, applied_at TEXT NOT NULL DEFAULT (datetime('now')))"
    )
    _record(connection, migrations)


def _record(connection: sqlite3.Connection, migrations: Iterable[Migration]) -> None:
    connection.executemany(
        "INSERT OR IGNORE INTO migration (version, name, checksum) VALUES (?, ?, ?)",
        [(each.version, each.name, each.checksum) for each in migrations],
    )


def _apply(connection: sqlite3.Connection, migration: Migration, application_id: int) -> None:
    for statement in _statements(migration.text):
        connection.execute(statement)
    _record(connection, [migration])
    connection.execute(f"PRAGMA application_id = {application_id:d}")
    connection.execute(f"PRAGMA user_version = {migration.version:d}")


def _statements(text: str) -> list[str]:
    """Return the statements of a text; those of a trigger belong to it."""
    statements: list[str] = []
    begun = ""
    for piece in text.split(";"):
        begun += piece
        if sqlite3.complete_statement(f"{begun};"):
            statements.append(begun)
            begun = ""
        else:
            begun += ";"
    begun = begun.removesuffix(";")
    return [each for each in (*statements, begun) if each.strip()]


def _made_in_memory(migrations: Iterable[Migration]) -> Parts:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for migration in migrations:
            for statement in _statements(migration.text):
                connection.execute(statement)
        return _parts(connection)


def _parts(connection: sqlite3.Connection) -> Parts:
    parts: Parts = {}
    rows = connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%' ESCAPE"
        " '!' AND name <> 'migration' ORDER BY type = 'table' DESC"
    ).fetchall()
    for kind, name, table, sql in rows:
        of_table = parts.setdefault(table, {})
        if kind == "table":
            of_table["definition"] = " ".join(sql.split())
            columns = connection.execute("SELECT * FROM pragma_table_xinfo(?)", (name,))
            for _, column, type_name, not_null, default, key, hidden in columns:
                of_table[f"column {column}"] = (
                    f"{type_name}{' not null' * not_null}{f' default {default}' * bool(default)}"
                    f"{f' key {key}' * bool(key)}{f' hidden {hidden}' * bool(hidden)}"
                )
        else:
            of_table[f"{kind} {name}"] = " ".join(sql.split())
    return parts


# -- PostgreSQL -----------------------------------------------------------------------------------

_MIGRATION_S = 3600.0
"""The longest that one migration may take, waiting for other processes included."""

# They last as long as the transaction; their number is made of the application and the schema.
_KEY = "hashtextextended(%b::text || ' ' || %b::text, 0)"
_LOCK = f"SELECT pg_advisory_xact_lock({_KEY})"
# What describes indexes and columns fails if another process has dropped them meanwhile.
_SHARED_LOCK = f"SELECT pg_advisory_xact_lock_shared({_KEY})"
_TRY_SHARED_LOCK = f"SELECT pg_try_advisory_xact_lock_shared({_KEY})"
# The limits of its connection, as far as this server has them.
_PATIENCE = f"""
SELECT set_config(name, '{int(_MIGRATION_S * 1000)}', true) FROM pg_settings
WHERE name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout')
"""
# Not `to_regclass`, which may answer from a cache: it does not see what was made meanwhile.
_IS_THERE = """
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = %b::text AND c.relname = 'migration')
"""
# The columns that an earlier release did not have are NULL.
_RECORDED = """
SELECT version, to_jsonb(m) ->> 'checksum', to_jsonb(m) ->> 'parts' FROM {schema}.migration AS m
"""
_TABLE = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.migration (version bigint PRIMARY KEY);
"""
_COLUMNS = """
ALTER TABLE {schema}.migration
    ADD COLUMN IF NOT EXISTS name text,
    ADD COLUMN IF NOT EXISTS checksum text,
    ADD COLUMN IF NOT EXISTS parts text,
    ADD COLUMN IF NOT EXISTS applied_at timestamptz,
    ALTER COLUMN applied_at SET DEFAULT now();
"""
_RECORD = """
INSERT INTO {schema}.migration (version, name, checksum) VALUES (%b, %b::text, %b::text)
ON CONFLICT (version) DO UPDATE SET name = excluded.name, checksum = excluded.checksum
"""
_RECORD_PARTS = "UPDATE {schema}.migration SET parts = %b::text WHERE version = %b"

# Columns, constraints, indexes that are no constraint's, and triggers, of the tables in a schema.
_PARTS = """
WITH tables AS (
    SELECT c.oid, c.relname, c.relkind, c.reloptions, n.nspname
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE CASE WHEN %b::text IS NULL THEN n.oid = pg_my_temp_schema() ELSE n.nspname = %b::text END
      AND c.relkind IN ('r', 'p', 'v', 'm') AND c.relname <> 'migration'
), parts (relname, nspname, part, definition) AS (
    SELECT relname, nspname, 'kind', concat_ws(' ', relkind, reloptions::text) FROM tables
    UNION ALL
    SELECT relname, nspname, 'column ' || a.attname,
           concat_ws(' ', format_type(a.atttypid, a.atttypmod),
                     CASE WHEN a.attnotnull THEN 'not null' END,
                     'identity ' || nullif(a.attidentity::text, ''),
                     'generated ' || nullif(a.attgenerated::text, ''),
                     'default ' || pg_get_expr(d.adbin, d.adrelid),
                     (SELECT 'collate ' || collname FROM pg_collation WHERE oid = a.attcollation))
    FROM tables JOIN pg_attribute a ON a.attrelid = tables.oid
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT relname, nspname, 'constraint ' || conname,
           pg_get_constraintdef(k.oid) || CASE WHEN convalidated THEN '' ELSE ' not valid' END
    FROM tables JOIN pg_constraint k ON k.conrelid = tables.oid
    UNION ALL
    SELECT tables.relname, nspname, 'index ' || c.relname,
           pg_get_indexdef(c.oid) || CASE WHEN i.indisvalid THEN '' ELSE ' invalid' END
    FROM tables JOIN pg_index i ON i.indrelid = tables.oid JOIN pg_class c ON c.oid = i.indexrelid
    WHERE NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = c.oid AND conrelid = tables.oid)
    UNION ALL
    SELECT relname, nspname, 'trigger ' || tgname,
           pg_get_triggerdef(t.oid) || ' ' || t.tgenabled::text || ' ' || md5(p.prosrc)
    FROM tables JOIN pg_trigger t ON t.tgrelid = tables.oid JOIN pg_proc p ON p.oid = t.tgfoid
    WHERE NOT t.tgisinternal
)
SELECT relname::text, part,
       replace(replace(definition, quote_ident(nspname) || '.', ''), 'pg_temp.', '')
FROM parts
"""


async def migrate_postgres(
    connections: PostgresConnections,
    migrations: Sequence[Migration],
    *,
    application: str,
    verify: bool = True,
) -> MigrationReport:
    """Bring the tables of a schema to the newest version; make the schema if it is missing.

    Args:
        connections: to the database; their schema is migrated.
        migrations: all of them.
        application: its name, for messages; processes of one application wait for each other.
        verify: compare the tables with those that the migrations make.

    Raises:
        UsageError: the tables are of a newer version, a migration was changed, or the tables are
            different ones.
        DatabaseError: a migration failed, and nothing of it has happened.
    """
    work = _Work(migrations, f"the schema {connections.schema}", application, verify)
    is_done = await connections.transact(work.look)
    while not is_done:
        is_done = await connections.transact(work.step, operation_s=_MIGRATION_S)
    return MigrationReport(work.first_version or 0, tuple(work.applied))


async def check_postgres(
    connections: PostgresConnections, migrations: Sequence[Migration], *, application: str
) -> MigrationReport:
    """Report what `migrate_postgres` would do, and change nothing.

    Raises:
        UsageError: as `migrate_postgres`, except for differences, which are reported.
        DatabaseError: the database cannot be read.
    """
    place = f"the schema {connections.schema}"

    async def check(transaction: Transaction) -> MigrationReport:
        await transaction.run(_PATIENCE)
        await transaction.ask((_SHARED_LOCK, (application, transaction.schema)))
        state = await _read_state(transaction)
        pending = _pending(state.recorded, migrations, place, application)
        expected = await _make_aside(transaction, migrations[: state.version])
        await transaction.rollback()
        return MigrationReport(
            state.version,
            pending=tuple(migration.name for migration in pending),
            differences=_compare(expected, state.found),
        )

    return await connections.transact(check, operation_s=_MIGRATION_S)


@frozen
class _State:
    """The migrations and the tables that a schema has.

    Attributes:
        recorded: checksums by version; None where an earlier release recorded none.
        expected: the parts of its tables as they were recorded; None if they were not.
        found: the parts of its tables as they are; none if they were not asked for.
    """

    recorded: Mapping[int, str | None]
    expected: Parts | None
    found: Parts

    @property
    def version(self) -> int:
        return max(self.recorded, default=0)

    @property
    def is_recorded(self) -> bool:
        return bool(self.recorded) and None not in self.recorded.values()

    @property
    def is_as_recorded(self) -> bool:
        return self.expected is not None and not _compare(self.expected, self.found)


@define
class _Work:
    """Migrating one schema.

    Attributes:
        first_version: of the tables, when this process first read it.
        applied: names of the migrations that this process has applied.
    """

    migrations: Sequence[Migration]
    place: str
    application: str
    verify: bool
    first_version: int | None = field(default=None, init=False)
    applied: list[str] = field(factory=list, init=False)

    async def look(self, transaction: Transaction) -> bool:
        """Return whether nothing is to do; False while another process migrates."""
        if self.verify:
            place = (self.application, transaction.schema)
            [[(is_quiet,)]] = await transaction.ask((_TRY_SHARED_LOCK, place))
            if not is_quiet:
                await transaction.rollback()
                return False
        state = await _read_state(transaction, with_parts=self.verify)
        await transaction.commit()
        self.first_version = state.version
        return self._is_done(state, self._pending(state))

    def _is_done(self, state: _State, pending: Sequence[Migration]) -> bool:
        return state.is_recorded and not pending and (state.is_as_recorded or not self.verify)

    def _pending(self, state: _State) -> Sequence[Migration]:
        return _pending(state.recorded, self.migrations, self.place, self.application)

    async def step(self, transaction: Transaction) -> bool:
        """Apply the next migration, if there is one, while others wait.

        Returns:
            Whether there was nothing to do. Else it is called again, to verify the tables too.
        """
        await transaction.run(_PATIENCE)
        await transaction.ask((_LOCK, (self.application, transaction.schema)))
        state = await _read_state(transaction, with_parts=self.verify)
        pending = self._pending(state)
        if self.first_version is None:
            self.first_version = state.version
        if self._is_done(state, pending):  # another process was faster
            await transaction.rollback()
            return True
        done = self.migrations[: state.version]
        if self.verify and done and not state.is_as_recorded:
            # Other tables, or nothing recorded, or words of another version of PostgreSQL.
            _refuse(self.place, _compare(await _make_aside(transaction, done), state.found))
        await self._prepare_records(transaction, state)
        records = [] if state.is_recorded else list(done)
        for migration in pending[:1]:
            await transaction.run(migration.text)
            records.append(migration)
        done = self.migrations[: state.version + len(pending[:1])]
        parts = await _make_aside(transaction, done) if self.verify else None
        text = None if parts is None else orjson.dumps(parts).decode()
        await transaction.commit(
            *((_RECORD, (each.version, each.name, each.checksum)) for each in records),
            (_RECORD_PARTS, (text, len(done))),
        )
        self.applied += [each.name for each in pending[:1]]
        return False

    async def _prepare_records(self, transaction: Transaction, state: _State) -> None:
        """Make the table of migrations, or give that of an earlier release more columns."""
        if state.is_recorded:
            return
        table: Query = (_IS_THERE, (transaction.schema,))
        [[(is_there,)]] = await transaction.ask(table)
        if not is_there:  # checked first: the user may lack the right to create schemas
            await transaction.run(_TABLE)
        await transaction.run(_COLUMNS)


async def _read_state(transaction: Transaction, with_parts: bool = True) -> _State:
    """Return the state; the parts of tables only under a lock that keeps others from migrating."""
    schema = transaction.schema
    queries: list[Query] = [(_IS_THERE, (schema,))]
    if with_parts:
        queries.append((_PARTS, (schema, schema)))
    [[(is_there,)], *parts] = await transaction.ask(*queries)
    found = _by_table(chain.from_iterable(parts))
    if not is_there:
        return _State({}, None, found)
    [rows] = await transaction.ask((_RECORDED, ()))
    recorded = {version: checksum for version, checksum, _ in rows}
    version = max(recorded, default=0)
    text = next((text for each, _, text in rows if each == version), None)
    return _State(recorded, None if text is None else orjson.loads(text), found)


async def _make_aside(transaction: Transaction, migrations: Sequence[Migration]) -> Parts:
    """Return the parts of the tables that migrations make, and undo making them."""
    await transaction.run("SAVEPOINT aside")
    for migration in migrations:
        await transaction.run(migration.text.replace("{schema}", "pg_temp"))
    [rows] = await transaction.ask((_PARTS, (None, None)))
    await transaction.run("ROLLBACK TO aside")
    return _by_table(rows)


def _by_table(rows: Iterable[Row]) -> Parts:
    parts: Parts = {}
    for table, part, definition in rows:
        parts.setdefault(table, {})[part] = definition
    return parts
