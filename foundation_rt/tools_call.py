"""`tools/call` in ten steps, in the order the specification gives them (spec/tools-call.md).

`ToolsCall.begin` is steps 1 to 7 and ends in a refusal or in an `Invocation` for the engine, which
is step 8. `ToolsCall.conclude` is steps 9 and 10. What can happen to a call in between stands in
`invocation`.

Nothing here performs I/O or looks at a clock. A refused step raises `_Refused` or
`_ProtocolRefused`: a `try` costs nothing on the way that is nearly always taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import define

from .effects import Abort, Emit, Reply
from .errors import (
    ErrorCode,
    JsonRpcErrorCode,
    StructuredError,
    ToolCompletionOutcome,
    ToolError,
    describe_exception,
    to_tool_error,
)
from .invocation import (
    OUTCOMES,
    Invocation,
    Outcome,
    Phase,
    Raised,
    Returned,
    Stopped,
)
from .protocol.jsonrpc import Request, encode
from .refusals import (
    MAX_ECHOED_NAME,
    client_correlation_id,
    derive_correlation_id,
    error_reply,
    internal_error_reply,
    not_initialized_data,
)
from .resources import RETRY_HINT
from .results import encode_result
from .session import State

if TYPE_CHECKING:
    from .config import AdminPolicy, ToolsSection
    from .effects import Effect
    from .ids import IdGenerator
    from .protocol.jsonrpc import RequestId
    from .registry import ToolRegistry
    from .resources import ResourceManager
    from .session import Session, TransportType

# However small `tools.max_response_bytes` is set, an error of the runtime's own still gets through.
_ALWAYS_TOLD = 4096

_Outcome = ToolCompletionOutcome


class _ProtocolRefused(Exception):
    """Steps 1 and 2 refuse with a JSON-RPC error."""

    def __init__(self, code: JsonRpcErrorCode, message: str, data: dict[str, Any]) -> None:
        self.code = code
        self.message = message
        self.data = data


class _Refused(Exception):
    """Steps 4 to 7 refuse with a tool error."""

    def __init__(self, code: ErrorCode, message: str, details: Mapping[str, Any]) -> None:
        self.error = StructuredError(code, message, details)


# -- steps 1 and 2 -----------------------------------------------------------------------------


def check_state(session: Session) -> None:
    """Step 1: the connection is RUNNING (CALL-01)."""
    if session.state is not State.RUNNING:
        raise _ProtocolRefused(
            JsonRpcErrorCode.NOT_INITIALIZED, "Not initialized", not_initialized_data(session)
        )


def check_shape(session: Session, request: Request) -> dict[str, Any]:
    """Step 2: `name`, `arguments` and `_meta` have the types they must have (CALL-02)."""
    params = request.params
    if type(params) is not dict:
        raise _invalid_params(session, params, "params", "params must be an object with a name")
    if type(params.get("name")) is not str:
        raise _invalid_params(session, params, "params.name", "name must be a string")
    if "arguments" in params and type(params["arguments"]) is not dict:
        raise _invalid_params(session, params, "params.arguments", "arguments must be an object")
    if "_meta" in params and type(params["_meta"]) is not dict:
        raise _invalid_params(session, params, "params._meta", "_meta must be an object")
    return params


def _invalid_params(session: Session, params: Any, where: str, what: str) -> _ProtocolRefused:
    return _ProtocolRefused(
        JsonRpcErrorCode.INVALID_PARAMS,
        f"Invalid params: {what}",
        {
            "reason": "invalid_params",
            "path": where,
            "correlationId": derive_correlation_id(session, params),
        },
    )


def _refuse_protocol(session: Session, request: Request, refused: _ProtocolRefused) -> list[Effect]:
    reply = error_reply(refused.code, refused.message, refused.data, request.id)
    return [reply, protocol_error_record(request, refused.data["correlationId"])]


def protocol_error_record(request: Request, correlation_id: str) -> Emit:
    """The record of a `tools/call` that was answered with a JSON-RPC error: it has no runId."""
    fields: dict[str, Any] = {"correlationId": correlation_id}
    if type(request.params) is dict and type(request.params.get("name")) is str:
        fields["toolName"] = request.params["name"]
    fields["durationMs"] = 0.0
    fields["outcome"] = _Outcome.PROTOCOL_ERROR._value_
    return Emit("info", COMPLETION_MESSAGE, fields)


# -- step 5, where the tool is an administrative one ---------------------------------------------

_ADMIN_REFUSALS = {
    "deny_all": "Admin operations are disabled",
    "local_stdio_only": "Admin operations only allowed via stdio",
    "token": "Token mode not supported",
}


def enforce_admin_policy(policy: AdminPolicy, transport_type: TransportType) -> None:
    """Refuse the call of an administrative tool unless `policy` allows it here (ADMIN-03)."""
    if policy.mode == "local_stdio_only" and transport_type == "stdio":
        return
    reason = policy.mode
    raise _Refused(ErrorCode.UNAUTHORIZED, _ADMIN_REFUSALS[reason], {"reason": reason})


# -- steps 3 to 10 ------------------------------------------------------------------------------


@define(eq=False, repr=False)
class ToolsCall:
    """Decides what a `tools/call` request, and the end of its handler, lead to.

    Args:
        limits: the `tools` section of the configuration.
    """

    registry: ToolRegistry
    resources: ResourceManager
    limits: ToolsSection
    ids: IdGenerator

    # -- steps 1 to 7 ------------------------------------------------------------------------

    def begin(self, session: Session, request: Request) -> list[Effect]:
        """Steps 1 to 7: an `Invocation`, or the refusal and its completion record."""
        try:
            check_state(session)
            params = check_shape(session, request)
        except _ProtocolRefused as refused:
            return _refuse_protocol(session, request, refused)
        call = self.assign_ids(session, request.id, params)
        try:
            self.check_payload_size(call)
            self.find_tool(call)
            self.acquire_slot(call)
            self.validate_arguments(call)
        except _Refused as refused:
            return self._refuse(call, refused.error)
        except Exception as error:
            self.resources.record_completion()
            return self.break_off(call, error, 0.0)
        session.in_flight[call.request_id] = call
        return [call]

    def assign_ids(
        self, session: Session, request_id: RequestId, params: dict[str, Any]
    ) -> Invocation:
        """Step 3: the ids of the call; `_meta` goes no further (CALL-04)."""
        return Invocation(
            session,
            request_id,
            self.ids.run_id(),
            ("_meta" in params and client_correlation_id(params)) or self.ids.correlation_id(),
            params["name"],
            params.get("arguments", {}),
        )

    def check_payload_size(self, call: Invocation) -> None:
        """Step 4: the arguments as JSON are within `tools.max_payload_bytes` (CALL-05)."""
        try:
            call.payload_bytes = self.resources.payload_size(call.arguments)
        except TypeError:
            raise _Refused(
                ErrorCode.INVALID_ARGUMENT,
                "The arguments are nested too deeply to be written as JSON.",
                {"reason": "arguments_not_serializable"},
            ) from None
        limit = self.limits.max_payload_bytes
        if call.payload_bytes > limit:
            raise _Refused(
                ErrorCode.RESOURCE_EXHAUSTED,
                f"The arguments are {call.payload_bytes} bytes as JSON; at most {limit} are taken.",
                {
                    "reason": "payload_too_large",
                    "payloadBytes": call.payload_bytes,
                    "maxPayloadBytes": limit,
                },
            )

    def find_tool(self, call: Invocation) -> None:
        """Step 5: the tool exists (CALL-06), and policy lets it be called (ADMIN-03)."""
        tool = self.registry.get(call.tool_name)
        if tool is None:
            name = call.tool_name[:MAX_ECHOED_NAME]
            raise _Refused(ErrorCode.NOT_FOUND, f"There is no tool {name!r}.", {"toolName": name})
        if tool.administrative:
            enforce_admin_policy(self.limits.admin_policy, call.session.transport_type)
        call.tool = tool
        call.timeout_ms = tool.timeout_ms or self.limits.default_timeout_ms

    def acquire_slot(self, call: Invocation) -> None:
        """Step 6: a slot, at once or not at all (CALL-07); a reserved tool has its own (RES-09)."""
        if call.tool.reserved:
            return
        call.slot = self.resources.try_acquire_slot()
        if call.slot is None:
            limit = self.resources.config.resources.max_concurrent_executions
            raise _Refused(
                ErrorCode.RESOURCE_EXHAUSTED,
                f"All {limit} execution slots are in use; try again later.",
                {"reason": "concurrency_limit", "maxConcurrentExecutions": limit},
            )

    def validate_arguments(self, call: Invocation) -> None:
        """Step 7: the arguments are what the tool advertises (CALL-08)."""
        issues = call.tool.validate(call.arguments)
        if issues:
            first = issues[0]
            raise _Refused(
                ErrorCode.INVALID_ARGUMENT,
                f"Invalid arguments: {first.path or 'the arguments'} {first.message}.",
                {
                    "reason": "schema_validation",
                    "errors": [{"path": each.path, "message": each.message} for each in issues],
                },
            )

    def _refuse(self, call: Invocation, error: StructuredError) -> list[Effect]:
        if call.slot is not None:
            call.slot.release()
        if error.code is ErrorCode.RESOURCE_EXHAUSTED:
            self.resources.record_rejection()
        else:
            self.resources.record_completion()
        record = _completion_record(call, _Outcome.TOOL_ERROR, error.code, 0.0)
        if error.code is ErrorCode.RESOURCE_EXHAUSTED:
            record.fields["retryHint"] = RETRY_HINT
        return [self._error_reply(call, error), record]

    # -- between 8 and 9: what may happen to a call that runs --------------------------------

    def expire(self, call: Invocation) -> list[Effect]:
        """The deadline has passed: answer TIMEOUT, abort, keep the slot (TIME-02)."""
        if call.phase is Phase.WAITED_FOR:
            call.phase = Phase.EXPIRED
            del call.session.in_flight[call.request_id]
            error = StructuredError(
                ErrorCode.TIMEOUT,
                f"The tool did not finish within {call.timeout_ms} ms. It may still be running.",
                {"timeoutMs": call.timeout_ms},
            )
            return [self._error_reply(call, error), Abort(call, "deadline")]
        if call.phase is Phase.DISCONNECTED:
            call.phase = Phase.DISCONNECTED_THEN_EXPIRED
        return []

    def cancel(self, call: Invocation) -> list[Effect]:
        """The client no longer wants the answer: none is sent (TIME-05)."""
        call.phase = Phase.CANCELLED
        del call.session.in_flight[call.request_id]
        return [Abort(call, "cancelled")]

    def disconnect(self, call: Invocation, reason: str) -> list[Effect]:
        """The client has gone, or the server is going (TIME-08)."""
        call.phase = Phase.DISCONNECTED
        del call.session.in_flight[call.request_id]
        return [Abort(call, reason)]

    # -- steps 9 and 10 ----------------------------------------------------------------------

    def conclude(self, call: Invocation, outcome: Outcome, duration_ms: float) -> list[Effect]:
        """Steps 9 and 10: give the slot back, wrap what came out, write the record.

        Args:
            duration_ms: how long the handler ran, in ms.
        """
        if call.slot is not None:
            call.slot.release()
        self.resources.record_completion()
        if call.phase is Phase.WAITED_FOR:
            del call.session.in_flight[call.request_id]
            return self._answer(call, outcome, duration_ms)
        effects: list[Effect] = [_late_record(call, outcome, duration_ms)]
        if type(outcome) is Raised and not isinstance(outcome.error, ToolError):
            effects.insert(0, _failure_log(call, "tool handler failed", outcome.error))
        return effects

    def break_off(self, call: Invocation, error: Exception, duration_ms: float) -> list[Effect]:
        """A bug, in a validator say, keeps a call from going on: it still ends once (RPC-10)."""
        if call.slot is not None:
            call.slot.release()
        if call.session.in_flight.get(call.request_id) is call:
            del call.session.in_flight[call.request_id]
        log = _failure_log(call, "internal error", error)
        if call.phase is not Phase.WAITED_FOR:
            return [log, _late_record(call, Raised(error), duration_ms)]
        return [
            internal_error_reply(call.request_id, call.correlation_id),
            log,
            _completion_record(call, _Outcome.TOOL_ERROR, ErrorCode.INTERNAL, duration_ms),
        ]

    def _answer(self, call: Invocation, outcome: Outcome, duration_ms: float) -> list[Effect]:
        """Step 10 for a call that is waited for: exactly one reply and one record."""
        effects: list[Effect] = []
        if isinstance(outcome, Returned):
            try:
                text = encode_result(outcome.value, self.limits.max_response_bytes)
            except ToolError as refused:
                error = refused.to_structured()
                if refused.__cause__ is not None:
                    effects.append(_failure_log(call, "tool result refused", refused.__cause__))
            else:
                return [
                    _success_reply(call, text),
                    _completion_record(call, _Outcome.SUCCESS, None, duration_ms),
                ]
        else:
            error = self.describe_failure(outcome)
            if isinstance(outcome, Raised) and not isinstance(outcome.error, ToolError):
                effects.append(_failure_log(call, "tool handler failed", outcome.error))
        record = _completion_record(call, _Outcome.TOOL_ERROR, error.code, duration_ms)
        return [self._error_reply(call, error), *effects, record]

    def _error_reply(self, call: Invocation, error: StructuredError) -> Reply:
        line = _encode_error(call, error)
        limit = self.limits.max_response_bytes
        if len(line) > max(limit, _ALWAYS_TOLD):
            details = {"reason": "error_too_large", "maxResponseBytes": limit}
            message = "The tool failed with an error larger than a response may be."
            line = _encode_error(call, StructuredError(error.code, message, details))
        return Reply(line)

    def describe_failure(self, outcome: Raised | Stopped) -> StructuredError:
        """What the client reads of a handler that did not return (ERR-05)."""
        error = outcome.error if isinstance(outcome, Raised) else None
        if isinstance(error, ToolError):
            return error.to_structured()
        details: dict[str, Any] | None = None
        if error is not None and self.limits.expose_error_details:
            described = describe_exception(error)
            details = {"exception": described["type"], "message": described["message"]}
        return StructuredError(ErrorCode.INTERNAL, "The tool failed.", details)


# -- step 10 -----------------------------------------------------------------------------------


def _success_reply(call: Invocation, text: str) -> Reply:
    return Reply(
        encode(
            {
                "jsonrpc": "2.0",
                "id": call.request_id,
                "result": {"content": [{"type": "text", "text": text}], "isError": False},
            }
        )
    )


def _encode_error(call: Invocation, error: StructuredError) -> bytes:
    result = to_tool_error(error, run_id=call.run_id, correlation_id=call.correlation_id)
    return encode({"jsonrpc": "2.0", "id": call.request_id, "result": result})


COMPLETION_MESSAGE = "tool call completed"


def _completion_record(
    call: Invocation,
    outcome: ToolCompletionOutcome,
    error_code: ErrorCode | None,
    duration_ms: float,
) -> Emit:
    """The one record of a call: never its arguments, never its result (CALL-13).

    `_value_` is an enum member's value as a plain attribute; `value` is a descriptor in Python.
    """
    fields: dict[str, Any] = {
        "runId": call.run_id,
        "correlationId": call.correlation_id,
        "toolName": call.tool_name,
        "durationMs": duration_ms,
        "outcome": outcome._value_,
        "payloadBytes": call.payload_bytes,
    }
    if error_code is not None:
        fields["errorCode"] = error_code.value
    level = "warn" if outcome is _Outcome.LATE_COMPLETED else "info"
    return Emit(level, COMPLETION_MESSAGE, fields)


def _late_record(call: Invocation, outcome: Outcome, duration_ms: float) -> Emit:
    """The record of a call whose answer nobody waits for; what it returned is dropped."""
    error_code = None
    if call.phase in (Phase.EXPIRED, Phase.DISCONNECTED_THEN_EXPIRED):
        error_code = ErrorCode.TIMEOUT
    elif isinstance(outcome, Raised):
        error = outcome.error
        error_code = error.code if isinstance(error, ToolError) else ErrorCode.INTERNAL
    return _completion_record(call, OUTCOMES[call.phase, type(outcome)], error_code, duration_ms)


def _failure_log(call: Invocation, message: str, error: BaseException) -> Emit:
    """What went wrong inside a tool is for the operator's log, not for the client (ERR-05)."""
    fields = {
        "runId": call.run_id,
        "correlationId": call.correlation_id,
        "toolName": call.tool_name,
        "error": describe_exception(error),
    }
    return Emit("error", message, fields)
