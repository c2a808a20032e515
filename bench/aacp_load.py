"""Coordinators on each kind of ledger, and clients that keep them busy."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from attrs import define, field

from foundation_rt.agents import (
    AACPPersistenceAdapter,
    AgentCoordinatorV2,
    InMemoryAACPPersistenceAdapter,
    NatsTransport,
    PostgresAACPPersistenceAdapter,
    SqliteAACPPersistenceAdapter,
)
from foundation_rt.agents.messages import AgentContext, AgentMessage

POSTGRES_URL = os.environ.get("DATABASE_URL", "postgresql://root@127.0.0.1:5432/test")
NATS_URL = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")

CLIENTS = 500
"""How many make requests at once where it is about throughput."""

AGENTS = tuple(f"agent-{number}" for number in range(8))
MESSAGE = AgentMessage("work", {"number": 1})


async def do_nothing(message: AgentMessage, context: AgentContext) -> None:
    """Answer as every agent does."""


@define(eq=False)
class Counting:
    """A ledger that notes how many messages are entered together.

    Attributes:
        appends, messages: operations, and the messages in them.
    """

    ledger: AACPPersistenceAdapter
    appends: int = 0
    messages: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ledger, name)

    async def append(self, messages: Sequence[Any], *rest: Any) -> Any:
        """As of the ledger."""
        self.appends += 1
        self.messages += len(messages)
        return await self.ledger.append(messages, *rest)


@define(eq=False)
class Place:
    """Where requests are made, and the ledger in which that is noted."""

    coordinator: AgentCoordinatorV2
    ledger: Counting


@define
class Run:
    """What was measured with so many clients at once.

    Attributes:
        latencies: of every request, in seconds.
        cpu: seconds of processor time of this process, all threads.
        group: how many requests were entered together, on average.
    """

    seconds: float
    cpu: float
    group: int
    latencies: list[float] = field(repr=False)

    @property
    def rate(self) -> float:
        """Requests per second."""
        return len(self.latencies) / self.seconds


async def load(place: Place, clients: int, requests: int) -> Run:
    """Have clients make requests, each one after another, until all are made."""
    ledger = place.ledger
    appends, messages = ledger.appends, ledger.messages
    latencies: list[float] = []
    left = iter(range(requests))

    async def client() -> None:
        for number in left:
            started = time.perf_counter()
            await place.coordinator.send_request(AGENTS[number % len(AGENTS)], MESSAGE)
            latencies.append(time.perf_counter() - started)

    started, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(client() for _ in range(clients)))
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    group = round((ledger.messages - messages) / (ledger.appends - appends))
    return Run(seconds, cpu, group, latencies)


# -- places -------------------------------------------------------------------------------------


@asynccontextmanager
async def in_memory(folder: Path) -> AsyncIterator[Place]:
    """One coordinator, whose ledger forgets."""
    async with _coordinator(InMemoryAACPPersistenceAdapter()) as place:
        yield place


@asynccontextmanager
async def on_sqlite(folder: Path) -> AsyncIterator[Place]:
    """One coordinator on a new file."""
    async with _coordinator(SqliteAACPPersistenceAdapter(folder / new_name())) as place:
        yield place


@asynccontextmanager
async def on_postgres(folder: Path) -> AsyncIterator[Place]:
    """One coordinator on a new schema."""
    async with (
        new_schema() as schema,
        _coordinator(PostgresAACPPersistenceAdapter(POSTGRES_URL, schema=schema)) as place,
    ):
        yield place


@asynccontextmanager
async def over_nats(folder: Path) -> AsyncIterator[Place]:
    """One coordinator that asks, one that has the agents, each on a file; both in this process."""
    prefix = new_name()

    def ends(name: str, agents: Sequence[str]) -> Any:
        return _coordinator(
            SqliteAACPPersistenceAdapter(folder / f"{prefix}-{name}"),
            agents,
            name=name,
            transport=NatsTransport(NATS_URL, prefix=prefix),
        )

    async with ends("there", AGENTS), ends("here", ()) as place:
        yield place


@asynccontextmanager
async def _coordinator(
    ledger: AACPPersistenceAdapter, agents: Sequence[str] = AGENTS, **options: Any
) -> AsyncIterator[Place]:
    counting = Counting(ledger)
    coordinator = AgentCoordinatorV2(store=counting, **options)
    for agent_id in agents:
        coordinator.register_agent(agent_id, do_nothing)
    async with coordinator:
        yield Place(coordinator, counting)


# -- services -----------------------------------------------------------------------------------


def new_name() -> str:
    """Return a name that nothing else has."""
    return f"bench_{uuid4().hex}"


@asynccontextmanager
async def new_schema() -> AsyncIterator[str]:
    """Yield the name of a schema, and drop it in the end; its user makes it."""
    import psycopg

    schema = new_name()
    try:
        yield schema
    finally:
        with psycopg.connect(POSTGRES_URL, autocommit=True) as connection:
            connection.execute("SET client_min_messages = warning")
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


def why_not_reachable(url: str) -> str | None:
    """Why nothing answers there; None if something does."""
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 0), 2).close()
    except OSError as error:
        return error.strerror or str(error)
    return None
