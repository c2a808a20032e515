"""The numbers of `top`: samples, and what happened between two."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from foundation_rt.cli.top_samples import (
    WINDOW_SECONDS,
    CallNumbers,
    LoadSample,
    SampleWindow,
    sample_of_metrics,
    state_of_health,
)

BOUNDS = (0.001, 0.01, 0.1, 1.0, math.inf)


def numbers(durations: list[float]) -> CallNumbers:
    """Return the numbers of calls that took so long, in s."""
    buckets = tuple((bound, float(sum(d <= bound for d in durations))) for bound in BOUNDS)
    return CallNumbers({"success": float(len(durations))}, buckets)


def sample(at: float, *durations: float) -> LoadSample:
    return LoadSample(at, {"echo": numbers([*durations])}, {})


@pytest.mark.rule("CLI-75")
@given(st.lists(st.floats(0.0001, 5.0), min_size=1, max_size=30), st.floats(0.01, 0.99))
def test_a_quantile_lies_in_the_bucket_of_its_call(durations: list[float], share: float) -> None:
    exact = sorted(durations)[math.ceil(share * len(durations)) - 1]
    assume(abs(share * len(durations) - round(share * len(durations))) > 1e-6)
    bound = next(each for each in BOUNDS if exact <= each)
    lower = max((each for each in (0.0, *BOUNDS) if each < bound), default=0.0)
    found = numbers(durations).quantile(share)
    assert found is not None
    assert found == math.inf if math.isinf(bound) else lower <= found <= bound


@pytest.mark.rule("CLI-75")
def test_recent_calls_are_those_of_the_last_minute() -> None:
    window = SampleWindow()
    window.add(sample(0.0, 0.5))
    assert window.recent("echo").total == 1  # since the start of the server
    assert window.seconds is None
    window.add(sample(50.0, 0.5, 0.005))
    assert window.recent("echo").quantile(0.5) == pytest.approx(0.0055)
    window.add(sample(50.0 + WINDOW_SECONDS, 0.5, 0.005, 0.05))
    assert window.recent("echo").total == 1
    assert window.seconds == WINDOW_SECONDS


@pytest.mark.rule("CLI-75")
def test_a_server_that_has_restarted_is_counted_from_there() -> None:
    window = SampleWindow()
    window.add(sample(0.0, 0.5, 0.5))
    window.add(sample(1.0, 0.5))
    assert window.seconds is None
    assert window.recent("echo").total == 1


@pytest.mark.rule("CLI-75")
def test_series_that_differ_by_server_are_added() -> None:
    text = """\
# TYPE foundation_rt_calls counter
foundation_rt_calls_total{method="tools/call",name="a",outcome="success",server="x"} 2.0
foundation_rt_calls_total{method="tools/call",name="a",outcome="success",server="y"} 3.0
foundation_rt_calls_total{method="tools/list",name="",outcome="timeout",server=""} 1.0
# TYPE foundation_rt_slots gauge
foundation_rt_slots 10.0
# TYPE foundation_rt_event_loop_delay_seconds gauge
foundation_rt_event_loop_delay_seconds 0.0021
"""
    found = sample_of_metrics(1.0, text_string_to_metric_families(text))
    assert found.calls["a"].total == 5
    assert found.calls["tools/list"].failed == 1
    assert found.state["maxConcurrentExecutions"] == 10
    assert found.state["eventLoopDelayMs"] == 2.1


@pytest.mark.rule("CLI-75")
def test_metrics_and_health_of_other_programs_are_not_taken() -> None:
    with pytest.raises(ValueError, match="foundation-rt"):
        sample_of_metrics(1.0, text_string_to_metric_families("# TYPE up gauge\nup 1\n"))
    assert state_of_health({"status": "ok"}) is None
