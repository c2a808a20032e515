"""The store goes away, and comes back; its disk is full."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from attrs import evolve

from foundation_rt.apps.host.app import open_store
from foundation_rt.apps.host.chat import ChatMessage, Role
from foundation_rt.apps.host.sessions.memory import MemoryChatStore
from foundation_rt.apps.host.sessions.postgres import PostgresChatStore
from foundation_rt.apps.host.sessions.sqlite import SqliteChatStore
from foundation_rt.apps.host.sessions.store import (
    BegunTurn,
    FencedError,
    SessionSettings,
    StoredChat,
    StoreUnavailableError,
    Writing,
)
from foundation_rt.base.database.errors import DatabaseFullError, DatabaseUnavailableError
from foundation_rt.errors import UsageError
from tests.apps.host.sessions.support import (
    OWNER,
    NewStore,
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
NOTE = ChatMessage(id="x", role=Role.ASSISTANT, content="x")


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


class Faulty(MemoryChatStore):
    """A store whose named methods fail so many times each; `is_away` has the probe fail, too."""

    def __init__(self, settings: SessionSettings) -> None:
        super().__init__(settings)
        self.is_immediate = False
        self.failing: dict[str, int] = {}
        self.error: Exception = DatabaseUnavailableError("away")
        self.is_away = False
        self.seen: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in FAILING:
            return found

        async def call(*given: Any) -> Any:
            self.seen.append(name)
            if self.failing.get(name, 0) > 0:
                self.failing[name] -= 1
                raise self.error
            return await found(*given)

        return call

    async def probe(self) -> None:
        if self.is_away:
            raise DatabaseUnavailableError("away")


FAILING = {
    *("index", "purge", "listed", "decisions", "decide", "is_watched", "load", "frames", "write"),
    "changes",
}


def faulty(**failing: int) -> tuple[Faulty, NewStore]:
    """Return a store that fails, and what makes it."""
    store = Faulty(SessionSettings())
    store.failing = failing
    return store, lambda _: store


@pytest.mark.rule("CHAT-24", "CHAT-33", "CHAT-34")
@pytest.mark.virtual_time
async def test_work_beside_the_chats_that_fails_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, new_store = faulty(index=1, purge=1)
    async with running(new_store, SessionSettings(keep_ms=1_000)) as host:
        await asyncio.sleep(0.05)
        assert not host.sessions.is_available
        await asyncio.sleep(1)
        assert host.sessions.is_available
        await asyncio.sleep(60)
        assert store.seen == ["index", "purge"]
        await asyncio.sleep(6 * 3600)
        assert store.seen == ["index", "purge", "purge"]
    said = [each.getMessage() for each in caplog.records]
    assert said.count("the store of chats cannot be used") == 2


@pytest.mark.rule("CHAT-34")
async def test_chats_of_earlier_versions_that_cannot_be_read_hold_up_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, new_store = faulty(index=1)
    store.error = ValueError("a row of an earlier version")
    async with talking(new_store) as talk:
        await talk.say("say:hello")
        assert talk.host.sessions.is_available
    assert "chats of an earlier version are not listed" in caplog.text


@pytest.mark.rule("CHAT-24", "CHAT-28")
async def test_what_asks_the_store_is_refused_while_it_is_away() -> None:
    _, new_store = faulty(listed=1, decisions=1)
    async with running(new_store) as host:
        session = await host.sessions.create(OWNER)
        with pytest.raises(StoreUnavailableError):
            await host.sessions.listed(OWNER)
        assert await host.sessions.decisions(session.id) is None
        assert not host.sessions.is_available


@pytest.mark.rule("CHAT-28")
async def test_decision_is_stored_in_the_end_however_often_the_store_fails() -> None:
    store, new_store = faulty(decide=3)
    async with running(new_store) as host:
        session = await host.sessions.create(OWNER)
        await host.sessions.decide(session.id, "s", "one")
        await until(lambda: store._decisions.get(OWNER) == {"s": "one"}, "it is stored")
        await host.sessions.decide("00" * 32, "s", "of no chat")
        assert store.seen.count("decide") == 4


@pytest.mark.rule("CHAT-28")
async def test_decision_that_changes_while_it_is_stored_is_stored_again() -> None:
    stored, going = list[str](), asyncio.Event()

    class Slow(MemoryChatStore):
        async def decide(self, principal: str, subject: str, word: str) -> None:
            await going.wait()
            stored.append(word)

    async with running(Slow) as host:
        session = await host.sessions.create(OWNER)
        first = asyncio.create_task(host.sessions.decide(session.id, "s", "one"))
        second = asyncio.create_task(host.sessions.decide(session.id, "s", "two"))
        await asyncio.sleep(0)
        going.set()
        await asyncio.gather(first, second)
        assert stored[-1] == "two"


@pytest.mark.rule("CHAT-22", "CHAT-24")
async def test_chat_is_read_again_when_the_store_is_back_and_ends_if_it_was_deleted() -> None:
    store, new_store = faulty()
    async with talking(new_store) as talk:
        await talk.say("say:hello")
        talk.session.chat.put(NOTE)  # which the store does not have
        store.failing["load"] = 2
        await talk.session.reload()
        assert store.seen.count("load") == 3
        await talk.until("history")
        assert "x" not in talk.page.texts
        await store.delete(talk.session.key, OWNER)
        await talk.session.reload()
        with pytest.raises(StopAsyncIteration):
            await anext(talk.connection)


@pytest.mark.rule("CHAT-22")
async def test_write_of_a_worker_that_has_lost_its_chat_is_forgotten() -> None:
    store, new_store = faulty()
    async with talking(new_store) as talk:
        await talk.say("say:hello")
        store.failing["write"], store.error = 1, FencedError()
        await talk.host.sessions.add_message(talk.session.id, NOTE)
        await talk.until("history")
        assert "x" not in talk.page.texts
        assert NOTE not in talk.session.history


@pytest.mark.rule("CHAT-13", "CHAT-24")
@pytest.mark.parametrize("is_away", [False, True])
async def test_events_that_cannot_be_read_again_become_one_history(is_away: bool) -> None:
    store, new_store = faulty()
    async with talking(new_store) as talk:
        await talk.say("say:hello")
        store.failing["frames"], store.is_away = 1, is_away
        if is_away:
            talk.host.sessions.availability.lost(store.error)
        again = talk.session.connect(0)
        other = Page(seq=0)
        other.show(await anext(again))
        assert (other.histories, other.chat()) == (1, talk.page.chat())
        store.is_away = False


@pytest.mark.rule("CHAT-20")
@pytest.mark.virtual_time
async def test_turn_that_nobody_watches_ends_where_the_store_cannot_say_who_does() -> None:
    _, new_store = faulty(is_watched=1)
    async with talking(new_store) as talk:
        await talk.say("open:files:read", "status")
        talk.connection.close()
        await asyncio.sleep(61)
        assert talk.session.running_turn is None
        assert talk.session.history[-1].data["error"]["code"] == "OUTCOME_UNKNOWN"


@pytest.mark.rule("CHAT-26")
@pytest.mark.virtual_time
async def test_close_without_the_store_cuts_off_what_runs() -> None:
    store, new_store = faulty()
    async with talking(new_store) as talk:
        await talk.say("part:abc open:files:read", "status")
        store.failing["write"], store.is_away = 10**6, True
        await talk.host.sessions.add_message(talk.session.id, NOTE)
        assert not talk.host.sessions.is_available
        await talk.host.sessions.close(1)
        assert not talk.session.is_busy
        assert talk.host.orchestrator.closed == 1
        assert "x" not in store._chats[talk.session.key].ids


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
async def test_containers_that_json_does_not_know_are_stored_as_those_it_knows(
    tmp_path: Path,
) -> None:
    async with talking(lambda limits: SqliteChatStore(tmp_path / "c.db", limits), ROOMY) as talk:
        data = MappingProxyType({"a": (1,), "b": frozenset({2})})
        await talk.host.sessions.add_message(talk.session.id, evolve(NOTE, data=data))
        stored = await talk.host.sessions.store.load(talk.session.key, OWNER)
        assert stored is not None
        assert [message.data for _, message in stored.messages] == [{"a": [1], "b": [2]}]


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
