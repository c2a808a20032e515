"""Processes that serve the same agent, on one ledger in PostgreSQL that none of them polls."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from foundation_rt.agents.ledger import operations
from foundation_rt.agents.ledger.coordinator import AgentCoordinatorV2
from foundation_rt.agents.ledger.operations import NodeSettings
from foundation_rt.agents.messages import AgentContext, AgentMessage
from foundation_rt.agents.stores.postgres.adapter import PostgresAACPPersistenceAdapter
from tests.lab.places.services import postgres_schema
from tests.lab.sizes import size

PROCESSES, REQUESTS = 3, 2
ROUNDS = size(30, 1_000)
PATIENCE_S = 60
DAY_MS = 86_400_000


@pytest.mark.rule("AACP-97", "AACP-195")
@pytest.mark.parametrize("alone", [True, False], ids=["on entry", "shared"])
async def test_no_request_waits_for_a_poll(alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def unpolled(**settings: object) -> NodeSettings:
        return NodeSettings(**settings, poll_ms=DAY_MS)  # type: ignore[arg-type]

    monkeypatch.setattr(operations, "NodeSettings", unpolled)
    hear = PostgresAACPPersistenceAdapter._hear

    def hear_alone(store: PostgresAACPPersistenceAdapter, payload: str | None) -> None:
        store._others_until = DAY_MS  # it was known, so nobody answers
        hear(store, payload)
        store._others_until = 0

    if alone:  # as if each had not heard of the others yet
        monkeypatch.setattr(PostgresAACPPersistenceAdapter, "_hear", hear_alone)
    executed: list[int] = []

    async def handler(message: AgentMessage, context: AgentContext) -> int:
        executed.append(message.payload)
        return message.payload

    async with AsyncExitStack() as stack:
        url, schema = stack.enter_context(postgres_schema())
        coordinators = []
        for _ in range(PROCESSES):
            store = PostgresAACPPersistenceAdapter(url, schema=schema)
            coordinator = AgentCoordinatorV2(store=store)
            coordinator.register_agent("a", handler)
            coordinators.append(await stack.enter_async_context(coordinator))
        for number in range(ROUNDS):  # after each, the queue is empty and nobody looks
            async with asyncio.timeout(PATIENCE_S):
                asked = [each.send_request("a", number) for each in coordinators * REQUESTS]
                assert await asyncio.gather(*asked) == [number] * len(asked)
    assert sorted(executed) == sorted([*range(ROUNDS)] * PROCESSES * REQUESTS)
