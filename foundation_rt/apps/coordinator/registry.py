"""One tool of a coordinator: its definition, its circuit, its metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, field

from ...client import CircuitBreaker, CircuitState, Client, ToolSchema
from .metrics import Performance, Reliability, ToolMetrics
from .names import ToolNames, inside_name


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
