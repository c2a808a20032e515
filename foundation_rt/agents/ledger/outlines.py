"""Requests and agents of a ledger for operators, as JSON: of the command line, and of tools."""

from __future__ import annotations

from typing import Any

from ...base.exact_json import loads
from .administration import AgentSummary, Changed
from .encoder import format_time
from .operator import refusal_of
from .types import RequestRecord, RequestState


def show_outline(record: RequestRecord) -> dict[str, Any]:
    """Return a request without its payload and result."""
    return {
        "requestId": record.request_id,
        "messageType": str(record.message_type),
        "sourceAgentId": record.source_agent_id,
        "targetAgentId": record.target_agent_id,
        "state": str(record.state),
        "createdAt": format_time(record.created_at_ms),
        "expiresAt": format_time(record.expires_at_ms),
        "finishedAt": show_time(record.finished_at_ms),
        "notBefore": show_time(record.not_before_ms),
        "priority": record.priority,
        "executions": record.executions,
        "owner": record.owner,
        "leaseUntil": show_time(record.lease_until_ms),
        "error": None if record.error is None else loads(record.error),
    }


def show_request(record: RequestRecord) -> dict[str, Any]:
    """Return a request with its retries, payload and result."""
    return {
        **show_outline(record),
        "retry": None if record.retry is None else loads(record.retry),
        "payload": loads(record.payload),
        "result": None if record.result is None else loads(record.result),
    }


def show_agent(summary: AgentSummary) -> dict[str, Any]:
    """Return the number of requests of an agent by state, and the time of the oldest."""
    return {
        "agentId": summary.agent_id,
        **{state.lower(): summary.counts.get(state, 0) for state in RequestState},
        "oldestAt": show_time(summary.oldest_at_ms),
    }


def show_change(request_id: str, changed: Changed) -> dict[str, Any]:
    """Return what became of a change that was asked for."""
    return {
        "requestId": request_id,
        "verdict": str(changed.verdict),
        "state": None if changed.record is None else str(changed.record.state),
        "refusal": refusal_of(changed),
    }


def show_time(at_ms: int | None) -> str | None:
    """Return a time in ISO 8601."""
    return None if at_ms is None else format_time(at_ms)
