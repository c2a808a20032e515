"""What a server tells unasked, in both protocol modes: lists and resources that change."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client.client import Client
from foundation_rt.client.errors import (
    CallTimeoutError,
    CircuitOpenError,
    ConnectionLostError,
    MCPError,
    NotOfferedError,
)
from foundation_rt.client.resilience.circuit_breaker import BreakerSettings
from foundation_rt.client.resilience.retries import RetryPolicy
from foundation_rt.client.session.subscriptions import Subscription
from foundation_rt.errors import UsageError
from tests.lab.peers.script import Act
from tests.lab.peers.script_memory import (
    BOTH,
    HANDSHAKE,
    STATELESS,
    MemoryHarness,
    begun,
    capabilities,
    error_of,
    play,
    refusal,
    result,
    scripted,
)
from tests.lab.waiting import settle

pytestmark = pytest.mark.virtual_time

UPDATED = "notifications/resources/updated"
KEY = "io.modelcontextprotocol/subscriptionId"
ONE, TWO = "play://one", "play://two"
SUBSCRIBE = {HANDSHAKE: "resources/subscribe", STATELESS: "subscriptions/listen"}
modes = pytest.mark.parametrize("revision", BOTH)


def update(harness: MemoryHarness, *uris: Any) -> None:
    """Notify of changes; in the stateless mode the last that listens to resources."""
    meta = {}
    listening = listens(harness)
    if listening:
        meta = {"_meta": {KEY: listening[-1]["id"]}}
    for uri in uris:
        harness.transport.tell(UPDATED, uri=uri, **meta)


def listens(harness: MemoryHarness, member: str = "resourceSubscriptions") -> list[dict[str, Any]]:
    """Return the requests to listen, in the stateless mode."""
    sent = harness.of("subscriptions/listen")
    return [each for each in sent if member in each["params"]["notifications"]]


async def taken(changes: Subscription) -> list[str]:
    """Return what has come, without waiting."""
    found: list[str] = []

    async def take() -> None:
        while True:
            found.append(await changes.__anext__())

    (task,) = await begun(take())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return found


# -- resources -------------------------------------------------------------------------------------


@pytest.mark.rule("CLIENT-31", "CLIENT-32")
@modes
async def test_a_subscription(revision: str) -> None:
    """A URI that changed twice comes once; parts of it count for it, as they are named."""
    async with scripted(revision=revision) as (client, harness):
        async with client.subscribe(ONE, TWO) as changes:
            update(harness, TWO, ONE, TWO, ONE + "/part", "play://other", ONE + "more", 5, None)
            assert await taken(changes) == [TWO, ONE, ONE + "/part"]
            update(harness, ONE)
            assert await taken(changes) == [ONE]
            assert await taken(changes) == []
        await settle()
        if revision == HANDSHAKE:
            asked = [each["params"]["uri"] for each in harness.of("resources/subscribe")]
            given = [each["params"]["uri"] for each in harness.of("resources/unsubscribe")]
            assert asked == given == [ONE, TWO]
        else:
            (sent,) = listens(harness)
            assert sent["params"]["notifications"] == {"resourceSubscriptions": [ONE, TWO]}
            (told,) = harness.of("notifications/cancelled")
            assert told["params"]["requestId"] == sent["id"]
        update(harness, ONE)
        assert await taken(changes) == []


@pytest.mark.rule("CLIENT-31", "CLIENT-20")
@modes
@pytest.mark.parametrize(
    ("acts", "code"),
    [
        ([refusal(-32602)], "E203"),
        ([refusal(-32601)], "E204"),
        ([["reply", {"result": 5}]], "E209"),
        ([], "E202"),
        ([["die"]], "E201"),
    ],
    ids=repr,
)
async def test_one_that_is_not_confirmed(revision: str, acts: list[Act], code: str) -> None:
    async with scripted({SUBSCRIBE[revision]: acts}, revision=revision) as (client, _):
        changes = client.subscribe(ONE, timeout=3)
        error = await error_of(changes.__aenter__())
        assert error.code == code
        assert await error_of(taken_error(changes)) is error
        await settle()
        assert client._subscriptions._open == {}


async def taken_error(changes: Subscription) -> None:
    async for _ in changes:
        raise AssertionError("nothing has changed")


@pytest.mark.rule("CLIENT-31")
async def test_one_that_ends_before_it_begins() -> None:
    async with scripted({"subscriptions/listen": [result()]}, revision=STATELESS) as (client, _):
        error = await error_of(client.subscribe(ONE).__aenter__())
        assert (error.code, error.retryable) == ("E201", True)


@pytest.mark.rule("CLIENT-31")
@modes
async def test_expired_session_is_replaced_for_a_subscription(revision: str) -> None:
    async with scripted(revision=revision, retries=RetryPolicy(max_attempts=1)) as (
        client,
        harness,
    ):
        await client.initialize()
        gone = [["wait", "go"], refusal(-32000, "Session not found")]
        harness.play({SUBSCRIBE[revision]: gone})
        (entering,) = await begun(client.subscribe(ONE).__aenter__())
        harness.play({})
        harness.transport.release("go")
        changes = await entering
        assert len(harness.transports) == 2
        changes.close()


@pytest.mark.rule("CLIENT-31", "BREAK-17")
@modes
async def test_an_open_circuit_refuses_it_at_once(revision: str) -> None:
    async with scripted(revision=revision, breaker=BreakerSettings(failure_threshold=1)) as (
        client,
        harness,
    ):
        await error_of(client.call("play", {"nonce": "x", "acts": [refusal(-32603)]}))
        assert isinstance(await error_of(client.subscribe(ONE).__aenter__()), CircuitOpenError)
        assert harness.count(SUBSCRIBE[HANDSHAKE]) == 0
        assert listens(harness) == []


@pytest.mark.rule("CLIENT-54", "CLIENT-20")
@modes
async def test_a_server_that_does_not_confirm_it_again(revision: str) -> None:
    """It is asked again and again, with pauses, and never waited for beyond the time it has."""
    # A circuit that does not open: what is looked at are the pauses.
    breaker = BreakerSettings(failure_threshold=1_000)
    async with (
        scripted(revision=revision, breaker=breaker, retries=RetryPolicy(max_attempts=1)) as (
            client,
            harness,
        ),
        client.subscribe(ONE, timeout=2) as changes,
    ):
        harness.play({SUBSCRIBE[revision]: []})
        harness.transport.lose()
        await asyncio.sleep(100)
        asked = harness.count("resources/subscribe") + len(listens(harness))
        assert 4 <= asked <= 10
        harness.play({})
        await asyncio.sleep(40)
        assert await taken(changes) == [ONE]


@pytest.mark.rule("CLIENT-54")
@modes
async def test_one_that_is_refused_later_ends(revision: str) -> None:
    async with scripted(revision=revision) as (client, harness), client.subscribe(ONE) as changes:
        harness.play({SUBSCRIBE[revision]: [refusal(-32602)]})
        harness.transport.lose()
        await asyncio.sleep(3)
        assert (await error_of(taken_error(changes))).code == "E203"


@pytest.mark.rule("CLIENT-54")
@pytest.mark.parametrize("how", ["answered", "cancelled"])
async def test_stream_that_the_server_ends_is_opened_again(how: str) -> None:
    """With pauses that grow, if it does so each time."""
    async with scripted(revision=STATELESS) as (client, harness), client.subscribe(ONE) as changes:
        for times in range(1, 7):
            (*_, last) = listens(harness)
            assert len(listens(harness)) == times
            if how == "answered":
                harness.transport.say({"jsonrpc": "2.0", "id": last["id"], "result": {}})
            else:
                harness.transport.tell("notifications/cancelled", requestId=last["id"])
            await asyncio.sleep(min(2 ** (times - 1), 30) + 0.1)
            assert await taken(changes) == [ONE]
        assert len(harness.transports) == 1


@pytest.mark.rule("CLIENT-31", "CLIENT-29", "CLIENT-51")
@modes
@given(turns=st.integers(0, 60), closes=st.booleans())
def test_entering_may_be_given_up_at_any_moment(revision: str, turns: int, closes: bool) -> None:
    """By whoever enters, or by the end of the client."""

    async def scenario(client: Client, harness: MemoryHarness) -> None:
        entering = asyncio.ensure_future(client.subscribe(ONE).__aenter__())
        await settle(turns)
        if closes:
            await client.close()
            (outcome,) = await asyncio.gather(entering, return_exceptions=True)
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, ConnectionLostError)
                assert not outcome.retryable
            else:
                assert await taken(outcome) == []
        else:
            entering.cancel()
            await asyncio.wait([entering])
            await settle()
            if entering.cancelled():
                assert client._subscriptions._open == {}
                waiting = harness.transport.receiver.requests.pending if harness.transports else {}
                assert len(waiting) <= 1  # that of the lists

    play(scenario, revision=revision)


@pytest.mark.rule("CLIENT-56")
async def test_resource_of_another_subscription_is_not_unsubscribed() -> None:
    async with scripted() as (client, harness), client.subscribe(ONE) as others:
        async with client.subscribe(ONE, TWO):
            pass
        await settle()
        (sent,) = harness.of("resources/unsubscribe")
        assert sent["params"]["uri"] == TWO
        update(harness, ONE)
        assert await taken(others) == [ONE]


@pytest.mark.rule("CLIENT-56")
async def test_resource_of_a_new_subscription_is_not_unsubscribed() -> None:
    async with scripted() as (client, harness):
        harness.play({"resources/unsubscribe": [["wait", "go"], ["answer"]]})
        async with client.subscribe(ONE, TWO):
            pass
        await settle()
        async with client.subscribe(TWO) as changes:
            harness.transport.release("go")
            await settle()
            assert [each["params"]["uri"] for each in harness.of("resources/unsubscribe")] == [ONE]
            update(harness, TWO)
            assert await taken(changes) == [TWO]


@pytest.mark.rule("CLIENT-56")
@pytest.mark.parametrize("acts", [[], [refusal(-32601)], [["die"]]], ids=repr)
async def test_a_server_that_does_not_take_it_back(acts: list[Act]) -> None:
    async with scripted({"resources/unsubscribe": acts}) as (client, _):
        async with client.subscribe(ONE) as changes:
            pass
        await asyncio.sleep(5)
        assert await taken(changes) == []


@pytest.mark.rule("CLIENT-06")
async def test_a_server_that_has_no_subscriptions() -> None:
    async with scripted({"initialize": [capabilities(resources={})]}) as (client, _):
        error = await error_of(client.subscribe(ONE).__aenter__())
        assert isinstance(error, NotOfferedError)
        assert error.capability == "resources.subscribe"
        error = await error_of(client.subscribe(tasks=["t"]).__aenter__())
        assert isinstance(error, NotOfferedError)
        assert error.capability == "extensions.io.modelcontextprotocol/tasks"


@pytest.mark.rule("CLIENT-31")
async def test_wrong_use_of_a_subscription_raises() -> None:
    async with scripted() as (client, harness):
        with pytest.raises(UsageError, match="URI"):
            client.subscribe()
        changes = client.subscribe(ONE)
        with pytest.raises(UsageError, match="entered first"):
            await changes.__anext__()
        async with changes:
            with pytest.raises(UsageError, match="once"):
                await changes.__aenter__()
        with pytest.raises(UsageError, match="once"):
            await changes.__aenter__()
        never = client.subscribe(TWO)
        never.close()
        await settle()
        assert harness.count("resources/unsubscribe") == 1


@pytest.mark.rule("CLIENT-54")
async def test_a_mistake_while_it_is_made_again_is_not_hidden() -> None:
    """Nor does it leave anybody waiting."""

    def broken() -> Any:
        raise ZeroDivisionError

    async with scripted() as (client, harness):
        async with client.subscribe(ONE) as changes:
            client._link.make_transport = broken
            harness.transport.lose()
            await asyncio.sleep(2)
            with pytest.raises(ZeroDivisionError):
                await changes.__anext__()
        with pytest.raises(ZeroDivisionError):
            await client.subscribe(ONE).__aenter__()


@pytest.mark.rule("CLIENT-53")
async def test_a_stream_that_ends_with_its_session_leaves_the_next_list_alone() -> None:
    async with scripted(revision=STATELESS) as (client, harness):
        await client.initialize()
        await settle()
        (sent,) = harness.of("subscriptions/listen")
        harness.transport.say({"jsonrpc": "2.0", "id": sent["id"], "result": {}})
        await settle()
        harness.transport.lose()
        await settle()
        await client.call("play", {"nonce": "x"})
        await asyncio.sleep(5)
        await client.call("play", {"nonce": "x"})
        assert harness.count("tools/list") == 2


@pytest.mark.rule("CLIENT-32")
@modes
async def test_kept_changes_are_bounded(revision: str) -> None:
    """Beyond a thousand changes it is the resource itself that has changed."""
    async with scripted(revision=revision) as (client, harness), client.subscribe(ONE) as changes:
        update(harness, *(f"{ONE}/{number}" for number in range(5_000)))
        assert len(changes._changed) <= 1_001
        assert ONE in await taken(changes)


# -- lists -----------------------------------------------------------------------------------------


@pytest.mark.rule("CLIENT-53")
@modes
@pytest.mark.parametrize("has_exchanges", [False, True], ids=["stdio", "HTTP"])
async def test_lists_that_change(revision: str, has_exchanges: bool) -> None:
    """Also where nothing was announced, and on whichever stream it comes."""
    heard: list[str] = []

    async with scripted(
        revision=revision, has_exchanges=has_exchanges, on_list_changed=heard.append
    ) as (client, harness):
        await client.call("play", {"nonce": "x"})
        stream = None
        if revision == STATELESS:
            (sent,) = listens(harness, "toolsListChanged")
            assert sent["params"]["notifications"] == {
                "toolsListChanged": True,
                "resourcesListChanged": True,
            }
            stream = sent["id"]
        assert harness.count("tools/list") == 1
        for kind in ("tools", "prompts", "resources", "nothing"):
            harness.transport.tell(f"notifications/{kind}/list_changed", stream)
        assert heard == ["tools", "prompts", "resources"]
        await client.call("play", {"nonce": "x"})
        assert harness.count("tools/list") == 2


@pytest.mark.rule("CLIENT-53")
async def test_client_without_a_callback_listens_to_tools_only() -> None:
    async with scripted(revision=STATELESS) as (client, harness):
        await client.initialize()
        await settle()
        (sent,) = harness.of("subscriptions/listen")
        assert sent["params"]["notifications"] == {"toolsListChanged": True}


@pytest.mark.rule("CLIENT-53")
async def test_server_without_list_changed_gets_no_listen_request() -> None:
    discovered = {"supportedVersions": [STATELESS], "capabilities": {"tools": {}}}

    async with scripted({"server/discover": [result(**discovered)]}, revision=STATELESS) as (
        client,
        harness,
    ):
        await client.initialize()
        await settle()
        assert harness.of("subscriptions/listen") == []


@pytest.mark.rule("CLIENT-53")
@pytest.mark.parametrize(
    ("acts", "times"), [([refusal(-32601)], 1), ([refusal(-32603)], 5), ([result()], 5)], ids=repr
)
async def test_a_server_that_will_not_tell(acts: list[Act], times: int) -> None:
    """It is asked again with pauses that grow, if that may help; calls go on meanwhile."""
    async with scripted({"subscriptions/listen": acts}, revision=STATELESS) as (client, harness):
        await client.initialize()
        await asyncio.sleep(1 + 2 + 4 + 8 + 1)
        assert harness.count("subscriptions/listen") == times
        assert (await client.call("play", {"nonce": "x"})).text == "x"


@pytest.mark.rule("CLIENT-53")
async def test_after_a_gap_the_lists_may_have_changed() -> None:
    heard: list[str] = []

    async with scripted(revision=STATELESS, on_list_changed=heard.append) as (client, harness):
        await client.initialize()
        await settle()
        (sent,) = harness.of("subscriptions/listen")
        harness.transport.tell("notifications/cancelled", requestId=sent["id"])
        await asyncio.sleep(1.1)
        assert heard == ["tools", "resources"]
        await client.list_tools()
        assert harness.count("tools/list") == 2


@pytest.mark.rule("CLIENT-53")
async def test_the_listening_of_a_lost_session_does_not_disturb_the_next() -> None:
    heard: list[str] = []

    async with scripted(revision=STATELESS, on_list_changed=heard.append) as (client, harness):
        await client.initialize()
        await settle()
        harness.transport.lose()
        await settle()
        await client.call("play", {"nonce": "x"})
        await asyncio.sleep(40)
        await client.call("play", {"nonce": "x"})
        assert heard == []
        assert harness.count("tools/list") == 2
        assert harness.count("subscriptions/listen") == 2


told = st.sampled_from([ONE, TWO, ONE + "/a", "other", 5]).map(lambda uri: ("update", uri))
steps = st.one_of(told, st.sampled_from([("lose",), ("end",), ("take",), ("wait",), ("list",)]))


@pytest.mark.rule("CLIENT-54", "CLIENT-55", "CLIENT-32")
@given(history=st.lists(steps, max_size=12), revision=st.sampled_from(BOTH))
def test_any_history_of_a_subscription(history: list[tuple[Any, ...]], revision: str) -> None:
    """No change is lost: what was told since it was last taken, or could not be told, comes."""

    async def scenario(client: Client, harness: MemoryHarness) -> None:
        async with client.subscribe(ONE, TWO) as changes:
            due: set[str] = set()
            is_told = True
            for step, *more in history:
                if step == "update" and is_told:
                    update(harness, *more)
                    due |= {each for each in more if each not in ("other", 5)}
                elif step == "lose":
                    harness.transport.lose()
                    await settle()
                    is_told = False
                elif step == "end" and is_told and revision == STATELESS:
                    (*_, last) = listens(harness)
                    harness.transport.tell("notifications/cancelled", requestId=last["id"])
                    await settle()
                    is_told = False
                elif step == "list":
                    harness.transport.tell("notifications/tools/list_changed")
                elif step == "wait":
                    await asyncio.sleep(70)
                    due |= set() if is_told else {ONE, TWO}
                    is_told = True
                elif step == "take" and is_told:
                    assert set(await taken(changes)) == due
                    due = set()

    play(scenario, revision=revision)


@pytest.mark.rule("CLIENT-51")
@modes
async def test_iteration_ends_when_the_client_is_closed(revision: str) -> None:
    async with scripted(revision=revision) as (client, harness):

        async def listen() -> list[str]:
            async with client.subscribe(ONE) as changes:
                return [uri async for uri in changes]

        (listening,) = await begun(listen())
        update(harness, ONE)
        await client.close()
        assert await listening == [ONE]
        error = await error_of(client.subscribe(ONE).__aenter__())
        assert isinstance(error, MCPError)
        assert not isinstance(error, CallTimeoutError)
