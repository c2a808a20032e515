"""Requests that are executed later, before others, or again by a policy of their own."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from foundation_rt.agents.ledger.errors import RequestConflictError, RequestFailedError
from foundation_rt.agents.ledger.request_options import ExecutionRetries
from foundation_rt.agents.ledger.types import Outcome, RequestState
from foundation_rt.agents.messages import AgentContext, AgentMessage
from foundation_rt.errors import ErrorCode, ToolError
from tests.lab.agents.coordinators import CoordinatorHarness, record_of, status_of
from tests.lab.agents.faulty_store import FaultyStore
from tests.lab.agents.loopback import LoopbackNetwork


class Recorder:
    """A handler that notes payloads and times.

    Attributes:
        seen: payloads and seconds since it was made, in the order in which they were begun.
        failures: how often a payload fails before it succeeds.
        takes: how long an execution takes, in s.
    """

    def __init__(self, harness: CoordinatorHarness, **failures: int) -> None:
        self.clock = harness.clock
        self.begin = self.clock.monotonic()
        self.seen: list[tuple[Any, float]] = []
        self.failures = failures
        self.takes = 0.0

    async def __call__(self, message: AgentMessage, context: AgentContext) -> Any:
        self.seen.append((message.payload, round(self.clock.monotonic() - self.begin, 1)))
        await asyncio.sleep(self.takes)
        if self.failures.get(message.payload, 0) > 0:
            self.failures[message.payload] -= 1
            raise ToolError(ErrorCode.INTERNAL, "not yet")
        return message.payload

    @property
    def payloads(self) -> list[Any]:
        return [payload for payload, _ in self.seen]


@pytest.mark.rule("AACP-120", "AACP-121", "AACP-126")
async def test_delayed_request_is_executed_at_its_time_and_bars_none(
    harness: CoordinatorHarness,
) -> None:
    async with harness.coordinator() as agents:
        recorder = Recorder(harness)
        agents.register_agent("a", recorder)
        at = harness.clock.now().astimezone(UTC) + timedelta(seconds=3)
        assert await agents.submit_request("a", "three", request_id="r3", not_before=at) == "r3"
        late = await agents.submit_request("a", "two", delay_ms=2_000, ttl_ms=5_000)
        assert await agents.send_request("a", "now") == "now"
        assert (await record_of(agents, late)).state is RequestState.DELAYED
        event = await agents.send_reliable_message("a", "one", delay_ms=1_000)
        await asyncio.sleep(5)
        assert recorder.seen == [("now", 0), ("one", 1), ("two", 2), ("three", 3)]
        for key in (late, "r3", event):
            status = await status_of(agents, key)
            assert status.outcome is Outcome.COMPLETED


@pytest.mark.rule("AACP-120")
async def test_request_may_be_delayed_and_live_for_a_month(harness: CoordinatorHarness) -> None:
    month_ms = 30 * 86_400_000
    async with harness.coordinator() as agents:
        recorder = Recorder(harness)
        agents.register_agent("a", recorder)
        late = await agents.submit_request("a", "late", delay_ms=month_ms, ttl_ms=month_ms)
        await asyncio.sleep(month_ms / 1000 + 1)
        assert recorder.payloads == ["late"]
        status = await status_of(agents, late)
        assert status.outcome is Outcome.COMPLETED


@pytest.mark.rule("AACP-120")
async def test_caller_may_wait_for_delayed_request(harness: CoordinatorHarness) -> None:
    async with harness.coordinator() as agents:
        agents.register_agent("a", Recorder(harness))
        begin = harness.clock.monotonic()
        assert await agents.send_request("a", 1, delay_ms=2_000) == 1
        assert harness.clock.monotonic() - begin == pytest.approx(2, abs=0.1)


@pytest.mark.rule("AACP-120", "AACP-27")
async def test_delay_outlives_the_coordinator(harness: CoordinatorHarness) -> None:
    first = harness.coordinator()
    async with first:
        first.register_agent("a", Recorder(harness))
        await first.submit_request("a", "late", request_id="r1", delay_ms=2_000)
    async with harness.coordinator(store=first.store) as again:
        recorder = Recorder(harness)
        again.register_agent("a", recorder)
        await asyncio.sleep(5)
        assert recorder.seen == [("late", 2)]


@pytest.mark.rule("AACP-122")
async def test_urgent_request_is_executed_before_those_that_were_claimed(
    harness: CoordinatorHarness,
) -> None:
    async with harness.coordinator() as agents:
        recorder = Recorder(harness)
        agents.register_agent("a", recorder)
        # So many outcomes let it claim many at once.
        await asyncio.gather(*(agents.send_request("a", "warm") for _ in range(30)))
        recorder.seen.clear()
        recorder.takes = 1
        waiting = [asyncio.ensure_future(agents.send_request("a", f"n{n}")) for n in range(5)]
        await asyncio.sleep(0.1)
        urgent = [agents.send_request("a", f"p{n}", priority=n) for n in (1, 9, 5)]
        await asyncio.gather(*waiting, *urgent)
        assert recorder.payloads == ["n0", "p9", "p5", "p1", "n1", "n2", "n3", "n4"]


@pytest.mark.rule("AACP-124")
async def test_own_retries_bar_only_their_request(harness: CoordinatorHarness) -> None:
    async with harness.coordinator() as agents:
        recorder = Recorder(harness, flaky=2, hopeless=9)
        agents.register_agent("a", recorder)
        retry = ExecutionRetries(attempts=3, base_delay_ms=1_000, jitter=0)
        flaky, hopeless, other = await asyncio.gather(
            agents.send_request("a", "flaky", retry=retry),
            agents.send_request("a", "hopeless", retry=retry),
            agents.send_request("a", "other"),
            return_exceptions=True,
        )
        assert (flaky, other) == ("flaky", "other")
        assert isinstance(hopeless, RequestFailedError)
        assert recorder.seen[:3] == [("flaky", 0), ("hopeless", 0), ("other", 0)]
        # Those of one time have no order.
        assert sorted(recorder.seen[3:]) == [
            ("flaky", 1),
            ("flaky", 3),
            ("hopeless", 1),
            ("hopeless", 3),
        ]


@pytest.mark.rule("AACP-124")
async def test_final_error_ends_own_retries(harness: CoordinatorHarness) -> None:
    async with harness.coordinator() as agents:
        recorder = Recorder(harness, flaky=2)
        agents.register_agent("a", recorder)
        with pytest.raises(RequestFailedError):
            await agents.send_request("a", "flaky", retry=ExecutionRetries(final=["INTERNAL"]))
        assert recorder.payloads == ["flaky"]


@pytest.mark.rule("AACP-125")
async def test_options_hold_in_the_ledger_that_executes(harness: CoordinatorHarness) -> None:
    network = LoopbackNetwork()
    here = harness.coordinator("here", transport=network.end())
    there = harness.coordinator("there", transport=network.end())
    async with here, there:
        recorder = Recorder(harness, flaky=1)
        there.register_agent("b", recorder)
        retry = ExecutionRetries(base_delay_ms=1_000, jitter=0)
        sent = [
            here.send_request("b", "flaky", retry=retry),
            here.send_request("b", "late", delay_ms=3_000),
            here.send_request("b", "now"),
        ]
        assert await asyncio.gather(*sent) == ["flaky", "late", "now"]
        assert recorder.payloads == ["flaky", "now", "flaky", "late"]


@pytest.mark.rule("AACP-12", "AACP-15", "AACP-126")
async def test_event_may_have_an_id_and_a_lifetime(harness: CoordinatorHarness) -> None:
    async with harness.coordinator() as agents:
        recorder = Recorder(harness)
        agents.register_agent("a", recorder)
        for _ in range(2):
            assert await agents.send_reliable_message("a", 1, request_id="e1", ttl_ms=500) == "e1"
        with pytest.raises(RequestConflictError):
            await agents.send_reliable_message("a", 2, request_id="e1")
        record = await record_of(agents, "e1")
        assert record.expires_at_ms - record.created_at_ms == 500
        await asyncio.sleep(0.1)
        assert recorder.payloads == [1]


@pytest.mark.rule("AACP-126")
async def test_submitted_request_is_entered_once(harness: CoordinatorHarness) -> None:
    async with harness.coordinator() as agents:
        recorder = Recorder(harness)
        agents.register_agent("a", recorder)
        ids = [await agents.submit_request("a", 1, request_id="r1") for _ in range(2)]
        assert ids == ["r1", "r1"]
        with pytest.raises(RequestConflictError):
            await agents.submit_request("a", 2, request_id="r1")
        assert await agents.send_request("a", 1, request_id="r1") == 1
        assert recorder.payloads == [1]


@pytest.mark.rule("AACP-169")
async def test_batch_is_entered_in_one_transaction_or_refused(harness: CoordinatorHarness) -> None:
    async with harness.coordinator(store=(store := FaultyStore())) as agents:
        recorder = Recorder(harness)
        agents.register_agent("a", recorder)
        ids = await agents.submit_many("a", list(range(1_000)), priority=1)
        assert store.calls["append"] == 1
        assert await agents.send_request("a", 0, request_id=ids[0], priority=1) == 0
        assert await agents.send_request("a", "last") == "last"
        assert recorder.payloads == [*range(1_000), "last"]
        assert await agents.submit_many("a", []) == []
        assert await agents.submit_many("a", [1, 2], request_ids=["r1", "r2"]) == ["r1", "r2"]
        with pytest.raises(RequestConflictError) as conflict:
            await agents.submit_many("a", [3, 4], request_ids=["r3", "r2"])
        assert (conflict.value.details or {})["requestId"] == "r2"
        assert await agents.status("r3") is None
        for messages, more in (
            ([0] * 1_001, {}),
            ("text", {}),
            ([1, 2], {"request_ids": ["r4"]}),
            ([1, 2], {"request_ids": ["r4", "r4"]}),
        ):
            with pytest.raises(ToolError) as refused:
                await agents.submit_many("a", messages, **more)
            assert refused.value.details == {"reason": "invalid_batch"}
        with pytest.raises(ToolError) as large:
            await agents.submit_many("a", ["x" * 500_000] * 140)
        assert large.value.details == {"reason": "ledger_backlog"}


@pytest.mark.rule("AACP-120", "AACP-122", "AACP-124")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"delay_ms": -1}, "invalid_time"),
        ({"delay_ms": "1"}, "invalid_time"),
        ({"delay_ms": 1, "not_before": datetime.now(UTC)}, "invalid_time"),
        ({"not_before": datetime.now()}, "invalid_time"),
        ({"not_before": datetime(9999, 1, 1, tzinfo=UTC)}, "invalid_time"),
        ({"not_before": 5}, "invalid_time"),
        ({"priority": 10}, "invalid_priority"),
        ({"priority": -1}, "invalid_priority"),
        ({"priority": True}, "invalid_priority"),
        ({"retry": 3}, "invalid_retry"),
    ],
)
async def test_invalid_option_is_refused(
    harness: CoordinatorHarness, options: dict[str, Any], reason: str
) -> None:
    async with harness.coordinator() as agents:
        agents.register_agent("a", Recorder(harness))
        for send in (agents.send_request, agents.submit_request, agents.send_reliable_message):
            with pytest.raises(ToolError) as caught:
                await send("a", 1, **options)
            assert caught.value.code is ErrorCode.INVALID_ARGUMENT
            assert caught.value.details == {"reason": reason}
        with pytest.raises(TypeError, match="delay_s"):
            await agents.send_request("a", 1, delay_s=1)  # type: ignore[call-arg]
