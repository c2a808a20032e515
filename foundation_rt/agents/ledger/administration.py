"""Values and rules of an operator: questions to a ledger, and changes (AACP-111 to AACP-115).

An operator lists requests, cancels those without an outcome and requeues those that FAILED. That is
the one exception to the rule that an outcome is never left (AACP-03): a person asked for it.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import orjson
from attrs import define, evolve, frozen

from ...base.shown import Shown
from ...errors import ErrorCode, StructuredError
from .types import TERMINAL, VOID_PAYLOAD, MessageRecord, RequestRecord, RequestState

MAX_PAGE = 1_000
"""The most requests, or agents, of one page."""

MAX_MEASURED = 10_000
"""The most requests of one queue that are counted for its length."""

CANCELLED = orjson.dumps(
    StructuredError(
        ErrorCode.INTERNAL, "The request was cancelled by an operator.", {"reason": "cancelled"}
    ).to_wire()
)
"""The error of a request that was cancelled."""

PageKey = tuple[int, str]
"""The creation time and the id of a request: pages are in this order."""

PAGE_START: PageKey = (-1, "")
"""Before every request."""


PENDING = frozenset(RequestState) - TERMINAL
"""The states of requests without an outcome."""


class Verdict(StrEnum):
    """The answer to a change that an operator has asked for."""

    DONE = "done"
    UNKNOWN_ID = "unknown_id"
    FINISHED = "finished"
    """It has its outcome: cancelling has no effect."""
    NOT_FAILED = "not_failed"
    """Only what FAILED is requeued."""
    ELSEWHERE = "elsewhere"
    """It is executed in another ledger."""
    ANSWERED = "answered"
    """Its outcome was sent to the ledger that asked, where it is never left."""


@frozen
class RequestQuery:
    """A page of the requests of a ledger.

    Attributes:
        agent_id: of their target; None for all.
        states: those that count; none for all.
        before_ms: made before; None for all.
        id_owner: the digest of the owner of their ids (AACP-48); None for all.
        after: the last request of the page before.
        limit: the most of the page.
        whole: with payloads and results, so that a page has no bounded size.
    """

    agent_id: str | None = None
    states: Collection[RequestState] = ()
    before_ms: int | None = None
    id_owner: str | None = None
    after: PageKey = PAGE_START
    limit: int = 100
    whole: bool = False

    def takes(self, record: RequestRecord) -> bool:
        """Return whether a request belongs to this page or to one behind it."""
        return (
            (self.agent_id is None or record.target_agent_id == self.agent_id)
            and (not self.states or record.state in self.states)
            and (self.before_ms is None or record.created_at_ms < self.before_ms)
            and (self.id_owner is None or record.request_id.endswith(f"@{self.id_owner}"))
            and key_of(record) > self.after
        )


@define
class AgentSummary:
    """The requests of one agent in a ledger.

    Attributes:
        counts: the number of requests by state; states without requests are missing.
        oldest_at_ms: when the oldest one without an outcome was made; None if there is none.
    """

    agent_id: str
    counts: dict[RequestState, int]
    oldest_at_ms: int | None


@define(eq=False, repr=False)
class Changed(Shown):
    """The answer to one change.

    Attributes:
        record: as it is now; None if the ledger does not have it.
        response: the RESPONSE that was entered, if any.
    """

    verdict: Verdict
    record: RequestRecord | None
    response: MessageRecord | None = None


def key_of(record: RequestRecord) -> PageKey:
    """Return the place of a request in the order of pages."""
    return record.created_at_ms, record.request_id


def outline(record: RequestRecord) -> RequestRecord:
    """Return a copy of a record without its payload and result, of which a page may have many."""
    return evolve(record, payload=VOID_PAYLOAD, result=None)


def judge_cancelling(record: RequestRecord | None) -> Verdict:
    """Return whether a request may be cancelled (AACP-114)."""
    if record is None:
        return Verdict.UNKNOWN_ID
    if record.state in TERMINAL:
        return Verdict.FINISHED
    return Verdict.ELSEWHERE if record.state is RequestState.SENT else Verdict.DONE


def judge_requeueing(record: RequestRecord | None) -> Verdict:
    """Return whether a request may be requeued (AACP-112)."""
    if record is None:
        return Verdict.UNKNOWN_ID
    if record.state is not RequestState.FAILED:
        return Verdict.NOT_FAILED
    if record.needs_response:
        return Verdict.ANSWERED
    return Verdict.DONE if is_executed_here(record) else Verdict.ELSEWHERE


def is_executed_here(record: RequestRecord) -> bool:
    """Return whether a request that is finished was to be executed in this ledger.

    It had a place in a queue, or was cancelled before it got one, which gave it an epoch.
    """
    return record.position is not None or record.epoch > 0


def summaries(rows: Collection[tuple[str, str, int, int]]) -> list[AgentSummary]:
    """Return the summaries in rows of agent, state, count and oldest creation time, by agent."""
    found: dict[str, AgentSummary] = {}
    for agent_id, name, count, oldest_ms in rows:
        state = RequestState(name)
        summary = found.setdefault(agent_id, AgentSummary(agent_id, {}, None))
        summary.counts[state] = count
        if state not in TERMINAL:
            known_ms = summary.oldest_at_ms
            summary.oldest_at_ms = oldest_ms if known_ms is None else min(known_ms, oldest_ms)
    return list(found.values())
