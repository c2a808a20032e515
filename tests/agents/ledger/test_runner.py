"""What a runner does of what a node decides: tasks, timers, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from foundation_rt.agents.ledger.hooks import Hooks
from foundation_rt.agents.ledger.node import Node
from foundation_rt.agents.ledger.operations import NodeSettings
from foundation_rt.agents.ledger.retransmitter import RetransmissionPolicy, Retransmitter
from foundation_rt.agents.ledger.runner import NodeClock, NodeRunner
from foundation_rt.agents.ledger.types import Claim, Envelope, Executed, MessageType, RequestState
from foundation_rt.agents.persistence import StoreError
from foundation_rt.agents.stores.memory import InMemoryAACPPersistenceAdapter
from foundation_rt.base.abort import AbortSignal
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.ids import UuidGenerator
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from tests.agents.stores.contract import outgoing
from tests.lab.agents.faulty_store import FaultyStore
from tests.lab.agents.loopback import LoopbackNetwork, LoopbackTransport
from tests.lab.waiting import settle


async def nothing() -> None:
    """Do nothing at the end."""


class RunnerHarness:
    """A runner for one agent, "b".

    Attributes:
        runs: the claims that were executed, in order.
        run: what executes them; the test may exchange it.
    """

    def __init__(self, clock: ManualClock, **options: Any) -> None:
        self.clock = clock
        self.sink = MemorySink()
        self.store = options.pop("store", None) or FaultyStore()
        self.runs: list[Claim] = []
        self.run: Callable[[Claim, AbortSignal], Coroutine[Any, Any, Executed | None]] = (
            self.succeed
        )
        transport = options.get("transport")
        settings = NodeSettings("me", lease_ms=3000, has_transport=transport is not None)
        policy = RetransmissionPolicy(jitter=0)
        self.now_ms = NodeClock(clock)
        logger = StructuredLogger(self.sink, clock)
        self.runner = NodeRunner(
            Node(settings, UuidGenerator().run_id, Retransmitter(policy, lambda: 0.0)),
            self.store,
            transport,
            self.now_ms,
            logger,
            self._run,
            Hooks(None, None, None, logger),
        )

    async def _run(self, claim: Claim, signal: AbortSignal) -> Executed | None:
        self.runs.append(claim)
        return await self.run(claim, signal)

    async def succeed(self, claim: Claim, signal: AbortSignal) -> Executed | None:
        return Executed(b"1")

    async def send(self, *request_ids: str) -> None:
        """Enter requests to "b"."""
        waiters = []
        for request_id in request_ids:
            waiters.append(self.runner.waiters.open())
            now = self.now_ms()
            entry = outgoing(request_id, created_at_ms=now, expires_at_ms=now + 3_600_000)
            self.runner.node.exchange.send([entry], waiters[-1])
        self.runner.kick()
        for waiter in waiters:
            await waiter
            self.runner.waiters.close(waiter)

    def states(self) -> dict[str, RequestState]:
        return {key: record.state for key, record in self.store.ledger.requests.items()}

    def logged(self, message: str) -> list[dict[str, Any]]:
        return [line for line in self.sink.lines if line["message"] == message]


@asynccontextmanager
async def running(clock: ManualClock, **options: Any) -> AsyncIterator[RunnerHarness]:
    """Yield a harness whose runner is started before and stopped afterwards."""
    harness = RunnerHarness(clock, **options)
    await harness.runner.start(())
    harness.runner.add_agent("b")
    yield harness
    await harness.runner.stop(0, nothing)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.fixture
def harness(clock: ManualClock) -> AbstractAsyncContextManager[RunnerHarness]:
    """Return a harness with a store in memory."""
    return running(clock)


@pytest.mark.rule("AACP-17")
@pytest.mark.parametrize("store", [FaultyStore, InMemoryAACPPersistenceAdapter])
async def test_simultaneous_messages_share_one_operation(store: Any, clock: ManualClock) -> None:
    async with running(clock, store=store()) as harness:
        ids = [f"r{number}" for number in range(50)]
        await harness.send(*ids)
        await asyncio.sleep(1)
        assert [claim.request_id for claim in harness.runs] == ids
        assert set(harness.states().values()) == {RequestState.COMPLETED}
        if isinstance(harness.store, FaultyStore):
            assert harness.store.calls["append"] == 1
            assert harness.store.calls["complete"] < 10


async def test_immediate_store_that_waits_is_logged_as_bug(clock: ManualClock) -> None:
    class Liar(FaultyStore):
        def __init__(self) -> None:
            super().__init__()
            self.immediate = True

    async with running(clock, store=Liar()) as harness:
        harness.store.gates["append"] = asyncio.Event()
        sending = asyncio.ensure_future(harness.send("r1"))
        await asyncio.sleep(0.1)
        [heard] = harness.logged("internal error")
        assert "immediate store has waited" in heard["error"]["message"]
        sending.cancel()
        harness.store.gates.clear()


@pytest.mark.rule("AACP-04", "AACP-25")
async def test_execution_that_breaks_off_is_retried_with_growing_delay(
    harness: RunnerHarness,
) -> None:
    async def fail_at_first(claim: Claim, signal: AbortSignal) -> Executed | None:
        times.append(round(harness.clock.monotonic() - begin, 1))
        if len(times) < 4:
            raise RuntimeError("broken")
        return Executed(b"1")

    times: list[float] = []
    begin = harness.clock.monotonic()
    harness.run = fail_at_first
    await harness.send("r1", "r2")
    await asyncio.sleep(5)
    assert [claim.request_id for claim in harness.runs] == ["r1"] * 4 + ["r2"]
    assert [claim.executions for claim in harness.runs] == [1, 2, 3, 4, 1]
    assert times[:4] == [0.0, 0.2, 0.6, 1.4]
    assert len(harness.logged("claim not executed; it is tried again")) == 3


@pytest.mark.rule("AACP-25")
async def test_claim_not_executed_is_given_back_at_once(harness: RunnerHarness) -> None:
    async def decline(claim: Claim, signal: AbortSignal) -> Executed | None:
        return None if len(harness.runs) == 1 else Executed(b"1")

    harness.run = decline
    await harness.send("r1", "r2")
    await asyncio.sleep(0.1)
    assert [(claim.request_id, claim.epoch, claim.executions) for claim in harness.runs] == [
        ("r1", 1, 1),
        ("r1", 2, 1),
        ("r2", 1, 1),
    ]


@pytest.mark.rule("AACP-24", "AACP-25")
async def test_the_callbacks_of_signals_may_fail(harness: RunnerHarness) -> None:
    def fail() -> None:
        raise RuntimeError("callback")

    async def wait(claim: Claim, signal: AbortSignal) -> Executed | None:
        signal.add_callback(fail)
        await signal.wait()
        return None

    harness.run = wait
    await harness.send("r1")
    await asyncio.sleep(0.1)
    harness.store.ledger.requests["r1"].epoch += 1
    await asyncio.sleep(1.5)
    [lost] = harness.logged("lease lost")
    assert (lost["requestId"], lost["correlationId"], lost["agentId"]) == ("r1", "r1", "b")
    await harness.send("r2")
    await harness.runner.stop(0, nothing)
    assert len(harness.logged("abort callback failed")) == 1


@pytest.mark.rule("AACP-25", "AACP-27")
@pytest.mark.parametrize("steps", range(12))
async def test_a_loop_that_cancels_all_its_tasks_loses_no_claim_for_longer_than_needed(
    steps: int, harness: RunnerHarness
) -> None:
    async def forever(claim: Claim, signal: AbortSignal) -> Executed | None:
        await asyncio.sleep(1000)
        raise AssertionError

    harness.run = forever
    sending = asyncio.ensure_future(harness.send("r1", "r2"))
    await settle(steps)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    begin = harness.clock.monotonic()
    await harness.runner.stop(0, nothing)
    assert harness.clock.monotonic() - begin < 1
    await asyncio.wait([sending])
    assert set(harness.states().values()) <= {RequestState.RECEIVED}
    assert harness.runner.workers.tasks == {}
    assert harness.runner.workers._queues == {}


@pytest.mark.rule("AACP-17", "AACP-41")
async def test_deliver_returns_after_ledger_and_raises_on_failure(harness: RunnerHarness) -> None:
    envelope = Envelope(
        "m", "r1", "far", "b", 1, None, MessageType.REQUEST, 1, b"1", 253_402_300_799_999
    )

    harness.store.fail("receive")
    harness.store.before["receive"].append(RuntimeError("a bug"))
    for expected in ("was to fail", "a bug"):
        with pytest.raises(StoreError, match=expected):
            await harness.runner.deliver([envelope])
    await harness.runner.deliver([envelope])
    assert "r1" in harness.states()
    entering = harness.store.gates["receive"] = asyncio.Event()
    late = asyncio.ensure_future(harness.runner.deliver([envelope]))
    await asyncio.sleep(0.1)
    await harness.runner.stop(0, nothing)
    assert isinstance(late.exception(), StoreError)
    with pytest.raises(StoreError):
        await harness.runner.deliver([envelope])
    entering.set()


@pytest.mark.rule("AACP-17")
async def test_a_transport_that_has_a_bug_is_logged_and_messages_are_sent_again(
    clock: ManualClock,
) -> None:
    class Broken(LoopbackTransport):
        async def send(self, envelopes: Any) -> None:
            if not self.network.sent:
                self.network.sent.extend(envelopes)
                raise ZeroDivisionError
            self.network.sent.extend(envelopes)

    network = LoopbackNetwork()
    async with running(clock, transport=Broken(network)) as harness:
        waiter = harness.runner.waiters.open()
        now = harness.now_ms()
        entry = outgoing("r1", local=False, created_at_ms=now, expires_at_ms=now + 10_000,
                      next_attempt_at_ms=now + 200)  # fmt: skip
        harness.runner.node.exchange.send([entry], waiter)
        harness.runner.kick()
        await waiter
        harness.runner.waiters.close(waiter)
        await asyncio.sleep(0.5)
        assert [each.seq for each in network.sent] == [1, 1]
        assert len(harness.logged("transport failed")) == 1


def test_the_time_of_a_node_does_not_jump_with_the_wall_clock() -> None:
    class Jumping(ManualClock):
        __slots__ = ("offset",)

        def now(self) -> Any:
            return super().now() + self.offset

    clock = Jumping()
    clock.offset = timedelta()
    now_ms = NodeClock(clock)
    first = now_ms()
    clock.offset = timedelta(days=-300)
    clock.advance(1.5)
    assert now_ms() - first == 1500
    assert first == 1_704_067_200_000
