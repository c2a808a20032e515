"""Metrics of OpenTelemetry, by its conventions for MCP: durations of calls and of sessions.

The metrics of the application (`Server.metrics`) are recorded with the same meter. Only the API of
OpenTelemetry is used: the program that serves sets up an SDK, which decides where metrics go.
Without an SDK nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from attrs import define, field

from ..errors import MissingExtraError, ToolCompletionOutcome
from ..kernel.effects import CallCompleted, ClientConnected, ClientDisconnected, Event
from ..protocol.methods import TOOLS_CALL, facts
from ..version import __version__
from .instruments import OTHER, Counter, Gauge, Histogram, Instrument, Record
from .tracing import NETWORK

try:
    from opentelemetry import metrics
except ImportError:
    raise MissingExtraError("Metrics of OpenTelemetry", "otel") from None

if TYPE_CHECKING:
    from ..base.clock import Clock
    from ..kernel.session import Session
    from .probes import Probe

_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""The bounds that the conventions advise, in seconds."""

_ENDED_EARLY = {
    ToolCompletionOutcome.TIMEOUT: "timeout",
    ToolCompletionOutcome.LATE_COMPLETED: "timeout",
    ToolCompletionOutcome.ABORTED: "cancelled",
    ToolCompletionOutcome.DISCONNECTED_COMPLETED: "disconnected",
}


@define(eq=False, repr=False)
class OtelMetrics:
    """Records the end of every call and of every session.

    Args:
        is_registered: returns whether a tool or prompt exists, by method and name.
        clock: of the server.
        provider: receives the metrics; by default the global one of the program.
    """

    _is_registered: Callable[[str, str], bool]
    _clock: Clock
    _provider: metrics.MeterProvider | None = None
    _meter: metrics.Meter = field(init=False)
    _calls: metrics.Histogram = field(init=False)
    _sessions: metrics.Histogram = field(init=False)
    _began: WeakKeyDictionary[Session, float] = field(factory=WeakKeyDictionary, init=False)

    def __attrs_post_init__(self) -> None:
        self._meter = metrics.get_meter("foundation_rt", __version__, self._provider)
        self._calls = self._durations(
            "mcp.server.operation.duration", "The time from a request to its answer."
        )
        self._sessions = self._durations(
            "mcp.server.session.duration", "The time from a handshake to the end of its session."
        )

    def observe(self, session: Session, record: Event) -> None:
        """Record the end of a call or of a session (OPS-42, OPS-43)."""
        if isinstance(record, CallCompleted):
            attributes = _of_session(session) | self._of_call(record)
            self._calls.record(record.fields["durationMs"] / 1000, attributes)
        elif isinstance(record, ClientConnected):
            self._began[session] = self._clock.monotonic()
        elif isinstance(record, ClientDisconnected):
            began = self._began.pop(session, None)
            if began is not None:
                self._sessions.record(self._clock.monotonic() - began, _of_session(session))

    def mirror(self, instrument: Instrument) -> Record | None:
        """Make an instrument of the application with the meter; return what records a value.

        A gauge that has a callback records by itself: None.
        """
        meter, description = self._meter, instrument.description
        name = instrument.name
        if isinstance(instrument, Counter):
            return meter.create_counter(name.removesuffix("_total"), "", description).add
        if isinstance(instrument, Histogram):
            made = self._durations(name.removesuffix("_seconds"), description, instrument.bounds)
            return made.record
        assert isinstance(instrument, Gauge)
        if instrument.probe is None:
            return meter.create_gauge(name, "", description).set
        read = _reading(instrument, instrument.probe)
        meter.create_observable_gauge(name, [read], "", description)
        return None

    def _durations(
        self, name: str, description: str, bounds: Iterable[float] = _BUCKETS
    ) -> metrics.Histogram:
        return self._meter.create_histogram(
            name, "s", description, explicit_bucket_boundaries_advisory=[*bounds]
        )

    def _of_call(self, record: CallCompleted) -> dict[str, str]:
        fields = record.fields
        method = fields.get("method", TOOLS_CALL)
        attributes = {"mcp.method.name": method}
        if method == TOOLS_CALL:
            attributes["gen_ai.operation.name"] = "execute_tool"
        target = facts(method)
        if target.target == "name" and target.attribute is not None:
            name = fields.get("toolName") or fields.get("name", "")
            attributes[target.attribute] = name if self._is_registered(method, name) else OTHER
        kind = _error_type(method, record)
        return attributes if kind is None else {**attributes, "error.type": kind}


def _of_session(session: Session) -> dict[str, str]:
    attributes = {}
    transport = NETWORK.get(session.transport_type)
    if transport is not None:
        attributes["network.transport"] = transport
    if session.peer is not None:
        attributes["mcp.protocol.version"] = session.peer.revision.name
    return attributes


def _error_type(method: str, record: CallCompleted) -> str | None:
    """Return the kind of a failure in a word; None of a call that succeeded."""
    outcome = ToolCompletionOutcome(record.fields["outcome"])
    if outcome is ToolCompletionOutcome.SUCCESS:
        return None
    if outcome in _ENDED_EARLY:
        return _ENDED_EARLY[outcome]
    if method == TOOLS_CALL and outcome is ToolCompletionOutcome.TOOL_ERROR:
        return "tool_error"
    return record.refusal or record.fields.get("errorCode", "_OTHER")


def _reading(gauge: Gauge, probe: Probe) -> Callable[[Any], Iterable[metrics.Observation]]:
    def read(options: Any) -> Iterable[metrics.Observation]:
        answer = probe.ask_blocking()
        series = [] if answer.problem is not None else answer.value
        return [metrics.Observation(value, gauge.labelled(values)) for values, value in series]

    return read
