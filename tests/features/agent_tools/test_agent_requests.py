"""`agent/request` and `agent/status`, through a whole server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from foundation_rt import AgentContext, AgentCoordinator, AgentMessage, Server, ServerOptions
from foundation_rt.agents.ledger.coordinator import AgentCoordinatorV2
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.feature_sections import AacpSection
from foundation_rt.base.config.settings import ServerConfig, ToolsSection
from foundation_rt.base.ids import UuidGenerator
from foundation_rt.errors import ErrorCode, ToolError
from foundation_rt.features.context import ToolContext
from foundation_rt.kernel.registry.tools import ToolDefinition
from foundation_rt.testing import TestClient
from tests.lab.agents.faulty_store import FaultyStore
from tests.lab.servers.fixture import ServerFixture, ServerPeer, call


async def answer(message: AgentMessage, context: AgentContext) -> Any:
    """Do what the type of the message says."""
    if message.type == "wait":
        await asyncio.sleep(message.payload)
    if message.type == "fail":
        raise ToolError(ErrorCode.NOT_FOUND, "No city.", {"city": message.payload})
    return {"type": message.type, "payload": message.payload, "from": message.source_agent_id}


@pytest.fixture
@asynccontextmanager
async def rig(clock: ManualClock, options: dict[str, Any]) -> AsyncIterator[ServerFixture]:
    """Yield a server that has an agent, "a", and gives calls a second."""
    config = ServerConfig(tools=ToolsSection(default_timeout_ms=1000), aacp=AacpSection(**options))
    coordinator = AgentCoordinatorV2(store=FaultyStore(), clock=clock)
    rig = ServerFixture(config, clock, agent_coordinator=coordinator, id_generator=UuidGenerator())
    rig.server.agents.register_agent("a", answer)
    yield rig
    await rig.stop()


async def request(peer: ServerPeer, kind: str, payload: Any = None, **more: Any) -> Any:
    message = {"type": kind, "payload": payload}
    more = {"targetAgentId": "a", "message": message, **more}
    return await call(peer, "agent/request", **more)


@pytest.mark.rule("AACP-45")
def test_the_tools_are_there_where_there_is_a_ledger() -> None:
    with_ledger, without = (
        Server("s"),
        Server(options=ServerOptions(agent_coordinator=AgentCoordinator())),
    )
    assert with_ledger.agents is not None
    names = [{tool.name for tool in server.list()} for server in (with_ledger, without)]
    assert names[0] - names[1] == {"agent/request", "agent/status"}


@pytest.mark.rule("AACP-45", "AACP-82")
async def test_a_request_returns_its_outcome_and_its_status_says_the_same(
    rig: ServerFixture,
) -> None:
    peer = rig.connect()
    first = await request(peer, "greet", [1, None])
    result = {"type": "greet", "payload": [1, None], "from": "host"}
    assert first == {
        "requestId": first["requestId"],
        "outcome": "COMPLETED",
        "result": result,
    }
    status = await call(peer, "agent/status", requestId=first["requestId"])
    assert status.pop("timestamp").startswith("2024-01-01T00:00:00.")
    assert status == first
    failed = await request(peer, "fail", "Atlantis", requestId="mine:1")
    assert failed == {
        "requestId": "mine:1",
        "outcome": "FAILED",
        "error": {
            "code": "NOT_FOUND",
            "message": "No city.",
            "details": {"city": "Atlantis"},
        },
    }
    status = await call(peer, "agent/status", requestId="mine:1")
    del status["timestamp"]
    assert status == failed


@pytest.mark.rule("AACP-26", "AACP-81")
@pytest.mark.parametrize(("given", "took"), [(None, 0.9), (300, 0.3), (5000, 0.9)])
async def test_it_waits_so_long_as_it_is_told_and_never_until_the_call_times_out(
    given: int | None, took: float, rig: ServerFixture
) -> None:
    peer = rig.connect()
    await asyncio.sleep(0.1)
    more = {} if given is None else {"timeoutMs": given}
    begin = rig.clock.monotonic()
    told = await request(peer, "wait", 2, requestId="r1", **more)
    assert rig.clock.monotonic() - begin == pytest.approx(took, abs=0.02)
    assert told == {"requestId": "r1", "outcome": "UNKNOWN"}
    assert (await call(peer, "agent/status", requestId="r1"))["outcome"] == "UNKNOWN"
    assert await request(peer, "wait", 2, requestId="r1") == told
    await asyncio.sleep(1)
    again = await request(peer, "wait", 2, requestId="r1")
    assert again["outcome"] == "COMPLETED"
    assert (await call(peer, "agent/status", requestId="r1"))["result"] == again["result"]


@pytest.mark.rule("AACP-62", "AACP-42", "AACP-80", "AACP-45")
@pytest.mark.options(max_payload_bytes=1024)
async def test_what_cannot_be_requested_is_a_tool_error(rig: ServerFixture) -> None:
    peer = rig.connect()
    await request(peer, "greet", 1, requestId="r1")
    for more, code, reason in (
        ({"requestId": "r1"}, "INVALID_ARGUMENT", "request_id_conflict"),
        ({"requestId": "?"}, "INVALID_ARGUMENT", "invalid_request_id"),
        ({"requestId": ""}, "INVALID_ARGUMENT", "schema_validation"),
        ({"timeoutMs": 0}, "INVALID_ARGUMENT", "schema_validation"),
        ({"timeoutMs": 2**31}, "INVALID_ARGUMENT", "schema_validation"),
        ({"targetAgentId": "b"}, "NOT_FOUND", "agent_not_found"),
        ({"targetAgentId": ""}, "INVALID_ARGUMENT", "invalid_agent_id"),
    ):
        error = await request(peer, "greet", 2, **more)
        assert (error["code"], error["details"]["reason"]) == (code, reason)
    error = await request(peer, "greet", "x" * 2000)
    assert (error["code"], error["details"]["reason"]) == (
        "RESOURCE_EXHAUSTED",
        "payload_too_large",
    )
    error = await call(peer, "agent/status", requestId="nothing")
    assert (error["code"], error["details"]["reason"]) == ("NOT_FOUND", "request_not_found")


@pytest.mark.rule("AACP-83")
async def test_ledger_that_cannot_be_reached_is_an_error_in_words(rig: ServerFixture) -> None:
    peer, store = rig.connect(), rig.server.agents.store
    assert isinstance(store, FaultyStore)
    store.is_down = True
    for error in (
        await request(peer, "greet", 1, requestId="r1"),
        await call(peer, "agent/status", requestId="r1"),
    ):
        assert (error["code"], error["details"]) == ("INTERNAL", {"reason": "ledger_unavailable"})
        assert error["message"] == "The ledger cannot be reached: try again later."


@pytest.mark.rule("ADMIN-13", "AACP-83")
async def test_tools_of_operators_stay_with_their_server_and_say_that_the_ledger_is_away() -> None:
    store = FaultyStore()
    tools = {"admin_agents_enabled": True, "admin_policy": {"mode": "local_stdio_only"}}
    options = ServerOptions(agent_coordinator=AgentCoordinatorV2(store=store))
    server = Server("office", config={"tools": tools}, options=options)
    for is_down in (False, True):
        async with TestClient(server, clock=ManualClock()) as client:
            client.connection.session.transport_type = "stdio"
            store.is_down = is_down
            if is_down:
                with pytest.raises(ToolError, match="The ledger cannot be reached"):
                    await client.call("admin/showAgentRequest", requestId="r1")
            else:
                found = await client.call("admin/listAgentQueues")
                assert found == {"agents": [], "next": None}


@pytest.mark.rule("AACP-26", "AACP-28", "AACP-45")
async def test_a_client_that_withdraws_its_call_does_not_withdraw_the_request(
    rig: ServerFixture,
) -> None:
    peer = rig.connect()
    await asyncio.sleep(0.1)
    message = {"type": "wait", "payload": 0.5}
    sent = peer.start(
        "agent/request", {"targetAgentId": "a", "message": message, "requestId": "r1"}
    )
    await asyncio.sleep(0.1)
    peer.notify("notifications/cancelled", {"requestId": sent})
    await asyncio.sleep(0.1)
    assert rig.records[-1]["outcome"] == "aborted"
    await asyncio.sleep(0.5)
    assert (await call(peer, "agent/status", requestId="r1"))["outcome"] == "COMPLETED"
    # The call itself is known by its run id.
    run_id = rig.records[0]["runId"]
    assert (await call(peer, "agent/status", requestId=run_id))["outcome"] == "FAILED"


@pytest.mark.rule("AACP-82")
async def test_the_status_of_an_event_and_of_a_call_is_told_by_their_ids(
    rig: ServerFixture,
) -> None:
    async def slow(arguments: dict[str, Any], context: ToolContext) -> str:
        await asyncio.sleep(1.5)
        return "late"

    rig.server.register(ToolDefinition("slow", "", {"type": "object"}), slow)
    peer = rig.connect()
    event_id = await rig.server.agents.send_reliable_message("a", 5)
    await asyncio.sleep(0.1)
    status = await call(peer, "agent/status", requestId=event_id)
    assert (status["outcome"], status["result"]["payload"]) == ("COMPLETED", 5)
    run_id = (await call(peer, "slow"))["runId"]
    assert (await call(peer, "agent/status", requestId=run_id))["outcome"] == "UNKNOWN"
    await asyncio.sleep(1)
    status = await call(peer, "agent/status", requestId=run_id)
    assert (status["outcome"], status["result"]) == ("COMPLETED", "late")
