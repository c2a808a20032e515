"""The circuit breakers of one server: its own, and on request one for each of its tools."""

from __future__ import annotations

import logging
from functools import partial

from attrs import define, field

from .circuit_breaker import BreakerSettings, CircuitBreaker, CircuitState

log = logging.getLogger("foundation_rt.client")


@define(eq=False, repr=False)
class Breakers:
    """Has them, and logs their changes.

    Args:
        has_tools: whether every tool has one of its own besides.

    Attributes:
        server: what everything goes through.
    """

    settings: BreakerSettings
    has_tools: bool
    server: CircuitBreaker = field(init=False)
    _tools: dict[str, CircuitBreaker] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.server = CircuitBreaker(self.settings, partial(_log, None))

    def of_tool(self, tool: str) -> tuple[CircuitBreaker, ...]:
        """Those that a call of this tool goes through."""
        if not self.has_tools:
            return (self.server,)
        breaker = self._tools.get(tool)
        if breaker is None:
            breaker = CircuitBreaker(self.settings, partial(_log, tool))
            self._tools[tool] = breaker
        return (self.server, breaker)

    def forget(self, tool: str) -> None:
        """There is no such tool: names that callers make up must not pile up here."""
        self._tools.pop(tool, None)

    def tool_state(self, tool: str, now: float) -> CircuitState:
        """State of a tool's own; CLOSED if it has none."""
        breaker = self._tools.get(tool)
        return CircuitState.CLOSED if breaker is None else breaker.state(now)


def _log(tool: str | None, before: CircuitState, after: CircuitState) -> None:
    fields = {"tool": tool, "before": before.value, "after": after.value}
    of = "the server" if tool is None else f"the tool {tool!r}"
    log.warning("the circuit of %s is %s", of, after.value, extra={"fields": fields})
