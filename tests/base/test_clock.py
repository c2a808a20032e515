"""The clocks: one format of timestamps, time that stands still on request."""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.clock import Clock, ManualClock, SystemClock
from tests.lab.waiting import block_until

TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def parsed(timestamp: str) -> datetime:
    assert TIMESTAMP.fullmatch(timestamp)
    return datetime.fromisoformat(timestamp)


def cut(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def stamped_within(clock: SystemClock) -> datetime:
    """One timestamp, which lies between two looks at the clock."""
    before = clock.now()
    stamped = parsed(clock.timestamp())
    assert cut(before) <= stamped <= clock.now()
    return stamped


@pytest.mark.rule("ID-05")
def test_system_timestamp_is_the_wall_clock_cut_to_milliseconds() -> None:
    clock = SystemClock()
    first = stamped_within(clock)
    # Over the turn of a second, and with that through numbers of milliseconds below 100.
    block_until(lambda: stamped_within(clock).second != first.second, "the next second")
    assert stamped_within(clock) > first


@pytest.mark.rule("ID-05")
def test_threads_that_share_a_clock_never_see_the_text_of_another_second() -> None:
    clock = SystemClock()
    first = clock.now()
    failures: list[BaseException] = []

    def watch() -> None:
        try:
            while stamped_within(clock).second == first.second:
                pass
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=watch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_system_clock_is_aware_and_in_utc() -> None:
    assert SystemClock().now().tzinfo is UTC


@pytest.mark.rule("ID-06")
def test_system_monotonic_never_goes_backwards() -> None:
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(1000)]
    assert readings == sorted(readings)


@pytest.mark.rule("ID-05", "ID-07")
def test_manual_clock_stands_still_until_advanced() -> None:
    clock = ManualClock()
    assert clock.timestamp() == clock.timestamp() == "2024-01-01T00:00:00.000Z"
    assert clock.monotonic() == 0
    clock.advance(1.2345)
    assert clock.timestamp() == "2024-01-01T00:00:01.234Z"
    assert clock.now() == datetime(2024, 1, 1, 0, 0, 1, 234500, tzinfo=UTC)
    assert clock.monotonic() == 1.2345
    clock.advance(0)
    assert clock.monotonic() == 1.2345


@pytest.mark.rule("ID-07")
def test_manual_clock_starts_where_it_is_told_in_any_time_zone() -> None:
    start = datetime(2024, 6, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert ManualClock(start).timestamp() == "2024-06-01T00:00:00.000Z"


@pytest.mark.rule("ID-07")
def test_manual_clock_refuses_a_start_without_time_zone_and_a_way_back() -> None:
    with pytest.raises(ValueError, match="time zone"):
        ManualClock(datetime(2024, 1, 1))
    with pytest.raises(ValueError, match="negative"):
        ManualClock().advance(-0.001)


@pytest.mark.rule("ID-05", "ID-07")
@given(st.lists(st.floats(min_value=0, max_value=1e6), max_size=5))
def test_manual_timestamp_and_now_agree(steps: list[float]) -> None:
    clock: Clock = ManualClock()
    assert isinstance(clock, ManualClock)
    for step in steps:
        clock.advance(step)
    assert parsed(clock.timestamp()) == cut(clock.now())
