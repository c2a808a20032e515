"""Claims for one agent, where Python reads its queue: in memory and in SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Protocol

from ..ledger.agent_limits import LimitedAgent
from ..ledger.request_options import MAX_PRIORITY
from ..ledger.rules import (
    Claimability,
    claim_from,
    claimability,
    executed_elsewhere_until,
    give_back_lapsed,
)
from ..ledger.types import Claimed, Claiming, RequestRecord

_PRIORITIES = range(MAX_PRIORITY, -1, -1)


class AgentQueue(Protocol):
    """The queue of one agent, within one transaction."""

    agent_id: str

    def level(self, priority: int, *, whole: bool = False) -> Iterable[RequestRecord]:
        """Return the requests of a priority, in their order; `whole`: with their payloads."""

    def claimable(self, owner: str, now_ms: int, most: int) -> Iterable[RequestRecord]:
        """Return the requests in the order of the queue, as far as `claim_from` may need them.

        What `claimability` passes over may be left out; of all else the first `most` are there.
        """

    def give_back(self, lapsed: Sequence[RequestRecord]) -> None:
        """Write that claims were given back, as `give_back_lapsed` has changed them."""


def claim_for(
    queue: AgentQueue,
    limited: LimitedAgent | None,
    claiming: Claiming,
    now_ms: int,
    time_ms: int,
    claimed: Claimed,
) -> list[RequestRecord]:
    """Claim requests of one agent; return their records, which the store writes.

    Args:
        queue: of the agent.
        limited: its limits, if it has any. The starts are noted there, and the store writes them.
        claiming, now_ms: as for `AACPPersistenceAdapter.claim`.
        time_ms: the time by the clock of the ledger.
        claimed: gets the claims, and when to ask again.
    """
    most, owner = claiming.wanted[queue.agent_id], claiming.owner
    if limited is not None:
        head: list[RequestRecord] = []
        for priority in _PRIORITIES:
            level = queue.level(priority, whole=True)
            live = (record for record in level if record.expires_at_ms > now_ms)
            head += islice(live, limited.read_ahead)
        admitted = limited.admit(head, most, owner, now_ms, time_ms)
        if admitted.again_at_ms is not None:
            claimed.again_at_ms[queue.agent_id] = admitted.again_at_ms
        if admitted.requests is not None:
            for record in admitted.requests:
                claimed.claims.append(limited.claim(record, claiming))
            limited.note_starts(admitted.most, time_ms)
            return admitted.requests
        most = admitted.most
    if not most:
        return []
    found = iter(queue.claimable(owner, now_ms, most))
    for first in found:
        if claimability(first, owner, now_ms) is not Claimability.PASS_OVER:
            break
    else:
        return []
    lower = (queue.level(priority) for priority in range(first.priority))
    ends = (executed_elsewhere_until(level, owner, now_ms) for level in lower)
    until_ms = min((end for end in ends if end is not None), default=None)
    if until_ms is not None:
        claimed.again_at_ms[queue.agent_id] = until_ms
        return []
    taken = claim_from(
        chain((first,), found),
        most,
        claiming,
        now_ms,
        queue.agent_id in claiming.idle or limited is not None,
        claimed,
        lambda lapsed: _take_over(queue, lapsed, owner, now_ms),
    )
    if limited is not None:
        limited.note_starts(len(taken), time_ms)
    return taken


def _take_over(queue: AgentQueue, lapsed: RequestRecord, owner: str, now_ms: int) -> int | None:
    """Give back all claims of the queue that have lapsed, or return when to ask again."""
    until_ms = executed_elsewhere_until(queue.level(lapsed.priority), owner, now_ms)
    if until_ms is None:
        for priority in _PRIORITIES:
            queue.give_back(give_back_lapsed(queue.level(priority), owner, now_ms))
    return until_ms
