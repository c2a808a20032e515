"""Where the queues of a ledger in PostgreSQL begin: never behind a request, whatever comes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random

import pytest

from foundation_rt.agents.ledger.request_options import ExecutionRetries, RequestOptions
from foundation_rt.agents.ledger.types import LOCKED, NO_CLAIMING, Claim, Claiming, Release
from foundation_rt.agents.stores.postgres import PostgresAACPPersistenceAdapter, queue_floors
from tests.agents.stores.contract import HELD, LEASE, NOW, completion, outgoing
from tests.lab.places.services import postgres_schema
from tests.lab.sizes import size

OWN_RETRIES = ExecutionRetries().to_json()
_LOWEST = "SELECT priority, min(position) FROM {schema}.request WHERE queued GROUP BY priority"


class Bench:
    """Two processes on one ledger, which do in any order what adds to queues and takes from them.

    Attributes:
        claims: those that were made, whoever has them by now.
        ended: the ids of requests that were completed.
    """

    def __init__(self, stores: list[PostgresAACPPersistenceAdapter], random: Random) -> None:
        self.stores, self.random = stores, random
        self.now, self.names = NOW, 0
        self.claims: list[Claim] = []
        self.ended: list[str] = []

    async def step(self) -> None:
        random = self.random
        await asyncio.gather(self.enter(), self.claim())
        await random.choice((self.complete, self.release, self.operate))()
        await random.choice(self.stores).queue_delayed(self.now, 3)
        self.now += random.choice((0, 0, 10, 50))

    async def enter(self) -> None:
        messages = []
        for _ in range(self.random.randint(0, 3)):
            self.names += 1
            options = RequestOptions(None, self.random.choice((0, 0, 1, 9)), OWN_RETRIES)
            expires_at_ms = self.now + self.random.choice((20, 100, 1_000))
            messages.append(
                outgoing(f"r{self.names}", options=options, expires_at_ms=expires_at_ms)
            )
        claiming = Claiming({"b": 3}, self.random.choice("xy"), self.now + LEASE, self.now + HELD)
        claiming = self.random.choice((NO_CLAIMING, claiming))
        entered = await self.random.choice(self.stores).append(messages, self.now, claiming)
        answers = [each for each in entered if each is not LOCKED]
        self.claims += [each.claim for each in answers if each.claim is not None]

    async def claim(self) -> None:
        wanted, owner = {"b": self.random.choice((1, 3, 100))}, self.random.choice("xy")
        store = self.random.choice(self.stores)
        self.claims += (await store.claim(Claiming(wanted, owner, self.now + 40), self.now)).claims

    def take_claims(self) -> list[Claim]:
        self.random.shuffle(self.claims)
        taken, self.claims = self.claims[:4], self.claims[4:]
        return taken

    async def complete(self) -> None:
        ended = [
            completion(claim, error=self.random.choice((None, b'{"code":"X"}')))
            for claim in self.take_claims()
        ]
        await self.random.choice(self.stores).complete(ended, self.now)
        self.ended += [each.request_id for each in ended]

    async def release(self) -> None:
        releases = [
            Release(each.request_id, each.epoch, 1, self.now + 10, self.random.random() < 0.5)
            for each in self.take_claims()
        ]
        await self.random.choice(self.stores).release(releases)

    async def operate(self) -> None:
        await self.random.choice(self.stores).requeue(self.ended[-3:], self.now + 100)
        await self.random.choice(self.stores).purge_expired(self.now)


@pytest.mark.rule("AACP-172")
async def test_no_request_of_a_queue_is_below_its_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_floors, "STEP", 0)  # they are read with every claim
    with postgres_schema() as (url, schema):
        stores = [PostgresAACPPersistenceAdapter(url, schema=schema) for _ in range(2)]
        async with AsyncExitStack() as stack:
            for store in stores:
                await store.open()
                stack.push_async_callback(store.close)
            await look_at_floors(Bench(stores, Random(29)))


async def look_at_floors(bench: Bench) -> None:
    raised = 0
    for _ in range(size(200, 2_000)):
        await bench.step()
        queued = await bench.stores[0]._ask((_LOWEST, ()))
        for floors in [each for store in bench.stores for each in store._floors.values()]:
            [known] = floors.of(["b"])
            raised += min(known) > 0
            for priority, position in queued:
                assert priority >= len(known) or known[priority] <= position
    assert raised
