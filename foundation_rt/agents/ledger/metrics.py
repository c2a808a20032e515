"""The metrics of agents with a ledger, in the form of the runtime's own (AACP-160 to AACP-163).

What this process has done is counted as it happens. What waits in the ledger is asked of it when
somebody reads the metrics: from a thread, since the ledger belongs to the event loop of the agents,
which may be another one than that of the reader, and may be blocked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from ...features.instruments import CALLBACK_TIMEOUT_MS, Family, LabelValues
from ...features.probes import Probe
from .claims import MAX_AGENTS

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from .administration import AgentSummary
    from .claims import AgentCounts
    from .runner import NodeRunner

KEEP_SECONDS = 5.0
"""The shortest time between two questions to the ledger."""

_Series = Sequence[tuple[LabelValues, float]]

_KEEP_TIMES = 20
"""And so many times the time that the last answer took: a slow ledger is asked less often."""


@define(eq=False, repr=False)
class _Reading:
    """An answer of the ledger.

    Attributes:
        now_ms: its time.
    """

    summaries: list[AgentSummary]
    now_ms: int


@define(eq=False, repr=False)
class LedgerMetrics:
    """Gives the metrics of one coordinator; safe from any thread.

    Args:
        running: returns the runner of the coordinator; None while it is not started.
        agent_ids: returns the agents that are registered.

    Attributes:
        probe: asks the ledger; its answer is None while the coordinator is not started.
    """

    _running: Callable[[], NodeRunner | None]
    _agent_ids: Callable[[], list[str]]
    probe: Probe = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.probe = Probe(
            "the ledger for the metrics", self._ask, CALLBACK_TIMEOUT_MS, self._accept
        )

    # -- asking the ledger: in a thread of the probe ---------------------------------------------

    def _ask(self) -> _Reading | None:
        runner = self._running()
        if runner is None:
            self.probe.keep_seconds = 0  # it may be started at once
            return None
        self.probe.keep_seconds = KEEP_SECONDS
        began = time.monotonic()
        reading = runner.ask_from_thread(self._measure(runner), self.probe.timeout_ms / 1000)
        took = time.monotonic() - began
        self.probe.keep_seconds = max(KEEP_SECONDS, _KEEP_TIMES * took)
        return reading

    def _accept(self, reading: _Reading | None) -> _Reading | None:
        return reading

    def _measure(self, runner: NodeRunner) -> Coroutine[object, object, _Reading]:
        counts = runner.node.claims.counts
        named = [each for each in self._agent_ids() if counts.name_of(each) == each][:MAX_AGENTS]

        async def measure() -> _Reading:
            return _Reading(await runner.store.measure_queues(named), runner.now_ms())

        return measure()

    # -- the families ---------------------------------------------------------------------------

    def families(self, reading: _Reading | None) -> Iterator[Family]:
        """Yield all metrics; `reading` is the answer of the probe, None if there is none."""
        runner = self._running()
        if runner is None:
            return
        yield from _of_counts(runner.node.claims.counts)
        skew = runner.node.time.off_ms / 1000
        yield _gauge(
            "foundation_rt_agent_clock_skew_seconds",
            "How far the clock of this machine is ahead of the ledger's.",
            [((), skew)],
        )
        yield _gauge(
            "foundation_rt_agent_ledger_up",
            "1 if the ledger has answered the last question of the metrics, else 0.",
            [((), reading is not None)],
        )
        if reading is not None:
            yield from _of_queues(reading)


def _of_counts(counts: AgentCounts) -> Iterator[Family]:
    # Copies, since the event loop goes on counting.
    executions = [((agent_id,), count) for agent_id, count in counts.executions.copy().items()]
    yield _counter(
        "foundation_rt_agent_executions_total", "Handlers that were begun.", executions, "agent"
    )
    outcomes = [
        ((agent_id, str(state)), count)
        for (agent_id, state), count in counts.outcomes.copy().items()
    ]
    yield _counter(
        "foundation_rt_agent_outcomes_total",
        "Outcomes that were recorded.",
        outcomes,
        "agent",
        "outcome",
    )
    lost = [((agent_id,), count) for agent_id, count in counts.lost_claims.copy().items()]
    what = "Claims that were lost: their lease lapsed, or an operator cancelled the request."
    yield _counter("foundation_rt_agent_lost_claims_total", what, lost, "agent")


def _of_queues(reading: _Reading) -> Iterator[Family]:
    depths = [
        ((each.agent_id, str(state)), count)
        for each in reading.summaries
        for state, count in each.counts.items()
    ]
    yield _gauge(
        "foundation_rt_agent_queue_depth", "Requests without an outcome.", depths, "agent", "state"
    )
    ages = [
        ((each.agent_id,), max(0, reading.now_ms - each.oldest_at_ms) / 1000)
        for each in reading.summaries
        if each.oldest_at_ms is not None
    ]
    yield _gauge(
        "foundation_rt_agent_oldest_request_seconds", "Age of the oldest of them.", ages, "agent"
    )


def _counter(name: str, description: str, series: _Series, *labels: str) -> Family:
    return Family("counter", name, description, labels, series)


def _gauge(name: str, description: str, series: _Series, *labels: str) -> Family:
    return Family("gauge", name, description, labels, series)
