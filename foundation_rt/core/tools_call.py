"""`tools/call` in ten steps, in the order the specification gives them (spec/tools-call.md).

`ToolsCall.begin` is steps 1 to 7 and ends in a refusal or in an `Invocation` for the engine, which
is step 8. `ToolsCall.answer` is step 10. What can happen to a call in between, and step 9, are the
same for every handler, and stand in `procedure`.

Nothing here performs I/O or looks at a clock. A refused step raises `_Refused` or
`_ProtocolRefused`: a `try` costs nothing on the way that is nearly always taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import define

from ..errors import (
    ErrorCode,
    JsonRpcErrorCode,
    StructuredError,
    ToolCompletionOutcome,
    ToolError,
    chosen_error,
    to_tool_error,
)
from ..jsonschema.issues import TOO_COMPLEX
from ..limits import RETRY_HINT
from ..protocol.jsonrpc import Request
from .client_input import ClientInput, InputRefused
from .effects import CallCompleted, Reply
from .invocation import Invocation, Outcome, Raised, Returned
from .procedure import ALWAYS_TOLD, Procedure
from .records import TOOL_CALL_COMPLETED, completion_record, failure_log
from .replies import (
    MAX_ECHOED_NAME,
    client_correlation_id,
    derive_correlation_id,
    error_reply,
    not_initialized_data,
    result_reply,
)
from .results import tool_result
from .session import State
from .tasks.support import REQUIRED_CAPABILITIES, can_have_tasks

if TYPE_CHECKING:
    from ..config.settings import AdminPolicy
    from ..ids import IdGenerator
    from ..protocol.jsonrpc import RequestId
    from ..protocol.peer import Peer
    from ..registry.tools import RegisteredTool, ToolRegistry
    from .effects import Effect
    from .replies import ResultWriter
    from .session import Session, TransportType
    from .tasks.policy import TaskPolicy

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


def check_state(session: Session, peer: Peer | None) -> Peer:
    """Step 1: the connection is RUNNING, or the request needs none (CALL-01, REV-04)."""
    if peer is None or not (session.state is State.RUNNING or peer.revision.is_stateless):
        raise _ProtocolRefused(
            JsonRpcErrorCode.NOT_INITIALIZED, "Not initialized", not_initialized_data(session)
        )
    return peer


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


def protocol_error_record(request: Request, correlation_id: str) -> CallCompleted:
    """The record of a `tools/call` that was answered with a JSON-RPC error: it has no runId."""
    fields: dict[str, Any] = {"correlationId": correlation_id}
    if type(request.params) is dict and type(request.params.get("name")) is str:
        fields["toolName"] = request.params["name"]
    fields["durationMs"] = 0.0
    fields["outcome"] = _Outcome.PROTOCOL_ERROR._value_
    return CallCompleted("info", TOOL_CALL_COMPLETED, fields)


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


# -- step 5, where the tool needs scopes ---------------------------------------------------------


def enforce_scopes(call: Invocation, tool: RegisteredTool) -> None:
    """Refuse a call whose client, if it is known, lacks scopes that it needs (AUTH-13, AUTH-27)."""
    if call.principal is None:
        return
    scopes = tool.scopes_for(call.arguments)
    if call.principal.lacks(scopes):
        details = {"reason": "insufficient_scope", "scopes": sorted(scopes)}
        raise _Refused(ErrorCode.UNAUTHORIZED, "The client lacks scopes of this call.", details)


# -- step 5, where the tool has tasks only -------------------------------------------------------


def require_tasks(call: Invocation) -> None:
    """Refuse the call of a tool that answers with tasks only to a client without them (TASK-02)."""
    if not can_have_tasks(call.peer):
        raise _ProtocolRefused(
            JsonRpcErrorCode.MISSING_CLIENT_CAPABILITY,
            "Missing required client capability",
            {"requiredCapabilities": REQUIRED_CAPABILITIES, "correlationId": call.correlation_id},
        )


# -- steps 3 to 10 ------------------------------------------------------------------------------


@define(eq=False, repr=False)
class ToolsCall(Procedure):
    """Decides what a `tools/call` request, and the end of its handler, lead to."""

    registry: ToolRegistry
    ids: IdGenerator
    results: ResultWriter
    tasks: TaskPolicy
    client_input: ClientInput

    # -- steps 1 to 7 ------------------------------------------------------------------------

    def begin(self, session: Session, peer: Peer | None, request: Request) -> list[Effect]:
        """Steps 1 to 7: an `Invocation`, or the refusal and its completion record."""
        try:
            peer = check_state(session, peer)
            params = check_shape(session, request)
        except _ProtocolRefused as refused:
            return _refuse_protocol(session, request, refused)
        call = self.assign_ids(session, peer, request.id, params)
        try:
            self.check_payload_size(call)
            self.find_tool(call)
            if peer.revision.is_stateless:
                self.take_answers(call, params)
            if not call.tool.reserved:  # a reserved tool has a slot of its own (RES-09)
                self.acquire_slot(call)
            self.validate_arguments(call)
            support = call.tool.task
            handle = None if support is None else self.tasks.take(call, support)
        except _ProtocolRefused as refused:
            return _refuse_protocol(session, request, refused)
        except _Refused as refused:
            return self._refuse(call, refused.error)
        except ToolError as refused:
            return self._refuse(call, refused.to_structured())
        except Exception as error:
            self.resources.record_completion()
            return self.break_off(call, error, 0.0)
        call.session.in_flight[call.request_id] = call  # a task has a session of its own
        return [call] if handle is None else [handle, call]

    def assign_ids(
        self, session: Session, peer: Peer, request_id: RequestId, params: dict[str, Any]
    ) -> Invocation:
        """Step 3: the ids of the call (CALL-04)."""
        meta = params.get("_meta")
        return Invocation(
            session,
            peer,
            request_id,
            self.ids.run_id(),
            (meta is not None and client_correlation_id(params)) or self.ids.correlation_id(),
            "tools/call",
            params["name"],
            params.get("arguments", {}),
            meta,
            self,
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
        tool = self.registry.get(call.name)
        if tool is None:
            name = call.name[:MAX_ECHOED_NAME]
            raise _Refused(ErrorCode.NOT_FOUND, f"There is no tool {name!r}.", {"toolName": name})
        if tool.is_restricted:
            self.enforce_policies(call, tool)
        call.tool = tool
        call.handler = tool.handler
        call.execution = tool.execution
        call.timeout_ms = tool.timeout_ms or self.limits.default_timeout_ms

    def enforce_policies(self, call: Invocation, tool: RegisteredTool) -> None:
        """Still step 5: who may call a tool that not everybody may call."""
        if tool.administrative:
            enforce_admin_policy(self.limits.admin_policy, call.session.transport_type)
        enforce_scopes(call, tool)
        if tool.task is not None and tool.task.required:
            require_tasks(call)

    def take_answers(self, call: Invocation, params: dict[str, Any]) -> None:
        """Between steps 5 and 6: what the client was asked before, and answers (ASK-11, ASK-14)."""
        try:
            self.client_input.open(call, params)
        except InputRefused as refused:
            raise _ProtocolRefused(
                JsonRpcErrorCode.INVALID_PARAMS,
                f"Invalid params: {refused}",
                {"reason": refused.reason, "correlationId": call.correlation_id},
            ) from None

    def validate_arguments(self, call: Invocation) -> None:
        """Step 7: the arguments are what the tool advertises (CALL-08)."""
        issues = call.tool.validate(call.arguments)
        if issues:
            if issues is TOO_COMPLEX:
                raise _Refused(
                    ErrorCode.INVALID_ARGUMENT,
                    "The arguments are too complex to be checked: send less in one call.",
                    {"reason": "too_complex"},
                )
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
        self.record_refusal(error)
        record = completion_record(call, _Outcome.TOOL_ERROR, error.code, 0.0)
        record.refusal = (error.details or {}).get("reason", error.code.value)
        if error.code is ErrorCode.RESOURCE_EXHAUSTED:
            record.fields["retryHint"] = RETRY_HINT
        return [self.error_reply(call, error), record]

    # -- steps 9 and 10; what is the same for all handlers is in `procedure` --------------------

    def answer(self, call: Invocation, outcome: Outcome, duration_ms: float) -> list[Effect]:
        """Step 10 for a call that is waited for: exactly one reply and one record."""
        effects: list[Effect] = []
        if isinstance(outcome, Returned):
            try:
                result = tool_result(
                    outcome.value, call.tool, call.peer.revision, self.limits.max_response_bytes
                )
            except ToolError as refused:
                error = refused.to_structured()
                if refused.__cause__ is not None:
                    effects.append(failure_log(call, "tool result refused", refused.__cause__))
            else:
                how = _Outcome.TOOL_ERROR if result["isError"] else _Outcome.SUCCESS
                return [
                    self._reply(call, result),
                    completion_record(call, how, None, duration_ms),
                ]
        else:
            if isinstance(outcome, Raised):
                asked = self.client_input.answer(call, outcome.error, duration_ms)
                if asked is not None:
                    return asked
            error = self.describe_failure(outcome)
            if isinstance(outcome, Raised) and chosen_error(outcome.error) is None:
                effects.append(failure_log(call, "tool handler failed", outcome.error))
        record = completion_record(call, _Outcome.TOOL_ERROR, error.code, duration_ms)
        return [self.error_reply(call, error), *effects, record]

    def error_reply(self, call: Invocation, error: StructuredError) -> Reply:
        reply = self._encode_error(call, error)
        limit = self.limits.max_response_bytes
        if len(reply.line) > max(limit, ALWAYS_TOLD):
            details = {"reason": "error_too_large", "maxResponseBytes": limit}
            message = "The tool failed with an error larger than a response may be."
            reply = self._encode_error(call, StructuredError(error.code, message, details))
        return reply

    def _encode_error(self, call: Invocation, error: StructuredError) -> Reply:
        result = to_tool_error(error, run_id=call.run_id, correlation_id=call.correlation_id)
        return self._reply(call, result)

    def _reply(self, call: Invocation, result: dict[str, Any]) -> Reply:
        if call.peer.revision.is_stateless:
            result = self.results.complete(call.peer, result)
        return result_reply(call.request_id, result)
