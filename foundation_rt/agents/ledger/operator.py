"""An operator at a ledger: requests are listed, cancelled, requeued and purged, with audit records.

It works on any open store, beside the processes that serve its agents (AACP-116).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field

from ...base.exact_json import loads
from ...base.logs.logger import StructuredLogger
from ...features.audit import MESSAGE
from ..persistence import AACPPersistenceAdapter
from .administration import CANCELLED, AgentSummary, Changed, Verdict
from .encoder import format_time
from .schedules import RemoveSchedule
from .types import ClaimCompletion, RequestRecord, RequestState

NO_SCHEDULE = "the ledger has no schedule of this name"

_WORDS = {
    Verdict.UNKNOWN_ID: "the ledger has no request of this id, or not any more",
    Verdict.FINISHED: "it is finished: cancelling it has no effect",
    Verdict.NOT_FAILED: "it has not FAILED: only what FAILED is requeued",
    Verdict.ELSEWHERE: "another ledger executes it: ask there",
    Verdict.ANSWERED: (
        "another ledger asked for it and has the outcome: have it sent again under a new id"
    ),
}


def _ignore(changed: Changed) -> None:
    """Take no notice of a change."""


@define(eq=False, repr=False)
class LedgerOperator:
    """Changes an open ledger for an operator.

    Args:
        store: the ledger.
        logger: lends sink, clock and redactor to the audit records, whatever its level is.
        new_id: returns a new message id.
        now_ms: returns the time of the ledger.
        by: fields of the audit records that say who asked.
        on_change: called with every change that was made.
    """

    store: AACPPersistenceAdapter
    logger: StructuredLogger
    new_id: Callable[[], str]
    now_ms: Callable[[], int]
    by: Mapping[str, Any] = field(factory=dict)
    on_change: Callable[[Changed], object] = field(default=_ignore)

    async def cancel(self, request_ids: Sequence[str], reason: str | None) -> list[Changed]:
        """Cancel requests (AACP-114)."""
        now_ms = self.now_ms()
        cancellations = [
            ClaimCompletion(
                request_id, 0, RequestState.FAILED, None, CANCELLED, self.new_id(), now_ms
            )
            for request_id in request_ids
        ]
        answers = await self.store.cancel(cancellations, now_ms)
        self._note("AGENT_REQUEST_CANCELLED", request_ids, answers, reason)
        return answers

    async def requeue(self, request_ids: Sequence[str], reason: str, ttl_ms: int) -> list[Changed]:
        """Requeue requests that FAILED; they count for `ttl_ms` from now on (AACP-112)."""
        answers = await self.store.requeue(request_ids, self.now_ms() + ttl_ms)
        self._note("AGENT_REQUEST_REQUEUED", request_ids, answers, reason)
        return answers

    async def unschedule(self, names: Sequence[str], reason: str | None) -> list[bool]:
        """Remove schedules; return whether there was each of them (AACP-147)."""
        answers = await self.store.change_schedules([*map(RemoveSchedule, names)])
        for name, was_there in zip(names, answers, strict=True):
            fields: dict[str, Any] = {"metadata": {"schedule": name}}
            if reason is not None:
                fields["metadata"]["reason"] = reason
            if not was_there:
                fields["errorMessage"] = NO_SCHEDULE
            self._write("AGENT_SCHEDULE_REMOVED", was_there, fields)
        return answers

    async def purge(self) -> int:
        """Delete what has expired; return how many records (AACP-15)."""
        purged, success = 0, False
        try:
            while batch := await self.store.purge_expired(self.now_ms()):
                purged += batch
            success = True
        finally:  # what was deleted before it failed stays deleted
            self._write("AGENT_LEDGER_PURGED", success, {"metadata": {"purged": purged}})
        return purged

    def _note(
        self,
        event_type: str,
        request_ids: Sequence[str],
        answers: Sequence[Changed],
        reason: str | None,
    ) -> None:
        for request_id, changed in zip(request_ids, answers, strict=True):
            fields: dict[str, Any] = {"requestId": request_id}
            if changed.record is not None:
                fields["agentId"] = changed.record.target_agent_id
            if changed.verdict is not Verdict.DONE:
                fields["errorMessage"] = refusal_of(changed)
            if reason is not None:
                fields["metadata"] = {"reason": reason}
            self._write(event_type, changed.verdict is Verdict.DONE, fields)
            if changed.verdict is Verdict.DONE:
                self.on_change(changed)

    def _write(self, event_type: str, success: bool, fields: dict[str, Any]) -> None:
        stream = StructuredLogger(self.logger.sink, self.logger.clock, "info", self.logger.redactor)
        record = {"eventType": event_type, "category": "ADMIN", "success": success}
        stream.log("info" if success else "warn", MESSAGE, {**record, **fields, **self.by})


def refusal_of(changed: Changed) -> str | None:
    """Return why a change was refused, in words; None if it was made."""
    return _WORDS.get(changed.verdict)


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
