"""Errors of messages that are not delivered.

Each is a `ToolError`: a tool that sends a message and does not catch one answers its caller with
the right code and with what has to change.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ErrorCode, ToolError

# Characters of an id that are repeated: one that names no agent can come from outside.
_MAX_ECHOED_ID = 128


class AgentNotFoundError(ToolError):
    """No agent of that id is registered (AGENT-05)."""

    def __init__(self, agent_id: str) -> None:
        echoed = agent_id[:_MAX_ECHOED_ID]
        super().__init__(
            ErrorCode.NOT_FOUND,
            f"There is no agent {echoed!r}.",
            {"reason": "agent_not_found", "agentId": echoed},
        )


class AgentUnregisteredError(ToolError):
    """The agent was unregistered before it began to handle the message (AGENT-07)."""

    def __init__(self, agent_id: str) -> None:
        super().__init__(
            ErrorCode.NOT_FOUND,
            f"Agent {agent_id!r} was unregistered while the message waited; it was not delivered.",
            {"reason": "agent_unregistered", "agentId": agent_id},
        )


class AgentQueueFullError(ToolError):
    """As many messages wait for the agent as `agents.max_queue` allows (AGENT-06)."""

    def __init__(self, agent_id: str, max_queue: int) -> None:
        super().__init__(
            ErrorCode.RESOURCE_EXHAUSTED,
            f"{max_queue} messages wait for agent {agent_id!r}; try again later.",
            {"reason": "agent_queue_full", "agentId": agent_id, "maxQueue": max_queue},
        )


class AgentStateTooLargeError(ToolError):
    """The state of an agent would be larger than `tools.max_state_bytes` allows (AGENT-20)."""

    def __init__(self, size: int, max_bytes: int) -> None:
        super().__init__(
            ErrorCode.RESOURCE_EXHAUSTED,
            f"The agent's state would be {size} bytes as JSON; at most {max_bytes} are kept"
            " (tools.max_state_bytes).",
            {"reason": "state_too_large", "maxStateBytes": max_bytes},
        )


class AgentCycleError(ToolError):
    """The message would wait for the handler that sends it (AGENT-09).

    Args:
        cycle: ids of agents, each of which would wait for the next; the last is the first.
    """

    def __init__(self, cycle: Sequence[str]) -> None:
        super().__init__(
            ErrorCode.INVALID_ARGUMENT,
            f"The message would wait for itself: {' -> '.join(cycle)}."
            " Send it after the handler has returned, or from a task outside the handler.",
            {"reason": "agent_cycle", "cycle": list(cycle)},
        )
