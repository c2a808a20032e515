"""The history of events."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from foundation_rt.apps.dev.journal import Journal

pytestmark = pytest.mark.rule("DEV-21")


def numbers(journal: Journal, after: int) -> list[int]:
    return [each.number for each in journal.after(after)]


def test_old_events_make_room_for_new_ones() -> None:
    journal = Journal(max_events=3, max_bytes=10_000)
    for number in range(5):
        journal.add("log", {"number": number})
    assert (journal.first, journal.last) == (3, 5)
    assert numbers(journal, 0) == [3, 4, 5]
    assert numbers(journal, 4) == [5]
    assert numbers(journal, 5) == []
    assert numbers(journal, 99) == []


def test_bytes_are_bounded_and_the_latest_event_is_kept() -> None:
    journal = Journal(max_events=100, max_bytes=1_000)
    for _ in range(10):
        journal.add("log", {"message": "x" * 300})
    assert len(numbers(journal, 0)) <= 3
    journal.add("log", {"message": "x" * 5_000})
    assert numbers(journal, 0) == [11]


@pytest.mark.parametrize("value", ["\ud800", 1 << 70, {1: object()}, float("nan"), b"x"])
def test_event_of_any_values_is_json(value: object) -> None:
    journal = Journal()
    journal.add("wire", {"id": value})
    (event,) = journal.after(0)
    assert isinstance(orjson.loads(event.data), dict)
    assert b"\n" not in event.data


@pytest.mark.parametrize(
    "wrong", [None, "", "7", "other-1", "-1", "{0}-", "{0}-x", "{0}--1", "{0}-9", "{0}-" + "9" * 99]
)
def test_position_of_a_wrong_id_is_none(wrong: str | None) -> None:
    journal = Journal()
    journal.add("log", {})
    assert journal.position(wrong and wrong.format(journal.instance)) is None


def test_position_that_has_left_the_history_is_none() -> None:
    journal = Journal(max_events=2)
    journal.add("log", {})
    first = journal.event_id(1)
    assert journal.position(first) == 1
    journal.add("log", {})
    journal.add("log", {})
    assert journal.position(first) == 1  # nothing after it is missing
    journal.add("log", {})
    assert journal.position(first) is None


async def test_readers_wait_for_events_and_changes_of_the_state() -> None:
    journal = Journal()
    waiting = asyncio.create_task(journal.changed(30))
    await asyncio.sleep(0)
    journal.wake()
    await waiting
    waiting = asyncio.create_task(journal.changed(30))
    await asyncio.sleep(0)
    journal.add("log", {})
    await waiting
    waiting = asyncio.create_task(journal.changed(30))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    journal.add("log", {})
