"""One tool of a coordinator: its definition, its circuit, its metrics.

`ToolMetrics` has reliability and performance of one tool, as its calls are recorded (COORD-30).
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...client import CircuitBreaker, CircuitState, Client, ToolSchema
from .names import ToolNames, inside_name

if TYPE_CHECKING:
    from datetime import datetime


ALPHA = 0.2
"""The weight of the latest call in the average of response times."""


@define
class Reliability:
    """The successes and failures of a tool.

    Attributes:
        success_count: never falls.
        failure_count: never falls; it is not the count of the circuit.
        last_failure: None before the first.
    """

    success_count: int = 0
    failure_count: int = 0
    last_failure: datetime | None = None


@define
class Performance:
    """The use of a tool, and the time it takes to answer.

    Attributes:
        avg_response_time_ms: exponential moving average of successes; 0 before the first.
        call_count: successes and failures.
        last_used: None before the first call.
    """

    avg_response_time_ms: float = 0.0
    call_count: int = 0
    last_used: datetime | None = None


@define
class ToolMetrics:
    """The record of the calls of one tool; it outlives connections and lists."""

    reliability: Reliability
    performance: Performance

    @classmethod
    def new(cls) -> ToolMetrics:
        """Return the record of a tool that was not called yet."""
        return cls(Reliability(), Performance())

    def record_success(self, now: datetime, duration_ms: float) -> None:
        """Record a call that succeeded."""
        self._used(now)
        reliability, performance = self.reliability, self.performance
        is_first = reliability.success_count == 0
        reliability.success_count += 1
        average = duration_ms if is_first else performance.avg_response_time_ms
        performance.avg_response_time_ms = ALPHA * duration_ms + (1 - ALPHA) * average

    def record_failure(self, now: datetime) -> None:
        """Record a call that failed, also by `isError`."""
        self._used(now)
        self.reliability.failure_count += 1
        self.reliability.last_failure = now

    def _used(self, now: datetime) -> None:
        self.performance.call_count += 1
        self.performance.last_used = now


@define(eq=False, repr=False)
class ToolRegistryEntry:
    """A tool of one server, as `Coordinator.entry` returns it.

    Attributes:
        server_id: of the server.
        definition: as the server lists it.
        transport_type: `stdio`, `http` or `memory`.
        client: the client of the server.
        was_writing: whether the server has listed the tool without `readOnlyHint` (COORD-78).
    """

    server_id: str
    definition: ToolSchema
    transport_type: str
    client: Client
    was_writing: bool
    _metrics: ToolMetrics
    _breaker: CircuitBreaker
    _now: Callable[[], float]
    _names: ToolNames

    def __repr__(self) -> str:
        return f"ToolRegistryEntry({self.qualified_name!r})"

    @property
    def qualified_name(self) -> str:
        """The id of the server, a colon, and the name of the tool."""
        return inside_name(self.server_id, self.definition.name)

    @property
    def outside_name(self) -> str:
        """The name for clients and models that take only `[A-Za-z0-9_-]{1,64}`."""
        return self._names.outside(self.server_id, self.definition.name)

    @property
    def description(self) -> str | None:
        """The tool's description; None if there is none."""
        return self.definition.description

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON Schema of the arguments."""
        return self.definition.input_schema

    @property
    def reliability(self) -> Reliability:
        """Successes and failures."""
        return self._metrics.reliability

    @property
    def performance(self) -> Performance:
        """Use and response time."""
        return self._metrics.performance

    @property
    def circuit(self) -> CircuitState:
        """The state of the tool's circuit; that of its server is in `Coordinator.states`."""
        return self._breaker.state(self._now())


@define(eq=False)
class ToolRecord:
    """The circuit and the metrics of a tool, kept between its calls."""

    breaker: CircuitBreaker
    metrics: ToolMetrics = field(factory=ToolMetrics.new)
