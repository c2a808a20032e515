"""The circuit breakers of one server: its own, and on request one for each of its tools."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from attrs import define, field

from ..errors import CircuitOpenError
from .circuit_breaker import BreakerSettings, CircuitBreaker, CircuitState, Permit

Verdict = Callable[[CircuitBreaker, Permit, float], None]
"""How a call ended, for one breaker: it succeeded, failed, or was abandoned."""


@define(eq=False, repr=False)
class Permits:
    """The permits of one call, one of each breaker.

    Args:
        breakers: that of the server first, then that of the tool if it has one.
        what: the call, for messages.
    """

    breakers: Sequence[CircuitBreaker]
    what: str
    _held: list[Permit] = field(factory=list, init=False)

    @property
    def are_held(self) -> bool:
        """Return whether something of the call was to be sent, and its result is not settled."""
        return bool(self._held)

    @property
    def has_probe(self) -> bool:
        """Return whether the call finds out for others if a circuit can be closed."""
        return any(map(CircuitBreaker.is_probe, self.breakers, self._held))

    def take(self) -> None:
        """Take one permit of every breaker; does nothing if they are held.

        Raises:
            CircuitOpenError: a breaker refuses; nothing is held then (BREAK-02, BREAK-03).
        """
        if self._held:
            return
        now = asyncio.get_running_loop().time()
        for breaker in self.breakers:
            permit = breaker.admit(now)
            if permit is None:
                self.release()
                raise self._refusal(breaker.retry_after(now), breaker.failures)
            self._held.append(permit)

    def renew(self) -> None:
        """Give the permits back if a state has changed since: the next try has to take new ones."""
        now = asyncio.get_running_loop().time()
        for breaker, permit in zip(self.breakers, self._held, strict=False):
            if not breaker.is_current(permit, now):
                self.release()
                return

    def settle(self, *verdicts: Verdict) -> None:
        """Report how the call ended, to each breaker its verdict."""
        now = asyncio.get_running_loop().time()
        held, self._held = self._held, []
        for breaker, permit, verdict in zip(self.breakers, held, verdicts, strict=False):
            verdict(breaker, permit, now)

    def release(self) -> None:
        """Give back what is held: the call says nothing of the server."""
        if self._held:
            self.settle(*[CircuitBreaker.abandoned] * len(self._held))

    def _refusal(self, after: float, failures: int) -> CircuitOpenError:
        return CircuitOpenError(
            f"{self.what} was not sent: the server has failed {failures} times in a row "
            f"and is left alone for another {after:.0f} s",
            retry_after=after,
        )


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
