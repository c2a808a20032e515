"""Why a message was not delivered, as data and in words."""

from __future__ import annotations

import pytest

from foundation_rt.agents.errors import (
    AgentCycleError,
    AgentNotFoundError,
    AgentQueueFullError,
    AgentUnregisteredError,
)
from foundation_rt.errors import ToolError


@pytest.mark.rule("AGENT-05", "AGENT-06", "AGENT-07", "AGENT-09", "AGENT-25")
@pytest.mark.parametrize(
    ("error", "code", "message", "details"),
    [
        (
            AgentNotFoundError("a"),
            "NOT_FOUND",
            "There is no agent 'a'.",
            {"reason": "agent_not_found", "agentId": "a"},
        ),
        (
            AgentUnregisteredError("a"),
            "NOT_FOUND",
            "Agent 'a' was unregistered while the message waited; it was not delivered.",
            {"reason": "agent_unregistered", "agentId": "a"},
        ),
        (
            AgentQueueFullError("a", 7),
            "RESOURCE_EXHAUSTED",
            "7 messages wait for agent 'a'; try again later.",
            {"reason": "agent_queue_full", "agentId": "a", "maxQueue": 7},
        ),
        (
            AgentCycleError(("a", "b", "a")),
            "INVALID_ARGUMENT",
            "The message would wait for itself: a -> b -> a."
            " Send it after the handler has returned, or from a task outside the handler.",
            {"reason": "agent_cycle", "cycle": ["a", "b", "a"]},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_error_names_cause_and_reason(
    error: ToolError, code: str, message: str, details: dict[str, object]
) -> None:
    structured = error.to_structured()
    assert (structured.code, structured.message, structured.details) == (code, message, details)
    assert str(error) == message


@pytest.mark.rule("AGENT-05")
def test_foreign_id_is_truncated_in_error() -> None:
    error = AgentNotFoundError("x" * 5000)
    assert error.details is not None
    assert error.details["agentId"] == "x" * 128
    assert len(str(error)) < 200
