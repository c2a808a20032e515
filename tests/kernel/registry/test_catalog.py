"""Catalogs: consistent pages, encoded entries, observers, threads."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest
from attrs import define
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.cursors import InvalidCursor
from foundation_rt.kernel.registry.catalog import ChangeNotifier, Registry
from foundation_rt.protocol.revisions import REVISIONS, Revision
from tests.lab.servers.core import ListObserver

OLDEST, *_, NEWEST = REVISIONS.values()


@define(eq=False)
class Thing:
    """Something to be listed; counts how often it was written."""

    name: str
    written: int = 0
    scopes: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    visible: None = None
    reserved: bool = False

    @property
    def names(self) -> tuple[str]:
        return (self.name,)

    def wire(self, revision: Revision) -> dict[str, Any]:
        self.written += 1
        return {"name": self.name, "revision": revision.name}


def make_table(*names: str) -> Registry[Thing]:
    table: Registry[Thing] = Registry(ChangeNotifier("things"))
    for name in names:
        assert table.put(name, Thing(name))
    return table


def whole(table: Registry[Thing], size: int, revision: Revision = NEWEST) -> list[str]:
    names, cursor = [], None
    while True:
        fragments, cursor = table.page(cursor, size, revision)
        names += [each["name"] for each in orjson.loads(orjson.dumps(fragments))]
        if cursor is None:
            return names


@given(st.sets(st.text("ab/é", max_size=3), max_size=12), st.integers(1, 5))
def test_all_pages_together_are_the_list_in_order(names: set[str], size: int) -> None:
    table = make_table(*names)
    assert whole(table, size) == sorted(names)
    assert [thing.name for thing in table.entries()] == sorted(names)
    assert table.was_used == bool(names)
    for name in names:
        assert table.drop(name)
    assert table.was_used == bool(names)


def test_unknown_cursor_is_refused() -> None:
    with pytest.raises(InvalidCursor):
        make_table("a").page("a", 1, NEWEST)


def test_entry_is_encoded_once_for_each_revision() -> None:
    table = make_table("a", "b")
    for _ in range(3):
        whole(table, 1)
        assert whole(table, 5, OLDEST) == ["a", "b"]
    assert [thing.written for thing in table.entries()] == [2, 2]


def test_taken_key_is_kept_and_removed_key_is_free() -> None:
    table = make_table("a")
    first = table.get("a")
    assert not table.put("a", Thing("other"))
    assert table.get("a") is first
    assert whole(table, 1) == ["a"]
    assert table.drop("a")
    assert not table.drop("a")
    assert table.get("a") is None
    assert table.entries() == ()
    assert table.put("a", Thing("new"))
    assert whole(table, 1) == ["new"]


@pytest.mark.rule("MRES-12", "PROMPT-07")
def test_observer_is_notified_of_the_kind_while_it_lives() -> None:
    notifier = ChangeNotifier("things")
    observer = ListObserver()
    notifier.observe(observer)
    notifier.notify()
    assert observer.notified == ["things"]
    del observer
    gc.collect()
    notifier.notify()


@pytest.mark.rule("MRES-12")
def test_lists_and_changes_in_many_threads() -> None:
    table = make_table("always")

    def change(number: int) -> None:
        for turn in range(50):
            name = f"{number}-{turn}"
            assert table.put(name, Thing(name))
            assert "always" in whole(table, 7)
            assert table.get(name) is not None
            assert table.drop(name)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(4)))
    assert whole(table, 3) == ["always"]
