"""Who is told of what: `resources/subscribe`, `subscriptions/listen`, lists that change."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from foundation_rt import Server, ToolContext, ToolDefinition, UsageError
from foundation_rt.features.subscriptions.methods import subscriptions_of
from foundation_rt.features.subscriptions.subscriptions import (
    MAX_LISTENING,
    MAX_SUBSCRIPTION_ID_LENGTH,
    MAX_TOPICS,
)
from tests.lab.peers.answering_client import AnsweringClient
from tests.lab.servers.asgi import META
from tests.lab.servers.fixture import ServerFixture

STATELESS = "2026-07-28"
HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
ANOTHER = {"tools": "prompts", "prompts": "resources", "resources": "tools"}
ID_KEY = "io.modelcontextprotocol/subscriptionId"
NOTHING = ToolDefinition("nothing", "", {"type": "object"})


@pytest.fixture
def fixture() -> Iterator[ServerFixture]:
    fixture = ServerFixture(level="debug")

    @fixture.server.resource("note://all")
    def notes() -> str:
        return ""

    @fixture.server.resource("note://{id}")
    def note(id: int) -> str:
        return ""

    yield fixture
    fixture.assert_all_ended()


def updated(uri: str, subscription_id: Any = None) -> dict[str, Any]:
    params: dict[str, Any] = {"uri": uri}
    if subscription_id is not None:
        params["_meta"] = {ID_KEY: subscription_id}
    return {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params}


def changed(kind: str, subscription_id: Any = None) -> dict[str, Any]:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"}
    if subscription_id is not None:
        message["params"] = {"_meta": {ID_KEY: subscription_id}}
    return message


async def subscribe(client: AnsweringClient, uri: str, word: str = "subscribe") -> dict[str, Any]:
    client.request(f"resources/{word}", {"uri": uri})
    return await client.next()


async def listen(client: AnsweringClient, **wanted: Any) -> tuple[int, dict[str, Any]]:
    """Open a subscription; return its id and what of it is honoured."""
    request_id = client.request("subscriptions/listen", {"notifications": wanted})
    message = await client.next()
    assert message["method"] == "notifications/subscriptions/acknowledged", message
    assert message["params"]["_meta"] == {ID_KEY: request_id}
    return request_id, message["params"]["notifications"]


# -- the handshake mode ----------------------------------------------------------------------------


@pytest.mark.rule("SUB-14")
@pytest.mark.parametrize("kind", ["tools", "resources", "prompts"])
async def test_list_changed_notifies_every_client_without_a_registration(
    fixture: ServerFixture, kind: str
) -> None:
    fixture.server.resource("note://1")(lambda: "")
    fixture.server.prompt(name="p")(lambda: "")
    sessions = [AnsweringClient(fixture.server, revision) for revision in HANDSHAKES]
    listener, other = (AnsweringClient(fixture.server, STATELESS) for _ in range(2))
    request_id, _ = await listen(listener, **{f"{kind}ListChanged": True})
    await listen(other, **{f"{ANOTHER[kind]}ListChanged": True})
    for notify in (in_a_thread, lambda function: function()):
        notify(lambda: fixture.server.list_changed(kind))
        for client in sessions:
            assert await client.next() == changed(kind)
        assert await listener.next() == changed(kind, request_id)
    assert other.unread() == []


@pytest.mark.rule("SUB-14", "LIFE-13")
async def test_list_that_was_not_offered_is_not_notified(fixture: ServerFixture) -> None:
    fixture.server.list_changed("tools")  # nobody is there
    client = AnsweringClient(fixture.server)
    fixture.server.list_changed("prompts")
    await client.settle()
    assert client.unread() == []


@pytest.mark.rule("SUB-14")
@pytest.mark.parametrize("kind", ["tool", "", "tools/list", None])
def test_unknown_list_is_a_usage_error(kind: Any) -> None:
    with pytest.raises(UsageError, match="tools, resources or prompts"):
        Server().list_changed(kind)
    Server().list_changed("tools")  # the server has not been started


def in_a_thread(function: Callable[[], object]) -> None:
    """Call it in another thread, and wait for its end."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


@pytest.mark.rule("SUB-01", "SUB-02", "SUB-07", "MRES-26")
async def test_subscriber_is_notified_until_it_unsubscribes(fixture: ServerFixture) -> None:
    client, other = AnsweringClient(fixture.server), AnsweringClient(fixture.server)
    for uri in ("note://all", "note://5", "note://5"):
        assert (await subscribe(client, uri))["result"] == {}
    await subscribe(other, "NOTE://%61ll")
    fixture.server.resource_updated("note://5")
    fixture.server.resource_updated("note://6")
    fixture.server.resource_updated("note://all")
    await client.settle()
    assert client.unread() == [updated("note://5"), updated("note://all")]
    assert other.unread() == [updated("note://all")]
    for uri in ("note://5", "note://5", "note://never"):
        assert (await subscribe(client, uri, "unsubscribe"))["result"] == {}
    fixture.server.resource_updated("note://5")
    fixture.server.resource_updated("note://all")
    await client.settle()
    assert client.unread() == [updated("note://all")]


@pytest.mark.rule("SUB-13")
async def test_server_knows_which_resources_have_subscribers(fixture: ServerFixture) -> None:
    assert not fixture.server.subscribed_resources()
    session = AnsweringClient(fixture.server)
    stateless = AnsweringClient(fixture.server, "2026-07-28")
    await subscribe(session, "note://all")
    await listen(stateless, toolsListChanged=True, resourceSubscriptions=["note://5", "note://all"])
    assert sorted(fixture.server.subscribed_resources()) == ["note://5", "note://all"]
    stateless.connection.close()
    assert fixture.server.subscribed_resources() == ["note://all"]
    await subscribe(session, "note://all", "unsubscribe")
    assert not fixture.server.subscribed_resources()


@pytest.mark.rule("SUB-10")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25"])
async def test_subscription_to_unknown_resource_is_refused(
    revision: str, fixture: ServerFixture
) -> None:
    client = AnsweringClient(fixture.server, revision)
    error = (await subscribe(client, "other://x"))["error"]
    assert (error["code"], error["data"]["uri"]) == (-32002, "other://x")
    for params in ({}, {"uri": 5}, {"uri": None}, {"uri": "note://" + "9" * 10_000}):
        for word in ("subscribe", "unsubscribe"):
            client.request(f"resources/{word}", params)
            assert (await client.next())["error"]["code"] == -32602
    client.write(id="x", method="resources/subscribe")
    assert (await client.next())["error"]["code"] == -32602


@pytest.mark.rule("SUB-01")
async def test_server_without_resources_has_no_subscriptions() -> None:
    fixture = ServerFixture()
    client = AnsweringClient(fixture.server)
    for word in ("subscribe", "unsubscribe"):
        assert (await subscribe(client, "note://5", word))["error"]["code"] == -32601
    fixture.server.resource_updated("note://5")  # nobody can listen, and nothing happens
    modern = AnsweringClient(fixture.server, STATELESS)
    assert (await listen(modern, resourceSubscriptions=["note://5"]))[1] == {}
    assert (await subscribe(modern, "note://5"))["error"]["code"] == -32601


@pytest.mark.rule("SUB-05")
async def test_topics_of_session_are_bounded(fixture: ServerFixture) -> None:
    client = AnsweringClient(fixture.server)
    for number in range(MAX_TOPICS):
        assert "result" in await subscribe(client, f"note://{number}")
    assert "result" in await subscribe(client, "note://0")  # no more than before
    error = (await subscribe(client, "note://all"))["error"]
    assert (error["code"], error["data"]["reason"]) == (-32602, "too_many_subscriptions")
    await subscribe(client, "note://0", "unsubscribe")
    assert "result" in await subscribe(client, "note://all")


# -- the stateless mode ----------------------------------------------------------------------------


@pytest.mark.rule("SUB-03", "SUB-04")
async def test_honoured_fields_are_acknowledged_first(fixture: ServerFixture) -> None:
    client = AnsweringClient(fixture.server, STATELESS)
    _, honoured = await listen(
        client,
        toolsListChanged=True,
        promptsListChanged=False,
        resourcesListChanged=None,
        resourceSubscriptions=["note://5", "other://x", "note://5"],
        somethingElse=True,
    )
    assert honoured == {"toolsListChanged": True, "resourceSubscriptions": ["note://5"]}
    assert (await listen(client))[1] == {}


@pytest.mark.rule("SUB-02", "SUB-03", "SUB-07")
async def test_each_subscription_gets_its_own_notifications(fixture: ServerFixture) -> None:
    client = AnsweringClient(fixture.server, STATELESS)
    tools, _ = await listen(client, toolsListChanged=True)
    prompts, _ = await listen(client, promptsListChanged=True, resourcesListChanged=True)
    both, _ = await listen(client, resourceSubscriptions=["note://5"], toolsListChanged=True)
    fixture.server.register(NOTHING, lambda arguments, context: None)
    fixture.server.prompt(name="p")(lambda: "x")
    fixture.server.unregister_resource("note://all")
    fixture.server.resource_updated("note://5")
    fixture.server.resource_updated("note://6")
    await client.settle()
    by_subscription: dict[Any, list[dict[str, Any]]] = {}
    for message in client.unread():
        by_subscription.setdefault(message["params"]["_meta"][ID_KEY], []).append(message)
    assert by_subscription == {
        tools: [changed("tools", tools)],
        prompts: [changed("prompts", prompts), changed("resources", prompts)],
        both: [changed("tools", both), updated("note://5", both)],
    }


@pytest.mark.rule("SUB-04")
async def test_task_notifications_need_tasks_extension(fixture: ServerFixture) -> None:
    client = AnsweringClient(fixture.server, STATELESS)
    client.request("subscriptions/listen", {"notifications": {"taskIds": ["x"]}})
    assert (await client.next())["error"]["code"] == -32021
    client.capabilities = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    assert (await listen(client, taskIds=["nobody's"]))[1] == {}

    @fixture.server.tool(task="optional")
    async def long() -> None: ...

    await client.settle()
    client.unread()
    assert (await listen(client, taskIds=["nobody's"]))[1] == {}


@pytest.mark.rule("SUB-05")
async def test_subscriptions_of_connection_are_bounded(fixture: ServerFixture) -> None:
    client = AnsweringClient(fixture.server, STATELESS)
    many = [f"note://{number}" for number in range(MAX_TOPICS + 1)]
    wanted = {"notifications": {"resourceSubscriptions": many}}
    client.request("subscriptions/listen", wanted)
    assert (await client.next())["error"]["data"]["reason"] == "too_many_subscriptions"
    _, honoured = await listen(client, resourceSubscriptions=many[1:])
    assert honoured == {"resourceSubscriptions": many[1:]}
    for _ in range(MAX_LISTENING - 1):
        await listen(client, toolsListChanged=True)
    client.request("subscriptions/listen", {"notifications": {}})
    error = (await client.next())["error"]
    assert error["data"]["maxSubscriptions"] == MAX_LISTENING


@pytest.mark.rule("SUB-02", "SUB-08")
async def test_client_cancels_its_subscription(fixture: ServerFixture) -> None:
    client = AnsweringClient(fixture.server, STATELESS)
    first, _ = await listen(client, toolsListChanged=True)
    second, _ = await listen(client, toolsListChanged=True)
    in_a_thread(lambda: fixture.server.register(NOTHING, lambda arguments, context: None))
    # On its way from that thread to the host's, but ended before it got there.
    client.write(method="notifications/cancelled", params={"requestId": first})
    client.write(method="notifications/cancelled", params={"requestId": first})
    await client.settle()
    assert client.unread() == [changed("tools", second)]
    # The id is free again.
    client.write(id=first, method="ping")
    assert len(fixture.logged("subscription cancelled")) == 1


@pytest.mark.rule("SUB-03", "RPC-17")
async def test_id_of_open_subscription_is_in_use(fixture: ServerFixture) -> None:
    client = AnsweringClient(fixture.server, STATELESS)
    subscription, _ = await listen(client, toolsListChanged=True)
    client.write(id=subscription, method="ping")
    error = await client.next()
    assert (error["id"], error["error"]["data"]["reason"]) == (None, "duplicate_id")
    client.write(id=subscription, method=5)
    error = await client.next()
    assert (error["id"], error["error"]["code"]) == (None, -32600)


@pytest.mark.rule("SUB-12")
async def test_stopping_server_ends_subscriptions_with_result(fixture: ServerFixture) -> None:
    client, older = AnsweringClient(fixture.server, STATELESS), AnsweringClient(fixture.server)
    first, _ = await listen(client, toolsListChanged=True)
    second, _ = await listen(client)
    await subscribe(older, "note://all")
    for each in (client, older):
        each.connection.prepare_stop()
    messages = client.unread()
    results = [each for each in messages if "result" in each]
    assert [each["id"] for each in results] == [first, second]
    for each in results:
        assert each["result"]["resultType"] == "complete"
        assert each["result"]["_meta"][ID_KEY] == each["id"]
        assert each["result"].keys() == {"resultType", "_meta"}
    cancelled = [each["params"]["requestId"] for each in messages if "method" in each]
    assert cancelled == [first, second]
    fixture.server.register(NOTHING, lambda arguments, context: None)
    fixture.server.resource_updated("note://all")
    await client.settle()
    assert client.unread() == []
    assert older.unread() == [changed("tools")]
    client.connection.prepare_stop()


@pytest.mark.rule("SUB-12")
async def test_result_is_last_message_of_subscription_with_own_stream(
    fixture: ServerFixture,
) -> None:
    client = AnsweringClient(fixture.server, STATELESS)
    client.connection.session.stateless = True
    subscription, _ = await listen(client, toolsListChanged=True)
    client.connection.prepare_stop()
    [result] = client.unread()
    assert result["id"] == subscription


# -- both ------------------------------------------------------------------------------------------


@pytest.mark.rule("LIFE-13", "LIFE-15", "SUB-02")
async def test_changed_lists_are_notified_to_running_connections(fixture: ServerFixture) -> None:
    early, modern = AnsweringClient(fixture.server), AnsweringClient(fixture.server, STATELESS)
    fixture.server.prompt(name="q")(lambda: "x")
    client = AnsweringClient(fixture.server)
    fixture.server.register(NOTHING, lambda arguments, context: None)
    for change in (
        lambda: fixture.server.prompt(name="p")(lambda: "x"),
        lambda: fixture.server.unregister_prompt("p"),
        lambda: fixture.server.unregister_resource("note://all"),
    ):
        fixture.clock.advance(1)  # else it would be announced with the change before
        change()
    await client.settle()
    kinds = ("tools", "prompts", "prompts", "resources")
    assert client.unread() == [changed(kind) for kind in kinds]
    # Its handshake came before there were prompts, and said nothing of them.
    assert early.unread() == [changed(kind) for kind in ("tools", "resources")]
    assert modern.unread() == []


@pytest.mark.rule("SUB-11", "SUB-02")
async def test_subscriptions_of_closed_connection_are_dropped(fixture: ServerFixture) -> None:
    client = AnsweringClient(fixture.server, STATELESS)
    await listen(client, resourceSubscriptions=["note://5"], toolsListChanged=True)
    in_a_thread(lambda: fixture.server.resource_updated("note://5"))
    client.connection.close()
    await client.settle()
    assert client.unread() == []
    assert_no_subscribers(fixture)


@pytest.mark.rule("SUB-11")
def test_subscriptions_of_dropped_connection_are_dropped() -> None:
    fixture = ServerFixture()
    fixture.server.resource("note://all")(lambda: "")
    peer = fixture.connect()
    subscribed = peer.ask("resources/subscribe", {"uri": "note://all"})
    assert peer.answer(subscribed)["result"] == {}
    fixture.server.resource_updated("note://all")
    assert peer.received[-1] == updated("note://all")
    del peer
    gc.collect()
    assert_no_subscribers(fixture)


def assert_no_subscribers(fixture: ServerFixture) -> None:
    subscriptions = subscriptions_of(fixture.server.runtime.dispatcher)
    assert subscriptions._by_topic == {}
    assert subscriptions._open == set()


@pytest.mark.rule("SUB-02", "SUB-07")
async def test_resource_updates_may_come_from_any_thread(fixture: ServerFixture) -> None:
    client = AnsweringClient(fixture.server, STATELESS)
    subscription, _ = await listen(client, resourceSubscriptions=["note://5"])

    @fixture.server.tool
    def write(ctx: ToolContext) -> None:
        threads = [
            threading.Thread(target=fixture.server.resource_updated, args=("note://5",))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)

    call = client.start("write")
    messages = [await client.next() for _ in range(9)]
    assert [each for each in messages if each.get("id") == call]
    told = [each for each in messages if "method" in each]
    assert told == [updated("note://5", subscription)] * 8
    assert await asyncio.to_thread(fixture.server.runtime.engine.wait_idle, 20)


@pytest.mark.rule("SUB-09")
async def test_subscription_with_too_long_id_is_refused(fixture: ServerFixture) -> None:
    client = AnsweringClient(fixture.server, STATELESS)
    meta = {"_meta": META, "notifications": {}}
    longest = "x" * MAX_SUBSCRIPTION_ID_LENGTH
    client.write(id=longest + "x", method="subscriptions/listen", params=meta)
    error = (await client.next())["error"]
    assert (error["code"], error["data"]["reason"]) == (-32602, "invalid_params")
    assert str(MAX_SUBSCRIPTION_ID_LENGTH) in error["message"]
    client.write(id=longest, method="subscriptions/listen", params=meta)
    assert (await client.next())["params"]["_meta"] == {ID_KEY: longest}
