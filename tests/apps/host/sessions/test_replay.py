"""Cuts at any event: what pages have in the end is the chat that is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation_rt.apps.host.sessions.memory import MemoryChatStore
from foundation_rt.apps.host.sessions.session import ChatSession
from foundation_rt.apps.host.sessions.store import SessionSettings
from tests.apps.host.sessions.support import (
    OWNER,
    NewStore,
    Page,
    Running,
    in_postgresql,
    in_sqlite,
    read_to,
    running,
    whole_page,
)
from tests.lab.sizes import cases, examples
from tests.lab.waiting import settle

STEPS = st.sampled_from(["say:abcdefghi", "say:x", "part:klmnop", "call:a:b", "open:a:b", "fail"])
TURNS = st.lists(st.lists(STEPS, min_size=1, max_size=4).map(" ".join), min_size=1, max_size=4)
Cuts = list[tuple[int, bool, int]]
CUTS = st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.integers(0, 4)), max_size=12)


def in_memory(stack: ExitStack) -> NewStore:
    return MemoryChatStore


PLACES: dict[str, tuple[Callable[[ExitStack], NewStore], int]] = {
    "memory": (in_memory, 200),
    "sqlite": (in_sqlite, 60),
    "postgresql": (in_postgresql, 60),
}
"""Each with how many examples are usual there."""


async def play(host: Running, turns: list[str], cuts: Cuts) -> tuple[str, Page]:
    """Run turns while a page reads some events, is cut, and comes back; others open the chat.

    Return the id of the chat, and what is stored in the end.
    """
    session = await host.sessions.create(OWNER)
    page, late = Page(), []
    for number, turn in enumerate(turns):
        await session.submit(turn, f"m{number}")
    for count, from_start, pauses in cuts:
        await settle(pauses)
        connection = session.connect(None if from_start else page.seq)
        for _ in range(count):
            if page.seq == session.last_seq and page.histories:
                break
            page.show(await anext(connection))
        connection.close()
        late.append(await whole_page(session))
        if session.running_turn is not None and "open" in session.running_turn.text:
            session.interrupt()
    while session.is_busy:
        session.interrupt()
        await asyncio.sleep(0)
    final = await whole_page(session)
    for each in (page, *late):
        connection = session.connect(each.seq)
        await read_to(connection, each, session.last_seq)
        connection.close()
        assert each.chat() == final.chat()
    await replay_everywhere(host.sessions.settings.max_events, session, final)
    return session.id, final


async def check_elsewhere(host: Running, session_id: str, final: Page) -> None:
    """Find the chat after a restart, or at another worker."""
    session = await host.sessions.find(session_id, OWNER)
    assert session is not None
    assert (await whole_page(session)).chat() == final.chat()
    await replay_everywhere(host.sessions.settings.max_events, session, final)


async def replay_everywhere(kept: int, session: ChatSession, final: Page) -> None:
    """Continue from every number: what follows it comes, or the whole chat."""
    follower = Page(seq=session.last_seq - min(kept, session.last_seq))
    connection = session.connect(follower.seq)
    await read_to(connection, follower, session.last_seq)
    connection.close()
    assert follower.histories == 0
    for after in (0, session.last_seq - kept - 1, session.last_seq + 1):
        page = Page(seq=max(after, 0))
        connection = session.connect(page.seq)
        while page.seq != session.last_seq:
            page.show(await anext(connection))
        connection.close()
        if page.histories:
            assert page.chat() == final.chat()


@pytest.mark.rule("CHAT-11", "CHAT-12", "CHAT-13", "CHAT-18")
@pytest.mark.parametrize(
    ("kept", "place"),
    cases(
        [(3, "memory"), (2_000, "memory"), (3, "sqlite"), (2_000, "postgresql")],
        [*product((3, 2_000), PLACES)],
    ),
)
def test_page_that_is_cut_anywhere_has_the_stored_chat_in_the_end(place: str, kept: int) -> None:
    make, count = PLACES[place]
    limits = SessionSettings(max_events=kept, max_messages=1_000)
    ids: list[tuple[str, Page]] = []

    @settings(max_examples=examples(count))
    @given(TURNS, CUTS)
    def check(turns: list[str], cuts: Cuts) -> None:
        ids.append(runner.run(asyncio.wait_for(play(host, turns, cuts), 60)))

    async def check_all(new_store: NewStore) -> None:
        async with running(new_store, limits) as other:
            for session_id, final in ids:
                await check_elsewhere(other, session_id, final)

    with ExitStack() as stack, asyncio.Runner() as runner:
        new_store = make(stack)
        hosts = AsyncExitStack()
        host = runner.run(hosts.enter_async_context(running(new_store, limits)))
        try:
            check()
        finally:
            runner.run(hosts.aclose())
        if new_store is not MemoryChatStore:
            runner.run(check_all(new_store))  # after a restart
