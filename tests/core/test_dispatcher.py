"""What every message leads to, apart from the ten steps of `tools/call`."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.core.dispatcher import HANDSHAKE
from foundation_rt.core.effects import Abort, ClientDisconnected, Log, Notify, Reply
from foundation_rt.core.invocation import Invocation, Returned
from foundation_rt.core.methods import METHODS
from foundation_rt.core.session import State
from foundation_rt.protocol.framing import LineTooLong
from foundation_rt.protocol.revisions import REVISIONS
from tests.support.core import (
    INITIALIZE,
    INITIALIZED,
    Core,
    connection_id,
    make_core,
    notification,
    replies,
    request,
)

META = {"_meta": {"correlationId": "c-1"}}


def starting() -> Core:
    return make_core()


def initializing() -> Core:
    core = make_core()
    core.dispatch(INITIALIZE)
    return core


def running() -> Core:
    return make_core().handshake()


def error_of(reply: dict[str, Any], request_id: object) -> dict[str, Any]:
    assert reply.keys() == {"jsonrpc", "id", "error"}
    assert reply["jsonrpc"] == "2.0"
    assert reply["id"] == request_id
    error: dict[str, Any] = reply["error"]
    assert error.keys() == {"code", "message", "data"}
    return error


def result_of(reply: dict[str, Any], request_id: object) -> Any:
    assert reply.keys() == {"jsonrpc", "id", "result"}
    assert reply["jsonrpc"] == "2.0"
    assert reply["id"] == request_id
    assert type(reply["id"]) is type(request_id)
    return reply["result"]


def assert_dropped(effects: list[Any], message: str) -> None:
    [effect] = effects
    assert isinstance(effect, Log)
    assert (effect.level, effect.message) == ("debug", message)


# -- handshake


@pytest.mark.rule("LIFE-02", "LIFE-01")
def test_initialize_is_answered_with_what_the_server_is() -> None:
    core = make_core({"server": {"name": "weather", "version": "1.2.3"}})
    info = {"name": "client", "version": "7"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {"x": {}}, "clientInfo": info}
    result = result_of(core.answer(request("initialize", params, 5)), 5)
    assert result == {
        "protocolVersion": "2025-06-18",
        "capabilities": {"logging": {}, "tools": {"listChanged": True}},
        "serverInfo": {"name": "weather", "version": "1.2.3"},
    }
    assert core.session.state is State.INITIALIZING
    assert core.session.peer.revision.name == "2025-06-18"
    assert (core.session.peer.name, core.session.peer.version) == ("client", "7")


@pytest.mark.rule("LIFE-15")
def test_only_a_running_connection_is_told_that_the_tools_have_changed() -> None:
    core = starting()
    told = []
    for step in (
        lambda: core.dispatch(INITIALIZE),
        lambda: core.dispatch(INITIALIZED),
        lambda: core.dispatcher.close(core.session),
    ):
        told.append(core.dispatcher.list_changed(core.session, "tools"))
        step()
    told.append(core.dispatcher.list_changed(core.session, "tools"))
    word = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    assert told == [[], [], [Notify(word)], []]


@pytest.mark.rule("LIFE-09")
@pytest.mark.parametrize(
    ("client", "name", "version"),
    [
        ({"clientInfo": {"name": "desk", "version": "7"}}, "desk", "7"),
        ({"clientInfo": {"name": ["odd"], "title": "x"}}, ["odd"], None),
        ({}, None, None),
    ],
)
def test_a_client_that_connects_is_logged_with_what_it_says_of_itself(
    client: dict[str, Any], name: Any, version: Any
) -> None:
    core = starting()
    params = {"protocolVersion": "2024-11-05", **client}
    reply, record = core.dispatch(request("initialize", params))
    assert isinstance(reply, Reply)
    assert isinstance(record, Log)
    assert (record.level, record.message) == ("info", "client connected")
    assert record.fields == {
        "protocolVersion": "2024-11-05",
        "clientName": name,
        "clientVersion": version,
    }


@pytest.mark.rule("LIFE-09")
def test_an_initialize_that_is_refused_is_not_logged_as_a_client() -> None:
    core = starting()
    assert len(core.dispatch(request("initialize", {}))) == 1
    core.dispatch(INITIALIZE)
    assert len(core.dispatch(INITIALIZE)) == 1


@pytest.mark.rule("LIFE-02")
def test_instructions_are_sent_where_the_server_has_any() -> None:
    core = make_core(instructions="Be brief.")
    assert result_of(core.answer(INITIALIZE), "initialize")["instructions"] == "Be brief."


@pytest.mark.rule("LIFE-11")
def test_capabilities_and_client_info_may_be_left_out() -> None:
    core = starting()
    result_of(core.answer(request("initialize", {"protocolVersion": "x"})), 1)
    assert (core.session.peer.name, core.session.peer.version) == (None, None)


@pytest.mark.rule("LIFE-04")
@pytest.mark.parametrize(
    ("asked", "agreed"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("", "2025-11-25"),
    ],
)
def test_the_revision_is_negotiated(asked: str, agreed: str) -> None:
    core = starting()
    result = result_of(core.answer(request("initialize", {"protocolVersion": asked})), 1)
    assert result["protocolVersion"] == core.session.peer.revision.name == agreed


@pytest.mark.rule("LIFE-11", "RPC-12", "RPC-09")
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"protocolVersion": None},
        {"protocolVersion": 20251125},
        {"protocolVersion": "2025-11-25", "capabilities": None},
        {"protocolVersion": "2025-11-25", "capabilities": []},
        {"protocolVersion": "2025-11-25", "clientInfo": "me"},
        {"protocolVersion": "2025-11-25", "clientInfo": None},
    ],
)
def test_initialize_with_wrong_params_changes_nothing(params: dict[str, Any]) -> None:
    core = starting()
    error = error_of(core.answer(request("initialize", {**params, **META})), 1)
    assert error["code"] == -32602
    assert error["data"] == {"correlationId": "c-1", "reason": "invalid_params"}
    assert core.session.state is State.STARTING
    assert core.session.peer is None
    result_of(core.answer(INITIALIZE), "initialize")


@pytest.mark.rule("LIFE-11", "RPC-12")
def test_initialize_without_params_is_refused() -> None:
    core = starting()
    assert error_of(core.answer(request("initialize")), 1)["code"] == -32602
    assert core.session.state is State.STARTING


@pytest.mark.rule("LIFE-02", "LIFE-12")
@pytest.mark.parametrize("make", [initializing, running])
def test_a_second_initialize_is_refused_and_changes_nothing(make: Any) -> None:
    core = make()
    before = core.session.state
    params = {"protocolVersion": "2024-11-05", **META}
    error = error_of(core.answer(request("initialize", params, 2)), 2)
    assert error["code"] == -32600
    assert error["data"] == {"reason": "already_initialized", "correlationId": "c-1"}
    assert core.session.state is before
    assert core.session.peer.revision.name == "2025-11-25"


@pytest.mark.rule("LIFE-05")
@pytest.mark.parametrize("method", ["initialized", "notifications/initialized"])
def test_initialized_completes_the_handshake_in_both_forms(method: str) -> None:
    core = initializing()
    assert core.dispatch(notification(method)) == []
    assert core.session.state is State.RUNNING
    core = initializing()
    assert result_of(core.answer(request(method, {}, 2)), 2) == {}
    assert core.session.state is State.RUNNING


@pytest.mark.rule("LIFE-05", "RPC-08")
@pytest.mark.parametrize("method", ["initialized", "notifications/initialized"])
def test_initialized_repeated_is_refused_as_a_request_and_dropped_as_a_notification(
    method: str,
) -> None:
    core = running()
    error = error_of(core.answer(request(method, META, 2)), 2)
    assert error["code"] == -32600
    assert error["data"] == {"reason": "already_initialized", "correlationId": "c-1"}
    assert_dropped(core.dispatch(notification(method)), "notification dropped")
    assert core.session.state is State.RUNNING


@pytest.mark.rule("LIFE-03")
@pytest.mark.parametrize("method", ["initialized", "notifications/initialized"])
def test_initialized_before_initialize_is_refused(method: str) -> None:
    core = starting()
    assert error_of(core.answer(request(method)), 1)["code"] == -32002
    assert_dropped(core.dispatch(notification(method)), "notification dropped")
    assert core.session.state is State.STARTING


# -- the gate


GATED = ["ping", "tools/list", "tools/call", "no/such/method", "", "notifications/cancelled"]


@pytest.mark.rule("LIFE-03", "CALL-01", "ERR-06")
@pytest.mark.parametrize("make", [starting, initializing])
@pytest.mark.parametrize("method", GATED)
@pytest.mark.parametrize("params", [None, 5, [], {"name": "tool", **META}, {"cursor": "x"}])
def test_before_running_every_request_is_refused_whatever_it_holds(
    make: Any, method: str, params: Any
) -> None:
    core = make()
    before = core.session.state
    core.add("tool")
    error = error_of(core.answer(request(method, params, "id")), "id")
    assert (error["code"], error["message"]) == (-32002, "Not initialized")
    assert error["data"].keys() == {"code", "message", "correlationId"}
    assert error["data"]["code"] == "NOT_INITIALIZED"
    assert error["data"]["correlationId"] == connection_id()
    assert core.session.state is before
    assert core.resources.concurrent_executions == 0


@pytest.mark.rule("LIFE-03", "RPC-08")
@pytest.mark.parametrize("make", [starting, initializing])
@pytest.mark.parametrize("method", ["ping", "tools/call", "unknown", "notifications/cancelled"])
def test_before_running_notifications_are_dropped(make: Any, method: str) -> None:
    assert_dropped(make().dispatch(notification(method, {})), "notification dropped")


@pytest.mark.rule("LIFE-03", "RPC-01", "RPC-02")
def test_before_running_what_is_no_request_is_answered_as_ever() -> None:
    core = starting()
    assert error_of(core.answer(b"no JSON"), None)["code"] == -32700
    assert error_of(core.answer(b"5"), None)["code"] == -32600


# -- RUNNING


@pytest.mark.rule("LIFE-08", "RPC-12")
@pytest.mark.parametrize("params", [None, {}, {"_meta": {"progressToken": 1}}, {"unknown": [1]}])
def test_ping_is_answered(params: Any) -> None:
    assert result_of(running().answer(request("ping", params, "p")), "p") == {}


@pytest.mark.rule("REG-02", "RPC-06", "RPC-12")
@pytest.mark.parametrize("params", [None, {}, {"_meta": {}}, {"unknown": 1}, {"cursor": None}])
def test_tools_are_listed_in_one_page(params: Any) -> None:
    core = running()
    core.add("b")
    core.add("a")
    result = result_of(core.answer(request("tools/list", params)), 1)
    assert result.keys() == {"tools"}
    assert [tool["name"] for tool in result["tools"]] == ["a", "b"]


@pytest.mark.rule("PAGE-03")
@pytest.mark.parametrize("cursor", ["x", "", 0, False, []])
def test_a_cursor_that_was_never_given_out_is_refused(cursor: Any) -> None:
    error = error_of(running().answer(request("tools/list", {"cursor": cursor, **META})), 1)
    assert error["code"] == -32602
    assert error["data"] == {"correlationId": "c-1", "reason": "invalid_cursor"}


@pytest.mark.rule("RPC-12")
@pytest.mark.parametrize(
    "method", sorted({*HANDSHAKE, *METHODS, "tools/call"} & REVISIONS["2025-11-25"].requests)
)
@pytest.mark.parametrize("params", [b"null", b"[]", b"5", b'"x"', b"true"])
def test_params_that_are_no_object_are_refused(method: str, params: bytes) -> None:
    core = starting() if method == "initialize" else running()
    if method.endswith("initialized"):
        core = initializing()
    before = core.session.state
    line = orjson.dumps({"jsonrpc": "2.0", "id": 3, "method": method, "params": 0})
    error = error_of(core.answer(line.replace(b":0}", b":" + params + b"}")), 3)
    assert error["code"] == -32602
    assert error["data"]["correlationId"] == connection_id()
    assert core.session.state is before


@pytest.mark.rule("RPC-11", "RPC-09")
@pytest.mark.parametrize(
    "method", ["", "tools", "TOOLS/LIST", "notifications/cancelled", "x" * 5000]
)
def test_an_unknown_method_is_named_in_the_refusal_as_far_as_it_fits(method: str) -> None:
    error = error_of(running().answer(request(method, META, 9)), 9)
    assert error["code"] == -32601
    assert error["message"] == f"Method not found: {method[:128]}"
    assert error["data"] == {"correlationId": "c-1"}


@pytest.mark.rule("RPC-11", "RPC-12")
def test_an_unknown_method_is_unknown_whatever_its_params() -> None:
    assert error_of(running().answer(request("unknown", [1])), 1)["code"] == -32601


@pytest.mark.rule("RPC-08")
@pytest.mark.parametrize("method", ["unknown", "ping", "tools/list", "initialize", "tools/call"])
@pytest.mark.parametrize("params", [None, 5, {"name": "tool", "arguments": {}}])
def test_a_notification_is_never_answered(method: str, params: Any) -> None:
    core = running()
    core.add("tool")
    effects = core.dispatch(notification(method, params))
    assert_dropped(effects, "notification dropped")
    assert effects[0].fields["method"] == method  # type: ignore[union-attr]
    assert core.session.in_flight == {}
    assert core.resources.concurrent_executions == 0


@pytest.mark.rule("RPC-07")
@pytest.mark.parametrize(
    "line", [b'{"jsonrpc":"2.0","id":1,"result":{}}', b'{"jsonrpc":"2.0","error":1}']
)
def test_a_response_belongs_to_nothing(line: bytes) -> None:
    assert_dropped(running().dispatch(line), "response dropped: nothing was asked")


@pytest.mark.rule("RPC-07", "RPC-05")
def test_a_response_does_not_touch_a_call_with_its_id() -> None:
    core = running()
    core.add("tool")
    call = core.begin("tool", request_id=1)
    core.dispatch(b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}')
    assert core.session.in_flight == {1: call}


# -- malformed lines


MALFORMED = [
    (b"no JSON", -32700, "Parse error: ", "parse_error"),
    (b"5", -32600, "Invalid Request: ", "not_an_object"),
    (b"[]", -32600, "Invalid Request: ", "batch_not_supported"),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, "Invalid Request: ", "invalid_id"),
    (b'{"jsonrpc":"2.0"}', -32600, "Invalid Request: ", "no_method"),
]


@pytest.mark.rule("RPC-01", "RPC-02", "RPC-03", "RPC-04", "RPC-09")
@pytest.mark.parametrize(("line", "code", "title", "reason"), MALFORMED)
@pytest.mark.parametrize("make", [starting, initializing, running])
def test_a_malformed_line_is_answered_with_its_reason(
    make: Any, line: bytes, code: int, title: str, reason: str
) -> None:
    error = error_of(make().answer(line), None)
    assert error["code"] == code
    assert error["message"].startswith(title)
    assert error["data"] == {"reason": reason, "correlationId": connection_id()}


@pytest.mark.rule("RPC-02", "RPC-09")
def test_a_malformed_request_is_answered_with_its_ids() -> None:
    line = orjson.dumps({"jsonrpc": "1.0", "id": "r", "method": "ping", "params": META})
    error = error_of(running().answer(line), "r")
    assert error["data"]["correlationId"] == "c-1"


@pytest.mark.rule("RPC-09", "CALL-03")
@pytest.mark.parametrize("candidate", ["", "x" * 129, 5, None, ["c"], {"c": 1}, True])
def test_an_invalid_correlation_id_gives_way_to_the_connections(candidate: Any) -> None:
    core = running()
    for method in ("unknown", "initialize"):
        params = {"_meta": {"correlationId": candidate}}
        error = error_of(core.answer(request(method, params)), 1)
        assert error["data"]["correlationId"] == connection_id()


@pytest.mark.rule("RPC-09", "CALL-03")
@pytest.mark.parametrize("candidate", ["x", "x" * 128, "\U0001f600" * 128, "\n"])
def test_a_correlation_id_is_a_string_of_1_to_128_characters(candidate: str) -> None:
    params = {"_meta": {"correlationId": candidate}}
    error = error_of(running().answer(request("unknown", params)), 1)
    assert error["data"]["correlationId"] == candidate


@pytest.mark.rule("RPC-09")
@pytest.mark.parametrize("params", [{}, {"_meta": 5}, {"_meta": {}}, {"correlationId": "c"}])
def test_without_a_correlation_id_the_connections_is_told(params: Any) -> None:
    error = error_of(running().answer(request("unknown", params)), 1)
    assert error["data"]["correlationId"] == connection_id()


@pytest.mark.rule("FRAME-04", "RPC-09")
@pytest.mark.parametrize("make", [starting, running])
def test_a_line_over_the_limit_is_answered_in_its_place(make: Any) -> None:
    error = error_of(make().answer(LineTooLong(1024)), None)
    assert error["code"] == -32600
    assert "1024" in error["message"]
    assert error["data"] == {
        "reason": "line_too_long",
        "maxLineBytes": 1024,
        "correlationId": connection_id(),
    }


# -- duplicate ids


@pytest.mark.rule("RPC-05", "RPC-09", "ERR-06")
@pytest.mark.parametrize("method", ["ping", "tools/list", "unknown", "initialize"])
@pytest.mark.parametrize("request_id", [1, "1"])
def test_an_id_in_flight_is_refused_for_any_method(method: str, request_id: Any) -> None:
    core = running()
    core.add("tool")
    call = core.begin("tool", request_id=request_id)
    effects = core.dispatch(request(method, META, request_id))
    assert len(effects) == 1
    error = error_of(replies(effects)[0], None)
    assert error["code"] == -32600
    assert error["data"] == {"reason": "duplicate_id", "correlationId": "c-1"}
    assert core.session.in_flight == {request_id: call}


@pytest.mark.rule("RPC-05", "RPC-02", "RPC-09")
@pytest.mark.parametrize(
    "members",
    [
        {"jsonrpc": "1.0", "method": "ping"},
        {"jsonrpc": "2.0"},
        {"jsonrpc": "2.0", "method": 5},
    ],
)
def test_an_invalid_request_with_an_id_in_flight_is_answered_with_null(
    members: dict[str, Any],
) -> None:
    core = running()
    core.add("tool")
    call = core.begin("tool", request_id=1)
    line = orjson.dumps({"id": 1, "params": META, **members})
    error = error_of(core.answer(line), None)
    assert error["code"] == -32600
    assert error["data"]["correlationId"] == "c-1"
    error_of(core.answer(line.replace(b'"id":1', b'"id":"1"')), "1")
    assert core.session.in_flight == {1: call}


@pytest.mark.rule("RPC-05")
def test_a_number_and_its_text_are_different_ids() -> None:
    core = running()
    core.add("tool")
    core.begin("tool", request_id=1)
    core.begin("tool", request_id="1")
    assert result_of(core.answer(request("ping", None, 0)), 0) == {}


@pytest.mark.rule("RPC-17")
def test_an_id_is_free_again_once_its_answer_is_decided() -> None:
    core = running()
    core.add("tool")
    core.conclude(core.begin("tool"), Returned(1))
    expired = core.begin("tool")
    core.dispatcher.expire(expired)
    cancelled = core.begin("tool")
    core.dispatch(notification("notifications/cancelled", {"requestId": 1}))
    core.call("no such tool")
    last = core.begin("tool")
    core.conclude(expired, Returned(1))
    core.conclude(cancelled, Returned(1))
    assert core.session.in_flight == {1: last}


@pytest.mark.rule("RPC-05")
def test_ids_of_one_connection_are_nothing_to_another() -> None:
    core = running()
    core.add("tool")
    core.begin("tool", request_id=1)
    core.session = core.open_session()
    core.handshake()
    core.begin("tool", request_id=1)


# -- cancelled


@pytest.mark.rule("TIME-05")
@pytest.mark.parametrize("request_id", [1, "1", "", 0, 2**63])
def test_cancelled_aborts_the_call_it_names(request_id: Any) -> None:
    core = running()
    core.add("tool")
    call = core.begin("tool", request_id=request_id)
    params = {"requestId": request_id, "reason": "no longer needed"}
    [effect] = core.dispatch(notification("notifications/cancelled", params))
    assert isinstance(effect, Abort)
    assert (effect.invocation, effect.reason) == (call, "cancelled")
    assert core.session.in_flight == {}
    assert core.resources.concurrent_executions == 1


@pytest.mark.rule("TIME-05", "RPC-08")
@pytest.mark.parametrize(
    "params",
    [None, 5, [], {}, *({"requestId": each} for each in (2, "1", None, 1.0, [1], {}, True))],
)
def test_a_cancellation_that_names_nothing_in_flight_is_dropped(params: Any) -> None:
    core = running()
    core.add("tool")
    call = core.begin("tool", request_id=1)
    assert_dropped(
        core.dispatch(notification("notifications/cancelled", params)), "notification dropped"
    )
    assert core.session.in_flight == {1: call}


@pytest.mark.rule("TIME-05")
def test_a_cancellation_that_comes_too_late_is_dropped() -> None:
    core = running()
    core.add("tool")
    cancelled = notification("notifications/cancelled", {"requestId": 1})
    core.conclude(core.begin("tool"), Returned(1))
    assert_dropped(core.dispatch(cancelled), "notification dropped")
    core.dispatcher.expire(core.begin("tool"))
    assert_dropped(core.dispatch(cancelled), "notification dropped")
    core.begin("tool")
    core.dispatch(cancelled)
    assert_dropped(core.dispatch(cancelled), "notification dropped")


# -- CLOSED


@pytest.mark.rule("TIME-08", "LIFE-06", "LIFE-01")
@pytest.mark.parametrize("reason", ["disconnected", "shutdown"])
def test_closing_aborts_every_call_in_flight_and_answers_none(reason: str) -> None:
    core = running()
    core.add("tool")
    calls = [core.begin("tool", request_id=number) for number in range(3)]
    expired = core.begin("tool", request_id=9)
    core.dispatcher.expire(expired)
    *effects, record = core.dispatcher.close(core.session, reason)
    assert record == ClientDisconnected("debug", "client disconnected", {"reason": reason})
    assert [type(effect) for effect in effects] == [Abort] * 3
    assert [(effect.invocation, effect.reason) for effect in effects] == [  # type: ignore[union-attr]
        (call, reason) for call in calls
    ]
    assert core.session.state is State.CLOSED
    assert core.session.in_flight == {}
    assert core.resources.concurrent_executions == 4
    assert core.dispatcher.close(core.session) == []


@pytest.mark.rule("TIME-08")
def test_a_connection_that_closes_has_disconnected_unless_told_otherwise() -> None:
    core = running()
    core.add("tool")
    core.begin("tool")
    effect, record = core.dispatcher.close(core.session)
    assert isinstance(effect, Abort)
    assert effect.reason == "disconnected"
    assert isinstance(record, ClientDisconnected)


@pytest.mark.rule("LIFE-06")
@pytest.mark.parametrize("make", [starting, initializing, running])
@pytest.mark.parametrize(
    "line",
    [
        INITIALIZE,
        INITIALIZED,
        request("ping"),
        request("tools/call", {"name": "tool"}),
        notification("notifications/cancelled", {"requestId": 1}),
        b"no JSON",
        b"[]",
        b'{"jsonrpc":"2.0","id":1,"result":1}',
        LineTooLong(5),
    ],
)
def test_in_closed_nothing_comes_of_anything(make: Any, line: bytes | LineTooLong) -> None:
    core = make()
    core.dispatcher.close(core.session)
    assert core.dispatch(line) == []
    assert core.session.state is State.CLOSED


# -- any conversation


lines = st.sampled_from(
    [
        INITIALIZE,
        INITIALIZED,
        request("initialized"),
        request("ping"),
        request("tools/list"),
        request("tools/call", {"name": "tool"}, 1),
        request("tools/call", {"name": "tool"}, 2),
        request("tools/call", {"name": "none"}, 3),
        request("unknown", None, 2),
        notification("notifications/cancelled", {"requestId": 1}),
        b"[]",
        b"{",
        b'{"jsonrpc":"2.0","result":1}',
    ]
) | st.binary(max_size=8)


@pytest.mark.rule("RPC-08", "LIFE-06", "CALL-15", "EMBED-05")
@given(st.lists(lines, max_size=30))
def test_every_line_has_at_most_one_reply_and_every_request_an_answer(sent: list[bytes]) -> None:
    core = starting()
    core.add("tool")
    for line in sent:
        effects = core.dispatch(line)
        answers = [effect for effect in effects if isinstance(effect, Reply)]
        started = [effect for effect in effects if isinstance(effect, Invocation)]
        assert len(answers) + len(started) <= 1
        if b'"id"' in line and b'"method"' in line:
            assert len(answers) + len(started) == 1
    for effect in core.dispatcher.close(core.session):
        assert isinstance(effect, Abort | ClientDisconnected)
    assert core.session.in_flight == {}
