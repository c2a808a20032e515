"""The record of the calls of one tool."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.coordinator.tool_record import ToolMetrics

START = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.rule("COORD-30")
@given(st.lists(st.none() | st.floats(0, 1e6)))
def test_metrics_are_those_of_the_history(history: list[float | None]) -> None:
    metrics = ToolMetrics.new()
    assert metrics.performance.last_used is None
    average: float | None = None
    for second, duration in enumerate(history):
        now = START + timedelta(seconds=second)
        if duration is None:
            metrics.record_failure(now)
            assert metrics.reliability.last_failure == now
        else:
            metrics.record_success(now, duration)
            average = duration if average is None else 0.2 * duration + 0.8 * average
        assert metrics.performance.last_used == now
    failures = history.count(None)
    assert metrics.reliability.failure_count == failures
    assert metrics.reliability.success_count == len(history) - failures
    assert metrics.performance.call_count == len(history)
    assert metrics.performance.avg_response_time_ms == pytest.approx(average or 0.0)
