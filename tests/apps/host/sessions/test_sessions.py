"""Sessions on every store, with an orchestrator that the tests play."""

from __future__ import annotations

import asyncio
import gc

import pytest

from foundation_rt.apps.host.chat import ChatMessage, Role, chat_label
from foundation_rt.apps.host.sessions.live_chat import LiveChat
from foundation_rt.apps.host.sessions.memory import MemoryChatStore
from foundation_rt.apps.host.sessions.sessions import ChatSessions
from foundation_rt.apps.host.sessions.store import (
    ChatFullError,
    FencedError,
    RateLimitedError,
    SessionError,
    SessionSettings,
    SlowConnectionError,
    StoreUnavailableError,
    TooManyConnectionsError,
    TooManyTurnsError,
    UnknownSessionError,
)
from foundation_rt.apps.host.web import socket
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
from tests.lab.waiting import until

ROOMY = SessionSettings(max_messages=1_000)


@pytest.mark.rule("CHAT-08")
async def test_turns_run_one_at_a_time_in_their_order(new_store: NewStore) -> None:
    async with talking(new_store) as talk:
        for text in ("say:first wait", "say:second", "say:third"):
            await talk.session.submit(text, None)
        talk.host.orchestrator.going.set()
        for _ in range(3):
            await talk.until("finished")
        assert talk.host.orchestrator.texts == ["say:first wait", "say:second", "say:third"]
        assert list(talk.page.turns.values()) == ["finished"] * 3
        assert talk.session.usage.total_tokens == 15


@pytest.mark.rule("CHAT-08")
async def test_message_that_is_sent_again_counts_once(new_store: NewStore) -> None:
    async with talking(new_store, ROOMY) as talk:
        for _ in range(3):
            await talk.session.submit("wait say:once", "m1")
        talk.host.orchestrator.going.set()
        await talk.session.submit("say:twice", "m2")
        await talk.until("finished")
        await talk.until("finished")
        await talk.session.submit("wait say:once", "m1")
        assert talk.host.orchestrator.texts == ["wait say:once", "say:twice"]


@pytest.mark.rule("CHAT-09")
@pytest.mark.virtual_time
async def test_eleventh_message_in_ten_seconds_is_refused() -> None:
    now = 0
    async with running() as host:
        host.sessions.now = lambda: now
        session = await host.sessions.create(OWNER)
        connection, page = await tab(session)
        for _ in range(10):
            await session.submit("say:x", None)
            await read_until(connection, page, "finished")
        with pytest.raises(RateLimitedError):
            await session.submit("say:x", None)
        now += 10_000
        await session.submit("say:x", None)
        await read_until(connection, page, "finished")


@pytest.mark.rule("CHAT-10")
async def test_ninth_waiting_turn_is_refused(new_store: NewStore) -> None:
    async with talking(new_store, ROOMY) as talk:
        await talk.say("wait", "started")
        for _ in range(8):
            await talk.session.submit("say:x", None)
        with pytest.raises(TooManyTurnsError):
            await talk.session.submit("say:x", None)


@pytest.mark.rule("CHAT-14")
async def test_eleventh_connection_is_refused() -> None:
    async with running() as host:
        session = await host.sessions.create(OWNER)
        connections = [session.connect(None) for _ in range(10)]
        with pytest.raises(TooManyConnectionsError):
            session.connect(None)
        connections[0].close()
        session.connect(None)


@pytest.mark.rule("CHAT-15")
async def test_connection_that_reads_nothing_is_ended_and_others_go_on(new_store: NewStore) -> None:
    async with running(new_store) as host:
        session = await host.sessions.create(OWNER)
        (slow, _), (quick, page) = await tab(session), await tab(session)
        await session.submit(f"say:{'x' * 2_000_000}", None)
        await read_until(quick, page, "finished")
        with pytest.raises(SlowConnectionError):
            await anext(slow)
        assert page.chat() == (await whole_page(session)).chat()


@pytest.mark.rule("CHAT-16")
async def test_stop_ends_the_running_turn_and_the_waiting_ones_go_on(new_store: NewStore) -> None:
    async with talking(new_store) as talk:
        await talk.session.submit("wait say:never", None)
        await talk.say("say:next", "started")
        assert await talk.session.stop()
        await talk.until("finished")
        assert list(talk.page.turns.values()) == ["stopped", "finished"]
        assert not await talk.session.stop()


@pytest.mark.rule("CHAT-02")
async def test_session_is_found_by_its_principal_alone(new_store: NewStore) -> None:
    async with running(new_store) as host:
        session = await host.sessions.create(OWNER)
        assert await host.sessions.find(session.id, OWNER) is session
        assert await host.sessions.find(session.id, "eve") is None
        assert await host.sessions.find("unknown", OWNER) is None
        assert not await host.sessions.delete(session.id, "eve")


@pytest.mark.rule("CHAT-01")
async def test_ids_are_long_and_differ() -> None:
    async with running() as host:
        ids = {(await host.sessions.create(OWNER)).id for _ in range(100)}
        assert len(ids) == 100
        assert min(map(len, ids)) * 6 >= 128


@pytest.mark.rule("CHAT-01")
async def test_logs_name_a_chat_by_a_hash(
    new_store: NewStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with talking(new_store) as talk:
        await talk.say("fail", "failed")
    [record] = [each for each in caplog.records if "turn failed" in each.getMessage()]
    assert record.fields == {"chat": chat_label(talk.session.id)}  # type: ignore[attr-defined]
    assert not any(talk.session.id in str(vars(each)) for each in caplog.records)


@pytest.mark.rule("CHAT-03")
async def test_what_is_asked_of_a_session_that_is_gone_finds_nothing(new_store: NewStore) -> None:
    async with talking(new_store) as talk:
        sessions, key = talk.host.sessions, talk.session.key
        await talk.say("say:x")
        version = talk.session.chat.version
        assert await sessions.delete(talk.session.id, OWNER)
        message = ChatMessage(id="x", role=Role.ASSISTANT, content="x")
        with pytest.raises(UnknownSessionError):
            await sessions.add_message(talk.session.id, message)
        with pytest.raises(StopAsyncIteration):
            await anext(talk.session.connect(None))
        assert not talk.session.is_watched
        assert await sessions.store.begin_turn(key) is None
        assert await sessions.store.changes(key, version, 0) is None
        assert await sessions.store.load(key, OWNER) is None
        with pytest.raises(FencedError):
            await sessions.store.write(key, talk.session.chat.writing("t", (), (), ends_turn=False))


async def test_sessions_have_to_be_given_what_runs_their_turns() -> None:
    sessions = ChatSessions(MemoryChatStore(SessionSettings()))
    with pytest.raises(UsageError, match="call run_turns_with before"):
        _ = sessions.orchestrator


@pytest.mark.rule("CHAT-06")
@pytest.mark.virtual_time
async def test_session_without_a_turn_for_long_is_forgotten_by_the_orchestrator() -> None:
    async with talking(settings=SessionSettings(idle_ms=1_000)) as talk:
        other = await talk.host.sessions.create(OWNER)
        await talk.say("say:x")
        await asyncio.sleep(2)
        connection, page = await tab(other)
        await other.submit("say:x", None)
        await read_until(connection, page, "finished")
        assert talk.host.orchestrator.forgotten == [talk.session.id]


@pytest.mark.rule("CHAT-03")
async def test_deleted_session_ends_its_turn_and_its_connections(new_store: NewStore) -> None:
    async with talking(new_store) as talk:
        await talk.say("wait", "started")
        assert await talk.host.sessions.delete(talk.session.id, OWNER)
        with pytest.raises(AssertionError, match="closed"):
            await talk.until("finished")
        with pytest.raises(UnknownSessionError):
            await talk.session.submit("say:x", None)
        assert await talk.host.sessions.find(talk.session.id, OWNER) is None
        assert talk.host.orchestrator.forgotten == [talk.session.id]


@pytest.mark.rule("CHAT-20")
@pytest.mark.virtual_time
async def test_turn_outlives_its_last_connection_by_a_minute() -> None:
    async with talking() as talk:
        await talk.say("open:files:read", "status")
        talk.connection.close()
        await asyncio.sleep(59)
        back = talk.session.connect(talk.page.seq)
        await asyncio.sleep(600)
        assert talk.session.running_turn is not None
        back.close()
        await asyncio.sleep(61)
        back = talk.session.connect(talk.page.seq)
        await read_until(back, talk.page, "interrupted")
        assert list(talk.page.calls.values()) == [("complete", True)]
        assert talk.page.chat() == (await whole_page(talk.session)).chat()


@pytest.mark.rule("CHAT-19")
async def test_call_whose_turn_is_interrupted_has_an_unknown_outcome(new_store: NewStore) -> None:
    async with talking(new_store) as talk:
        await talk.say("open:files:read", "status")
        talk.session.interrupt()
        await talk.until("interrupted")
        outcome = talk.session.history[-1]
        assert outcome.data["error"]["code"] == "OUTCOME_UNKNOWN"
        assert outcome.kind is None
        await talk.say("ask:files:write", "approval")
        talk.session.interrupt()
        await talk.until("interrupted")
        assert talk.session.history[-1].data["error"]["code"] == "NOT_MADE"
        assert not talk.page.approvals


@pytest.mark.rule("CHAT-32")
async def test_end_of_a_turn_is_in_its_last_message(new_store: NewStore) -> None:
    async with talking(new_store) as talk:
        for text, event, end in (
            ("say:fine", "finished", None),
            ("part:abc wait", "text", "stopped"),
            ("open:files:read", "status", "stopped"),
            ("part:abc fail", "failed", "failed"),
        ):
            await talk.session.submit(text, None)
            await talk.until(event)
            if end == "stopped":
                await talk.session.stop()
                await talk.until(end)
            last = talk.session.history[-1]
            assert last.metadata.get("ending", {}).get("state") == end
        assert last.metadata["ending"]["code"] == "INTERNAL"
        marked = [each for each in talk.session.history if "ending" in each.metadata]
        assert len(marked) == 3
        assert len({each.id for each in talk.session.history}) == len(talk.session.history)


@pytest.mark.rule("CHAT-26")
async def test_close_lets_turns_end_within_the_budget(new_store: NewStore) -> None:
    async with talking(new_store) as talk:
        await talk.session.submit("wait say:bye", None)
        await talk.say("say:never", "started")
        asyncio.get_running_loop().call_soon(talk.host.orchestrator.going.set)
        await talk.host.sessions.close(30)
        assert talk.session.history[-1].content == "bye"
        assert talk.host.orchestrator.texts == ["wait say:bye"]
        with pytest.raises(StoreUnavailableError):
            await talk.session.submit("say:x", None)


@pytest.mark.rule("CHAT-26")
async def test_close_interrupts_what_outlives_the_budget(new_store: NewStore) -> None:
    async with talking(new_store) as talk:
        await talk.say("open:files:read", "status")
        await talk.host.sessions.close(0)
        assert talk.session.history[-1].data["error"]["code"] == "OUTCOME_UNKNOWN"
        assert talk.session.running_turn is None


@pytest.mark.rule("CHAT-13")
async def test_events_that_are_no_longer_kept_become_one_history(new_store: NewStore) -> None:
    settings = SessionSettings(max_events=5, max_messages=100)
    async with talking(new_store, settings) as talk:
        await talk.session.submit("say:abc say:def part:ghi wait", None)
        while talk.session.last_seq < 13:
            talk.page.show(await anext(talk.connection))
        for after in range(talk.session.last_seq + 3):
            again, other = talk.session.connect(after), Page(seq=after)
            while other.seq != talk.session.last_seq:
                other.show(await anext(again))
            again.close()
            kept = talk.session.last_seq - 5 <= after <= talk.session.last_seq
            assert other.histories == (0 if kept else 1)
            if not kept:
                assert other.chat() == (await whole_page(talk.session)).chat()
        payload = (await anext(talk.session.connect(None))).payload
        assert payload["waiting"] == []
        assert payload["usage"]["promptTokens"] == talk.session.usage.prompt_tokens


@pytest.mark.rule("CHAT-31")
async def test_chat_that_is_full_takes_no_more(new_store: NewStore) -> None:
    async with talking(new_store, SessionSettings(max_chat_bytes=2_000)) as talk:
        await talk.say(f"say:{'x' * 2_000}")
        with pytest.raises(ChatFullError):
            await talk.session.submit("say:x", None)


@pytest.mark.rule("CHAT-31")
def test_what_goes_back_to_a_model_counts_in_a_chat() -> None:
    live = LiveChat(SessionSettings())
    thoughts = {"openai": {"message": {"reasoning_content": "x" * 10_000}}}
    live.put(ChatMessage(id="m", role=Role.ASSISTANT, call_id="c", metadata=thoughts))
    assert live.message_bytes > 10_000


@pytest.mark.rule("HOST-24")
def test_every_refusal_has_a_code_for_pages() -> None:
    assert {*SessionError.__subclasses__()} == {*socket._CODES, SlowConnectionError}


@pytest.mark.rule("CHAT-31")
async def test_chats_in_memory_take_no_more_than_they_may() -> None:
    async with running(settings=SessionSettings(max_bytes=100_000)) as host:
        ids = []
        for _ in range(20):
            session = await host.sessions.create(OWNER)
            connection, page = await tab(session)
            await session.submit(f"say:{'x' * 5_000}", None)
            await read_until(connection, page, "finished")
            connection.close()
            ids.append(session.id)
            del session, connection
        store = host.sessions.store
        kept = [await store.load(bytes.fromhex(each), OWNER) is not None for each in ids]
        assert kept == sorted(kept)
        assert 1 < sum(kept) < 10


@pytest.mark.rule("CHAT-06")
async def test_session_that_is_idle_the_longest_makes_room() -> None:
    settings = SessionSettings(max_sessions=3, idle_ms=1_000)
    now = 0
    async with running(settings=settings) as host:
        host.sessions.now = lambda: now
        watched = await host.sessions.create(OWNER)
        connection, _ = await tab(watched)
        old, new = await host.sessions.create(OWNER), await host.sessions.create(OWNER)
        await host.sessions.create(OWNER)
        new_id = new.id
        with pytest.raises(UnknownSessionError):
            await old.submit("say:x", None)
        await new.submit("say:x", None)
        del old, new
        now = 2_000
        await until(lambda: not host.sessions._live[bytes.fromhex(new_id)].is_busy, "the turn ends")
        kept = [await host.sessions.create(OWNER) for _ in range(2)]
        assert await host.sessions.store.load(bytes.fromhex(new_id), OWNER) is None
        assert await host.sessions.find(watched.id, OWNER) is watched
        tabs = [each.connect(None) for each in kept]
        with pytest.raises(StoreUnavailableError):
            await host.sessions.create(OWNER)  # nobody is idle
        for each in (connection, *tabs):
            each.close()


@pytest.mark.rule("CHAT-06", "CHAT-31")
async def test_nobody_pushes_out_the_chats_of_who_has_fewer() -> None:
    settings = SessionSettings(max_sessions=6, max_bytes=100_000)
    async with running(settings=settings) as host:

        async def chat(principal: str, size: int) -> bytes:
            session = await host.sessions.create(principal)
            connection, page = await tab(session)
            await session.submit(f"say:{'x' * size}", None)
            await read_until(connection, page, "finished")
            connection.close()
            return session.key

        store = host.sessions.store
        first = [await chat(OWNER, 1_000) for _ in range(2)]
        flood = [await chat("eve", 1_000) for _ in range(8)]
        kept = [await store.load(key, "eve") is not None for key in flood]
        assert (kept.count(True), kept) == (4, sorted(kept))
        flood = [await chat("eve", 12_000) for _ in range(8)]
        kept = [await store.load(key, "eve") is not None for key in flood]
        assert (1 <= kept.count(True) <= 4, kept) == (True, sorted(kept))
        assert all([await store.load(key, OWNER) for key in first])
        watched = [await host.sessions.create("eve") for _ in range(4)]
        tabs = [session.connect(None) for session in watched]
        with pytest.raises(StoreUnavailableError):
            await host.sessions.create("eve")  # those who have fewer lose none by it
        await host.sessions.create(OWNER)
        for each in tabs:
            each.close()


@pytest.mark.rule("CHAT-33", "HOST-45")
async def test_chats_that_nobody_has_used_for_long_are_purged(
    new_store: NewStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "foundation_rt.host.sessions")
    now = 0
    async with running(new_store, SessionSettings(keep_ms=1_000)) as host:
        sessions, store = host.sessions, host.sessions.store
        sessions.now = lambda: now
        old = [(await sessions.create(OWNER)).key for _ in range(30)]
        watched = await sessions.create(OWNER)
        connection, _ = await tab(watched)
        busy = await sessions.create(OWNER)
        other, page = await tab(busy)
        await busy.submit("wait", None)
        await read_until(other, page, "started")
        now = 2_000
        recent = (await sessions.create(OWNER)).key
        gc.collect()  # sessions that nobody holds
        await sessions.purge()
        kept = [key for key in old if await store.load(key, OWNER)]
        assert len(kept) == (30 if isinstance(store, MemoryChatStore) else 0)
        expired = [each for each in caplog.records if each.getMessage() == "session_expired"]
        named = {each.fields["chat"] for each in expired}  # type: ignore[attr-defined]
        assert named == {chat_label(key.hex()) for key in old if key not in kept}
        assert all([await store.load(key, OWNER) for key in (watched.key, busy.key, recent)])
        connection.close()
        other.close()
