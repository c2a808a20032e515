"""The numbers that `top` shows: samples of a server, and the difference of two (CLI-75). Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from attrs import define, field, frozen

Key = TypeVar("Key")

WINDOW_SECONDS = 60.0
_PREFIX = "foundation_rt_"
_SUCCESS = "success"


@frozen
class CallNumbers:
    """The calls of one tool, prompt or method.

    Attributes:
        by_outcome: the number of calls that ended, by outcome.
        buckets: of the histogram of durations: the upper bound in s, and the calls up to it.
    """

    by_outcome: Mapping[str, float] = field(factory=dict)
    buckets: tuple[tuple[float, float], ...] = ()

    @property
    def total(self) -> float:
        """The number of calls that ended."""
        return sum(self.by_outcome.values())

    @property
    def failed(self) -> float:
        """The number of calls that ended other than well."""
        return self.total - self.by_outcome.get(_SUCCESS, 0.0)

    def since(self, before: CallNumbers) -> CallNumbers:
        """Return the calls after those of an earlier sample."""
        outcomes = {
            name: count - before.by_outcome.get(name, 0.0)
            for name, count in self.by_outcome.items()
        }
        earlier = dict(before.buckets)
        buckets = ((bound, count - earlier.get(bound, 0.0)) for bound, count in self.buckets)
        return CallNumbers(outcomes, tuple(buckets))

    def quantile(self, share: float) -> float | None:
        """Return a quantile of the durations in s, interpolated within its bucket.

        Args:
            share: from 0 to 1.

        Returns:
            None without calls; infinity beyond the last bound.
        """
        count = self.buckets[-1][1] if self.buckets else 0.0
        if count <= 0:
            return None
        rank, lower, below = share * count, 0.0, 0.0
        for bound, up_to in self.buckets:
            if up_to >= rank:
                inside = up_to - below
                part = (rank - below) / inside if inside > 0 else 1.0
                return bound if math.isinf(bound) else lower + (bound - lower) * part
            lower, below = bound, up_to
        return math.inf


@define
class LoadSample:
    """The state of a server at one time.

    Attributes:
        at: in s, of a clock that never steps.
        calls: by the name of the tool or prompt, or the method; empty without metrics.
        state: of the server: members of the health tool, or the same from metrics.
        servers: of a gateway, as its status has them; None of another server.
        has_metrics: `calls` are known.
    """

    at: float
    calls: Mapping[str, CallNumbers]
    state: Mapping[str, Any]
    servers: Sequence[Mapping[str, Any]] | None = None
    has_metrics: bool = True

    def precedes(self, later: LoadSample) -> bool:
        """Return whether no counter is lower than here: the same process has gone on."""
        return all(
            name in later.calls and later.calls[name].total >= numbers.total
            for name, numbers in self.calls.items()
        )


class SampleWindow:
    """The samples of the last minute, of one process of a server."""

    def __init__(self) -> None:
        self._samples: deque[LoadSample] = deque()

    def add(self, sample: LoadSample) -> None:
        """Take in the latest sample; after a restart of the server, forget those before."""
        if self._samples and not self._samples[-1].precedes(sample):
            self._samples.clear()
        self._samples.append(sample)
        while sample.at - self._samples[0].at > WINDOW_SECONDS and len(self._samples) > 2:
            self._samples.popleft()

    @property
    def latest(self) -> LoadSample:
        """The latest sample; there is one."""
        return self._samples[-1]

    @property
    def seconds(self) -> float | None:
        """The time between the first and the latest sample; None if there is one only."""
        between = self._samples[-1].at - self._samples[0].at
        return between if between > 0 else None

    def recent(self, name: str) -> CallNumbers:
        """Return the calls within the window; with one sample, those since the server's start."""
        latest = self.latest.calls[name]
        if self.seconds is None:
            return latest
        return latest.since(self._samples[0].calls.get(name, CallNumbers()))


def state_of_health(health: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the state in what the health tool has returned; None if it is another tool."""
    resources = health.get("resources")
    if not isinstance(resources, Mapping):
        return None
    return {"status": health.get("status"), **resources}


def sample_of_metrics(at: float, families: Iterable[Any]) -> LoadSample:
    """Return the sample in metrics.

    Args:
        at: the time, in s.
        families: as `prometheus_client.parser` returns them.

    Raises:
        ValueError: they are not those of this runtime.
    """
    outcomes: dict[str, dict[str, float]] = {}
    buckets: dict[str, dict[float, float]] = {}
    gauges: dict[str, float] = {}
    for each in (sample for family in families for sample in family.samples):
        name, labels = each.name.removeprefix(_PREFIX), each.labels
        subject = _subject(labels)
        if name == "calls_total":
            _add(outcomes.setdefault(subject, {}), labels["outcome"], each.value)
        elif name == "call_duration_seconds_bucket":
            _add(buckets.setdefault(subject, {}), float(labels["le"]), each.value)
        elif name in ("sessions", "rejections_total"):
            _add(gauges, name, each.value)
        elif name in _GAUGES:
            gauges[name] = each.value
    if "slots" not in gauges:
        raise ValueError("these are not the metrics of foundation-rt")
    calls = {
        name: CallNumbers(by_outcome, tuple(sorted(buckets.get(name, {}).items())))
        for name, by_outcome in outcomes.items()
    }
    return LoadSample(at, calls, _state_of_gauges(gauges))


def _add(numbers: dict[Key, float], key: Key, value: float) -> None:
    """Add a value of a series: those of a gateway differ by their server too (FWD-11)."""
    numbers[key] = numbers.get(key, 0.0) + value


def _subject(labels: Mapping[str, str]) -> str:
    """Return the name of a tool, or the method and the name of anything else."""
    method, name = labels.get("method", ""), labels.get("name", "")
    return name if method == "tools/call" and name else f"{method} {name}".rstrip()


_GAUGES = {
    "slots_in_use": ("concurrentExecutions", 1),
    "slots": ("maxConcurrentExecutions", 1),
    "event_loop_delay_seconds": ("eventLoopDelayMs", 1000),
    "resident_memory_bytes": ("memoryUsageBytes", 1),
    "sessions": ("sessions", 1),
    "rejections_total": ("rejections", 1),
}
"""The gauges by their names without prefix: the member of the state, and its unit."""


def _state_of_gauges(gauges: Mapping[str, float]) -> dict[str, Any]:
    state = {}
    for name, (member, unit) in _GAUGES.items():
        value = gauges.get(name, 0.0) * unit
        state[member] = round(value, 3) if unit > 1 else round(value)
    return state
