"""What sessions cost: memory while they are idle, work in a long chat, and nothing afterwards."""

from __future__ import annotations

import asyncio
import gc
import random
import tracemalloc
from pathlib import Path

import pytest

from foundation_rt.apps.host.chat import ChatMessage, Role
from foundation_rt.apps.host.sessions.session import ChatSession
from foundation_rt.apps.host.sessions.sqlite import SqliteChatStore
from foundation_rt.apps.host.sessions.store import SessionSettings
from tests.apps.host.sessions.support import (
    OWNER,
    Page,
    Running,
    read_until,
    running,
    tab,
    whole_page,
)
from tests.lab.checks.leaks import ResourceSnapshot
from tests.lab.clock.counting import CallCounter
from tests.lab.sizes import size
from tests.lab.waiting import until

ROOMY = SessionSettings(max_messages=100_000)
TURN = "say:abcdefghi call:a:b say:done"


async def cost_of_a_turn(host: Running, messages: int) -> int:
    """Return the calls that a turn makes in a chat with so many messages."""
    session = await host.sessions.create(OWNER)
    for number in range(messages):
        message = ChatMessage(id=f"old{number}", role=Role.USER, content="words " * 20)
        await session.add_message(message)
    connection, page = await tab(session)
    for _ in range(3):
        await session.submit(TURN, None)
        await read_until(connection, page, "finished")
    with CallCounter() as counter:
        await session.submit(TURN, None)
        await read_until(connection, page, "finished")
    connection.close()
    return counter.calls


@pytest.mark.rule("CHAT-29")
async def test_turn_in_a_long_chat_costs_what_it_costs_in_a_short_one() -> None:
    async with running(settings=ROOMY) as host:
        short, long = [await cost_of_a_turn(host, count) for count in (5, 500)]
    assert long <= short * 1.2


@pytest.mark.rule("CHAT-29")
async def test_idle_session_takes_less_than_64_kib() -> None:
    async with running(settings=ROOMY) as host:
        sessions = [await _used_session(host) for _ in range(20)]
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            sessions += [await _used_session(host) for _ in range(100)]
            gc.collect()
            taken = (tracemalloc.get_traced_memory()[0] - before) / 100
        finally:
            tracemalloc.stop()
        assert taken < 64 * 1024
        for _, connection in sessions:
            connection.close()


async def _used_session(host: Running) -> tuple[ChatSession, object]:
    session = await host.sessions.create(OWNER)
    connection, page = await tab(session)
    await session.submit(TURN, None)
    await read_until(connection, page, "finished")
    return session, connection


@pytest.mark.rule("CHAT-29")
async def test_chat_that_nobody_uses_is_in_the_store_alone(tmp_path: Path) -> None:
    limits = SessionSettings(abandon_ms=0)
    async with running(lambda limits: SqliteChatStore(tmp_path / "c.db", limits), limits) as host:
        session, connection = await _used_session(host)
        page, session_id = await whole_page(session), session.id
        connection.close()
        await until(lambda session=session: not session.is_busy, "the turn ends")
        await asyncio.sleep(0.01)
        del session, connection
        gc.collect()
        assert not any(isinstance(each, ChatSession) for each in gc.get_objects())
        again = await host.sessions.find(session_id, OWNER)
        assert again is not None
        assert (await whole_page(again)).chat() == page.chat()


@pytest.mark.rule("CHAT-30")
@pytest.mark.parametrize("place", ["memory", "sqlite"])
async def test_many_turns_with_cuts_leave_nothing(place: str, tmp_path: Path) -> None:
    dice = random.Random(3)
    count = size(150, 1_000)
    # None that fails: the records that pytest keeps have tracebacks, and those the sessions.
    steps = ["say:abc", "call:a:b", "open:a:b", "part:x"]
    before = ResourceSnapshot.now()
    stores = {"sqlite": lambda limits: SqliteChatStore(tmp_path / "c.db", limits)}
    arguments = (stores[place],) if place in stores else ()
    async with running(*arguments, settings=SessionSettings(abandon_ms=20)) as host:

        async def use() -> None:
            session = await host.sessions.create(OWNER)
            page = Page()
            await session.submit(" ".join(dice.choices(steps, k=3)), None)
            for _ in range(3):
                connection = session.connect(page.seq)
                for _ in range(dice.randrange(4)):
                    if page.seq != session.last_seq:
                        page.show(await anext(connection))
                connection.close()

        for _ in range(10):
            await asyncio.gather(*(use() for _ in range(count // 10)))
    assert asyncio.all_tasks() == {asyncio.current_task()}
    gc.collect()
    assert not any(isinstance(each, ChatSession) for each in gc.get_objects())
    ResourceSnapshot.now().must_equal(before)
