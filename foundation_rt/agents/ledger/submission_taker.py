"""The requests that applications have entered in their own transactions, as a node takes them over.

A notification names the agent and the transaction, so that only a process that serves the agent
looks, and only for that. Every process looks for all from time to time: the notification may be
lost, and the agent may be served by nobody.
"""

from __future__ import annotations

from typing import Any

from attrs import define, field

from .awake_agents import AwakeAgents
from .effects import Operation, Persist
from .exchange import Exchange
from .operations import Operations
from .submissions import TakenSubmissions
from .types import EntryVerdict, LedgerNews

_POLL_MS = 10_000


@define(eq=False, repr=False)
class SubmissionTaker:
    """The submissions of a ledger that takes them: TAKE_SUBMISSIONS."""

    operations: Operations
    exchange: Exchange
    awake: AwakeAgents
    # Transactions of which there is news, in its order.
    _named: dict[int, None] = field(factory=dict, init=False)
    _look_at_all: bool = field(default=True, init=False)
    _poll_at_ms: int = field(default=0, init=False)

    def look(self, news: LedgerNews | None) -> None:
        """Look for submissions soon, if there is news of some; None: for all."""
        if not self.operations.settings.takes_submissions:
            return
        if news is None:
            self._look_at_all = True
            self.operations.want(Operation.TAKE_SUBMISSIONS)
            return
        for agent_id, transaction in news.submitted:
            if not agent_id or self.awake.has(agent_id):
                self._named[transaction] = None
                self.operations.want(Operation.TAKE_SUBMISSIONS)

    def arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        """Return what to take over."""
        settings = self.operations.settings
        if not settings.takes_submissions:
            return None
        is_whole = self._look_at_all or not self._named or now_ms >= self._poll_at_ms
        named = None if is_whole else list(self._named)
        self._look_at_all = False
        self._named.clear()
        if is_whole:
            self._poll_at_ms = now_ms + _POLL_MS
        next_attempt_at_ms = self.exchange.plan_reply(now_ms)[1]
        return (named, now_ms, next_attempt_at_ms, settings.max_batch)

    def taken(self, persist: Persist, taken: TakenSubmissions, now_ms: int) -> None:
        """Have what was taken over executed, or sent."""
        operations, envelopes = self.operations, []
        for message, appended in taken.entered:
            envelope = self.exchange.entered(message, appended)
            if envelope is not None:
                envelopes.append(envelope)
            if appended.verdict is EntryVerdict.CONFLICT:
                fields = {"requestId": message.request_id, "agentId": message.target_agent_id}
                why = "request of a transaction refused: another one has its id"
                operations.log("error", why, fields)
        operations.send(envelopes)
        if taken.left:
            self.look(None)
        if taken.locked:
            self._poll_at_ms = now_ms + operations.settings.store_retry_ms
        operations.arm(Operation.TAKE_SUBMISSIONS, max(self._poll_at_ms, now_ms + 1))
