"""What NATS loses is sent again soon: by announcement, and with every connection (AACP-100).

Two coordinators on SQLite files use a server of the test's own. No message is sent again by the
policy within the hour, so what arrives did not wait for that.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.agents import (
    AgentCoordinatorV2,
    NatsTransport,
    RetransmissionPolicy,
    SqliteAACPPersistenceAdapter,
)
from foundation_rt.agents.messages import AgentContext, AgentMessage
from tests.support.nats_server import NatsServer, need_nats_server, own_nats_server

PATIENCE_MS = 60_000
HOUR_MS = 3_600_000
POLICY = RetransmissionPolicy(base_delay_ms=HOUR_MS, max_delay_ms=HOUR_MS, jitter=0)


class World:
    """A server, a coordinator that asks, and one that has the agents, on a file each.

    Attributes:
        executions: how often each number was executed.
        may_answer: is waited for by the agent before it answers.
    """

    def __init__(self, folder: Path, server: NatsServer) -> None:
        self.folder = folder
        self.server = server
        self.executions: Counter[int] = Counter()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def _execute(self, message: AgentMessage, context: AgentContext) -> int:
        number: int = message.payload
        self.executions[number] += 1
        await self.may_answer.wait()
        return number

    def coordinator(self, name: str, *agents: str) -> AgentCoordinatorV2:
        """Return a coordinator of that name on its file, which is not started."""
        coordinator = AgentCoordinatorV2(
            store=SqliteAACPPersistenceAdapter(self.folder / f"{name}.db"),
            transport=NatsTransport(self.server.url),
            name=name,
            policy=POLICY,
        )
        for agent_id in agents:
            coordinator.register_agent(agent_id, self._execute)
        return coordinator


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncIterator[tuple[World, AsyncExitStack]]:
    need_nats_server()
    async with own_nats_server(tmp_path / "nats") as (server, stack):
        yield World(tmp_path, server), stack


def ask(coordinator: AgentCoordinatorV2, numbers: range) -> list[asyncio.Task[Any]]:
    """Make a request for each number, spread over three agents."""
    return [
        asyncio.create_task(
            coordinator.send_request(
                f"agent-{number % 3}",
                AgentMessage("work", number),
                request_id=f"r{number}",
                timeout_ms=PATIENCE_MS,
            )
        )
        for number in numbers
    ]


AGENTS = ("agent-0", "agent-1", "agent-2")


@pytest.mark.rule("AACP-76", "AACP-100")
async def test_agents_that_come_late_get_what_was_sent_before_in_its_order(tmp_path: Path) -> None:
    async with world(tmp_path) as (here, stack):
        near = await stack.enter_async_context(here.coordinator("near"))
        asked = ask(near, range(1200))
        await asyncio.wait(asked, timeout=0)
        await stack.enter_async_context(here.coordinator("far", *AGENTS))
        assert await asyncio.gather(*asked) == [*range(1200)]
    assert here.executions == dict.fromkeys(range(1200), 1)
    for agent in range(3):
        of_one = [number for number in here.executions if number % 3 == agent]
        assert of_one == sorted(of_one)


@pytest.mark.rule("AACP-41", "AACP-100")
async def test_server_that_is_killed_under_way_loses_and_doubles_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as (here, stack):
        near = await stack.enter_async_context(here.coordinator("near"))
        await stack.enter_async_context(here.coordinator("far", *AGENTS))
        asked: list[asyncio.Task[Any]] = []
        for kills in range(4):
            asked += ask(near, range(len(asked), len(asked) + 200))
            await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            if kills == 1:
                # Now requests are known there, and their responses are lost.
                here.may_answer.clear()
            asked += ask(near, range(len(asked), len(asked) + 50))
            here.server.kill()
            if kills == 2:
                asked += ask(near, range(len(asked), len(asked) + 50))
            here.may_answer.set()
            here.server.start()
        assert await asyncio.gather(*asked) == [*range(len(asked))]
    assert here.executions == dict.fromkeys(range(1050), 1)
    for agent in range(3):
        of_one = [number for number in here.executions if number % 3 == agent]
        assert of_one == sorted(of_one)


@pytest.mark.rule("AACP-100")
async def test_ledger_that_was_down_sends_what_it_had_sent_before(tmp_path: Path) -> None:
    async with world(tmp_path) as (here, stack):
        async with here.coordinator("near") as near:
            for number in range(30):
                await near.submit_request(
                    f"agent-{number % 3}", AgentMessage("work", number), request_id=f"r{number}"
                )
        await stack.enter_async_context(here.coordinator("far", *AGENTS))
        near = await stack.enter_async_context(here.coordinator("near"))
        assert await asyncio.gather(*ask(near, range(30))) == [*range(30)]
    assert here.executions == dict.fromkeys(range(30), 1)
