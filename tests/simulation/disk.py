"""A ledger that outlives the processes that use it: the one in memory, as the simulated disk."""

from __future__ import annotations

from itertools import chain
from typing import Any

from attrs import define

from foundation_rt.aacp.effects import Operation
from foundation_rt.aacp.session_manager import LinkState
from foundation_rt.aacp.stores.memory import InMemoryAACPPersistenceAdapter
from foundation_rt.aacp.types import Link, RequestRecord


@define(eq=False, repr=False)
class Disk(InMemoryAACPPersistenceAdapter):
    """Keeps what it was told through every crash, and lets itself be looked at."""

    number: int

    def perform(self, operation: Operation, arguments: tuple[Any, ...]) -> Any:
        """Do an operation, all of it, now: the ledger in memory never waits."""
        transaction = getattr(self, operation._value_)(*arguments)
        try:
            transaction.send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError(f"{operation} waits for something")

    @property
    def requests(self) -> dict[str, RequestRecord]:
        """The records of requests by id."""
        return self._requests

    @property
    def links(self) -> dict[Link, LinkState]:
        """Both ends of the links that have one here."""
        return self._links

    def unfinished(self, now_ms: int, lossy: set[str]) -> str | None:
        """What is still to be done here, in words; None when nothing is.

        Args:
            now_ms: what has expired by then is not to be done any more.
            lossy: agents whose ledger was lost: what came from them or to them may wait in vain for
                what came before it.
        """
        for link, outbox in self._outbox.items():
            if outbox:
                return f"{link[0]}>{link[1]} has not had acknowledged {sorted(outbox)}"
        queued = (record for queue in self._queues.values() for record in queue.values())
        held = (
            record
            for link, waiting in self._held.items()
            if lossy.isdisjoint(link)
            for record in waiting.values()
        )
        for record in chain(queued, held):
            if record.expires_at_ms > now_ms:
                return f"{record.request_id} is {record.state}"
        return None
