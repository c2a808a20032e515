"""Cron expressions in time zones, where clocks are changed as well."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.agents.ledger.cron import cron_recurrence
from foundation_rt.errors import UsageError
from tests.lab.programs.program import run_source


def times(expression: str, zone: str, start: str, number: int) -> list[str]:
    """Return the next times after one in UTC, in UTC."""
    begin = datetime.fromisoformat(start).replace(tzinfo=UTC)
    found = cron_recurrence(expression, zone).after(int(begin.timestamp()) * 1000)
    return [
        datetime.fromtimestamp(each / 1000, UTC).strftime("%m-%d %H:%M")
        for each in islice(found, number)
    ]


@pytest.mark.rule("AACP-141")
def test_expression_is_in_the_time_of_its_zone() -> None:
    assert times("0 6 * * *", "UTC", "2026-11-26", 2) == ["11-26 06:00", "11-27 06:00"]
    assert times("0 6 * * *", "Europe/Berlin", "2026-11-26", 1) == ["11-26 05:00"]
    assert times("0 6 * * *", "Asia/Kolkata", "2026-11-26", 1) == ["11-26 00:30"]
    assert times("30 6 * * 1-5", "UTC", "2026-11-27 07:00", 1) == ["11-30 06:30"]


# In Berlin 3 o'clock follows 1:59 on 29 March 2026, and 2 o'clock comes again on 25 October.


@pytest.mark.rule("AACP-146")
def test_fixed_time_that_is_skipped_is_after_the_gap() -> None:
    daily = times("30 2 * * *", "Europe/Berlin", "2026-03-28", 3)
    assert daily == ["03-28 01:30", "03-29 01:00", "03-30 00:30"]
    # Two that fall on the same time are one.
    twice = times("0,30 2 * * *", "Europe/Berlin", "2026-03-29", 2)
    assert twice == ["03-29 01:00", "03-30 00:00"]


@pytest.mark.rule("AACP-146")
def test_fixed_time_that_comes_twice_is_the_first() -> None:
    daily = times("30 2 * * *", "Europe/Berlin", "2026-10-24", 3)
    assert daily == ["10-24 00:30", "10-25 00:30", "10-26 01:30"]
    # Also for who looks between the two.
    assert times("30 2 * * *", "Europe/Berlin", "2026-10-25 01:10", 1) == ["10-26 01:30"]


@pytest.mark.rule("AACP-146")
def test_every_hour_follows_the_time_that_passes() -> None:
    spring = times("30 * * * *", "Europe/Berlin", "2026-03-29", 3)
    assert spring == ["03-29 00:30", "03-29 01:30", "03-29 02:30"]
    autumn = times("*/30 * * * *", "Europe/Berlin", "2026-10-24 23:59", 5)
    assert autumn == ["10-25 00:00", "10-25 00:30", "10-25 01:00", "10-25 01:30", "10-25 02:00"]


EXPRESSIONS = (
    "0 6 * * *",
    "30 2 * * *",
    "0,30 2,3 * * *",
    "*/15 * * * *",
    "15 */6 * * *",
    "5 4 1 * *",
    "0 0 * * SUN",
    "0 12 L * *",
    "59 1-3 * * *",
)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Chatham")


@pytest.mark.rule("AACP-140", "AACP-146")
@given(
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(ZONES),
    st.datetimes(datetime(2024, 1, 1), datetime(2027, 1, 1)),
    st.integers(0, 20),
)
def test_times_grow_and_do_not_depend_on_when_one_begins_to_look(
    expression: str, zone: str, begin: datetime, skipped: int
) -> None:
    recurrence = cron_recurrence(expression, zone)
    start_ms = int(begin.replace(tzinfo=UTC).timestamp()) * 1000
    found = list(islice(recurrence.after(start_ms), 30))
    assert all(a < b for a, b in zip([start_ms, *found], found, strict=False))
    assert all(at_ms % 60_000 == 0 for at_ms in found)
    assert list(islice(recurrence.after(found[skipped]), 5)) == found[skipped + 1 : skipped + 6]
    assert list(islice(recurrence.after(found[skipped] - 1000), 5)) == found[skipped : skipped + 5]


@given(st.integers(0, 23), st.integers(0, 59), st.sampled_from(ZONES))
def test_daily_time_is_found_where_clocks_are_not_changed(
    hour: int, minute: int, zone: str
) -> None:
    begin = datetime(2026, 6, 1, tzinfo=ZoneInfo(zone))
    found = next(
        cron_recurrence(f"{minute} {hour} * * *", zone).after(int(begin.timestamp()) * 1000)
    )
    at = datetime.fromtimestamp(found / 1000, ZoneInfo(zone))
    assert (at.hour, at.minute) == (hour, minute)
    assert timedelta(0) < at - begin <= timedelta(days=1)


@pytest.mark.rule("AACP-141")
@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("61 * * * *", "bad minute"),
        ("* * * *", "wrong number of fields"),
        ("@daily", "wrong number of fields"),
        ("", "wrong number of fields"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("*" * 300, "at most 200"),
    ],
)
def test_wrong_expression_is_refused_in_words(expression: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        cron_recurrence(expression, "UTC")


@pytest.mark.rule("AACP-141")
@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "/etc/passwd", "../UTC", "Europe", "\0"])
def test_unknown_zone_is_refused_in_words(zone: str) -> None:
    with pytest.raises(UsageError, match="there is no time zone"):
        cron_recurrence("0 6 * * *", zone)


@pytest.mark.rule("AACP-141")
def test_library_is_imported_by_the_first_schedule_only_and_the_error_names_the_extra() -> None:
    script = """
import sys
sys.modules["cronsim"] = None
from foundation_rt.agents import AgentCoordinatorV2
from foundation_rt.errors import MissingExtraError
agents = AgentCoordinatorV2()
assert "foundation_rt.agents.ledger.cron" not in sys.modules
try:
    agents.every("0 6 * * *", "clerk", {})
except MissingExtraError as error:
    print(error.extra, error)
"""
    done = run_source(script)
    assert done.stdout.startswith("schedules ")
    assert "foundation-rt[schedules]" in done.stdout
