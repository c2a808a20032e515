"""Calls through a coordinator to servers in memory that misbehave, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foundation_rt import Server, ToolContext
from foundation_rt.apps.coordinator import (
    Coordinator,
    RetryOptions,
    ServerState,
    ToolCallRequest,
    ToolCircuitOpenError,
    ToolExecutionError,
    ToolExecutionOptions,
    ToolNotFoundError,
    ToolValidationError,
)
from foundation_rt.apps.coordinator.options import CoordinatorSettings
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.mcp_json import ServerSettings
from foundation_rt.client import BreakerSettings, CircuitState, ClientHandlers, MCPError
from foundation_rt.errors import ConfigError, ErrorCode, UsageError
from tests.lab.peers.script import Act
from tests.lab.peers.script_memory import MemoryHarness

INTERNAL = {"error": {"code": -32603, "message": "broken"}}
NO_RETRY = RetryOptions(max_retries=0)


def harness() -> MemoryHarness:
    return MemoryHarness("2025-11-25")


def one(server: MemoryHarness, **options: Any) -> Coordinator:
    return Coordinator({"play": server.make_transport}, **options)


def acts(*acts: Act) -> dict[str, Any]:
    return {"nonce": "n", "acts": list(acts)}


async def failing(servers: Coordinator, *given: Act, tool: str = "play:play") -> Exception:
    with pytest.raises(ToolExecutionError) as raised:
        await servers.call(tool, acts(*given), retry_options=NO_RETRY)
    return raised.value.cause


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-20", "COORD-26")
async def test_each_way_to_fail_has_its_error() -> None:
    async with Coordinator({"a": harness().make_transport, "b": harness().make_transport}) as both:
        with pytest.raises(ToolNotFoundError, match=r"^Tool not found: nothing$"):
            await both.call("nothing")
        with pytest.raises(ToolNotFoundError) as ambiguous:
            await both.call("play", {"nonce": "n"})
        assert ambiguous.value.candidates == ("a:play", "b:play")
        with pytest.raises(
            ToolValidationError, match=r"^Invalid arguments for tool: a:play$"
        ) as bad:
            await both.call("a:play", {"nonce": 5})
        assert [issue.path for issue in bad.value.validation_errors] == ["/nonce"]
        with pytest.raises(ToolExecutionError, match=r"^Failed to execute tool: a:play$") as failed:
            await both.call("a:play", acts(["reply", INTERNAL]), request_id="7")
        assert isinstance(failed.value.cause, MCPError)
        assert failed.value.context.server_id == "a"
        assert failed.value.context.request_id == "7"
        assert (await both.call("a:play", {"nonce": "n"})).structured == {"nonce": "n"}
        assert both.resolve("b:play") == "b:play"
        assert both.validate("b:play", {"nonce": "n"}) == ()
        assert [issue.path for issue in both.validate("b:play", {})] == [""]
        assert both.entry("play") is None
        outside = both.entry_of_outside("b__play_again")
        assert outside is not None
        assert (outside.qualified_name, outside.outside_name) == ("b:play_again", "b__play_again")
        assert both.entry_of_outside("b:play") is None
        assert [each.qualified_name for each in both.tools][:2] == ["a:play", "a:play_again"]


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-27")
async def test_execute_always_responds() -> None:
    server = harness()
    async with one(server) as servers:

        async def execute(name: str, arguments: Any, **options: Any) -> Any:
            request = ToolCallRequest(name, arguments, "id")
            response = await servers.execute(request, ToolExecutionOptions(**options))
            assert response.request_id == "id"
            return response

        good = await execute("play", {"nonce": "n"})
        assert (good.tool_name, good.error) == ("play:play", None)
        assert good.result["structuredContent"] == {"nonce": "n"}
        unknown = await execute("play:plai", {})
        assert unknown.error.code == -32602
        assert unknown.error.tool_code is ErrorCode.NOT_FOUND
        assert "play:play" in unknown.error.message
        invalid = await execute("play", {"nonce": 1})
        assert invalid.error.tool_code is ErrorCode.INVALID_ARGUMENT
        own = {"error": {"code": 7, "message": "mine", "data": {"x": 1}}}
        assert (await execute("play", acts(["reply", own]))).error.code == 7
        late = await execute("play", acts(), timeout_ms=50)
        assert (late.error.app_code, late.error.may_have_run) == ("E202", True)
        assert late.error.tool_code is ErrorCode.TIMEOUT
        assert round(late.execution_time_ms) == 50
        said = {"content": [{"type": "text", "text": "no"}], "isError": True}
        told = await execute("play", acts(["reply", {"result": said}]))
        assert (told.result["isError"], told.error.message) == (True, "no")
        await execute("play", acts(["die"]))
        named = await execute("other:play", {})
        assert named.error.tool_code is ErrorCode.NOT_FOUND


@pytest.mark.rule("COORD-21")
async def test_circuit_of_a_tool_opens_forgives_and_is_probed(clock: ManualClock) -> None:
    server = harness()
    async with one(server, now=clock.now) as servers:
        entry = servers.entry("play")
        assert entry is not None
        for _ in range(4):
            await failing(servers, ["reply", INTERNAL])
        await servers.call("play", {"nonce": "n"})  # takes one off
        await failing(servers, ["reply", INTERNAL])
        assert entry.circuit is CircuitState.CLOSED
        await failing(servers, ["reply", INTERNAL])
        assert entry.circuit is CircuitState.OPEN
        text = r"^Circuit open for tool: play:play after 5 failures$"
        with pytest.raises(ToolCircuitOpenError, match=text) as opened:
            await servers.call("play", {"nonce": 5})  # before its arguments are looked at
        assert opened.value.retry_after == pytest.approx(60)
        assert opened.value.last_failure == clock.now()
        # The server has answered each time: its circuit, and its other tool, are untouched.
        assert servers.states["play"].circuit is CircuitState.CLOSED
        await servers.call("play_again", {"nonce": "n"})
        await asyncio.sleep(61)
        await servers.call("play", {"nonce": "n"})
        assert entry.circuit is CircuitState.CLOSED
        assert (entry.reliability.success_count, entry.reliability.failure_count) == (2, 6)


@pytest.mark.rule("COORD-76")
async def test_tool_that_hangs_opens_its_own_circuit(clock: ManualClock) -> None:
    async with one(harness()) as servers:
        for tool in ("play:play", "play:play_again"):
            for _ in range(5):
                await failing(servers, ["wait", "never"], tool=tool)  # 60 s each
            name = tool if tool == "play:play" else "server: play"
            with pytest.raises(ToolCircuitOpenError, match=name):
                await servers.call(tool, {"nonce": "n"})
            if tool == "play:play":
                assert servers.states["play"].circuit is CircuitState.CLOSED
        assert servers.states["play"].circuit is CircuitState.OPEN


@pytest.mark.rule("COORD-77")
async def test_numbers_of_a_circuit_are_those_of_the_entry_or_of_all(clock: ManualClock) -> None:
    server = harness()
    async with one(server, circuit_failures=2, circuit_open_ms=1000) as servers:
        for _ in range(2):
            await failing(servers, ["reply", INTERNAL])
        with pytest.raises(ToolCircuitOpenError):
            await servers.call("play", {"nonce": "n"})
        await asyncio.sleep(1.1)
        assert not (await servers.call("play", {"nonce": "n"})).is_error
    settings = CoordinatorSettings(circuit_failures=2)
    circuit = settings.circuit(ServerSettings(circuit_failures=3, circuit_window_ms=7))
    assert (circuit.failure_threshold, circuit.window_ms, circuit.reset_timeout_ms) == (
        3,
        7,
        60_000,
    )
    with pytest.raises(ConfigError):
        CoordinatorSettings(circuit_failures=0)


@pytest.mark.rule("COORD-21")
async def test_failures_older_than_a_minute_do_not_count(clock: ManualClock) -> None:
    async with one(harness()) as servers:
        for _ in range(12):
            await failing(servers, ["reply", INTERNAL])
            await asyncio.sleep(16)
        entry = servers.entry("play")
        assert entry is not None
        assert entry.circuit is CircuitState.CLOSED


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-21")
async def test_lost_connection_is_one_failure_however_many_calls_wait() -> None:
    server = harness()
    async with one(server) as servers:
        calls = [asyncio.create_task(failing(servers, ["wait", "never"])) for _ in range(20)]
        await server.until(lambda: len(server.nonces()) >= 20)
        server.transports[-1].lose()
        await asyncio.gather(*calls)
        assert servers.states["play"].circuit is CircuitState.CLOSED
        assert (await servers.call("play", {"nonce": "n"})).structured == {"nonce": "n"}


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-22")
async def test_failure_of_the_tool_opens_no_circuit_and_counts() -> None:
    said = {"content": [{"type": "text", "text": "no"}], "isError": True}
    async with one(harness()) as servers:
        for _ in range(10):
            assert (await servers.call("play", acts(["reply", {"result": said}]))).is_error
        entry = servers.entry("play")
        assert entry is not None
        assert entry.circuit is CircuitState.CLOSED
        assert (entry.reliability.success_count, entry.reliability.failure_count) == (0, 10)


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-24")
async def test_only_what_is_safe_is_retried_once() -> None:
    server = harness()
    async with one(server) as servers:
        for tool, sent in (("play", 1), ("play_again", 2)):
            server.log.clear()
            with pytest.raises(ToolExecutionError) as raised:
                await servers.call(tool, acts(["reply", INTERNAL]))
            assert isinstance(raised.value.cause, MCPError)
            assert raised.value.cause.may_have_run
            assert len(server.nonces()) == sent
        server.log.clear()
        options = RetryOptions(max_retries=2, delay_ms=1, retryable_error_codes=frozenset({"E203"}))
        with pytest.raises(ToolExecutionError):
            await servers.call("play_again", acts(["reply", INTERNAL]), retry_options=options)
        assert len(server.nonces()) == 1


@pytest.mark.rule("COORD-15", "COORD-13")
async def test_call_to_a_lost_server_connects_at_once_and_one_attempt_serves_all(
    clock: ManualClock,
) -> None:
    server, changed = harness(), list[str]()
    async with one(server, on_list_changed=changed.append) as servers:
        server.transports[-1].lose()
        await asyncio.sleep(0)
        assert servers.states["play"].state is ServerState.LOST
        before = clock.monotonic()
        results = await asyncio.gather(*(servers.call("play", {"nonce": "n"}) for _ in range(50)))
        assert len(results) == 50
        assert clock.monotonic() - before < 0.5
        assert len(server.transports) == 2
        assert servers.states["play"].state is ServerState.READY
        await asyncio.sleep(100)
        assert changed == []


@pytest.mark.rule("COORD-13", "COORD-18")
async def test_tools_of_a_server_that_stays_away_go_once_and_come_once(clock: ManualClock) -> None:
    server, changed = harness(), list[str]()
    async with one(server, on_list_changed=changed.append) as servers:
        server.play({"open": [["refuse"]]})
        server.transports[-1].lose()
        await asyncio.sleep(29)
        assert len(servers.tools) == 2
        await asyncio.sleep(2)
        assert (len(servers.tools), _lists(changed)) == (0, ["tools"])
        status = servers.states["play"]
        assert (status.state, status.reason) == (ServerState.LOST, "there is no server")
        with pytest.raises(ToolExecutionError, match="Failed to execute tool: play:play"):
            await servers.call("play:play", {"nonce": "n"})
        server.play({})
        await asyncio.sleep(61)
        assert (len(servers.tools), _lists(changed)) == (2, ["tools", "tools"])
        assert servers.states["play"].state is ServerState.READY


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-58")
async def test_list_that_the_server_refuses_leaves_its_tools_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = harness()  # it has no method for templates
    kinds = ("tools", "resources", "resourceTemplates")
    async with one(server, lists=kinds) as servers:
        assert servers.states["play"].state is ServerState.READY
        assert [each["uri"] for _, each in servers.listed("resources")] == ["play://one"]
        assert servers.listed("resourceTemplates") == []
        assert not [each for each in caplog.messages if "not read" in each]
        server.play({"resources/list": [["reply", INTERNAL]]})
        server.transports[-1].lose()
        await asyncio.sleep(1.1)
        assert servers.states["play"].state is ServerState.READY
        assert [each["uri"] for _, each in servers.listed("resources")] == ["play://one"]
        assert any("resources of server 'play' not read" in each for each in caplog.messages)


@pytest.mark.rule("COORD-14", "COORD-19")
@pytest.mark.parametrize(("options", "announced"), [({}, 2), ({"announce_interval_ms": 0}, 4)])
async def test_flapping_server_changes_a_list_once_in_5_s_at_most(
    clock: ManualClock, options: dict[str, Any], announced: int
) -> None:
    server, times = harness(), list[float]()

    def lists_differ() -> None:
        tool = {"name": f"tool{len(server.transports)}", "inputSchema": {"type": "object"}}
        server.play({"tools/list": [["answer", {"result": {"tools": [tool]}}]]})

    lists_differ()
    async with one(
        server, on_list_changed=lambda _: times.append(clock.monotonic()), **options
    ) as servers:
        for _ in range(4):
            lists_differ()
            server.transports[-1].lose()
            await asyncio.sleep(1.1)
            assert servers.states["play"].state is ServerState.READY
        server.transports[-1].lose()
        await asyncio.sleep(0.1)
        assert servers.states["play"].state is ServerState.FAILED
        await asyncio.sleep(20)
        assert len(times) == announced
        assert times[-1] - times[0] >= (0 if options else 5)


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-10", "COORD-16")
async def test_server_dead_hanging_or_lying_at_start_leaves_the_others_alone(
    clock: ManualClock,
) -> None:
    good, dead, hanging, lying = harness(), harness(), harness(), harness()
    dead.play({"open": [["refuse"]]})
    hanging.play({"open": [["hang"]]})
    lying.play({"tools/list": [["answer", {"result": {"tools": "none"}}]]})
    named = {"dead": dead, "hanging": hanging, "lying": lying, "good": good}
    plans = {name: each.make_transport for name, each in named.items()}
    changed = list[str]()
    async with Coordinator(plans, on_list_changed=changed.append) as servers:
        assert clock.monotonic() == pytest.approx(10, abs=0.1)
        states = {name: status.state.value for name, status in servers.states.items()}
        assert states == {
            "dead": "failed",
            "hanging": "starting",
            "lying": "failed",
            "good": "ready",
        }
        assert servers.states["dead"].reason == "there is no server"
        assert (await servers.call("play", {"nonce": "n"})).structured == {"nonce": "n"}
        with pytest.raises(ToolExecutionError) as late:
            await servers.call("hanging:play", {"nonce": "n"}, timeout_ms=100)
        assert isinstance(late.value.cause, MCPError)
        assert late.value.cause.code == "E202"
        dead.play({})
        await asyncio.sleep(30)
        assert servers.states["dead"].state is ServerState.READY
        assert _lists(changed) == ["tools"]


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-28")
async def test_aborted_call_ends_and_the_server_hears_of_it() -> None:
    server = harness()
    async with one(server) as servers:
        running = asyncio.create_task(
            servers.execute(ToolCallRequest("play", acts(["wait", "never"]), "r"))
        )
        await server.until(lambda: server.nonces())
        doubled = await servers.execute(ToolCallRequest("play", acts(), "r"))
        assert doubled.error is not None
        assert doubled.error.app_code == "E203"
        assert servers.abort("r")
        response = await running
        assert response.error is not None
        assert (response.error.code, response.error.may_have_run) == (-32800, True)
        assert not servers.abort("r")
        await asyncio.sleep(0.1)
        assert len(server.messages("notifications/cancelled")) == 1


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-28")
async def test_cancelled_caller_is_cancelled_also_after_an_abort() -> None:
    server = harness()
    async with one(server) as servers:
        running = asyncio.create_task(servers.call("play", acts(["wait", "never"]), request_id="r"))
        await server.until(lambda: server.nonces())
        assert servers.abort("r")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-23")
async def test_calls_of_a_full_server_wait_by_priority() -> None:
    app = Server("app")
    order, gate = list[str](), asyncio.Event()

    @app.tool
    async def note(name: str) -> None:
        order.append(name)
        await gate.wait()

    entry = {"command": "unused", "maxConcurrent": 1}
    servers = Coordinator({"app": entry})
    plan = servers._source()["app"]
    servers._source = lambda: {"app": type(plan)("app", app, plan.settings)}
    async with servers:
        calls = [asyncio.create_task(servers.call("note", {"name": "first"}))]
        await asyncio.sleep(0.1)
        calls += [
            asyncio.create_task(servers.call("note", {"name": name}, priority=name))
            for name in ("low", "normal", "high")
        ]
        await asyncio.sleep(0.1)
        status = servers.states["app"]
        assert (status.running, status.waiting, order) == (1, 3, ["first"])
        late = await servers.execute(
            ToolCallRequest("note", {"name": "late"}), ToolExecutionOptions(timeout_ms=10)
        )
        assert late.error is not None
        assert late.error.tool_code is ErrorCode.RESOURCE_EXHAUSTED
        gate.set()
        await asyncio.gather(*calls)
        assert order == ["first", "high", "normal", "low"]
        with pytest.raises(UsageError, match="priority is high, normal or low"):
            await servers.call("note", {"name": "x"}, priority="urgent")


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-17")
async def test_list_that_a_server_changes_is_read_and_announced_once() -> None:
    server, changed = harness(), list[str]()
    async with one(server, on_list_changed=changed.append, lists=("tools", "resources")) as servers:
        assert [entry["uri"] for _, entry in servers.listed("resources")] == ["play://one"]
        tool = {"name": "new", "inputSchema": {"type": "object"}, "x-other": 1}
        server.play({"tools/list": [["answer", {"result": {"tools": [tool]}}]]})
        note = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        await servers.call("play", acts(["flood", 5, note], ["answer"]))
        await asyncio.sleep(0.1)
        assert servers.listed("tools") == [("play", tool)]
        assert _lists(changed) == ["tools"]
        assert servers.resolve("new") == "play:new"


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-25")
async def test_progress_extends_the_time_that_the_server_sets() -> None:
    app = Server("app")

    @app.tool(timeout_ms=1_000_000)
    async def work(steps: int, ctx: ToolContext) -> str:
        for step in range(steps):
            await asyncio.sleep(40)
            ctx.report_progress(step + 1)
        return "done"

    async with Coordinator({"app": app}) as servers:
        assert (await servers.call("work", {"steps": 3})).value() == "done"
        for arguments, time in (({"steps": 20}, None), ({"steps": 3}, 60_000)):
            with pytest.raises(ToolExecutionError) as late:
                await servers.call("work", arguments, timeout_ms=time)
            assert isinstance(late.value.cause, MCPError)
            assert late.value.cause.code == "E202"


@pytest.mark.rule("COORD-07")
def test_what_is_no_server_is_refused() -> None:
    with pytest.raises(UsageError, match="server 'a' is a command line"):
        Coordinator({"a": 5})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="lists are of tools"):
        Coordinator({}, lists=("tool",))
    with pytest.raises(UsageError, match="breaker is set by the coordinator"):
        Coordinator({}, connections={"breaker": BreakerSettings()})


@pytest.mark.rule("COORD-82")
@pytest.mark.virtual_time
async def test_time_of_a_tool_is_that_of_its_name_and_unused_options_are_refused() -> None:
    for name in ("timeout", "tool_breakers", "on_circuit"):
        with pytest.raises(UsageError, match=f"{name} is set by the coordinator"):
            Coordinator({}, connections={name: None})  # type: ignore[misc]
    with pytest.raises(TypeError, match="nonsense"):
        async with Coordinator({"a": Server("a")}, connections={"nonsense": 1}):  # type: ignore[typeddict-unknown-key]
            pass
    server = Server("slow")
    released = asyncio.Event()

    @server.tool
    async def wait() -> None:
        await released.wait()

    options: Any = {"tool_timeouts": {"wait": 0.05}}
    async with Coordinator({"slow": server}, connections=options) as servers:
        with pytest.raises(ToolExecutionError, match="Failed") as late:
            await servers.call("slow:wait", {})
        assert isinstance(late.value.cause, MCPError) and late.value.cause.code == "E202"
        connected = servers.server("slow")
        assert connected is not None
        with pytest.raises(MCPError) as raw:
            await connected.request("tools/call", {"name": "wait", "arguments": {}})
        assert raw.value.code == "E202"
        released.set()
        await servers.call("slow:wait", {})


@pytest.mark.rule("COORD-60")
async def test_handlers_of_a_call_answer_what_its_server_asks() -> None:
    server = Server("asks")

    @server.tool
    async def who(ctx: ToolContext) -> str:
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        return str((await ctx.elicit("Who?", form)).content)

    async def decline(_: object) -> None:
        return None

    async def ada(_: object) -> dict[str, str]:
        return {"name": "Ada"}

    for revision in ("2025-11-25", "2026-07-28"):
        options = {"elicitation": decline, "revision": revision}
        async with Coordinator({"asks": server}, connections=options) as servers:  # type: ignore[arg-type]
            assert "None" in (await servers.call("who")).text
            answered = await servers.call("who", handlers=ClientHandlers(elicitation=ada))
            assert "Ada" in answered.text


def _lists(changed: list[str]) -> list[str]:
    """Return the announcements but for that of the first read of guidance (COORD-81)."""
    return [kind for kind in changed if kind != "guidance"]
