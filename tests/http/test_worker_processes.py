"""When a worker that has ended is replaced."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt.features.instruments import Durations, Family, Kind
from foundation_rt.http.cluster.worker_metrics import _total
from foundation_rt.http.cluster.worker_processes import SETTLED_SECONDS, WorkerBackoff


@pytest.mark.rule("HTTP-34", "HTTP-35")
def test_pauses_double_up_to_a_limit_while_workers_end_soon() -> None:
    backoff = WorkerBackoff()
    pauses = [backoff.delay_after(0.5) for _ in range(9)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


@pytest.mark.rule("HTTP-34")
def test_settled_worker_is_replaced_at_once_and_backoff_restarts() -> None:
    backoff = WorkerBackoff()
    assert [backoff.delay_after(0) for _ in range(3)] == [0.1, 0.2, 0.4]
    assert backoff.delay_after(SETTLED_SECONDS) == 0
    assert backoff.delay_after(0) == 0.1


@pytest.mark.rule("OPS-14")
def test_metrics_of_another_version_of_the_program_are_in_no_sum() -> None:
    long, short, other = Durations(), Durations(), Durations((1.0,))
    for each in (long, short, other):
        each.add(0.5)

    def family(value: Any, name: str = "calls", kind: Kind = "counter") -> Family:
        return Family(kind, name, "", ("name",), [(("echo",), value)])

    workers = [
        [family(1), family(long, "seconds", "histogram")],
        [family(2), family(other, "seconds", "histogram")],
        [family(4, kind="gauge"), family(short, "seconds", "histogram")],
    ]
    calls, seconds = _total(workers)
    assert [*calls.series] == [(("echo",), 3)]
    [(_, total)] = seconds.series
    assert (sum(total.counts), total.total_seconds) == (2, 1.0)
