"""Log records of calls: one completion record each, and what failed in a handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import (
    ErrorCode,
    StructuredError,
    ToolCompletionOutcome,
    chosen_error,
    describe_exception,
    place_of,
)
from ..protocol.methods import TOOLS_CALL, facts
from .effects import CallCompleted, Log
from .invocation import OUTCOMES, CallOutcome, Phase, Raised

if TYPE_CHECKING:
    from ..errors import JsonRpcError
    from ..protocol.jsonrpc import Request
    from .invocation import Invocation

TOOL_CALL_COMPLETED = "tool call completed"
REQUEST_COMPLETED = "request completed"
_LATE = ToolCompletionOutcome.LATE_COMPLETED  # see `session.RUNNING`


def completion_record(
    call: Invocation,
    outcome: ToolCompletionOutcome,
    error: StructuredError | None,
    duration_ms: float,
    cause: BaseException | None = None,
) -> CallCompleted:
    """Return the one record of a call, without its arguments and its result (CALL-13, FEAT-04).

    Of `error` and of its cause, which the client does not see, the fields have only the code.
    `_value_` is an enum member's value as a plain attribute; `value` is a descriptor in Python.
    """
    fields = identity_fields(call)
    fields["durationMs"] = duration_ms
    fields["outcome"] = outcome._value_
    fields["payloadBytes"] = call.payload_bytes
    if error is not None:
        fields["errorCode"] = error.code.value
    level = "warn" if outcome is _LATE else "info"
    message = TOOL_CALL_COMPLETED if call.method == TOOLS_CALL else REQUEST_COMPLETED
    record = CallCompleted(level, message, fields)
    if error is not None:
        record.failure = error.message if cause is None else f"{error.message} {_text_of(cause)}"
    return record


def late_record(call: Invocation, outcome: CallOutcome, duration_ms: float) -> CallCompleted:
    """Return the record of a call that is no longer pending; its result is dropped."""
    error = cause = None
    if call.phase in (Phase.EXPIRED, Phase.DISCONNECTED_THEN_EXPIRED):
        error = timeout_error(call)
    elif isinstance(outcome, Raised):
        error = chosen_error(outcome.error)
        if error is None:
            error, cause = failed_error(call), outcome.error
    how = OUTCOMES[call.phase, type(outcome)]
    record = completion_record(call, how, error, duration_ms, cause)
    if error is None:
        record.failure = "It was cancelled, or its client has gone."
    return record


def timeout_error(call: Invocation) -> StructuredError:
    """Return the error of a call whose deadline has passed (TIME-02)."""
    return StructuredError(
        ErrorCode.TIMEOUT,
        f"{call.kind.subject} did not finish within {call.timeout_ms} ms. It may still be running.",
        {"timeoutMs": call.timeout_ms},
    )


def failed_error(call: Invocation, details: dict[str, Any] | None = None) -> StructuredError:
    """Return the error of a handler that failed unexpectedly (ERR-05)."""
    return StructuredError(ErrorCode.INTERNAL, f"{call.kind.subject} failed.", details)


def _text_of(error: BaseException) -> str:
    described = describe_exception(error)
    return f"{described['type']}: {described['message']}"


def protocol_error_record(
    request: Request, correlation_id: str, error: JsonRpcError
) -> CallCompleted:
    """Return the record of a request that was refused before it was a call (CALL-14, FEAT-07)."""
    fields: dict[str, Any] = {"correlationId": correlation_id}
    name = _name_in(request)
    if request.method == TOOLS_CALL:
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
    record.failure = error.message
    return record


def _name_in(request: Request) -> str | None:
    """Return the name or the URI in the params of a request; None if it has none."""
    params, target = request.params, facts(request.method).target
    name = params.get(target) if type(params) is dict else None
    if type(name) is dict:  # of an argument that is completed
        name = name.get("name", name.get("uri"))
    return name if type(name) is str else None


def failure_log(call: Invocation, message: str, error: BaseException) -> Log:
    """Return the log record of an exception, which the client does not see (ERR-05).

    One that the runtime has made for a result, and did not raise, gets the handler's place.
    """
    described = describe_exception(error)
    if not described["frames"] and (place := place_of(call.handler)) is not None:
        described["frames"] = [place]
    return Log("error", message, {**identity_fields(call), "error": described})


def identity_fields(call: Invocation) -> dict[str, Any]:
    """Return the fields by which every log line about a call names it (LOG-30)."""
    fields: dict[str, Any] = {"runId": call.run_id, "correlationId": call.correlation_id}
    if call.method == TOOLS_CALL:
        fields["toolName"] = call.name
    else:
        fields["method"] = call.method
        fields["name"] = call.name
    if call.kind.log_fields is not None:
        fields |= call.kind.log_fields(call)
    return fields
