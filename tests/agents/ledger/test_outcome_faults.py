"""Rows and outcome agree, whatever message between the ledger and its database is late or lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

import psycopg
import pytest

from foundation_rt.agents.ledger.types import (
    LOCKED,
    Claim,
    ClaimCompletion,
    Claiming,
    Completed,
    RequestState,
)
from foundation_rt.agents.messages import OutcomeWrite
from foundation_rt.agents.persistence import StoreError
from foundation_rt.agents.stores.postgres import PostgresAACPPersistenceAdapter, outcome_writes
from tests.agents.stores.contract import LEASE, NOW, TTL, completion, incoming
from tests.lab.places.postgres_proxy import PostgresProxy, ProxyFault, postgres_proxy
from tests.lab.places.services import postgres_schema

pytestmark = pytest.mark.rule("AACP-07")

PATIENCE = 60.0
"""Seconds after which something that should have happened counts as hanging."""
REPETITIONS = 20
"""A node repeats without end; a test that needs more than this hangs."""


@pytest.fixture
def place() -> Iterator[tuple[str, str]]:
    with postgres_schema() as place:
        yield place


@contextmanager
def short_limits(store: PostgresAACPPersistenceAdapter) -> Iterator[None]:
    """Shorten the limits of a store until one of which a message is held back.

    They apply to what a test repeats, and not to its setup, which a loaded machine may take longer.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcome_writes, "WRITE_S", 0.1)
        patch.setattr(store._connections, "operation_s", 0.5)
        yield


class Ledger:
    """A ledger behind a proxy, with claims, and a table that handlers write to."""

    def __init__(
        self, url: str, schema: str, proxy: PostgresProxy, store: PostgresAACPPersistenceAdapter
    ) -> None:
        self._url = url
        self._schema = schema
        self.proxy = proxy
        self.store = store
        self.claims: list[Claim] = []

    def writing(self, text: str, error: BaseException | None = None) -> OutcomeWrite:
        async def write(connection: Any) -> None:
            insert = f"INSERT INTO {self._schema}.effect VALUES (%s)".encode()
            await connection.execute(insert, (text,), prepare=False)
            if error is not None:
                raise error

        return write

    def ending(self, number: int, write: OutcomeWrite) -> ClaimCompletion:
        end = completion(self.claims[number])
        end.in_transaction = write
        return end

    async def complete(self, *ends: ClaimCompletion) -> list[Any]:
        """Record outcomes as a node does: what fails is repeated."""
        for _ in range(REPETITIONS):
            try:
                return await self.store.complete(ends, NOW)
            except StoreError:
                continue
        raise AssertionError("no answer")

    async def rows(self, sql: str) -> list[Any]:
        """Ask the database itself."""
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as direct:
            cursor = await direct.execute(sql.replace("{schema}", self._schema).encode())
            return await cursor.fetchall() if cursor.description else []

    async def effects(self) -> list[str]:
        rows = await self.rows("SELECT text FROM {schema}.effect ORDER BY text")
        return [text for (text,) in rows]


@asynccontextmanager
async def open_ledger(
    place: tuple[str, str], claims: int = 1, *, repeats: bool = True
) -> AsyncIterator[Ledger]:
    """Yield a ledger; if the test repeats what fails, its limits are short."""
    url, schema = place
    async with asyncio.timeout(PATIENCE), postgres_proxy(url) as proxy:
        store = PostgresAACPPersistenceAdapter(proxy.url, schema=schema, connections=1)
        await store.open()
        try:
            ledger = Ledger(url, schema, proxy, store)
            await ledger.rows("CREATE TABLE {schema}.effect (text text)")
            await store.receive([incoming(seq) for seq in range(1, claims + 1)], NOW, TTL)
            claimed = await store.claim(Claiming({"b": claims}, "me", NOW + LEASE), NOW)
            ledger.claims = claimed.claims
            with short_limits(store) if repeats else nullcontext():
                yield ledger
        finally:
            await store.close()


@pytest.mark.parametrize("fault", ProxyFault)
@pytest.mark.parametrize("message", ["SAVEPOINT", "INSERT INTO", "RELEASE", "COMMIT"])
async def test_a_write_and_its_outcome_are_recorded_together_after_a_fault(
    place: tuple[str, str], message: str, fault: ProxyFault
) -> None:
    async with open_ledger(place) as ledger:
        ledger.proxy.plan(message, fault)
        [done] = await ledger.complete(ledger.ending(0, ledger.writing("once")))
        assert ledger.proxy.struck == 1
        assert done.failure is None
        assert done.record is not None
        assert done.record.state is RequestState.COMPLETED
        assert await ledger.effects() == ["once"]


@pytest.mark.rule("AACP-56")
@pytest.mark.parametrize("fault", [ProxyFault.LATE, ProxyFault.SILENT])
async def test_a_write_that_the_database_stalls_is_repeated_until_it_succeeds(
    place: tuple[str, str], fault: ProxyFault
) -> None:
    stalls = 2 * outcome_writes.MAX_STRIKES + 1

    async with open_ledger(place) as ledger:
        ledger.proxy.plan("INSERT INTO", fault, stalls)
        [done] = await ledger.complete(ledger.ending(0, ledger.writing("once")))
        assert ledger.proxy.struck == stalls
        assert done.record is not None
        assert await ledger.effects() == ["once"]


@pytest.mark.rule("AACP-55")
@pytest.mark.parametrize("fault", [ProxyFault.CUT_BEFORE, ProxyFault.CUT_AFTER, ProxyFault.LATE])
@pytest.mark.parametrize("message", ["ROLLBACK TO", "RELEASE"])
async def test_a_write_that_fails_leaves_no_row_when_its_undoing_breaks(
    place: tuple[str, str], message: str, fault: ProxyFault
) -> None:
    async with open_ledger(place, claims=2) as ledger:
        ledger.proxy.plan(message, fault)
        good, bad = await ledger.complete(
            ledger.ending(0, ledger.writing("good")),
            ledger.ending(1, ledger.writing("bad", ValueError("no"))),
        )
        assert ledger.proxy.struck == 1
        assert good.record is not None
        assert isinstance(bad.failure, ValueError)
        assert await ledger.effects() == ["good"]


SLEEP = "SELECT pg_sleep(20)"


@pytest.mark.rule("AACP-57")
@pytest.mark.parametrize(
    ("statement", "error"),
    [
        (SLEEP, TimeoutError),
        ("SELECT pg_terminate_backend(pg_backend_pid())", psycopg.OperationalError),
        ("COMMIT", psycopg.ProgrammingError),
        ("ROLLBACK", psycopg.ProgrammingError),
    ],
)
async def test_a_write_that_breaks_its_transaction_every_time_fails_at_last_and_no_other(
    place: tuple[str, str], statement: str, error: type[Exception]
) -> None:
    tries = 0

    async def write(connection: Any) -> None:
        nonlocal tries
        tries += 1
        await connection.execute(statement)

    url, schema = place
    async with open_ledger((url, schema), claims=2) as ledger:
        # Not through the proxy: the server is to be asked to cancel, and to do it.
        async with asyncio.timeout(PATIENCE):
            direct = PostgresAACPPersistenceAdapter(url, schema=schema, connections=1)
            await direct.open()
            ledger.store, behind = direct, ledger.store
            end = ledger.ending(1, ledger.writing("good"))
            bad, locked = await ledger.complete(ledger.ending(0, write), end)
            assert locked is LOCKED
            [good] = await ledger.complete(end)
            ledger.store = behind
            await direct.close()
        assert tries == outcome_writes.MAX_STRIKES
        assert isinstance(bad.failure, error)
        assert good.record is not None
        assert await ledger.effects() == ["good"]


async def test_a_write_that_takes_too_long_without_the_database_fails_at_once(
    place: tuple[str, str],
) -> None:
    tries = 0

    async def write(connection: Any) -> None:
        nonlocal tries
        tries += 1
        await asyncio.Event().wait()

    async with open_ledger(place) as ledger:
        [done] = await ledger.complete(ledger.ending(0, write))
        assert isinstance(done.failure, TimeoutError)
        assert tries == 1


async def test_a_write_that_hides_the_error_of_a_statement_fails(place: tuple[str, str]) -> None:
    async def write(connection: Any) -> None:
        with pytest.raises(psycopg.errors.DivisionByZero):
            await connection.execute("SELECT 1 / 0")

    async with open_ledger(place, claims=2) as ledger:
        good, bad = await ledger.complete(
            ledger.ending(0, ledger.writing("good")), ledger.ending(1, write)
        )
        assert isinstance(bad.failure, psycopg.errors.InFailedSqlTransaction)
        assert good.record is not None
        assert await ledger.effects() == ["good"]


async def test_a_constraint_that_is_checked_at_commit_fails_its_write_and_no_other(
    place: tuple[str, str],
) -> None:
    async with open_ledger(place, claims=2) as ledger:
        await ledger.rows(
            "ALTER TABLE {schema}.effect ADD UNIQUE (text) DEFERRABLE INITIALLY DEFERRED"
        )
        await ledger.rows("INSERT INTO {schema}.effect VALUES ('old')")
        good, bad = await ledger.complete(
            ledger.ending(0, ledger.writing("new")), ledger.ending(1, ledger.writing("old"))
        )
        assert isinstance(bad.failure, psycopg.errors.UniqueViolation)
        assert good.record is not None
        assert await ledger.effects() == ["new", "old"]


@pytest.mark.rule("AACP-23", "AACP-53")
async def test_a_write_of_a_claim_that_was_lost_does_not_happen(place: tuple[str, str]) -> None:
    async with open_ledger(place, repeats=False) as ledger:
        await ledger.store.claim(Claiming({"b": 1}, "other", NOW + 2 * LEASE), NOW + LEASE)
        done = await ledger.complete(ledger.ending(0, ledger.writing("late")))
        assert done == [Completed(None, None)]
        assert await ledger.effects() == []


@pytest.mark.rule("AACP-53", "AACP-167")
@pytest.mark.parametrize("error", [RuntimeError("no"), None], ids=["its own error", "a constraint"])
async def test_a_failed_write_withholds_its_outcome_only(
    place: tuple[str, str], error: Exception | None
) -> None:
    async with open_ledger(place, claims=3, repeats=False) as ledger:
        await ledger.rows("ALTER TABLE {schema}.effect ADD UNIQUE (text)")
        first, second, third = await ledger.complete(
            ledger.ending(0, ledger.writing("first")),
            ledger.ending(1, ledger.writing("second" if error else "first", error)),
            ledger.ending(2, ledger.writing("third")),
        )
        assert third is LOCKED  # it comes behind the FAILED of the one before it (AACP-04)
        assert (first.record is not None, second.record) == (True, None)
        expected = RuntimeError if error else psycopg.errors.UniqueViolation
        assert isinstance(second.failure, expected)
        assert await ledger.effects() == ["first"]
        again = ledger.claims[1].request_id, ledger.claims[1].epoch
        assert await ledger.store.renew([again], NOW + 2 * LEASE) == [True]


async def test_handlers_numbers_and_arrays_are_taken_as_psycopg_does(
    place: tuple[str, str],
) -> None:
    """What the ledger needs for its own arrays changes nothing for who borrows its connection."""

    async def write(connection: Any) -> None:
        cursor = await connection.execute("SELECT %s::text[], pg_typeof(%s)::text", (["a"], 5))
        assert await cursor.fetchall() == [(["a"], "smallint")]

    async with open_ledger(place) as ledger:
        [done] = await ledger.complete(ledger.ending(0, write))
        assert done.failure is None
