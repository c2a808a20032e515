"""Calls of tools: what vectors (spec/vectors) cannot show of their steps, ends and failures."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.jsonschema.issues import TOO_COMPLEX
from foundation_rt.errors import ErrorCode, ToolError
from foundation_rt.features.policies import ADMINISTRATIVE
from foundation_rt.features.tasks.support import TaskSupport
from foundation_rt.kernel.effects import Abort, Log, Reply
from foundation_rt.kernel.invocation import (
    OUTCOMES,
    CallOutcome,
    Invocation,
    Phase,
    Raised,
    Returned,
    Stopped,
)
from foundation_rt.protocol.principal import Principal
from tests.lab.servers.core import (
    Core,
    completions,
    correlation_id,
    make_core,
    notification,
    replies,
    run_id,
    tool_error,
)

if TYPE_CHECKING:
    from foundation_rt.kernel.effects import Effect

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


def refusal_of(effects: list[Effect]) -> dict[str, Any]:
    """Return the tool error of a refused call; check its reply, its record and the slots."""
    reply, record = effects
    assert isinstance(reply, Reply)
    assert isinstance(record, Log)
    return tool_error(orjson.loads(reply.line))


# -- step 6: slot


@pytest.mark.rule("CALL-07", "RES-01")
def test_slots_are_shared_by_all_connections() -> None:
    core = running(resources={"max_concurrent_executions": 1})
    core.begin("tool")
    core.session = core.open_session()
    core.handshake()
    assert refusal_of(core.call("tool"))["details"]["reason"] == "concurrency_limit"


# -- step 7: validation


@pytest.mark.rule("CALL-08")
def test_too_complex_arguments_are_refused() -> None:
    core = running()
    core.add("strict", INTEGER_A)
    tool = core.registry.get("strict")
    assert tool is not None
    tool.validate = lambda arguments: TOO_COMPLEX
    error = refusal_of(core.call("strict", {"a": 1}))
    assert error["code"] == "INVALID_ARGUMENT"
    assert error["details"] == {"reason": "too_complex"}


@pytest.mark.rule("CALL-08", "ERR-06")
def test_invalid_arguments_are_refused_without_repeating_values() -> None:
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


# -- step 8: the invocation


@pytest.mark.rule("CALL-11", "TIME-01")
def test_invocation_has_arguments_tool_and_deadline() -> None:
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
def test_expected_outcomes_cover_every_phase_and_ending() -> None:
    assert EXPECTED.keys() == OUTCOMES.keys() == set(product(Phase, ENDINGS))
    assert {cell: outcome for cell, (outcome, _, _) in EXPECTED.items()} == {
        cell: outcome.value for cell, outcome in OUTCOMES.items()
    }


@pytest.mark.rule("TIME-06", "TIME-07", "CALL-09", "CALL-13", "CALL-15")
@pytest.mark.parametrize(("phase", "ending"), EXPECTED)
def test_ended_call_has_one_record_and_at_most_one_reply(
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


@pytest.mark.rule("TIME-05", "TIME-06")
def test_deadline_after_cancellation_has_no_effect() -> None:
    core = running()
    call = core.begin("tool")
    bring_to(core, call, Phase.CANCELLED)
    assert core.dispatcher.expire(call) == []
    assert call.phase is Phase.CANCELLED


@pytest.mark.rule("TIME-08", "TIME-06", "LIFE-06")
def test_disconnect_after_deadline_has_no_effect() -> None:
    core = running()
    call = core.begin("tool")
    core.dispatcher.expire(call)
    assert not any(isinstance(each, Abort) for each in core.dispatcher.close(core.session))
    assert call.phase is Phase.EXPIRED


# -- step 10: results


@pytest.mark.rule("CALL-17", "ERR-06", "CALL-15", "CALL-13")
def test_result_that_is_not_json_is_internal_error_and_logged() -> None:
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


# -- step 10: errors


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
def test_unexpected_exception_is_internal_error_and_logged(raised: BaseException) -> None:
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
def test_expose_error_details_sends_exception_to_client(raised: BaseException) -> None:
    core = running(tools={"expose_error_details": True})
    [reply] = replies(core.conclude(core.begin("tool"), Raised(raised)))
    error = tool_error(reply)
    assert error["code"] == "INTERNAL"
    assert error["details"].keys() == {"exception", "message"}
    assert error["details"]["exception"] == type(raised).__name__
    if not isinstance(raised, Mute):
        assert error["details"]["message"] == str(raised)


@pytest.mark.rule("ERR-05", "ERR-03")
def test_exposed_text_that_is_not_utf8_is_replaced() -> None:
    core = running(tools={"expose_error_details": True})
    raised = ValueError("lone \ud800 surrogate")
    [reply] = replies(core.conclude(core.begin("tool"), Raised(raised)))
    assert tool_error(reply)["details"] == {"reason": "details_not_serializable"}


@pytest.mark.rule("ERR-05", "TIME-06", "CALL-13")
@pytest.mark.parametrize(
    "phase", [Phase.EXPIRED, Phase.CANCELLED, Phase.DISCONNECTED, Phase.DISCONNECTED_THEN_EXPIRED]
)
def test_unexpected_exception_of_late_handler_is_logged(phase: Phase) -> None:
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
def test_error_details_that_are_not_json_are_replaced() -> None:
    core = running()
    raised = ToolError(ErrorCode.NOT_FOUND, "gone", {"x": object()})
    [reply] = replies(core.conclude(core.begin("tool"), Raised(raised)))
    error = tool_error(reply)
    assert (error["code"], error["message"]) == ("NOT_FOUND", "gone")
    assert error["details"] == {"reason": "details_not_serializable"}


@pytest.mark.rule("ERR-03", "CALL-10")
def test_errors_of_runtime_are_sent_despite_tiny_response_limit() -> None:
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
def test_bug_in_validator_ends_call_with_reply_record_and_free_slot() -> None:
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
def test_bug_at_end_of_call_ends_it_once(phase: Phase) -> None:
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
def test_bug_in_call_of_reserved_tool_releases_no_slot() -> None:
    core = running()
    core.add("reserved", reserved=True)
    core.begin("tool", request_id=1)
    call = core.begin("reserved", request_id=2)
    broken_off(core.dispatcher.break_off(call, ZeroDivisionError(), 1.0))
    assert core.resources.concurrent_executions == 1
    assert set(core.session.in_flight) == {1}


@pytest.mark.rule("RPC-10", "RPC-17")
def test_bug_at_end_of_call_leaves_later_call_with_same_id_in_flight() -> None:
    core = running()
    expired = core.begin("tool", request_id=1)
    core.dispatcher.expire(expired)
    later = core.begin("tool", request_id=1)
    core.dispatcher.break_off(expired, ZeroDivisionError(), 1.0)
    assert core.session.in_flight == {1: later}


@pytest.mark.rule("CALL-13")
def test_records_have_neither_arguments_nor_results() -> None:
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


@pytest.mark.rule("CALL-43")
def test_first_policy_that_refuses_gives_the_answer() -> None:
    core = running(tools={"admin_policy": {"mode": "deny_all"}})
    core.session.principal = Principal("alice")
    required = TaskSupport(required=True)
    core.add("hidden", visible=lambda _: False, parts=[ADMINISTRATIVE, required], scopes=["a"])
    core.add("admin", parts=[required, ADMINISTRATIVE], scopes=["a"])
    core.add("scoped", parts=[required], scopes=["a"])
    core.add("task", parts=[required])
    errors = [refusal_of(core.call(name)) for name in ("hidden", "admin", "scoped")]
    reasons = [(each["code"], each["details"].get("reason")) for each in errors]
    assert reasons == [
        ("NOT_FOUND", None),
        ("UNAUTHORIZED", "deny_all"),
        ("UNAUTHORIZED", "insufficient_scope"),
    ]
    [reply] = replies(core.call("task"))
    assert reply["error"]["code"] == -32021
    assert core.resources.concurrent_executions == 0


@pytest.mark.rule("CALL-15", "TIME-02")
@given(
    st.lists(st.sampled_from(["expire", "cancel", "close", "return", "raise", "stop"]), max_size=6)
)
def test_call_has_at_most_one_reply_and_one_record_in_any_order_of_events(
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
