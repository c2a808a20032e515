"""Notifications of what commits have changed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import Server
from foundation_rt.apps.task_server.changes import (
    MAX_RANGES,
    ResourceNotifier,
    is_changed,
    join_ranges,
    merge,
)
from foundation_rt.apps.task_server.store import Change
from foundation_rt.testing import TestClient

ranges = st.lists(
    st.tuples(st.integers(1, 60), st.integers(0, 9)).map(lambda each: (each[0], sum(each))),
    max_size=6,
).map(tuple)
changes = st.builds(
    Change, tasks=ranges, jobs=st.just(()), everything=st.booleans(), lists=st.booleans()
)
uris = ["task://all", "db://stats", *(f"task://{number}" for number in range(80))]


@pytest.mark.rule("TASKS-58")
@pytest.mark.parametrize(
    ("uri", "change", "changed"),
    [
        ("task://all", Change(), False),
        ("task://all", Change(tasks=((5, 7),)), True),
        ("task://all", Change(lists=True), True),
        ("db://stats", Change(jobs=("a",)), True),
        ("task://5", Change(tasks=((5, 7),)), True),
        ("task://7", Change(tasks=((1, 2), (5, 7))), True),
        ("task://8", Change(tasks=((5, 7),)), False),
        ("task://8", Change(everything=True), True),
        ("task://x", Change(everything=True), False),
        ("task://²", Change(everything=True), False),
        ("task://" + "9" * 10_000, Change(tasks=((1, 2**63),)), False),
        ("note://5", Change(everything=True), False),
    ],
)
def test_resources_of_a_change(uri: str, change: Change, changed: bool) -> None:
    assert is_changed(uri, change) is changed


@pytest.mark.rule("TASKS-58")
@given(changes, changes)
def test_two_changes_together_change_what_each_does(first: Change, second: Change) -> None:
    both = merge(first, second)
    for uri in uris:
        assert is_changed(uri, both) == (is_changed(uri, first) or is_changed(uri, second))
    assert both.lists == (first.lists or second.lists)


@pytest.mark.rule("TASKS-58")
@given(ranges)
def test_joined_ranges_are_apart(given: tuple[tuple[int, int], ...]) -> None:
    joined = join_ranges(given)
    assert {n for a, b in joined for n in range(a, b + 1)} == {
        n for a, b in given for n in range(a, b + 1)
    }
    assert all(b + 1 < c for (_, b), (c, _) in pairwise(joined))


def test_too_many_ranges_are_everything() -> None:
    many = tuple((n, n) for n in range(0, 2 * MAX_RANGES, 2))
    assert merge(Change(tasks=many), Change()).tasks == many
    more = merge(Change(tasks=many), Change(tasks=((10**6, 10**6),)))
    assert (more.everything, more.tasks) == (True, ())


@pytest.mark.rule("TASKS-58")
async def test_subscribers_are_notified_of_many_changes_at_once() -> None:
    server = Server("tasks")

    @server.resource("task://{id}")
    def show(id: int) -> str:
        return f"task {id}"

    async with TestClient(server) as client:
        await client.request("resources/subscribe", {"uri": "task://5"})
        notifier = ResourceNotifier(server)
        seen = []
        server_updated = server.resource_updated

        def note(uri: str, *, all_workers: bool) -> None:
            seen.append(uri)
            server_updated(uri, all_workers=all_workers)

        server.resource_updated = note  # type: ignore[assignment,method-assign]
        for number in range(1, 1001):
            notifier.note(Change(tasks=((number, number),)))
        assert seen == []
        notifier.close()
        assert seen == ["task://5"]
        notifier.note(Change(tasks=((5, 5),)))
        notifier.note(Change(tasks=((6, 6),)))
        notifier.close()
        assert seen == ["task://5"] * 2
