"""Handlers of any kind, of a client and of one call: what they get, and which call is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import ClientCapabilityError, ClientErrorResponse
from foundation_rt.client import ServerRequestRefused, connect
from foundation_rt.client.client import Client
from foundation_rt.client.errors import InvalidResponseError
from foundation_rt.client.handlers.server_requests import answer, answer_all
from foundation_rt.client.options import ClientOptions
from foundation_rt.client.session.pending_requests import ABANDONED_SECONDS
from foundation_rt.errors import UsageError
from foundation_rt.protocol.revisions import REVISIONS, Revision
from tests.lab.peers.script import Act
from tests.lab.peers.script_memory import (
    HANDSHAKE,
    STATELESS,
    MemoryHarness,
    begun,
    error_of,
    in_turn,
    must_be_gone,
    result,
    scripted,
)
from tests.lab.values.json_values import json_values
from tests.lab.waiting import settle

pytestmark = pytest.mark.virtual_time

ABILITIES = {"elicitation": {"form": {}}, "sampling": {}, "roots": {"listChanged": True}}
ROW = REVISIONS[HANDSHAKE]
JSON_VALUES = json_values(st.integers(), st.text(max_size=3), leaves=5)
METHODS = st.sampled_from(["roots/list", "elicitation/create", "tools/list"])
REQUESTS = JSON_VALUES | st.fixed_dictionaries(
    {"method": METHODS}, optional={"params": JSON_VALUES}
)
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


class Handing:
    """Handlers that keep what they get, and give what a test says.

    Attributes:
        got: the method and the params of each request.
        gives: the result, or what is raised; None waits for ever.
        cancelled: how many were cancelled.
    """

    def __init__(self, gives: Any, abilities: Mapping[str, Any] = ABILITIES) -> None:
        self.got: list[tuple[str, Any]] = []
        self.gives = gives
        self.abilities = abilities
        self.cancelled = 0

    def capabilities(self, revision: Revision) -> Mapping[str, Any]:
        return self.abilities

    async def handle(self, method: str, params: Any, revision: Revision) -> Mapping[str, Any]:
        self.got.append((method, params))
        if self.gives is None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self.cancelled += 1
        if isinstance(self.gives, BaseException):
            raise self.gives
        given: Mapping[str, Any] = self.gives
        return given


def play_acts(*acts: Act) -> dict[str, Any]:
    return {"name": "play", "arguments": {"nonce": "1", "acts": [*acts]}}


def ask(method: str = "roots/list", params: Any = None) -> list[Act]:
    return [["ask", method, params or {}], ["wait", "answer"], ["answer"]]


def held(harness: MemoryHarness, number: int = 0) -> str:
    """Return the id of a call that was sent."""
    return str(harness.of("tools/call")[number]["id"])


# -- handlers of a client --------------------------------------------------------------------------


@pytest.mark.rule("QUEST-23")
async def test_a_client_hands_requests_on_as_they_came() -> None:
    handing = Handing({"odd": [10**30, None], "_meta": {}})
    harness = MemoryHarness(HANDSHAKE)
    options = ClientOptions(revision=HANDSHAKE)
    async with Client(harness.make_transport, options, handing) as client:
        odd = {"mode": "odd", "requestedSchema": 5, "ünknown": {"x": None}}
        await client.call("play", play_acts(*ask("elicitation/create", odd))["arguments"])
        assert handing.got == [("elicitation/create", odd)]
        assert harness.of("initialize")[0]["params"]["capabilities"] == ABILITIES
        assert harness.answers()[0]["result"] == {"odd": [1e30, None], "_meta": {}}
    must_be_gone(harness)


@pytest.mark.rule("QUEST-23", "QUEST-12", "QUEST-15", "QUEST-22")
@pytest.mark.parametrize(
    ("gives", "error"),
    [
        (ServerRequestRefused(-1, "the user said no", {"x": 1}), (-1, {"x": 1})),
        (ServerRequestRefused(-1, "no", object()), (-32603, {"reason": "invalid_answer"})),
        (ValueError("a secret"), (-32603, {"reason": "handler_failed"})),
        (asyncio.CancelledError(), (-32603, {"reason": "handler_failed"})),
        ({"x": object()}, (-32603, {"reason": "invalid_answer"})),
        (["no object"], (-32603, {"reason": "invalid_answer"})),
    ],
    ids=[
        "refused",
        "refused with data that is no JSON",
        "failed",
        "cancelled",
        "a member that is no JSON",
        "no object",
    ],
)
async def test_whatever_handlers_do_the_server_gets_an_answer(
    gives: Any, error: tuple[int, Any]
) -> None:
    with pytest.raises(ServerRequestRefused) as raised:
        await answer(Handing(gives), "roots/list", {}, ROW)
    assert (raised.value.original_code, raised.value.data) == error
    async with scripted() as (client, harness):
        await client.request("tools/call", play_acts(*ask()), handlers=Handing(gives))
        (said,) = harness.answers()
        assert (said["error"]["code"], said["error"]["data"]) == error
        assert "secret" not in str(said)


@pytest.mark.rule("QUEST-29")
@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (ClientErrorResponse(-1, "the user\n said no", {"x": [1]}), (-1, {"x": [1]})),
        (ClientErrorResponse(None, "no"), (-32603, None)),
        (ClientErrorResponse(-1, "no", object()), (-32603, {"reason": "invalid_answer"})),
        (ClientCapabilityError({"roots": {}}), (-32601, {"reason": "not_declared"})),
    ],
    ids=repr,
)
async def test_the_error_of_a_client_behind_is_handed_on(
    raised: Exception, error: tuple[int, Any]
) -> None:
    async with scripted() as (client, harness):
        await client.request("tools/call", play_acts(*ask()), handlers=Handing(raised))
        (said,) = harness.answers()
        assert (said["error"]["code"], said["error"].get("data")) == error
        if error[0] == -1:
            assert said["error"]["message"] == "the user\n said no"


@pytest.mark.rule("QUEST-23", "QUEST-02")
async def test_what_was_not_declared_reaches_no_handler() -> None:
    handing = Handing({}, {"roots": {}})
    for method in ("sampling/createMessage", "no/such/method", "tools/list"):
        with pytest.raises(ServerRequestRefused) as raised:
            await answer(handing, method, {}, ROW)
        assert raised.value.original_code == -32601
    assert handing.got == []


@pytest.mark.rule("QUEST-23", "QUEST-14")
@given(requests=JSON_VALUES | st.dictionaries(st.text(max_size=3), REQUESTS, max_size=3))
def test_input_requests_may_be_anything(requests: Any) -> None:
    handing = Handing({"roots": []})
    try:
        answers = asyncio.run(answer_all(handing, requests, REVISIONS[STATELESS]))
    except InvalidResponseError:
        assert handing.got == []
    else:
        assert answers.keys() == requests.keys()
        assert len(handing.got) == len(requests)


@pytest.mark.rule("QUEST-23")
async def test_connect_takes_handlers_of_one_kind() -> None:
    handing = Handing({})
    assert connect("some-server", handlers=handing).handlers is handing
    with pytest.raises(UsageError, match="takes the place of roots"):
        connect("some-server", handlers=handing, roots=[])


# -- handlers of a call ----------------------------------------------------------------------------


@pytest.mark.rule("QUEST-24")
@pytest.mark.parametrize("kind", ["call", "request"])
async def test_the_only_call_in_flight_is_asked(kind: str) -> None:
    handing = Handing({"roots": []})
    async with scripted(roots=["file:///client"]) as (client, harness):
        if kind == "call":
            await client.call("play", play_acts(*ask())["arguments"], handlers=handing)
        else:
            await client.request("tools/call", play_acts(*ask()), handlers=handing)
        assert handing.got == [("roots/list", {})]
        await client.call("play", play_acts(*ask())["arguments"])
        assert len(handing.got) == 1
        assert [each["result"]["roots"] for each in harness.answers()] == [
            [],
            [{"uri": "file:///client"}],
        ]


@pytest.mark.rule("QUEST-24")
async def test_over_http_the_stream_says_which_call_is_asked() -> None:
    first, second = Handing({"roots": []}), Handing({"roots": [{"uri": "file:///2"}]})
    async with scripted({"ping": []}, has_exchanges=True, roots=["file:///client"]) as (
        client,
        harness,
    ):
        calls = await begun(
            client.request("tools/call", play_acts(), handlers=first),
            client.request("tools/call", play_acts(), handlers=second),
            client.request("tools/call", play_acts()),
        )
        for number in (2, 1, 0):
            message = {"jsonrpc": "2.0", "id": number, "method": "roots/list"}
            harness.transport.say(message, held(harness, number))
            await settle()
        # One that comes on no call's stream belongs to none of several.
        harness.transport.say({"jsonrpc": "2.0", "id": 3, "method": "roots/list"})
        await settle()
        said = {each["id"]: each["result"]["roots"] for each in harness.answers()}
        ours = [{"uri": "file:///client"}]
        assert said == {2: ours, 1: [{"uri": "file:///2"}], 0: [], 3: ours}
        assert len(first.got) == len(second.got) == 1
        for call in calls:
            call.cancel()


@pytest.mark.rule("QUEST-24", "QUEST-25", "QUEST-26")
@pytest.mark.parametrize("others_handlers", [True, False])
async def test_of_several_calls_on_one_stream_none_is_guessed(others_handlers: bool) -> None:
    handing, other = Handing({"roots": []}), Handing({"roots": []})
    async with scripted({"odd/method": []}) as (client, harness):
        theirs = other if others_handlers else None
        calls = await begun(
            client.request("tools/call", play_acts(), handlers=handing),
            client.request("odd/method", handlers=theirs),
        )
        harness.transport.ask(1, "roots/list")
        await settle()
        assert harness.answers()[0]["error"]["code"] == -32601
        assert handing.got == other.got == []
        calls[1].cancel()  # its server may still work on it
        await settle()
        harness.transport.ask(2, "roots/list")
        await asyncio.sleep(ABANDONED_SECONDS + 1)
        assert handing.got == []
        harness.transport.ask(3, "roots/list")
        await settle()
        assert handing.got == [("roots/list", {})]
        calls[0].cancel()


@pytest.mark.rule("QUEST-26", "CLIENT-20")
@pytest.mark.parametrize("is_known", [True, False])
async def test_only_the_deadline_of_the_call_that_is_asked_stands_still(is_known: bool) -> None:
    async def handler() -> list[Any]:
        await asyncio.sleep(5)
        return []

    async with scripted(has_exchanges=True, roots=handler) as (client, harness):
        calls = await begun(
            client.request("tools/call", play_acts(), timeout=3),
            client.request("tools/call", play_acts(), timeout=3),
        )
        message = {"jsonrpc": "2.0", "id": 1, "method": "roots/list"}
        harness.transport.say(message, held(harness) if is_known else None)
        await asyncio.sleep(4)
        assert [call.done() for call in calls] == [False, is_known]
        await asyncio.sleep(5)
        assert [call.done() for call in calls] == [True, True]
        for call in calls:
            assert (await error_of(call)).code == "E202"


@pytest.mark.rule("QUEST-27")
@pytest.mark.parametrize("end", ["answered", "cancelled", "timeout"])
async def test_the_handlers_of_a_call_end_with_it(end: str) -> None:
    handing = Handing(None)
    async with scripted(handler_timeout=2) as (client, harness):
        (call,) = await begun(
            client.request("tools/call", play_acts(), handlers=handing, timeout=5)
        )
        harness.transport.ask(1, "roots/list")
        await settle()
        assert len(handing.got) == 1
        if end == "answered":
            harness.transport.say({"jsonrpc": "2.0", "id": held(harness), "result": {"a": 1}})
            assert await call == {"a": 1}
        elif end == "cancelled":
            call.cancel()
        else:
            assert (await error_of(call)).code == "E202"
        await settle()
        assert handing.cancelled == 1
        (said,) = harness.answers()
        assert (said["id"], said["error"]["code"]) == (1, -32603)


@pytest.mark.rule("QUEST-28")
@pytest.mark.parametrize("kind", ["call", "request", "stubborn"])
async def test_in_the_stateless_mode_a_call_declares_its_handlers(kind: str) -> None:
    wanted = result(
        resultType="input_required",
        inputRequests={"a": {"method": "elicitation/create", "params": {"odd": 1}}},
    )
    handing = Handing(["no object"] if kind == "stubborn" else {"action": "decline", "odd": 5})
    async with scripted(revision=STATELESS, roots=["file:///client"]) as (client, harness):
        harness.play({"tools/call": in_turn(wanted, ["answer"])})
        if kind == "request":
            got = await client.request("tools/call", {"name": "play"}, handlers=handing)
            assert got["resultType"] == "input_required"
            assert handing.got == []
        elif kind == "stubborn":
            error = await error_of(client.call("play", {"nonce": "1"}, handlers=handing))
            assert (error.code, error.data) == ("E210", {"reason": "invalid_answer"})
        else:
            await client.call("play", {"nonce": "1"}, handlers=handing)
            assert handing.got == [("elicitation/create", {"odd": 1})]
            answers = harness.of("tools/call")[1]["params"]["inputResponses"]
            assert answers == {"a": {"action": "decline", "odd": 5}}
        await client.request("ping")
        declared = [
            each["params"]["_meta"][CAPABILITIES]
            for each in [harness.of("tools/call")[0], harness.of("ping")[0]]
        ]
        assert declared == [ABILITIES, {"roots": {}}]
