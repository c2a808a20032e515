"""Any history of turns, stops, decisions and tabs: what holds after each step, and at the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from foundation_rt.apps.coordinator import Coordinator
from foundation_rt.apps.host.chat import Role
from foundation_rt.apps.host.events import ServerMessage
from foundation_rt.apps.host.llm.service import LLMFailure, LLMServiceError
from foundation_rt.apps.host.orchestrator import (
    ConversationOrchestrator,
    MemoryHistories,
    connection_options,
)
from foundation_rt.base.clock import ManualClock
from tests.lab.checks.leaks import tasks
from tests.lab.clock.virtual_loop import VirtualLoop
from tests.lab.host.chat import Desk, ScriptedModel, call, chat, say
from tests.lab.sizes import examples

SESSIONS = ("one", "two")
STEPS = st.sampled_from(
    ["text", "find", "note", "hold", "peek", "fail", "unknown", "wrong", "pause", "error"]
)
ANSWER = st.lists(STEPS, max_size=4)
TURN = st.lists(ANSWER, max_size=3)
DECISIONS = st.sampled_from(["once", "session", "always", "deny"])


def step_of(name: str, number: int) -> Any:
    """Return a step of a model's answer."""
    match name:
        case "text":
            return f"text {number}"
        case "pause":
            return 0.5
        case "error":
            failure = LLMFailure.TRANSIENT if number % 2 else LLMFailure.BAD_KEY
            return LLMServiceError("failed", failure=failure, model="m", advice="")
        case "unknown":
            return call("desk:nothing")
        case "wrong":
            return call("desk:note", nothing=1)
        case "find":
            return call("desk:find", word=str(number))
        case "fail":
            return call("desk:fail", message=str(number))
    return call(f"desk:{name}", f"call {number % 3}", text=str(number))


class Machine(RuleBasedStateMachine):
    """Two sessions, each with two tabs, that share a model and a server."""

    @initialize()
    def begin(self) -> None:
        self.loop = VirtualLoop(ManualClock())
        asyncio.set_event_loop(self.loop)
        self.model = ScriptedModel()
        self.plans: dict[str, list[list[str]]] = {each: [] for each in SESSIONS}
        self.model.choose = self.choose
        self.histories = MemoryHistories()
        self.reading: dict[str, asyncio.Task[list[ServerMessage]]] = {}
        self.events: dict[str, list[ServerMessage]] = {each: [] for each in SESSIONS}
        self.number = self.turns = 0
        self.loop.run_until_complete(self.connect())

    async def connect(self) -> None:
        self.desk = Desk()
        self.coordinator = Coordinator({"desk": self.desk.server}, connections=connection_options())
        await self.coordinator.initialize()
        self.orchestrator = ConversationOrchestrator(self.model, self.coordinator, self.histories)
        self.idle = len(tasks())

    def choose(self, asked: Any) -> list[Any]:
        plan = self.plans[asked.options.session_id]
        steps = []
        for name in plan.pop(0) if plan else ["text"]:
            self.number += 1
            steps.append(step_of(name, self.number))
        return steps

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.run_until_complete(self.finish())
            self.loop.close()
            asyncio.set_event_loop(None)

    async def finish(self) -> None:
        self.desk.gate.set()
        for session in SESSIONS:
            self.orchestrator.stop(session)
        if self.reading:
            await asyncio.wait(self.reading.values())
        for session in SESSIONS:
            self.check(session)
        assert self.model.running == 0
        await asyncio.sleep(40)  # calls that were left count for 30 s
        assert len(tasks()) <= self.idle
        await self.coordinator.close()

    async def read(self, session: str, text: str) -> list[ServerMessage]:
        turn = self.orchestrator.handle_input(session, text)
        found = []
        async for event in turn:
            found.append(event)
            self.events[session].append(event)
        return found

    @rule(session=st.sampled_from(SESSIONS), plan=TURN)
    def start(self, session: str, plan: list[list[str]]) -> None:
        running = self.reading.get(session)
        if running is None or running.done():
            self.turns += 1
            self.plans[session] = [*plan]
            self.reading[session] = self.loop.create_task(self.read(session, f"t{self.turns}"))
        self.loop.turn(30)

    @rule(session=st.sampled_from(SESSIONS))
    def stop(self, session: str) -> None:
        self.orchestrator.stop(session)
        self.loop.turn(30)

    @rule(session=st.sampled_from(SESSIONS))
    def close(self, session: str) -> None:
        running = self.reading.pop(session, None)
        if running is not None and not running.done():
            running.cancel()
            self.loop.run_until_complete(asyncio.wait([running]))
            # Nobody read how it ended: forget what was open.
            self.events[session].clear()

    @rule(
        session=st.sampled_from(SESSIONS),
        first=DECISIONS,
        second=DECISIONS,
        foreign=st.booleans(),
    )
    def decide(self, session: str, first: Any, second: Any, foreign: bool) -> None:
        open_ones = self.open_approvals(session)
        for call_id in open_ones:
            if foreign:
                other = next(each for each in SESSIONS if each != session)
                if call_id not in self.open_approvals(other):
                    assert not self.orchestrator.approve(other, call_id, first)
            self.orchestrator.approve(session, call_id, first)
            # The other tab is too late.
            assert not self.orchestrator.approve(session, call_id, second)
        self.loop.turn(30)

    @rule(seconds=st.sampled_from([0.1, 1.0, 20.0, 301.0]))
    def wait(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    @rule()
    @precondition(lambda self: not self.desk.gate.is_set())
    def open_gate(self) -> None:
        self.desk.gate.set()
        self.loop.turn(30)
        self.desk.gate.clear()

    def open_approvals(self, session: str) -> list[str]:
        found: dict[str, bool] = {}
        for event in self.events[session]:
            if event.type == "approval":
                found[event.payload["callId"]] = "expiresAt" in event.payload
        return [call_id for call_id, is_open in found.items() if is_open]

    @invariant()
    def sessions_that_rest_are_whole(self) -> None:
        if not hasattr(self, "reading"):
            return
        for session in SESSIONS:
            running = self.reading.get(session)
            if running is None or running.done():
                self.check(session)

    def check(self, session: str) -> None:
        kept = self.histories.get_history(session)
        calls = [each.call_id for each in kept if each.is_call]
        outcomes = [each.call_id for each in kept if each.role is Role.TOOL]
        assert sorted(map(str, calls)) == sorted(map(str, outcomes))
        assert len(set(calls)) == len(calls)
        assert self.open_approvals(session) == []
        running = self.reading.get(session)
        if running is None or running.cancelled():
            return
        events = running.result()
        assert [event.type for event in events[:2]] == ["user", "turn"]
        states = [event.payload["state"] for event in events if event.type == "turn"]
        assert states[0] == "started"
        assert len(states) == 2
        assert events[-1].type == "turn"
        done = [
            e.payload for e in events if e.type == "status" and e.payload["state"] == "complete"
        ]
        begun = {e.payload["callId"] for e in events if e.type == "status"}
        assert {payload["callId"] for payload in done} == begun
        texts: dict[str, str] = {}
        for event in events:
            if event.type == "text":
                name = event.payload["messageId"]
                texts[name] = texts.get(name, "") + event.payload["content"]
        stored = {each.id: each.content for each in kept}
        assert all(stored[name] == text for name, text in texts.items())
        # Only what was approved has run.
        approved = {
            e.payload["callId"]
            for e in self.events[session]
            if e.type == "approval" and e.payload.get("decision") in ("once", "session", "always")
        }
        if not approved and not self.orchestrator._services.approvals._of_sessions.get(session):
            wrote = [p for p in done if p["tool"] == "desk:note" and not p["isError"]]
            assert not wrote or self.histories._decisions.get(session)


TestTurns = pytest.mark.rule("TURN-07", "TURN-08", "TURN-14", "TURN-18", "TURN-24")(
    Machine.TestCase
)
TestTurns.settings = settings(max_examples=examples(40), stateful_step_count=25, deadline=None)


@pytest.mark.rule("TURN-08")
async def test_many_turns_with_stops_leave_no_task(clock: ManualClock) -> None:
    desk = Desk()
    model = ScriptedModel()
    plans = [
        ["text", 0.2, "more"],
        ["text", call("desk:peek", text="a"), call("desk:peek", text="b")],
        [call("desk:note", text="a")],
        [call("desk:find", word="a")],
    ]
    model.choose = lambda asked: plans[len(model.asked) % len(plans)]
    async with chat(model, desk) as orchestrator:
        loop = asyncio.get_running_loop()
        before = len(tasks())

        async def turn(number: int) -> None:
            session = f"s{number}"
            delay = (number % 17) / 20
            loop.call_later(delay, orchestrator.stop, session)
            if number % 3:
                await say(orchestrator, session=session)
            else:
                events = orchestrator.handle_input(session, "hello")
                left = number % 7
                async for _ in events:
                    left -= 1
                    if left < 0:
                        break
                await events.aclose()
            await orchestrator.forget(session)

        for first in range(0, examples(1000), 20):
            await asyncio.gather(*(turn(first + each) for each in range(20)))
        await asyncio.sleep(40)
        assert len(tasks()) <= before
        assert model.running == desk.running == 0
        assert orchestrator._turns == {}
