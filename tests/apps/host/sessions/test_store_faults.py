"""The store goes away, and comes back; its disk is full."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve

from foundation_rt.apps.host.app import open_store
from foundation_rt.apps.host.chat import ChatMessage, Role
from foundation_rt.apps.host.sessions.memory import MemoryChatStore
from foundation_rt.apps.host.sessions.postgres import PostgresChatStore
from foundation_rt.apps.host.sessions.sqlite import SqliteChatStore
from foundation_rt.apps.host.sessions.store import (
    BegunTurn,
    SessionSettings,
    StoredChat,
    StoreUnavailableError,
    Writing,
)
from foundation_rt.base.database.errors import DatabaseFullError, DatabaseUnavailableError
from foundation_rt.errors import UsageError
from tests.apps.host.sessions.support import (
    OWNER,
    Page,
    read_until,
    running,
    tab,
    talking,
    whole_page,
)
from tests.lab.places.postgres_server import postgres_server
from tests.lab.places.sqlite import a_small_disk
from tests.lab.waiting import until

ROOMY = SessionSettings(max_messages=1_000)


@pytest.mark.rule("CHAT-24", "CHAT-25")
async def test_turns_go_on_without_their_store_and_are_stored_when_it_is_back() -> None:
    with postgres_server() as server:
        new_store = lambda limits: PostgresChatStore(server.url, limits, connect_s=0.5)  # noqa: E731
        async with running(new_store, ROOMY) as host:
            sessions = host.sessions
            session = await sessions.create(OWNER)
            connection, page = await tab(session)
            await session.submit("say:before wait say:meanwhile call:a:b", "m1")
            await session.submit("say:later", "m2")
            await read_until(connection, page, "started")
            await asyncio.to_thread(server.stop, "immediate")
            host.orchestrator.going.set()
            await read_until(connection, page, "finished")
            assert not sessions.is_available
            assert page.chat() == (await whole_page(session)).chat()
            with pytest.raises(StoreUnavailableError):
                await session.submit("say:new", "m3")
            with pytest.raises(StoreUnavailableError):
                await sessions.create(OWNER)
            assert host.orchestrator.texts == ["say:before wait say:meanwhile call:a:b"]
            await asyncio.to_thread(server.start)
            await read_until(connection, page, "finished")  # the one that had waited
            await until(lambda: sessions.is_available, "the store is back")
            stored = await sessions.store.load(session.key, OWNER)
            assert stored is not None
            assert [message for _, message in stored.messages] == list(session.history)
            assert stored.head.last_seq == session.last_seq == page.seq
            frames = await sessions.store.frames(session.key, 0, session.last_seq)
            assert [seq for seq, _ in frames] == list(range(1, session.last_seq + 1))
            again = session.connect(0)
            replayed = Page(seq=0)
            while replayed.seq != session.last_seq:
                replayed.show(await anext(again))
            assert replayed.chat() == page.chat()


@pytest.mark.rule("CHAT-24")
async def test_full_disk_is_a_store_that_is_away(tmp_path: Path) -> None:
    with a_small_disk(tmp_path) as disk:
        async with running(lambda limits: SqliteChatStore(disk / "c.db", limits), ROOMY) as host:
            session = await host.sessions.create(OWNER)
            connection, page = await tab(session)
            await session.submit("say:before wait say:after", "m1")
            await read_until(connection, page, "started")
            filling = disk / "filling"
            with pytest.raises(OSError), filling.open("wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 4096)
            huge = ChatMessage(id="x", role=Role.ASSISTANT, content="x" * 200_000)
            await host.sessions.add_message(session.id, huge)
            host.orchestrator.going.set()
            await read_until(connection, page, "finished")
            assert not host.sessions.is_available
            with pytest.raises(StoreUnavailableError):
                await session.submit("say:new", "m3")
            filling.unlink()
            await until(lambda: host.sessions.is_available, "the store is back")
            await until(lambda: not session.is_busy, "the turn ends")
            stored = await host.sessions.store.load(session.key, OWNER)
            assert stored is not None
            assert [message for _, message in stored.messages] == list(session.history)


@pytest.mark.rule("CHAT-28")
async def test_decision_without_the_store_is_kept_when_it_is_back() -> None:
    class Failing(MemoryChatStore):
        is_away = False

        async def probe(self) -> None:
            if self.is_away:
                raise DatabaseUnavailableError("away")

        async def decide(self, principal: str, subject: str, word: str) -> None:
            await self.probe()
            await super().decide(principal, subject, word)

    store = Failing()
    async with running(lambda limits: store, ROOMY) as host:
        session = await host.sessions.create(OWNER)
        store.is_away = True
        await host.sessions.decide(session.id, "s", "one")
        await host.sessions.decide(session.id, "s", "two")
        assert await host.sessions.decisions(session.id) is None
        store.is_away = False
        await until(lambda: store._decisions.get(OWNER) == {"s": "two"}, "it is stored")
        assert await host.sessions.decisions(session.id) == {"s": "two"}


@pytest.mark.rule("CHAT-24")
@pytest.mark.parametrize("error", [DatabaseUnavailableError, DatabaseFullError])
async def test_store_that_fails_once_loses_nothing(error: type[Exception]) -> None:
    class Failing(MemoryChatStore):
        failures = 3

        async def write(self, key: bytes, writing: Writing) -> int:
            if Failing.failures:
                Failing.failures -= 1
                raise error("away")
            return await super().write(key, writing)

    async with talking(Failing, ROOMY) as talk:
        await talk.say("say:one call:a:b")
        await talk.session.submit("say:two", None) if talk.host.sessions.is_available else None
        stored = await talk.host.sessions.store.load(talk.session.key, OWNER)
        assert stored is not None
        assert [message for _, message in stored.messages] == list(talk.session.history)


@pytest.mark.rule("CHAT-25")
async def test_without_a_store_only_events_for_replay_wait_for_it() -> None:
    class Away(MemoryChatStore):
        is_away = False

        async def write(self, key: bytes, writing: Writing) -> int:
            if self.is_away:
                raise DatabaseUnavailableError("away")
            assert len(writing.frames) <= 5
            return await super().write(key, writing)

        async def probe(self) -> None:
            if self.is_away:
                raise DatabaseUnavailableError("away")

    limits = SessionSettings(max_events=5)
    stores: list[Away] = []

    def new_store(limits: SessionSettings) -> Away:
        stores.append(Away(limits))
        stores[0].is_immediate = False
        return stores[0]

    async with talking(new_store, limits) as talk:
        await talk.say(" ".join(["wait", *["say:abc"] * 20]), "started")
        stores[0].is_away = True
        talk.host.orchestrator.going.set()
        await talk.until("finished")
        stores[0].is_away = False
        await until(lambda: not talk.session.is_busy, "the turn ends")
        stored = await stores[0].load(talk.session.key, OWNER)
        assert stored is not None
        assert [message for _, message in stored.messages] == list(talk.session.history)
        assert len(stored.sizes) == 5


@pytest.mark.rule("CHAT-08")
async def test_turn_that_was_begun_before_the_store_failed_is_run_once() -> None:
    class Failing(MemoryChatStore):
        failures = 2

        async def begin_turn(self, key: bytes) -> BegunTurn | None:
            begun = await super().begin_turn(key)
            return None if begun is None else evolve(begun, version=begun.version + 1)

        async def changes(self, key: bytes, version: int, after: int) -> StoredChat | None:
            if Failing.failures:
                Failing.failures -= 1
                raise DatabaseUnavailableError("away")
            return await super().changes(key, version, after)

    async with talking(Failing) as talk:
        await talk.say("say:one")
        assert talk.host.orchestrator.texts == ["say:one"]


@pytest.mark.rule("CHAT-07")
async def test_message_that_cannot_be_stored_fails_its_turn_alone(tmp_path: Path) -> None:
    async with talking(lambda limits: SqliteChatStore(tmp_path / "c.db", limits), ROOMY) as talk:
        await talk.say("part:abc wait", "text")
        poison = ChatMessage(id="x", role=Role.ASSISTANT, created_at=1j)  # type: ignore[arg-type]
        await talk.host.sessions.add_message(talk.session.id, poison)
        while talk.page.seen[-1] != "failed":
            talk.page.show(await anext(talk.connection))
            if talk.page.seen[-1] == "history":
                talk.page.seen += ["failed"] if talk.session.running_turn is None else []
        assert talk.host.sessions.is_available
        await talk.say("say:next")


@pytest.mark.rule("CHAT-04")
async def test_file_of_chats_is_private_and_has_one_process(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "chats.db"
    async with running(lambda limits: SqliteChatStore(path, limits)) as host:
        session = await host.sessions.create(OWNER)
        with pytest.raises(UsageError, match="open"):
            async with running(lambda limits: SqliteChatStore(path, limits)):
                pass
    assert path.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT key FROM chat").fetchall()
    assert rows == [(session.key,)]
    assert session.id.encode() not in path.read_bytes()


@pytest.mark.rule("CHAT-05")
@pytest.mark.parametrize("dsn", ["", "sqlite:", "redis://x", "secret:password@host"])
def test_setting_that_names_no_store_is_refused_without_its_password(dsn: str) -> None:
    with pytest.raises(UsageError, match="memory, sqlite:FILE or postgresql://") as raised:
        open_store(dsn)
    assert "secret" not in str(raised.value)


@pytest.mark.rule("CHAT-05")
def test_setting_names_a_store(tmp_path: Path) -> None:
    assert isinstance(open_store("memory"), MemoryChatStore)
    assert isinstance(open_store(f"sqlite:{tmp_path}/c.db"), SqliteChatStore)
    assert isinstance(open_store("postgresql://localhost/x"), PostgresChatStore)
