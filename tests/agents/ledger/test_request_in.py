"""Requests in transactions of the application, on a real PostgreSQL server (AACP-150)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.rows import dict_row

from foundation_rt.agents import (
    AgentContext,
    AgentCoordinatorV2,
    AgentMessage,
    Outcome,
    RequestConflictError,
    SqliteAACPPersistenceAdapter,
)
from foundation_rt.agents.ledger.effects import Operation
from foundation_rt.agents.ledger.submissions import SubmittedRequest, in_order
from foundation_rt.agents.ledger.types import LedgerNews
from foundation_rt.agents.stores.postgres import PostgresAACPPersistenceAdapter
from foundation_rt.base.logs.logger import MemorySink
from foundation_rt.errors import ToolError, UsageError
from foundation_rt.protocol.principal import Principal
from tests.agents.ledger.test_node import Bench
from tests.lab.agents.coordinators import attach, status_of
from tests.lab.agents.processes import Part, Peers, records_of, wait_for
from tests.lab.places.services import need_nats, postgres_schema, unique_name
from tests.lab.programs.program import program
from tests.lab.sizes import size
from tests.lab.waiting import PATIENCE, until

Connection = psycopg.AsyncConnection[Any]


class Office:
    """A schema with a ledger and a table of the application.

    Attributes:
        executed: the ids of the requests that the clerks were given, with their payloads.
        sink: the log of all coordinators.
    """

    def __init__(self, url: str, schema: str) -> None:
        self.url, self.schema = url, schema
        self.executed: list[tuple[str, Any]] = []
        self.sink = MemorySink()

    @property
    def ids(self) -> list[str]:
        return [request_id for request_id, _ in self.executed]

    @property
    def payloads(self) -> list[Any]:
        return [payload for _, payload in self.executed]

    async def clerk(self, message: AgentMessage, context: AgentContext) -> Any:
        self.executed.append((context.correlation_id or "", message.payload))
        return message.payload

    @asynccontextmanager
    async def agents(self, name: str = "host", *, serves: bool = True, **more: Any) -> Any:
        store = PostgresAACPPersistenceAdapter(self.url, schema=self.schema)
        agents = AgentCoordinatorV2(store=store, name=name, **more)
        attach(agents, self.sink)
        if serves:
            agents.register_agent("clerk", self.clerk)
        async with agents, asyncio.timeout(PATIENCE):
            yield agents

    @asynccontextmanager
    async def connection(self, **more: Any) -> AsyncIterator[Connection]:
        async with await psycopg.AsyncConnection.connect(self.url, **more) as connection:
            yield connection

    async def rows(self, sql: str) -> list[Any]:
        async with self.connection(autocommit=True) as connection:
            cursor = await connection.execute(sql.replace("{schema}", self.schema).encode())
            return await cursor.fetchall() if cursor.description else []

    async def has_executed(self, number: int = 1) -> None:
        """Wait until so many requests were executed."""
        await until(lambda: len(self.executed) >= number, f"{number} were executed")


async def until_completed(agents: AgentCoordinatorV2, request_id: str) -> None:
    await until(
        lambda: agents.status(request_id),
        "it is completed",
        lambda status: status is not None and status.outcome is Outcome.COMPLETED,
    )


@pytest.fixture
def office() -> Iterator[Office]:
    with postgres_schema() as (url, schema):
        yield Office(url, schema)


# -- commit and rollback --------------------------------------------------------------------------


@pytest.mark.rule("AACP-150", "AACP-151")
@pytest.mark.parametrize("autocommit", [False, True])
async def test_request_is_executed_once_the_transaction_commits(
    office: Office, autocommit: bool
) -> None:
    async with office.agents() as agents, office.connection(autocommit=autocommit) as connection:
        async with connection.transaction():
            request_id = await agents.request_in(connection, "clerk", {"order": 17})
            # A whole exchange of others: what is not committed stays out of it.
            assert await agents.send_request("clerk", "other") == "other"
            assert await agents.status(request_id) is None
        # With the id it is waited for as any other request.
        again = agents.send_request("clerk", {"order": 17}, request_id=request_id)
        assert await again == {"order": 17}
        assert office.payloads == ["other", {"order": 17}]
        assert await office.rows("SELECT FROM {schema}.submission") == []


@pytest.mark.rule("AACP-150")
async def test_request_is_gone_with_the_transaction(office: Office) -> None:
    async with office.agents() as agents, office.connection() as connection:
        gone = [await agents.request_in(connection, "clerk", "rolled back")]
        await connection.rollback()
        async with connection.transaction():
            kept = await agents.request_in(connection, "clerk", "kept")
            with pytest.raises(ZeroDivisionError):
                async with connection.transaction():
                    gone.append(await agents.request_in(connection, "clerk", "savepoint"))
                    raise ZeroDivisionError
        await office.has_executed()
        # One that comes later has passed everything that was committed before it.
        await agents.send_request("clerk", "last")
        assert office.payloads == ["kept", "last"]
        assert office.ids[0] == kept
        assert [await agents.status(each) for each in gone] == [None, None]


@pytest.mark.rule("AACP-151")
async def test_committed_request_is_unknown_until_it_is_taken_over(office: Office) -> None:
    alice, bob = Principal("alice"), Principal("bob")
    async with office.agents() as agents, office.connection() as connection:
        # Whoever takes it over waits for this lock.
        async with office.connection() as blocker:
            await blocker.execute(f"LOCK TABLE {office.schema}.queue".encode())
            request_id = await agents.request_in(
                connection, "clerk", 1, request_id="r1", principal=alice
            )
            assert await agents.status("r1", alice) is None
            await connection.commit()
            status = await status_of(agents, request_id, alice)
            assert (status.outcome, status.target_agent_id) == (Outcome.UNKNOWN, "clerk")
            assert await agents.status("r1", bob) is None
        await office.has_executed()
        assert office.ids[0].startswith("r1@")


@pytest.mark.rule("AACP-152")
async def test_requests_of_one_transaction_are_executed_in_their_order(office: Office) -> None:
    number = size(700, 3_000)
    async with office.agents() as agents, office.agents("other", serves=False):
        async with office.connection() as connection:
            ids = [await agents.request_in(connection, "clerk", n) for n in range(number)]
            await connection.commit()
        await office.has_executed(number)
        assert office.ids == ids
        assert office.payloads == list(range(number))


@pytest.mark.rule("AACP-152")
@given(st.lists(st.sampled_from("ab"), max_size=12), st.sets(st.integers(0, 11)))
def test_what_is_behind_one_that_another_process_has_is_left(
    targets: list[str], taken: set[int]
) -> None:
    seen = [SubmittedRequest("", "", "", each, b"", 1, True, n) for n, each in enumerate(targets)]
    entered = in_order(seen, taken)
    for target in "ab":
        numbers = [each.number for each in seen if each.target_agent_id == target]
        got = [each.number for each in entered if each.target_agent_id == target]
        assert got == numbers[: len(got)]
        assert len(got) == len(numbers) or numbers[len(got)] not in taken


@pytest.mark.rule("AACP-12", "AACP-152")
async def test_known_id_is_the_same_request_or_a_conflict(office: Office) -> None:
    async with office.agents() as agents, office.connection() as connection:
        assert await agents.send_request("clerk", 1, request_id="r1") == 1
        assert await agents.request_in(connection, "clerk", 1, request_id="r1") == "r1"
        with pytest.raises(RequestConflictError):
            await agents.request_in(connection, "clerk", 2, request_id="r1")
        # Two transactions that do not know of each other: the one that is entered first counts.
        await agents.request_in(connection, "clerk", 3, request_id="r3")
        await agents.request_in(connection, "clerk", 4, request_id="r3")
        await connection.commit()
        await until_completed(agents, "r3")
        await agents.send_request("clerk", "last")
        assert office.payloads == [1, 3, "last"]
        [line] = [
            each
            for each in office.sink.lines
            if each["message"].startswith("request of a transaction refused")
        ]
        assert line["requestId"] == "r3"
        for wrong in ("", "every:x", "a@b"):
            with pytest.raises(ToolError, match="request id"):
                await agents.request_in(connection, "clerk", 1, request_id=wrong)


@pytest.mark.rule("AACP-53", "AACP-150")
async def test_handler_enters_the_next_request_with_its_outcome(office: Office) -> None:
    async with office.agents() as agents:

        async def first(message: AgentMessage, context: AgentContext) -> Any:
            async def write(connection: Connection) -> None:
                await agents.request_in(connection, "clerk", message.payload)
                if message.payload == "fails":
                    raise ValueError

            context.in_outcome(write)

        agents.register_agent("first", first)
        with pytest.raises(ToolError):
            await agents.send_request("first", "fails")
        await agents.send_request("first", "next")
        await office.has_executed()
        assert office.payloads == ["next"]


@pytest.mark.rule("AACP-97", "AACP-151")
def test_only_who_serves_the_agent_looks_at_once_and_all_look_from_time_to_time() -> None:
    bench = Bench(takes_submissions=True, shared=True)
    bench.node.claims.add_agent("clerk")
    bench.perform()
    assert bench.calls.count(Operation.TAKE_SUBMISSIONS) == 1  # at its start
    bench.node.look_around(LedgerNews(["clerk"], ["r1"], [("printer", 7)]))
    bench.perform()
    assert bench.calls.count(Operation.TAKE_SUBMISSIONS) == 1
    for agent_id, transaction in (("clerk", 8), ("", 9)):  # "": an agent of another ledger
        bench.node.look_around(LedgerNews([], [], [(agent_id, transaction)]))
        persist = bench.waiting(Operation.TAKE_SUBMISSIONS)
        assert persist.arguments[0] == [transaction]
        bench.node.persisted(persist, bench.answer(persist), bench.now)
    bench.node.look_around(None)
    persist = bench.waiting(Operation.TAKE_SUBMISSIONS)
    assert persist.arguments[0] is None
    bench.fail(persist)
    calls = bench.calls.count(Operation.TAKE_SUBMISSIONS)
    bench.pass_time(500)
    assert bench.calls.count(Operation.TAKE_SUBMISSIONS) == calls + 1
    bench.pass_time(30_000)
    assert bench.calls.count(Operation.TAKE_SUBMISSIONS) == calls + 4


# -- beside others --------------------------------------------------------------------------------


@pytest.mark.rule("AACP-150")
async def test_open_transaction_keeps_nobody_waiting(office: Office) -> None:
    async with (
        office.agents() as agents,
        office.agents("other", serves=False) as other,
        office.connection() as held,
        office.connection() as connection,
    ):
        first = await agents.request_in(held, "clerk", "held")
        number = size(100, 1_000)
        for n in range(number):
            await agents.request_in(connection, "clerk", n)
            await connection.commit()
            if n % 50 == 0:
                assert await other.send_request("clerk", f"asked {n}") == f"asked {n}"
                assert await agents.list_schedules() == []
                await agents.purge_expired()
        await until(lambda: len(office.executed) == number + number // 50, "all are executed")
        waits = await office.rows(
            "SELECT count(*) FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation"
            " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            f" WHERE n.nspname = '{office.schema}' AND NOT l.granted"
        )
        assert waits == [(0,)]
        # All that it holds: what a migration of these two tables would wait for.
        locks = await office.rows(
            "SELECT c.relname, l.mode FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation"
            " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            f" WHERE n.nspname = '{office.schema}' AND c.relkind = 'r'"
            f" AND l.pid = {held.info.backend_pid} ORDER BY 1, 2"
        )
        assert locks == [("ledger", "AccessShareLock"), ("submission", "RowExclusiveLock")]
        assert first not in office.ids
        await held.commit()
        await until_completed(agents, first)
        assert Counter(office.ids)[first] == 1


@pytest.mark.rule("AACP-90", "AACP-152")
async def test_process_that_is_stopped_while_it_takes_over_keeps_only_that(office: Office) -> None:
    async with office.agents() as agents, office.connection() as stopped:
        agents.register_agent("printer", office.clerk)
        async with office.connection() as connection:
            # What a process that takes over has locked in its transaction.
            await agents.request_in(connection, "clerk", 1)
            await agents.request_in(connection, "clerk", 2)
            await agents.request_in(connection, "printer", 3)
            async with office.connection() as blocker:
                await blocker.execute(f"LOCK TABLE {office.schema}.queue".encode())
                await connection.commit()
                query = f"SELECT FROM {office.schema}.submission WHERE payload LIKE %s FOR UPDATE"
                await stopped.execute(query.encode(), (b'%"payload":1,%',))
        await office.has_executed()
        assert office.payloads == [3]
        await agents.send_request("printer", 4)
        assert await office.rows("SELECT count(*) FROM {schema}.submission") == [(2,)]
        await stopped.rollback()
        await office.has_executed(4)
        assert office.payloads == [3, 4, 1, 2]


@pytest.mark.rule("AACP-90", "AACP-140")
async def test_process_that_is_stopped_while_it_enters_a_run_keeps_only_that_schedule(
    office: Office,
) -> None:
    async with office.agents() as agents, office.connection() as stopped:
        agents.every("* * * * * *", "clerk", "locked", name="locked")
        agents.every("* * * * * *", "clerk", "free", name="free")
        await office.has_executed(2)
        query = f"SELECT FROM {office.schema}.schedule WHERE name = 'locked' FOR UPDATE"
        await stopped.execute(query.encode())
        office.executed.clear()
        # What was entered of the other one before that may come between.
        await until(lambda: office.payloads.count("free") >= 2, "the other one is executed twice")
        await stopped.rollback()
        number = len(office.executed)
        await office.has_executed(number + 6)
        # Those of the schedule that was locked are made up for: they were on time.
        runs = sorted(
            datetime.fromisoformat(each.removeprefix("every:locked:"))
            for each in office.ids
            if each.startswith("every:locked:")
        )
        assert runs == [runs[0] + timedelta(seconds=n) for n in range(len(runs))]


@pytest.mark.rule("AACP-151")
async def test_agent_of_another_ledger_gets_it(office: Office, tmp_path: Path) -> None:
    from foundation_rt.agents.transports.nats import NatsTransport

    transport = partial(NatsTransport, need_nats(), prefix=unique_name("aacp"))
    far_store = SqliteAACPPersistenceAdapter(tmp_path / "far.db")
    far = AgentCoordinatorV2(store=far_store, name="far", transport=transport())
    far.register_agent("clerk", office.clerk)
    near = office.agents("near", serves=False, transport=transport())
    async with far, near as agents, office.connection() as connection:
        request_id = await agents.request_in(connection, "clerk", "far away")
        await connection.commit()
        await until_completed(agents, request_id)
        assert office.executed == [(request_id, "far away")]


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.rule("AACP-153")
async def test_connections_that_cannot_do_it_are_refused_in_words(office: Office) -> None:
    async def refused(connection: Any, words: str) -> None:
        with pytest.raises(UsageError, match=words):
            await agents.request_in(connection, "clerk", 1)

    async with office.agents() as agents:
        await refused(None, "psycopg.AsyncConnection")
        with psycopg.connect(office.url) as blocking:
            await refused(blocking, "psycopg.AsyncConnection")
        async with office.connection(autocommit=True) as connection:
            await refused(connection, "autocommit")
        await refused(connection, "closed")
        async with office.connection() as connection:
            with pytest.raises(psycopg.errors.DivisionByZero):
                await connection.execute("SELECT 1 / 0")
            await refused(connection, "has failed: roll it back")
            await connection.rollback()
            await connection.set_read_only(True)
            await refused(connection, "read-only")
        async with office.connection() as connection, connection.pipeline():
            await refused(connection, "pipeline")
        async with office.connection(dbname="postgres") as connection:
            await refused(connection, "'postgres' of this connection has no ledger")
            # Its transaction goes on: nothing has failed in it.
            assert await (await connection.execute("SELECT 1")).fetchone() == (1,)
        async with office.connection() as connection:
            await connection.execute(b"CREATE ROLE " + office.schema.encode())
            await connection.execute(b"SET ROLE " + office.schema.encode())
            await refused(connection, f"GRANT USAGE ON SCHEMA {office.schema}")
        # Another ledger in the place of this one.
        await office.rows("UPDATE {schema}.ledger SET uid = 'other'")
        async with office.connection() as connection:
            await refused(connection, "another ledger")
        assert await office.rows("SELECT FROM {schema}.submission") == []


@pytest.mark.rule("AACP-150", "AACP-153")
async def test_user_of_the_application_needs_few_rights_and_may_choose_its_rows(
    office: Office,
) -> None:
    role = unique_name("app")
    async with office.agents() as agents:
        await office.rows(f"CREATE ROLE {role}")
        try:
            for right in (
                "USAGE ON SCHEMA {schema}",
                "SELECT ON {schema}.ledger",
                "SELECT, INSERT ON {schema}.submission",
            ):
                await office.rows(f"GRANT {right} TO {role}")
            async with office.connection(
                row_factory=dict_row, cursor_factory=psycopg.AsyncRawCursor
            ) as connection:
                await connection.execute(f"SET ROLE {role}".encode())
                await connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
                await agents.request_in(connection, "clerk", 1)
                await connection.commit()
            await office.has_executed()
        finally:
            await office.rows(f"DROP OWNED BY {role}")
            await office.rows(f"DROP ROLE {role}")


@pytest.mark.rule("AACP-153")
async def test_other_ledgers_refuse(tmp_path: Path) -> None:
    sqlite = SqliteAACPPersistenceAdapter(tmp_path / "ledger.db")
    for agents in (AgentCoordinatorV2(), AgentCoordinatorV2(store=sqlite)):
        async with agents:

            async def clerk(message: AgentMessage, context: AgentContext) -> None:
                pass

            agents.register_agent("clerk", clerk)
            with pytest.raises(UsageError, match="needs a ledger in PostgreSQL"):
                await agents.request_in(None, "clerk", 1)


# -- processes that are killed --------------------------------------------------------------------

_CALLER = """
import asyncio, sys
import psycopg
from foundation_rt.agents import AgentCoordinatorV2
from foundation_rt.agents.stores.postgres import PostgresAACPPersistenceAdapter

url, schema, life = sys.argv[1:]

async def main():
    store = PostgresAACPPersistenceAdapter(url, schema=schema)
    async with (
        AgentCoordinatorV2(store=store, name="caller") as agents,
        await psycopg.AsyncConnection.connect(url) as connection,
    ):
        number = 0
        while True:
            for part in range(3):
                key = f"{life}-{number}-{part}"
                await connection.execute(f"INSERT INTO {schema}.orders VALUES (%s)", (key,))
                await agents.request_in(connection, "clerk", 2, request_id=key)
            print(number, flush=True)
            if number % 5 == 4:
                await connection.rollback()
            else:
                await connection.commit()
            number += 1

asyncio.run(main())
"""

KILLS = size(4, 40)


@pytest.mark.rule("AACP-150", "AACP-152")
def test_killed_callers_and_takers_lose_and_double_nothing() -> None:
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    chance = Random(seed)
    executions: Counter[str] = Counter()
    with postgres_schema() as (url, schema), Peers() as one, Peers() as other:
        both, store = (one, other), f"{schema}@{url}"
        parts = [Part(name, store, "", ["clerk"], lease_ms=600) for name in ("one", "other")]
        for peers, part in zip(both, parts, strict=True):
            peers.start(part)
        wait_for(lambda: all(each.said("started") for each in both), *both)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE {schema}.orders (key text)".encode())
            for life in range(KILLS):
                call_until_killed(url, schema, life, chance)
                peers, part = both[life % 2], parts[life % 2]
                peers.kill()
                executions.update(line[0] for line in peers.said("executed"))
                peers.start(part)
            query = f"SELECT key FROM {schema}.orders".encode()
            orders = {key for (key,) in connection.execute(query)}
            left = f"SELECT count(*) FROM {schema}.submission".encode()
            wait_for(lambda: connection.execute(left).fetchone() == (0,), *both)
        for peers in both:
            peers.kill()
            executions.update(line[0] for line in peers.said("executed"))
        with Peers() as last:
            last.start(Part("one", store, "", ["clerk"], lease_ms=600, drain=True))
            last.wait_for_end()
            executions.update(line[0] for line in last.said("executed"))
        records = asyncio.run(records_of(store, sorted(orders)))
    assert orders
    assert records.keys() == orders
    assert executions.keys() == orders, "executed without its transaction, or not at all"
    for request_id, record in records.items():
        assert record.outcome is Outcome.COMPLETED
        assert executions[request_id] <= record.epoch


def call_until_killed(url: str, schema: str, life: int, chance: Random) -> None:
    """Run a caller, and kill it somewhere in one of its transactions."""
    with program(_CALLER, url, schema, life) as caller:
        assert caller.stdout is not None
        for _ in range(chance.randint(3, 25)):
            assert caller.stdout.readline()
        time.sleep(chance.random() * 0.005)  # at any place: in a statement, before or after COMMIT
