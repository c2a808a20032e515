"""What only the store in SQLite promises: how much it reads of many tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.apps.task_server.queries import After, TaskFilter, TaskQuery
from foundation_rt.apps.task_server.stores.sqlite import SqliteTaskStore
from foundation_rt.apps.task_server.tasks import STATUSES, NewTask, SortKey
from foundation_rt.base.database.sqlite.committer import Committer
from tests.apps.task_server.stores.places import new_folder
from tests.apps.task_server.stores.support import PAST, add, opened, stored, task
from tests.lab.sizes import size

FEW, MANY = 2_000, size(20_000, 200_000)

Operation = Callable[[SqliteTaskStore], Awaitable[Any]]


@pytest.fixture(autouse=True)
def _all_reads_in_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the steps in the thread: a quick read has a progress handler of its own."""
    monkeypatch.setattr(Committer, "_read_here", lambda committer, operation: None)


def various(first: int, count: int) -> list[NewTask]:
    """Return tasks of all kinds, of which every 100 are alike."""
    return [
        task(
            f"task {n}",
            status=STATUSES[n % 3],
            due_date=None if n % 4 == 0 else f"2026-0{1 + n % 9}-1{n // 9 % 10}",
            project=f"p{n % 5}",
            priority=n % 4,
        )
        for n in range(first, first + count)
    ]


async def steps_of(store: SqliteTaskStore, operation: Operation) -> int:
    """Return how many instructions SQLite executes for an operation."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    def watch(connection: Any) -> None:
        connection.set_progress_handler(count, 1)

    def look_away(connection: Any) -> None:
        connection.set_progress_handler(None, 0)

    await operation(store)  # statements are prepared
    await store._database.read(watch)
    await operation(store)
    await store._database.read(look_away)
    return steps


def listing(
    sort: SortKey = "id", descending: bool = False, cursor: bool = False, **where: Any
) -> Operation:
    """Return an operation that lists 50 tasks."""

    async def operation(store: SqliteTaskStore) -> Any:
        after = None
        if cursor:
            last = await stored(store, 601)
            keys = {"id": None, "dueDate": last.due_date, "priority": last.priority}
            after = After(keys.get(sort, last.updated_at), last.id)
        query = TaskQuery(TaskFilter(**where), sort, descending, 50, after=after)
        page = await store.list_tasks(query)
        assert len(page.tasks) == 50
        assert page.total is not None
        return page

    return operation


OPERATIONS: dict[str, Operation] = {
    **{
        f"{sort} {'down' if descending else 'up'} {'cursor' if cursor else 'first'}": listing(
            sort, descending, cursor
        )
        for sort in ("id", "dueDate", "priority", "updatedAt")
        for descending in (False, True)
        for cursor in (False, True)
    },
    "status": listing(status="TODO"),
    "project": listing(project="p1", cursor=True),
    "project and status": listing(project="p1", status="DONE"),
    "offset": lambda store: store.list_tasks(TaskQuery(TaskFilter(), limit=50, offset=200)),
    "summary": lambda store: store.summarize(),
    "summary of a project": lambda store: store.summarize("p1"),
    "task": lambda store: store.get_task(500),
    "claim": lambda store: store.claim_tasks(3, None, "w", 900),
    "claim of a project": lambda store: store.claim_tasks(3, "p1", "w", 900),
    "claim again": lambda store: store.claim_tasks(3, "p2", "w", 0),
    "job": lambda store: store.get_job("00000000-0000-4000-8000-00000000ffff"),
    "no job": lambda store: store.claim_job("me", 1000, 3),
}


@contextmanager
def file() -> Iterator[Path]:
    with new_folder() as folder:
        yield Path(folder) / "tasks.db"


@pytest.mark.rule("TASKS-73", "TASKS-75", "TASKS-77")
async def test_operations_read_no_more_of_many_tasks_than_of_few() -> None:
    with file() as path:
        async with opened(lambda: SqliteTaskStore(path)) as opened_store:
            store: Any = opened_store
            store.few = 100  # so that few tasks of a kind are many
            await add(store, *various(0, FEW))
            before = {name: await steps_of(store, each) for name, each in OPERATIONS.items()}
            for first in range(FEW, MANY, 5_000):
                await add(store, *various(first, min(5_000, MANY - first)))
            after = {name: await steps_of(store, each) for name, each in OPERATIONS.items()}
    assert min(before.values()) > 20  # SQLite has counted them
    # A tree is one level deeper, and there are some jobs more.
    grown = {n: (before[n], after[n]) for n in before if after[n] > 1.2 * before[n] + 60}
    assert grown == {}


@pytest.mark.rule("TASKS-75")
async def test_descending_list_of_rare_tasks_costs_about_what_the_ascending_one_does() -> None:
    with file() as path:
        async with opened(lambda: SqliteTaskStore(path)) as opened_store:
            store: Any = opened_store
            store.few = 0
            day = date(2026, 1, 1).toordinal()
            await add(
                store, *(task(due_date=str(date.fromordinal(day + n))) for n in range(3 * FEW))
            )
            rare = TaskFilter(words=("rare",), due_after=PAST)
            ascending, descending = [
                await steps_of(
                    store, lambda each, down=down: each.list_tasks(TaskQuery(rare, "dueDate", down))
                )
                for down in (False, True)
            ]
            assert descending < 2 * ascending


@pytest.mark.rule("TASKS-76")
async def test_total_of_a_list_on_one_page_is_not_counted_again() -> None:
    with file() as path:
        async with opened(lambda: SqliteTaskStore(path)) as opened_store:
            store: Any = opened_store
            await add(store, *various(0, FEW))
            once = await steps_of(
                store,
                lambda each: each.list_tasks(TaskQuery(TaskFilter(words=("x",)), count=False)),
            )
            counted = await steps_of(
                store, lambda each: each.list_tasks(TaskQuery(TaskFilter(words=("x",))))
            )
            assert counted <= once + 60
