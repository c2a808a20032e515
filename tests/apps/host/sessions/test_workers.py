"""Several workers on PostgreSQL: each is sessions of its own, with a lease of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from foundation_rt.apps.host.sessions.postgres import PostgresChatStore
from foundation_rt.apps.host.sessions.session import ChatSession
from foundation_rt.apps.host.sessions.store import SessionSettings
from tests.apps.host.sessions.support import (
    OWNER,
    NewStore,
    Running,
    read_to,
    read_until,
    running,
    tab,
    whole_page,
)
from tests.lab.places.cable import cable
from tests.lab.places.services import postgres_schema
from tests.lab.waiting import until

Place = tuple[str, str]
ROOMY = SessionSettings(max_messages=1_000)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr("foundation_rt.apps.host.sessions.postgres_workers.LEASE_S", 2.0)
    monkeypatch.setattr("foundation_rt.apps.host.sessions.postgres_workers.RENEW_S", 0.3)
    with postgres_schema() as place:
        yield place


@asynccontextmanager
async def two_workers(place: Place) -> AsyncIterator[tuple[Running, Running]]:
    url, schema = place
    new_store: NewStore = lambda limits: PostgresChatStore(url, limits, schema=schema)  # noqa: E731
    async with running(new_store, ROOMY) as first, running(new_store, ROOMY) as second:
        yield first, second


async def at(worker: Running, session: ChatSession) -> ChatSession:
    """Find a chat at another worker."""
    found = await worker.sessions.find(session.id, OWNER)
    assert found is not None
    return found


def query(place: Place, statement: str) -> list[tuple[object, ...]]:
    url, schema = place
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.replace("{schema}", schema).encode())
        return cursor.fetchall() if cursor.description else []


@pytest.mark.rule("CHAT-12", "CHAT-27")
async def test_tab_at_another_worker_sees_the_same(place: Place) -> None:
    async with two_workers(place) as (first, second):
        session = await first.sessions.create(OWNER)
        here, page = await tab(session)
        there, other = await tab(await at(second, session))
        await session.submit("say:hello part:abcdef call:a:b wait say:bye", None)
        while not page.turns or "complete" not in dict(page.calls.values()):
            page.show(await anext(here))
        await read_to(there, other, page.seq or 0)
        assert other.chat() == page.chat()
        late = await whole_page(await at(second, session))  # it streams a text there, too
        assert late.chat() == page.chat()
        first.orchestrator.going.set()
        await read_until(here, page, "finished")
        await read_until(there, other, "finished")
        assert other.chat() == page.chat()
        assert other.histories == 1


@pytest.mark.rule("CHAT-08", "CHAT-27")
async def test_messages_at_two_workers_are_answered_one_at_a_time(place: Place) -> None:
    async with two_workers(place) as (first, second):
        session = await first.sessions.create(OWNER)
        twin = await at(second, session)
        connection, page = await tab(session)
        for number in range(6):
            await (session, twin)[number % 2].submit(f"say:m{number}", f"m{number}")
        await twin.submit("say:again", "m0")
        for _ in range(6):
            await read_until(connection, page, "finished")
        texts = [text for name, text in page.texts.items() if name.startswith("m")]
        assert texts == [f"say:m{number}" for number in range(6)]
        ran = first.orchestrator.texts + second.orchestrator.texts
        assert sorted(ran) == texts


@pytest.mark.rule("CHAT-16", "CHAT-17", "CHAT-27")
async def test_stop_and_approvals_reach_the_worker_of_the_turn(place: Place) -> None:
    async with two_workers(place) as (first, second):
        session = await first.sessions.create(OWNER)
        twin = await at(second, session)
        connection, page = await tab(session)
        await session.submit("ask:a:b question:q wait", None)
        call_id = (await read_until(connection, page, "approval")).payload["callId"]
        decided = await asyncio.gather(
            twin.approve(call_id, "once"), session.approve(call_id, "deny"), return_exceptions=True
        )
        assert sorted(map(bool, decided)) == [False, True]
        await read_until(connection, page, "question")
        assert await twin.answer("q", "accept", {"n": 1})
        assert not await twin.answer("q", "decline", None)
        await read_until(connection, page, "question")
        assert await twin.stop()
        await read_until(connection, page, "stopped")
        assert not await twin.stop()


@pytest.mark.rule("CHAT-27")
async def test_missed_notification_is_caught_up_from_the_table(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "foundation_rt.apps.host.sessions.statements.NOTIFY", "SELECT %b::text, %b::text"
    )
    async with two_workers(place) as (first, second):
        session = await first.sessions.create(OWNER)
        there, page = await tab(await at(second, session))
        await session.submit("say:hello ask:a:b", None)
        call_id = (await read_until(there, page, "approval")).payload["callId"]
        assert await (await at(second, session)).approve(call_id, "once")
        await read_until(there, page, "finished")
        assert page.calls == {call_id: ("complete", False)}


@pytest.mark.rule("CHAT-22")
async def test_worker_whose_lease_lapsed_cannot_write_on(place: Place) -> None:
    async with two_workers(place) as (first, second):
        session = await first.sessions.create(OWNER)
        here, page = await tab(session)
        there, other = await tab(await at(second, session))
        await session.submit("part:shown open:a:b", None)
        await read_until(here, page, "status")
        # As if it had been stopped for longer than a lease: another one buries it.
        query(
            place,
            "UPDATE {schema}.worker SET alive_until = now() - interval '1 hour' WHERE id ="
            " (SELECT worker FROM {schema}.chat WHERE worker IS NOT NULL)",
        )
        query(place, "DELETE FROM {schema}.worker WHERE alive_until < now()")
        await read_until(there, other, "interrupted")
        await until(lambda: session.running_turn is None, "the turn ends")
        while page.seq != other.seq:
            page.show(await anext(here))
        assert page.chat() == other.chat() == (await whole_page(session)).chat()
        assert list(other.calls.values()) == [("complete", True)]
        await session.submit("say:next", None)  # it has joined again
        await read_until(there, other, "finished")


@pytest.mark.rule("CHAT-22", "CHAT-24")
async def test_worker_that_is_cut_off_goes_on_alone_and_then_takes_what_is_stored(
    place: Place,
) -> None:
    url, schema = place
    async with cable(url) as line:
        cut_off: NewStore = lambda limits: PostgresChatStore(  # noqa: E731
            line.url, limits, schema=schema, connect_s=0.3
        )
        new_store: NewStore = lambda limits: PostgresChatStore(url, limits, schema=schema)  # noqa: E731
        async with running(cut_off, ROOMY) as first, running(new_store, ROOMY) as second:
            session = await first.sessions.create(OWNER)
            here, page = await tab(session)
            there, other = await tab(await at(second, session))
            await session.submit("part:shown wait say:alone call:a:b wait", "m1")
            await read_until(here, page, "text")
            await read_until(there, other, "text")  # it is stored
            await line.cut()
            first.orchestrator.going.set()
            await read_until(here, page, "finished")  # its own page sees it in memory
            await read_until(there, other, "interrupted")
            await (await at(second, session)).submit("say:on", "m2")
            await read_until(there, other, "finished")
            await line.mend()
            while (page.seq, page.histories) != (other.seq, 2):
                page.show(await anext(here))
            assert page.chat() == other.chat() == (await whole_page(session)).chat()
            await until(lambda: first.sessions.is_available, "the store is back")
            await session.submit("say:next", "m3")
            await read_until(there, other, "finished")


@pytest.mark.rule("CHAT-20", "CHAT-27")
async def test_connection_at_another_worker_keeps_a_turn_alive(place: Place) -> None:
    url, schema = place
    limits = SessionSettings(abandon_ms=1_000)
    new_store: NewStore = lambda limits: PostgresChatStore(url, limits, schema=schema)  # noqa: E731
    async with running(new_store, limits) as first, running(new_store, limits) as second:
        session = await first.sessions.create(OWNER)
        there, page = await tab(await at(second, session))
        await session.submit("wait say:bye", None)
        await read_until(there, page, "started")
        await asyncio.sleep(2)
        assert session.running_turn is not None
        there.close()
        await until(lambda: session.running_turn is None, "the turn ends")
        assert (await whole_page(session)).turns == {}


@pytest.mark.rule("CHAT-03")
async def test_chat_that_is_deleted_elsewhere_ends_here(place: Place) -> None:
    async with two_workers(place) as (first, second):
        session = await first.sessions.create(OWNER)
        connection, page = await tab(session)
        await session.submit("wait", None)
        await read_until(connection, page, "started")
        assert await second.sessions.delete(session.id, OWNER)
        with pytest.raises(AssertionError, match="closed"):
            await read_until(connection, page, "finished")
        await until(lambda: session.running_turn is None, "the turn ends")


@pytest.mark.rule("CHAT-28")
async def test_decisions_belong_to_the_principal(new_store: NewStore) -> None:
    async with running(new_store) as host:
        first, second = [await host.sessions.create(OWNER) for _ in range(2)]
        foreign = await host.sessions.create("eve")
        for subject, word in (("s1", "d1"), ("s2", "d2"), ("s1", "d3")):
            await host.sessions.decide(first.id, subject, word)
        assert await host.sessions.decisions(second.id) == {"s1": "d3", "s2": "d2"}
        assert not await host.sessions.decisions(foreign.id)
        for number in range(1_000):
            await host.sessions.store.decide(OWNER, f"n{number}", "")
        kept = await host.sessions.decisions(first.id)
        assert kept == dict.fromkeys((f"n{number}" for number in range(1_000)), "")


@pytest.mark.rule("CHAT-33")
async def test_chat_that_is_open_at_another_worker_is_not_purged(place: Place) -> None:
    async with two_workers(place) as (first, second):
        session, unused = [await first.sessions.create(OWNER) for _ in range(2)]
        connection, _ = await tab(session)
        await until(
            lambda: query(place, "SELECT 1 FROM {schema}.chat WHERE watched_at IS NOT NULL"),
            "the chat is watched",
        )
        store, after = second.sessions.store, 0
        while after is not None:
            _, after = await store.purge(after, session.created_at + 1_000, ())
        assert await store.load(session.key, OWNER)
        assert not await store.load(unused.key, OWNER)
        connection.close()
