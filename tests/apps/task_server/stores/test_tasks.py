"""What every store does with tasks: their ids, changes, claims, deletion and counts."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from foundation_rt.apps.task_server.store import (
    TaskUpdate,
    VersionConflictError,
)
from foundation_rt.apps.task_server.tasks import Task
from tests.apps.task_server.stores.places import Make
from tests.apps.task_server.stores.support import (
    FUTURE,
    PAST,
    add,
    find,
    ids_of,
    opened,
    recount,
    stored,
    task,
    tasks,
)

# -- ids and values -------------------------------------------------------------------------------


@pytest.mark.rule("TASKS-71")
async def test_id_is_never_given_out_again(make: Make, make_other: Make) -> None:
    async with opened(make) as store:
        ids = ids_of(await add(store, *tasks(3)))
        assert ids == sorted(ids)
        await store.delete_tasks(ids)
    async with opened(make) as one, opened(make_other) as other:
        later = ids_of(await add(one, *tasks(2)))
        latest = ids_of(await add(other, *tasks(2)))
        assert ids[-1] < later[0] < later[1] < latest[0] < latest[1]


@pytest.mark.rule("TASKS-72", "TASKS-70")
@pytest.mark.parametrize(
    "wrong",
    [
        {"title": ""},
        {"title": " \t"},
        {"title": "x" * 256},
        {"title": None},
        {"description": "x" * 2001},
        {"status": "READY"},
        {"due_date": "tomorrow"},
        {"due_date": "2026-1-1"},
        {"due_date": "2026-02-30"},
        {"project": ""},
        {"project": "x" * 101},
        {"priority": 4},
        {"priority": -1},
    ],
)
async def test_tables_refuse_what_no_task_may_have(make: Make, wrong: dict[str, Any]) -> None:
    async with opened(make) as store:
        [first] = await add(store, task("first"))
        with pytest.raises(Exception):  # noqa: B017 - whatever the database says
            await store.update_tasks([TaskUpdate(first.id, None, wrong)])
        assert await stored(store, first.id) == first
        assert await recount(store) == {("default", "TODO"): 1}


@pytest.mark.rule("TASKS-72")
async def test_tables_take_what_is_just_within_the_limits(make: Make) -> None:
    largest = task(
        "\U0001f600" * 255,
        description="\u00df" * 2000,
        due_date="9999-12-31",
        project="\u0130" * 100,
        priority=3,
        status="IN_PROGRESS",
    )
    smallest = task(".", description="", due_date="0001-01-01", project=" ", priority=0)
    async with opened(make) as store:
        stored_tasks = await add(store, largest, smallest)
        assert [each[1:7] for each in stored_tasks] == [tuple(largest), tuple(smallest)]


async def test_unknown_task_is_none(make: Make) -> None:
    async with opened(make) as store:
        for unknown in (0, 1, -1, 2**63 - 1, 2**64):
            assert await store.get_task(unknown) is None


# -- updates --------------------------------------------------------------------------------------


@pytest.mark.rule("TASKS-78")
async def test_update_changes_what_it_names_and_raises_the_version(make: Make) -> None:
    async with opened(make) as store:
        one, two = await add(store, task("one", description="d", due_date=PAST), task("two"))
        members = {"title": "uno", "due_date": None, "priority": 3, "project": "p"}
        answer = await store.update_tasks(
            [TaskUpdate(two.id, 1, {}), TaskUpdate(one.id, None, members)]
        )
        assert answer == [(two.id, 2), (one.id, 2)]
        changed = await stored(store, one.id)
        assert changed == one._replace(
            title="uno",
            due_date=None,
            priority=3,
            project="p",
            version=2,
            updated_at=changed.updated_at,
        )
        assert changed.updated_at >= one.updated_at
        everything = {"description": None, "status": "DONE", "due_date": FUTURE}
        await store.update_tasks([TaskUpdate(one.id, 2, everything)])
        changed = await stored(store, one.id)
        assert (changed.description, changed.status, changed.due_date) == (None, "DONE", FUTURE)
        assert changed.version == 3


@pytest.mark.rule("TASKS-78")
async def test_one_of_two_updates_of_the_same_version_conflicts(
    make: Make, make_other: Make
) -> None:
    async with opened(make) as one, opened(make_other) as other:
        [first] = await add(one, task())
        answers = await asyncio.gather(
            *(
                store.update_tasks([TaskUpdate(first.id, 1, {"title": f"by {n}"})])
                for n, store in enumerate((one, other, one, other))
            ),
            return_exceptions=True,
        )
        assert sum(answer == [(first.id, 2)] for answer in answers) == 1
        assert sum(isinstance(answer, VersionConflictError) for answer in answers) == 3


# -- claims ---------------------------------------------------------------------------------------


@pytest.mark.rule("TASKS-78")
async def test_lease_of_an_update_extends_a_claim_and_makes_none(make: Make) -> None:
    async with opened(make) as store:
        await add(store, *tasks(2))
        [claimed] = await store.claim_tasks(1, None, "w", 0)
        free = (await find(store, status="TODO"))[0]
        await store.update_tasks(
            [
                TaskUpdate(claimed.id, None, {"status": "IN_PROGRESS"}, 900),
                TaskUpdate(free, None, {"status": "IN_PROGRESS"}, 900),
            ]
        )
        kept, by_hand = await stored(store, claimed.id), await stored(store, free)
        assert kept.claimed_by == "w"
        assert kept.claim_expires_at is not None
        assert claimed.claim_expires_at is not None
        assert kept.claim_expires_at > claimed.claim_expires_at
        assert (by_hand.claimed_by, by_hand.claim_expires_at) == (None, None)
        # One is claimed again, the other never was.
        assert await store.claim_tasks(2, None, "v", 900) == []


@pytest.mark.rule("TASKS-77")
async def test_claims_go_by_priority_due_date_and_id(make: Make) -> None:
    given = [
        task("low", priority=0, due_date=PAST),
        task("urgent, no date", priority=3),
        task("urgent, late", priority=3, due_date=FUTURE),
        task("high", priority=2),
        task("urgent, early", priority=3, due_date=PAST),
        task("urgent, early, later id", priority=3, due_date=PAST),
        task("done", priority=3, status="DONE"),
        task("by hand", priority=3, status="IN_PROGRESS"),
    ]
    async with opened(make) as store:
        await add(store, *given)
        claimed = [
            *await store.claim_tasks(2, None, "w", 900),
            *await store.claim_tasks(1, None, "w", 900),
            *await store.claim_tasks(9, None, "w", 900),
        ]
        assert [each.title for each in claimed] == [
            "urgent, early",
            "urgent, early, later id",
            "urgent, late",
            "urgent, no date",
            "high",
            "low",
        ]
        for each in claimed:
            assert (each.status, each.version, each.claimed_by) == ("IN_PROGRESS", 2, "w")
            assert each.claim_expires_at is not None
            assert _between(each.updated_at, each.claim_expires_at) == timedelta(seconds=900)
            assert await stored(store, each.id) == each
        assert await store.claim_tasks(1, None, "w", 900) == []


def _between(earlier: str, later: str) -> timedelta:
    return datetime.fromisoformat(later) - datetime.fromisoformat(earlier)


@pytest.mark.rule("TASKS-77")
async def test_task_is_claimed_by_one_worker(make: Make, make_other: Make) -> None:
    async with opened(make) as one, opened(make_other) as other:
        await add(one, *tasks(60))
        stores = (one, other)
        taken: list[Task] = []
        while answers := await asyncio.gather(
            *(stores[n % 2].claim_tasks(4, None, f"w{n}", 900) for n in range(6))
        ):
            if not any(answers):
                break
            taken += [each for answer in answers for each in answer]
        assert len(taken) == len(set(ids_of(taken))) == 60


# -- counts ---------------------------------------------------------------------------------------


@pytest.mark.rule("TASKS-73")
async def test_task_that_is_due_today_is_not_overdue(make: Make) -> None:
    def today() -> date:
        return datetime.now(UTC).date()

    async with opened(make) as store:
        before = today()
        await add(store, *(task(due_date=str(before + timedelta(days=n))) for n in (-1, 0, 1)))
        overdue = (await store.summarize()).overdue
        # At midnight the day may change between the two.
        assert overdue == 1 if today() == before else overdue in (1, 2)
