"""Limits of agents: workers and rates, over all processes (AACP-190 to AACP-192)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.agents.ledger.agent_limits import AgentLimits, LimitedAgent
from foundation_rt.agents.ledger.coordinator import AgentCoordinatorV2
from foundation_rt.agents.ledger.retransmitter import RetransmissionPolicy
from foundation_rt.agents.messages import AgentContext, AgentMessage
from foundation_rt.errors import ErrorCode, RegistrationError, ToolError
from tests.lab.agents.coordinators import attach
from tests.lab.agents.processes import Part, Peers, wait_for
from tests.lab.places.services import postgres_schema

limits = st.builds(AgentLimits, st.just(1), st.integers(1, 9), st.sampled_from((1, 50, 1_000)))


@pytest.mark.rule("AACP-191")
@given(limits, st.lists(st.tuples(st.integers(0, 400), st.integers(1, 9))))
def test_no_window_has_more_starts_than_may(
    limits: AgentLimits, asked: list[tuple[int, int]]
) -> None:
    agent, time_ms, starts = LimitedAgent(limits), 1_700_000_000_123, list[int]()
    for pause_ms, most in asked:
        time_ms += pause_ms
        left, delay_ms = agent.starts_left(most, time_ms)
        agent.note_starts(left, time_ms)
        starts += [time_ms] * left
        in_window = [each for each in starts if each > time_ms - limits.window_ms]
        assert left <= most
        assert len(in_window) <= limits.starts
        if left < most:
            assert agent.starts_left(1, time_ms + delay_ms)[0] == 1
        agent = LimitedAgent.of(1, limits.starts, limits.window_ms, agent.written())
        assert len(agent.started) <= 67


@pytest.mark.rule("AACP-191")
@given(limits, st.integers(0, 100_000_000))
def test_a_clock_that_was_set_back_stops_an_agent_for_a_window_at_most(
    limits: AgentLimits, back_ms: int
) -> None:
    agent, time_ms = LimitedAgent(limits), 1_700_000_000_000
    agent.note_starts(limits.starts, time_ms)
    time_ms -= back_ms
    agent.note_starts(0, time_ms)
    delay_ms = agent.starts_left(1, time_ms)[1]
    assert delay_ms <= limits.window_ms + max(1, limits.window_ms // 64)


@pytest.mark.rule("AACP-190", "AACP-191")
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"workers": 0}, "workers is a number from 1 to 100, not 0"),
        ({"workers": 101}, "from 1 to 100, not 101"),
        ({"workers": True}, "from 1 to 100, not True"),
        ({"rate": 10}, "as in '10/s', '100/min' or '5000/h', not 10"),
        ({"rate": "0/s"}, "not '0/s'"),
        ({"rate": "1000001/h"}, "at most 1,000,000 starts"),
        ({"rate": "10/day"}, "not '10/day'"),
    ],
)
def test_limits_that_cannot_be_are_refused(more: dict[str, Any], words: str) -> None:
    async def handler(message: AgentMessage, context: AgentContext) -> None: ...

    coordinator = AgentCoordinatorV2()
    with pytest.raises(RegistrationError, match=words):
        coordinator.register_agent("a", handler, **more)
    assert coordinator.agent_ids() == []


async def repeat(message: AgentMessage, context: AgentContext) -> Any:
    """Return what it was sent."""
    return message.payload


class Meeting:
    """A handler that goes on when so many are in it at a time."""

    def __init__(self, number: int) -> None:
        self.barrier = asyncio.Barrier(number)
        self.most = self.now = 0

    async def __call__(self, message: AgentMessage, context: AgentContext) -> Any:
        self.now += 1
        self.most = max(self.most, self.now)
        await self.barrier.wait()
        self.now -= 1
        return message.payload


@pytest.mark.rule("AACP-190")
async def test_one_process_executes_as_many_as_it_may() -> None:
    meeting = Meeting(3)
    coordinator = AgentCoordinatorV2()
    coordinator.register_agent("a", meeting, workers=3)
    async with coordinator:
        answers = await asyncio.gather(*(coordinator.send_request("a", n) for n in range(9)))
    assert answers == list(range(9))
    assert meeting.most == 3


@pytest.mark.rule("AACP-190")
async def test_messages_in_memory_share_the_workers() -> None:
    meeting = Meeting(2)
    coordinator = AgentCoordinatorV2()
    coordinator.register_agent("a", meeting, workers=2)
    async with coordinator:
        sent = [coordinator.send_message("a", AgentMessage("t", n)) for n in range(3)]
        asked = [coordinator.send_request("a", n) for n in range(3, 6)]
        assert await asyncio.gather(*sent, *asked) == list(range(6))
    assert meeting.most == 2


@pytest.mark.rule("AACP-190", "AACP-63")
async def test_request_that_fails_for_a_while_stops_no_other() -> None:
    later = asyncio.Event()
    failed = 0

    async def handler(message: AgentMessage, context: AgentContext) -> Any:
        nonlocal failed
        if message.payload == 0 and not later.is_set():
            failed += 1
            raise ToolError(ErrorCode.RESOURCE_EXHAUSTED, "later")
        return message.payload

    policy = RetransmissionPolicy(
        base_delay_ms=1,
        max_delay_ms=1,
        max_executions=10_000,
        max_starts=10_000,
        should_retry_error=lambda error: True,
    )
    coordinator = AgentCoordinatorV2(policy=policy)
    coordinator.register_agent("a", handler, workers=2)
    async with coordinator:
        first = asyncio.ensure_future(coordinator.send_request("a", 0))
        assert [await coordinator.send_request("a", n) for n in (1, 2, 3)] == [1, 2, 3]
        assert not first.done()
        later.set()
        assert await first == 0
    assert failed > 0


@pytest.mark.rule("AACP-191")
async def test_what_exceeds_a_rate_waits_in_the_ledger() -> None:
    coordinator = AgentCoordinatorV2()
    coordinator.register_agent("slow", repeat, rate="2/h")
    coordinator.register_agent("free", repeat)
    async with coordinator:
        ids = [await coordinator.submit_request("slow", n) for n in range(5)]
        assert [await coordinator.send_request("free", n) for n in range(20)] == list(range(20))
        pending = await coordinator.pending_requests()
    assert sorted(each.request_id for each in pending) == sorted(ids[2:])


@pytest.mark.rule("AACP-191")
async def test_a_rate_goes_on_with_the_next_window() -> None:
    coordinator = AgentCoordinatorV2()
    coordinator.register_agent("a", repeat, rate="4/s", workers=3)
    async with coordinator:
        answers = await asyncio.gather(*(coordinator.send_request("a", n) for n in range(9)))
    assert answers == list(range(9))


@pytest.mark.rule("AACP-190", "AACP-191")
def test_limits_hold_over_processes() -> None:
    started, workers = 30, 3
    with postgres_schema() as (url, schema), Peers() as one, Peers() as two, Peers() as asker:
        store = f"{schema}@{url}"
        executing = {
            "agents": ["limited", "free"],
            "handler_ms": 20,
            "workers": workers,
            "rate": f"{started}/h",
            "lease_ms": 3_000,
        }
        ids = [f"r{n}" for n in range(started + 20)]
        one.start(Part("one", store, **executing))
        asker.start(Part("first", store, "", [], ["limited"], ids[:10], 10))
        wait_for(asker.has_ended, one, asker)
        began = asker.said("told")
        asker.wait_for_end()
        one.kill()
        two.start(Part("two", store, **executing))
        asker.start(Part("asker", store, "", [], ["limited"], ids[10:], len(ids)))
        wait_for(lambda: len(asker.said("told")) == started - 10, two, asker)
        began_at = sorted(int(each[2]) for each in [*began, *asker.said("told")])
        asker.kill()
        # What was refused is not begun while other requests are.
        others = [f"free{n}" for n in range(100)]
        asker.start(Part("other", store, "", [], ["free"], others, 10))
        wait_for(asker.has_ended, two, asker)
        executed = [each for [each] in one.said("executed") + two.said("executed")]
        limited = [each for each in executed if each in ids]
        assert len(limited) == len(set(limited)) == started
        assert len(one.said("executed")) == 10  # both executed some, and the rate is that of both
        for first, fourth in zip(began_at, began_at[workers:], strict=False):
            assert fourth - first >= 20_000_000  # so many are never executed at a time


@pytest.mark.rule("AACP-192")
async def test_replaced_limits_are_logged() -> None:
    coordinator = AgentCoordinatorV2()
    sink = attach(coordinator)
    coordinator.register_agent("a", repeat, workers=2, rate="100/min")
    async with coordinator:
        assert await coordinator.send_request("a", 1) == 1
        coordinator.unregister_agent("a")
        coordinator.register_agent("a", repeat)
        assert await coordinator.send_request("a", 2) == 2
        assert coordinator._running is not None
        store: Any = coordinator._running.runner.store
        assert store.ledger.limited == {}
    [line] = [each for each in sink.lines if each["level"] == "warn"]
    assert (line["now"], line["before"]) == ("workers=1", "workers=2, rate='100/min'")
