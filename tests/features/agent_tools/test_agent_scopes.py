"""The scopes of agents, asked by the tools through which a client uses agents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from foundation_rt import AgentContext, AgentCoordinator, AgentMessage, RegistrationError
from foundation_rt.agents.ledger.coordinator import AgentCoordinatorV2
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.feature_sections import SecuritySection
from foundation_rt.base.config.settings import (
    AdminPolicy,
    ServerConfig,
    ToolsSection,
)
from foundation_rt.base.ids import UuidGenerator
from foundation_rt.features.context import ToolContext
from foundation_rt.kernel.registry.tools import ToolDefinition
from foundation_rt.protocol.principal import ALL_SCOPES, Principal
from tests.lab.agents.faulty_store import FaultyStore
from tests.lab.clock.counting import CallCounter
from tests.lab.servers.fixture import ServerFixture, ServerPeer, call

WEAK = Principal("alice", frozenset(("mail",)))
STRONG = Principal("alice", frozenset(("mail", "harness", "vault")))
HOLDER_OF_A_KEY = Principal("key:alice", ALL_SCOPES)
LACKING = {"reason": "insufficient_scope", "scopes": ["harness", "vault"]}
MESSAGE = {"type": "note", "payload": 1}


class ScopeHarness:
    """A server with an agent that all may use and one that needs scopes."""

    def __init__(self, clock: ManualClock, agents: AgentCoordinator) -> None:
        tools = ToolsSection(
            admin_registration_enabled=True, admin_policy=AdminPolicy("local_stdio_only")
        )
        config = ServerConfig(
            tools=tools, security=SecuritySection(dynamic_registration_enabled=True)
        )
        self.rig = ServerFixture(
            config, clock, agent_coordinator=agents, id_generator=UuidGenerator()
        )
        self.agents: Any = agents
        self.handled: list[str] = []
        agents.register_agent("open", self.handle)
        agents.register_agent("closed", self.handle, scopes=["vault", "harness"])

    async def handle(self, message: AgentMessage, context: AgentContext) -> Any:
        self.handled.append(context.agent_id)
        if message.type == "forward":
            return await self.agents.send_message("closed", AgentMessage("note"))
        if message.type == "forward reliably":
            return await self.agents.send_request("closed", AgentMessage("note"))
        return context.agent_id

    def connect(self, principal: Principal | None) -> ServerPeer:
        peer = self.rig.connect()
        peer.connection.session.principal = principal
        return peer


@asynccontextmanager
async def serving(
    clock: ManualClock, *, version: int = 2, **options: Any
) -> AsyncIterator[ScopeHarness]:
    ledger = {"store": FaultyStore(), "clock": clock, **options}
    harness = ScopeHarness(
        clock, AgentCoordinator() if version == 1 else AgentCoordinatorV2(**ledger)
    )
    yield harness
    await harness.rig.stop()


@pytest.fixture
def harness(clock: ManualClock) -> AbstractAsyncContextManager[ScopeHarness]:
    return serving(clock)


def assert_lacking(outcome: Any) -> None:
    assert (outcome["code"], outcome["details"]) == ("UNAUTHORIZED", LACKING)


@pytest.mark.rule("AUTH-27", "AUTH-13", "AGENT-21")
@pytest.mark.parametrize("version", [1, 2])
async def test_agent_tools_refuse_an_agent_whose_scopes_the_token_lacks(
    version: int, clock: ManualClock
) -> None:
    tools = [("agent/sendMessage", {"targetAgentId": "closed", "message": MESSAGE})]
    tools.append(("agent/getState", {"agentId": "closed"}))
    if version == 2:
        tools.append(("agent/request", {"targetAgentId": "closed", "message": MESSAGE}))

    async with serving(clock, version=version) as harness:
        weak = harness.connect(WEAK)
        for tool, arguments in tools:
            assert_lacking(await call(weak, tool, **arguments))
        assert harness.handled == []
        for principal in (STRONG, HOLDER_OF_A_KEY, None):
            peer = harness.connect(principal)
            for tool, arguments in tools:
                assert "code" not in await call(peer, tool, **arguments)
        to_open = {"targetAgentId": "open", "message": MESSAGE}
        assert await call(weak, "agent/sendMessage", **to_open) == "open"
        assert (await call(weak, "agent/getState", agentId="open"))["agentId"] == "open"


@pytest.mark.rule("AUTH-35", "AGENT-16")
@pytest.mark.parametrize("version", [1, 2])
async def test_agent_list_shows_only_agents_that_the_token_may_use(
    version: int, clock: ManualClock
) -> None:
    async with serving(clock, version=version) as harness:
        shown = [
            (await call(harness.connect(principal), "agent/list"))["agentIds"]
            for principal in (WEAK, STRONG, HOLDER_OF_A_KEY, None)
        ]
        assert shown == [["open"], ["closed", "open"], ["closed", "open"], ["closed", "open"]]


@pytest.mark.rule("AUTH-27")
@pytest.mark.parametrize("agent_id", [5, None, ["closed"], {"closed": 1}])
async def test_an_agent_id_of_another_type_is_an_invalid_argument_and_no_fault(
    agent_id: Any, harness: ScopeHarness
) -> None:
    weak = harness.connect(WEAK)
    outcome = await call(weak, "agent/sendMessage", targetAgentId=agent_id, message=MESSAGE)
    assert outcome["code"] == "INVALID_ARGUMENT"


@pytest.mark.rule("AUTH-27", "ADMIN-05")
async def test_a_registered_agent_proxy_refuses_an_agent_whose_scopes_the_token_lacks(
    harness: ScopeHarness,
) -> None:
    admin = harness.rig.connect("stdio")
    wanted = {"name": "ask", "description": "", "toolType": "agentProxy"}
    assert (await call(admin, "admin/registerTool", **wanted))["registered"] == "ask"
    weak, strong = harness.connect(WEAK), harness.connect(STRONG)
    assert_lacking(await call(weak, "ask", targetAgentId="closed", message=MESSAGE))
    assert harness.handled == []
    assert await call(weak, "ask", targetAgentId="open", message=MESSAGE) == "open"
    assert await call(strong, "ask", targetAgentId="closed", message=MESSAGE) == "closed"


@pytest.mark.rule("AUTH-36", "AACP-83")
async def test_status_of_a_request_needs_the_scopes_of_its_agent(harness: ScopeHarness) -> None:
    """The same principal may come with a token that allows less than that of its request."""
    weak, strong = harness.connect(WEAK), harness.connect(STRONG)
    for agent_id in ("closed", "open"):
        asked = {"targetAgentId": agent_id, "message": MESSAGE, "requestId": agent_id}
        assert (await call(strong, "agent/request", **asked))["result"] == agent_id
    event = await harness.agents.send_reliable_message("closed", "x", principal=STRONG)
    for request_id in ("closed", event):
        assert_lacking(await call(weak, "agent/status", requestId=request_id))
        assert (await call(strong, "agent/status", requestId=request_id))["outcome"]
    assert (await call(weak, "agent/status", requestId="open"))["result"] == "open"
    # To another principal it is an id that was never used, with or without the scopes.
    for principal in (Principal("bob"), Principal("bob", STRONG.scopes)):
        other = await call(harness.connect(principal), "agent/status", requestId="closed")
        assert other["code"] == "NOT_FOUND"


@pytest.mark.rule("AGENT-22")
async def test_what_host_code_sends_needs_no_scopes(harness: ScopeHarness) -> None:
    async def errand(arguments: dict[str, Any], context: ToolContext) -> Any:
        return await harness.agents.send_request(
            "closed", AgentMessage("note"), principal=context.principal
        )

    harness.rig.server.register(ToolDefinition("errand", "", {"type": "object"}), errand)
    weak = harness.connect(WEAK)
    assert await call(weak, "errand") == "closed"
    for kind in ("forward", "forward reliably"):
        sent = {"targetAgentId": "open", "message": {"type": kind}}
        assert await call(weak, "agent/sendMessage", **sent) == "closed"


@pytest.mark.rule("AGENT-23", "AUTH-27")
async def test_required_scopes_hold_for_an_id_without_an_agent_and_besides_those_of_one(
    clock: ManualClock,
) -> None:
    store = FaultyStore(shared=True)  # another process may have the agent
    async with serving(clock, store=store) as harness:
        weak, strong = harness.connect(WEAK), harness.connect(STRONG)
        sent = {"targetAgentId": "elsewhere", "message": MESSAGE}
        harness.agents.require_scopes("elsewhere", ["vault", "harness"])
        assert_lacking(await call(weak, "agent/request", **sent))
        assert (await call(strong, "agent/request", timeoutMs=1, **sent))["outcome"] == "UNKNOWN"
        harness.agents.register_agent("elsewhere", harness.handle, scopes=["more"])
        assert harness.agents.agent_scopes("elsewhere") == {"vault", "harness", "more"}
        harness.agents.unregister_agent("elsewhere")
        assert harness.agents.agent_scopes("elsewhere") == {"vault", "harness"}
        harness.agents.require_scopes("elsewhere", ())
        assert harness.agents.agent_scopes("elsewhere") == frozenset()
        harness.agents.unregister_agent("closed")
        assert harness.agents.agent_scopes("closed") == frozenset()


@pytest.mark.rule("AGENT-23")
@pytest.mark.parametrize("version", [AgentCoordinator, AgentCoordinatorV2])
@pytest.mark.parametrize("scopes", ["harness", [""], ["a b"], ['a"b'], [5]])
def test_scopes_that_oauth_does_not_know_are_refused(
    version: type[AgentCoordinator], scopes: Any
) -> None:
    async def handle(message: AgentMessage, context: AgentContext) -> None:
        pass

    agents = version()
    with pytest.raises(RegistrationError, match="agent 'a'"):
        agents.register_agent("a", handle, scopes=scopes)
    with pytest.raises(RegistrationError, match="agent 'a'"):
        agents.require_scopes("a", scopes)
    with pytest.raises(RegistrationError, match="agent"):
        agents.require_scopes(" a", ["harness"])
    assert agents.agent_ids() == []


@pytest.mark.rule("AUTH-13", "AUTH-27")
async def test_scopes_are_looked_up_only_for_a_client_that_is_known(harness: ScopeHarness) -> None:
    sent = {"targetAgentId": "open", "message": MESSAGE}
    for principal, is_asked in ((None, False), (WEAK, True)):
        peer = harness.connect(principal)
        with CallCounter() as counter:
            assert await call(peer, "agent/sendMessage", **sent) == "open"
        assert ("agent_scopes" in {name for _, name in counter.called}) is is_asked
