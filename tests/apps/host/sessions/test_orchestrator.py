"""Sessions with the real orchestrator: what pages see is what is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.apps.host.orchestrator.skills import READ_SKILL
from foundation_rt.apps.host.sessions.sessions import ChatSessions
from foundation_rt.apps.host.sessions.store import SessionSettings
from tests.apps.host.sessions.support import OWNER, NewStore, read_until, tab, whole_page
from tests.features.test_skills import write_skill
from tests.lab.host.chat import Desk, ScriptedModel, call, chat
from tests.lab.waiting import until

ROOMY = SessionSettings(max_messages=1_000)


@asynccontextmanager
async def sessions_with(
    new_store: NewStore, *answers: Sequence[Any], desk: Desk | None = None
) -> AsyncIterator[ChatSessions]:
    """Run sessions whose model gives these answers."""
    desk = desk or Desk()
    sessions = ChatSessions(new_store(ROOMY), ROOMY)
    async with chat(ScriptedModel(answers), desk, histories=sessions) as orchestrator:
        sessions.run_turns_with(orchestrator)
        await sessions.start()
        try:
            yield sessions
        finally:
            await sessions.close(0)
            desk.gate.set()  # its tool does not end before


@pytest.mark.rule("CHAT-07", "CHAT-12")
async def test_turn_with_calls_and_an_approval_is_stored_as_it_was_shown(
    new_store: NewStore,
) -> None:
    answers = (
        ["Let me ", "look.", call("desk:find", word="x")],
        ["I write it down. ", call("desk:note", text="x")],
        ["Done", "."],
    )
    async with sessions_with(new_store, *answers) as sessions:
        session = await sessions.create(OWNER)
        connection, page = await tab(session)
        await session.submit("find x", "m1")
        call_id = (await read_until(connection, page, "approval")).payload["callId"]
        assert (await whole_page(session)).approvals == {call_id}
        assert await session.approve(call_id, "once")
        await read_until(connection, page, "finished")
        assert page.chat() == (await whole_page(session)).chat()
        assert list(page.calls.values()) == [("complete", False)] * 2
        assert "find x" in page.texts.values()


@pytest.mark.rule("CHAT-16", "CHAT-18")
@pytest.mark.parametrize("end", ["stopped", "interrupted"])
async def test_turn_that_is_cut_off_in_a_call_is_stored_as_it_was_shown(
    new_store: NewStore, end: str
) -> None:
    answers = (["Wait. ", call("desk:hold", text="x")], ["Next."])
    async with sessions_with(new_store, *answers) as sessions:
        session = await sessions.create(OWNER)
        connection, page = await tab(session)
        await session.submit("hold x", None)
        call_id = (await read_until(connection, page, "approval")).payload["callId"]
        await session.approve(call_id, "session")
        await read_until(connection, page, "status")
        if end == "stopped":
            await session.stop()
        else:
            session.interrupt()
        await read_until(connection, page, end)
        assert page.chat() == (await whole_page(session)).chat()
        assert [state for state, _ in page.calls.values()] == ["complete"]
        assert not page.approvals
        await session.submit("go on", None)
        await read_until(connection, page, "finished")
        await until(lambda: not session.is_busy, "the turn ends")


@pytest.mark.rule("TURN-93", "TURN-94", "CHAT-07")
async def test_skill_that_is_always_allowed_is_read_in_every_chat(
    new_store: NewStore, tmp_path: Path
) -> None:
    desk = Desk()
    text = "---\nname: pdf\ndescription: d\n---\n\x00\x1b\U000e0041 " + "\x01" * 20_000
    desk.server.skill(write_skill(tmp_path / "pdf", {"SKILL.md": text.encode()}))
    answers = [[call(READ_SKILL, skill="desk:pdf")], ["Done."]] * 2
    async with sessions_with(new_store, *answers, desk=desk) as sessions:
        for is_asked in (True, False):
            session = await sessions.create(OWNER)
            connection, page = await tab(session)
            await session.submit("a form", None)
            if is_asked:
                asked = (await read_until(connection, page, "approval")).payload
                assert asked["skill"]["text"] == text
                assert (await whole_page(session)).approvals == {asked["callId"]}
                assert await session.approve(asked["callId"], "always")
            await read_until(connection, page, "finished")
            assert page.chat() == (await whole_page(session)).chat()
            assert [*page.calls.values()] == [("complete", False)]
