"""Requests and notifications of other servers that are handed on to the client as they are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import ClientCapabilityError, ClientErrorResponse, ToolContext, UsageError
from foundation_rt.base.config.http_sections import HttpSection
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.features.server_requests.errors import InvalidClientResult
from foundation_rt.features.server_requests.feature import ClientInput
from foundation_rt.features.server_requests.forms import Forms
from foundation_rt.features.server_requests.handed_on import HandedOn
from foundation_rt.features.server_requests.open_requests import open_requests
from tests.lab.peers.answering_client import AnsweringClient, value_of
from tests.lab.peers.clients import ABLE, peer
from tests.lab.servers.asgi import open_session
from tests.lab.servers.fixture import ServerFixture

SAMPLING, ELICITATION, ROOTS = "sampling/createMessage", "elicitation/create", "roots/list"
TEXT = {"type": "text", "text": "hi", "unknown": {"a": [1, None]}}
PAGE = {"mode": "url", "message": "m", "url": "https://a.example", "elicitationId": "page-1"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def handing_on(raised: list[BaseException] | None = None) -> ServerFixture:
    """Return a server with a tool that hands on the request in its arguments."""
    rig = ServerFixture(ServerConfig(http=HttpSection(no_auth=True)))

    @rig.server.tool
    async def hand_on(method: str, params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        try:
            return await context.request_client(method, params)
        except Exception as error:
            if raised is not None:
                raised.append(error)
            raise

    return rig


def check(method: str, params: dict[str, Any], revision: str, capabilities: dict[str, Any]) -> Any:
    return HandedOn(method, params).prepare(peer(revision, capabilities), Forms(), "x")


@pytest.mark.rule("ASK-42")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        (SAMPLING, {"messages": [{"role": "user", "content": TEXT}], "maxTokens": 3, "new": [1.5]}),
        (ELICITATION, {"mode": "form", "requestedSchema": {"type": "array"}, "_meta": {"a": 1}}),
        (ELICITATION, PAGE),
        (ROOTS, {}),
    ],
)
async def test_params_and_result_pass_as_they_came(method: str, params: dict[str, Any]) -> None:
    rig = handing_on()
    client = AnsweringClient(rig.server)
    client.start("hand_on", {"method": method, "params": params})
    asked = await client.asked(method)
    assert asked["params"] == params
    result = {"anything": [None, {"x": 1e300}], "_meta": {"b": "c"}}
    client.answer(asked, result)
    assert value_of(await client.next()) == result
    rig.assert_all_ended()


@pytest.mark.rule("ASK-42")
@given(
    st.dictionaries(
        st.sampled_from(["messages", "tools", "mode", "content", "_meta", "includeContext"]), JSON
    )
)
def test_whatever_params_say_they_are_sent_but_for_the_token(params: dict[str, Any]) -> None:
    for method in (SAMPLING, ELICITATION, ROOTS):
        sent = check(method, params, "2025-11-25", ABLE).params
        meta = params.get("_meta")
        if isinstance(meta, dict) and "progressToken" in meta:
            assert sent["_meta"] == {k: v for k, v in meta.items() if k != "progressToken"}
        else:
            assert sent == params


@pytest.mark.rule("ASK-42")
def test_progress_token_of_the_other_server_is_left_out() -> None:
    params = {"_meta": {"progressToken": 1, "a": 2}}
    assert check(ROOTS, params, "2025-11-25", ABLE).params == {"_meta": {"a": 2}}
    assert params == {"_meta": {"progressToken": 1, "a": 2}}


@pytest.mark.rule("ASK-43")
@pytest.mark.parametrize(
    ("method", "params", "revision", "capabilities", "missing"),
    [
        (SAMPLING, {}, "2025-11-25", {}, {"sampling": {}}),
        (SAMPLING, {"tools": [{}]}, "2025-11-25", {"sampling": {}}, {"sampling": {"tools": {}}}),
        (SAMPLING, {"tools": [{}]}, "2025-06-18", ABLE, {"sampling": {"tools": {}}}),
        (
            *(SAMPLING, {"messages": [{"content": [TEXT, {"type": "tool_use"}]}]}, "2025-11-25"),
            *({"sampling": {}}, {"sampling": {"tools": {}}}),
        ),
        (
            *(SAMPLING, {"includeContext": "allServers"}, "2025-11-25"),
            *({"sampling": {}}, {"sampling": {"context": {}}}),
        ),
        (
            *(SAMPLING, {"messages": [{"content": {"type": "audio"}}]}, "2024-11-05"),
            *(ABLE, {"sampling": {}}),
        ),
        (
            ELICITATION,
            {},
            "2025-11-25",
            {"elicitation": {"url": {}}},
            {"elicitation": {"form": {}}},
        ),
        (ELICITATION, {}, "2025-03-26", ABLE, {"elicitation": {"form": {}}}),
        (ELICITATION, PAGE, "2025-11-25", {"elicitation": {}}, {"elicitation": {"url": {}}}),
        (ELICITATION, PAGE, "2025-06-18", ABLE, {"elicitation": {"url": {}}}),
        (ROOTS, {}, "2025-11-25", {}, {"roots": {}}),
    ],
)
def test_client_without_the_capability_is_not_asked(
    method: str, params: Any, revision: str, capabilities: Any, missing: Any
) -> None:
    with pytest.raises(ClientCapabilityError) as refusal:
        check(method, params, revision, capabilities)
    assert refusal.value.required_capabilities == missing


@pytest.mark.rule("ASK-43")
def test_other_methods_and_the_stateless_mode_are_usage_errors() -> None:
    for method in ("ping", "tools/call", "tasks/get", ""):
        with pytest.raises(UsageError, match=ROOTS):
            check(method, {}, "2025-11-25", ABLE)
    for params in ([], "x", 5):
        with pytest.raises(UsageError, match="an object"):
            HandedOn(ROOTS, params).prepare(peer(), Forms(), "x")
    with pytest.raises(UsageError, match="input_required"):
        check(ROOTS, {}, "2026-07-28", ABLE)


@pytest.mark.rule("ASK-44", "ASK-42")
async def test_error_of_the_client_has_its_members_as_they_came() -> None:
    raised: list[BaseException] = []
    rig = handing_on(raised)
    client = AnsweringClient(rig.server)
    client.start("hand_on", {"method": ROOTS, "params": {}})
    client.refuse(await client.asked(ROOTS), -32042, "x" * 2000, data={"a": [1]})
    await client.next()
    client.start("hand_on", {"method": ROOTS, "params": {}})
    client.answer(await client.asked(ROOTS), ["no object"])
    await client.next()
    refused, invalid = raised
    assert isinstance(refused, ClientErrorResponse)
    assert (refused.json_rpc_code, refused.json_rpc_data) == (-32042, {"a": [1]})
    assert refused.json_rpc_message == "x" * 2000
    assert isinstance(invalid, InvalidClientResult)
    rig.assert_all_ended()


@pytest.mark.rule("ASK-43", "ASK-34")
async def test_request_is_cancelled_with_its_call() -> None:
    rig = handing_on()
    client = AnsweringClient(rig.server)
    call = client.start("hand_on", {"method": ROOTS, "params": {}})
    asked = await client.asked(ROOTS)
    client.write(method="notifications/cancelled", params={"requestId": call})
    withdrawn = await client.next()
    assert withdrawn["method"] == "notifications/cancelled"
    assert withdrawn["params"]["requestId"] == asked["id"]
    await client.settle()
    assert not open_requests(client.connection.session)
    rig.assert_all_ended()


@pytest.mark.rule("ASK-46")
async def test_handler_can_withdraw_a_request_as_the_other_server_has_done() -> None:
    rig = ServerFixture()
    waiting: list[asyncio.Task[Any]] = []

    @rig.server.tool
    async def hand_on(context: ToolContext) -> str:
        waiting.append(asyncio.ensure_future(context.request_client(ROOTS)))
        await asyncio.wait(waiting)
        return "cancelled" if waiting[0].cancelled() else "answered"

    client = AnsweringClient(rig.server)
    client.start("hand_on")
    asked = await client.asked(ROOTS)
    waiting[0].cancel()
    withdrawn = await client.next()
    assert withdrawn["method"] == "notifications/cancelled"
    assert withdrawn["params"]["requestId"] == asked["id"]
    assert value_of(await client.next()) == "cancelled"
    rig.assert_all_ended()


@pytest.mark.rule("ASK-42", "ASK-35")
async def test_params_that_are_no_json_leave_no_request_open() -> None:
    rig = ServerFixture()
    raised: list[BaseException] = []

    @rig.server.tool
    async def hand_on(context: ToolContext) -> None:
        try:
            await context.request_client(ROOTS, {"a": object()})
        except TypeError as error:
            raised.append(error)

    client = AnsweringClient(rig.server)
    await client.call("hand_on")
    assert len(raised) == 1
    assert not open_requests(client.connection.session)
    assert rig.server.runtime.engine.part(ClientInput).open_requests._used == 0
    rig.assert_all_ended()


@pytest.mark.rule("ASK-42")
async def test_request_belongs_to_the_response_of_its_call_over_http() -> None:
    rig = handing_on()
    app = rig.server.asgi_app()
    async with app.lifespan():
        session = await open_session(app, capabilities=ABLE)
        calling = session.call("hand_on", 2, method=ROOTS, params={"a": 1})
        await calling.until(lambda: calling.messages)
        [asked] = calling.messages
        assert (asked["method"], asked["params"]) == (ROOTS, {"a": 1})
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": [], "b": 2}}
        assert (await session.post(answer).finish()).status == 202
        await calling.finish()
        assert value_of(calling.messages[-1]) == {"roots": [], "b": 2}


@pytest.mark.rule("ASK-45")
async def test_page_of_another_server_is_known_by_its_id() -> None:
    rig = handing_on()
    client = AnsweringClient(rig.server)
    for elicitation_id in ("page-1", "x" * 1025, 7, ["a"]):
        params = {**PAGE, "elicitationId": elicitation_id}
        client.start("hand_on", {"method": ELICITATION, "params": params})
        client.answer(await client.asked(ELICITATION), {"action": "accept"})
        await client.next()
    rig.server.elicitation_completed("x" * 1025)
    rig.server.elicitation_completed("page-1")
    done = await client.next()
    assert done["method"] == "notifications/elicitation/complete"
    assert done["params"] == {"elicitationId": "page-1"}
    assert client.unread() == []


# -- notifications -------------------------------------------------------------------------------

PROGRESS, MESSAGE = "notifications/progress", "notifications/message"


def notifying(*sent: tuple[str, dict[str, Any]]) -> ServerFixture:
    """Return a server with a tool that hands on these notifications."""
    rig = ServerFixture()

    @rig.server.tool
    async def notify(context: ToolContext) -> None:
        for method, params in sent:
            context.notify(method, params)

    return rig


@pytest.mark.rule("NOTE-09")
async def test_progress_and_messages_pass_as_they_came() -> None:
    progress = {"progressToken": "theirs", "progress": 1, "message": "m", "new": [1], "_meta": {}}
    message = {"level": "error", "data": {"a": 1}, "logger": "l", "new": None, "_meta": {"b": 1}}
    sent = [
        (PROGRESS, progress),
        (PROGRESS, {**progress, "progress": 0.5}),  # less than before
        (PROGRESS, {**progress, "progress": "2"}),
        (PROGRESS, {"total": 3}),
        (MESSAGE, message),
        (MESSAGE, {**message, "level": "debug"}),  # not wanted
        (PROGRESS, {**progress, "progress": 2.5}),
    ]
    rig = notifying(*sent)
    client = AnsweringClient(rig.server)
    client.request("tools/call", {"name": "notify"}, progressToken="ours")
    came = [await client.next() for _ in range(4)]
    assert [each.get("params") for each in came[:3]] == [
        {**progress, "progressToken": "ours"},
        message,
        {**progress, "progressToken": "ours", "progress": 2.5},
    ]
    assert "result" in came[3]
    rig.assert_all_ended()


@pytest.mark.rule("NOTE-09", "NOTE-01")
async def test_progress_is_sent_to_those_who_asked_and_as_their_revision_has_it() -> None:
    progress = (PROGRESS, {"progress": 1, "message": "m", "new": 1})
    rig = notifying(progress)
    client = AnsweringClient(rig.server, "2024-11-05")
    assert "result" in await client.call("notify")
    client.request("tools/call", {"name": "notify"}, progressToken=0)
    came = await client.next()
    assert came["params"] == {"progress": 1, "new": 1, "progressToken": 0}
    await client.next()


@pytest.mark.rule("NOTE-09", "NOTE-06")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("notifications/tools/list_changed", {}),
        (MESSAGE, {"data": 1}),
        (MESSAGE, {"level": ["error"], "data": 1}),
        (MESSAGE, {"level": "loud", "data": 1}),
    ],
)
def test_other_notifications_and_levels_are_usage_errors(
    method: str, params: dict[str, Any]
) -> None:
    raised: list[UsageError] = []

    async def scene() -> None:
        rig = ServerFixture()

        @rig.server.tool
        async def notify(context: ToolContext) -> None:
            with pytest.raises(UsageError) as refusal:
                context.notify(method, params)
            raised.append(refusal.value)

        await AnsweringClient(rig.server).call("notify")

    asyncio.run(scene())
    assert len(raised) == 1
