"""The chats of a person: listed, searched, renamed, pinned and deleted by that person alone."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from unittest.mock import AsyncMock, Mock

import orjson
import pytest
from attrs import evolve

from foundation_rt.apps.host.sessions.memory import MemoryChatStore
from foundation_rt.apps.host.sessions.operations import DatabaseChatStore, Steps, commit
from foundation_rt.apps.host.sessions.session import ChatSession
from foundation_rt.apps.host.sessions.sessions import ChatSessions
from foundation_rt.apps.host.sessions.store import (
    NOBODY,
    Place,
    SessionSettings,
    StoreEvents,
    chat_key,
)
from tests.apps.host.sessions.support import (
    OWNER,
    NewStore,
    Page,
    Running,
    in_postgresql,
    in_sqlite,
    read_until,
    running,
)
from tests.lab.waiting import until

EVE = "eve"
ROOMY = SessionSettings(max_messages=1_000)


def tick(host: Running) -> None:
    """Let a second go by."""
    before = host.sessions.now()
    host.sessions.now = lambda: before + 1_000


async def said(host: Running, *texts: str, principal: str = OWNER) -> ChatSession:
    """Return a chat in which somebody has said something, a second after the one before."""
    tick(host)
    session = await host.sessions.create(principal)
    connection = session.connect(0)
    for text in texts:
        await session.submit(text, None)
        await read_until(connection, Page(seq=connection.seen), "finished")
    connection.close()
    return session


async def titles(sessions: ChatSessions, words: str = "", principal: str = OWNER) -> list[str]:
    """Return the titles of all chats that are listed, page after page."""
    found: list[str] = []
    after: Place | None = None
    while True:
        page, after = await sessions.listed(principal, words, after)
        found += [chat.title for chat in page]
        if after is None:
            return found


@pytest.mark.rule("CHAT-34")
async def test_chats_of_a_person_are_listed_the_latest_first(new_store: NewStore) -> None:
    async with running(new_store, evolve(ROOMY, max_listed=2)) as host:
        await host.sessions.create(OWNER)  # nothing is said in it
        first = await said(host, "say:x  first\nline")
        for name in "abc":
            await said(host, name)
        await said(host, "of eve", principal=EVE)
        await said(host, "of nobody", principal=NOBODY)
        assert await titles(host.sessions) == ["c", "b", "a", "say:x first line"]
        assert await host.sessions.change(first.id, OWNER, is_pinned=True)
        assert await titles(host.sessions) == ["say:x first line", "c", "b", "a"]
        assert await host.sessions.change(first.id, OWNER, is_pinned=False, title="\0 ‮ß")
        await said(host, "d")
        connection = first.connect(first.last_seq)
        tick(host)
        await first.submit("again", None)
        await read_until(connection, Page(seq=connection.seen), "finished")
        assert await titles(host.sessions) == ["\0 ‮ß", "d", "c", "b", "a"]
        assert await host.sessions.delete(first.id, OWNER)
        assert await titles(host.sessions) == ["d", "c", "b", "a"]


@pytest.mark.rule("CHAT-36")
@pytest.mark.parametrize("search_ms", [0, 10_000])
async def test_search_finds_words_of_titles_and_of_what_was_said(
    new_store: NewStore, search_ms: int
) -> None:
    """With no time at all each call looks at some chats, and the next one goes on."""
    async with running(new_store, evolve(ROOMY, search_ms=search_ms)) as host:
        named = await said(host, "one", "say:Grüße_aus_Köln")
        await host.sessions.change(named.id, OWNER, title="Straßen 100%")
        await said(host, "two", "call:files:read say:\0'%_")
        await said(host, "GRÜSSE", principal=EVE)
        for count in range(50):
            await said(host, f"chat {count}")
        for words, expected in {
            "köln": ["Straßen 100%"],
            "STRASSEN gru\u0308ße": ["Straßen 100%"],
            "straßen chat": [],
            "\0'%_": ["two"],
            "%": ["two", "Straßen 100%"],
            "files:read": ["two"],  # the person's words, not the call
            "nothing": [],
        }.items():
            assert await titles(host.sessions, words) == expected, words
        assert len(await titles(host.sessions, "chat")) == 50


@pytest.mark.rule("CHAT-01", "CHAT-38")
async def test_chat_is_opened_by_its_id_with_its_principal_alone(new_store: NewStore) -> None:
    async with running(new_store) as host:
        session, unknown = await said(host, "say:x"), await said(host, "say:x", principal=NOBODY)
        assert session.name == session.id
        assert await host.sessions.find(session.id, OWNER) is session
        assert chat_key(unknown.name) == unknown.key
        assert await host.sessions.find(unknown.name, NOBODY) is unknown
        for name in (unknown.id, unknown.name):
            assert await host.sessions.find(name, OWNER) is None
        for name in (unknown.id, session.id):
            assert await host.sessions.find(name, NOBODY) is None
            assert not await host.sessions.change(name, NOBODY, title="x")
            assert not await host.sessions.delete(name, NOBODY)


Attack = Callable[[ChatSessions, str], Awaitable[object]]
ATTACKS: dict[str, Attack] = {
    "open": lambda sessions, name: sessions.find(name, EVE),
    "rename": lambda sessions, name: sessions.change(name, EVE, title="mine"),
    "pin": lambda sessions, name: sessions.change(name, EVE, is_pinned=True),
    "delete": lambda sessions, name: sessions.delete(name, EVE),
}


@pytest.mark.rule("CHAT-02", "CHAT-35")
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
async def test_chat_of_another_person_is_as_one_that_is_not_there(
    new_store: NewStore, attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is asked the same, so neither the answer nor its time tells one from the other."""
    asked: list[str] = []
    async with running(new_store) as host:
        session = await said(host, "secret words")
        store = type(host.sessions.store)
        for name in ("load", "_load", "change", "delete"):
            if (method := getattr(store, name, None)) is not None:
                monkeypatch.setattr(store, name, _noting(method, name, asked))
        outcomes = []
        for name in (session.id, chat_key("no such chat").hex(), "no such chat"):
            asked.clear()
            outcomes.append((await attack(host.sessions, name), [*asked]))
        assert outcomes[0] == outcomes[1] == outcomes[2]
        assert not outcomes[0][0] and len(outcomes[0][1]) == 1
        assert await titles(host.sessions) == ["secret words"]
        assert await titles(host.sessions, "secret", EVE) == []


def _noting(method: Callable[..., object], name: str, asked: list[str]) -> Callable[..., object]:
    def noting(*args: object, **named: object) -> object:
        asked.append(name)
        return method(*args, **named)

    return noting


@pytest.mark.rule("CHAT-35")
async def test_attacker_that_races_the_owner_changes_nothing(new_store: NewStore) -> None:
    async with running(new_store, ROOMY) as host:
        session = await said(host, "say:mine")
        name = session.id
        del session  # so that both load it
        for count in range(5):
            attacks = [attack(host.sessions, name) for attack in ATTACKS.values()]
            own = host.sessions.change(name, OWNER, title=f"title {count}")
            found, renamed, *others = await asyncio.gather(
                host.sessions.find(name, OWNER), own, *attacks
            )
            assert found is not None and renamed and not any(others)
            assert await titles(host.sessions) == [f"title {count}"]
            del found
        gone, _, _, *others = await asyncio.gather(
            host.sessions.delete(name, OWNER),
            host.sessions.change(name, OWNER, title="late"),
            host.sessions.find(name, OWNER),
            *(attack(host.sessions, name) for attack in ATTACKS.values()),
        )
        assert gone and not any(others) and await titles(host.sessions) == []


class SlowSearch(MemoryChatStore):
    """Its searches wait."""

    searching: int = 0
    most: int = 0

    async def having(self, keys: object, words: str) -> list[bytes]:
        self.searching += 1
        self.most = max(self.most, self.searching)
        await asyncio.sleep(0)
        self.searching -= 1
        return []


@pytest.mark.rule("CHAT-36")
async def test_searches_of_one_person_wait_for_each_other() -> None:
    async with running(SlowSearch) as host:
        await said(host, "x")
        await asyncio.gather(*(host.sessions.listed(OWNER, "word") for _ in range(10)))
        assert isinstance(host.sessions.store, SlowSearch)
        assert host.sessions.store.most == 1


OLD = [
    {"id": "m1", "role": "user", "content": "Old\nwords of Ärger", "createdAt": 1},
    {"id": "m2", "role": "tool", "callId": "c", "data": {"result": {"text": "hidden"}}},
    {"id": "m3", "role": "assistant", "content": "An \0 answer", "createdAt": 2},
]
STATE = b'{"turn":null}'
ADD_CHAT = (
    "INSERT INTO {schema}.chat (key, principal, created_at, last_active_at, last_seq, first_seq,"
    " version, state, recent) VALUES (%b, %b, 1, 2, 0, 1, 0, %b, %b)"
)
ADD_MESSAGE = (
    "INSERT INTO {schema}.chat_message (chat, position, id, body, version)"
    " VALUES (1, %b::bigint, %b, %b, 1)"
)


@pytest.mark.rule("CHAT-34", "CHAT-36")
@pytest.mark.parametrize("place", [in_sqlite, in_postgresql])
async def test_chats_of_an_earlier_version_are_listed_and_found(
    place: Callable[[ExitStack], NewStore],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    stack = ExitStack()
    request.addfinalizer(stack.close)
    new_store = place(stack)
    earlier = new_store(ROOMY)
    assert isinstance(earlier, DatabaseChatStore)
    module = sys.modules[type(earlier).__module__]
    with monkeypatch.context() as patched:
        patched.setattr(module, "MIGRATIONS", module.MIGRATIONS[:2])
        await earlier.open(StoreEvents(Mock(), AsyncMock(), dict))
    await earlier.transact(_add_old)
    await earlier.close()
    async with running(new_store) as host:
        await until(lambda: not host.sessions._tasks, "the titles are stored")
        assert await titles(host.sessions) == ["Old words of Ärger"]
        assert await titles(host.sessions, principal=EVE) == []
        for words, count in {"ärger": 1, "ANSWER": 1, "\0": 1, "hidden": 0}.items():
            assert len(await titles(host.sessions, words)) == count, words
        found = await host.sessions.find("secret 1", OWNER)
        assert found is not None and found.name == chat_key("secret 1").hex()


def _add_old() -> Steps[None]:
    """Add three chats, of which the first has messages."""
    chats = [
        (ADD_CHAT, (chat_key(f"secret {number}"), principal.encode(), STATE, b"[]"))
        for number, principal in enumerate((OWNER, OWNER, EVE), 1)
    ]
    messages = [
        (ADD_MESSAGE, (at, str(at).encode(), orjson.dumps(each))) for at, each in enumerate(OLD)
    ]
    yield commit(*chats, *messages)
