"""Calls of handlers that are no tools': bounded, answered and recorded as tool calls are."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from foundation_rt.errors import JsonRpcError, ToolError
from foundation_rt.features.handler_calls import HandlerSpec, begin_handler_call
from foundation_rt.kernel.effects import Abort, CallCompleted, Log
from foundation_rt.kernel.invocation import CallOutcome, Invocation, Raised, Returned, Stopped
from foundation_rt.kernel.registry.tools import ExecutionMode
from foundation_rt.protocol.jsonrpc import Request
from foundation_rt.protocol.peer import CAPABILITIES_KEY, Peer
from foundation_rt.protocol.revisions import REVISIONS, VERSION_KEY
from tests.lab.servers.core import Core, connection_id, make_core, notification, replies, run_id

OLD = Peer(REVISIONS["2025-11-25"])
NEW = Peer(REVISIONS["2026-07-28"])


def handle(arguments: dict[str, Any], context: Any) -> None:
    raise AssertionError("the pure core calls no handler")


def to_result(value: Any, call: Invocation) -> dict[str, Any]:
    if value == "refuse":
        raise ToolError("INTERNAL", "no such shape", {"reason": "shape"}) from ValueError("inner")
    return {"value": value, "asked": call.name}


def begin(
    core: Core,
    peer: Peer = OLD,
    *,
    request_id: int | str = 7,
    method: str = "prompts/get",
    timeout_ms: int | None = None,
) -> list[Any]:
    request = Request(request_id, method, {"name": "n", "_meta": {"correlationId": "mine"}})
    return begin_handler_call(
        core.dispatcher.calls,
        core.session,
        peer,
        request,
        name="n",
        handler=HandlerSpec(handle, ExecutionMode.THREAD, timeout_ms, frozenset()),
        arguments={"a": 1},
        to_result=to_result,
    )


def started(core: Core, **options: Any) -> Invocation:
    [call] = begin(core, **options)
    assert isinstance(call, Invocation)
    return call


def error_of(effects: list[Any]) -> dict[str, Any]:
    [reply] = replies(effects)
    assert reply["id"] == 7
    error: dict[str, Any] = reply["error"]
    return error


def record_of(effects: list[Any]) -> dict[str, Any]:
    [record] = [each for each in effects if isinstance(each, CallCompleted)]
    assert record.message == "request completed"
    return record.fields


@pytest.mark.rule("FEAT-01", "FEAT-03", "FEAT-04")
def test_feature_call_takes_slot_and_ends_with_one_reply_and_record() -> None:
    core = make_core().handshake()
    call = started(core)
    assert (call.arguments, call.timeout_ms, call.meta) == (
        {"a": 1},
        30_000,
        {"correlationId": "mine"},
    )
    assert core.resources.concurrent_executions == 1
    assert core.session.in_flight == {7: call}
    effects = core.conclude(call, Returned(5), 2.5)
    assert replies(effects) == [{"jsonrpc": "2.0", "id": 7, "result": {"value": 5, "asked": "n"}}]
    assert record_of(effects) == {
        "runId": run_id(1),
        "correlationId": "mine",
        "method": "prompts/get",
        "name": "n",
        "durationMs": 2.5,
        "outcome": "success",
        "payloadBytes": 0,
    }
    assert core.resources.concurrent_executions == 0
    assert core.session.in_flight == {}


@pytest.mark.rule("FEAT-06", "REV-06")
def test_result_has_members_of_its_revision() -> None:
    core = make_core()
    [reply] = replies(core.conclude(started(core, peer=NEW), Returned(5)))
    assert reply["result"]["resultType"] == "complete"
    assert reply["result"]["value"] == 5


@pytest.mark.rule("FEAT-01")
def test_feature_call_without_free_slot_is_refused() -> None:
    core = make_core({"resources": {"max_concurrent_executions": 1}}).handshake()
    core.add("tool")
    core.begin("tool")
    error = error_of(begin(core))
    assert error["code"] == -32603
    assert error["data"]["code"] == "RESOURCE_EXHAUSTED"
    assert error["data"]["details"]["reason"] == "concurrency_limit"
    assert core.session.in_flight.keys() == {1}


@pytest.mark.rule("FEAT-02")
@pytest.mark.parametrize(
    ("code", "method", "peer", "expected"),
    [
        ("NOT_FOUND", "prompts/get", OLD, -32602),
        ("NOT_FOUND", "resources/read", OLD, -32002),
        ("NOT_FOUND", "resources/read", NEW, -32602),
        ("INVALID_ARGUMENT", "resources/read", OLD, -32602),
        ("INTERNAL", "prompts/get", OLD, -32603),
        ("UNAUTHORIZED", "prompts/get", OLD, -32603),
    ],
)
def test_tool_error_becomes_json_rpc_error_with_same_data(
    code: str, method: str, peer: Peer, expected: int
) -> None:
    core = make_core().handshake()
    call = started(core, method=method, peer=peer)
    effects = core.conclude(call, Raised(ToolError(code, "so it is", {"why": 1})))
    assert error_of(effects) == {
        "code": expected,
        "message": "so it is",
        "data": {
            "code": code,
            "message": "so it is",
            "details": {"why": 1},
            "runId": run_id(1),
            "correlationId": "mine",
            **({"uri": "n"} if (code, method) == ("NOT_FOUND", "resources/read") else {}),
        },
    }
    assert record_of(effects)["errorCode"] == code


@pytest.mark.rule("FEAT-05")
@pytest.mark.parametrize(
    "outcome", [Raised(RuntimeError("secret")), Raised(SystemExit(3)), Stopped()]
)
def test_unexpected_exception_of_feature_is_logged_only(outcome: CallOutcome) -> None:
    core = make_core().handshake()
    effects = core.conclude(started(core), outcome)
    error = error_of(effects)
    assert (error["code"], error["data"]["code"]) == (-32603, "INTERNAL")
    assert "secret" not in orjson.dumps(error).decode()
    logged = [each for each in effects if type(each) is Log]
    assert bool(logged) == isinstance(outcome, Raised)


@pytest.mark.rule("FEAT-05")
def test_details_that_are_not_json_are_replaced() -> None:
    core = make_core().handshake()
    error = error_of(
        core.conclude(started(core), Raised(ToolError("INTERNAL", "\ud800", {"x": {1}})))
    )
    assert error["data"]["details"] == {"reason": "details_not_serializable"}
    assert error["message"] == "\\ud800"


@pytest.mark.rule("FEAT-01")
@pytest.mark.parametrize("meta", [None, 5, "x", [], True])
def test_meta_that_is_not_an_object_is_refused(meta: Any) -> None:
    core = make_core().handshake()
    request = Request(7, "prompts/get", {"name": "n", "_meta": meta})
    with pytest.raises(JsonRpcError) as refused:
        begin_handler_call(
            core.dispatcher.calls,
            core.session,
            OLD,
            request,
            name="n",
            handler=HandlerSpec(handle, ExecutionMode.THREAD, None, frozenset()),
            arguments={},
            to_result=to_result,
        )
    assert refused.value.code == -32602
    assert core.resources.concurrent_executions == 0


@pytest.mark.rule("FEAT-05")
def test_error_larger_than_response_limit_keeps_only_its_code() -> None:
    core = make_core({"tools": {"max_response_bytes": 100}}).handshake()
    short = error_of(core.conclude(started(core), Raised(ToolError("NOT_FOUND", "x" * 500))))
    assert short["message"] == "x" * 500
    error = error_of(core.conclude(started(core), Raised(ToolError("NOT_FOUND", "x" * 5000))))
    assert error["code"] == -32602
    assert error["data"]["details"] == {"reason": "error_too_large", "maxResponseBytes": 100}


@pytest.mark.rule("FEAT-06")
def test_result_that_is_not_json_is_an_error() -> None:
    core = make_core().handshake()
    effects = core.conclude(started(core), Returned("\ud800"))
    error = error_of(effects)
    assert (error["code"], error["data"]["code"]) == (-32603, "INTERNAL")
    assert error["data"]["details"] == {"reason": "result_not_serializable"}
    assert [each.message for each in effects if type(each) is Log] == ["result refused"]
    assert core.session.in_flight == {}


@pytest.mark.rule("FEAT-02", "FEAT-06")
def test_refused_or_too_large_result_is_not_sent() -> None:
    core = make_core({"tools": {"max_response_bytes": 100}}).handshake()
    effects = core.conclude(started(core), Returned("refuse"))
    assert error_of(effects)["data"]["details"] == {"reason": "shape"}
    assert [each.message for each in effects if type(each) is Log] == ["result refused"]
    effects = core.conclude(started(core), Returned("x" * 100))
    assert error_of(effects)["data"]["details"]["reason"] == "result_too_large"


@pytest.mark.rule("FEAT-03")
def test_deadline_is_answered_and_late_result_dropped() -> None:
    core = make_core().handshake()
    call = started(core, timeout_ms=50)
    effects = core.dispatcher.expire(call)
    assert effects[1:] == [Abort(call, "deadline")]
    assert error_of(effects)["data"] == {
        "code": "TIMEOUT",
        "message": "The handler did not finish within 50 ms. It may still be running.",
        "details": {"timeoutMs": 50},
        "runId": run_id(1),
        "correlationId": "mine",
    }
    late = core.conclude(call, Raised(ValueError("late")))
    assert replies(late) == []
    assert record_of(late)["outcome"] == "late_completed"


@pytest.mark.rule("FEAT-03")
def test_cancelled_call_is_never_answered() -> None:
    core = make_core().handshake()
    call = started(core)
    effects = core.dispatch(notification("notifications/cancelled", {"requestId": 7}))
    assert effects == [Abort(call, "cancelled")]
    late = core.conclude(call, Stopped())
    assert replies(late) == []
    assert record_of(late)["outcome"] == "aborted"
    assert core.resources.concurrent_executions == 0


@pytest.mark.rule("FEAT-03", "RPC-10")
@pytest.mark.parametrize("waited_for", [True, False])
def test_feature_call_with_bug_ends_once(waited_for: bool) -> None:
    core = make_core().handshake()
    call = started(core)
    if not waited_for:
        core.dispatcher.close(core.session)
    effects = core.dispatcher.break_off(call, ValueError("a bug"), 1.0)
    assert [reply["error"]["code"] for reply in replies(effects)] == [-32603] * waited_for
    assert record_of(effects)["errorCode"] == "INTERNAL"
    assert core.session.in_flight == {}
    assert core.resources.concurrent_executions == 0


@pytest.mark.rule("FEAT-02")
def test_correlation_id_defaults_to_that_of_connection() -> None:
    core = make_core().handshake()
    request = Request(7, "prompts/get", {"_meta": {VERSION_KEY: "x", CAPABILITIES_KEY: {}}})
    [call] = begin_handler_call(
        core.dispatcher.calls,
        core.session,
        OLD,
        request,
        name="n",
        handler=HandlerSpec(handle, ExecutionMode.INLINE, None, frozenset()),
        arguments={},
        to_result=to_result,
    )
    assert isinstance(call, Invocation)
    assert call.correlation_id == connection_id()
