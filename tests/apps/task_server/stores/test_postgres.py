"""What only the store in PostgreSQL promises: its schema, its migrations, and what a page costs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, get_args

import psycopg
import pytest
from attrs import define

from foundation_rt.apps.task_server.queries import After, SortKey, TaskFilter, TaskQuery
from foundation_rt.apps.task_server.store import TasksNotFoundError, TaskUpdate
from foundation_rt.apps.task_server.stores.postgres import PostgresTaskStore, lists, statements
from foundation_rt.apps.task_server.stores.postgres.adapter import MIGRATIONS
from foundation_rt.errors import UsageError
from tests.apps.task_server.stores.support import (
    MAX_PENDING,
    add,
    claim,
    claimed_job,
    find,
    ids_of,
    new_job,
    recount,
    submit,
    task,
    tasks,
    tasks_of,
)
from tests.lab.places.services import postgres_schema

MANY = 60_000


@define
class Place:
    """A schema, and a look into it."""

    url: str
    schema: str

    @asynccontextmanager
    async def opened(self, **more: Any) -> AsyncIterator[PostgresTaskStore]:
        store = PostgresTaskStore(self.url, schema=self.schema, **more)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            sql = statement.replace("{schema}", self.schema).encode()
            cursor = connection.execute(sql, values or None)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def place() -> Iterator[Place]:
    """Yield an empty place."""
    with postgres_schema() as (url, schema):
        yield Place(url, schema)


# -- tables ---------------------------------------------------------------------------------------


@pytest.mark.rule("TASKS-85")
async def test_payload_is_stored_as_it_is_and_dropped_at_the_end(place: Place) -> None:
    stored = "SELECT pg_column_size(payload), octet_length(payload) FROM {schema}.batch_jobs"
    async with place.opened() as store:
        await submit(store, tasks=tasks(1000, description="the same again and again"))
        [(on_disk, length)] = place.rows(stored)
        assert on_disk == length > 50_000
        claimed = await claim(store)
        await store.complete_job(claimed, tasks_of(claimed))
        assert place.rows(stored) == [(None, None)]


@pytest.mark.rule("TASKS-85")
@pytest.mark.parametrize("schema", ["", "1st", "Tasks", 'a"b', "x" * 64])
def test_schema_that_would_need_quotes_is_refused(schema: str) -> None:
    with pytest.raises(UsageError, match="cannot be the schema"):
        PostgresTaskStore("postgresql://127.0.0.1/test", schema=schema)
    assert PostgresTaskStore("postgresql://127.0.0.1/test")._schema == "task_server"


@pytest.mark.rule("TASKS-94")
@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
async def test_tables_of_every_version_are_migrated_with_their_tasks(
    place: Place, version: int
) -> None:
    place.rows("CREATE SCHEMA {schema}")
    for migration in MIGRATIONS[:version]:
        place.rows(migration.text)
    place.rows("CREATE TABLE {schema}.migration (version bigint PRIMARY KEY)")
    place.rows(f"INSERT INTO {{schema}}.migration SELECT generate_series(1, {version})")
    place.rows(
        "INSERT INTO {schema}.tasks (title, status, project, priority, job_id, created_by,"
        " search_text) VALUES ('old', 'TODO', 'p', 1, gen_random_uuid(), 'ann', 'old')"
    )
    place.rows(
        "INSERT INTO {schema}.task_counts VALUES ('p', 'TODO', 'infinity', 1),"
        " ('', 'TODO', 'infinity', 1)"
    )
    async with place.opened() as one, place.opened() as other:
        added = ids_of(await add(one, task("new", project="p")))
        assert await find(other) == [1, *added]
        assert (await other.summarize()).count_by_status["TODO"] == 2
    names = [migration.name for migration in MIGRATIONS]
    applied = place.rows("SELECT name FROM {schema}.migration ORDER BY version")
    assert applied == [(name,) for name in names]


@pytest.mark.rule("TASKS-95")
async def test_tables_of_another_version_are_refused_without_leave_to_migrate(
    place: Place,
) -> None:
    with pytest.raises(UsageError, match=r"V1__create_tasks_table\.sql was not applied"):
        async with place.opened(migrate=False):
            pass
    async with place.opened() as store:
        await add(store, task())
    async with place.opened(migrate=False) as store:
        assert len(await find(store)) == 1
    place.rows("DROP INDEX {schema}.tasks_by_job")
    with pytest.raises(UsageError, match="index tasks_by_job of table tasks is missing"):
        async with place.opened(migrate=False):
            pass
    with pytest.raises(UsageError, match="tasks_by_job"):
        async with place.opened():
            pass


@pytest.mark.rule("TASKS-87")
async def test_text_that_cannot_be_stored_fails_its_operation_only(place: Place) -> None:
    async with place.opened(connections=1) as store:
        [kept] = await add(store, task("kept"))
        for text in ("a\0b", "a\ud800b"):
            await store.submit_job(new_job(), MAX_PENDING)
            claimed = await claim(store)
            operations = [
                lambda text=text, claimed=claimed: store.complete_job(claimed, [task(text)]),
                lambda text=text: store.update_tasks([TaskUpdate(kept.id, None, {"title": text})]),
                lambda text=text: store.claim_tasks(1, None, text, 900),
                lambda text=text: store.list_tasks(TaskQuery(TaskFilter(project=text))),
                lambda text=text: store.list_tasks(TaskQuery(TaskFilter(words=(text,)))),
                lambda text=text: store.summarize(text),
                lambda text=text, claimed=claimed: store.fail_job(claimed, text),
            ]
            for operation in operations:
                with pytest.raises(Exception):  # noqa: B017 - whoever finds it first
                    await operation()
            assert await store.fail_job(claimed, "It failed.") is not None
        assert await store.get_task(kept.id) == kept
        assert await recount(store) == {("default", "TODO"): 1}


async def test_ids_that_are_no_ids_are_not_there(place: Place) -> None:
    async with place.opened() as store:
        [kept] = await add(store, task())
        wrong = [0, -1, 2**63, 10**30]
        assert (await store.list_tasks(TaskQuery(TaskFilter(ids=(kept.id, *wrong))))).tasks == [
            kept
        ]
        assert (await store.list_tasks(TaskQuery(TaskFilter(job_id="none")))).tasks == []
        with pytest.raises(TasksNotFoundError) as raised:
            await store.update_tasks([TaskUpdate(task_id, None, {}) for task_id in wrong])
        assert raised.value.ids == sorted(wrong)
        assert (await store.delete_tasks(wrong)).missing == sorted(wrong)
        assert (await store.delete_tasks(job_id="none")).deleted == 0
        assert await store.get_job("none") is None


# -- what operations read -------------------------------------------------------------------------


async def test_store_that_is_not_open_may_be_closed(place: Place) -> None:
    async with asyncio.timeout(30):
        store = PostgresTaskStore(place.url, schema=place.schema, migrate=False)
        await store.close()
        with pytest.raises(UsageError):
            await store.open()
        await store.close()


@pytest.mark.rule("TASKS-86")
@pytest.mark.parametrize("analyzed", ["never", "when empty"])
async def test_operations_read_no_more_of_many_tasks_than_of_few(
    place: Place, analyzed: str
) -> None:
    async with place.opened() as store:
        if analyzed == "when empty":
            place.rows("ANALYZE {schema}.tasks")
            place.rows("ANALYZE {schema}.task_counts")
        [first] = await add(store, task())
        async with await store._connections.connect() as connection:
            _fill(place, 2_000)
            few = {name: await _blocks(connection, place, q) for name, q in _queries(1_000, first)}
            _fill(place, MANY)
            many = {
                name: await _blocks(connection, place, q) for name, q in _queries(MANY // 2, first)
            }
    assert {name: n for name, n in many.items() if n > 2 * few[name] + 20} == {}


@pytest.mark.rule("TASKS-86")
async def test_lease_is_renewed_without_a_look_at_other_jobs(place: Place) -> None:
    async with place.opened() as store:
        _fill_jobs(place, "COMPLETED", 20_000)
        place.rows("VACUUM ANALYZE {schema}.batch_jobs")  # nothing counts as unfinished
        job = await claimed_job(store)
        _fill_jobs(place, "PENDING", 20_000)
        async with await store._connections.connect() as connection:
            for query in (statements.renew_job(job, 1), statements.is_held(job)):
                assert await _blocks(connection, place, query) < 60


@pytest.mark.rule("TASKS-86")
@pytest.mark.parametrize(
    ("where", "most"),
    [
        (TaskFilter("TODO"), 1_500),
        (TaskFilter("TODO", "p1"), 4_000),
        (TaskFilter(project="old"), 50_000),  # every task is looked at once, and no key by itself
    ],
)
async def test_descending_list_with_conditions_reads_its_index_once(
    place: Place, where: TaskFilter, most: int
) -> None:
    async with place.opened() as store:
        _fill(place, 20_000)
        place.rows(
            "UPDATE {schema}.tasks SET updated_at = updated_at + id * interval '1 s',"
            " due_date = '2026-01-01'::date + id::int,"
            " project = CASE WHEN id < 5 THEN 'old' ELSE project END"
        )
        async with await store._connections.connect() as connection:
            for sort in ("dueDate", "updatedAt"):
                query = TaskQuery(where, sort, descending=True)  # type: ignore[arg-type]
                assert await _blocks(connection, place, lists.walk(query)) < most


@pytest.mark.rule("TASKS-86")
async def test_page_behind_the_end_reads_no_task(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place.opened() as store:
        await add(store, *tasks(3, project="p"))
        store.few = 0
        monkeypatch.delattr(lists, "walk")
        for sort in get_args(SortKey):
            for where in (TaskFilter(), TaskFilter("TODO", "p")):
                page = await store.list_tasks(TaskQuery(where, sort, offset=1_000))
                assert (page.tasks, page.has_more) == ([], False)


def _queries(middle: int, first: Any) -> Iterator[tuple[str, Any]]:
    keys = {"id": None, "dueDate": "2026-06-15", "priority": 1, "updatedAt": first.updated_at}
    for sort, key in keys.items():
        for descending in (False, True):
            for place_of in (None, After(key, middle)):
                query = TaskQuery(TaskFilter(), sort, descending, after=place_of)  # type: ignore[arg-type]
                yield f"list by {sort} {descending} {place_of is None}", lists.walk(query)
    for where in (TaskFilter("DONE"), TaskFilter(project="p1"), TaskFilter("TODO", "p1")):
        query = TaskQuery(where, after=After(None, middle))
        yield f"list of {where}", lists.walk(query)
    for where in (TaskFilter(), TaskFilter("DONE"), TaskFilter(due_before="2026-02-01")):
        yield f"total of {where}", lists.count(where)
    yield "task", statements.get_task(middle)
    yield "summary", statements.summarize("")
    yield "job", statements.get_job(first.job_id)
    yield "claim", statements.claim_tasks(10, None, "w", 900)
    yield "claim of a project", statements.claim_tasks(10, "p1", "w", 900)


def _fill_jobs(place: Place, status: str, number: int) -> None:
    place.rows(
        f"""INSERT INTO {{schema}}.batch_jobs (job_id, principal, digest, status, total_tasks,
            correlation_id, payload, completed_at)
        SELECT gen_random_uuid(), 'ann', sha256('x'), '{status}', 1, 'c',
            CASE '{status}' WHEN 'PENDING' THEN '[]'::bytea END,
            CASE '{status}' WHEN 'COMPLETED' THEN clock_timestamp() END
        FROM generate_series(1, {number})"""
    )


def _fill(place: Place, until: int) -> None:
    """Add tasks, up to a number, as jobs would."""
    place.rows(
        f"""INSERT INTO {{schema}}.tasks (title, status, due_date, project, priority, job_id,
            created_by, search_text)
        SELECT 'task', (ARRAY['TODO', 'IN_PROGRESS', 'DONE'])[1 + n % 3], '2026-01-01'::date
            + (n % 365)::int, 'p' || n % 5, n % 4, gen_random_uuid(), 'ann', 'task'
        FROM generate_series((SELECT count(*) FROM {{schema}}.tasks) + 1, {until}) AS n"""
    )
    place.rows(
        """INSERT INTO {schema}.task_counts
        SELECT '', status, due_date, count(*) FROM {schema}.tasks WHERE due_date IS NOT NULL
        GROUP BY status, due_date
        ON CONFLICT (project, status, due_date) DO UPDATE SET count = excluded.count"""
    )


async def _blocks(connection: Any, place: Place, query: Any) -> int:
    """Return how many blocks a prepared query touches."""
    sql, values = query
    sql = sql.replace("{schema}", place.schema)
    for n in range(1, sql.count("%b") + 1):
        sql = sql.replace("%b", f"${n}", 1)
    await connection.execute(f"PREPARE q AS {sql.replace('%%', '%')}".encode(), prepare=False)
    literals = ", ".join(psycopg.sql.Literal(value).as_string() for value in values)
    call = f"EXECUTE q ({literals})" if values else "EXECUTE q"
    await connection.execute(b"BEGIN", prepare=False)
    cursor = await connection.execute(
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call}".encode(), prepare=False
    )
    [[[plan]]] = await cursor.fetchall()
    await connection.execute(b"ROLLBACK", prepare=False)
    await connection.execute(b"DEALLOCATE q", prepare=False)
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


# -- operations at once ---------------------------------------------------------------------------


@pytest.mark.rule("TASKS-91")
async def test_operations_at_once_never_wait_in_a_circle(place: Place) -> None:
    chance = random.Random(3)

    async def submit_and_complete(store: PostgresTaskStore) -> None:
        given = [
            task(project=f"p{chance.randrange(4)}", due_date=f"2026-01-{chance.randrange(10, 30)}")
            for _ in range(50)
        ]
        await store.submit_job(new_job(given), MAX_PENDING)
        claimed = await store.claim_job("me", 60_000, 3)
        if claimed is not None:
            await store.complete_job(claimed, tasks_of(claimed))

    async def change(store: PostgresTaskStore) -> None:
        ids = chance.sample(await find(store), 20)
        statuses = ("TODO", "IN_PROGRESS", "DONE")
        with_other_ids = [TaskUpdate(n, None, {"status": chance.choice(statuses)}) for n in ids]
        with suppress(TasksNotFoundError):
            await store.update_tasks(with_other_ids)

    async def one_of_them(store: PostgresTaskStore, n: int) -> None:
        for _ in range(4):
            if n % 4 == 0:
                await submit_and_complete(store)
            elif n % 4 == 1:
                await change(store)
            elif n % 4 == 2:
                await store.claim_tasks(15, None, f"w{n}", 900)
            else:
                await store.delete_tasks(chance.sample(await find(store), 5))

    async with place.opened() as one, place.opened() as other:
        await add(one, *tasks(200, project="p1"))
        for store in (one, other):
            store._connections.attempts = 1  # a deadlock is not repeated, but raised
        await asyncio.gather(*(one_of_them((one, other)[n % 2], n) for n in range(16)))
        summed = await recount(one)
        for project in {project for project, _ in summed}:
            summary = await one.summarize(project)
            for status, number in summary.count_by_status.items():
                assert summed.get((project, status), 0) == number
