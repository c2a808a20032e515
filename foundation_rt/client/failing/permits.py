"""The permits of one call: taken before the first thing of it is sent, and settled once at its end.

A call may need several tries, pages and rounds. For a circuit breaker it is one call all the same
(BREAK-10). A call that needs nothing sent takes no permit, and so is answered in an open circuit.
A call that waits for a place of the client's own holds none meanwhile (BREAK-13).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from attrs import define, field

from .circuit_breaker import CircuitBreaker, Permit
from .errors import CircuitOpenError

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
