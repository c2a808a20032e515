"""The metrics of agents with a ledger: what they count, and what they cost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from foundation_rt import Server
from foundation_rt.agents import AgentCoordinatorV2, RequestFailedError
from foundation_rt.agents.ledger.claims import MAX_AGENTS, OTHER_AGENTS, AgentCounts
from foundation_rt.agents.ledger.types import RequestState
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.feature_sections import TelemetrySection
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.features.composition import ServerOptions
from foundation_rt.features.metrics import Metrics
from tests.lab.agents.faulty_store import FaultyStore
from tests.lab.waiting import PATIENCE, until

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: bytes) -> Series:
    return {
        (sample.name.removeprefix("foundation_rt_agent_"), frozenset(sample.labels.items())): (
            sample.value
        )
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name.startswith("foundation_rt_agent_")
    }


def of(found: Series, sample: str, /, **labels: str) -> float | None:
    return found.get((sample, frozenset(labels.items())))


class Office:
    """A server with metrics and a ledger that a test can hold up.

    Attributes:
        gate: the handler of the clerk waits for it.
    """

    def __init__(self) -> None:
        self.store, self.clock = FaultyStore(), ManualClock()
        self.agents = AgentCoordinatorV2(store=self.store)
        config = ServerConfig(telemetry=TelemetrySection(metrics=True))
        options = ServerOptions(config=config, agent_coordinator=self.agents, clock=self.clock)
        self.server = Server(options=options)
        self.begun, self.gate = asyncio.Event(), asyncio.Event()
        self.agents.register_agent("clerk", self.clerk)
        self.agents.register_agent("guard", self.guard)

    async def clerk(self, message: Any, context: Any) -> str:
        self.begun.set()
        await self.gate.wait()
        return "done"

    async def guard(self, message: Any, context: Any) -> str:
        raise ValueError("no")

    @property
    def metrics(self) -> Metrics:
        assert self.server.runtime.metrics is not None
        return self.server.runtime.metrics

    def wait_for_ledger(self, milliseconds: int) -> None:
        """Set how long a reader waits for the ledger."""
        [source] = self.metrics.sources
        source.probe.timeout_ms = milliseconds

    async def read(self) -> Series:
        """Read the metrics when the ledger may be asked again."""
        self.clock.advance(60)
        return parsed((await self.metrics.read())[1])


@asynccontextmanager
async def office() -> AsyncIterator[Office]:
    made = Office()
    made.wait_for_ledger(milliseconds=60_000)
    async with asyncio.timeout(PATIENCE):
        assert parsed((await made.metrics.read())[1]) == {}  # it is not started
        async with made.agents:
            yield made


@pytest.mark.rule("AACP-160", "AACP-161")
async def test_queues_executions_and_outcomes_are_shown_by_agent() -> None:
    async with office() as made:
        with pytest.raises(RequestFailedError):
            await made.agents.send_request("guard", 1)
        asking = [
            asyncio.create_task(made.agents.send_request("clerk", n, timeout_ms=60_000))
            for n in range(4)
        ]
        await made.begun.wait()
        found = await made.read()
        depths = {
            dict(labels)["state"]: value
            for (name, labels), value in found.items()
            if name == "queue_depth" and dict(labels)["agent"] == "clerk"
        }
        assert sum(depths.values()) == 4 and depths["CLAIMED"] >= 1
        assert of(found, "oldest_request_seconds", agent="clerk") is not None
        assert of(found, "oldest_request_seconds", agent="guard") is None
        assert of(found, "executions_total", agent="clerk") == 1
        assert of(found, "executions_total", agent="guard") == 1
        assert of(found, "outcomes_total", agent="guard", outcome="FAILED") == 1
        assert of(found, "clock_skew_seconds") == 0
        assert of(found, "ledger_up") == 1
        made.gate.set()
        await asyncio.gather(*asking)
        found = await made.read()
        assert of(found, "executions_total", agent="clerk") == 4
        assert of(found, "outcomes_total", agent="clerk", outcome="COMPLETED") == 4
        assert not [name for name, _ in found if name == "queue_depth"]


@pytest.mark.rule("AACP-161")
async def test_claim_that_an_operator_took_is_counted_as_lost() -> None:
    async with office() as made:
        asking = asyncio.create_task(made.agents.send_request("clerk", 1, request_id="r1"))
        await made.begun.wait()
        assert await made.agents.cancel_request("r1")
        with pytest.raises(RequestFailedError):
            await asking
        counts = made.agents._running_node().node.claims.counts  # type: ignore[union-attr]
        await until(lambda: counts.lost_claims["clerk"], "a claim is lost")
        assert of(await made.read(), "lost_claims_total", agent="clerk") == 1
        made.gate.set()


@pytest.mark.rule("AACP-162")
async def test_ledger_is_asked_once_for_all_who_read_within_seconds() -> None:
    async with office() as made:
        await asyncio.gather(*(made.metrics.read() for _ in range(5)))
        made.clock.advance(4.9)
        await made.metrics.read()
        assert made.store.calls["measure_queues"] == 1
        made.clock.advance(0.2)
        await made.metrics.read()
        assert made.store.calls["measure_queues"] == 2


@pytest.mark.rule("AACP-162")
async def test_ledger_that_does_not_answer_blocks_no_reader() -> None:
    async with office() as made:
        made.store.gates["measure_queues"] = asyncio.Event()
        made.wait_for_ledger(milliseconds=50)
        found = await made.read()
        assert of(found, "ledger_up") == 0
        assert not [name for name, _ in found if name in ("queue_depth", "oldest_request_seconds")]
        assert b"foundation_rt_info" in (await made.metrics.read())[1]
        # On the event loop of the agents nobody waits for what only that loop could answer.
        made.clock.advance(60)
        made.metrics.render()
        assert made.store.calls["measure_queues"] <= 2
        del made.store.gates["measure_queues"]
        made.wait_for_ledger(milliseconds=60_000)
        made.store.is_down = True
        assert of(await made.read(), "ledger_up") == 0
        made.store.is_down = False
        # The question of before may be under way.
        await until(made.read, "the ledger answers", lambda found: of(found, "ledger_up"))


@pytest.mark.rule("AACP-162")
async def test_metrics_are_read_from_a_thread_without_an_event_loop() -> None:
    async with office() as made:
        found: list[Series] = []
        thread = threading.Thread(target=lambda: found.append(parsed(made.metrics.render()[1])))
        thread.start()
        await asyncio.to_thread(thread.join)
        assert of(found[0], "ledger_up") == 1


@pytest.mark.rule("AACP-163")
def test_number_of_names_is_bounded_whatever_agents_come_and_go() -> None:
    counts = AgentCounts()
    for number in range(MAX_AGENTS + 50):
        counts.begun(f"agent-{number}")
        counts.ended(f"agent-{number}", RequestState.COMPLETED)
        counts.lost(f"agent-{number}")
    assert len(counts.executions) == len(counts.outcomes) == MAX_AGENTS + 1
    assert counts.executions[OTHER_AGENTS] == counts.lost_claims[OTHER_AGENTS] == 50
    assert counts.executions["agent-0"] == 1


@pytest.mark.rule("AACP-163")
async def test_agents_that_are_not_registered_here_have_no_series() -> None:
    async with office() as made:
        made.store.shared = True  # so that other processes may have the agent
        await made.agents.send_reliable_message("chosen-by-a-client", 1)
        found = await made.read()
        agents = {dict(labels).get("agent") for _, labels in found}
        assert "chosen-by-a-client" not in agents
