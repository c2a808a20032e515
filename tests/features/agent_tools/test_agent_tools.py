"""The agent tools, through a whole server: what clients can do with agents, and what they can't."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from foundation_rt import (
    AbortError,
    AgentContext,
    AgentCoordinator,
    AgentMessage,
    AgentStateTooLargeError,
    ErrorCode,
    RegistrationError,
    Server,
    ServerOptions,
    ToolContext,
    ToolError,
)
from foundation_rt.base.abort import AbortSignal
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.feature_sections import AgentsSection
from foundation_rt.base.config.settings import LoggingSection, ServerConfig, ToolsSection
from foundation_rt.base.ids import UuidGenerator
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.base.logs.redaction import Redactor
from foundation_rt.features.agent_tools.agents import send_message_handler
from foundation_rt.kernel.registry.tools import ToolDefinition
from foundation_rt.testing import TestClient
from tests.lab.programs.program import run_source
from tests.lab.servers.core import run_id
from tests.lab.servers.fixture import ServerFixture, ServerPeer, call

TOOLS = {"agent/sendMessage", "agent/list", "agent/getState"}
WITH_LEDGER = TOOLS | {"agent/request", "agent/status"}


async def echo(message: AgentMessage, context: AgentContext) -> Any:
    """Says what it was told."""
    return {"type": message.type, "payload": message.payload, "from": message.source_agent_id}


@pytest.fixture
@asynccontextmanager
async def rig(clock: ManualClock, options: dict[str, Any]) -> AsyncIterator[ServerFixture]:
    """Yield a server of these limits of tools; nothing may be left over."""
    rig = ServerFixture(ServerConfig(tools=ToolsSection(**options)), clock)
    yield rig
    await rig.stop()


async def send(peer: ServerPeer, agent_id: str, kind: str = "x", **rest: Any) -> Any:
    message = {"type": kind, **rest}
    return await call(peer, "agent/sendMessage", targetAgentId=agent_id, message=message)


# -- when the tools are there


def tool_names(server: Server) -> set[str]:
    return {tool.name for tool in server.list()} - {"health"}


@pytest.mark.rule("AGENT-14")
def test_the_tools_are_there_from_the_first_use_of_agents_on() -> None:
    server = Server("s")
    assert tool_names(server) == set()
    assert server.runtime.agents is None
    coordinator = server.agents
    assert server.agents is coordinator
    assert server.runtime.agents is coordinator
    assert tool_names(server) == WITH_LEDGER
    assert not any(tool.is_dynamic for name in WITH_LEDGER if (tool := server.get(name)))


@pytest.mark.rule("AGENT-14", "AGENT-31")
def test_a_coordinator_that_comes_with_the_options_is_the_servers() -> None:
    coordinator = AgentCoordinator(AgentsSection(max_queue=5))
    config = ServerConfig(agents=AgentsSection(max_queue=7))
    server = Server(options=ServerOptions(agent_coordinator=coordinator, config=config))
    assert tool_names(server) == TOOLS
    assert server.agents is coordinator
    assert server.runtime.agents is coordinator
    assert coordinator.limits.max_queue == 7


@pytest.mark.rule("AGENT-14")
def test_a_tool_of_the_authors_own_stays() -> None:
    server = Server("s")
    mine = ToolDefinition("agent/list", "mine", {"type": "object"})
    server.register(mine, lambda arguments, context: "mine")
    assert server.agents.agent_ids() == []
    assert tool_names(server) == WITH_LEDGER
    tool = server.get("agent/list")
    assert tool is not None
    assert tool.definition.description == "mine"
    with pytest.raises(RegistrationError, match="'agent/getState' is already registered"):
        server.register(ToolDefinition("agent/getState", "", {"type": "object"}), print)


@pytest.mark.rule("AGENT-30")
def test_a_server_without_agents_imports_nothing_of_them() -> None:
    program = (
        "import sys\nfrom foundation_rt import Server\nserver = Server('s')\nserver.runtime\n"
        "assert not [name for name in sys.modules if 'agents' in name]\n"
        "server.agents.register_agent\n"
        "assert 'asyncio' not in sys.modules"
    )
    run_source(program)


@pytest.mark.rule("AGENT-31", "EMBED-07")
async def test_a_server_under_test_lends_its_agents_to_the_test() -> None:
    async def report(message: AgentMessage, context: AgentContext) -> str:
        context.logger.warn("hello")
        return context.correlation_id

    sink = MemorySink()
    own = StructuredLogger(sink, ManualClock())
    server = Server(options=ServerOptions(logger=own))
    server.agents.register_agent("a", report)

    async with TestClient(server, clock=ManualClock()) as client:
        message = {"type": "x"}
        await client.call("agent/sendMessage", targetAgentId="a", message=message)
        await server.agents.send_message("a", AgentMessage("x"))
        assert [line["message"] for line in client.logs or []].count("hello") == 2
    assert sink.lines == []
    await server.agents.send_message("a", AgentMessage("x"))
    assert len(sink.lines) == 1


# -- agent/sendMessage


@pytest.mark.rule("AGENT-15")
async def test_a_message_reaches_its_agent_and_the_response_comes_back(rig: ServerFixture) -> None:
    rig.server.agents.register_agent("a", echo)
    peer = rig.connect()
    assert await send(peer, "a", "greet", payload={"to": ["world", None]}) == {
        "type": "greet",
        "payload": {"to": ["world", None]},
        "from": None,
    }
    assert (await send(peer, "a"))["payload"] is None


@pytest.mark.rule("AGENT-15")
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"targetAgentId": "a"},
        {"message": {"type": "x"}},
        {"targetAgentId": 5, "message": {"type": "x"}},
        {"targetAgentId": "a", "message": "x"},
        {"targetAgentId": "a", "message": {}},
        {"targetAgentId": "a", "message": {"type": 5}},
        {"targetAgentId": "a", "message": {"type": "x", "sourceAgentId": "b"}},
        {"targetAgentId": "a", "message": {"type": "x"}, "more": 1},
    ],
)
async def test_what_the_schema_does_not_allow_is_refused(
    arguments: dict[str, Any], rig: ServerFixture
) -> None:
    rig.server.agents.register_agent("a", echo)
    error = await call(rig.connect(), "agent/sendMessage", **arguments)
    assert error["code"] == "INVALID_ARGUMENT"
    assert error["details"]["reason"] == "schema_validation"


@pytest.mark.rule("AGENT-05", "AGENT-15")
async def test_an_unknown_agent_is_not_found(rig: ServerFixture) -> None:
    assert rig.server.agents.agent_ids() == []
    error = await send(rig.connect(), "nobody")
    assert error["code"] == "NOT_FOUND"
    assert error["details"] == {"reason": "agent_not_found", "agentId": "nobody"}


@pytest.mark.rule("AGENT-32", "CALL-05")
@pytest.mark.options(max_payload_bytes=200)
async def test_a_payload_over_the_limit_never_reaches_its_agent(rig: ServerFixture) -> None:
    rig.server.agents.register_agent("a", echo)
    peer = rig.connect()
    arguments = {"targetAgentId": "a", "message": {"type": "x", "payload": "é" * 50}}
    room = 200 - len(orjson.dumps(arguments))
    fits = "é" * (50 + room // 2)
    assert (await send(peer, "a", payload=fits))["payload"] == fits
    error = await send(peer, "a", payload=fits + "éé")
    assert error["code"] == "RESOURCE_EXHAUSTED"
    assert error["details"]["reason"] == "payload_too_large"


@pytest.mark.rule("AGENT-32", "CALL-17")
@pytest.mark.options(max_response_bytes=400)
async def test_a_response_is_bounded_and_must_be_json(rig: ServerFixture) -> None:
    async def respond(message: AgentMessage, context: AgentContext) -> Any:
        return "x" * 500 if message.type == "long" else object()

    rig.server.agents.register_agent("a", respond)
    peer = rig.connect()
    for kind, reason in (("long", "result_too_large"), ("odd", "result_not_serializable")):
        error = await send(peer, "a", kind)
        assert (error["code"], error["details"]["reason"]) == ("INTERNAL", reason)


@pytest.mark.rule("AGENT-15", "ERR-04", "ERR-05")
async def test_what_an_agent_raises_is_as_if_the_tool_had_raised_it(rig: ServerFixture) -> None:
    async def fail(message: AgentMessage, context: AgentContext) -> None:
        if message.type == "chosen":
            raise ToolError(ErrorCode.UNAUTHORIZED, "not you", {"x": 1})
        raise LookupError("a secret of the house")

    rig.server.agents.register_agent("a", fail)
    peer = rig.connect()
    chosen = await send(peer, "a", "chosen")
    assert (chosen["code"], chosen["message"], chosen["details"]) == (
        "UNAUTHORIZED",
        "not you",
        {"x": 1},
    )
    other = await send(peer, "a", "other")
    assert other["code"] == "INTERNAL"
    assert "secret" not in str(other)


@pytest.mark.rule("AGENT-06", "AGENT-15")
async def test_a_full_queue_and_a_cycle_have_codes_of_their_own(rig: ServerFixture) -> None:
    agents = rig.server.agents
    go_on = asyncio.Event()

    async def wait(message: AgentMessage, context: AgentContext) -> None:
        await go_on.wait()

    async def again(message: AgentMessage, context: AgentContext) -> Any:
        return await agents.send_message("again", message)

    agents.register_agent("wait", wait)
    agents.register_agent("again", again)
    peer = rig.connect()
    agents.limits = AgentsSection(max_queue=1)
    held = [asyncio.create_task(send(peer, "wait")) for _ in range(2)]
    await asyncio.sleep(1)
    full = await send(peer, "wait")
    assert full["code"] == "RESOURCE_EXHAUSTED"
    assert full["details"]["reason"] == "agent_queue_full"
    go_on.set()
    assert await asyncio.gather(*held) == [None, None]
    cycle = await send(peer, "again")
    assert cycle["code"] == "INVALID_ARGUMENT"
    assert cycle["details"]["cycle"] == ["again", "again"]


@pytest.mark.rule("AGENT-04", "AGENT-33")
async def test_the_ids_of_the_call_are_in_the_agents_log(rig: ServerFixture) -> None:
    async def report(message: AgentMessage, context: AgentContext) -> str:
        context.logger.info("working")
        return context.correlation_id

    rig.server.agents.register_agent("a", report)
    peer = rig.connect()
    params = {
        "name": "agent/sendMessage",
        "arguments": {"targetAgentId": "a", "message": {"type": "x"}},
        "_meta": {"correlationId": "mine"},
    }
    request_id = peer.ask("tools/call", params)
    await asyncio.sleep(1)
    assert peer.outcome(request_id) == "mine"
    [line] = rig.logged("working")
    assert (line["agentId"], line["correlationId"], line["runId"]) == ("a", "mine", run_id(1))


@pytest.mark.rule("AGENT-33", "AGENT-11", "TIME-02", "TIME-06")
@pytest.mark.options(default_timeout_ms=100)
async def test_at_the_deadline_the_client_is_answered_and_the_agent_told(
    rig: ServerFixture,
) -> None:
    reasons: list[str] = []

    async def wait(message: AgentMessage, context: AgentContext) -> None:
        reasons.append(await context.abort_signal.wait())
        context.abort_signal.raise_if_aborted()

    rig.server.agents.register_agent("a", wait)
    peer = rig.connect()
    # The second waits for its turn when its deadline comes: it is withdrawn.
    answers = await asyncio.gather(send(peer, "a"), send(peer, "a"))
    assert [answer["code"] for answer in answers] == ["TIMEOUT", "TIMEOUT"]
    await asyncio.sleep(1)
    assert reasons == ["deadline"]
    assert [record["outcome"] for record in rig.records] == ["timeout", "timeout"]


@pytest.mark.rule("AGENT-03", "AGENT-33", "TIME-04")
@pytest.mark.options(default_timeout_ms=100, cancel_grace_ms=200)
async def test_an_agent_that_does_not_listen_is_cancelled_after_the_grace_and_takes_the_next(
    rig: ServerFixture,
) -> None:
    log: list[str] = []

    async def stubborn(message: AgentMessage, context: AgentContext) -> None:
        log.append(f"begin {message.type}")
        try:
            await asyncio.sleep(3600 if message.type == "long" else 0)
        finally:
            log.append(f"end {message.type}")

    rig.server.agents.register_agent("a", stubborn)
    peer = rig.connect()
    assert (await send(peer, "a", "long"))["code"] == "TIMEOUT"
    assert await rig.server.agents.send_message("a", AgentMessage("short")) is None
    assert log == ["begin long", "end long", "begin short", "end short"]
    assert rig.clock.monotonic() < 10


@pytest.mark.rule("AGENT-15")
@pytest.mark.parametrize("message", [{}, {"type": 5}, {"type": None}, {"payload": 1}])
def test_a_proxy_whose_schema_allows_any_message_refuses_one_without_a_type(
    message: dict[str, Any],
) -> None:
    coordinator = AgentCoordinator()
    coordinator.register_agent("a", echo)
    logger = StructuredLogger(MemorySink(), ManualClock())
    handler = send_message_handler(coordinator)

    def proxy(message: dict[str, Any]) -> Any:
        context = ToolContext("r", "c", AbortSignal(), logger)
        return asyncio.run(handler({"targetAgentId": "a", "message": message}, context))

    with pytest.raises(ToolError) as refused:
        proxy(message)
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT
    assert refused.value.details == {"reason": "invalid_message"}
    assert proxy({"type": "x", "payload": 1, "sourceAgentId": "forged"}) == {
        "type": "x",
        "payload": 1,
        "from": None,
    }


@pytest.mark.rule("AGENT-11")
def test_a_call_that_was_aborted_before_it_was_sent_is_not_sent() -> None:
    coordinator = AgentCoordinator()
    coordinator.register_agent("a", echo)
    signal = AbortSignal()
    signal.fire("disconnected")
    context = ToolContext("r", "c", signal, StructuredLogger(MemorySink(), ManualClock()))
    arguments = {"targetAgentId": "a", "message": {"type": "x"}}
    with pytest.raises(AbortError):
        asyncio.run(send_message_handler(coordinator)(arguments, context))


# -- agent/list


@pytest.mark.rule("AGENT-16")
async def test_the_agents_are_listed_in_order(rig: ServerFixture) -> None:
    peer = rig.connect()
    assert rig.server.agents.agent_ids() == []
    assert await call(peer, "agent/list") == {"agentIds": [], "truncated": False}
    for agent_id in ("b", "a", "B"):
        rig.server.agents.register_agent(agent_id, echo)
    expected = {"agentIds": ["B", "a", "b"], "truncated": False}
    assert await call(peer, "agent/list") == expected
    rig.server.agents.unregister_agent("a")
    assert (await call(peer, "agent/list"))["agentIds"] == ["B", "b"]


@pytest.mark.rule("AGENT-16", "AGENT-17")
@pytest.mark.parametrize(
    "options", [{"max_response_bytes": limit} for limit in (60, 100, 101, 102, 200)], ids=str
)
async def test_a_list_that_is_too_long_is_cut_the_same_way_every_time(
    options: dict[str, int], rig: ServerFixture
) -> None:
    [limit] = options.values()
    for number in reversed(range(30)):
        rig.server.agents.register_agent(f"agent {number:02} é", echo)
    peer = rig.connect()
    answer = await call(peer, "agent/list")
    assert answer["truncated"] is True
    assert len(orjson.dumps(answer)) <= limit
    kept = answer["agentIds"]
    assert kept == rig.server.agents.agent_ids()[: len(kept)]
    more = {"agentIds": [*kept, "agent 00 é"], "truncated": True}
    assert len(orjson.dumps(more)) > limit
    assert await call(peer, "agent/list") == answer


# -- agent/getState


def with_state(rig: ServerFixture, state: dict[str, Any], agent_id: str = "a") -> None:
    async def keep(message: AgentMessage, context: AgentContext) -> None:
        context.state.update(state)

    rig.server.agents.register_agent(agent_id, keep)


async def shown(rig: ServerFixture, state: dict[str, Any]) -> Any:
    """Return what `agent/getState` shows of an agent with this state."""
    with_state(rig, state)
    await rig.server.agents.send_message("a", AgentMessage("set"))
    return await call(rig.connect(), "agent/getState", agentId="a")


@pytest.mark.rule("AGENT-18")
async def test_a_state_is_shown_without_secrets_in_the_order_of_its_keys(
    rig: ServerFixture,
) -> None:
    answer = await shown(
        rig, {"b": [1, {"apiKey": "s3cret", "n": None}], "password": "s3cret", "a": 1.5}
    )
    assert answer == {
        "agentId": "a",
        "state": {
            "a": 1.5,
            "b": [1, {"apiKey": "[REDACTED]", "n": None}],
            "password": "[REDACTED]",
        },
        "truncated": False,
    }
    assert list(answer["state"]) == ["a", "b", "password"]
    assert rig.server.agents.get_agent_state("a") == {
        "b": [1, {"apiKey": "s3cret", "n": None}],
        "password": "s3cret",
        "a": 1.5,
    }


@pytest.mark.rule("AGENT-18")
async def test_the_keys_that_an_operator_named_are_redacted_as_well(clock: ManualClock) -> None:
    logger = StructuredLogger(MemorySink(), clock, redactor=Redactor(("iban",)))
    config = ServerConfig(logging=LoggingSection(redact_keys=("iban",)))
    options = ServerOptions(config=config, logger=logger, clock=clock)
    rig = ServerFixture(config, clock)
    rig.server = Server(options=options)
    answer = await shown(rig, {"iban": "NO93", "name": "x"})
    assert answer["state"] == {"iban": "[REDACTED]", "name": "x"}
    await rig.server.runtime.stop_background()


@pytest.mark.rule("AGENT-05", "AGENT-18")
async def test_there_is_no_state_of_an_unknown_agent(rig: ServerFixture) -> None:
    with_state(rig, {}, "known")
    peer = rig.connect()
    error = await call(peer, "agent/getState", agentId="a")
    assert error["code"] == "NOT_FOUND"
    assert (await call(peer, "agent/getState", agentId="known"))["state"] == {}


@pytest.mark.rule("AGENT-18")
async def test_what_json_cannot_say_is_shown_as_it_would_be_logged(rig: ServerFixture) -> None:
    circle: list[Any] = [1]
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]

    state = {
        "circle": circle,
        "deep": deep,
        "lone \ud800": "x",
        "nan": float("nan"),
        "object": {"password": "s3cret", "self": AgentMessage("t", 1j)},
        "plain": "x" * 2000,
        "set": {1},
        "socket": print,
    }
    answer = await shown(rig, state)
    told = answer["state"]
    assert answer["truncated"] is False
    assert told["circle"] == [1, "[CIRCULAR]"]
    assert "[TOO DEEP]" in str(told["deep"])
    assert told["lone \\ud800"] == "x"
    assert told["nan"] is None
    assert told["object"] == {
        "password": "[REDACTED]",
        "self": {"type": "t", "payload": "1j", "source_agent_id": None},
    }
    assert told["plain"] == "x" * 2000
    assert told["set"] == [1]
    assert told["socket"] == "<built-in function print>"


@pytest.mark.rule("AGENT-17", "AGENT-18")
@pytest.mark.parametrize(
    "options",
    [{"max_state_bytes": 442}, {"max_response_bytes": 120}, {"max_response_bytes": 119}],
    ids=str,
)
async def test_a_state_that_is_too_large_is_cut_after_the_last_key_that_fits(
    options: dict[str, int], rig: ServerFixture
) -> None:
    state = {f"key {number:02}": "é" * 5 for number in reversed(range(20))}
    answer = await shown(rig, state)
    assert answer["truncated"] is True
    [limit] = options.values()
    assert len(orjson.dumps(answer)) <= limit
    kept = list(answer["state"])
    assert kept == sorted(state)[: len(kept)]
    assert kept
    more = answer | {"state": dict.fromkeys(sorted(state)[: len(kept) + 1], "é" * 5)}
    assert len(orjson.dumps(more)) > limit
    assert await call(rig.connect(), "agent/getState", agentId="a") == answer


@pytest.mark.rule("AGENT-17", "AGENT-18")
@pytest.mark.options(max_state_bytes=10)
async def test_a_limit_without_room_for_anything_is_an_error_that_says_so(
    rig: ServerFixture,
) -> None:
    error = await shown(rig, {"x": 1})
    assert error["code"] == "INTERNAL"
    assert error["details"]["reason"] == "result_too_large"


@pytest.mark.rule("AGENT-20")
@pytest.mark.options(max_state_bytes=100)
async def test_a_state_that_would_be_too_large_is_refused_and_stays_as_it_is(
    rig: ServerFixture,
) -> None:
    async def keep(message: AgentMessage, context: AgentContext) -> None:
        context.state[message.type] = message.payload

    peer = rig.connect()
    rig.server.agents.register_agent("a", keep)
    await send(peer, "a", "x", payload="y" * 50)
    for name in ("x", "z"):
        error = await send(peer, "a", name, payload="y" * 95)
        assert error["code"] == "RESOURCE_EXHAUSTED"
        assert error["details"] == {"reason": "state_too_large", "maxStateBytes": 100}
    state = rig.server.agents.get_agent_state("a")
    assert state == {"x": "y" * 50}
    await send(peer, "a", "x", payload="y" * 92)
    assert len(orjson.dumps(rig.server.agents.get_agent_state("a"))) == 100


@pytest.mark.rule("AGENT-20")
async def test_an_agent_registered_before_the_server_starts_has_the_servers_limit() -> None:
    async def keep_much(message: AgentMessage, context: AgentContext) -> None:
        context.state["x"] = "y" * 20

    coordinator = AgentCoordinator()
    coordinator.register_agent("early", keep_much)
    await coordinator.send_message("early", AgentMessage("x"))
    config = ServerConfig(tools=ToolsSection(max_state_bytes=20))
    logger = StructuredLogger(MemorySink(), ManualClock())
    coordinator.attach(logger, config, UuidGenerator())
    coordinator.register_agent("late", keep_much)
    for agent_id in ("early", "late"):
        with pytest.raises(AgentStateTooLargeError):
            await coordinator.send_message(agent_id, AgentMessage("x"))


@pytest.mark.rule("AGENT-18")
async def test_a_state_can_be_looked_at_while_its_agent_is_busy(rig: ServerFixture) -> None:
    go_on = asyncio.Event()

    async def work(message: AgentMessage, context: AgentContext) -> None:
        context.state["step"] = 1
        await go_on.wait()

    rig.server.agents.register_agent("a", work)
    peer = rig.connect()
    working = asyncio.create_task(send(peer, "a"))
    await asyncio.sleep(1)
    assert (await call(peer, "agent/getState", agentId="a"))["state"] == {"step": 1}
    go_on.set()
    await working
