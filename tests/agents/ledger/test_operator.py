"""An operator at a coordinator: requests are listed, cancelled and requeued."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foundation_rt import Principal
from foundation_rt.agents import AgentCoordinatorV2, AgentMessage, RequestFailedError
from foundation_rt.agents.ledger.types import RequestState
from foundation_rt.base.clock import SystemClock
from foundation_rt.base.config.feature_sections import AacpSection
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.base.ids import UuidGenerator
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.errors import UsageError
from tests.lab.agents.faulty_store import FaultyStore

PATIENCE = 60.0


class Clerk:
    """Fails until it is mended; counts its executions."""

    def __init__(self) -> None:
        self.is_mended = False
        self.handled: list[Any] = []

    async def __call__(self, message: AgentMessage, context: Any) -> Any:
        self.handled.append(message.payload)
        if not self.is_mended:
            raise ValueError("broken")
        return "done"


def audited(sink: MemorySink) -> list[tuple[str, bool]]:
    return [
        (each["eventType"], each["success"]) for each in sink.lines if each["message"] == "audit"
    ]


async def fail(agents: AgentCoordinatorV2, request_id: str, **more: Any) -> None:
    with pytest.raises(RequestFailedError):
        await agents.send_request("clerk", 1, request_id=request_id, **more)


@pytest.mark.rule("AACP-03", "AACP-112", "AACP-116", "AACP-117")
async def test_requeued_request_is_executed_at_once() -> None:
    sink, clerk = MemorySink(), Clerk()
    agents = AgentCoordinatorV2()
    logger = StructuredLogger(sink, SystemClock(), "error")
    agents.attach(logger, ServerConfig(), UuidGenerator())
    agents.register_agent("clerk", clerk)
    async with agents:
        await fail(agents, "r1")
        [record] = await agents.list_requests(states=[RequestState.FAILED], agent_id="clerk")
        assert record.request_id == "r1"
        clerk.is_mended = True
        assert await agents.requeue_request("r1", "the printer has paper again")
        assert await agents.send_request("clerk", 1, request_id="r1") == "done"
        assert clerk.handled == [1, 1]
        assert not await agents.requeue_request("r1", "once more")
        assert not await agents.requeue_request("r2", "unknown")
    assert audited(sink) == [
        ("AGENT_REQUEST_REQUEUED", True),
        ("AGENT_REQUEST_REQUEUED", False),
        ("AGENT_REQUEST_REQUEUED", False),
    ]
    first = next(each for each in sink.lines if each["message"] == "audit")
    assert first["metadata"] == {"reason": "the printer has paper again"}
    assert (first["requestId"], first["agentId"], first["category"]) == ("r1", "clerk", "ADMIN")


@pytest.mark.rule("AACP-114", "AACP-115", "AACP-116")
async def test_caller_of_a_cancelled_request_gets_its_error_and_the_handler_is_aborted() -> None:
    began, aborted = asyncio.Event(), asyncio.Event()

    async def slow(message: AgentMessage, context: Any) -> None:
        context.abort_signal.add_callback(aborted.set)
        began.set()
        await aborted.wait()

    settings = AacpSection(lease_ms=3_600_000)  # no renewal comes by itself
    agents = AgentCoordinatorV2(store=FaultyStore(shared=True), aacp=settings)
    agents.register_agent("clerk", slow)
    async with agents, asyncio.timeout(PATIENCE):
        running = asyncio.ensure_future(agents.send_request("clerk", 1, request_id="running"))
        waiting = asyncio.ensure_future(agents.send_request("clerk", 2, request_id="waiting"))
        await began.wait()
        assert await agents.cancel_request("waiting")
        assert await agents.cancel_request("running", reason="it hangs")
        for sent in (running, waiting):
            with pytest.raises(RequestFailedError) as raised:
                await sent
            assert raised.value.details == {"reason": "cancelled"}
        await aborted.wait()
        assert not await agents.cancel_request("running")


@pytest.mark.rule("AACP-48", "AACP-116")
async def test_principal_sees_and_changes_only_its_own_requests() -> None:
    alice, bob = Principal("alice"), Principal("bob")
    clerk = Clerk()
    agents = AgentCoordinatorV2()
    agents.register_agent("clerk", clerk)
    async with agents:
        await fail(agents, "r1", principal=alice)
        [record] = await agents.list_requests(principal=alice)
        assert await agents.list_requests(principal=bob) == []
        assert not await agents.requeue_request("r1", "mine", principal=bob)
        assert not await agents.requeue_request("r1", "the host's")
        clerk.is_mended = True
        assert await agents.requeue_request(record.request_id, "the host sees all")
        assert await agents.send_request("clerk", 1, request_id="r1", principal=alice) == "done"
        assert await agents.list_requests(after=record) == []


@pytest.mark.rule("AACP-111")
@pytest.mark.parametrize("limit", [0, 1_001, True, "5"])
async def test_page_of_no_size_is_refused(limit: Any) -> None:
    async with AgentCoordinatorV2() as agents:
        with pytest.raises(UsageError, match="from 1 to 1,000"):
            await agents.list_requests(limit=limit)
