"""Subscriptions that a forwarder accepts, until their end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foundation_rt import ForwardedError, Principal, Server, UsageError
from foundation_rt.testing import ManualClock, ProtocolError, TestClient
from tests.lab.peers.forwarders import ScriptedForwarder
from tests.lab.waiting import until

OLD, NEW = "2025-11-25", "2026-07-28"
TASKS = "io.modelcontextprotocol/tasks"
META = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}}


def server_of(forwarder: ScriptedForwarder, **config: Any) -> Server:
    server = Server("front", config=config)

    @server.resource("own://it", inline=True)
    def it() -> str:
        return "own"

    server.forward(forwarder)
    return server


def accept(request: Any, context: Any) -> dict[str, Any]:
    """Accept all but what is called bad."""
    if request.method == "resources/subscribe":
        if "bad" in request.name:
            raise ForwardedError(-32777, "bad")
        return {"x-y": 1}
    wanted = request.params["notifications"]
    return {
        "notifications": {
            member: [each for each in names if "bad" not in each] + ["never:asked"]
            for member, names in wanted.items()
        }
    }


def updates(client: TestClient) -> list[str]:
    return [
        each["params"]["uri"]
        for each in client.notifications
        if each["method"] == "notifications/resources/updated"
    ]


@pytest.mark.rule("FWD-23", "FWD-25", "FWD-26", "FWD-27", "FWD-32")
async def test_sessions_subscribe_through_the_forwarder() -> None:
    forwarder = ScriptedForwarder(accept)
    server = server_of(forwarder)
    async with TestClient(server) as client:
        big = {"uri": "x:1", "_meta": {"pad": "y" * 10_000}}
        assert await client.request("resources/subscribe", big) == {"x-y": 1}
        await client.request("resources/subscribe", {"uri": "own://it"})
        with pytest.raises(ProtocolError) as error:
            await client.request("resources/subscribe", {"uri": "bad:1"})
        assert error.value.code == -32777
        assert sorted(server.subscribed_resources()) == ["own://it", "x:1"]
        for uri in ("x:1", "bad:1", "own://it"):
            server.resource_updated(uri)
        await client.request("ping")
        assert updates(client) == ["x:1", "own://it"]
        [first, refused] = forwarder.requests
        server.resource_updated("x:1", requests=[refused])
        await client.request("ping")
        server.resource_updated("x:1", requests=[first], principal=Principal("somebody"))
        await client.request("ping")
        assert len(updates(client)) == 2
        server.resource_updated("x:1", requests=[first])
        await client.request("ping")
        assert updates(client)[2:] == ["x:1"]
        assert first.params == {"uri": "x:1"}
        await client.request("resources/subscribe", {"uri": "x:1"})  # replaces the first
        assert forwarder.ended == [first]
        assert await client.request("resources/unsubscribe", {"uri": "x:1"}) == {}
        assert await client.request("resources/unsubscribe", {"uri": "x:1"}) == {}
        assert forwarder.ended == [first, forwarder.requests[2]]
        await client.request("resources/subscribe", {"uri": "x:2"})
        assert len(forwarder.ended) == 2
    assert forwarder.ended[2:] == [forwarder.requests[3]]
    assert server.subscribed_resources() == []


@pytest.mark.rule("FWD-24", "FWD-25", "FWD-27")
async def test_listeners_get_what_the_forwarder_accepts() -> None:
    forwarder = ScriptedForwarder(accept)
    server = server_of(forwarder)
    wanted = {
        "toolsListChanged": True,
        "resourceSubscriptions": ["x:1", "own://it", "bad:1", "x:" + "l" * 9000],
        "taskIds": ["t1", "bad"],
    }
    server.task_changed({"taskId": "t1"})  # before the start nobody is told
    server.elicitation_completed("e1")
    async with TestClient(server, revision=NEW) as client:
        listening = asyncio.ensure_future(
            client.request("subscriptions/listen", {"notifications": wanted, "_meta": META})
        )
        await until(lambda: client.notifications, "it is acknowledged")
        [acknowledged] = client.notifications
        assert acknowledged["params"]["notifications"] == {
            "toolsListChanged": True,
            "resourceSubscriptions": ["own://it", "x:1"],
            "taskIds": ["t1"],
        }
        [request] = forwarder.requests
        kept = {"resourceSubscriptions": ["x:1"], "taskIds": ["t1"]}
        assert request.params == {"notifications": kept}
        server.task_changed({"taskId": "t1", "status": "working", "x-y": 1})
        server.task_changed({"taskId": "bad"})
        for uri in ("x:1", "own://it", "bad:1"):
            server.resource_updated(uri)
        server.list_changed("tools")
        await until(lambda: len(client.notifications) == 5, "all are told")
        task = client.notifications[1]
        assert task["method"] == "notifications/tasks"
        assert task["params"].pop("_meta")
        assert task["params"] == {"taskId": "t1", "status": "working", "x-y": 1}
        assert updates(client) == ["x:1", "own://it"]
        assert forwarder.ended == []
        listening.cancel()
        await until(lambda: forwarder.ended, "the stream ends")
        assert forwarder.ended == [request]
    assert forwarder.ended == [request]


@pytest.mark.rule("FWD-24")
@pytest.mark.parametrize(("subscribe", "others"), [(False, ["x:1"]), (True, [])])
async def test_listeners_of_our_own_do_not_go_to_the_forwarder(
    subscribe: bool, others: list[str]
) -> None:
    capabilities = {"resources": {"listChanged": True, "subscribe": subscribe}}
    forwarder = ScriptedForwarder(accept, capabilities=capabilities)
    async with TestClient(server_of(forwarder), revision=NEW) as client:
        wanted = {"resourceSubscriptions": [*others, "own://it"]}
        params = {"notifications": wanted}
        listening = asyncio.ensure_future(client.request("subscriptions/listen", params))
        await until(lambda: client.notifications, "it is acknowledged")
        acknowledged = client.notifications[0]["params"]["notifications"]
        assert acknowledged == {"resourceSubscriptions": ["own://it"]}
        with pytest.raises(ProtocolError, match="array of strings"):
            wrong = {"notifications": {"resourceSubscriptions": [7]}}
            await client.request("subscriptions/listen", wrong)
        listening.cancel()
    assert forwarder.requests == []


@pytest.mark.rule("FWD-25")
@pytest.mark.parametrize("revision", [OLD, NEW])
async def test_a_subscription_that_comes_too_late_has_ended(revision: str) -> None:
    go, began = asyncio.Event(), asyncio.Event()

    async def late(request: Any, context: Any) -> dict[str, Any]:
        began.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return accept(request, context)

    forwarder = ScriptedForwarder(late)
    server = server_of(forwarder)
    async with TestClient(server, revision=revision) as client:
        if revision == OLD:
            asked = client.request("resources/subscribe", {"uri": "x:1"})
        else:
            wanted = {"notifications": {"resourceSubscriptions": ["x:1"]}}
            asked = client.request("subscriptions/listen", wanted)
        asking = asyncio.ensure_future(asked)
        await began.wait()
        asking.cancel()
        await asyncio.wait([asking])
        go.set()
        await until(lambda: forwarder.ended, "the stream ends")
    assert forwarder.ended == forwarder.requests
    assert server.subscribed_resources() == []


@pytest.mark.rule("FWD-26", "FWD-25")
async def test_subscriptions_through_the_forwarder_are_bounded() -> None:
    forwarder = ScriptedForwarder(accept)
    server = server_of(forwarder, resources={"max_subscriptions": 2})
    async with TestClient(server) as client:
        for number in range(2):
            await client.request("resources/subscribe", {"uri": f"x:{number}"})
        with pytest.raises(ProtocolError) as error:
            await client.request("resources/subscribe", {"uri": "x:2"})
        assert error.value.data["details"]["reason"] == "subscription_limit"
        assert forwarder.ended == [forwarder.requests[2]]


@pytest.mark.rule("FWD-26", "SUB-05", "FWD-25")
@pytest.mark.parametrize(("revision", "most"), [(OLD, 1_000), (NEW, 100)])
async def test_what_is_accepted_beyond_the_limit_of_a_connection_ends(
    revision: str, most: int
) -> None:
    go = asyncio.Event()

    async def late(request: Any, context: Any) -> dict[str, Any]:
        if "late" in str(request.params):
            await go.wait()
        return accept(request, context)

    forwarder = ScriptedForwarder(late)
    server = server_of(forwarder, resources={"max_concurrent_executions": 200})
    async with TestClient(server, revision=revision) as client:

        def ask(uri: str) -> Any:
            if revision == OLD:
                return client.request("resources/subscribe", {"uri": uri})
            params = {"notifications": {"resourceSubscriptions": [uri]}}
            return client.request("subscriptions/listen", params)

        if revision == OLD:
            for number in range(most - 1):
                await ask(f"x:{number}")
        several = 2 if revision == OLD else most + 1
        asked = [asyncio.ensure_future(ask(f"late:{number}")) for number in range(several)]
        await until(lambda: len(forwarder.requests) == most + 1, "all are asked for")
        go.set()
        await until(lambda: any(each.done() and each.exception() for each in asked), "one fails")
        [error] = [each.exception() for each in asked if each.done() and each.exception()]
        assert isinstance(error, ProtocolError)
        details = {"reason": "too_many_subscriptions", "maxSubscriptions": most}
        assert error.data["details"] == details
        await until(lambda: forwarder.ended, "its end is reported")
        assert len(forwarder.ended) == 1
        with pytest.raises(ProtocolError) as refused:
            await ask("another:1")
        assert (refused.value.code, refused.value.data["reason"]) == (
            -32602,
            "too_many_subscriptions",
        )
        assert len(forwarder.requests) == most + 1
        for each in asked:
            each.cancel()


@pytest.mark.rule("FWD-25")
async def test_forwarder_that_fails_at_the_end_of_a_subscription_is_logged() -> None:
    class Failing(ScriptedForwarder):
        def subscription_ended(self, request: Any) -> None:
            raise ValueError("a bug")

    server = server_of(Failing(accept))
    async with TestClient(server, clock=ManualClock()) as client:
        await client.request("resources/subscribe", {"uri": "x:1"})
        assert await client.request("resources/unsubscribe", {"uri": "x:1"}) == {}
        assert client.logs is not None
        [line] = [each for each in client.logs if each["level"] == "error"]
        assert (line["message"], line["error"]["message"]) == ("forwarder failed", "a bug")


@pytest.mark.rule("SUB-16")
async def test_updates_go_to_one_session_or_to_all() -> None:
    keys: list[str] = []

    def note(request: Any, context: Any) -> dict[str, Any]:
        keys.append(context.session_key)
        return {}

    server = server_of(ScriptedForwarder(note))
    async with TestClient(server) as one, TestClient(server) as two:
        for client in (one, two):
            await client.request("resources/subscribe", {"uri": "x:1"})
        server.resource_updated("x:1", session_key=keys[1])
        server.resource_updated("x:1")
        server.resource_updated("x:1", session_key="ended")
        for client in (one, two):
            await client.request("ping")
        assert (updates(one), updates(two)) == (["x:1"], ["x:1"] * 2)
    with pytest.raises(UsageError, match="not of both"):
        server.resource_updated("x:1", session_key="a", principal=object())  # type: ignore[arg-type]
