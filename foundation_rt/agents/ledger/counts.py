"""Counts of what one process has done for the agents of a ledger (AACP-161).

They are counted where it is decided, by an addition, whether anybody reads them or not. An agent
that is registered for a while leaves its numbers behind, so the number of names is bounded.
"""

from __future__ import annotations

from collections import Counter

from attrs import define, field

from ...base.shown import Shown
from .types import RequestState

MAX_AGENTS = 1000
"""The most agents that have numbers of their own in the life of a node."""

OTHER_AGENTS = "other"
"""The name under which all further ones are counted."""


@define(eq=False, repr=False)
class AgentCounts(Shown):
    """Counts for one node, by agent.

    Attributes:
        executions: handlers that were begun.
        outcomes: outcomes that were recorded, also by state.
        lost_claims: claims that were lost, though the request had not expired.
    """

    executions: Counter[str] = field(factory=Counter, init=False)
    outcomes: Counter[tuple[str, RequestState]] = field(factory=Counter, init=False)
    lost_claims: Counter[str] = field(factory=Counter, init=False)
    _names: set[str] = field(factory=set, init=False)

    def begun(self, agent_id: str) -> None:
        """Count a handler that begins."""
        self.executions[self.name_of(agent_id)] += 1

    def ended(self, agent_id: str, state: RequestState) -> None:
        """Count an outcome that is recorded."""
        self.outcomes[self.name_of(agent_id), state] += 1

    def lost(self, agent_id: str) -> None:
        """Count a claim that was lost."""
        self.lost_claims[self.name_of(agent_id)] += 1

    def name_of(self, agent_id: str) -> str:
        """Return the name under which an agent is counted."""
        names = self._names
        if agent_id not in names:
            if len(names) >= MAX_AGENTS:
                return OTHER_AGENTS
            names.add(agent_id)
        return agent_id
