"""The ledger in PostgreSQL: it passes the suite of all stores, and is shared and interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.pq import ExecStatus

from foundation_rt.agents.ledger.request_options import RequestOptions
from foundation_rt.agents.ledger.types import (
    LOCKED,
    Claim,
    Claiming,
    EntryVerdict,
    LedgerNews,
    Release,
)
from foundation_rt.agents.persistence import StoreError
from foundation_rt.agents.stores.postgres import (
    PostgresAACPPersistenceAdapter,
    connections,
    migrations,
)
from foundation_rt.agents.stores.postgres.news import read, write
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.errors import UsageError
from tests.agents.stores.beside_memory import run_beside_memory
from tests.agents.stores.contract import (
    LEASE,
    NOW,
    TTL,
    MakeAdapter,
    SharedStoreContract,
    completion,
    incoming,
    outgoing,
)
from tests.agents.stores.schedule_contract import SharedScheduleContract
from tests.lab.places.services import emptied_postgres_schema, postgres_schema
from tests.lab.servers import fork_server
from tests.lab.sizes import size
from tests.lab.waiting import PATIENCE, Changing, until

ROOT = Path(__file__).parents[3]


class _Contract(SharedScheduleContract, SharedStoreContract):
    @staticmethod
    @contextmanager
    def place() -> Iterator[MakeAdapter]:
        with emptied_postgres_schema("agents", "ledger") as (url, schema):
            yield lambda: PostgresAACPPersistenceAdapter(url, schema=schema)

    @pytest.mark.rule("AACP-30")
    def test_store_answers_as_the_store_in_memory(self) -> None:
        # Each asks 600 times, and makes a schema.
        run_beside_memory(self.place, examples=size(5, 15))


TestContract = pytest.mark.rule("AACP-02", "AACP-27", "AACP-30")(_Contract)


# -- a place to work in -----------------------------------------------------------------------


class Place:
    """A schema, adapters on it, and a connection of the test's own."""

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self.schema = schema

    def adapter(self, **more: Any) -> PostgresAACPPersistenceAdapter:
        return PostgresAACPPersistenceAdapter(self.url, schema=self.schema, **more)

    @asynccontextmanager
    async def open(self, **more: Any) -> AsyncIterator[PostgresAACPPersistenceAdapter]:
        adapter = self.adapter(**more)
        await adapter.open()
        try:
            yield adapter
        finally:
            await adapter.close()

    @asynccontextmanager
    async def direct(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection:
            yield connection

    async def rows(self, sql: str) -> list[Any]:
        async with self.direct() as connection:
            cursor = await connection.execute(sql.replace("{schema}", self.schema).encode())
            return await cursor.fetchall() if cursor.description else []

    @asynccontextmanager
    async def locked(self, what: str) -> AsyncIterator[None]:
        """Hold the rows of a table, so that an operation stops in its middle."""
        async with self.direct() as connection, connection.transaction():
            await connection.execute(f"SELECT FROM {self.schema}.{what} FOR UPDATE".encode())
            yield


@pytest.fixture
def place() -> Iterator[Place]:
    with postgres_schema() as (url, schema):
        yield Place(url, schema)


def run(main: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(PATIENCE):
            return await main

    return asyncio.run(bounded())


# -- opening ----------------------------------------------------------------------------------


@pytest.mark.rule("DB-22")
def test_ledger_of_an_earlier_release_is_opened(place: Place) -> None:
    first = migrations.MIGRATIONS[0]

    async def main() -> None:
        # As that release made it.
        await place.rows("CREATE SCHEMA {schema}")
        await place.rows("CREATE TABLE {schema}.migration (version bigint PRIMARY KEY)")
        await place.rows(first.text)
        await place.rows("INSERT INTO {schema}.migration VALUES (1)")
        [(series,)] = await place.rows("SELECT series FROM {schema}.ledger")
        uids = set()
        for _ in range(2):
            async with place.open() as ledger:
                assert ledger.incarnation == series
                uids.add(ledger.uid)
                await ledger.append([outgoing("r1")], NOW)
        found = await place.rows("SELECT version, name, checksum FROM {schema}.migration")
        assert found == [
            (number, f"V{number}", each.checksum)
            for number, each in enumerate(migrations.MIGRATIONS, 1)
        ]
        [uid] = uids
        assert re.fullmatch("[0-9a-f]{32}", uid)

    run(main())


async def test_ledger_of_a_newer_version_is_refused(place: Place) -> None:
    async with place.open():
        await place.rows("INSERT INTO {schema}.migration VALUES (99)")
    with pytest.raises(UsageError, match=r"version 99.*up to \d: use the newer"):
        await place.adapter().open()


@pytest.mark.parametrize("schema", ["", "Aacp", "1a", 'a"b', "a-b", "a" * 64])
def test_schema_has_a_plain_name(schema: str) -> None:
    with pytest.raises(UsageError, match="cannot be the schema"):
        PostgresAACPPersistenceAdapter("postgresql://127.0.0.1/test", schema=schema)


def test_address_is_in_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECT_S", 0.2)
    with pytest.raises(UsageError) as refused:
        PostgresAACPPersistenceAdapter("postgresql://u:s3cret@host:port/x?nonsense=1")
    ledger = PostgresAACPPersistenceAdapter("postgresql://u:s3cret@127.0.0.1:1/test")
    with pytest.raises(StoreError, match="not reached") as unreachable:
        run(ledger.open())
    for said in (str(refused.value), repr(unreachable.value), repr(ledger)):
        assert "s3cret" not in said
    assert refused.value.__cause__ is unreachable.value.__cause__ is None


@pytest.mark.rule("AACP-31")
def test_unsafe_server_settings_are_warned_about(place: Place) -> None:
    sink = MemorySink()
    logger = StructuredLogger(sink, ManualClock())

    async def main() -> None:
        async with place.open(logger=logger):
            assert not sink.lines
        place.url += "?options=-csynchronous_commit%3Doff"
        async with place.open(logger=logger):
            [line] = sink.lines
            assert line["level"] == "warn"
            assert line["settings"] == ["synchronous_commit"]

    run(main())
    durability = PostgresAACPPersistenceAdapter.durability
    assert all(each in durability for each in ("fsync", "full_page_writes", "synchronous_commit"))


def test_operation_before_open_raises() -> None:
    ledger = PostgresAACPPersistenceAdapter("postgresql://127.0.0.1/test")
    with pytest.raises(StoreError, match="not open"):
        run(ledger.append([outgoing("r1")], NOW))


# -- interruptions ----------------------------------------------------------------------------


async def test_statement_that_fails_is_a_store_error(place: Place) -> None:
    async with place.open() as ledger:
        await ledger.append([outgoing("r1")], NOW)
        await place.rows("ALTER TABLE {schema}.request RENAME TO elsewhere")
        with pytest.raises(StoreError, match="does not exist"):
            await ledger.append([outgoing("r2")], NOW)
        with pytest.raises(StoreError, match="does not exist"):
            await ledger.claim(Claiming({"b": 1}, "me", NOW + LEASE), NOW)
        await place.rows("ALTER TABLE {schema}.elsewhere RENAME TO request")
        assert [each.seq for each in await ledger.append([outgoing("r2")], NOW)] == [2]


# -- several at once --------------------------------------------------------------------------


@pytest.mark.rule("AACP-70")
async def test_locked_mailbox_is_passed_over_with_a_hint(place: Place) -> None:
    async with place.open() as ledger:
        await ledger.append([outgoing("r1"), outgoing("r2", target="c")], NOW)
        async with place.locked("mailbox WHERE agent_id = 'b'"):
            claimed = await ledger.claim(Claiming({"b": 10, "c": 10}, "me", NOW + LEASE), NOW)
            assert [each.request_id for each in claimed.claims] == ["r2"]
            assert NOW < claimed.again_at_ms["b"] < NOW + 100
        claimed = await ledger.claim(Claiming({"b": 10, "c": 10}, "me", NOW + LEASE), NOW)
        assert [each.request_id for each in claimed.claims] == ["r1"]


@pytest.mark.rule("AACP-22", "AACP-90")
async def test_locked_request_and_what_is_behind_it_is_passed_over(place: Place) -> None:
    async with place.open() as ledger, place.direct() as other:
        await ledger.append([*map(outgoing, ("r1", "r2", "r3")), outgoing("r4", target="c")], NOW)
        await ledger.claim(Claiming({"b": 1}, "first", NOW + LEASE), NOW)
        later = NOW + LEASE
        wanted = {"b": 10, "c": 10}
        async with other.transaction():  # what `renew` does, not committed yet
            await other.execute(
                f"UPDATE {place.schema}.request SET lease_until_ms = {later + LEASE}"
                " WHERE request_id = 'r1'".encode()
            )
            claimed = await ledger.claim(Claiming(wanted, "second", later + LEASE), later)
            assert [each.request_id for each in claimed.claims] == ["r4"]
            assert later < claimed.again_at_ms["b"] < later + 100
        claimed = await ledger.claim(Claiming(wanted, "second", later + LEASE), later)
        assert claimed.claims == []  # not even r2, for it is behind r1
        assert claimed.again_at_ms == {"b": later + LEASE}


@pytest.mark.rule("AACP-90")
async def test_locked_part_of_a_batch_does_not_keep_the_rest_waiting(place: Place) -> None:
    async with place.open(lease_ms=1_000) as ledger:
        agents = [f"a{number}" for number in range(9)]
        messages = [outgoing(f"{agent} {n}", target=agent) for agent in agents for n in range(3)]
        await ledger.append([outgoing(f"{agent} first", target=agent) for agent in agents], NOW)
        async with place.locked("queue WHERE agent_id IN ('a2', 'a7')"):
            for _ in range(2):  # the second time it is known which are locked
                appended = await ledger.append(messages, NOW)
                locked = {
                    message.target_agent_id
                    for message, answer in zip(messages, appended, strict=True)
                    if answer is LOCKED
                }
                assert locked == {"a2", "a7"}
        appended = await ledger.append(messages, NOW)
        assert LOCKED not in appended
        assert [each.seq for each in appended if each is not LOCKED] == [2, 3, 4] * 9


@pytest.mark.rule("AACP-90")
async def test_locked_claims_keep_no_other_ones_waiting(place: Place) -> None:
    async with place.open(lease_ms=1_000) as ledger:
        await ledger.append([outgoing("r1"), outgoing("r2", target="c")], NOW)
        claims = (await ledger.claim(Claiming({"b": 1, "c": 1}, "me", NOW + LEASE), NOW)).claims
        pairs = [(each.request_id, each.epoch) for each in claims]
        releases = [Release(each.request_id, each.epoch, 1) for each in claims]
        async with place.locked("request WHERE request_id = 'r1'"):
            assert await ledger.renew(pairs, NOW + 2 * LEASE) == [True, True]
            assert await ledger.release(releases) == releases[:1]
        assert await ledger.renew(pairs, NOW + 3 * LEASE) == [True, False]
        [again] = (await ledger.claim(Claiming({"c": 1}, "me", NOW + LEASE), NOW)).claims
        async with place.locked("request WHERE request_id = 'r1'"):
            answers = await ledger.complete([completion(each) for each in (claims[0], again)], NOW)
            assert [each is LOCKED for each in answers] == [True, False]
        [answer] = await ledger.complete([completion(claims[0])], NOW)
        assert answer is not LOCKED
        assert answer.record is not None


@pytest.mark.rule("AACP-90")
async def test_locked_link_keeps_no_other_envelope_waiting(place: Place) -> None:
    async with place.open(lease_ms=1_000) as ledger:
        first = [incoming(1, target="b"), incoming(1, "q2", target="c")]
        await ledger.receive(first, NOW, TTL)
        arrivals = [incoming(2, "q3", target="b"), incoming(2, "q4", target="c")]
        async with place.locked("link WHERE target_agent_id = 'b'"):
            received = await ledger.receive(arrivals, NOW, TTL)
            assert received.locked == [arrivals[0].envelope]
            assert [each.request_id for each in received.accepted] == ["q4"]
            assert list(received.acks.values()) == [2]
        assert (await ledger.receive(arrivals, NOW, TTL)).locked == []


@pytest.mark.rule("AACP-91")
@pytest.mark.parametrize(
    ("lease_ms", "pause_s", "operation_s"),
    [(100, 1.0, 5.0), (3_000, 1.5, 5.0), (8_000, 4.0, 8.0), (30_000, 15.0, 15.0)],
)
def test_stopped_transactions_end_within_a_lease(
    lease_ms: int, pause_s: float, operation_s: float
) -> None:
    limits = connections.Limits.of_lease(lease_ms)
    assert (limits.pause_s, limits.operation_s) == (pause_s, operation_s)
    assert 100 <= limits.lock_ms <= 1_000


STOPPED = """
import asyncio, os, signal, sys
from foundation_rt.agents.stores.postgres import PostgresAACPPersistenceAdapter, working_set
from tests.agents.stores.contract import NOW, outgoing

async def stop(work, unit, news):
    print("stopped", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)

working_set.Work.flush = stop

async def main():
    store = PostgresAACPPersistenceAdapter(sys.argv[1], schema=sys.argv[2], lease_ms=2_000)
    await store.open()
    await store.append([outgoing("of the stopped one")], NOW)

asyncio.run(main())
"""


@pytest.mark.rule("AACP-90", "AACP-91")
async def test_process_stopped_in_a_transaction_keeps_only_its_agent_waiting(place: Place) -> None:
    async with place.open(lease_ms=2_000) as ledger:
        await ledger.append([outgoing("r0"), outgoing("r00", target="c")], NOW)
        words = [sys.executable, "-c", STOPPED, place.url, place.schema]
        with fork_server.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert await asyncio.to_thread(process.stdout.readline) == "stopped\n"
                batch = [outgoing("r1"), outgoing("r2", target="c")]
                locked, free = await ledger.append(batch, NOW)
                assert locked is LOCKED
                assert free is not LOCKED
                await until(
                    lambda: ledger.append(batch[:1], NOW),
                    "the server ends the transaction of the other one",
                    lambda entered: LOCKED not in entered,
                )
            finally:
                process.kill()


@pytest.mark.rule("AACP-91")
async def test_claims_locked_by_a_process_that_was_stopped_before_its_sync_are_taken_over(
    place: Place,
) -> None:
    """The server waits for the rest of such a pipeline without a timer, and no claim waits."""
    async with asyncio.timeout(PATIENCE), place.open(lease_ms=1_000) as ledger:
        await ledger.append([outgoing("r1")], NOW)
        assert ledger._connections is not None
        ledger._connections.operation_s = 0.5
        with contextlib.closing(
            psycopg.connect(place.url, application_name="foundation-rt")
        ) as stopped:
            stopped.pgconn.enter_pipeline_mode()
            lock = f"SELECT 1 FROM {place.schema}.request FOR UPDATE"
            for statement in ("BEGIN", lock):
                stopped.pgconn.send_query_params(statement.encode(), None)
            stopped.pgconn.send_flush_request()
            stopped.pgconn.flush()
            for status in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):  # now it has the lock
                result = stopped.pgconn.get_result()
                assert result is not None and result.status == status
                assert stopped.pgconn.get_result() is None  # which ends the results of a statement
            claimed = await ledger.claim(Claiming({"b": 1}, "me", NOW + LEASE), NOW)
            assert claimed.claims == [] and claimed.again_at_ms
            claiming = Claiming({"b": 1}, "me", NOW + LEASE)
            await until(
                lambda: ledger.claim(claiming, NOW), "it is claimed", lambda found: found.claims
            )


@pytest.mark.rule("AACP-12", "AACP-30")
async def test_same_request_on_two_links_concurrently_is_entered_once(place: Place) -> None:
    async with place.open() as ledger:
        await ledger.append([outgoing("r0"), outgoing("r00", "x", "y")], NOW)
        for n in range(20):
            made = outgoing(f"r{n}x"), outgoing(f"r{n}x", "x", "y")
            both = await asyncio.gather(*(ledger.append([each], NOW) for each in made))
            verdicts = sorted(each.verdict for [each] in both)
            assert verdicts == [EntryVerdict.CONFLICT, EntryVerdict.NEW]
        numbers = [await ledger.get_last_sequence(*link) for link in (("a", "b"), ("x", "y"))]
        assert sum(numbers) == 22


@pytest.mark.rule("AACP-10", "AACP-11", "AACP-30")
def test_batches_over_the_same_links_lose_no_number_and_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody stands still here: on a slow machine they wait, and nothing counts as locked (AACP-90).
    patient = connections.Limits(operation_s=30.0, pause_s=30.0, lock_ms=30_000)
    monkeypatch.setattr(connections.Limits, "of_lease", lambda lease_ms: patient)
    agents = [f"agent{n}" for n in range(4)]
    links = [(source, target) for source in agents for target in agents if source != target]
    arrived = {link: count(1) for link in links}
    names = count()

    async def sender(ledger: PostgresAACPPersistenceAdapter, chance: random.Random) -> int:
        sent = 0
        for _ in range(25):
            messages = [outgoing(f"d{next(names)}", *chance.choice(links)) for _ in range(8)]
            appended = await ledger.append(messages, NOW)
            assert all(each.verdict is EntryVerdict.NEW for each in appended)
            sent += len(appended)
        return sent

    async def receiver(ledger: PostgresAACPPersistenceAdapter, chance: random.Random) -> None:
        for _ in range(25):
            some = [chance.choice(links) for _ in range(8)]
            batch = [
                incoming(next(arrived[each]), None, f"far-{each[0]}", each[1]) for each in some
            ]
            chance.shuffle(batch)
            received = await ledger.receive(batch, NOW, TTL)
            assert received.refused == 0

    async def worker(ledger: PostgresAACPPersistenceAdapter, chance: random.Random) -> None:
        for _ in range(25):
            mine = dict.fromkeys(chance.sample(agents, 3), 7)
            claiming = Claiming(mine, f"owner{chance.random()}", NOW + LEASE)
            claimed = await ledger.claim(claiming, NOW)
            claims = [(each.request_id, each.epoch) for each in claimed.claims]
            chance.shuffle(claims)
            assert all(await ledger.renew(claims, NOW + 2 * LEASE))
            chance.shuffle(claims)
            done = await ledger.complete([completion(each) for each in claims], NOW)
            assert all(each.record is not None for each in done)

    async def main() -> None:
        roles = (sender, sender, receiver, receiver, worker, worker)
        async with place.open() as one, place.open() as two:
            results = await asyncio.gather(
                *(role((one, two)[n % 2], random.Random(n)) for n, role in enumerate(roles))
            )
            last = [await one.get_last_sequence(*link) for link in links]
            assert sum(last) == sum(each for each in results if each is not None)
        [(most,)] = await place.rows(
            "SELECT max(position - place) FROM (SELECT position, row_number() OVER"
            " (PARTITION BY target_agent_id ORDER BY position) AS place FROM {schema}.request"
            " WHERE position IS NOT NULL) AS numbered"
        )
        assert most == 0
        rows = await place.rows("SELECT bool_and(cardinality(ahead) = 0) FROM {schema}.link")
        assert rows == [(True,)]

    run(main())


# -- hints, and retention ---------------------------------------------------------------------


class Calls(Changing):
    """Counts calls, and waits for them."""

    def __init__(self) -> None:
        super().__init__()
        self.news: list[LedgerNews | None] = []

    def __call__(self, news: LedgerNews | None) -> None:
        self.news.append(news)
        self.has_changed()

    async def count(self, number: int) -> None:
        await self.until(lambda: len(self.news) >= number)


@pytest.mark.rule("AACP-97")
async def test_processes_tell_each_other_whose_queue_and_which_request_has_changed(
    place: Place,
) -> None:
    async with place.open() as one, place.open() as two:
        calls = Calls()
        one.on_change(calls)
        await calls.count(1)  # it listens
        await one.append([outgoing("own")], NOW)
        await two.append([outgoing("more")], NOW, Claiming(serves=["b"]))
        await two.append([outgoing("r2"), outgoing("r3", target="c")], NOW)
        [claim] = (await one.claim(Claiming({"b": 1}, "me", NOW + LEASE), NOW)).claims
        await two.complete([completion(claim)], NOW)
        await two.append([outgoing(f"m{n}", target=f"{n}" * 200) for n in range(50)], NOW)
        await calls.count(4)
        told = [None, LedgerNews(["b", "c"], []), LedgerNews([], [claim.request_id]), None]
        assert calls.news == told


@pytest.mark.rule("AACP-97", "AACP-195")
async def test_only_who_holds_a_claim_on_entry_is_told_of_what_waits_behind_it(
    place: Place,
) -> None:
    async with place.open() as one, place.open() as two:
        calls = Calls()
        one.on_change(calls)
        await calls.count(1)  # it listens
        claiming = Claiming({"b": 1}, "one", NOW + LEASE)
        [entered] = await one.append([outgoing("on entry")], NOW, claiming)
        assert entered is not LOCKED
        assert entered.claim is not None
        serves = Claiming(serves=["b"])
        first_of_all = RequestOptions(priority=1)
        await two.append([outgoing("first", options=first_of_all)], NOW, serves)
        behind = await two.claim(Claiming({"b": 1}, "two", NOW + LEASE), NOW)
        await calls.count(2)
        end = completion(entered.claim)
        end.on_entry = end.is_quiet = True
        [first] = await one.complete([end], NOW)
        [claim] = (await one.claim(Claiming({"b": 1}, "one", NOW + LEASE), NOW)).claims
        await two.append([outgoing("not told")], NOW, serves)
        await two.claim(Claiming({"b": 1}, "two", NOW + LEASE), NOW)
        [second] = await one.complete([completion(claim)], NOW)
        await two.append([outgoing("told by who does not look")], NOW)
        await calls.count(3)
        assert calls.news[1:] == [LedgerNews(["b"], [])] * 2
        assert first is not LOCKED
        assert second is not LOCKED
        assert (behind.claims, first.waits, second.waits) == ([], False, True)


@pytest.mark.rule("AACP-193")
async def test_processes_that_hear_of_each_other_claim_nothing_on_entry(place: Place) -> None:
    async with place.open() as one, place.open() as two:
        stores = {"one": (one, Calls()), "two": (two, Calls())}
        for store, calls in stores.values():
            store.on_change(calls)
            await calls.count(1)  # it listens

        async def enter(name: str, request_id: str) -> Claim | None:
            claiming = Claiming({name: 1}, name, NOW + LEASE)
            request = outgoing(request_id, source=name, target=name)
            [appended] = await stores[name][0].append([request], NOW, claiming)
            assert appended is not LOCKED
            return appended.claim

        claim = await enter("two", "r1")
        assert claim is not None
        await two.append([outgoing("r0", target="two")], NOW, Claiming(serves=["two"]))
        [behind] = (await two.claim(Claiming({"two": 1}, "two", NOW + LEASE), NOW)).claims
        ends = [completion(each) for each in (claim, behind)]
        ends[0].on_entry = ends[0].is_quiet = claim.is_quiet
        ends[1].is_quiet = behind.is_quiet
        assert [each and each.waits for each in await two.complete(ends, NOW)] == [False, False]
        for _, calls in stores.values():
            await calls.count(2)
        assert stores["one"][1].news[1] == LedgerNews([], ["r1", "r0"])
        assert stores["two"][1].news[1] == LedgerNews([], [])
        assert [await enter("one", "r2"), await enter("two", "r3")] == [None, None]
        [claim] = (await two.claim(Claiming({"two": 1}, "two", NOW + LEASE), NOW)).claims
        assert not claim.is_quiet


@pytest.mark.rule("AACP-196")
@pytest.mark.parametrize("lease_ms", [24_000, 30_000])
async def test_nothing_is_claimed_behind_what_may_lapse_in_the_transaction(
    place: Place, lease_ms: int
) -> None:
    async with place.open(lease_ms=lease_ms) as store:
        claiming = Claiming({"b": 1}, "one", NOW + lease_ms, NOW + lease_ms * 3 // 5)
        made = [(await store.append([outgoing(each)], NOW, claiming))[0] for each in ("r1", "r2")]
        claims = [each.claim is not None for each in made if each is not LOCKED]
        assert claims == [True, lease_ms > 25_000]


@pytest.mark.rule("AACP-04", "AACP-193")
async def test_of_processes_that_enter_at_once_the_first_in_the_queue_claims(place: Place) -> None:
    async with place.open() as one, place.open() as two:
        for agent in [f"agent {n}" for n in range(20)]:

            async def enter(
                ledger: PostgresAACPPersistenceAdapter, owner: str, agent: str = agent
            ) -> Claim | None:
                claiming = Claiming({agent: 1}, owner, NOW + LEASE)
                request = outgoing(f"{agent} of {owner}", source=owner, target=agent)
                [appended] = await ledger.append([request], NOW, claiming)
                assert appended is not LOCKED
                return appended.claim

            made = await asyncio.gather(enter(one, "one"), enter(two, "two"))
            [claim] = [each for each in made if each is not None]
            await one.release([Release(claim.request_id, claim.epoch, 0)])
            first, _ = (await one.claim(Claiming({agent: 2}, "third", NOW + LEASE), NOW)).claims
            assert first.request_id == claim.request_id


@pytest.mark.rule("AACP-97")
@given(
    st.text()
    | st.sampled_from(
        ["", "[]", "[1, 2, 3]", '[["a"], ["b"], [["c", 7]]]', '[["a"], [], null]', "{}"]
    )
)
def test_any_payload_of_a_notification_is_read(payload: str) -> None:
    news = read(payload)
    assert news is None or read(write(news)) == news
