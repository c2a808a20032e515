"""What a program holds: calls, reads, rounds of input, and what is known of the server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foundation_rt.client.errors import (
    CallTimeoutError,
    ConnectionLostError,
    InvalidResponseError,
    NotOfferedError,
)
from foundation_rt.client.resilience.circuit_breaker import CircuitState
from tests.lab.peers.script import Act
from tests.lab.peers.script_memory import (
    ONCE,
    STATELESS,
    MemoryHarness,
    begun,
    capabilities,
    error_of,
    in_turn,
    refusal,
    result,
    scripted,
    taking,
)
from tests.lab.waiting import settle

pytestmark = pytest.mark.virtual_time

NONCE = {"nonce": "one"}
ROOTS = {"method": "roots/list"}
FOUR = {"role": "assistant", "content": {"type": "text", "text": "4"}, "model": "small"}
STATE = "a state, \u00fc, that nobody reads"


def asks(*names: str, **more: Any) -> Act:
    """Return an answer that asks for roots, under these names."""
    requests = {"inputRequests": dict.fromkeys(names, ROOTS)} if names else {}
    return result(resultType="input_required", **requests, **more)


# -- calls -----------------------------------------------------------------------------------------


@pytest.mark.rule("CLIENT-25")
@pytest.mark.parametrize(
    ("answer", "is_good"),
    [
        ({"content": [], "structuredContent": {"nonce": "x"}}, True),
        ({"content": [], "structuredContent": {"nonce": 5}}, False),
        ({"content": [], "structuredContent": None}, False),
        ({"content": []}, False),
        ({"content": 5, "structuredContent": {"nonce": "x"}}, False),
        ({"content": [], "isError": True}, True),
        ({"content": [], "isError": True, "structuredContent": {"nonce": 5}}, True),
    ],
    ids=repr,
)
async def test_a_structured_result_is_checked(answer: dict[str, Any], is_good: bool) -> None:
    async with scripted() as (client, _):
        arguments = {**NONCE, "acts": [result(**answer)]}
        (outcome,) = await asyncio.gather(client.call("play", arguments), return_exceptions=True)
        if is_good:
            assert outcome.wire == answer  # type: ignore[union-attr]
        else:
            assert isinstance(outcome, InvalidResponseError)
            assert outcome.may_have_run


@pytest.mark.rule("CLIENT-20")
async def test_how_long_a_call_may_take() -> None:
    """What the call says, else what is said of the tool, else of the client."""
    async with scripted(timeout=7, tool_timeouts={"play": 3}) as (client, _):
        await client.initialize()
        for name, timeout, expected in (
            ("play", 1.0, 1.0),
            ("play", None, 3.0),
            ("play_again", None, 7.0),
            ("play", 0, 0.0),
            ("play", -5.0, 0.0),
            ("play", float("nan"), 0.0),
        ):
            with taking(expected):
                call = client.call(name, {**NONCE, "acts": []}, timeout=timeout, idempotent=False)
                assert isinstance(await error_of(call), CallTimeoutError)


@pytest.mark.rule("CLIENT-20")
async def test_one_deadline_for_everything() -> None:
    """For connecting, listing, retries and rounds together."""
    points: dict[str, list[Act]] = {
        "server/discover": [["wait", "discover"], ["answer"]],
        "tools/list": [["wait", "list"], ["answer"]],
        "tools/call": [["wait", "call"], refusal(-32603)],
    }
    async with scripted(points, revision=STATELESS) as (client, harness):
        with taking(5):
            call = asyncio.ensure_future(client.call("play_again", NONCE, timeout=5))
            for what in ("discover", "list", "call"):
                await asyncio.sleep(1.5)
                harness.transport.release(what)
            assert isinstance(await error_of(call), CallTimeoutError)


@pytest.mark.rule("CLIENT-44")
async def test_call_waits_for_a_congested_transport() -> None:
    async with scripted() as (client, harness):
        await client.initialize()
        harness.transport.jam()
        calls = await begun(*(client.call("play", {"nonce": str(each)}) for each in range(5)))
        assert harness.nonces() == []
        harness.transport.unjam()
        assert [each.text for each in await asyncio.gather(*calls)] == list("01234")
        harness.transport.jam()
        (late,) = await begun(client.call("play", NONCE, timeout=1))
        (lost,) = await begun(client.call("play", NONCE))
        error = await error_of(late)
        assert (error.code, error.may_have_run) == ("E202", False)
        harness.transport.receiver.lost(ConnectionLostError("it is gone", may_have_run=True))
        harness.transport.unjam()
        assert (await lost).text == "one"
        assert harness.of("notifications/cancelled") == []


# -- rounds ----------------------------------------------------------------------------------------


@pytest.mark.rule("CLIENT-26")
@pytest.mark.parametrize(
    ("method", "operation"),
    [
        ("tools/call", lambda client: client.call("play", NONCE)),
        ("resources/read", lambda client: client.read_resource("play://one")),
        ("prompts/get", lambda client: client.get_prompt("p", {"a": "b"})),
    ],
)
async def test_input_request_is_answered(method: str, operation: Any) -> None:
    """Only the responses of the last round, with the state as it came, under a new id."""

    async def handler() -> list[str]:
        asked.append(1)
        return ["file:///x"]

    asked: list[int] = []
    async with scripted(revision=STATELESS, roots=handler) as (client, harness):
        await client.initialize()
        last = result(messages=[]) if method == "prompts/get" else ["answer"]
        harness.play({method: in_turn(asks("a", "b", requestState=STATE), asks("c"), last)})
        await operation(client)
        first, second, third = harness.of(method)
        assert len({first["id"], second["id"], third["id"]}) == 3
        params = first["params"]
        roots = {"roots": [{"uri": "file:///x"}]}
        answers = {"inputResponses": {"a": roots, "b": roots}, "requestState": STATE}
        assert second["params"] == {**params, **answers}
        assert third["params"] == {**params, "inputResponses": {"c": roots}}
        assert len(asked) == 3


@pytest.mark.rule("CLIENT-26")
@pytest.mark.parametrize("state", [STATE, "", None, 5, {"a": [1]}], ids=repr)
async def test_a_state_goes_back_as_it_came(state: Any) -> None:
    async with scripted(revision=STATELESS) as (client, harness):
        await client.initialize()
        harness.play({"tools/call": in_turn(asks(requestState=state), ["answer"])})
        await client.call("play", NONCE)
        said = harness.of("tools/call")[1]["params"]
        assert said["requestState"] == state
        assert "inputResponses" not in said


@pytest.mark.rule("CLIENT-26", "CLIENT-14")
@pytest.mark.parametrize(
    "answer",
    [
        asks(),
        asks(inputRequests=None),
        asks(inputRequests=[ROOTS]),
        asks(inputRequests={"a": 5}),
        asks(inputRequests={"a": {"method": "sampling/createMessage", "params": {}}}),
        result(resultType="partial"),
        result(resultType=None),
        result(resultType=["complete"]),
    ],
    ids=repr,
)
async def test_invalid_input_request_is_an_invalid_response(answer: Act) -> None:
    async with scripted(revision=STATELESS, roots=list) as (client, harness):
        await client.initialize()
        harness.play({"tools/call": [answer]})
        error = await error_of(client.call("play", NONCE))
        assert (error.code, error.may_have_run) == ("E209", True)
        assert harness.count("tools/call") == 1


@pytest.mark.rule("CLIENT-26")
async def test_other_requests_ask_nothing_back() -> None:
    async with scripted(revision=STATELESS, roots=list) as (client, harness):
        await client.initialize()
        harness.play({"completion/complete": [asks("a")], "resources/list": [asks("a")]})
        assert (await error_of(client.complete("p", "a"))).code in ("E205", "E209")
        assert (await error_of(client.list_resources())).code == "E209"


@pytest.mark.rule("CLIENT-21", "CLIENT-26", "RETRY-10")
@pytest.mark.parametrize(
    "how", ["lost between", "lost later", "refused", "declined", "late", "thinks"]
)
async def test_call_that_asked_for_input_may_have_run(how: str) -> None:
    """It is not begun anew, whatever becomes of it; the user is not asked twice either."""

    async def handler() -> list[str]:
        asked.append(1)
        if how == "lost between":
            clients[0].transport.lose()
            await settle()
        if how == "declined":
            raise ValueError
        if how == "thinks":
            await asyncio.sleep(1_000)
        return []

    clients: list[MemoryHarness] = []
    asked: list[int] = []
    async with scripted(revision=STATELESS, roots=handler, handler_timeout=20) as (client, harness):
        clients.append(harness)
        await client.initialize()
        second: Act = {
            "refused": refusal(-32602),
            "lost later": ["die"],
            "late": ["progress", 1],
        }.get(how, ["answer"])
        harness.play({"tools/call": in_turn(asks("a"), second)})
        error = await error_of(client.call("play", NONCE, timeout=5))
        assert error.may_have_run
        assert len(asked) == 1
        sent = 2 if how in ("refused", "lost later", "late") else 1
        assert harness.count("tools/call") == sent
        assert error.code == {"late": "E202", "refused": "E203"}.get(
            how, "E201" if how.startswith("lost") else "E210"
        )


@pytest.mark.rule("CLIENT-20", "CLIENT-26")
async def test_a_deadline_stands_still_between_rounds() -> None:
    async def handler() -> list[str]:
        await asyncio.sleep(6)
        return []

    async with scripted(revision=STATELESS, roots=handler, handler_timeout=20) as (client, harness):
        await client.initialize()
        harness.play({"tools/call": in_turn(*[asks("a")] * 3, ["answer"])})
        with taking(18):
            assert (await client.call("play", NONCE, timeout=1)).text == "one"
        harness.play({"tools/call": [asks("a")]})
        with taking(21):
            error = await error_of(client.call("play", NONCE, timeout=1))
        assert isinstance(error, CallTimeoutError)


@pytest.mark.rule("CLIENT-26")
async def test_in_the_handshake_mode_a_result_asks_nothing() -> None:
    async with scripted(roots=list) as (client, harness):
        await client.initialize()
        harness.play({"tools/call": [asks("a")]})
        assert (await error_of(client.call("play", NONCE))).code == "E209"
        assert harness.count("tools/call") == 1


# -- what is known ---------------------------------------------------------------------------------


@pytest.mark.rule("CLIENT-06", "CLIENT-07")
async def test_nothing_is_started_before_the_first_call() -> None:
    async with scripted() as (client, harness):
        await settle()
        assert (client.server, client.stderr_tail, harness.transports) == (None, "", [])
        assert not client.has_capability("tools")
        assert client.circuit_state is CircuitState.CLOSED
        server = await client.initialize()
        assert client.server is server
        assert client.has_capability("tools.listChanged")
        assert not client.has_capability("completions")
        harness.transport.lose()
        await settle()
        assert client.server is None


@pytest.mark.rule("CLIENT-06")
@pytest.mark.parametrize(
    ("capability", "operation"),
    [
        ("resources", lambda client: client.list_resources()),
        ("resources", lambda client: client.list_resource_templates()),
        ("resources", lambda client: client.read_resource("x://y")),
        ("prompts", lambda client: client.list_prompts()),
        ("prompts", lambda client: client.get_prompt("x")),
        ("completions", lambda client: client.complete("x", "y")),
        ("tools", lambda client: client.list_tools()),
        ("tools", lambda client: client.call("x")),
        ("tools", lambda client: client.get_tool_schema("x")),
    ],
)
async def test_missing_capability_is_refused_without_a_request(
    capability: str, operation: Any
) -> None:
    nothing = capabilities(tools=None, resources=None, prompts=None)
    async with scripted({"initialize": [nothing]}, require=()) as (client, harness):
        await client.initialize()
        sent = len(harness.sent)
        error = await error_of(operation(client))
        assert isinstance(error, NotOfferedError)
        assert (error.code, error.capability, error.may_have_run) == ("E205", capability, False)
        assert len(harness.sent) == sent


@pytest.mark.rule("CLIENT-04")
async def test_lost_session_during_set_level_fails_the_start() -> None:
    async with scripted({"logging/setLevel": [["die"]]}, log_level="error", retries=ONCE) as (
        client,
        _,
    ):
        assert isinstance(await error_of(client.ping()), ConnectionLostError)


@pytest.mark.rule("CLIENT-04")
@pytest.mark.parametrize(
    "operation",
    [lambda client: client.call("x"), lambda client: client.get_prompt("x")],
)
async def test_session_that_does_not_begin_ends_any_call(operation: Any) -> None:
    async with scripted({"initialize": [["die"]]}, retries=ONCE) as (client, _):
        error = await error_of(operation(client))
        assert isinstance(error, ConnectionLostError) and not error.may_have_run


@pytest.mark.rule("CLIENT-04")
@pytest.mark.parametrize("acts", [[["answer"]], [refusal(-32601)], [refusal(-32603)]], ids=repr)
async def test_a_log_level_that_is_refused_costs_nothing_else(acts: list[Act]) -> None:
    async with scripted({"logging/setLevel": acts}, log_level="error") as (client, harness):
        await client.call("play", NONCE)
        (sent,) = harness.of("logging/setLevel")
        assert sent["params"] == {"level": "error"}


@pytest.mark.rule("CLIENT-51")
async def test_closed_twice_and_used_afterwards() -> None:
    async with scripted() as (client, harness):
        await client.initialize()
        await asyncio.gather(client.close(), client.close())
        await client.close()
        for operation in (client.call("play", NONCE), client.ping(), client.initialize()):
            error = await error_of(operation)
            assert (error.code, error.retryable, error.may_have_run) == ("E201", False, False)
            assert str(error) == "E201 the client is closed. Make another client."
        assert len(harness.transports) == 1
