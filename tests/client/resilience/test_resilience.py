"""Breakers and repetitions around a call: what counts, what is tried again, and what never is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client.client import Client
from foundation_rt.client.connecting import connect
from foundation_rt.client.errors import (
    CallTimeoutError,
    CircuitOpenError,
    ConnectionLostError,
    InvalidResponseError,
    MCPError,
)
from foundation_rt.client.resilience import resilience
from foundation_rt.client.resilience.circuit_breaker import BreakerSettings, CircuitState
from foundation_rt.client.resilience.retries import RetryPolicy
from tests.lab.peers.script import Act
from tests.lab.peers.script_memory import (
    ONCE,
    STATELESS,
    MemoryHarness,
    begun,
    error_of,
    play,
    refusal,
    result,
    scripted,
    taking,
)

pytestmark = pytest.mark.virtual_time

STRICT = BreakerSettings(failure_threshold=1, reset_timeout_ms=30_000)
CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


async def call(client: Client, acts: list[Act], tool: str = "play", **more: Any) -> Any:
    return await client.call(tool, {"nonce": "one", "acts": acts}, **more)


def circuit_after(acts: list[Act], **options: Any) -> CircuitState:
    """Return the state of a circuit that one failure opens, after a call that ends so."""
    seen = []

    async def scenario(client: Client, harness: MemoryHarness) -> None:
        await client.initialize()
        await asyncio.gather(call(client, acts, timeout=5), return_exceptions=True)
        seen.append(client.circuit_state)

    play(scenario, breaker=STRICT, retries=ONCE, **options)
    return seen[0]


# -- what counts as a failure ----------------------------------------------------------------------


@pytest.mark.rule("BREAK-10")
@pytest.mark.parametrize(
    "acts",
    [
        [],
        [["die"]],
        [["fail", True]],
        [refusal(-32603)],
        [refusal(-32000)],
        [refusal(-32001)],
        [refusal(-32099)],
        [refusal(-32768)],
        [["reply", {"result": 5}]],
        [["reply", {"error": {"message": "no code"}}]],
    ],
    ids=repr,
)
def test_failures_of_the_server(acts: list[Act]) -> None:
    assert circuit_after(acts, has_exchanges=True) is OPEN


@pytest.mark.rule("BREAK-16", "CLIENT-25")
@pytest.mark.parametrize(
    "acts",
    [
        [result(content=[], isError=True)],
        [result(content=[], structuredContent={"nonce": 5})],
        [result(content=[])],
        [result(content=5)],
        [refusal(-32602)],
        [refusal(-32601)],
        [refusal(-32002)],
        [refusal(-32603, runId="a handler's")],
        [refusal(1)],
        [refusal(0)],
        [refusal(-12345)],
        [refusal(-31999)],
        [refusal(-32769)],
        [refusal(-32000, "Session not found")],
    ],
    ids=repr,
)
def test_errors_that_are_no_failure_of_the_server(acts: list[Act]) -> None:
    """The tool's own failures, wrong arguments, and what does not fit the tool's schema."""
    assert circuit_after(acts) is CLOSED


@pytest.mark.rule("BREAK-10")
@pytest.mark.parametrize(
    ("acts", "after"),
    [
        ([refusal(-32602)], CLOSED),  # an answer: it is well again
        ([["answer"]], CLOSED),
        ([result(content=[], isError=True)], CLOSED),
        ([refusal(-32603)], OPEN),
        ([["die"]], OPEN),
    ],
    ids=repr,
)
async def test_result_of_a_probe_decides_the_circuit(acts: list[Act], after: CircuitState) -> None:
    async with scripted(breaker=STRICT, retries=ONCE) as (client, _):
        await error_of(call(client, [refusal(-32603)]))
        assert client.circuit_state is OPEN
        await asyncio.sleep(30)
        assert client.circuit_state is HALF_OPEN
        await asyncio.gather(call(client, acts), return_exceptions=True)
        assert client.circuit_state is after


@pytest.mark.rule("BREAK-17")
@pytest.mark.parametrize("how", ["cancelled", "wrong arguments", "no such tool", "not JSON"])
async def test_a_probe_that_says_nothing_is_given_back(how: str) -> None:
    async with scripted(breaker=STRICT, retries=ONCE) as (client, _):
        await error_of(call(client, [refusal(-32603)]))
        await asyncio.sleep(30)
        if how == "cancelled":
            (probe,) = await begun(call(client, []))
            assert isinstance(await error_of(call(client, [])), CircuitOpenError)
            probe.cancel()
            await asyncio.wait([probe])
        elif how == "wrong arguments":
            await error_of(client.call("play", {"nonce": 5}))
        elif how == "no such tool":
            await error_of(client.call("nobody"))
        else:
            await error_of(client.call("play", {"nonce": object()}))
        assert client.circuit_state is HALF_OPEN
        await call(client, [["answer"]])
        assert client.circuit_state is CLOSED


@pytest.mark.rule("CLIENT-28", "BREAK-10")
@pytest.mark.parametrize("where", ["open", "initialize", "tools/list", "tools/call", "later"])
async def test_one_lost_connection_is_one_failure_however_many_wait(where: str) -> None:
    points: dict[str, list[Act]] = {where: [["refuse" if where == "open" else "die"]]}
    acts: list[Act] = [["die"]] if where == "tools/call" else []

    async with scripted(points, retries=ONCE, breaker=BreakerSettings(failure_threshold=3)) as (
        client,
        harness,
    ):
        if where == "later":
            await client.initialize()
            client.invalidate()
            harness.play({"tools/list": [["die"]]})
        calls = await begun(*(call(client, acts) for _ in range(100)))
        for each in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(each, ConnectionLostError)
        assert client._breakers.server.failures == 1


@pytest.mark.rule("BREAK-10")
async def test_every_call_that_is_late_is_a_failure() -> None:
    async with scripted(retries=ONCE) as (client, _):
        await client.initialize()
        calls = await begun(*(call(client, [], timeout=1) for _ in range(4)))
        await asyncio.gather(*calls, return_exceptions=True)
        assert client._breakers.server.failures == 4


@pytest.mark.rule("BREAK-10")
async def test_a_tools_own_circuit() -> None:
    """It opens for that tool alone; refused by it, the server's permit is given back."""
    breaker = BreakerSettings(failure_threshold=2, reset_timeout_ms=30_000)
    async with scripted(breaker=breaker, tool_breakers=True, retries=ONCE) as (client, _):
        for _ in range(2):
            await error_of(call(client, [refusal(-32603)]))
            await call(client, [["answer"]], tool="play_again")
        assert client.tool_circuit_state("play") is OPEN
        assert client.tool_circuit_state("play_again") is CLOSED
        assert client.tool_circuit_state("nobody") is CLOSED
        assert client.circuit_state is CLOSED
        for _ in range(3):
            refused = await error_of(call(client, [["answer"]]))
            assert isinstance(refused, CircuitOpenError)
        assert client._breakers.server.failures == 0
        await asyncio.sleep(30)
        await call(client, [["answer"]])
        assert client.tool_circuit_state("play") is CLOSED


@pytest.mark.rule("BREAK-17")
async def test_the_servers_only_probe_is_given_back_where_the_tool_refuses() -> None:
    async with scripted(breaker=STRICT, tool_breakers=True, retries=ONCE) as (client, _):
        slow = await begun(call(client, [], timeout=10))
        await error_of(call(client, [], tool="play_again", timeout=5))
        await error_of(slow[0])  # the circuit of the tool opens later than that of the server
        await asyncio.sleep(26)
        assert client.circuit_state is HALF_OPEN
        assert client.tool_circuit_state("play") is OPEN
        assert isinstance(await error_of(call(client, [])), CircuitOpenError)
        await call(client, [["answer"]], tool="play_again")
        assert client.circuit_state is CLOSED


@pytest.mark.rule("BREAK-11")
@pytest.mark.parametrize(
    ("acts", "is_the_servers"),
    [
        ([refusal(-32603)], False),
        ([refusal(-32001)], False),
        ([["reply", {"result": 5}]], False),
        ([["die"]], True),
        ([], True),
    ],
    ids=repr,
)
async def test_tool_failure_that_came_as_answer_does_not_count_for_its_server(
    acts: list[Act], is_the_servers: bool
) -> None:
    async with scripted(breaker=STRICT, tool_breakers=True, retries=ONCE) as (client, _):
        await client.initialize()
        await error_of(call(client, acts, timeout=5))
        assert client.tool_circuit_state("play") is OPEN
        assert client.circuit_state is (OPEN if is_the_servers else CLOSED)


@pytest.mark.rule("BREAK-11")
async def test_call_that_is_tried_three_times_is_one_failure() -> None:
    """Two failing reads, six requests, are two failures of the five that open the circuit."""
    async with scripted() as (client, harness):
        for number in (1, 2):
            await error_of(call(client, [refusal(-32603)], idempotent=True))
            assert harness.nonces() == ["one"] * 3 * number
            assert client._breakers.server.failures == number
        assert client.circuit_state is CLOSED


@pytest.mark.rule("BREAK-11")
async def test_call_whose_second_attempt_succeeds_is_a_success() -> None:
    async with scripted() as (client, harness):
        await error_of(call(client, [refusal(-32603)]))
        harness.play({"tools/call": [refusal(-32603)]})
        (failing,) = await begun(client.call("play_again", {"nonce": "two"}))
        assert client._breakers.server.failures == 1
        harness.play({})
        await failing
        assert harness.nonces() == ["one", "two", "two"]
        assert client._breakers.server.failures == 0


@pytest.mark.rule("BREAK-11")
async def test_failing_probe_is_tried_once() -> None:
    async with scripted(breaker=STRICT) as (client, harness):
        await error_of(call(client, [refusal(-32603)], idempotent=True))
        assert client.circuit_state is OPEN
        await asyncio.sleep(30)
        assert client.circuit_state is HALF_OPEN
        sent = len(harness.nonces())
        await error_of(call(client, [refusal(-32603)], idempotent=True))
        assert len(harness.nonces()) == sent + 1
        assert client.circuit_state is OPEN


# -- what is answered without the server -----------------------------------------------------------


@pytest.mark.rule("BREAK-12")
async def test_server_that_fails_every_call_opens_the_circuit_whatever_is_read_from_the_cache() -> (
    None
):
    async with scripted(retries=ONCE) as (client, harness):
        for _ in range(5):
            await error_of(call(client, [refusal(-32603)]))
            await client.list_tools()
            await client.get_tool_schema("play")
            await client.initialize()
        assert client.circuit_state is OPEN
        assert harness.count("tools/list") == harness.count("initialize") == 1


@pytest.mark.rule("BREAK-12")
@pytest.mark.parametrize("is_lost", [False, True])
async def test_cached_list_is_answered_while_the_circuit_is_open(is_lost: bool) -> None:
    async with scripted(breaker=STRICT, retries=ONCE) as (client, harness):
        listed = await client.list_tools()
        await error_of(call(client, [["die"] if is_lost else refusal(-32603)]))
        assert client.circuit_state is OPEN
        sent = len(harness.sent)
        assert await client.list_tools() == listed
        assert (await client.get_tool_schema("play")).name == "play"
        assert isinstance(await error_of(call(client, [["answer"]])), CircuitOpenError)
        client.invalidate()
        assert isinstance(await error_of(client.list_tools()), CircuitOpenError)
        assert len(harness.sent) == sent
        assert len(harness.transports) == 1


@pytest.mark.rule("BREAK-12")
async def test_half_open_circuit_is_not_closed_by_an_answer_from_the_cache() -> None:
    async with scripted(breaker=STRICT, retries=ONCE) as (client, _):
        await error_of(call(client, [refusal(-32603)]))
        await asyncio.sleep(30)
        (probe,) = await begun(call(client, []))
        await client.list_tools()  # also while the only probe is under way
        await client.initialize()
        assert client.circuit_state is HALF_OPEN
        probe.cancel()
        await asyncio.wait([probe])
        await client.list_tools()
        assert client.circuit_state is HALF_OPEN


@pytest.mark.rule("BREAK-13", "BREAK-19", "BREAK-10")
@pytest.mark.parametrize(("has_exchanges", "after"), [(True, CLOSED), (False, OPEN)])
async def test_late_call_that_was_not_sent_is_a_failure_only_where_the_server_does_not_read(
    has_exchanges: bool, after: CircuitState
) -> None:
    async with scripted(breaker=STRICT, retries=ONCE, has_exchanges=has_exchanges) as (
        client,
        harness,
    ):
        await client.initialize()
        harness.transport.jam()
        for each in await begun(*(call(client, [["answer"]], timeout=1) for _ in range(5))):
            error = await error_of(each)
            assert isinstance(error, CallTimeoutError)
            assert not error.may_have_run
        assert client.circuit_state is after
        harness.transport.unjam()
        if after is CLOSED:
            await call(client, [["answer"]])


@pytest.mark.rule("BREAK-18", "BREAK-02")
@pytest.mark.parametrize("has_begun", [False, True])
async def test_waiting_call_is_not_sent_after_the_circuit_opened(has_begun: bool) -> None:
    asks = result(resultType="input_required", requestState="x")
    acts: list[Act] = [["wait", "on"], asks] if has_begun else [["answer"]]

    async with scripted(breaker=STRICT, retries=ONCE, has_exchanges=True, revision=STATELESS) as (
        client,
        harness,
    ):
        await client.initialize()
        slow = await begun(call(client, [], timeout=1))
        first = await begun(call(client, acts)) if has_begun else []
        harness.transport.jam()
        second = first or await begun(call(client, acts))
        harness.transport.release("on")
        await error_of(slow[0])
        assert client.circuit_state is OPEN
        sent = len(harness.of("tools/call"))
        harness.transport.unjam()
        error = await error_of(second[0])
        assert isinstance(error, CircuitOpenError)
        assert error.may_have_run is has_begun
        assert len(harness.of("tools/call")) == sent


@pytest.mark.rule("BREAK-13", "BREAK-03")
async def test_call_that_waits_for_its_turn_is_a_probe_only_when_it_is_sent() -> None:
    async with scripted(breaker=STRICT, retries=ONCE, has_exchanges=True) as (client, harness):
        await error_of(call(client, [refusal(-32603)]))
        await asyncio.sleep(30)
        harness.transport.jam()
        late, patient, refused = await begun(
            call(client, [["answer"]], timeout=40),
            call(client, [["wait", "on"], ["answer"]]),
            call(client, [["answer"]]),
        )
        assert isinstance(await error_of(late), CallTimeoutError)
        assert client.circuit_state is HALF_OPEN  # longer than a probe may take
        harness.transport.unjam()
        assert isinstance(await error_of(refused), CircuitOpenError)
        harness.transport.release("on")
        await patient
        assert client.circuit_state is CLOSED


@pytest.mark.rule("BREAK-16")
async def test_made_up_names_do_not_pile_up() -> None:
    async with scripted(tool_breakers=True) as (client, _):
        for each in range(20):
            await error_of(client.call(f"made up {each}"))
        assert client._breakers._tools == {}


# -- what is tried again ---------------------------------------------------------------------------


@pytest.mark.rule("BREAK-23")
async def test_circuits_without_failures_make_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resilience, "MAX_TOOL_BREAKERS", 3)
    points: dict[str, list[Act]] = {"tools/call": [result()]}
    breaker = BreakerSettings(failure_threshold=2)
    async with scripted(points, tool_breakers=True, breaker=breaker, retries=ONCE) as (
        client,
        harness,
    ):

        async def call_each(*names: str) -> set[str]:
            for name in names:
                params = {"name": name}
                await asyncio.gather(client.request("tools/call", params), return_exceptions=True)
            return {*client._breakers._tools}

        assert await call_each(*"abc") == {*"abc"}
        assert await call_each("d") == {"d"}
        harness.play({"tools/call": [refusal(-32603)]})
        assert await call_each(*"dde") == {"d", "e"}
        assert client.tool_circuit_state("d") is CircuitState.OPEN
        assert await call_each("f") == {"d", "e", "f"}
        assert await call_each("g") == {"e", "f", "g"}


@pytest.mark.rule("RETRY-10")
async def test_call_that_did_not_run_is_repeated() -> None:
    async with scripted() as (client, harness):
        details = {"reason": "rate_limit", "retryAfterMs": 700}
        busy = refusal(-32000, code="RESOURCE_EXHAUSTED", details=details)
        began = asyncio.get_running_loop().time()
        error = await error_of(call(client, [busy]))
        assert (error.code, error.may_have_run) == ("E208", False)
        assert harness.nonces() == ["one"] * 3
        # 2 waits, which are never shorter than the server asked for.
        assert asyncio.get_running_loop().time() - began == pytest.approx(1.4, abs=0.001)


@pytest.mark.rule("RETRY-12", "CLIENT-20")
async def test_nothing_is_tried_past_the_deadline() -> None:
    """A wait that would outlast it is not begun: the error comes at once."""
    async with scripted(retries=RetryPolicy(base_delay_ms=1_000)) as (client, harness):
        await client.initialize()
        with taking(0.5):
            error = await error_of(call(client, [refusal(-32603)], idempotent=True, timeout=1.4))
            assert not isinstance(error, CallTimeoutError)
            assert harness.nonces() == ["one"] * 2


@pytest.mark.rule("RETRY-13")
async def test_nothing_is_tried_inside_an_open_circuit() -> None:
    """The error is the one the call had before the circuit opened: it says more than a refusal."""
    async with scripted(breaker=STRICT) as (client, harness):
        (waiting,) = await begun(call(client, [refusal(-32603)], idempotent=True))
        assert harness.nonces() == ["one"]
        await error_of(call(client, [refusal(-32603)]))  # opens it meanwhile
        error = await error_of(waiting)
        assert not isinstance(error, CircuitOpenError)
        assert (error.original_code, error.may_have_run) == (-32603, True)
        assert harness.nonces() == ["one"] * 2
        refused = await error_of(call(client, [["answer"]]))
        assert isinstance(refused, CircuitOpenError)
        assert (refused.code, refused.may_have_run) == ("E201", False)
        assert harness.nonces() == ["one"] * 2


@pytest.mark.rule("RETRY-11")
@pytest.mark.parametrize("number", [-32603, 0])
async def test_prompt_refused_for_a_missing_argument_is_not_repeated(number: int) -> None:
    arguments = [{"name": "city", "required": True}, {"name": "day"}, 5, {"required": True}]
    prompts = [{"name": "other"}, 7, {"name": "weather", "arguments": arguments}]

    points = {"prompts/get": [refusal(number)], "prompts/list": [result(prompts=prompts)]}
    async with scripted(points, require={"prompts"}, breaker=STRICT) as (client, harness):
        error = await error_of(client.get_prompt("weather", {"day": "Monday"}))
        assert (error.code, error.retryable, error.original_code) == ("E203", False, number)
        assert "requires city" in error.message
        assert harness.count("prompts/get") == harness.count("prompts/list") == 1
        assert client.circuit_state is CLOSED


@pytest.mark.rule("RETRY-11", "RETRY-10")
@pytest.mark.parametrize("listing", [result(prompts=[{"name": "weather"}]), refusal(-32603)])
async def test_prompt_that_lacks_nothing_is_tried_again(listing: Act) -> None:
    points = {"prompts/get": [refusal(-32603)], "prompts/list": [listing]}
    async with scripted(points, require={"prompts"}) as (client, harness):
        error = await error_of(client.get_prompt("weather"))
        assert (error.code, error.original_code) == ("E201", -32603)
        assert harness.count("prompts/get") == 3


@pytest.mark.rule("RETRY-12")
async def test_all_calls_share_one_budget() -> None:
    breaker = BreakerSettings(failure_threshold=1_000)
    async with scripted(retries=RetryPolicy(budget=4), breaker=breaker) as (client, harness):
        await client.initialize()
        calls = [call(client, [refusal(-32603)], idempotent=True) for _ in range(10)]
        await asyncio.gather(*calls, return_exceptions=True)
        assert len(harness.nonces()) == 10 + 4


@pytest.mark.rule("CLIENT-28", "RETRY-14")
@pytest.mark.parametrize("revision", ["2024-11-05", STATELESS])
async def test_a_lost_session_is_made_again_once_without_a_pause(revision: str) -> None:
    """It is neither paid for nor waited for; a second loss is, as any other failure."""
    async with scripted(revision=revision, retries=RetryPolicy(budget=0)) as (client, harness):
        await client.initialize()
        loop = asyncio.get_running_loop()
        began = loop.time()
        (dying,) = await begun(call(client, [["die"]], "play_again"))
        error = await error_of(dying)
        assert isinstance(error, ConnectionLostError)
        assert harness.nonces() == ["one"] * 2
        assert loop.time() == began


@pytest.mark.rule("CLIENT-28", "RETRY-14")
async def test_a_call_that_ends_its_server_runs_once_more_than_it_is_tried() -> None:
    async with scripted(revision="2024-11-05", retries=RetryPolicy(max_attempts=3)) as (
        client,
        harness,
    ):
        await client.initialize()
        await error_of(call(client, [["die"]], "play_again"))
        assert harness.nonces() == ["one"] * (3 + 1)


@pytest.mark.rule("BREAK-05")
def test_circuit_state_needs_no_event_loop() -> None:
    clients = []

    async def scenario(client: Client, harness: MemoryHarness) -> None:
        clients.append(client)
        await error_of(call(client, [["die"]]))

    play(scenario, breaker=STRICT, retries=ONCE, tool_breakers=True)
    (client,) = clients
    assert client.circuit_state is client.tool_circuit_state("play") is OPEN
    unused = connect("some-server")
    assert unused.circuit_state is unused.tool_circuit_state("play") is CLOSED


@pytest.mark.rule("CLIENT-28", "CLIENT-07")
@pytest.mark.parametrize("how", ["lost", "expired"])
async def test_a_hundred_calls_are_repeated_in_one_new_session(how: str) -> None:
    async with scripted(retries=RetryPolicy(max_attempts=1)) as (client, harness):
        await client.initialize()
        harness.play({"tools/call": [["wait", "go"], refusal(-32000, "Session not found")]})
        tool = "play_again" if how == "lost" else "play"
        calls = await begun(*(client.call(tool, {"nonce": str(each)}) for each in range(100)))
        harness.play({})
        if how == "lost":
            harness.transport.lose()
        else:
            harness.transport.release("go")
        texts = [each.text for each in await asyncio.gather(*calls)]
        assert texts == [str(each) for each in range(100)]
        assert (
            harness.count("initialize")
            == harness.count("tools/list")
            == len(harness.transports)
            == 2
        )
        assert len(harness.nonces()) == 200
        assert client._breakers.server.failures == 0


@pytest.mark.rule("CLIENT-21")
@pytest.mark.parametrize("acts", [[["die"]], []], ids=["lost", "late"])
async def test_an_error_speaks_for_all_tries(acts: list[Act]) -> None:
    """The first try may have run; that the last one cannot have run does not help."""
    async with scripted(connect_timeout=100) as (client, harness):
        await client.initialize()
        harness.play({"open": [["hang"]]})
        error = await error_of(call(client, acts, "play_again", timeout=5))
        assert isinstance(error, CallTimeoutError)
        assert error.may_have_run


verdicts = st.sampled_from(["answer", "fails", "refuses", "late", "dies"])


@pytest.mark.rule("RETRY-10", "RETRY-12", "BREAK-10")
@given(
    histories=st.lists(st.tuples(verdicts, st.booleans()), min_size=1, max_size=8),
    attempts=st.integers(1, 4),
    threshold=st.integers(1, 4),
    budget=st.integers(0, 4),
)
def test_any_sequence_of_calls(
    histories: list[tuple[str, bool]], attempts: int, threshold: int, budget: int
) -> None:
    """How often each may have reached the server, whatever happened before it."""
    acts: dict[str, list[Act]] = {
        "answer": [["answer"]],
        "fails": [refusal(-32603)],
        "refuses": [refusal(-32602)],
        "late": [],
        "dies": [["die"]],
    }

    async def scenario(client: Client, harness: MemoryHarness) -> None:
        for number, (verdict, idempotent) in enumerate(histories):
            before = client.circuit_state
            arguments = {"nonce": str(number), "acts": acts[verdict]}
            operation = client.call("play", arguments, idempotent=idempotent, timeout=3)
            (outcome,) = await asyncio.gather(operation, return_exceptions=True)
            reached = harness.nonces().count(str(number))
            if before is OPEN:
                assert isinstance(outcome, CircuitOpenError)
                assert reached == 0
                continue
            assert 1 <= reached <= attempts + 1
            if not idempotent or verdict in ("answer", "refuses", "late"):
                assert reached == 1
            assert isinstance(outcome, MCPError) == (verdict != "answer")
            if isinstance(outcome, MCPError):
                assert outcome.may_have_run == (verdict != "refuses")
                assert not isinstance(outcome, InvalidResponseError)

    play(
        scenario,
        retries=RetryPolicy(max_attempts=attempts, budget=budget),
        breaker=BreakerSettings(failure_threshold=threshold, reset_timeout_ms=4_000),
    )
