"""What NATS loses is sent again soon: by announcement, and with every connection (AACP-100).

Two coordinators on SQLite files use a server of the test's own. No message is sent again by the
policy within the hour, so what arrives did not wait for that.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.agents import (
    AgentCoordinatorV2,
    RetransmissionPolicy,
)
from foundation_rt.agents.messages import AgentMessage
from tests.agents.transports.support import FOREVER_MS, world

PATIENCE_MS = 60_000
POLICY = RetransmissionPolicy(base_delay_ms=FOREVER_MS, max_delay_ms=FOREVER_MS, jitter=0)


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
        near = await stack.enter_async_context(here.coordinator("near", agents=(), policy=POLICY))
        asked = ask(near, range(1200))
        await asyncio.wait(asked, timeout=0)
        await stack.enter_async_context(here.coordinator("far", agents=AGENTS, policy=POLICY))
        assert await asyncio.gather(*asked) == [*range(1200)]
    assert here.executions == dict.fromkeys(range(1200), 1)
    for agent in range(3):
        of_one = [number for number in here.executions if number % 3 == agent]
        assert of_one == sorted(of_one)


@pytest.mark.rule("AACP-41", "AACP-100")
async def test_server_that_is_killed_under_way_loses_and_doubles_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as (here, stack):
        near = await stack.enter_async_context(here.coordinator("near", agents=(), policy=POLICY))
        await stack.enter_async_context(here.coordinator("far", agents=AGENTS, policy=POLICY))
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
        async with here.coordinator("near", agents=(), policy=POLICY) as near:
            for number in range(30):
                await near.submit_request(
                    f"agent-{number % 3}", AgentMessage("work", number), request_id=f"r{number}"
                )
        await stack.enter_async_context(here.coordinator("far", agents=AGENTS, policy=POLICY))
        near = await stack.enter_async_context(here.coordinator("near", agents=(), policy=POLICY))
        assert await asyncio.gather(*ask(near, range(30))) == [*range(30)]
    assert here.executions == dict.fromkeys(range(30), 1)
