"""The agents of a node whose queues may have something to claim.

An agent that has nothing sleeps, and costs nothing: with 3,000 idle agents a request in memory took
twenty times as long while every claim asked for all of them. An agent wakes when something is
entered for it or given back, when there is room for more of its requests, and when the lease or the
delay that stops its queue is over. Where other processes use the ledger, all wake from time to time
as well: word of their changes may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import define, field

from ...base.shown import Shown
from .effects import Operation
from .operations import Operations


@define(eq=False, repr=False)
class AwakeAgents(Shown):
    """Decides whose queues the next CLAIM looks into."""

    operations: Operations
    # Sets that keep their order, so that a node decides the same every time.
    _registered: dict[str, None] = field(factory=dict, init=False)
    _awake: dict[str, None] = field(factory=dict, init=False)
    # By agent, when it wakes if nothing happens before.
    _wake_at_ms: dict[str, int] = field(factory=dict, init=False)
    _poll_at_ms: int = field(default=0, init=False)

    def add(self, agent_id: str) -> None:
        """Look into the queue of an agent from now on."""
        self._registered[agent_id] = None
        self.wake(agent_id)

    def remove(self, agent_id: str) -> None:
        """Look into the queue of an agent no more."""
        self._registered.pop(agent_id, None)
        self._awake.pop(agent_id, None)
        self._wake_at_ms.pop(agent_id, None)

    def has(self, agent_id: str) -> bool:
        """Return whether an agent is registered here."""
        return agent_id in self._registered

    def is_awake(self, agent_id: str) -> bool:
        """Return whether the next CLAIM looks into the queue of an agent."""
        return agent_id in self._awake

    def wake(self, agent_id: str) -> None:
        """Look into a queue soon, if its agent is registered here."""
        if agent_id in self._registered:
            self._awake[agent_id] = None
            self.operations.want(Operation.CLAIM)

    def wake_some(self, agent_ids: Iterable[str]) -> None:
        """Look into some queues soon."""
        for agent_id in agent_ids:
            self.wake(agent_id)

    def wake_all(self) -> None:
        """Look into all queues soon."""
        self._awake |= self._registered
        self.operations.want(Operation.CLAIM)

    def wake_at(self, at_ms: Mapping[str, int], now_ms: int) -> None:
        """Look into queues at a time of their own."""
        for agent_id, its_ms in at_ms.items():
            if agent_id in self._registered:
                self._wake_at_ms[agent_id] = max(its_ms, now_ms + 1)
        self._arm(now_ms)

    def now_awake(self, now_ms: int) -> list[str]:
        """Return the agents that are awake now; `put_to_sleep` those that are asked for."""
        for agent_id in [each for each, at_ms in self._wake_at_ms.items() if at_ms <= now_ms]:
            del self._wake_at_ms[agent_id]
            self._awake[agent_id] = None
        settings = self.operations.settings
        is_polled_soon = now_ms < self._poll_at_ms <= now_ms + settings.poll_ms
        if settings.shared and not is_polled_soon:
            self._poll_at_ms = now_ms + settings.poll_ms
            self._awake |= self._registered
        return list(self._awake)

    def put_to_sleep(self, agent_ids: Iterable[str], now_ms: int) -> None:
        """Look into queues no more until something happens: the next CLAIM does so once."""
        for agent_id in agent_ids:
            del self._awake[agent_id]
        self._arm(now_ms)

    def _arm(self, now_ms: int) -> None:
        """Have the next agent wake at its time."""
        due = list(self._wake_at_ms.values())
        if self.operations.settings.shared and self._registered:
            due.append(max(self._poll_at_ms, now_ms + 1))
        if due:
            self.operations.arm(Operation.CLAIM, min(due))
