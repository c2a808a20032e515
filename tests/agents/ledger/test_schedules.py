"""What is due, what was missed, and what becomes of the record: functions over values."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.agents.ledger.ownership import is_request_id
from foundation_rt.agents.ledger.schedules import (
    MAX_MISSED,
    MAX_NAME,
    ON_TIME_MS,
    Advance,
    MissedRuns,
    Schedule,
    advanced,
    decide,
    default_name,
    latest_runs,
    replaced,
    run_id,
)

NOW = 1_700_000_000_000


@frozen
class Listed:
    """The times of a list."""

    times: list[int]
    asked: list[int]

    def after(self, at_ms: int) -> Iterator[int]:
        for time_ms in self.times:
            if time_ms > at_ms:
                self.asked.append(time_ms)
                yield time_ms


@frozen
class EveryMs:
    """A time every so many ms; `asked` counts those that were looked at."""

    period_ms: int
    asked: list[int]

    def after(self, at_ms: int) -> Iterator[int]:
        at_ms = (at_ms // self.period_ms + 1) * self.period_ms
        while True:
            self.asked.append(at_ms)
            yield at_ms
            at_ms += self.period_ms


def schedule(missed: MissedRuns = MissedRuns.ONCE, since_ms: int = NOW, **more: object) -> Schedule:
    made = Schedule("daily", "0 6 * * *", "UTC", "clerk", b"{}", missed, 1000, NOW)
    return evolve(made, decided_until_ms=since_ms, **more)


# Seconds before now, up to ten minutes: on both sides of the limit.
ages = st.sets(st.integers(0, 600), max_size=200)


@pytest.mark.rule("AACP-144", "AACP-145")
@given(ages, st.integers(0, 700), st.sampled_from(MissedRuns))
def test_decision_is_that_of_the_rule(ages: set[int], since_s: int, missed: MissedRuns) -> None:
    times = sorted(NOW - age * 1000 for age in ages)
    later = [NOW + 1000, NOW + 5000]
    since_ms = NOW - since_s * 1000
    decision = decide(schedule(missed, since_ms), Listed(times + later, []), NOW)
    due = [at_ms for at_ms in times if at_ms > since_ms]
    late = [at_ms for at_ms in due if at_ms <= NOW - ON_TIME_MS]
    on_time = [at_ms for at_ms in due if at_ms > NOW - ON_TIME_MS]
    made_up = {"once": late[-1:], "all": late[-MAX_MISSED:], "none": []}[missed]
    assert decision.runs == made_up + on_time
    assert decision.missed == bool(late)
    assert decision.until_ms == (due[-1] if due else since_ms)
    assert decision.next_run_at_ms == min(at for at in times + later if at > decision.until_ms)


@pytest.mark.rule("AACP-144")
@given(ages, st.lists(st.integers(0, 300), max_size=8), st.sampled_from(MissedRuns))
def test_no_run_is_decided_twice(ages: set[int], pauses: list[int], missed: MissedRuns) -> None:
    times = sorted(NOW + age * 1000 for age in ages)
    now_ms, current, entered = NOW, schedule(missed), []
    for pause in pauses:
        now_ms += pause * 1000
        decision = decide(current, Listed(times, []), now_ms)
        entered += decision.runs
        assert all(at_ms <= now_ms for at_ms in decision.runs)
        current = evolve(current, decided_until_ms=decision.until_ms)
    assert entered == sorted(set(entered))
    if missed is MissedRuns.ALL and len(ages) <= MAX_MISSED:
        assert entered == list(
            takewhile(lambda at_ms: at_ms <= now_ms, (t for t in times if t > NOW))
        )


@pytest.mark.rule("AACP-145")
@pytest.mark.parametrize("missed", MissedRuns)
def test_work_after_years_is_bounded(missed: MissedRuns) -> None:
    every_second = EveryMs(1_000, [])
    since_ms = NOW - 10 * 365 * 86_400_000  # 315,360,000 runs
    decision = decide(schedule(missed, since_ms), every_second, NOW)
    assert len(decision.runs) == {"once": 61, "all": 60 + MAX_MISSED, "none": 60}[missed]
    assert decision.runs[-1] == NOW
    assert len(every_second.asked) < 30_000


@given(
    st.sets(st.integers(1, 100_000), max_size=300),
    st.integers(0, 100_000),
    st.integers(0, 100_000),
    st.integers(1, 40),
)
def test_latest_runs_are_the_last_of_all(
    seconds: set[int], after_s: int, until_s: int, most: int
) -> None:
    times = sorted(NOW + each * 1000 for each in seconds)
    after_ms, until_ms = NOW + after_s * 1000, NOW + until_s * 1000
    wanted = [at_ms for at_ms in times if after_ms < at_ms <= until_ms]
    assert latest_runs(Listed(times, []), after_ms, until_ms, most) == wanted[-most:]


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.rule("AACP-143")
def test_id_of_a_run_says_when_it_is() -> None:
    assert run_id("daily", 1_795_672_800_000) == "every:daily:2026-11-26T06:00Z"
    assert run_id("fast", 1_795_672_810_000) == "every:fast:2026-11-26T06:00:10Z"
    assert is_request_id(run_id("n" * MAX_NAME, 1_795_672_810_000))


@pytest.mark.rule("AACP-141")
def test_default_name_differs_for_different_expressions() -> None:
    expressions = ["0 6 * * *", "0 6 * * 1", "*/5 6 * * *", "0-5 6 * * *", "0,5 6 * * *"]
    expressions += ["0 6 * * MON#1", "0 6 L * *", "0 6 1 * *", "0 0 6 * * *", "05 6 * * *"]
    names = {default_name("clerk", each) for each in expressions}
    assert len(names) == len(expressions)
    assert None not in names
    assert default_name("clerk", "0  6 * * mon") == default_name("clerk", "0 6 * * MON")
    assert default_name("clerk", "0 6 * * *") == "clerk:0_6_x_x_x"
    assert default_name("Frau Müller", "0 6 * * *") is None


# -- the record -----------------------------------------------------------------------------------


@pytest.mark.rule("AACP-142")
def test_same_schedule_changes_nothing() -> None:
    existing = schedule(revision=3, last_run_at_ms=NOW - 5, next_run_at_ms=NOW + 5)
    again = schedule(since_ms=NOW + 1000, next_run_at_ms=NOW + 6000)
    assert replaced(existing, again) == existing


@pytest.mark.rule("AACP-142")
def test_other_expression_begins_anew_and_other_content_goes_on() -> None:
    existing = schedule(since_ms=NOW - 500, next_run_at_ms=NOW - 100, last_run_at_ms=NOW - 500)
    later = schedule(since_ms=NOW, next_run_at_ms=NOW + 900, payload=b"2")
    content = replaced(existing, later)
    assert (content.decided_until_ms, content.next_run_at_ms) == (NOW - 500, NOW - 100)
    assert (content.payload, content.revision) == (b"2", 1)
    for changed in ({"expression": "1 6 * * *"}, {"timezone": "Asia/Tokyo"}):
        other = replaced(existing, evolve(later, **changed))
        assert (other.decided_until_ms, other.next_run_at_ms) == (NOW, NOW + 900)
        assert (other.revision, other.last_run_at_ms) == (1, NOW - 500)


@pytest.mark.rule("AACP-140")
def test_advance_counts_only_for_the_schedule_that_was_read() -> None:
    existing = schedule(revision=2)
    advance = Advance("daily", 2, NOW, NOW + 60, NOW + 120, "clerk", [])
    moved = advanced(existing, advance)
    assert moved is not None
    assert (moved.decided_until_ms, moved.next_run_at_ms) == (NOW + 60, NOW + 120)
    assert advanced(moved, advance) is None  # a repetition, or another process
    assert advanced(evolve(existing, revision=3), advance) is None
    assert advanced(None, advance) is None
