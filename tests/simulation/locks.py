"""Rows that a frozen process keeps locked: what a ledger answers to others meanwhile (AACP-90).

A lane is an agent: all that needs the queue, the claims or the links of an agent that is locked is
answered with `LOCKED`, or passed over, and the rest of its batch happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import evolve

from foundation_rt.agents.ledger.effects import Operation
from foundation_rt.agents.ledger.types import LOCKED, Claimed, Received

if TYPE_CHECKING:
    from .disk import Disk

Part: TypeAlias = tuple[tuple[Any, ...], Any, Any]
"""The arguments and the result of what happened, and the answer to all that was asked."""

_HINT_MS = 100
"""After how long a locked queue is looked into again."""


def perform(disk: Disk, operation: Operation, arguments: tuple[Any, ...]) -> Part:
    """Do what of an operation needs nothing that is locked.

    Raises:
        StoreError: it was undone.
    """
    special = _SPECIAL.get(operation)
    if special is not None:
        return special(disk, arguments)
    result = disk.perform(operation, arguments)
    return arguments, result, result


def _batch(operation: Operation, agent_of: Callable[[Disk, Any], str | None], locked: Any) -> Any:
    """Return a function that divides a batch whose results are in its order."""

    def divide(disk: Disk, arguments: tuple[Any, ...]) -> Part:
        items, *rest = arguments
        free = [agent_of(disk, item) not in disk.locked for item in items]
        mine = [item for item, is_free in zip(items, free, strict=True) if is_free]
        results = disk.perform(operation, (mine, *rest))
        following = iter(results)
        answer = [next(following) if is_free else locked for is_free in free]
        return (mine, *rest), results, answer

    return divide


def _receive(disk: Disk, arguments: tuple[Any, ...]) -> Part:
    arrivals, *rest = arguments
    locked = [each for each in arrivals if each.envelope.target_agent_id in disk.locked]
    mine = [each for each in arrivals if each.envelope.target_agent_id not in disk.locked]
    received: Received = disk.perform(Operation.RECEIVE, (mine, *rest))
    received.locked = [each.envelope for each in locked]
    return (mine, *rest), received, received


def _claim(disk: Disk, arguments: tuple[Any, ...]) -> Part:
    claiming, now_ms = arguments
    wanted = claiming.wanted
    free = {agent: most for agent, most in wanted.items() if agent not in disk.locked}
    mine = (evolve(claiming, wanted=free), now_ms)
    claimed: Claimed = disk.perform(Operation.CLAIM, mine)
    for agent_id in wanted:
        if agent_id not in free:
            claimed.again_at_ms[agent_id] = now_ms + _HINT_MS
    return mine, claimed, claimed


def _release(disk: Disk, arguments: tuple[Any, ...]) -> Part:
    [releases] = arguments
    locked = [each for each in releases if _agent(disk, each.request_id) in disk.locked]
    mine = [each for each in releases if _agent(disk, each.request_id) not in disk.locked]
    result = disk.perform(Operation.RELEASE, (mine,))
    return (mine,), result, locked


def _agent(disk: Disk, request_id: str) -> str | None:
    record = disk.requests.get(request_id)
    return None if record is None else record.target_agent_id


_SPECIAL: dict[Operation, Callable[[Disk, tuple[Any, ...]], Part]] = {
    Operation.APPEND: _batch(Operation.APPEND, lambda _, item: item.target_agent_id, LOCKED),
    Operation.RECEIVE: _receive,
    Operation.CLAIM: _claim,
    Operation.COMPLETE: _batch(
        Operation.COMPLETE, lambda disk, item: _agent(disk, item.request_id), LOCKED
    ),
    # One that is locked counts as held: the next renewal decides.
    Operation.RENEW: _batch(Operation.RENEW, lambda disk, item: _agent(disk, item[0]), True),
    Operation.RELEASE: _release,
}


def needs_none(agents: Sequence[str], disk: Disk) -> bool:
    """Return whether none of these agents is locked."""
    return disk.locked.isdisjoint(agents)
