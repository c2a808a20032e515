"""Log records of calls: one completion record each, and what failed in a handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode, ToolCompletionOutcome, chosen_error, describe_exception
from .effects import CallCompleted, Log
from .invocation import OUTCOMES, CallOutcome, Phase, Raised

if TYPE_CHECKING:
    from ..errors import JsonRpcError
    from ..protocol.jsonrpc import Request
    from .invocation import Invocation

TOOL_CALL_COMPLETED = "tool call completed"
REQUEST_COMPLETED = "request completed"

CALLS = frozenset(("tools/call", "resources/read", "prompts/get", "completion/complete"))
"""The methods whose requests become calls."""


def completion_record(
    call: Invocation,
    outcome: ToolCompletionOutcome,
    error_code: ErrorCode | None,
    duration_ms: float,
) -> CallCompleted:
    """Return the one record of a call, without its arguments and its result (CALL-13, FEAT-04).

    `_value_` is an enum member's value as a plain attribute; `value` is a descriptor in Python.
    """
    fields = identity_fields(call)
    fields["durationMs"] = duration_ms
    fields["outcome"] = outcome._value_
    fields["payloadBytes"] = call.payload_bytes
    if error_code is not None:
        fields["errorCode"] = error_code.value
    level = "warn" if outcome is ToolCompletionOutcome.LATE_COMPLETED else "info"
    message = TOOL_CALL_COMPLETED if call.method == "tools/call" else REQUEST_COMPLETED
    return CallCompleted(level, message, fields)


def late_record(call: Invocation, outcome: CallOutcome, duration_ms: float) -> CallCompleted:
    """Return the record of a call that is no longer pending; its result is dropped."""
    error_code = None
    if call.phase in (Phase.EXPIRED, Phase.DISCONNECTED_THEN_EXPIRED):
        error_code = ErrorCode.TIMEOUT
    elif isinstance(outcome, Raised):
        chosen = chosen_error(outcome.error)
        error_code = ErrorCode.INTERNAL if chosen is None else chosen.code
    return completion_record(call, OUTCOMES[call.phase, type(outcome)], error_code, duration_ms)


def protocol_error_record(
    request: Request, correlation_id: str, error: JsonRpcError
) -> CallCompleted:
    """Return the record of a request that was refused before it was a call (CALL-14, FEAT-07)."""
    fields: dict[str, Any] = {"correlationId": correlation_id}
    name = _name_in(request)
    if request.method == "tools/call":
        message = TOOL_CALL_COMPLETED
        if name is not None:
            fields["toolName"] = name
    else:
        message = REQUEST_COMPLETED
        fields |= {"method": request.method, "name": name or ""}
        if "code" in error.data:
            fields["errorCode"] = error.data["code"]
    fields["durationMs"] = 0.0
    fields["outcome"] = outcome = ToolCompletionOutcome.PROTOCOL_ERROR._value_
    record = CallCompleted("info", message, fields)
    record.refusal = error.data.get("reason", outcome)
    return record


def _name_in(request: Request) -> str | None:
    """Return the name or the URI in the params of a request; None if it has none."""
    params = request.params
    if request.method == "completion/complete" and type(params) is dict:
        params = params.get("ref")
    if type(params) is not dict:
        return None
    name = params.get("name", params.get("uri"))
    return name if type(name) is str else None


def failure_log(call: Invocation, message: str, error: BaseException) -> Log:
    """Return the log record of an exception, which the client does not see (ERR-05)."""
    return Log("error", message, {**identity_fields(call), "error": describe_exception(error)})


def identity_fields(call: Invocation) -> dict[str, Any]:
    """Return the fields by which every log line about a call names it (LOG-30)."""
    fields: dict[str, Any] = {"runId": call.run_id, "correlationId": call.correlation_id}
    if call.method == "tools/call":
        fields["toolName"] = call.name
    else:
        fields["method"] = call.method
        fields["name"] = call.name
    if call.kind.is_forwarded:
        fields |= call.forwarded.log_fields()
    return fields
