"""Turns, stops, approvals, answers and tabs in any order: every tab ends with the same chat."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from foundation_rt.apps.host.sessions.connection import SessionConnection
from foundation_rt.apps.host.sessions.store import SessionSettings, TooManyTurnsError
from tests.apps.host.sessions.support import OWNER, Page, running, whole_page
from tests.lab.sizes import examples
from tests.lab.waiting import settle

LIMITS = SessionSettings(max_messages=10_000, max_waiting_turns=3, max_events=20)
TEXTS = ("say:abcdef", "ask:a:b say:x", "question:q say:y", "part:klm open:a:b", "wait", "fail")
TABS = st.integers(0, 3)


class Sessions(RuleBasedStateMachine):
    """One session with four tabs, on the default store."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.host = self.run(self.stack.enter_async_context(running(settings=LIMITS)))
        self.session = self.run(self.host.sessions.create(OWNER))
        self.tabs: dict[int, tuple[SessionConnection, Page]] = {}
        self.pages: dict[int, Page] = {number: Page() for number in range(4)}
        self.accepted: set[str] = set()
        self.decided: set[str] = set()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    @rule(text=st.sampled_from(TEXTS), name=st.integers(0, 30))
    def submit(self, text: str, name: int) -> None:
        async def submit() -> None:
            try:
                await self.session.submit(text, f"m{name}")
            except TooManyTurnsError:  # the next turn may begin before `run` returns
                assert len(self.session.chat.waiting) == 3
            else:
                self.accepted.add(f"m{name}")

        self.run(submit())

    @rule(tab=TABS)
    def connect(self, tab: int) -> None:
        async def open_tab() -> None:
            page = self.pages[tab]
            self.tabs[tab] = (self.session.connect(page.seq), page)

        if tab not in self.tabs:
            self.run(open_tab())

    @rule(tab=TABS)
    def cut(self, tab: int) -> None:
        async def close_tab() -> None:
            self.tabs.pop(tab)[0].close()

        if tab in self.tabs:
            self.run(close_tab())

    @rule(tab=TABS, count=st.integers(1, 5))
    def read(self, tab: int, count: int) -> None:
        async def read() -> None:
            connection, page = self.tabs[tab]
            for _ in range(count):
                if page.seq == self.session.last_seq:
                    return
                page.show(await anext(connection))

        if tab in self.tabs:
            self.run(read())

    @rule(pauses=st.integers(1, 6))
    def go_on(self, pauses: int) -> None:
        async def pause() -> None:
            await settle(pauses)

        self.run(pause())

    @rule()
    def stop(self) -> None:
        self.run(self.session.stop())

    @rule()
    def interrupt(self) -> None:
        async def interrupt() -> None:
            self.session.interrupt()

        self.run(interrupt())

    @precondition(lambda self: self.session.chat.state.approvals)
    @rule(decision=st.sampled_from(["once", "deny"]))
    def approve(self, decision: Any) -> None:
        call_id = next(iter(self.session.chat.state.approvals))
        if self.run(self.session.approve(call_id, decision)):
            assert call_id not in self.decided
            self.decided.add(call_id)
        assert not self.run(self.session.approve(call_id, decision))

    @precondition(lambda self: self.session.chat.state.questions)
    @rule()
    def answer(self) -> None:
        async def answer_twice() -> None:  # before the next turn may ask the same
            await self.session.answer("q", "accept", {})
            assert not await self.session.answer("q", "decline", None)

        self.run(answer_twice())

    @invariant()
    def waiting_turns_are_bounded(self) -> None:
        assert len(self.session.chat.waiting) <= 3

    def teardown(self) -> None:
        self.run(self.end())
        self.run(self.stack.aclose())
        self.runner.close()

    async def end(self) -> None:
        while self.session.is_busy:
            self.session.interrupt()
            await asyncio.sleep(0)
        final = await whole_page(self.session)
        assert self.accepted <= final.texts.keys() | {
            turn.message_id for turn in self.session.chat.waiting
        }
        for tab, page in self.pages.items():
            connection = self.tabs[tab][0] if tab in self.tabs else self.session.connect(page.seq)
            while page.seq != self.session.last_seq:
                page.show(await anext(connection))
            assert page.chat() == final.chat()
            assert not page.approvals and not page.questions
            connection.close()


TestSessions = pytest.mark.rule("CHAT-08", "CHAT-12", "CHAT-16", "CHAT-17")(Sessions.TestCase)
TestSessions.settings = settings(max_examples=examples(200), stateful_step_count=30)
