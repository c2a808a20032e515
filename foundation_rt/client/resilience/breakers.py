"""The circuit breakers of one server, and the permits that a call holds of them.

A server has one breaker, and on request one more for each tool. A call may need several attempts,
pages and rounds, and is one call to a breaker (BREAK-10). A call that sends nothing takes no
permit, so it succeeds while the circuit is open. A call that waits for a free slot of the client
holds no permit meanwhile (BREAK-13).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from attrs import define, field

from ..errors import CircuitOpenError
from .circuit_breaker import BreakerSettings, CircuitBreaker, CircuitState, Permit

Verdict = Callable[[CircuitBreaker, Permit, float], None]
"""Reports the end of a call to one breaker: succeeded, failed or abandoned."""


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
        """Return whether the call was about to send something, and is not settled."""
        return bool(self._held)

    @property
    def has_probe(self) -> bool:
        """Return whether the call is the probe of a half-open circuit."""
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
        """Release the permits if a state has changed since: the next attempt takes new ones."""
        now = asyncio.get_running_loop().time()
        for breaker, permit in zip(self.breakers, self._held, strict=False):
            if not breaker.is_current(permit, now):
                self.release()
                return

    def settle(self, *verdicts: Verdict) -> None:
        """Report the end of the call to each breaker."""
        now = asyncio.get_running_loop().time()
        held, self._held = self._held, []
        for breaker, permit, verdict in zip(self.breakers, held, verdicts, strict=False):
            verdict(breaker, permit, now)

    def release(self) -> None:
        """Release what is held: the call says nothing about the server."""
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
    """The circuit breakers of one server; logs their changes.

    Args:
        has_tools: whether every tool has a breaker, too.

    Attributes:
        server: the breaker of every call.
    """

    settings: BreakerSettings
    has_tools: bool
    server: CircuitBreaker = field(init=False)
    _tools: dict[str, CircuitBreaker] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.server = CircuitBreaker(self.settings, partial(_log, None))

    def of_tool(self, tool: str) -> tuple[CircuitBreaker, ...]:
        """Return the breakers for a call of this tool."""
        if not self.has_tools:
            return (self.server,)
        breaker = self._tools.get(tool)
        if breaker is None:
            breaker = CircuitBreaker(self.settings, partial(_log, tool))
            self._tools[tool] = breaker
        return (self.server, breaker)

    def forget(self, tool: str) -> None:
        """Drop the breaker of a tool that does not exist, so that invented names do not pile up."""
        self._tools.pop(tool, None)

    def tool_state(self, tool: str, now: float) -> CircuitState:
        """Return the state of a tool's breaker; CLOSED if it has none."""
        breaker = self._tools.get(tool)
        return CircuitState.CLOSED if breaker is None else breaker.state(now)


def _log(tool: str | None, before: CircuitState, after: CircuitState) -> None:
    fields = {"tool": tool, "before": before.value, "after": after.value}
    of = "the server" if tool is None else f"the tool {tool!r}"
    log.warning("the circuit of %s is %s", of, after.value, extra={"fields": fields})
