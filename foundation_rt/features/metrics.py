"""Metrics of calls for Prometheus: counted here, rendered by its client library.

Counting takes a few additions under a lock, in an observer that runs after a call was answered. The
client library runs only when the metrics are read: its own counters would cost a call more, and add
a series for the time of creation to each. The instruments of the application are shown beside them.

The number of series is bounded (OPS-15): the label `name` is the name of a registered tool or
prompt, at most `_MAX_NAMES` of them in the life of a process, and "other" for all else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from attrs import define, field

from ..errors import ErrorCode, MissingExtraError
from ..kernel.effects import CallCompleted, ClientConnected, ClientDisconnected, Event
from ..kernel.engine.scheduling import running_loop
from ..protocol.methods import TOOLS_CALL, facts
from ..version import __version__
from .instruments import (
    OTHER,
    Durations,
    Family,
    Instruments,
    MetricSource,
)

try:
    import prometheus_client as prometheus
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
except ImportError:
    raise MissingExtraError("Metrics", "metrics") from None

if TYPE_CHECKING:
    from ..errors import StructuredError
    from ..kernel.execution_limits import ResourceManager
    from ..kernel.session import Session
    from .probes import Probe, ProbeAnswer

_MAX_NAMES = 1000

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@define(eq=False, repr=False)
class Metrics:
    """Counts events and renders the counts; safe from any thread.

    Args:
        resources: read when the metrics are rendered.
        is_registered: returns whether a tool or prompt exists, by method and name.
        has_forwarder: calls have the label `server`, empty for the server's own (FWD-11).

    Attributes:
        instruments: those of the application; None while it has none.
        sources: parts of the runtime with metrics of their own.
    """

    _resources: ResourceManager
    _is_registered: Callable[[str, str], bool]
    _has_forwarder: bool = False
    instruments: Instruments | None = field(default=None, init=False)
    sources: list[MetricSource] = field(factory=list, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _names: set[str] = field(factory=set, init=False)
    _calls: dict[tuple[str, ...], int] = field(factory=dict, init=False)
    _durations: dict[tuple[str, ...], Durations] = field(factory=dict, init=False)
    _rejections: dict[str, int] = field(factory=dict, init=False)
    _sessions: dict[str, int] = field(factory=dict, init=False)

    def observe(self, session: Session, record: Event) -> None:
        """Count the end of a call, or the begin or end of a session."""
        if isinstance(record, CallCompleted):
            self._count_call(record)
        elif isinstance(record, ClientConnected):
            self._count(self._sessions, session.transport_type, 1)
        elif isinstance(record, ClientDisconnected):
            self._count(self._sessions, session.transport_type, -1)

    def note_rate_limit(self, refusal: StructuredError) -> None:
        """Count a session that a rate limit has refused; refused calls have records."""
        self._count(self._rejections, "rate_limit", 1)

    def _count(self, counts: dict[str, int], key: str, step: int) -> None:
        with self._lock:
            counts[key] = counts.get(key, 0) + step

    def _count_call(self, record: CallCompleted) -> None:
        fields = record.fields
        method = fields.get("method", TOOLS_CALL)
        outcome, seconds = fields["outcome"], fields["durationMs"] / 1000
        with self._lock:
            name = self._label(method, fields.get("toolName") or fields.get("name", ""))
            of_call: tuple[str, ...] = (method, name)
            if self._has_forwarder:
                of_call = (method, name, fields.get("server", ""))
            counted = (*of_call, outcome)
            self._calls[counted] = self._calls.get(counted, 0) + 1
            durations = self._durations.get(of_call)
            if durations is None:
                durations = self._durations[of_call] = Durations()
            durations.add(seconds)
        if record.refusal is not None and fields.get("errorCode") == ErrorCode.RESOURCE_EXHAUSTED:
            self._count(self._rejections, record.refusal, 1)

    def render(self) -> tuple[str, bytes]:
        """Return the content type and the metrics in the text format of Prometheus (0.0.4).

        It waits for the callbacks of gauges, so an event loop uses `read`. Of a callback that
        is a coroutine function the latest value is shown; and so, on an event loop, of what the
        runtime itself asks for.
        """
        probes = self._probes()
        for probe in probes:
            probe.start()
        # The ledger of agents may belong to the very loop that would wait for it.
        own = {source.probe for source in self.sources} if running_loop() is not None else ()
        answers = {
            probe: probe.latest() if probe in own else probe.ask_blocking() for probe in probes
        }
        return rendered(self._families(answers))

    async def read(self) -> tuple[str, bytes]:
        """Return what `render` does, without blocking the event loop."""
        import asyncio

        return await asyncio.to_thread(rendered, await self.families())

    async def families(self) -> list[Family]:
        """Return every metric; the callbacks of gauges are awaited."""
        import asyncio

        probes = self._probes()
        answers = await asyncio.gather(*(probe.ask() for probe in probes))
        return self._families(dict(zip(probes, answers, strict=True)))

    def _probes(self) -> list[Probe]:
        """Return what is asked for this reading: of the runtime and of the application."""
        made = () if self.instruments is None else self.instruments.all()
        found = [each.probe for each in (*self.sources, *made)]
        return [probe for probe in found if probe is not None]

    def _families(self, answers: Mapping[Probe, ProbeAnswer]) -> list[Family]:
        with self._lock:
            found = [*self._of_calls()]
        found += self._of_process()
        for source in self.sources:
            found += source.families(answers[source.probe].value)
        for each in () if self.instruments is None else self.instruments.all():
            answer = None if each.probe is None else answers.get(each.probe)
            if answer is None or answer.problem is None:
                series = each.snapshot() if answer is None else answer.value
                found.append(Family(each.kind, each.name, each.description, each.labels, series))
        return found

    def _label(self, method: str, name: str) -> str:
        """Return the label `name` of a call; only tools and prompts have one, and it is bounded."""
        if facts(method).target != "name":
            return ""
        if name in self._names:
            return name
        if len(self._names) >= _MAX_NAMES or not self._is_registered(method, name):
            return OTHER
        self._names.add(name)
        return name

    def _of_calls(self) -> Iterator[Family]:
        labels = ("method", "name", "server") if self._has_forwarder else ("method", "name")
        yield Family(
            "counter",
            "foundation_rt_calls_total",
            "Calls, by outcome.",
            (*labels, "outcome"),
            [*self._calls.items()],
        )
        yield Family(
            "histogram",
            "foundation_rt_call_duration_seconds",
            "How long handlers ran.",
            labels,
            [(values, each.copy()) for values, each in self._durations.items()],
        )
        yield Family(
            "counter",
            "foundation_rt_rejections_total",
            "Calls refused for load, by reason.",
            ("reason",),
            [((reason,), count) for reason, count in self._rejections.items()],
        )
        yield Family(
            "gauge",
            "foundation_rt_sessions",
            "Open sessions, by transport.",
            ("transport",),
            [((transport,), count) for transport, count in self._sessions.items()],
        )

    def _of_process(self) -> Iterator[Family]:
        reading = self._resources.get_telemetry()
        for name, meaning, value in (
            ("slots_in_use", "Execution slots that calls hold.", reading.concurrent_executions),
            ("slots", "Execution slots there are.", reading.max_concurrent_executions),
            (
                "event_loop_delay_seconds",
                "What an event waits to be served: p99 of the last 10 s.",
                reading.event_loop_delay_ms / 1000,
            ),
            ("resident_memory_bytes", "Resident memory.", reading.memory_usage_bytes),
        ):
            yield Family("gauge", f"foundation_rt_{name}", meaning, (), [((), value)])
        about = "Always 1; the version that runs."
        yield Family("gauge", "foundation_rt_info", about, ("version",), [((__version__,), 1)])


def rendered(families: Iterable[Family]) -> tuple[str, bytes]:
    """Return the content type and the text of `families`; 3,000 histograms take half a second."""
    registry = prometheus.CollectorRegistry()
    registry.register(_Reading(map(_metric, families)))
    return CONTENT_TYPE, prometheus.generate_latest(registry)


@define(eq=False, repr=False)
class _Reading:
    """The metrics of one reading, for the client library."""

    _metrics: Iterable[Metric]

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return self._metrics


def _metric(family: Family) -> Metric:
    """Return a metric as the client library has it."""
    name, description, labels = family.name, family.description, family.labels
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(name, description, labels=labels)
        for values, durations in family.series:
            histogram.add_metric(values, _cumulative(durations), durations.total_seconds)
        return histogram
    make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    made = make(name, description, labels=labels)
    for values, value in family.series:
        made.add_metric(values, value)
    return made


def _cumulative(durations: Durations) -> list[tuple[str, float]]:
    """Return the buckets in the form of Prometheus: each counts all durations below its bound."""
    bounds = [*map(prometheus.utils.floatToGoString, durations.bounds), "+Inf"]
    running, buckets = 0, []
    for bound, count in zip(bounds, durations.counts, strict=True):
        running += count
        buckets.append((bound, float(running)))
    return buckets
