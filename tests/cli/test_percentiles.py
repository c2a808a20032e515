"""Percentiles by nearest rank."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.cli.commands import percentiles

TIMES = st.lists(st.floats(0, 1e6), min_size=1, max_size=300)


@pytest.mark.rule("CLI-29")
@pytest.mark.parametrize(
    ("times", "found"),
    [
        ([7.0], [7.0, 7.0, 7.0, 7.0, 7.0]),
        ([2.0, 1.0], [1.0, 1.0, 2.0, 2.0, 2.0]),
        ([float(each) for each in range(100, 0, -1)], [1.0, 50.0, 95.0, 99.0, 100.0]),
        ([float(each) for each in range(1, 21)], [1.0, 10.0, 19.0, 20.0, 20.0]),
    ],
)
def test_percentiles_are_by_nearest_rank(times: list[float], found: list[float]) -> None:
    names = ["min", "p50", "p95", "p99", "max"]
    assert percentiles(times) == dict(zip(names, found, strict=True))


@pytest.mark.rule("CLI-29")
def test_no_times_have_no_percentiles() -> None:
    assert percentiles([]) == {}


@pytest.mark.rule("CLI-29")
@given(TIMES)
def test_percentile_is_a_measured_time_and_covers_its_share(times: list[float]) -> None:
    found = percentiles(times)
    assert list(found.values()) == sorted(found.values())
    for name, share in (("p50", 50), ("p95", 95), ("p99", 99)):
        assert found[name] in times
        assert sum(each <= found[name] for each in times) * 100 >= share * len(times)
        assert sum(each < found[name] for each in times) * 100 < share * len(times)
