"""Coordinators on files of their own, joined by a nats-server of the test's own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from foundation_rt.agents import (
    AgentCoordinatorV2,
    NatsTransport,
    RetransmissionPolicy,
    SqliteAACPPersistenceAdapter,
)
from foundation_rt.agents.messages import AgentContext, AgentMessage
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.base.ids import UuidGenerator
from tests.lab.checks.recorded_log import RecordedLog
from tests.lab.places.processes import ServiceProcess, nats_server

FOREVER_MS = 3_600_000


class World:
    """A server, and coordinators whose agents return the number that they are sent.

    Attributes:
        executions: how often each number was executed, and by which coordinator.
        may_answer: is waited for by the agents before they answer.
    """

    def __init__(self, folder: Path, server: ServiceProcess, claim_ms: int) -> None:
        self.folder = folder
        self.claim_ms = claim_ms
        self.server = server
        self.executions: Counter[int] = Counter()
        self.by: Counter[str] = Counter()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def coordinator(
        self,
        ledger: str,
        name: str | None = None,
        agents: tuple[str, ...] = ("clerk",),
        store: Any = None,
        log: RecordedLog | None = None,
        policy: RetransmissionPolicy | None = None,
    ) -> AgentCoordinatorV2:
        """Return one that is not started; its name is that of its file, by default."""

        async def execute(message: AgentMessage, context: AgentContext) -> int:
            number: int = message.payload
            self.executions[number] += 1
            self.by[ledger] += 1
            await self.may_answer.wait()
            return number

        logger = None if log is None else log.logger()
        coordinator = AgentCoordinatorV2(
            store=store or SqliteAACPPersistenceAdapter(self.folder / f"{ledger}.db"),
            transport=NatsTransport(self.server.url, claim_ms=self.claim_ms, logger=logger),
            name=name or ledger,
            policy=policy,
        )
        if logger is not None:
            coordinator.attach(logger, ServerConfig(), UuidGenerator())
        for agent_id in agents:
            coordinator.register_agent(agent_id, execute)
        return coordinator


@asynccontextmanager
async def world(
    tmp_path: Path, claim_ms: int = FOREVER_MS
) -> AsyncIterator[tuple[World, AsyncExitStack]]:
    """Yield a world, and a stack that ends before its server."""
    with nats_server(tmp_path / "nats") as server:
        async with AsyncExitStack() as stack:
            yield World(tmp_path, server, claim_ms), stack
