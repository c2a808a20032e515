"""Dispatch of messages: what vectors (spec/vectors) cannot show of it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.kernel.dispatcher import HANDSHAKE
from foundation_rt.kernel.effects import Abort, ClientDisconnected, Log, Notify, Reply
from foundation_rt.kernel.invocation import Invocation, Returned
from foundation_rt.kernel.methods import METHODS
from foundation_rt.kernel.session import State
from foundation_rt.protocol.framing import LineTooLong
from foundation_rt.protocol.revisions import REVISIONS
from tests.lab.servers.core import (
    INITIALIZE,
    INITIALIZED,
    Core,
    connection_id,
    make_core,
    notification,
    request,
)


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


# -- handshake


@pytest.mark.rule("LIFE-15")
def test_changed_tools_are_notified_to_running_connections_only() -> None:
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
def test_handshake_is_logged_with_name_and_version_of_client(
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
def test_refused_initialize_is_not_logged() -> None:
    core = starting()
    assert len(core.dispatch(request("initialize", {}))) == 1
    core.dispatch(INITIALIZE)
    assert len(core.dispatch(INITIALIZE)) == 1


@pytest.mark.rule("LIFE-01", "LIFE-05")
def test_only_an_initialized_that_is_not_expected_is_dropped() -> None:
    core = initializing()
    assert core.dispatch(INITIALIZED) == []
    [effect] = core.dispatch(INITIALIZED)
    assert isinstance(effect, Log) and effect.message == "notification dropped"
    assert effect.fields["method"] == "notifications/initialized"


@pytest.mark.rule("LIFE-02")
def test_initialize_returns_instructions_of_server() -> None:
    core = make_core(instructions="Be brief.")
    assert result_of(core.answer(INITIALIZE), "initialize")["instructions"] == "Be brief."


@pytest.mark.rule("LIFE-11")
def test_initialize_without_capabilities_and_client_info_is_accepted() -> None:
    core = starting()
    result_of(core.answer(request("initialize", {"protocolVersion": "x"})), 1)
    assert (core.session.peer.name, core.session.peer.version) == (None, None)


# -- RUNNING


@pytest.mark.rule("RPC-12")
@pytest.mark.parametrize(
    "method", sorted({*HANDSHAKE, *METHODS, "tools/call"} & REVISIONS["2025-11-25"].requests)
)
@pytest.mark.parametrize("params", [b"null", b"[]", b"5", b'"x"', b"true"])
def test_params_that_are_not_an_object_are_refused_by_every_method(
    method: str, params: bytes
) -> None:
    core = starting() if method == "initialize" else running()
    if method.endswith("initialized"):
        core = initializing()
    before = core.session.state
    line = orjson.dumps({"jsonrpc": "2.0", "id": 3, "method": method, "params": 0})
    error = error_of(core.answer(line.replace(b":0}", b":" + params + b"}")), 3)
    assert error["code"] == -32602
    assert error["data"]["correlationId"] == connection_id()
    assert core.session.state is before


@pytest.mark.rule("RPC-07", "RPC-05")
def test_response_with_id_of_call_leaves_call_in_flight() -> None:
    core = running()
    core.add("tool")
    call = core.begin("tool", request_id=1)
    core.dispatch(b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}')
    assert core.session.in_flight == {1: call}


# -- duplicate ids


@pytest.mark.rule("RPC-17")
def test_id_is_free_once_call_is_answered_cancelled_or_refused() -> None:
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
def test_two_connections_may_use_same_id() -> None:
    core = running()
    core.add("tool")
    core.begin("tool", request_id=1)
    core.session = core.open_session()
    core.handshake()
    core.begin("tool", request_id=1)


# -- CLOSED


@pytest.mark.rule("TIME-08", "LIFE-06", "LIFE-01")
@pytest.mark.parametrize("reason", ["disconnected", "shutdown"])
def test_close_aborts_all_calls_without_replies(reason: str) -> None:
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
def test_messages_to_closed_session_have_no_effect(make: Any, line: bytes | LineTooLong) -> None:
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
