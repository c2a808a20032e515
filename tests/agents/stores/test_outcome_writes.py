"""What a handler writes in the ledger's own transaction is there if its outcome is, and once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from foundation_rt import AgentContext, AgentCoordinatorV2, AgentMessage
from foundation_rt.agents import PostgresAACPPersistenceAdapter, RequestFailedError
from foundation_rt.errors import UsageError
from tests.lab.places.services import postgres_schema

pytestmark = pytest.mark.rule("AACP-05")


@pytest.fixture
def place() -> Iterator[tuple[str, str]]:
    """Yield a server and a schema with a table of accounts, one of which is empty."""
    with postgres_schema() as (url, schema):
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}".encode())
            connection.execute(
                f"CREATE TABLE {schema}.accounts (name text PRIMARY KEY, money int"
                " CHECK (money >= 0))".encode()
            )
            connection.execute(f"INSERT INTO {schema}.accounts VALUES ('a', 0)".encode())
        yield url, schema


def money(url: str, schema: str) -> int:
    import psycopg

    with psycopg.connect(url) as connection:
        [row] = connection.execute(f"SELECT money FROM {schema}.accounts".encode())
        return int(row[0])


def run(url: str, schema: str, amounts: list[int], breaks: bool = False) -> list[Any]:
    """Have so much paid in, by a handler that writes with its outcome."""

    async def pay(message: AgentMessage, context: AgentContext) -> str:
        async def write(connection: Any) -> None:
            await connection.execute(
                f"UPDATE {schema}.accounts SET money = money + %s".encode(), [message.payload]
            )

        context.in_outcome(write)
        if breaks:
            raise ValueError("after in_outcome")
        return "paid"

    async def main() -> list[Any]:
        store = PostgresAACPPersistenceAdapter(url, schema=schema)
        agents = AgentCoordinatorV2(store=store)
        agents.register_agent("bank", pay)
        async with agents:
            requests = (
                agents.send_request("bank", amount, request_id=f"r{number}")
                for number, amount in enumerate(amounts)
            )
            return await asyncio.gather(*requests, return_exceptions=True)

    return asyncio.run(main())


@pytest.mark.rule("AACP-53")
def test_write_happens_with_its_outcome_and_once(place: tuple[str, str]) -> None:
    url, schema = place
    assert run(url, schema, [5, 7]) == ["paid", "paid"]
    assert run(url, schema, [5, 7]) == ["paid", "paid"]
    assert money(url, schema) == 12


@pytest.mark.rule("AACP-53")
def test_failed_write_fails_its_message_only(place: tuple[str, str]) -> None:
    url, schema = place
    first, second, third = run(url, schema, [5, -100, 7])
    assert (first, third) == ("paid", "paid")
    assert isinstance(second, RequestFailedError)
    assert second.details == {"reason": "writes_failed"}
    assert money(url, schema) == 12


@pytest.mark.rule("AACP-53")
@pytest.mark.parametrize("how", ["cancel", "exit", "close"])
def test_write_that_raises_a_base_exception_fails_its_message_only(
    place: tuple[str, str], how: str
) -> None:
    url, schema = place

    async def pay(message: AgentMessage, context: AgentContext) -> str:
        async def write(connection: Any) -> None:
            if how == "cancel":
                raise asyncio.CancelledError
            if how == "exit":
                raise SystemExit(3)
            await connection.close()

        if message.payload == "break":
            context.in_outcome(write)
        return "paid"

    async def main() -> list[Any]:
        store = PostgresAACPPersistenceAdapter(url, schema=schema)
        agents = AgentCoordinatorV2(store=store)
        for agent_id in ("bank", "other"):
            agents.register_agent(agent_id, pay)
        async with agents:
            requests = [
                agents.send_request("bank", "break"),
                agents.send_request("bank", "pay"),
                agents.send_request("other", "pay"),
            ]
            return await asyncio.gather(*requests, return_exceptions=True)

    broken, *others = asyncio.run(main())
    assert isinstance(broken, RequestFailedError)
    assert broken.details == {"reason": "writes_failed"}
    assert others == ["paid", "paid"]


@pytest.mark.rule("AACP-53")
def test_handler_that_fails_writes_nothing(place: tuple[str, str]) -> None:
    url, schema = place
    [failed] = run(url, schema, [5], breaks=True)
    assert isinstance(failed, RequestFailedError)
    assert money(url, schema) == 0


@pytest.mark.rule("AACP-54")
async def test_write_is_refused_by_other_ledgers_and_for_other_messages() -> None:
    async def ask(message: AgentMessage, context: AgentContext) -> str:
        async def write(connection: Any) -> None: ...

        with pytest.raises(UsageError, match=r"aacp\.store"):
            context.in_outcome(write)
        return "refused"

    agents = AgentCoordinatorV2()
    agents.register_agent("a", ask)
    async with agents:
        assert await agents.send_request("a", 1) == "refused"
        assert await agents.send_message("a", AgentMessage("x")) == "refused"


@pytest.mark.rule("AACP-53")
async def test_late_or_synchronous_write_is_refused(place: tuple[str, str]) -> None:
    url, schema = place
    kept: list[AgentContext] = []

    async def keep(message: AgentMessage, context: AgentContext) -> None:
        kept.append(context)
        with pytest.raises(UsageError, match="async def"):
            context.in_outcome(lambda connection: None)  # type: ignore[arg-type, return-value]

    async def write(connection: Any) -> None: ...

    store = PostgresAACPPersistenceAdapter(url, schema=schema)
    agents = AgentCoordinatorV2(store=store)
    agents.register_agent("a", keep)
    async with agents:
        await agents.send_request("a", 1)
    with pytest.raises(UsageError, match="before the handler returns"):
        kept[0].in_outcome(write)
