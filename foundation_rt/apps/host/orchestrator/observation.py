"""The log records and the metrics of turns (TURN-70 to TURN-73).

Everything here returns at once and raises nothing. The id of a session is a secret: records have a
hash of it. No field has "token" in its name, which the log would redact. What people and models say
is in records of the level `debug` alone, which the log of the application redacts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import define

from ..chat import TokenUsage, chat_label

if TYPE_CHECKING:
    from .... import Server

log = logging.getLogger("foundation_rt.host")
# Without it Python prints warnings on the stderr of programs that have not configured logging.
log.addHandler(logging.NullHandler())

_COMPONENTS = {
    "llm_request": "LLM",
    "llm_failed": "LLM",
    "malformed_call": "LLM",
    "tool_execution_start": "MCP",
    "tool_execution_end": "MCP",
}
"""The component that a record is about, by its action; of all others the orchestrator."""

_LOGGED = 1000
"""The most characters of a text in a record."""


class TurnMetrics:
    """Counts turns, tokens, rounds, calls and approvals.

    Args:
        server: has the metrics; where they are off, nothing is counted.
    """

    def __init__(self, server: Server) -> None:
        metrics = server.metrics
        self.turns = metrics.counter("mcp_host_turns_total", "Turns that ended.", labels=["state"])
        self.turn_seconds = metrics.histogram("mcp_host_turn_seconds", "How long turns took.")
        self.first_token_seconds = metrics.histogram(
            "mcp_host_first_token_seconds", "From a request to the model to its first piece."
        )
        self.rounds = metrics.counter("mcp_host_rounds_total", "Answers of the model with calls.")
        self.tokens = metrics.counter(
            "mcp_host_tokens_total", "Tokens of the model.", labels=["kind"]
        )
        self.calls = metrics.counter(
            "mcp_host_calls_total", "Calls of tools for the model.", labels=["result"]
        )
        self.approvals = metrics.counter(
            "mcp_host_approvals_total", "Approvals that were asked for.", labels=["decision"]
        )


@define(eq=False)
class TurnObservation:
    """Records what happens in one turn.

    Args:
        session_id: of the turn.
        turn_id: of the turn; also the correlation id of its calls.
        metrics: None: nothing is counted.
    """

    session_id: str
    turn_id: str
    metrics: TurnMetrics | None = None

    def write(self, level: int, action: str, **fields: Any) -> None:
        """Write a record of something that happened."""
        if log.isEnabledFor(level):
            given = {
                "chat": chat_label(self.session_id),
                "requestId": self.turn_id,
                "correlationId": self.turn_id,
                "component": _COMPONENTS.get(action, "Orchestrator"),
                "action": action,
                **fields,
            }
            log.log(level, action, extra={"fields": given})

    def began(self, text: str) -> None:
        """Note the beginning."""
        self.write(logging.INFO, "turn_started", characters=len(text))
        self.write(logging.DEBUG, "message_received", text=text[:_LOGGED])

    def ended(self, state: str, seconds: float, usage: TokenUsage | None, **fields: Any) -> None:
        """Note the end."""
        ms = round(seconds * 1000)
        self.write(
            logging.INFO,
            "turn_ended",
            state=state,
            durationMs=ms,
            usage=_logged_usage(usage),
            **fields,
        )
        if self.metrics is not None:
            self.metrics.turns.add(state=state)
            self.metrics.turn_seconds.observe(seconds)
            if usage is not None:
                self.metrics.tokens.add(usage.prompt_tokens, kind="prompt")
                self.metrics.tokens.add(usage.completion_tokens, kind="completion")

    def model_asked(self, messages: int, tools: int, tokens: int) -> None:
        """Note a request to the model."""
        fields = {"messages": messages, "tools": tools, "toolSize": tokens}
        self.write(logging.DEBUG, "llm_request", **fields)

    def tools_leave_little(self, tokens: int, most: int) -> None:
        """Note that tools and guidance leave less than a quarter to the history."""
        fields = {"toolSize": tokens, "maxSize": most}
        self.write(logging.WARNING, "tools_leave_little_room", **fields)

    def history_pruned(self, tokens: int, kept: int, most: int) -> None:
        """Note that the model reads a part of the history; all three are in tokens."""
        self.write(logging.INFO, "history_pruned", size=tokens, keptSize=kept, maxSize=most)

    def malformed_call(self, problem: str) -> None:
        """Note a call of the model that could not be read; it may quote the model (TURN-71)."""
        self.write(logging.WARNING, "malformed_call")
        self.write(logging.DEBUG, "malformed_call", problem=problem[:_LOGGED])

    def first_token(self, seconds: float) -> None:
        """Note the first piece of an answer."""
        if self.metrics is not None:
            self.metrics.first_token_seconds.observe(seconds)

    def model_failed(self, error: BaseException, attempt: int, delay: float | None) -> None:
        """Note a request that failed, and whether it is tried again."""
        recovery = "abort" if delay is None else "retry"
        self.write(
            logging.WARNING,
            "llm_failed",
            error=f"{type(error).__name__}: {error}"[:_LOGGED],
            attemptCount=attempt,
            recoveryAction=recovery,
            delayMs=None if delay is None else round(delay * 1000),
        )

    def round_began(self, number: int, calls: int) -> None:
        """Note an answer with calls."""
        self.write(logging.DEBUG, "round_started", round=number, calls=calls)
        if self.metrics is not None:
            self.metrics.rounds.add()

    def call_began(self, tool: str, call_id: str) -> None:
        """Note that a call is sent."""
        self.write(logging.INFO, "tool_execution_start", tool=tool, callId=call_id)

    def call_ended(self, tool: str, call_id: str, ms: int, is_error: bool, code: str) -> None:
        """Note how a call ended, also one that was not sent."""
        level = logging.WARNING if is_error else logging.INFO
        fields = {"tool": tool, "callId": call_id, "durationMs": ms, "isError": is_error}
        self.write(level, "tool_execution_end", **fields, **({"code": code} if code else {}))
        if self.metrics is not None:
            self.metrics.calls.add(result="error" if is_error else "success")

    def approval(self, tool: str, call_id: str, decision: str) -> None:
        """Note how an approval ended."""
        self.write(logging.INFO, "approval", tool=tool, callId=call_id, decision=decision)
        if self.metrics is not None:
            self.metrics.approvals.add(decision=decision)


def _logged_usage(usage: TokenUsage | None) -> Mapping[str, Any] | None:
    """Return the usage of tokens under names that the log does not take for secrets."""
    if usage is None:
        return None
    return {
        "prompt": usage.prompt_tokens,
        "completion": usage.completion_tokens,
        "total": usage.total_tokens,
        "isEstimated": usage.is_estimated,
    }
