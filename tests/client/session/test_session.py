"""One session: what it tells the server of calls that are given up, what it hears, what it asks."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client.client import Client
from foundation_rt.client.connecting import connect
from foundation_rt.client.errors import CallTimeoutError, ConnectionLostError, MCPError
from foundation_rt.client.resilience.circuit_breaker import CircuitState
from foundation_rt.client.session import session
from foundation_rt.client.session.open_requests import MAX_OPEN_REQUESTS
from foundation_rt.errors import UsageError
from tests.lab.peers.script import Act
from tests.lab.peers.script_memory import (
    BOTH,
    STATELESS,
    MemoryHarness,
    begun,
    error_of,
    play,
    refusal,
    scripted,
)
from tests.lab.waiting import settle

pytestmark = pytest.mark.virtual_time

NONCE = {"nonce": "one"}


def held(harness: MemoryHarness, method: str = "tools/call") -> str:
    """Return the id of the last request of a method."""
    request_id = harness.of(method)[-1]["id"]
    assert isinstance(request_id, str)
    return request_id


# -- giving up -------------------------------------------------------------------------------------


@pytest.mark.rule("CLIENT-15")
@pytest.mark.parametrize("how", ["cancelled", "late"])
@pytest.mark.parametrize("revision", BOTH)
@pytest.mark.parametrize("has_exchanges", [False, True], ids=["stdio", "HTTP"])
async def test_cancelled_request_notifies_the_server(
    how: str, revision: str, has_exchanges: bool
) -> None:
    """Once, and by a message only where the end of an exchange does not say it."""
    async with scripted(revision=revision, has_exchanges=has_exchanges) as (client, harness):
        (call,) = await begun(client.call("play", {**NONCE, "acts": []}, timeout=5))
        if how == "cancelled":
            call.cancel()
        (outcome,) = await asyncio.gather(call, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError | CallTimeoutError)
        told = [each["params"] for each in harness.of("notifications/cancelled")]
        if has_exchanges and revision == STATELESS:
            assert told == []
        else:
            assert [each["requestId"] for each in told] == [held(harness)]
        assert harness.transport.forgotten == [held(harness)]
        assert (await client.call("play", NONCE)).text == "one"


@pytest.mark.rule("CLIENT-15")
@pytest.mark.parametrize("acts", [[["answer"]], [refusal(-32603)], [["die"]]], ids=repr)
async def test_answered_request_is_not_cancelled(acts: list[Act]) -> None:
    """Cancelled in the very turn in which the answer has come, and nobody is told."""
    async with scripted() as (client, harness):
        await client.initialize()
        arguments = {**NONCE, "acts": [["wait", "go"], *acts]}
        (call,) = await begun(client.call("play", arguments))
        receiver = harness.transport.receiver
        harness.transport.release("go")
        while receiver.requests.pending:  # noqa: ASYNC110 -- not a turn later
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        await settle()
        assert harness.of("notifications/cancelled") == []


@pytest.mark.rule("CLIENT-15", "CLIENT-29")
@given(
    turns=st.integers(0, 60),
    revision=st.sampled_from(BOTH),
    has_exchanges=st.booleans(),
    breaker=st.booleans(),
)
def test_a_call_may_be_cancelled_at_any_moment(
    turns: int, revision: str, has_exchanges: bool, breaker: bool
) -> None:
    """Others are not harmed, the server is told of what it has got, permits are given back."""

    async def scenario(client: Client, harness: MemoryHarness) -> None:
        acts: list[Act] = [["progress", 1], ["wait", "two"]]
        first = asyncio.ensure_future(client.call("play", {**NONCE, "acts": [*acts, ["answer"]]}))
        await settle(turns)
        second = asyncio.ensure_future(client.call("play", {"nonce": "two"}))
        first.cancel()
        assert (await second).text == "two"
        await asyncio.wait([first])
        await settle()
        told = [each["params"]["requestId"] for each in harness.of("notifications/cancelled")]
        sent = {
            each["id"]: each["params"]["arguments"]["nonce"] for each in harness.of("tools/call")
        }
        assert [sent[each] for each in told] in ([], ["one"])
        if first.cancelled() and "one" in sent.values():
            assert bool(told) != (has_exchanges and revision == STATELESS)
        assert harness.transport.receiver.requests.pending.keys() <= {
            each["id"] for each in harness.of("subscriptions/listen")
        }
        assert client.circuit_state is CircuitState.CLOSED
        assert len(harness.transports) == 1
        assert harness.count("initialize") <= 1

    play(scenario, revision=revision, has_exchanges=has_exchanges, tool_breakers=breaker)


@pytest.mark.rule("CLIENT-29")
@given(turns=st.integers(0, 12))
def test_closing_may_be_cancelled_at_any_moment(turns: int) -> None:
    """It closes the channel all the same."""

    async def scenario(client: Client, harness: MemoryHarness) -> None:
        (call,) = await begun(client.call("play", {**NONCE, "acts": []}))
        closing = asyncio.ensure_future(client.close())
        await settle(turns)
        closing.cancel()
        await asyncio.gather(closing, call, return_exceptions=True)
        if turns:
            assert harness.transport.is_closed

    play(scenario)


@pytest.mark.rule("CLIENT-21")
@pytest.mark.parametrize(
    ("points", "may_have_run"),
    [
        ({"open": [["hang"]]}, False),
        ({"initialize": []}, False),
        ({"tools/list": []}, False),
        ({"tools/list": [["answer"], ["jam"]]}, False),
        ({"tools/call": []}, True),
        ({"tools/call": [["die"]]}, True),
        ({"tools/call": [["fail", True]]}, True),
        ({"tools/call": [["fail", False]]}, False),
        ({"open": [["refuse"]]}, False),
        ({"tools/list": [["die"]]}, False),
    ],
    ids=repr,
)
async def test_whether_it_may_have_run(points: dict[str, list[Act]], may_have_run: bool) -> None:
    async with scripted(points, connect_timeout=100, has_exchanges=True) as (client, harness):
        error = await error_of(client.call("play", NONCE, timeout=5))
        assert error.may_have_run == may_have_run
        assert bool(harness.nonces()) == ("tools/call" in points)


# -- what it hears ---------------------------------------------------------------------------------


@pytest.mark.rule("CLIENT-16")
async def test_progress_goes_to_its_own_call() -> None:
    """By the id of the request; other tokens are nobody's, and nonsense is dropped."""
    heard: list[Any] = []

    async with scripted() as (client, harness):

        def note(name: str) -> Any:
            return lambda *progress: heard.append((name, *progress))

        arguments = {**NONCE, "acts": [["wait", "go"], ["answer"]]}
        calls = await begun(
            client.call("play", arguments, on_progress=note("a")),
            client.call("play", arguments, on_progress=note("b")),
            client.call("play", arguments),
        )
        a, b, c = (each["id"] for each in harness.of("tools/call"))
        tokens = [each["params"].get("_meta", {}) for each in harness.of("tools/call")]
        assert [each.get("progressToken") for each in tokens] == [a, b, None]
        tell = harness.transport.tell
        tell("notifications/progress", progressToken=b, progress=1)
        tell("notifications/progress", progressToken=a, progress=2.5, total=5, message="half")
        for nobody in (c, "nobody", 7, None, [], {"a": 1}):
            tell("notifications/progress", progressToken=nobody, progress=1)
        for nonsense in (None, "1", True, [], {}):
            tell("notifications/progress", progressToken=a, progress=nonsense)
        tell("notifications/progress", progressToken=a, progress=3, total="many", message=5)
        harness.transport.release("go")
        await asyncio.gather(*calls)
        tell("notifications/progress", progressToken=a, progress=4)
        assert heard == [("b", 1, None, None), ("a", 2.5, 5, "half"), ("a", 3, None, None)]


@pytest.mark.rule("CLIENT-16")
async def test_log_messages_go_to_the_calls_they_may_belong_to() -> None:
    heard: list[Any] = []

    async with scripted(on_log=lambda *message: heard.append(("all", *message))) as (
        client,
        harness,
    ):

        def note(name: str) -> Any:
            return lambda *message: heard.append((name, *message))

        arguments = {**NONCE, "acts": [["wait", "go"], ["answer"]]}
        calls = await begun(
            client.call("play", arguments, on_log=note("a")),
            client.call("play", arguments, on_log=note("b")),
            client.call("play", arguments),
        )
        tell, a = harness.transport.tell, harness.of("tools/call")[0]["id"]
        tell("notifications/message", level="error", logger="db", data={"x": 1})
        tell("notifications/message", stream=a, level=5, logger=5)
        harness.transport.release("go")
        await asyncio.gather(*calls)
        tell("notifications/message", level="debug", data="late")
        assert heard == [
            ("a", "error", "db", {"x": 1}),
            ("b", "error", "db", {"x": 1}),
            ("all", "error", "db", {"x": 1}),
            ("a", "info", None, None),
            ("all", "info", None, None),
            ("all", "debug", None, "late"),
        ]


@pytest.mark.rule("CLIENT-42")
@pytest.mark.parametrize("revision", BOTH)
@pytest.mark.parametrize("raised", [ValueError, asyncio.CancelledError])
def test_a_callback_that_raises_changes_nothing(
    revision: str, raised: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise raised

    async def scenario(client: Client, harness: MemoryHarness) -> None:
        acts = [["progress", 1], ["flood", 2, {"jsonrpc": "2.0", "method": LOG, "params": {}}]]
        acts += [["flood", 1, {"jsonrpc": "2.0", "method": CHANGED}], ["answer"]]
        result = await client.call(
            "play", {**NONCE, "acts": acts}, on_progress=broken, on_log=broken
        )
        assert result.text == "one"

    play(scenario, revision=revision, on_log=broken, on_list_changed=broken)
    failed = [each for each in caplog.records if each.message == "a callback failed"]
    assert len(failed) == 1 + 2 * 2 + 1


@pytest.mark.rule("CLIENT-42")
def test_a_callback_that_would_have_to_be_awaited_is_refused_at_once() -> None:
    async def late(*_: Any) -> None:
        raise AssertionError

    async def scenario(client: Client, harness: MemoryHarness) -> None:
        for name in ("on_progress", "on_log"):
            callback: Any = {name: late}
            for asked in client.call("play", NONCE, **callback), client.request("x", **callback):
                with pytest.raises(UsageError, match=f"{name} is called, and not awaited"):
                    await asked
        assert harness.sent == []

    play(scenario)
    for option in ("on_log", "on_list_changed", "on_stderr"):
        given: Any = {option: partial(late, 1)}
        with pytest.raises(UsageError, match=f"{option} is called, and not awaited"):
            connect("some-server", **given)


LOG, CHANGED = "notifications/message", "notifications/tools/list_changed"


@pytest.mark.rule("CLIENT-50")
async def test_a_loss_is_a_warning_only_where_somebody_had_the_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "foundation_rt.client")

    async with scripted() as (client, harness):
        harness.play({"tools/list": [["die"]]})
        await error_of(client.initialize(timeout=0.01))
        assert caplog.records == []
        harness.play({})
        await client.initialize()
        harness.transport.lose()
        await settle()
        assert [each.message for each in caplog.records] == [
            "the connection was lost: the server is gone"
        ]


# -- sessions that expire --------------------------------------------------------------------------


@pytest.mark.rule("CLIENT-48")
async def test_pending_requests_may_get_their_own_expiry_error() -> None:
    """A second at most; what has not heard by then may have run."""
    async with scripted() as (client, harness):
        await client.initialize()
        gone = refusal(-32000, "Session not found")
        harness.play({"tools/call": [["wait", "first"], gone]})
        (first,) = await begun(client.call("play", {"nonce": "a"}))
        harness.play({"tools/call": [["wait", "second"], gone]})
        (second,) = await begun(client.call("play", {"nonce": "b"}))
        harness.play({"tools/call": []})
        (third,) = await begun(client.call("play", {"nonce": "c"}))
        harness.play({})
        harness.transport.release("first")
        await asyncio.sleep(0.9)
        assert len(harness.transports) == 1
        harness.transport.release("second")
        assert (await first).text == "a"
        assert (await second).text == "b"
        error = await error_of(third)
        assert error.may_have_run
        assert len(harness.transports) == 2
        assert sorted(harness.nonces()) == ["a", "a", "b", "b", "c"]


@pytest.mark.rule("CLIENT-49")
@pytest.mark.parametrize("revision", BOTH)
async def test_replaced_server_gets_a_new_handshake(revision: str) -> None:
    """It refuses the revision that was agreed on: nothing ran."""
    async with scripted(revision=revision) as (client, harness):
        await client.initialize()
        (call,) = await begun(
            client.call("play", {**NONCE, "acts": [refusal(-32022, supported=[revision])]})
        )
        error = await error_of(call)
        assert (error.may_have_run, error.original_code) == (False, -32022)
        assert len(harness.transports) == 4  # repeated once, and tried three times in all


@pytest.mark.rule("CLIENT-48", "BREAK-16", "BREAK-17")
async def test_waiting_sender_of_an_expired_session_gets_its_error() -> None:
    async with scripted() as (client, harness):
        acts = [["wait", "go"], refusal(-32000, "Session not found")]
        (first,) = await begun(client.call("play", {**NONCE, "acts": acts}))
        (other,) = await begun(client.call("play", {"nonce": "other", "acts": []}))
        harness.transport.jam()
        (waits,) = await begun(client.call("play", {"nonce": "two"}))
        harness.transport.release("go")
        await settle()
        harness.transport.unjam()
        assert (await waits).text == "two"
        assert harness.nonces().count("two") == 1
        assert client._breakers.server.failures == 0
        for each in (first, other):
            each.cancel()
        await asyncio.wait([first, other])


@pytest.mark.rule("CLIENT-48")
async def test_listening_request_does_not_delay_the_next_session() -> None:
    """What listens hears of no change in a session that has expired."""
    async with scripted(revision=STATELESS) as (client, harness):
        await client.initialize()
        await settle()
        assert harness.count("subscriptions/listen") == 1
        loop = asyncio.get_running_loop()
        began = loop.time()
        acts = [["wait", "go"], refusal(-32022, supported=[STATELESS])]
        harness.play({"tools/call": acts})
        (call,) = await begun(client.call("play", NONCE))
        harness.play({})
        harness.transport.release("go")
        assert (await call).text == "one"
        assert loop.time() == began


# -- what the server asks --------------------------------------------------------------------------


def server_request(number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "roots/list"}


@pytest.mark.rule("CLIENT-17")
def test_in_the_stateless_mode_servers_ask_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(client: Client, harness: MemoryHarness) -> None:
        await client.initialize()
        harness.transport.ask(1, "ping")
        harness.transport.ask(2, "roots/list")
        await settle()
        assert harness.answers() == []

    play(scenario, revision=STATELESS, roots=list)
    dropped = [each for each in caplog.records if each.message.startswith("dropped: the server")]
    assert [each.levelname for each in dropped] == ["WARNING", "WARNING"]


@pytest.mark.rule("CLIENT-43")
async def test_server_requests_are_bounded_and_end_with_the_session() -> None:
    started, ended = [], []

    async def handler() -> list[Any]:
        started.append(1)
        try:
            await asyncio.get_running_loop().create_future()
            return []
        finally:
            ended.append(1)

    async with scripted(roots=handler) as (client, harness):
        await client.initialize()
        for number in range(MAX_OPEN_REQUESTS):
            harness.transport.say(server_request(number))
        harness.transport.say(server_request(7))  # this one is open
        harness.transport.say(server_request(1_000))
        await settle()
        refused = {each["id"]: each["error"]["code"] for each in harness.answers()}
        assert refused == {7: -32600, 1_000: -32600}
        assert len(started) == MAX_OPEN_REQUESTS
        harness.transport.tell("notifications/cancelled", requestId=3)
        for nothing in (None, "3", 3.0, [], {}, 5_000):
            harness.transport.tell("notifications/cancelled", requestId=nothing)
        await settle()
        assert len(ended) == 1
        harness.transport.say(server_request(1_001))
        await settle()
        assert len(started) == MAX_OPEN_REQUESTS + 1
        harness.transport.lose()
        await settle()
        assert len(ended) == MAX_OPEN_REQUESTS + 1
        assert len(harness.answers()) == 2


@pytest.mark.rule("CLIENT-43")
async def test_server_request_without_a_result_is_refused() -> None:
    async with scripted(roots=never, handler_timeout=10) as (client, harness):
        await client.initialize()
        harness.transport.ask(1, "sampling/createMessage")
        harness.transport.ask(2, "no/such/method")
        harness.transport.ask(3, "roots/list")
        await asyncio.sleep(10.1)
        codes = {each["id"]: each["error"]["code"] for each in harness.answers()}
        assert codes == {1: -32601, 2: -32601, 3: -32603}


async def never() -> list[Any]:
    await asyncio.get_running_loop().create_future()
    return []


@pytest.mark.rule("CLIENT-29")
async def test_handler_that_ignores_cancellation_delays_no_close() -> None:
    async def stubborn() -> list[Any]:
        for _ in range(4):
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                continue
        return []

    async with scripted(roots=stubborn) as (client, harness):
        await client.initialize()
        harness.transport.say(server_request(1))
        await settle()
        loop = asyncio.get_running_loop()
        before = loop.time()
        await client.close()
        assert loop.time() - before == pytest.approx(1, abs=0.001)
        assert harness.transport.is_closed
        await asyncio.sleep(400)
        assert harness.answers() == []


@pytest.mark.rule("CLIENT-29")
async def test_a_handler_may_close_the_client() -> None:
    async def handler() -> list[Any]:
        await clients[0].close()
        return []

    clients: list[Client] = []
    async with scripted(roots=handler) as (client, harness):
        clients.append(client)
        await client.initialize()
        harness.transport.say(server_request(1))
        await settle()
        assert harness.transport.is_closed


messages = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "requestId"]),
            inner
            | st.sampled_from(["2.0", "notifications/cancelled", "notifications/message", "ping"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.rule("CLIENT-12")
@given(said=st.lists(messages, max_size=6), revision=st.sampled_from(BOTH))
def test_whatever_a_server_says_between_calls_go_on(said: list[Any], revision: str) -> None:
    async def scenario(client: Client, harness: MemoryHarness) -> None:
        arguments = {**NONCE, "acts": [["wait", "go"], ["answer"]]}
        calls = await begun(client.call("play", arguments), client.call("play", {"nonce": "x"}))
        for each in said:
            try:
                harness.transport.say(each)
            except TypeError:  # no JSON of ours: a number beyond 64 bits
                continue
        harness.transport.release("go")
        for each in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(each, MCPError) or each.text in ("one", "x")
        assert (await client.call("play", {"nonce": "y"})).text == "y"

    play(scenario, revision=revision)


# -- mistakes of this program ----------------------------------------------------------------------


@pytest.mark.rule("CLIENT-18")
async def test_bug_while_handling_a_response_fails_its_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*said: Any) -> MCPError:
        raise ZeroDivisionError("some token")

    async with scripted() as (client, harness):
        await client.initialize()
        monkeypatch.setattr(session, "map_mcp_error", broken)
        arguments = {**NONCE, "acts": [refusal(-32603)]}
        error = await error_of(client.call("play", arguments, timeout=5))
        assert isinstance(error, ConnectionLostError)
        assert (error.code, error.may_have_run) == ("E201", True)
        for text in (error.message, caplog.text):
            assert "ZeroDivisionError in line" in text
            assert "some token" not in text
        assert (await client.call("play", NONCE)).text == "one"
        assert harness.count("initialize") == 1
