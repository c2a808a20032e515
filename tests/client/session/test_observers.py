"""Observers: the beginning and the end of sessions, circuits, notifications as they came."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foundation_rt.client import BreakerSettings, ServerDescription, connect
from foundation_rt.client.errors import ConnectionLostError, SessionExpiredError
from foundation_rt.client.resilience.circuit_breaker import CircuitState
from foundation_rt.errors import UsageError
from tests.lab.peers.script import Act
from tests.lab.peers.script_memory import (
    BOTH,
    ONCE,
    STATELESS,
    begun,
    error_of,
    refusal,
    result,
    scripted,
)
from tests.lab.waiting import settle

NONCE = {"nonce": "one"}
LIST_CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


class Seen:
    """Keeps the events of a client, in order."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    @property
    def options(self) -> dict[str, Any]:
        return {
            "on_connected": lambda server: self.events.append(("connected", server)),
            "on_disconnected": lambda error: self.events.append(("disconnected", error)),
        }

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]


# -- sessions --------------------------------------------------------------------------------------


@pytest.mark.rule("CLIENT-58")
@pytest.mark.virtual_time
@pytest.mark.parametrize("revision", BOTH)
async def test_the_beginning_and_the_loss_of_a_session_are_seen(revision: str) -> None:
    seen = Seen()
    async with scripted(revision=revision, **seen.options) as (client, harness):
        assert seen.names == []
        await asyncio.gather(*(client.call("play", NONCE) for _ in range(3)))
        assert seen.names == ["connected"]
        assert isinstance(seen.events[0][1], ServerDescription)
        assert seen.events[0][1].revision.name == revision
        harness.transport.lose()  # between calls
        await settle()
        assert seen.names == ["connected", "disconnected"]
        assert isinstance(seen.events[1][1], ConnectionLostError)
        await client.call("play", NONCE)
        assert seen.names == ["connected", "disconnected", "connected"]
    assert len(seen.events) == 3  # closing is no loss


@pytest.mark.rule("CLIENT-58", "CLIENT-59")
@pytest.mark.virtual_time
async def test_an_expired_session_is_lost_before_the_next_begins() -> None:
    seen = Seen()
    points: dict[str, list[Act]] = {"resources/read": [["expire"]]}
    async with scripted(points, has_exchanges=True, **seen.options) as (client, _):
        assert isinstance(await error_of(client.read_resource("play://one")), SessionExpiredError)
        assert len(seen.names) > 3
        assert seen.names == (["connected", "disconnected"] * len(seen.names))[: len(seen.names)]
        assert isinstance(seen.events[1][1], SessionExpiredError)


@pytest.mark.rule("CLIENT-58")
@pytest.mark.virtual_time
@pytest.mark.parametrize(
    "points", [{"open": [["refuse"]]}, {"initialize": [["die"]]}, {"tools/list": [["die"]]}]
)
async def test_a_session_that_nobody_has_is_not_seen(points: dict[str, list[Act]]) -> None:
    seen = Seen()
    async with scripted(points, retries=ONCE, **seen.options) as (client, _):
        await error_of(client.call("play", NONCE))
        assert seen.names == []


@pytest.mark.rule("CLIENT-58", "CLIENT-42")
@pytest.mark.virtual_time
async def test_observers_that_raise_change_nothing() -> None:
    def broken(*_: Any) -> None:
        raise ValueError

    observers = ("on_connected", "on_disconnected", "on_circuit", "on_notification")
    points: dict[str, list[Act]] = {"ping": [refusal(-32603)]}
    options: dict[str, Any] = dict.fromkeys(observers, broken)
    breaker = BreakerSettings(failure_threshold=1)
    async with scripted(points, breaker=breaker, **options) as (client, harness):
        await client.call("play", NONCE)
        harness.transport.tell(LIST_CHANGED)
        harness.transport.lose()
        await settle()
        await client.call("play", NONCE)
        assert (await error_of(client.ping())).code == "E201"
        assert client.circuit_state is CircuitState.OPEN

    async def late(*_: Any) -> None:
        raise AssertionError

    for name in observers:
        with pytest.raises(UsageError, match=name):
            connect("some-server", **{name: late})  # type: ignore[arg-type]


# -- circuits --------------------------------------------------------------------------------------


@pytest.mark.rule("BREAK-22")
@pytest.mark.virtual_time
async def test_the_changes_of_circuits_are_seen() -> None:
    seen: list[tuple[str | None, CircuitState]] = []
    breaker = BreakerSettings(failure_threshold=2, reset_timeout_ms=1_000)
    async with scripted(
        {"tools/call": [refusal(-32603)], "ping": [refusal(-32603)]},
        breaker=breaker,
        tool_breakers=True,
        retries=ONCE,
        on_circuit=lambda tool, state: seen.append((tool, state)),
    ) as (client, harness):
        for _ in range(2):
            await error_of(client.call("play", NONCE))
        assert seen == [("play", CircuitState.OPEN)]
        for _ in range(2):
            await error_of(client.ping())
        assert seen[1:] == [(None, CircuitState.OPEN)]
        await asyncio.sleep(1.1)
        assert client.circuit_state is CircuitState.HALF_OPEN
        harness.play({})
        await client.ping()
        assert seen[2:] == [(None, CircuitState.HALF_OPEN), (None, CircuitState.CLOSED)]


# -- notifications ---------------------------------------------------------------------------------


@pytest.mark.rule("CLIENT-60")
@pytest.mark.virtual_time
async def test_notifications_of_no_call_come_as_they_are() -> None:
    seen: list[tuple[str, Any]] = []
    async with scripted(on_notification=lambda *said: seen.append(said)) as (client, harness):
        (call,) = await begun(client.call("play", {**NONCE, "acts": []}, on_progress=print))
        token = harness.of("tools/call")[0]["id"]
        told: list[tuple[str, dict[str, Any]]] = [
            (LIST_CHANGED, {"_meta": {"x": 10**15}}),
            (UPDATED, {"uri": "play://one", "odd": None}),
            ("notifications/message", {"level": "odd", "data": {"x": 1}}),
            ("notifications/elicitation/complete", {"elicitationId": "e"}),
            ("notifications/tasks/status", {"taskId": "t"}),
            ("odd", {}),
        ]
        for method, params in told:
            harness.transport.tell(method, **params)
        harness.transport.tell("notifications/progress", progressToken=token, progress=1)
        harness.transport.tell("notifications/progress", progressToken="nobody's", progress=1)
        harness.transport.tell("notifications/cancelled", requestId=5)
        await settle()
        assert seen == told
        call.cancel()


@pytest.mark.rule("CLIENT-60")
@pytest.mark.virtual_time
async def test_log_messages_on_the_stream_of_a_call_belong_to_it() -> None:
    seen: list[tuple[str, Any]] = []
    async with scripted(has_exchanges=True, on_notification=lambda *said: seen.append(said)) as (
        client,
        harness,
    ):
        (call,) = await begun(client.call("play", {**NONCE, "acts": []}))
        stream = harness.of("tools/call")[0]["id"]
        harness.transport.tell("notifications/message", stream, level="info", data="x")
        harness.transport.tell(LIST_CHANGED, stream)
        await settle()
        assert seen == [(LIST_CHANGED, {})]
        call.cancel()


@pytest.mark.rule("CLIENT-60", "CLIENT-53")
@pytest.mark.virtual_time
async def test_in_the_stateless_mode_streams_bring_their_notifications() -> None:
    seen: list[tuple[str, Any]] = []
    discovered = result(
        supportedVersions=[STATELESS],
        capabilities={
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {"subscribe": True},
        },
    )
    async with scripted(
        {"server/discover": [discovered]},
        revision=STATELESS,
        on_notification=lambda *said: seen.append(said),
    ) as (client, harness):
        await client.initialize()
        await settle()
        (lists,) = harness.of("subscriptions/listen")
        wanted = lists["params"]["notifications"]
        assert wanted == {"toolsListChanged": True, "promptsListChanged": True}
        async with client.subscribe("play://one"):
            stream = harness.of("subscriptions/listen")[1]["id"]
            told: list[tuple[str, Any]] = [
                (LIST_CHANGED, {"_meta": {SUBSCRIPTION: lists["id"]}}),
                (UPDATED, {"uri": "play://one", "odd": 1, "_meta": {SUBSCRIPTION: stream}}),
            ]
            for method, params in told:
                harness.transport.tell(method, **params)
            await settle()
            assert seen == told
