"""PostgreSQL for applications: what a failed transaction says, and what ends a stopped one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from foundation_rt.base.database.errors import (
    CommitUnknownError,
    DatabaseError,
    DatabaseFullError,
    DatabaseLockedError,
    DatabaseReadOnlyError,
    DatabaseUnavailableError,
    TransactionFailedError,
)
from foundation_rt.base.database.postgres import (
    Listener,
    PostgresConnections,
    Query,
    Raced,
    Transaction,
    read_url,
)
from foundation_rt.errors import UsageError
from tests.lab.places.postgres_proxy import ProxyFault, postgres_proxy
from tests.lab.places.services import postgres_schema, unique_name
from tests.lab.programs.program import program, run_source
from tests.lab.waiting import PATIENCE, until

ROOT = Path(__file__).parents[3]

Place = tuple[str, str]


def run(main: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(PATIENCE):
            return await main

    return asyncio.run(bounded())


@pytest.fixture
def place() -> Iterator[Place]:
    with postgres_schema() as (url, schema):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}".encode())
            connection.execute(f"CREATE TABLE {schema}.t (n bigint PRIMARY KEY)".encode())
        yield url, schema


def rows(place: Place, statement: str = "SELECT n FROM {schema}.t ORDER BY n") -> list[Any]:
    url, schema = place
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.replace("{schema}", schema).encode())
        return cursor.fetchall() if cursor.description else []


@asynccontextmanager
async def connected(place: Place, **options: Any) -> AsyncIterator[PostgresConnections]:
    url, schema = place
    connections = PostgresConnections(read_url(url), schema, options.pop("size", 2), **options)
    try:
        yield connections
    finally:
        await connections.close()


async def insert(connections: PostgresConnections, *numbers: int) -> None:
    async def work(transaction: Transaction) -> None:
        for number in numbers:
            await transaction.ask(("INSERT INTO {schema}.t VALUES (%b)", (number,)))
        await transaction.commit()

    await connections.transact(work)


# -- outcomes -------------------------------------------------------------------------------------


@pytest.mark.rule("DB-01", "DB-03", "DB-18")
@pytest.mark.parametrize(
    ("text", "fault", "there"),
    [
        ("INSERT", ProxyFault.CUT_BEFORE, True),
        ("INSERT", ProxyFault.CUT_AFTER, True),
        ("INSERT", ProxyFault.ENDED, True),
        ("COMMIT", ProxyFault.CUT_BEFORE, False),
        ("COMMIT", ProxyFault.CUT_AFTER, True),
    ],
)
def test_loss_of_the_connection_says_whether_the_transaction_happened(
    place: Place, text: str, fault: ProxyFault, there: bool
) -> None:
    async def main() -> None:
        async with (
            postgres_proxy(place[0]) as proxy,
            connected((proxy.url, place[1])) as connections,
        ):
            proxy.plan(text, fault)
            if text == "COMMIT":
                with pytest.raises(CommitUnknownError, match="lost in COMMIT"):
                    await insert(connections, 2, 3)
            else:
                await insert(connections, 2, 3)  # it was repeated
            assert proxy.struck == 1
            await insert(connections, 4)

    run(main())
    assert rows(place) == ([(2,), (3,), (4,)] if there else [(4,)])


@pytest.mark.rule("DB-03")
@pytest.mark.parametrize("fault", [ProxyFault.CUT_BEFORE, ProxyFault.CUT_AFTER, ProxyFault.ENDED])
@pytest.mark.parametrize(("text", "count"), [("SELECT n", 1), ("READ ONLY", 2), ("COMMIT", 2)])
def test_reads_are_repeated_after_every_loss(
    place: Place, text: str, count: int, fault: ProxyFault
) -> None:
    rows(place, "INSERT INTO {schema}.t VALUES (1)")

    async def main() -> None:
        async with (
            postgres_proxy(place[0]) as proxy,
            connected((proxy.url, place[1])) as connections,
        ):
            proxy.plan(text, fault)
            query = ("SELECT n FROM {schema}.t", ())
            assert await connections.read(*[query] * count) == [[(1,)]] * count
            assert proxy.struck == 1

    run(main())


@pytest.mark.rule("DB-03")
@pytest.mark.parametrize("statements", [1, 2])
def test_backend_ended_between_statements_is_not_seen(place: Place, statements: int) -> None:
    tries: list[int] = []

    async def main() -> None:
        async with connected(place) as connections:

            async def work(transaction: Transaction) -> None:
                for number in range(statements):
                    await transaction.ask(("INSERT INTO {schema}.t VALUES (%b)", (number,)))
                tries.append(transaction.connection.info.backend_pid)
                if len(tries) == 1:
                    rows(place, f"SELECT pg_terminate_backend({tries[0]}, 20000)")
                await transaction.ask(("INSERT INTO {schema}.t VALUES (9)", ()))
                await transaction.commit()

            await connections.transact(work)

    run(main())
    assert len(tries) == 2
    assert rows(place) == [*((n,) for n in range(statements)), (9,)]


@pytest.mark.rule("DB-03")
@pytest.mark.parametrize("phase", ["in the pool", "waiting for a lock", "copying"])
def test_backend_ended_before_commit_is_not_seen(place: Place, phase: str) -> None:
    rows(place, "INSERT INTO {schema}.t VALUES (0)")
    pids: list[int] = []

    def end() -> None:
        assert rows(place, f"SELECT pg_terminate_backend({pids[0]}, 20000)") == [(True,)]

    async def work(transaction: Transaction) -> None:
        first = not pids
        pids.append(transaction.connection.info.backend_pid)
        await transaction.ask(("SELECT n FROM {schema}.t WHERE n = 0 FOR UPDATE", ()))
        async with transaction.copy("COPY {schema}.t (n) FROM STDIN") as copy:
            await copy.write("1\n")
            if first and phase == "copying":
                end()
        await transaction.commit(("INSERT INTO {schema}.t VALUES (2)", ()))

    async def main() -> None:
        async with connected(place, size=1) as connections:
            if phase == "in the pool":
                await connections.read(("SELECT 1", ()))
                pids.extend(connections._pids.values())
                end()
                await connections.transact(work)
                assert pids[0] != pids[1]
            elif phase == "copying":
                await connections.transact(work)
            else:
                with psycopg.connect(place[0]) as other:
                    other.execute(f"SELECT FROM {place[1]}.t FOR UPDATE".encode())
                    working = asyncio.create_task(connections.transact(work))
                    waiting = "SELECT pid FROM pg_locks WHERE pid = {} AND NOT granted"
                    await until(
                        lambda: pids and rows(place, waiting.format(pids[0])),
                        "the transaction waits for the lock",
                    )
                    end()
                await working

    run(main())
    assert rows(place) == [(0,), (1,), (2,)]
    assert len(pids) == 2


END_IN_COMMIT = """
CREATE FUNCTION {schema}.fall() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER fall AFTER INSERT ON {schema}.t
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.fall();
"""


@pytest.mark.rule("DB-01", "DB-03")
def test_backend_ended_in_commit_leaves_the_outcome_unknown(place: Place) -> None:
    rows(place, END_IN_COMMIT)

    async def main() -> None:
        async with connected(place) as connections:
            with pytest.raises(CommitUnknownError):
                await insert(connections, 1)
            rows(place, "DROP TRIGGER fall ON {schema}.t")
            await insert(connections, 1)

    run(main())
    assert rows(place) == [(1,)]


@pytest.mark.rule("DB-03")
def test_raced_transaction_is_repeated_until_its_attempts_are_over(place: Place) -> None:
    tries: list[int] = []

    async def work(transaction: Transaction) -> None:
        tries.append(1)
        await transaction.ask(("INSERT INTO {schema}.t VALUES (1)", ()))
        raise Raced("always")

    async def main() -> None:
        async with connected(place, attempts=3) as connections:
            with pytest.raises(DatabaseUnavailableError, match="always"):
                await connections.transact(work)

    run(main())
    assert len(tries) == 3
    assert rows(place) == []


@pytest.mark.rule("DB-01")
def test_hint_that_fails_after_the_commit_is_ignored(place: Place) -> None:
    async def main() -> None:
        async with connected(place) as connections:

            async def work(transaction: Transaction) -> Any:
                return await transaction.commit(
                    ("INSERT INTO {schema}.t VALUES (1) RETURNING n", ()),
                    then=[("SELECT 1 / 0", ())],
                )

            assert await connections.transact(work) == [[(1,)]]
            await insert(connections, 2)

    run(main())
    assert rows(place) == [(1,), (2,)]


@pytest.mark.rule("DB-01")
def test_commit_after_a_failed_statement_is_an_error(place: Place) -> None:
    async def work(transaction: Transaction) -> None:
        await transaction.ask(("INSERT INTO {schema}.t VALUES (1)", ()))
        with pytest.raises(psycopg.errors.DivisionByZero):
            await transaction.ask(("SELECT 1 / 0", ()))
        await transaction.commit()

    async def main() -> None:
        async with connected(place) as connections:
            with pytest.raises(TransactionFailedError, match="before COMMIT had failed"):
                await connections.transact(work)

    run(main())
    assert rows(place) == []


@pytest.mark.rule("DB-01")
@pytest.mark.parametrize(
    ("sqlstate", "expected"),
    [
        ("53100", DatabaseFullError),
        ("53200", DatabaseUnavailableError),
        ("25006", DatabaseReadOnlyError),
        ("57014", DatabaseUnavailableError),
        ("55P03", DatabaseLockedError),
        ("23514", TransactionFailedError),
    ],
)
def test_error_of_the_server_has_the_class_of_what_would_help(
    place: Place, sqlstate: str, expected: type[Exception]
) -> None:
    raising = f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{sqlstate}'; END $$"

    async def main() -> None:
        async with connected(place) as connections:
            with pytest.raises(TransactionFailedError, match="no") as caught:
                await connections.transact(lambda transaction: transaction.run(raising))
            assert type(caught.value) is expected
            assert caught.value.sqlstate == sqlstate
            assert caught.value.__cause__ is None
            await insert(connections, 1)

    run(main())


@pytest.mark.rule("DB-02")
def test_values_of_a_row_are_in_no_error(place: Place) -> None:
    taken: Query = ("INSERT INTO {schema}.secrets VALUES (%b)", ("s3cret",))

    async def main() -> None:
        async with connected(place) as connections:
            create = "CREATE TABLE {schema}.secrets (secret text UNIQUE)"
            await connections.transact(lambda transaction: transaction.commit((create, ()), taken))
            with pytest.raises(TransactionFailedError, match="duplicate key") as caught:
                await connections.transact(lambda transaction: transaction.commit(taken))
            assert "s3cret" not in str(caught.value)

    run(main())


@pytest.mark.rule("DB-02", "DB-04")
def test_password_is_in_no_error() -> None:
    with pytest.raises(UsageError) as refused:
        read_url("postgresql://u:s3cret@host:port/x?nonsense=1")

    async def main() -> None:
        place = ("postgresql://u:s3cret@127.0.0.1:1/test", "x")
        async with connected(place, connect_s=0.1) as connections:
            with pytest.raises(DatabaseUnavailableError, match="is not reached") as unreachable:
                await insert(connections, 1)
            assert "s3cret" not in repr(unreachable.value)
            assert unreachable.value.__cause__ is None

    run(main())
    assert "s3cret" not in str(refused.value)


def test_missing_extra_is_named() -> None:
    code = "import sys; sys.modules['psycopg'] = None; import foundation_rt.base.database.postgres"
    done = run_source(code, succeeds=False)
    assert "pip install 'foundation-rt[postgres]'" in done.stderr.splitlines()[-1]


# -- copying and reading --------------------------------------------------------------------------


def test_copy_is_part_of_its_transaction(place: Place) -> None:
    async def main() -> None:
        async with connected(place) as connections:

            async def work(transaction: Transaction, fail: bool) -> None:
                await transaction.ask(("INSERT INTO {schema}.t VALUES (0)", ()))
                async with transaction.copy("COPY {schema}.t (n) FROM STDIN") as copy:
                    for number in range(1, 4):
                        await copy.write_row((number,))
                if fail:
                    raise ValueError
                await transaction.commit(("INSERT INTO {schema}.t VALUES (4)", ()))

            with pytest.raises(ValueError):
                await connections.transact(lambda transaction: work(transaction, True))
            assert rows(place) == []
            await connections.transact(lambda transaction: work(transaction, False))

    run(main())
    assert rows(place) == [(n,) for n in range(5)]


def test_several_reads_see_one_snapshot(place: Place) -> None:
    async def main() -> None:
        async with connected(place) as connections:
            await insert(connections, 1)
            count = ("SELECT count(*) FROM {schema}.t", ())
            hold = ("SELECT pg_advisory_xact_lock_shared(hashtext(%b::text))", (place[1],))
            with psycopg.connect(place[0], autocommit=False) as other:
                other.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (place[1],))
                reading = asyncio.create_task(connections.read(count, hold, count))
                holder = other.info.backend_pid
                waiting = f"SELECT 1 FROM pg_locks WHERE {holder} = ANY(pg_blocking_pids(pid))"
                await until(lambda: rows(place, waiting), "the read waits for the lock")
                other.execute(f"INSERT INTO {place[1]}.t VALUES (2)".encode())
                other.commit()
            first, _, last = await reading
            assert first == last == [(1,)]

    run(main())


# -- limits of the server -------------------------------------------------------------------------


@pytest.mark.rule("DB-04")
@pytest.mark.parametrize("limits", [({"lock_ms": 50}, {}), ({}, {"lock_ms": 50})])
def test_wait_for_a_lock_is_bounded(
    place: Place, limits: tuple[dict[str, int], dict[str, int]]
) -> None:
    of_all, of_one = limits

    async def work(transaction: Transaction) -> None:
        await transaction.ask(("SELECT n FROM {schema}.t FOR UPDATE", ()))
        await transaction.commit()

    async def main() -> None:
        async with connected(place, **of_all) as connections:
            await insert(connections, 1)
            with psycopg.connect(place[0]) as other:
                other.execute(f"SELECT n FROM {place[1]}.t FOR UPDATE".encode())
                with pytest.raises(DatabaseLockedError):
                    await connections.transact(work, **of_one)
            await connections.transact(work, **of_one)
            [[(lock_ms,)]] = await connections.read(("SHOW lock_timeout", ()))
            assert lock_ms == ("50ms" if of_all else "0")

    run(main())


@pytest.mark.rule("DB-04")
def test_wait_for_a_connection_is_bounded(place: Place) -> None:
    async def main() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def hold(transaction: Transaction) -> None:
            begun.set()
            await go_on.wait()
            await transaction.commit()

        async with connected(place, size=1) as connections:
            await insert(connections, 1)
            connections.connect_s = 0.1
            holding = asyncio.create_task(connections.transact(hold))
            await begun.wait()
            with pytest.raises(DatabaseUnavailableError, match="busy"):
                await connections.read(("SELECT 1", ()))
            go_on.set()
            await holding

    run(main())


@pytest.mark.rule("DB-04")
@pytest.mark.parametrize("how", ["cancelled", "too long"])
def test_transaction_that_is_broken_off_leaves_its_connection_usable(
    place: Place, how: str
) -> None:
    async def work(transaction: Transaction) -> None:
        await transaction.ask(("SELECT n FROM {schema}.t FOR UPDATE", ()))
        await transaction.commit()

    async def main() -> None:
        async with connected(place, size=1) as connections:
            await insert(connections, 1)
            with psycopg.connect(place[0]) as other, pytest.MonkeyPatch.context() as patch:
                other.execute(f"SELECT n FROM {place[1]}.t FOR UPDATE".encode())
                if how == "too long":
                    patch.setattr(connections, "operation_s", 0.2)
                waiting = asyncio.create_task(connections.transact(work))
                if how == "cancelled":
                    holder = other.info.backend_pid
                    blocked = f"SELECT 1 FROM pg_locks WHERE {holder} = ANY(pg_blocking_pids(pid))"
                    await until(lambda: rows(place, blocked), "the transaction waits for the lock")
                    waiting.cancel()
                with pytest.raises((DatabaseError, asyncio.CancelledError)):
                    await waiting
            await insert(connections, 2)
        assert rows(place) == [(1,), (2,)]

    run(main())


@pytest.mark.rule("DB-19")
def test_server_notices_that_a_machine_is_gone(place: Place) -> None:
    async def main() -> None:
        async with connected(place) as connections:
            values = await connections.read(
                ("SHOW tcp_keepalives_idle", ()),
                ("SHOW tcp_keepalives_interval", ()),
                ("SHOW tcp_keepalives_count", ()),
                ("SHOW tcp_user_timeout", ()),
            )
            # Over a Unix socket the server shows 0: nothing can be lost there.
            assert [value for [(value,)] in values] in (["5", "2", "2", "8000"], ["0"] * 4)

    run(main())


# -- processes that are stopped -------------------------------------------------------------------

STOPPED = """
import asyncio, os, signal, sys
from foundation_rt.base.database.postgres import PostgresConnections, read_url
url, schema, name, where, operation_s = sys.argv[1:]

async def work(transaction):
    await transaction.ask(("SELECT n FROM {schema}.t FOR UPDATE", ()))
    if where == "copy":
        async with transaction.copy("COPY {schema}.t (n) FROM STDIN") as copy:
            await copy.write("".join(f"{number}\\n" for number in range(10, 100_000)))
            stop()
    stop()

def stop():
    print("stopped", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)

async def main():
    parameters = read_url(url, name)
    connections = PostgresConnections(parameters, schema, 1, operation_s=float(operation_s))
    await connections.transact(work)

asyncio.run(main())
"""


@pytest.mark.rule("DB-05")
def test_process_stopped_between_statements_loses_its_locks(place: Place) -> None:
    rows(place, "INSERT INTO {schema}.t VALUES (1)")
    with program(STOPPED, *place, unique_name(), "idle", 0.5, says="stopped"):
        rows(place, "SET statement_timeout = 30000; UPDATE {schema}.t SET n = 2")
    assert rows(place) == [(2,)]


@pytest.mark.rule("DB-06")
def test_process_stopped_while_copying_is_ended_by_another(place: Place) -> None:
    rows(place, "INSERT INTO {schema}.t VALUES (1)")
    name = unique_name()

    async def main() -> None:
        other = f"{place[0]}?application_name={unique_name()}"
        own = f"{place[0]}?application_name={name}"
        async with connected((other, place[1])) as stranger, connected((own, place[1])) as ours:
            # What is young, or another application's, is left alone.
            assert await ours.end_stalled_transactions() == 0
            assert await stranger.end_stalled_transactions(0) == 0
            await until(lambda: ours.end_stalled_transactions(0), "it is ended")
            await insert(ours, 10)

    with program(STOPPED, *place, name, "copy", 60, says="stopped"):
        run(main())
    assert rows(place) == [(1,), (10,)]


# -- notifications --------------------------------------------------------------------------------


@pytest.mark.rule("DB-07")
def test_listener_gets_payloads_of_others_and_none_after_a_loss(place: Place) -> None:
    calls: asyncio.Queue[str | None] = asyncio.Queue()
    channel = f'"{place[1]}"'

    async def main() -> None:
        async with connected(place) as connections:
            listening = asyncio.create_task(Listener(connections, channel, calls.put_nowait).run())
            assert await calls.get() is None
            await connections.read(("SELECT pg_notify(%b::text, 'own')", (place[1],)))
            rows(place, f"NOTIFY {channel}, 'other'")
            assert await calls.get() == "other"
            query = f"SELECT pid FROM pg_stat_activity WHERE query = 'LISTEN {channel}'"
            [(pid,)] = rows(place, query)
            rows(place, f"SELECT pg_terminate_backend({pid}, 20000)")
            assert await calls.get() is None
            rows(place, f"NOTIFY {channel}, 'again'")
            assert await calls.get() == "again"
            listening.cancel()

    run(main())
