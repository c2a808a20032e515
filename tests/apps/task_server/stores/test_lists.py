"""What every store lists: conditions, orders, pages and totals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from foundation_rt.apps.task_server import queries
from foundation_rt.apps.task_server.queries import After, TaskFilter, TaskPage, TaskQuery
from foundation_rt.apps.task_server.store import TaskServerStore
from foundation_rt.apps.task_server.tasks import SortKey, Task
from tests.apps.task_server.stores.places import PLACES_OF_LISTS, Database, Make
from tests.apps.task_server.stores.support import (
    FUTURE,
    PAST,
    add,
    change,
    find,
    ids_of,
    opened,
    stored,
    task,
    tasks,
)

SORTS: tuple[SortKey, ...] = ("id", "dueDate", "priority", "updatedAt")


@pytest.fixture(params=PLACES_OF_LISTS)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """Yield an empty database, of one kind for each way to read lists."""
    with PLACES_OF_LISTS[request.param]() as database:
        yield database


_KEYS = {"dueDate": "due_date", "priority": "priority", "updatedAt": "updated_at"}


def key_of(task: Task, sort: SortKey) -> Any:
    """Return the key of a task by a sort, as a cursor has it."""
    return None if sort == "id" else getattr(task, _KEYS[sort])


async def pages(store: TaskServerStore, query: TaskQuery) -> list[TaskPage]:
    """Return all pages of a list, each continued behind the one before."""
    found = [await store.list_tasks(query)]
    while found[-1].has_more:
        last = found[-1].tasks[-1]
        after = After(key_of(last, query.sort), last.id)
        found.append(
            await store.list_tasks(
                TaskQuery(query.where, query.sort, query.descending, query.limit, after=after)
            )
        )
    return found


@pytest.mark.rule("TASKS-74")
async def test_list_has_the_tasks_that_meet_every_condition(make: Make) -> None:
    async with opened(make) as store:
        one, two, three, four = await add(
            store,
            task("one", project="p", due_date="2026-01-01"),
            task("two", project="p", status="DONE", due_date="2026-01-02"),
            task("three", project="q", due_date="2026-01-03"),
            task("four", project="q"),
        )
        [five] = await add(store, task("five", project="q", priority=3))
        [claimed] = await store.claim_tasks(1, None, "w", 0)
        assert claimed.id == five.id
        everything = [one.id, two.id, three.id, four.id, five.id]
        assert await find(store) == everything
        assert await find(store, status="DONE") == [two.id]
        assert await find(store, project="p") == [one.id, two.id]
        assert await find(store, project="P") == []
        assert await find(store, project="p", status="TODO") == [one.id]
        assert await find(store, job_id=one.job_id) == everything[:4]
        assert await find(store, ids=(five.id, 2**63 - 1, one.id)) == [one.id, five.id]
        assert await find(store, ids=(five.id, one.id), project="p") == [one.id]
        assert await find(store, ids=()) == []
        assert await find(store, claimed_by="w") == [five.id]  # also when its claim has ended
        assert await find(store, claimed_by="v") == []
        assert await find(store, due_before="2026-01-02") == [one.id]
        assert await find(store, due_after="2026-01-02") == [three.id]
        assert await find(store, due_after="2026-01-01", due_before="2026-01-03") == [two.id]
        assert await find(store, due_after="2026-01-01", due_before=FUTURE, project="q") == [
            three.id
        ]
        assert await find(store, updated_after=claimed.updated_at) == []


@pytest.mark.rule("TASKS-74")
async def test_list_of_what_was_changed_after_a_time(make: Make) -> None:
    async with opened(make) as store:
        one, two = ids_of(await add(store, *tasks(2)))
        before = (await stored(store, one)).updated_at
        while (await stored(store, two)).updated_at == before:  # until the clock has moved on
            await change(store, two)
        assert await find(store, updated_after=before) == [two]
        assert await find(store, updated_after="2000-01-01T00:00:00.000Z") == [one, two]
        assert await find(store, updated_after=(await stored(store, two)).updated_at) == []


@pytest.mark.rule("TASKS-74")
async def test_words_are_found_case_folded_in_title_or_description(make: Make) -> None:
    given = {
        "straße": task("Straße", description="nach GÖTEBORG"),
        "percent": task("100% sure", description="a_b\\c"),
        "greek": task("ΣΊΣΥΦΟΣ"),
        "turkish": task("İstanbul"),
        "combining": task("Cafe\u0301", description="a cr\u00eape"),
        "apart": task("one", description="two"),
    }
    async with opened(make) as store:
        titles = dict(zip(ids_of(await add(store, *given.values())), given, strict=True))

        async def named(*words: str) -> list[str]:
            return [titles[task_id] for task_id in await find(store, words=words)]

        assert await named("CAF\u00c9", "cre\u0302pe") == ["combining"]
        assert await named("STRASSE") == ["straße"]
        assert await named("göte", "aße") == ["straße"]
        assert await named("göte", "two") == []
        assert await named("%") == ["percent"]
        assert await named("0%_") == []
        assert await named("a_b") == ["percent"]
        assert await named("A_B\\C") == ["percent"]
        assert await named("σίσυφος") == ["greek"]
        assert await named("İSTANBUL") == ["turkish"]
        assert await named("two", "ONE") == ["apart"]
        assert await named("onetwo") == []
        await change(store, next(iter(titles)), title="renamed", description=None)
        assert await named("STRASSE") == []
        assert await named("renamed") == ["straße"]


@pytest.mark.rule("TASKS-75")
@pytest.mark.parametrize(("descending", "most_keys"), [(False, 100), (True, 100), (True, 1)])
async def test_list_is_sorted_and_each_page_continues_the_one_before(
    make: Make, monkeypatch: pytest.MonkeyPatch, descending: bool, most_keys: int
) -> None:
    for module in ("postgres.lists", "sqlite.listing"):
        monkeypatch.setattr(f"foundation_rt.apps.task_server.stores.{module}.MOST_KEYS", most_keys)
    dates = (None, PAST, "2026-01-01", FUTURE, None, PAST, "2026-01-01", None)
    async with opened(make) as store:
        await add(
            store,
            *(
                task(f"{n}", due_date=due, priority=n % 4, project="pq"[n % 2])
                for n, due in enumerate(dates)
            ),
        )
        await add(store, task("later", due_date=PAST, priority=0, project="p"))
        for task_id in (2, 5):
            await change(store, task_id, description="changed")
        for where in (
            TaskFilter(),
            TaskFilter(project="p"),
            TaskFilter(status="TODO"),
            TaskFilter(project="q", status="TODO"),
            TaskFilter(due_after="1999-01-01"),
            TaskFilter(ids=tuple(range(9, 1, -1))),
        ):
            everything = (await store.list_tasks(TaskQuery(where))).tasks
            for sort in SORTS:
                await _is_sorted(store, where, sort, descending, everything)


async def _is_sorted(
    store: TaskServerStore,
    where: TaskFilter,
    sort: SortKey,
    descending: bool,
    everything: list[Task],
) -> None:
    expected = ids_of(in_order(everything, sort, descending))
    for limit in (1, 3, 100):
        query = TaskQuery(where, sort, descending, limit)
        found = await pages(store, query)
        assert [task_id for page in found for task_id in ids_of(page)] == expected
        assert {page.total for page in found} == {len(expected)}
    for offset in range(len(expected) + 2):
        page = await store.list_tasks(TaskQuery(where, sort, descending, 3, offset))
        assert ids_of(page) == expected[offset : offset + 3]
        assert page.has_more == (offset + 3 < len(expected))


def in_order(tasks: list[Task], sort: SortKey, descending: bool) -> list[Task]:
    """Return tasks by a key, those without one last, equal keys by ascending id."""
    if sort == "id":
        return sorted(tasks, key=lambda each: each.id, reverse=descending)
    with_key = [each for each in tasks if key_of(each, sort) is not None]
    # Sorting keeps the order of equal keys, also in reverse.
    with_key.sort(key=lambda each: each.id)
    with_key.sort(key=lambda each: key_of(each, sort), reverse=descending)
    return with_key + sorted(
        (each for each in tasks if key_of(each, sort) is None), key=lambda each: each.id
    )


@pytest.mark.rule("TASKS-76")
async def test_total_that_is_counted_is_exact_up_to_a_bound(make: Make) -> None:
    assert queries.EXACT_TOTAL == 10_000
    async with opened(make) as store:
        for n in range(2):
            await add(store, *tasks(5000, description="many", project=f"p{n}"))
        many = TaskFilter(words=("MANY",))
        assert _total(await store.list_tasks(TaskQuery(many, limit=1))) == (10_000, False)
        await add(store, *tasks(3, description="many", due_date=PAST))
        assert _total(await store.list_tasks(TaskQuery(many, limit=1))) == (10_000, True)
        last = After(None, 10_002)
        page = await store.list_tasks(TaskQuery(many, limit=1, after=last))
        assert _total(page) == (10_000, True)  # of all pages, not of those that are left
        assert ids_of(page) == [10_003]
        few = TaskFilter(words=("many",), project="p1")
        assert _total(await store.list_tasks(TaskQuery(few))) == (5000, False)
        # The counts know these, however many there are.
        for where, total in (
            (TaskFilter(), 10_003),
            (TaskFilter(status="TODO"), 10_003),
            (TaskFilter(status="DONE"), 0),
            (TaskFilter(project="p1"), 5000),
            (TaskFilter(project="p1", status="TODO"), 5000),
            (TaskFilter(due_before=FUTURE), 3),
            (TaskFilter(due_after=PAST), 0),
            (TaskFilter(due_after="1999-01-01", project="p1"), 0),
            (TaskFilter(due_after="1999-01-01", due_before=FUTURE, status="TODO"), 3),
        ):
            assert _total(await store.list_tasks(TaskQuery(where, limit=1))) == (total, False)


def _total(page: TaskPage) -> tuple[int | None, bool]:
    return page.total, page.total_is_lower_bound


@pytest.mark.rule("TASKS-76")
async def test_total_is_left_out_if_nobody_asks(make: Make) -> None:
    async with opened(make) as store:
        await add(store, *tasks(3))
        page = await store.list_tasks(TaskQuery(TaskFilter(), limit=2, count=False))
        assert _total(page) == (None, False)
        assert page.has_more
