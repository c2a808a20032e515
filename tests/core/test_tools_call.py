"""The ten steps of `tools/call`, their order, and what the end of a handler counts as."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.core.effects import Abort, Log, Reply
from foundation_rt.core.invocation import (
    OUTCOMES,
    CallOutcome,
    Invocation,
    Phase,
    Raised,
    Returned,
    Stopped,
)
from foundation_rt.errors import ErrorCode, ToolError
from foundation_rt.jsonschema.issues import TOO_COMPLEX
from tests.support.core import (
    Core,
    completions,
    connection_id,
    correlation_id,
    make_core,
    notification,
    replies,
    request,
    run_id,
    tool_error,
)

if TYPE_CHECKING:
    from foundation_rt.core.effects import Effect

INTEGER_A = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "additionalProperties": False,
}
META = {"_meta": {"correlationId": "c-1", "progressToken": 5}}


def running(**sections: dict[str, Any]) -> Core:
    core = make_core(sections).handshake()
    core.add("tool")
    return core


def fields_of(effects: list[Effect]) -> dict[str, Any]:
    [record] = completions(effects)
    return record.fields


def refusal_of(effects: list[Effect]) -> dict[str, Any]:
    """The tool error of a refused call, which has one reply, one record, and took no slot."""
    reply, record = effects
    assert isinstance(reply, Reply)
    assert isinstance(record, Log)
    return tool_error(orjson.loads(reply.line))


# -- step 1: state


@pytest.mark.rule("CALL-01", "CALL-13", "CALL-14")
def test_before_running_a_call_has_a_record_without_a_run_id() -> None:
    core = make_core()
    core.add("tool")
    effects = core.call("tool", **META)
    assert replies(effects)[0]["error"]["code"] == -32002
    [record] = completions(effects)
    assert record.level == "info"
    assert record.fields == {
        "correlationId": connection_id(),
        "toolName": "tool",
        "durationMs": 0.0,
        "outcome": "protocol_error",
    }
    assert core.ids.run_id() == run_id(1)


# -- step 2: shape


MISSHAPEN: list[tuple[Any, str]] = [
    (None, "params"),
    ([], "params"),
    (5, "params"),
    ({}, "params.name"),
    ({"name": None}, "params.name"),
    ({"name": 5, "arguments": 5}, "params.name"),
    ({"name": "tool", "arguments": None}, "params.arguments"),
    ({"name": "tool", "arguments": []}, "params.arguments"),
    ({"name": "tool", "arguments": "{}"}, "params.arguments"),
    ({"name": "tool", "arguments": True}, "params.arguments"),
    ({"name": "tool", "_meta": None}, "params._meta"),
    ({"name": "tool", "_meta": []}, "params._meta"),
    ({"name": "tool", "arguments": {}, "_meta": "c-1"}, "params._meta"),
]


@pytest.mark.rule("CALL-02", "CALL-13", "CALL-14", "ERR-06")
@pytest.mark.parametrize(("params", "path"), MISSHAPEN)
def test_a_call_of_the_wrong_shape_is_invalid_params_and_starts_nothing(
    params: Any, path: str
) -> None:
    core = running()
    effects = core.dispatch(request("tools/call", params, "id"))
    [reply] = replies(effects)
    assert reply["id"] == "id"
    assert reply["error"]["code"] == -32602
    assert reply["error"]["data"] == {
        "reason": "invalid_params",
        "path": path,
        "correlationId": connection_id(),
    }
    fields = fields_of(effects)
    assert fields["outcome"] == "protocol_error"
    assert "runId" not in fields
    named = isinstance(params, dict) and isinstance(params.get("name"), str)
    assert fields.get("toolName") == ("tool" if named else None)
    assert core.session.in_flight == {}
    assert core.resources.concurrent_executions == 0


@pytest.mark.rule("CALL-02", "RPC-12")
def test_params_of_null_are_no_object() -> None:
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":null}'
    assert running().answer(line)["error"]["code"] == -32602


@pytest.mark.rule("CALL-02", "RPC-09", "CALL-14")
def test_a_misshapen_call_is_told_with_its_own_correlation_id() -> None:
    effects = running().dispatch(request("tools/call", {"name": 5, **META}))
    assert replies(effects)[0]["error"]["data"]["correlationId"] == "c-1"
    assert fields_of(effects)["correlationId"] == "c-1"


@pytest.mark.rule("RPC-05", "CALL-13", "CALL-14")
def test_a_call_whose_id_is_in_flight_has_a_record_of_its_own() -> None:
    core = running()
    core.begin("tool")
    effects = core.call("tool", **META)
    assert replies(effects)[0]["error"]["data"]["reason"] == "duplicate_id"
    assert fields_of(effects) == {
        "correlationId": "c-1",
        "toolName": "tool",
        "durationMs": 0.0,
        "outcome": "protocol_error",
    }
    assert core.resources.concurrent_executions == 1


# -- step 3: ids


@pytest.mark.rule("CALL-03")
def test_ids_are_generated_where_the_client_gave_none() -> None:
    core = running()
    first = core.begin("tool", request_id=1)
    second = core.begin("tool", request_id=2, **META)
    third = core.begin("tool", request_id=3)
    assert [call.run_id for call in (first, second, third)] == [run_id(1), run_id(2), run_id(3)]
    assert [call.correlation_id for call in (first, second, third)] == [
        correlation_id(1),
        "c-1",
        correlation_id(2),
    ]


@pytest.mark.rule("CALL-03")
@pytest.mark.parametrize("candidate", ["", "x" * 129, 5, None, ["c"], {"c": 1}, True])
def test_what_is_no_correlation_id_is_ignored(candidate: Any) -> None:
    call = running().begin("tool", _meta={"correlationId": candidate})
    assert call.correlation_id == correlation_id(1)


@pytest.mark.rule("CALL-03")
@pytest.mark.parametrize("candidate", ["x", "x" * 128, "\U0001f600" * 128])
def test_a_correlation_id_of_1_to_128_characters_is_taken(candidate: str) -> None:
    call = running().begin("tool", _meta={"correlationId": candidate})
    assert call.correlation_id == candidate


@pytest.mark.rule("CALL-03", "ERR-02")
def test_a_refused_call_has_the_ids_it_was_given_in_its_error_and_its_record() -> None:
    effects = running().call("unknown", **META)
    for holder in (refusal_of(effects), fields_of(effects)):
        assert holder["runId"] == run_id(1)
        assert holder["correlationId"] == "c-1"


@pytest.mark.rule("CALL-04", "RPC-06")
def test_meta_is_no_argument() -> None:
    call = running().begin("tool", {"_meta": "an argument of that name"}, extra=1, **META)
    assert call.arguments == {"_meta": "an argument of that name"}
    assert call.meta == META["_meta"]
    assert running().begin("tool").meta is None


@pytest.mark.rule("CALL-04")
def test_meta_may_be_empty_or_full_of_unknown_members() -> None:
    core = running()
    core.begin("tool", request_id=1, _meta={})
    core.begin("tool", request_id=2, _meta={"x": [1], "correlationID": "no"})


# -- step 4: size


@pytest.mark.rule("CALL-05", "RES-04", "ERR-06")
@given(text=st.text(max_size=30), slack=st.integers(-3, 3))
def test_arguments_may_have_the_size_of_the_limit_and_no_more(text: str, slack: int) -> None:
    arguments = {"a": text}
    size = len(orjson.dumps(arguments))
    core = running(tools={"max_payload_bytes": size + slack})
    effects = core.call("tool", arguments)
    if slack >= 0:
        [call] = effects
        assert isinstance(call, Invocation)
        assert call.payload_bytes == size
    else:
        error = refusal_of(effects)
        assert error["code"] == "RESOURCE_EXHAUSTED"
        assert error["details"] == {
            "reason": "payload_too_large",
            "payloadBytes": size,
            "maxPayloadBytes": size + slack,
        }
        assert fields_of(effects)["payloadBytes"] == size


@pytest.mark.rule("CALL-05")
def test_absent_arguments_count_as_an_empty_object() -> None:
    core = running(tools={"max_payload_bytes": 2})
    [call] = core.dispatch(request("tools/call", {"name": "tool"}))
    assert isinstance(call, Invocation)
    assert call.arguments == {}
    assert call.payload_bytes == 2
    core = running(tools={"max_payload_bytes": 1})
    effects = core.dispatch(request("tools/call", {"name": "tool"}))
    assert refusal_of(effects)["details"]["reason"] == "payload_too_large"


@pytest.mark.rule("CALL-05")
def test_white_space_and_escapes_on_the_line_do_not_count() -> None:
    core = running(tools={"max_payload_bytes": 9})
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call",'
    line += b'"params":{"name":"tool","arguments":  { "a" :  "\\u0041" } }}'
    [call] = core.dispatch(line)
    assert isinstance(call, Invocation)
    assert call.payload_bytes == len(b'{"a":"A"}')


def nested_arguments(levels: int) -> bytes:
    """A call whose arguments are nested `levels` deep, the object itself included."""
    inner = b"[" * (levels - 1) + b"]" * (levels - 1)
    params = b'{"name":"tool","arguments":{"a":' + inner + b"}}"
    return b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + params + b"}"


@pytest.mark.rule("CALL-05", "ERR-06")
@pytest.mark.parametrize(("levels", "taken"), [(254, True), (255, False), (1000, False)])
def test_arguments_may_be_254_levels_deep(levels: int, taken: bool) -> None:
    core = running()
    effects = core.dispatch(nested_arguments(levels))
    if taken:
        assert isinstance(effects[0], Invocation)
    else:
        error = refusal_of(effects)
        assert error["code"] == "INVALID_ARGUMENT"
        assert error["details"] == {"reason": "arguments_not_serializable"}
        assert fields_of(effects)["payloadBytes"] == 0


# -- step 5: existence


@pytest.mark.rule("CALL-06", "ERR-06")
@pytest.mark.parametrize("name", ["", "unknown", "TOOL", "tool ", "x" * 1000, "a'b\"c\n"])
def test_an_unknown_tool_is_not_found_and_named_as_far_as_it_fits(name: str) -> None:
    effects = running().call(name)
    error = refusal_of(effects)
    assert error["code"] == "NOT_FOUND"
    assert error["details"] == {"toolName": name[:128]}
    assert repr(name[:128]) in error["message"]
    fields = fields_of(effects)
    assert (fields["outcome"], fields["errorCode"]) == ("tool_error", "NOT_FOUND")
    assert fields["toolName"] == name


# -- step 6: slot


@pytest.mark.rule("CALL-07", "RES-01", "ERR-06", "RES-07")
def test_without_a_free_slot_a_call_is_refused_at_once() -> None:
    core = running(resources={"max_concurrent_executions": 2})
    first = core.begin("tool", request_id=1)
    core.begin("tool", request_id=2)
    effects = core.call("tool", request_id=3)
    error = refusal_of(effects)
    assert error["code"] == "RESOURCE_EXHAUSTED"
    assert error["details"] == {"reason": "concurrency_limit", "maxConcurrentExecutions": 2}
    assert "retryHint" in fields_of(effects)
    assert set(core.session.in_flight) == {1, 2}
    core.conclude(first, Returned(None))
    core.begin("tool", request_id=3)


@pytest.mark.rule("CALL-07", "RES-01")
def test_slots_are_shared_by_all_connections() -> None:
    core = running(resources={"max_concurrent_executions": 1})
    core.begin("tool")
    core.session = core.open_session()
    core.handshake()
    assert refusal_of(core.call("tool"))["details"]["reason"] == "concurrency_limit"


# -- step 7: validation


@pytest.mark.rule("CALL-08")
def test_arguments_that_are_too_complex_to_be_checked_are_refused_as_such() -> None:
    core = running()
    core.add("strict", INTEGER_A)
    tool = core.registry.get("strict")
    assert tool is not None
    tool.validate = lambda arguments: TOO_COMPLEX
    error = refusal_of(core.call("strict", {"a": 1}))
    assert error["code"] == "INVALID_ARGUMENT"
    assert error["details"] == {"reason": "too_complex"}


@pytest.mark.rule("CALL-08", "ERR-06")
def test_arguments_the_schema_does_not_allow_are_refused_without_repeating_them() -> None:
    core = running()
    core.add("strict", INTEGER_A)
    effects = core.call("strict", {"a": "TOP SECRET", "b": 1})
    error = refusal_of(effects)
    assert error["code"] == "INVALID_ARGUMENT"
    assert error["details"]["reason"] == "schema_validation"
    assert error["details"]["errors"]
    for issue in error["details"]["errors"]:
        assert issue.keys() == {"path", "message"}
        assert issue["message"]
    assert "/a" in [issue["path"] for issue in error["details"]["errors"]]
    assert "TOP SECRET" not in str(effects)
    assert core.resources.concurrent_executions == 0
    assert core.session.in_flight == {}


@pytest.mark.rule("CALL-08")
def test_what_is_wrong_with_the_whole_of_the_arguments_is_said_of_the_arguments() -> None:
    core = running()
    core.add("strict", {"type": "object", "minProperties": 1})
    error = refusal_of(core.call("strict", {}))
    assert error["message"].startswith("Invalid arguments: the arguments ")
    assert error["details"]["errors"][0]["path"] == ""


# -- the order of the steps


@pytest.mark.rule(
    "CALL-01", "CALL-02", "CALL-03", "CALL-05", "CALL-06", "CALL-07", "CALL-08", "CALL-13"
)
def test_each_step_comes_before_the_next() -> None:
    """A call that is wrong in every way is refused by the first step; then mended step by step."""
    config = {"tools": {"max_payload_bytes": 20}, "resources": {"max_concurrent_executions": 1}}
    core = make_core(config)
    core.add("strict", INTEGER_A)
    blocker = core.resources.try_acquire_slot()
    assert blocker is not None
    params: dict[str, Any] = {"name": 5, "arguments": {"a": "x" * 50}}

    def refused() -> tuple[Any, ...]:
        effects = core.dispatch(request("tools/call", params))
        [record] = completions(effects)
        [reply] = replies(effects)
        if "error" in reply:
            return reply["error"]["code"], record.fields["outcome"]
        error = tool_error(reply)
        assert record.fields["durationMs"] == 0.0
        assert record.fields["errorCode"] == error["code"]
        return error["code"], error["details"].get("reason"), record.fields["outcome"]

    assert refused() == (-32002, "protocol_error")
    core.handshake()
    assert refused() == (-32602, "protocol_error")
    params["name"] = "unknown"
    assert refused() == ("RESOURCE_EXHAUSTED", "payload_too_large", "tool_error")
    params["arguments"] = {"a": "x"}
    assert refused() == ("NOT_FOUND", None, "tool_error")
    params["name"] = "strict"
    assert refused() == ("RESOURCE_EXHAUSTED", "concurrency_limit", "tool_error")
    blocker.release()
    assert refused() == ("INVALID_ARGUMENT", "schema_validation", "tool_error")
    params["arguments"] = {"a": 1}
    [call] = core.dispatch(request("tools/call", params))
    assert isinstance(call, Invocation)
    assert call.run_id == run_id(5)  # assigned in step 3: refusals of steps 4 to 7 have one


# -- step 8: the invocation


@pytest.mark.rule("CALL-11", "TIME-01")
def test_an_invocation_says_all_there_is_to_run() -> None:
    core = running(tools={"default_timeout_ms": 777})
    core.add("quick", timeout_ms=5)
    call = core.begin("tool", {"a": [1, {"b": None}]}, "id", **META)
    assert call.session is core.session
    assert (call.request_id, call.name, call.timeout_ms) == ("id", "tool", 777)
    assert call.arguments == {"a": [1, {"b": None}]}
    assert call.tool is core.registry.get("tool")
    assert call.phase is Phase.PENDING
    assert core.session.in_flight == {"id": call}
    assert core.begin("quick").timeout_ms == 5


# -- steps 9 and 10: the end


ENDINGS: dict[type[CallOutcome], CallOutcome] = {
    Returned: Returned({"a": 1}),
    Raised: Raised(ToolError(ErrorCode.UNAUTHORIZED, "no")),
    Stopped: Stopped(),
}


def bring_to(core: Core, call: Invocation, phase: Phase) -> list[Effect]:
    """Let happen to a call what makes its phase; return the effects of that."""
    if phase is Phase.PENDING:
        return []
    if phase is Phase.EXPIRED:
        return core.dispatcher.expire(call)
    if phase is Phase.CANCELLED:
        return core.dispatch(
            notification("notifications/cancelled", {"requestId": call.request_id})
        )
    effects = core.dispatcher.close(core.session)
    if phase is Phase.DISCONNECTED_THEN_EXPIRED:
        effects += core.dispatcher.expire(call)
    return effects


# Spelled out, not read from the code: the table of TIME-06, and TIME-07 for the code.
EXPECTED = {
    (Phase.PENDING, Returned): ("success", None, "info"),
    (Phase.PENDING, Raised): ("tool_error", "UNAUTHORIZED", "info"),
    (Phase.PENDING, Stopped): ("tool_error", "INTERNAL", "info"),
    (Phase.EXPIRED, Returned): ("late_completed", "TIMEOUT", "warn"),
    (Phase.EXPIRED, Raised): ("late_completed", "TIMEOUT", "warn"),
    (Phase.EXPIRED, Stopped): ("timeout", "TIMEOUT", "info"),
    (Phase.CANCELLED, Returned): ("late_completed", None, "warn"),
    (Phase.CANCELLED, Raised): ("late_completed", "UNAUTHORIZED", "warn"),
    (Phase.CANCELLED, Stopped): ("aborted", None, "info"),
    (Phase.DISCONNECTED, Returned): ("disconnected_completed", None, "info"),
    (Phase.DISCONNECTED, Raised): ("disconnected_completed", "UNAUTHORIZED", "info"),
    (Phase.DISCONNECTED, Stopped): ("aborted", None, "info"),
    (Phase.DISCONNECTED_THEN_EXPIRED, Returned): ("late_completed", "TIMEOUT", "warn"),
    (Phase.DISCONNECTED_THEN_EXPIRED, Raised): ("late_completed", "TIMEOUT", "warn"),
    (Phase.DISCONNECTED_THEN_EXPIRED, Stopped): ("late_completed", "TIMEOUT", "warn"),
}


@pytest.mark.rule("TIME-06")
def test_every_cell_of_the_outcomes_is_spelled_out_here() -> None:
    assert EXPECTED.keys() == OUTCOMES.keys() == set(product(Phase, ENDINGS))
    assert {cell: outcome for cell, (outcome, _, _) in EXPECTED.items()} == {
        cell: outcome.value for cell, outcome in OUTCOMES.items()
    }


@pytest.mark.rule("TIME-06", "TIME-07", "CALL-09", "CALL-13", "CALL-15")
@pytest.mark.parametrize(("phase", "ending"), EXPECTED)
def test_the_end_of_a_call_has_one_record_and_at_most_one_reply(
    phase: Phase, ending: type[CallOutcome]
) -> None:
    core = running()
    call = core.begin("tool", {"a": 1}, **META)
    before = bring_to(core, call, phase)
    assert call.phase is phase
    assert completions(before) == []
    assert core.resources.concurrent_executions == 1
    after = core.conclude(call, ENDINGS[ending], 12.345)
    assert core.resources.concurrent_executions == 0
    assert core.session.in_flight == {}
    outcome, error_code, level = EXPECTED[phase, ending]
    [record] = completions(after)
    expected = {
        "runId": run_id(1),
        "correlationId": "c-1",
        "toolName": "tool",
        "durationMs": 12.345,
        "outcome": outcome,
        "payloadBytes": 7,
        **({} if error_code is None else {"errorCode": error_code}),
    }
    assert (record.level, record.fields) == (level, expected)
    replied = 1 if phase in (Phase.PENDING, Phase.EXPIRED) else 0
    assert len(replies(before)) + len(replies(after)) == replied


@pytest.mark.rule("TIME-02", "TIME-03", "CALL-15")
def test_a_deadline_answers_aborts_and_keeps_the_slot() -> None:
    core = running(tools={"default_timeout_ms": 250})
    call = core.begin("tool", request_id="id")
    reply, abort = core.dispatcher.expire(call)
    assert isinstance(reply, Reply)
    answer = orjson.loads(reply.line)
    assert answer["id"] == "id"
    error = tool_error(answer)
    assert error["code"] == "TIMEOUT"
    assert error["details"] == {"timeoutMs": 250}
    assert (error["runId"], error["correlationId"]) == (run_id(1), correlation_id(1))
    assert isinstance(abort, Abort)
    assert (abort.invocation, abort.reason) == (call, "deadline")
    assert core.resources.concurrent_executions == 1
    assert core.dispatcher.expire(call) == []


@pytest.mark.rule("TIME-05", "TIME-06")
def test_a_deadline_after_a_cancellation_says_and_changes_nothing() -> None:
    core = running()
    call = core.begin("tool")
    bring_to(core, call, Phase.CANCELLED)
    assert core.dispatcher.expire(call) == []
    assert call.phase is Phase.CANCELLED


@pytest.mark.rule("TIME-08", "TIME-06", "LIFE-06")
def test_a_disconnect_after_a_deadline_says_and_changes_nothing() -> None:
    core = running()
    call = core.begin("tool")
    core.dispatcher.expire(call)
    assert not any(isinstance(each, Abort) for each in core.dispatcher.close(core.session))
    assert call.phase is Phase.EXPIRED


@pytest.mark.rule("CALL-09")
def test_a_slot_comes_back_once_for_each_call() -> None:
    core = running()
    calls = [core.begin("tool", request_id=number) for number in range(3)]
    for left, call in zip((2, 1, 0), calls, strict=True):
        core.conclude(call, Returned(None))
        assert core.resources.concurrent_executions == left


# -- step 10: results


@pytest.mark.rule("CALL-10")
@pytest.mark.parametrize(
    ("value", "text"), [({"a": 1}, '{"a":1}'), ("text", '"text"'), (None, "null")]
)
def test_a_result_is_one_text_that_holds_it_as_json(value: Any, text: str) -> None:
    core = running()
    call = core.begin("tool", request_id="id")
    reply, record = core.conclude(call, Returned(value))
    assert isinstance(reply, Reply)
    assert orjson.loads(reply.line) == {
        "jsonrpc": "2.0",
        "id": "id",
        "result": {"content": [{"type": "text", "text": text}], "isError": False},
    }
    assert isinstance(record, Log)
    assert record.fields["outcome"] == "success"


@pytest.mark.rule("CALL-17", "ERR-06", "CALL-15", "CALL-13")
def test_a_result_that_json_cannot_say_is_an_internal_error_and_logged() -> None:
    core = running()
    reply, log, record = core.conclude(core.begin("tool"), Returned({"a": object()}))
    assert isinstance(reply, Reply)
    error = tool_error(orjson.loads(reply.line))
    assert error["code"] == "INTERNAL"
    assert error["details"] == {"reason": "result_not_serializable"}
    assert isinstance(log, Log)
    assert (log.level, log.message) == ("error", "tool result refused")
    assert log.fields["runId"] == run_id(1)
    assert "object" in log.fields["error"]["message"]
    assert isinstance(record, Log)
    assert (record.fields["outcome"], record.fields["errorCode"]) == ("tool_error", "INTERNAL")
    assert core.resources.concurrent_executions == 0


@pytest.mark.rule("CALL-10", "ERR-06")
def test_a_result_over_the_limit_is_an_internal_error() -> None:
    core = running(tools={"max_response_bytes": 100})
    effects = core.conclude(core.begin("tool"), Returned("x" * 99))
    error = refusal_of(effects)
    assert error["code"] == "INTERNAL"
    assert error["details"] == {
        "reason": "result_too_large",
        "resultBytes": 101,
        "maxResponseBytes": 100,
    }
    assert fields_of(effects)["errorCode"] == "INTERNAL"


# -- step 10: errors


@pytest.mark.rule("ERR-04", "ERR-02")
@pytest.mark.parametrize("code", list(ErrorCode))
@pytest.mark.parametrize("details", [None, {}, {"retry": True}])
def test_a_handler_chooses_its_error(code: ErrorCode, details: Any) -> None:
    core = running()
    effects = core.conclude(core.begin("tool", **META), Raised(ToolError(code, "why", details)))
    reply, record = effects
    assert isinstance(reply, Reply)
    expected = {"code": code.value, "message": "why", "runId": run_id(1), "correlationId": "c-1"}
    if details is not None:
        expected["details"] = details
    assert tool_error(orjson.loads(reply.line)) == expected
    assert isinstance(record, Log)
    assert (record.fields["outcome"], record.fields["errorCode"]) == ("tool_error", code.value)
    assert "retryHint" not in record.fields


class Alarm(BaseException):
    """An exception that `except Exception` does not catch."""


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text")


UNEXPECTED = [
    ValueError("secret text"),
    SystemExit(3),
    KeyboardInterrupt(),
    Alarm("secret text"),
    Mute(),
    RecursionError(),
]


@pytest.mark.rule("ERR-05", "ERR-06")
@pytest.mark.parametrize("raised", UNEXPECTED, ids=lambda raised: type(raised).__name__)
def test_any_other_exception_is_internal_and_its_text_is_for_the_log(raised: BaseException) -> None:
    core = running()
    effects = core.conclude(core.begin("tool"), Raised(raised))
    reply, log, record = effects
    assert isinstance(reply, Reply)
    error = tool_error(orjson.loads(reply.line))
    assert error == {
        "code": "INTERNAL",
        "message": "The tool failed.",
        "runId": run_id(1),
        "correlationId": correlation_id(1),
    }
    assert isinstance(log, Log)
    assert (log.level, log.message) == ("error", "tool handler failed")
    assert log.fields["error"]["type"] == type(raised).__name__
    if not isinstance(raised, Mute):
        assert log.fields["error"]["message"] == str(raised)
    assert isinstance(record, Log)
    assert (record.fields["outcome"], record.fields["errorCode"]) == ("tool_error", "INTERNAL")


@pytest.mark.rule("ERR-05")
@pytest.mark.parametrize("raised", UNEXPECTED, ids=lambda raised: type(raised).__name__)
def test_with_expose_error_details_the_client_is_told(raised: BaseException) -> None:
    core = running(tools={"expose_error_details": True})
    [reply] = replies(core.conclude(core.begin("tool"), Raised(raised)))
    error = tool_error(reply)
    assert error["code"] == "INTERNAL"
    assert error["details"].keys() == {"exception", "message"}
    assert error["details"]["exception"] == type(raised).__name__
    if not isinstance(raised, Mute):
        assert error["details"]["message"] == str(raised)


@pytest.mark.rule("ERR-05", "ERR-03")
def test_with_expose_error_details_a_text_that_utf8_cannot_say_is_not_told() -> None:
    core = running(tools={"expose_error_details": True})
    raised = ValueError("lone \ud800 surrogate")
    [reply] = replies(core.conclude(core.begin("tool"), Raised(raised)))
    assert tool_error(reply)["details"] == {"reason": "details_not_serializable"}


@pytest.mark.rule("ERR-05", "TIME-06", "CALL-13")
@pytest.mark.parametrize(
    "phase", [Phase.EXPIRED, Phase.CANCELLED, Phase.DISCONNECTED, Phase.DISCONNECTED_THEN_EXPIRED]
)
def test_an_unexpected_exception_that_comes_late_is_logged_all_the_same(phase: Phase) -> None:
    core = running()
    call = core.begin("tool")
    bring_to(core, call, phase)
    log, record = core.conclude(call, Raised(ValueError("late")))
    assert isinstance(log, Log)
    assert (log.level, log.fields["error"]["message"]) == ("error", "late")
    assert isinstance(record, Log)
    timed_out = phase in (Phase.EXPIRED, Phase.DISCONNECTED_THEN_EXPIRED)
    assert record.fields["errorCode"] == ("TIMEOUT" if timed_out else "INTERNAL")


@pytest.mark.rule("ERR-03")
def test_details_that_json_cannot_say_do_not_keep_the_error_back() -> None:
    core = running()
    raised = ToolError(ErrorCode.NOT_FOUND, "gone", {"x": object()})
    [reply] = replies(core.conclude(core.begin("tool"), Raised(raised)))
    error = tool_error(reply)
    assert (error["code"], error["message"]) == ("NOT_FOUND", "gone")
    assert error["details"] == {"reason": "details_not_serializable"}


@pytest.mark.rule("ERR-03")
@pytest.mark.parametrize(
    ("limit", "text_size", "told"),
    [(1, 3000, True), (1, 5000, False), (10_000, 9000, True), (10_000, 11_000, False)],
)
def test_an_error_that_is_too_large_is_told_as_such(limit: int, text_size: int, told: bool) -> None:
    core = running(tools={"max_response_bytes": limit})
    raised = ToolError(ErrorCode.UNAUTHORIZED, "x" * text_size)
    effects = core.conclude(core.begin("tool", **META), Raised(raised))
    error = tool_error(replies(effects)[0])
    assert error["code"] == "UNAUTHORIZED"
    assert (error["runId"], error["correlationId"]) == (run_id(1), "c-1")
    assert (error["message"] == "x" * text_size) is told
    if not told:
        assert error["details"] == {"reason": "error_too_large", "maxResponseBytes": limit}
    assert fields_of(effects)["errorCode"] == "UNAUTHORIZED"


@pytest.mark.rule("ERR-03", "CALL-10")
def test_errors_of_the_runtime_get_through_however_small_the_limit() -> None:
    core = running(tools={"max_response_bytes": 1, "max_payload_bytes": 10})
    core.add("strict", INTEGER_A)
    too_large = tool_error(replies(core.conclude(core.begin("tool"), Returned("x")))[0])
    assert too_large["details"]["reason"] == "result_too_large"
    assert refusal_of(core.call("strict", {"a": "x"}))["details"]["reason"] == "schema_validation"
    assert refusal_of(core.call("x" * 1000))["code"] == "NOT_FOUND"
    assert refusal_of(core.call("tool", {"a": "xyz"}))["details"]["reason"] == "payload_too_large"
    timeout, _ = core.dispatcher.expire(core.begin("tool"))
    assert isinstance(timeout, Reply)
    assert tool_error(orjson.loads(timeout.line))["code"] == "TIMEOUT"


# -- bugs


def broken_off(effects: list[Effect]) -> tuple[Reply, Log, Log]:
    reply, log, record = effects
    assert isinstance(reply, Reply)
    assert isinstance(log, Log)
    assert isinstance(record, Log)
    assert (log.level, log.message) == ("error", "internal error")
    return reply, log, record


@pytest.mark.rule("RPC-10", "CALL-09", "CALL-13", "CALL-14", "CALL-15", "RPC-17")
def test_a_bug_in_a_validator_costs_neither_the_answer_nor_the_record_nor_the_slot() -> None:
    def broken(arguments: Any) -> Any:
        raise ZeroDivisionError("a bug")

    core = running()
    tool = core.registry.get("tool")
    assert tool is not None
    tool.validate = broken
    reply, log, record = broken_off(core.call("tool", request_id="id", **META))
    answer = orjson.loads(reply.line)
    assert answer["id"] == "id"
    assert answer["error"] == {
        "code": -32603,
        "message": "Internal error",
        "data": {"reason": "internal_error", "correlationId": "c-1"},
    }
    assert log.fields["error"]["message"] == "a bug"
    assert record.fields["runId"] == run_id(1)
    assert (record.fields["outcome"], record.fields["errorCode"]) == ("tool_error", "INTERNAL")
    assert core.session.in_flight == {}
    assert core.resources.concurrent_executions == 0


@pytest.mark.rule("RPC-10", "CALL-09", "CALL-13", "CALL-14", "CALL-15", "TIME-06", "TIME-07")
@pytest.mark.parametrize("phase", Phase)
def test_a_bug_at_the_end_of_a_call_still_ends_it_once(phase: Phase) -> None:
    core = running()
    call = core.begin("tool", request_id="id")
    before = bring_to(core, call, phase)
    after = core.dispatcher.break_off(call, ZeroDivisionError("a bug"), 2.5)
    if phase is Phase.PENDING:
        reply, _, record = broken_off(after)
        assert orjson.loads(reply.line)["error"]["code"] == -32603
    else:
        _, record = after
        assert isinstance(record, Log)
    assert completions(after) == [record]
    outcome, error_code, level = EXPECTED[phase, Raised]
    assert (record.level, record.fields["outcome"]) == (level, outcome)
    assert record.fields["errorCode"] == ("TIMEOUT" if error_code == "TIMEOUT" else "INTERNAL")
    assert record.fields["durationMs"] == 2.5
    assert len(replies(before + after)) == (1 if phase in (Phase.PENDING, Phase.EXPIRED) else 0)
    assert core.session.in_flight == {}
    assert core.resources.concurrent_executions == 0


@pytest.mark.rule("RPC-10", "RES-09")
def test_a_bug_in_a_call_of_a_reserved_tool_gives_no_slot_back() -> None:
    core = running()
    core.add("reserved", reserved=True)
    core.begin("tool", request_id=1)
    call = core.begin("reserved", request_id=2)
    broken_off(core.dispatcher.break_off(call, ZeroDivisionError(), 1.0))
    assert core.resources.concurrent_executions == 1
    assert set(core.session.in_flight) == {1}


@pytest.mark.rule("RPC-10", "RPC-17")
def test_a_bug_at_the_end_of_a_call_leaves_a_later_one_with_its_id_alone() -> None:
    core = running()
    expired = core.begin("tool", request_id=1)
    core.dispatcher.expire(expired)
    later = core.begin("tool", request_id=1)
    core.dispatcher.break_off(expired, ZeroDivisionError(), 1.0)
    assert core.session.in_flight == {1: later}


@pytest.mark.rule("CALL-13")
def test_records_hold_neither_arguments_nor_results() -> None:
    core = running()
    core.add("strict", INTEGER_A)
    secret = "TOP SECRET"
    emitted = [
        *core.conclude(core.begin("tool", {"a": secret}), Returned({"b": secret})),
        *core.call("strict", {"a": secret}),
        *core.call("none", {"a": secret}),
    ]
    late = core.begin("tool", {"a": secret})
    core.dispatcher.expire(late)
    emitted += core.conclude(late, Returned(secret))
    assert len(completions(emitted)) == 4
    for effect in emitted:
        if isinstance(effect, Log):
            assert secret not in str(effect.fields)


@pytest.mark.rule("CALL-15", "TIME-02")
@given(
    st.lists(st.sampled_from(["expire", "cancel", "close", "return", "raise", "stop"]), max_size=6)
)
def test_whatever_happens_a_call_has_at_most_one_reply_and_exactly_one_record(
    events: list[str],
) -> None:
    core = running()
    call = core.begin("tool")
    effects: list[Effect] = []
    ends: dict[str, CallOutcome] = {
        "return": Returned(1),
        "raise": Raised(ValueError()),
        "stop": Stopped(),
    }
    ended = False
    for event in [*events, "return"]:
        if event in ends:
            if not ended:  # a handler ends once: the engine sees to that
                effects += core.conclude(call, ends[event])
                ended = True
        elif event == "cancel":
            effects += core.dispatch(notification("notifications/cancelled", {"requestId": 1}))
        elif event == "close":
            effects += core.dispatcher.close(core.session)
        elif not ended:  # its timer is cancelled when the handler ends
            effects += core.dispatcher.expire(call)
    aborts = [effect for effect in effects if isinstance(effect, Abort)]
    assert len(aborts) <= 1
    assert len(completions(effects)) == 1
    first = next(event for event in [*events, "return"] if event not in aborts)
    silent = first in ("cancel", "close")
    assert len(replies(effects)) == (0 if silent else 1)
    assert core.resources.concurrent_executions == 0
