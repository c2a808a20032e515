"""The one session there is: made once for all who wait, anew after a loss, not after the end."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.clock import ManualClock
from foundation_rt.client.client import Client
from foundation_rt.client.errors import CallTimeoutError, ConnectionLostError
from foundation_rt.client.options import ClientOptions
from foundation_rt.client.resilience.retries import RetryPolicy
from tests.lab.checks.leaks import tasks
from tests.lab.peers.script import Act
from tests.lab.peers.script_memory import (
    BOTH,
    HANDSHAKE,
    ONCE,
    STATELESS,
    MemoryHarness,
    ScriptedTransport,
    begun,
    error_of,
    must_be_gone,
    play,
    refusal,
    result,
    scripted,
    taking,
)
from tests.lab.waiting import settle

pytestmark = pytest.mark.virtual_time

FIRST = {HANDSHAKE: "initialize", STATELESS: "server/discover"}
modes = pytest.mark.parametrize("revision", BOTH)


@pytest.mark.rule("CLIENT-07")
@modes
async def test_cancelled_caller_leaves_the_new_session_to_others(revision: str) -> None:
    """All may go: the session is made for the next."""
    async with scripted({FIRST[revision]: [["wait", "go"], ["answer"]]}, revision=revision) as (
        client,
        harness,
    ):
        calls = await begun(*(client.call("play", {"nonce": "x"}) for _ in range(10)))
        for each in calls:
            each.cancel()
        await asyncio.wait(calls)
        assert all(each.cancelled() for each in calls)
        harness.transport.release("go")
        assert (await client.call("play", {"nonce": "y"})).text == "y"
        assert len(harness.transports) == 1
        assert harness.nonces() == ["y"]


@pytest.mark.rule("CLIENT-07")
@pytest.mark.parametrize("point", ["open", "initialize", "tools/list"])
async def test_one_that_is_never_ready(point: str) -> None:
    hang: list[Act] = [["hang"]] if point == "open" else []
    async with scripted({point: hang}, retries=ONCE, connect_timeout=5, has_exchanges=True) as (
        client,
        harness,
    ):
        with taking(5):
            error = await error_of(client.call("play", {"nonce": "x"}))
            assert isinstance(error, CallTimeoutError)
            assert not error.may_have_run
            assert "was not ready within 5 s" in error.message or point == "tools/list"
        assert all(each.is_closed for each in harness.transports)


@pytest.mark.rule("CHILD-17")
@pytest.mark.parametrize("point", ["open", "initialize"])
async def test_process_that_is_slow_to_start_is_waited_for_as_long_as_a_call_has_time(
    point: str,
) -> None:
    """It is started once, by the first of three calls, and ended when the last has gone."""
    hang: list[Act] = [["hang"]] if point == "open" else []
    async with scripted({point: hang}, retries=ONCE, connect_timeout=5) as (client, harness):
        with taking(36):
            (longest,) = await begun(client.call("play", {"nonce": "x"}, timeout=36))
            for timeout in (3, 20):
                error = await error_of(client.call("play", {"nonce": "x"}, timeout=timeout))
                assert isinstance(error, CallTimeoutError)
                assert f"within {timeout} s" in error.message
                assert not harness.transport.is_closed
            await error_of(longest)
        await settle()
        assert harness.transport.is_closed
        assert len(harness.transports) == 1


@pytest.mark.rule("CHILD-17")
async def test_process_that_starts_after_connect_timeout_answers_the_call_that_waits() -> None:
    async with scripted({"initialize": [["wait", "go"], ["answer"]]}) as (client, harness):
        (waiting,) = await begun(client.call("play", {"nonce": "x"}))
        await asyncio.sleep(36)
        harness.transport.release("go")
        assert (await waiting).text == "x"
        assert len(harness.transports) == 1


@pytest.mark.rule("CHILD-17")
async def test_process_without_waiting_calls_has_connect_timeout_to_start() -> None:
    async with scripted({"initialize": []}, retries=ONCE, connect_timeout=5) as (client, harness):
        await error_of(client.call("play", {"nonce": "x"}, timeout=1))
        await asyncio.sleep(3)
        assert not harness.transport.is_closed
        await asyncio.sleep(2)
        assert harness.transport.is_closed


@pytest.mark.rule("CLIENT-44")
@pytest.mark.parametrize("point", ["open", "initialize", "tools/list", "jam"])
async def test_timeout_before_sending_shows_the_stderr_of_the_server(
    point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedTransport, "stderr_tail", lambda _: "it writes: no key")

    hang: list[Act] = [["hang"]] if point == "open" else []
    async with scripted({} if point == "jam" else {point: hang}, retries=ONCE) as (client, harness):
        if point == "jam":
            await client.initialize()
            harness.transport.jam()
        error = await error_of(client.call("play", {"nonce": "x"}, timeout=2))
        assert isinstance(error, CallTimeoutError)
        assert (error.message, error.may_have_run) == (
            "a misbehaving server was not ready for tools/call play within 2 s: it writes: no key",
            False,
        )
        with pytest.raises(CallTimeoutError, match="for ping within 1 s: it writes"):
            await client.ping(timeout=1)
        harness.transport.lose()


@pytest.mark.rule("CLIENT-08")
async def test_a_server_of_another_revision_is_warned_of_by_both_names(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("WARNING", "foundation_rt.client")
    spoken = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}}

    introduction = result(serverInfo={"name": "old", "version": "1"}, **spoken)
    async with scripted({"initialize": [introduction]}) as (client, _):
        server = await client.initialize()
        assert server.revision.name == "2024-11-05"
        assert [each.getMessage() for each in caplog.records] == [
            "the server was asked for revision 2025-11-25, and speaks '2024-11-05'"
        ]


@pytest.mark.rule("CLIENT-48")
async def test_a_session_that_expires_again_and_again_is_given_up() -> None:
    """Once for nothing, and then as any other failure."""
    async with scripted(retries=RetryPolicy(max_attempts=3)) as (client, harness):
        gone = refusal(-32000, "Session not found")
        error = await error_of(client.call("play", {"nonce": "x", "acts": [gone]}))
        assert (error.code, error.may_have_run) == ("E201", False)
        assert len(harness.transports) == 1 + 1 + 2


@pytest.mark.rule("CLIENT-29", "CLIENT-51")
@pytest.mark.parametrize("point", ["open", "initialize", "tools/list"])
async def test_closed_while_it_begins(point: str) -> None:
    hang: list[Act] = [["hang"]] if point == "open" else []
    async with scripted({point: hang}) as (client, harness):
        (call,) = await begun(client.call("play", {"nonce": "x"}))
        await client.close()
        must_be_gone(harness) if point != "open" else None
        error = await error_of(call)
        assert isinstance(error, ConnectionLostError)
        assert (error.may_have_run, error.retryable) == (False, False)
        assert len(harness.transports) == 1


@pytest.mark.rule("CLIENT-29")
@given(turns=st.integers(0, 6))
def test_closing_while_it_begins_may_be_cancelled(turns: int) -> None:
    """Whoever is cancelled waits until nothing is left, however long the channel takes."""

    async def scenario(client: Client, harness: MemoryHarness) -> None:
        (call,) = await begun(client.call("play", {"nonce": "x"}))
        harness.transport.farewell = 5.0
        closing = asyncio.ensure_future(client.close())
        await settle(turns)
        closing.cancel()
        await asyncio.wait([closing])
        if turns:
            assert harness.transport.is_closed
            await settle(2)
            assert [each for each in tasks() if "_connect" in each] == []
        await asyncio.gather(call, return_exceptions=True)

    play(scenario, {"initialize": []}, retries=ONCE, connect_timeout=10)


@pytest.mark.rule("CLIENT-07")
async def test_transport_factory_may_raise(clock: ManualClock) -> None:
    """That is no answer of the server's but a mistake: it is not hidden, and harms nothing."""

    def broken() -> MemoryHarness:
        raise ZeroDivisionError

    harness = MemoryHarness(HANDSHAKE)
    makers = [broken, harness.make_transport]
    async with Client(lambda: makers.pop(0)(), ClientOptions()) as client:
        with pytest.raises(ZeroDivisionError):
            await client.ping()
        assert client._breakers.server.failures == 0
        await client.ping()
    assert tasks() == []
