"""A ledger that outlives the processes that use it: the one in memory, as the simulated disk.

It records the writes of handlers with their outcomes as the PostgreSQL ledger does (AACP-07).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import chain
from typing import Any, TypeVar, cast

import psycopg
from attrs import define, evolve, field

from foundation_rt.agents.ledger.effects import Operation
from foundation_rt.agents.ledger.session_manager import LinkState
from foundation_rt.agents.ledger.types import (
    LOCKED,
    ClaimCompletion,
    Completed,
    Link,
    Locked,
    RequestRecord,
    RequestState,
)
from foundation_rt.agents.persistence import StoreError
from foundation_rt.agents.stores.memory import InMemoryAACPPersistenceAdapter
from foundation_rt.agents.stores.postgres.connections import ATTEMPTS, OPERATION_S
from foundation_rt.agents.stores.postgres.outcome_writes import OutcomeWrites
from foundation_rt.base.database.postgres import Raced

from .database import Database, Row, SimulatedConnection

T = TypeVar("T")


@define(eq=False, repr=False)
class Disk(InMemoryAACPPersistenceAdapter):
    """Keeps its records through every crash, and shows them to the simulation.

    Attributes:
        rows: which executions have written, by request id: one row each.
        locked: the agents whose rows a frozen process keeps locked.
    """

    takes_writes = True

    number: int
    database: Database
    time_ms: Callable[[], int]
    rows: dict[str, list[int]] = field(factory=dict, init=False)
    locked: set[str] = field(factory=set, init=False)
    _writes: OutcomeWrites = field(factory=OutcomeWrites, init=False)

    def perform(self, operation: Operation, arguments: tuple[Any, ...]) -> Any:
        """Do an operation, all of it, now: the ledger in memory never waits.

        Raises:
            StoreError: it was undone.
        """
        if operation is Operation.COMPLETE and _writing(arguments[0]):
            return self.database.run(self._complete_writing(*arguments))
        return at_once(getattr(self, operation._value_)(*arguments))

    async def _complete_writing(
        self, completions: Sequence[ClaimCompletion], now_ms: int
    ) -> list[Completed | Locked]:
        """Record outcomes, and the writes of handlers with them, in one transaction."""
        rows, failures = await self._write_all(completions)
        for request_id, run in rows:
            self.rows.setdefault(request_id, []).append(run)
        self._writes.forget(each.request_id for each in completions)
        return [
            self.ledger.complete(evolve(each, in_transaction=None), now_ms)
            if failure is None
            else failure
            if failure is LOCKED
            else Completed(None, None, failure)
            for each, failure in zip(completions, failures, strict=True)
        ]

    async def _write_all(
        self, completions: Sequence[ClaimCompletion]
    ) -> tuple[list[Row], list[Exception | Locked | None]]:
        """Commit the writes of handlers; repeat that as `PostgresConnections.transact` does.

        Returns:
            The rows, and the errors of the writes that failed; LOCKED for what is behind one.

        Raises:
            StoreError: it was undone every time.
        """
        stalls = self.database.stalls(_writing(completions))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + OPERATION_S
        for _ in range(ATTEMPTS):
            connection = stalls.connect()
            try:
                failures = await self._write_each(connection, completions)
                return connection.commit(), failures
            except (psycopg.Error, Raced):
                if loop.time() >= deadline:
                    break
        raise StoreError("the database does not answer")

    async def _write_each(
        self, connection: SimulatedConnection, completions: Sequence[ClaimCompletion]
    ) -> list[Exception | Locked | None]:
        failed: set[str] = set()
        failures: list[Exception | Locked | None] = []
        for each in completions:
            record = self.requests.get(each.request_id)
            agent_id = "" if record is None else record.target_agent_id
            failure = LOCKED if agent_id in failed else await self._write(connection, each)
            if isinstance(failure, Exception):
                failed.add(agent_id)
            failures.append(failure)
        return failures

    async def _write(
        self, connection: SimulatedConnection, completion: ClaimCompletion
    ) -> Exception | None:
        if self.ledger.refuse(completion) is not None:
            return None
        return await self._writes.perform(cast(Any, connection), completion)

    async def read_time(self) -> int:
        """Return the right time."""
        return self.time_ms()

    def _time_ms(self, now_ms: int) -> int:
        return self.time_ms()

    @property
    def requests(self) -> dict[str, RequestRecord]:
        """The records of requests by id."""
        return self.ledger.requests

    @property
    def links(self) -> dict[Link, LinkState]:
        """Both ends of the links that have one here."""
        return self.ledger.links

    def unfinished(self, now_ms: int, lossy: set[str]) -> str | None:
        """Describe a record that is not finished; return None when all are.

        Args:
            now_ms: records that have expired by then count as finished.
            lossy: agents whose ledger was lost: a message from or to them may wait in vain for an
                earlier one.
        """
        for link, outbox in self.ledger.outbox.items():
            if outbox:
                return f"{link[0]}>{link[1]} has not had acknowledged {sorted(outbox)}"
        queued = (
            record
            for levels in self.ledger.waiting.values()
            for level in levels.values()
            for record in level.values()
        )
        delayed = (
            record
            for record in self.ledger.requests.values()
            if record.state is RequestState.DELAYED
        )
        held = (
            record
            for link, waiting in self.ledger.held.items()
            if lossy.isdisjoint(link)
            for record in waiting.values()
        )
        for record in chain(queued, delayed, held):
            if record.expires_at_ms > now_ms:
                return f"{record.request_id} is {record.state}"
        return None


def _writing(completions: Sequence[ClaimCompletion]) -> int:
    """Return how many handlers write."""
    return sum(each.in_transaction is not None for each in completions)


def at_once(transaction: Coroutine[Any, Any, T]) -> T:
    """Return the result of a transaction that waits for nothing."""
    try:
        transaction.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError(f"{transaction} waits for something")
