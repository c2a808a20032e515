"""Schedules of coordinators, in virtual time: each run once, whoever is there, whatever fails."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation_rt.agents.ledger.coordinator import AgentCoordinatorV2
from foundation_rt.agents.ledger.types import Outcome
from foundation_rt.agents.messages import AgentContext, AgentMessage
from foundation_rt.agents.stores.memory_usage import MemoryLimits
from foundation_rt.errors import ErrorCode, ToolError, UsageError
from tests.lab.agents.coordinators import CoordinatorHarness, run, status_of
from tests.lab.agents.faulty_store import FaultyStore
from tests.lab.agents.loopback import LoopbackNetwork, LoopbackTransport
from tests.lab.sizes import examples

HOUR = 3600.0
DAY = 24 * HOUR


class Clerk:
    """Notes the ids and payloads of what it is given."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.payloads: list[Any] = []

    async def __call__(self, message: AgentMessage, context: AgentContext) -> Any:
        self.runs.append(context.correlation_id or "")
        self.payloads.append(message.payload)
        return message.payload


def ids(harness: CoordinatorHarness, name: str, *seconds: float) -> list[str]:
    """Return the ids of the runs at these times after the start of the test's clock."""
    start = harness.clock.now() - timedelta(seconds=harness.clock.monotonic())
    times = [start + timedelta(seconds=each) for each in seconds]
    return [f"every:{name}:{each:%Y-%m-%dT%H:%MZ}" for each in times]


def office(
    harness: CoordinatorHarness, store: FaultyStore, clerk: Clerk | None, name: str = "host"
) -> AgentCoordinatorV2:
    agents = harness.coordinator(name, store=store)
    if clerk is not None:
        agents.register_agent("clerk", clerk)
    return agents


@pytest.mark.rule("AACP-140", "AACP-141", "AACP-143")
async def test_schedule_sends_at_its_times(harness: CoordinatorHarness) -> None:
    clerk, store = Clerk(), FaultyStore()
    agents = office(harness, store, clerk)
    name = agents.every("0 6 * * *", "clerk", AgentMessage("report", {"to": "all"}), ttl_ms=1000)
    assert name == "clerk:0_6_x_x_x"
    async with agents:
        start = harness.clock.now()
        until_six = (6 - start.hour) % 24 * HOUR - start.minute * 60 - start.second
        await asyncio.sleep(until_six - 1)
        assert clerk.runs == []
        await asyncio.sleep(2 + 2 * DAY)
        assert clerk.runs == ids(harness, name, *(until_six + day * DAY for day in range(3)))
        assert clerk.payloads == [{"to": "all"}] * 3
        status = await status_of(agents, clerk.runs[-1])
        assert (status.outcome, status.result) == (Outcome.COMPLETED, {"to": "all"})
        # Between its runs a schedule costs nothing where nobody else can change it.
        assert store.calls["due_schedules"] <= 8


@pytest.mark.rule("AACP-141")
async def test_schedule_of_a_running_coordinator_begins_at_once(
    harness: CoordinatorHarness,
) -> None:
    clerk = Clerk()
    async with office(harness, FaultyStore(), clerk) as agents:
        await asyncio.sleep(90)
        assert agents.every("* * * * *", "clerk", 1, name="often") == "often"
        await asyncio.sleep(120)
        assert clerk.runs == ids(harness, "often", 120, 180)


@pytest.mark.rule("AACP-142")
async def test_name_is_replaced_and_removed(harness: CoordinatorHarness) -> None:
    clerk = Clerk()
    async with office(harness, FaultyStore(), clerk) as agents:
        agents.every("* * * * *", "clerk", "old", name="often")
        await asyncio.sleep(61)
        agents.every("*/2 * * * *", "clerk", "new", name="often")
        await asyncio.sleep(181)
        assert clerk.runs == ids(harness, "often", 60, 120, 240)
        assert clerk.payloads == ["old", "new", "new"]
        [listed] = await agents.list_schedules()
        assert (listed.expression, listed.revision) == ("*/2 * * * *", 1)
        assert await agents.remove_schedule("often")
        assert not await agents.remove_schedule("often")
        await asyncio.sleep(HOUR)
        assert len(clerk.runs) == 3
        assert await agents.list_schedules() == []
        with pytest.raises(UsageError, match="limit"):
            await agents.list_schedules(limit=0)


@pytest.mark.rule("AACP-141", "AACP-143")
async def test_wrong_schedules_are_refused_in_words(harness: CoordinatorHarness) -> None:
    agents = harness.coordinator()
    for words, more in (
        ("missed is one of once, all, none", {"missed": "twice"}),
        ("there is no time zone", {"timezone": "Moon/Base"}),
        ("a name is 1 to 100", {"name": "my name"}),
        ("a name is 1 to 100", {"name": "n" * 101}),
    ):
        with pytest.raises(UsageError, match=words):
            agents.every("0 6 * * *", "clerk", 1, **more)
    with pytest.raises(UsageError, match="no time in the next 50 years"):
        agents.every("0 0 */20 * 1L", "clerk", 1)
    with pytest.raises(UsageError, match="the id of an agent"):
        agents.every("0 6 * * *", "", 1)
    for payload, more in ((object(), {}), (1, {"ttl_ms": 0})):
        with pytest.raises(ToolError) as caught:
            agents.every("0 6 * * *", "clerk", payload, **more)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    agents.every("0 6 * * *", "clerk", 1)
    assert agents.every("0 6 * * *", "clerk", 1)  # the same
    with pytest.raises(UsageError, match="name="):
        agents.every("0 6 * * *", "clerk", 2)
    assert agents.every("0 6 * * *", "Frau Müller", 1).startswith("schedule-")
    with pytest.raises(ToolError, match="schedule's run"):
        await agents.send_request("clerk", 1, request_id="every:x:2026-11-26T06:00Z")


@pytest.mark.rule("AACP-140")
async def test_schedules_of_a_process_that_is_gone_are_kept_by_others(
    harness: CoordinatorHarness,
) -> None:
    clerk, store = Clerk(), FaultyStore(shared=True)
    one, other, idle = (office(harness, store, clerk, name) for name in ("a", "b", "c"))
    one.every("* * * * *", "clerk", 1, name="often")
    other.every("0 0 1 1 *", "clerk", 2, name="rare")
    for agents in (one, other, idle):
        await agents.start()
    await one.stop()
    asked = store.calls["due_schedules"]
    await asyncio.sleep(121)
    assert clerk.runs == ids(harness, "often", 60, 120)
    # Who has declared none does not ask.
    await other.stop()
    asked = store.calls["due_schedules"]
    await asyncio.sleep(121)
    assert store.calls["due_schedules"] == asked
    assert len(clerk.runs) == 2


MISSED = {"once": [600], "all": [60, 120, 180, 240, 300, 360, 420, 480, 540, 600], "none": []}


@pytest.mark.rule("AACP-145")
@pytest.mark.parametrize("missed", MISSED)
async def test_missed_runs_follow_the_rule_and_are_logged(
    harness: CoordinatorHarness, missed: str
) -> None:
    clerk, store = Clerk(), FaultyStore()
    before = office(harness, store, clerk)
    before.every("* * * * *", "clerk", 1, name="often", missed=missed)
    async with before:
        await asyncio.sleep(1)
    await asyncio.sleep(659)
    # The one at 660 is on time.
    after = office(harness, store, clerk)
    after.every("* * * * *", "clerk", 1, name="often", missed=missed)
    async with after:
        await asyncio.sleep(10)
        assert clerk.runs == ids(harness, "often", *MISSED[missed], 660)
        [line] = harness.logged("runs of a schedule were missed")
        assert (line["schedule"], line["entered"]) == ("often", len(clerk.runs))


@pytest.mark.rule("AACP-30", "AACP-140")
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("operation", ["change_schedules", "due_schedules", "enter_runs"])
async def test_failing_ledger_loses_and_doubles_no_run(
    harness: CoordinatorHarness, operation: str, after: bool
) -> None:
    clerk, store = Clerk(), FaultyStore()
    agents = office(harness, store, clerk)
    agents.every("* * * * *", "clerk", 1, name="often")
    store.fail(operation, after=after, times=3)
    async with agents:
        await asyncio.sleep(250)
        store.fail(operation, after=after, times=3)
        # When the answer is lost, the next one says that there is none.
        removed = await agents.remove_schedule("often")
        assert removed is not (after and operation == "change_schedules")
        assert await agents.list_schedules() == []
        assert clerk.runs == ids(harness, "often", 60, 120, 180, 240)


@pytest.mark.rule("AACP-143")
async def test_run_for_an_agent_of_another_ledger_is_executed_there(
    harness: CoordinatorHarness,
) -> None:
    clerk, network = Clerk(), LoopbackNetwork()
    near = harness.coordinator("near", transport=network.end())
    far = harness.coordinator("far", transport=network.end())
    far.register_agent("clerk", clerk)
    near.every("* * * * *", "clerk", "hello", name="often")
    async with near, far:
        await asyncio.sleep(130)
        assert clerk.runs == ids(harness, "often", 60, 120)
        status = await status_of(near, clerk.runs[0])
        assert status.result == "hello"


@pytest.mark.rule("AACP-143")
async def test_run_that_the_ledger_refuses_is_logged(harness: CoordinatorHarness) -> None:
    clerk, store = Clerk(), FaultyStore(limits=MemoryLimits(0, 0, 0, 0))
    async with office(harness, store, clerk) as agents:
        agents.every("* * * * *", "clerk", 1, name="often")
        await asyncio.sleep(121)
        assert clerk.runs == []
        assert harness.logged("runs of a schedule are not entered")


@pytest.mark.rule("AACP-141")
async def test_schedule_that_this_process_cannot_read_is_logged_once(
    harness: CoordinatorHarness,
) -> None:
    clerk, store = Clerk(), FaultyStore(shared=True)
    agents = office(harness, store, clerk)
    agents.every("* * * * *", "clerk", 1, name="often")
    async with agents:
        await asyncio.sleep(1)
        often = store.schedules["often"]
        store.schedules["strange"] = evolve(often, name="strange", timezone="Moon/Base")
        await asyncio.sleep(200)
        assert clerk.runs == ids(harness, "often", 60, 120, 180)
        assert len(harness.logged("runs of a schedule are not entered")) == 1


@pytest.mark.rule("AACP-80", "AACP-141")
async def test_schedule_with_a_message_that_the_transport_cannot_carry_is_logged(
    harness: CoordinatorHarness,
) -> None:
    narrow = LoopbackTransport(LoopbackNetwork(), max_envelope_bytes=9_000)
    agents = harness.coordinator(transport=narrow)
    agents.every("* * * * *", "clerk", "x" * 1_000, name="large")
    agents.every("* * * * *", "clerk", 1, name="small")
    async with agents:
        await asyncio.sleep(1)
        assert [each.name for each in await agents.list_schedules()] == ["small"]
        [line] = harness.logged("schedule not kept: its message is too large")
        assert line["schedule"] == "large"
        with pytest.raises(ToolError):
            agents.every("* * * * *", "clerk", "x" * 1_000, name="large")


# -- any history ----------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.sampled_from(("start", "stop", "fail", "wait", "wait")),
        st.integers(0, 2),
        st.integers(1, 170),
    ),
    max_size=15,
)


@pytest.mark.rule("AACP-140", "AACP-144")
@settings(max_examples=examples(40))
@given(steps)
def test_each_run_is_executed_once_in_any_history(history: list[tuple[str, int, int]]) -> None:
    async def scenario(harness: CoordinatorHarness) -> None:
        clerk, store = Clerk(), FaultyStore(shared=True)
        running: dict[int, AgentCoordinatorV2] = {}

        async def start(number: int) -> None:
            agents = office(harness, store, clerk, f"host{number}")
            agents.every("* * * * *", "clerk", 1, name="often", missed="all")
            await agents.start()
            running[number] = agents

        await start(0)
        await asyncio.sleep(1)
        for what, number, seconds in history:
            if what == "start" and number not in running:
                await start(number)
            elif what == "stop" and number in running:
                await running.pop(number).stop()
            elif what == "fail":
                store.fail("enter_runs", after=bool(seconds % 2), times=seconds % 3)
            await asyncio.sleep(seconds)
        if not running:
            await start(0)
        await asyncio.sleep(60)
        elapsed = int(harness.clock.monotonic())
        expected = ids(harness, "often", *range(60, elapsed - 15, 60))
        assert Counter(clerk.runs) >= Counter(expected)
        assert max(Counter(clerk.runs).values()) == 1

    run(scenario)
