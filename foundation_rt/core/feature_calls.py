"""Calls of the handlers that are no tools': of resources, prompts, completions.

spec/features.md says what holds for them.

They are bounded as tool calls are: they take a slot, have a deadline, can be cancelled, end exactly
once with one record. Unlike a tool call they fail with a JSON-RPC error, whose `data` has what a
tool error has.
"""

from __future__ import annotations

from types import CoroutineType
from typing import TYPE_CHECKING, Any

from attrs import define

from ..errors import (
    ErrorCode,
    JsonRpcErrorCode,
    StructuredError,
    ToolCompletionOutcome,
    ToolError,
    chosen_error,
)
from .client_input import MAY_ASK, ClientInput, InputRefused
from .effects import Reply
from .invocation import Invocation, Outcome, Raised, Returned
from .procedure import ALWAYS_TOLD, Procedure
from .records import completion_record, failure_log
from .replies import derive_correlation_id, error_reply, invalid_params, result_reply

if TYPE_CHECKING:
    from ..ids import IdGenerator
    from ..protocol.jsonrpc import Request
    from ..protocol.peer import Peer
    from ..registry.tools import ExecutionMode, Handler
    from .effects import Effect
    from .invocation import Shape
    from .replies import ResultWriter
    from .session import Session


@define(eq=False, repr=False)
class FeatureCalls(Procedure):
    """Decides what a request for a resource, a prompt or a completion leads to."""

    ids: IdGenerator
    results: ResultWriter
    client_input: ClientInput

    subject = "The handler"
    handler = "handler"

    def begin(
        self,
        session: Session,
        peer: Peer,
        request: Request,
        *,
        name: str,
        handler: Handler,
        execution: ExecutionMode,
        arguments: dict[str, Any],
        shape: Shape,
        timeout_ms: int | None = None,
    ) -> list[Effect]:
        """An `Invocation` of `handler`, or the refusal where no slot is free (FEAT-01).

        Args:
            name: what is asked for, as the record has it: a URI, the name of a prompt.
            shape: makes the result out of what the handler returns.
            timeout_ms: the deadline; by default `tools.default_timeout_ms`.
        """
        if "_meta" in request.params and type(request.params["_meta"]) is not dict:
            return invalid_params(session, request, "_meta must be an object")
        correlation_id = derive_correlation_id(session, request.params)
        call = Invocation(
            session,
            peer,
            request.id,
            self.ids.run_id(),
            correlation_id,
            request.method,
            name,
            arguments,
            request.params.get("_meta"),
            self,
        )
        call.handler = handler
        call.execution = execution
        call.shape = shape
        call.timeout_ms = timeout_ms or self.limits.default_timeout_ms
        if peer.revision.is_stateless and call.method in MAY_ASK:
            try:
                self.client_input.open(call, request.params)
            except InputRefused as refused:
                return invalid_params(session, request, str(refused), refused.reason)
        try:
            self.acquire_slot(call)
        except ToolError as refused:
            return self._refuse_for_load(call, refused.to_structured())
        session.in_flight[call.request_id] = call
        return [call]

    def answer(self, call: Invocation, outcome: Outcome, duration_ms: float) -> list[Effect]:
        """The reply and the record of a call that is waited for (FEAT-03)."""
        effects: list[Effect] = []
        if isinstance(outcome, Returned):
            try:
                reply = self._encode(call, call.shape(_checked(outcome.value), call))
            except ToolError as refused:
                error = refused.to_structured()
                if refused.__cause__ is not None:
                    effects.append(failure_log(call, "result refused", refused.__cause__))
            else:
                success = ToolCompletionOutcome.SUCCESS
                return [reply, completion_record(call, success, None, duration_ms)]
        else:
            if isinstance(outcome, Raised):
                asked = self.client_input.answer(call, outcome.error, duration_ms)
                if asked is not None:
                    return asked
            error = self.describe_failure(outcome)
            if isinstance(outcome, Raised) and chosen_error(outcome.error) is None:
                effects.append(failure_log(call, "handler failed", outcome.error))
        failed = ToolCompletionOutcome.TOOL_ERROR
        record = completion_record(call, failed, error.code, duration_ms)
        return [self.error_reply(call, error), *effects, record]

    def error_reply(self, call: Invocation, error: StructuredError) -> Reply:
        """`error` as a JSON-RPC error; its `data` is what a tool error has (FEAT-02)."""
        try:
            reply = _refusal(call, error)
        except BaseException:  # what stands in the details may raise anything (ERR-07)
            message = error.message.encode("utf-8", "backslashreplace").decode()
            details: dict[str, Any] = {"reason": "details_not_serializable"}
            reply = _refusal(call, StructuredError(error.code, message, details))
        limit = self.limits.max_response_bytes
        if len(reply.line) > max(limit, ALWAYS_TOLD):
            details = {"reason": "error_too_large", "maxResponseBytes": limit}
            message = "The handler failed with an error larger than a response may be."
            return _refusal(call, StructuredError(error.code, message, details))
        return reply

    def _encode(self, call: Invocation, result: dict[str, Any]) -> Reply:
        try:
            reply = result_reply(call.request_id, self.results.complete(call.peer, result))
        except TypeError as error:
            raise ToolError(
                ErrorCode.INTERNAL,
                "The result cannot be written as JSON.",
                {"reason": "result_not_serializable"},
            ) from error
        limit = self.limits.max_response_bytes
        if len(reply.line) > limit:
            raise ToolError(
                ErrorCode.INTERNAL,
                f"The result is {len(reply.line)} bytes; at most {limit} are sent.",
                {"reason": "result_too_large", "maxResponseBytes": limit},
            )
        return reply

    def _refuse_for_load(self, call: Invocation, error: StructuredError) -> list[Effect]:
        self.record_refusal(error)
        failed = ToolCompletionOutcome.TOOL_ERROR
        record = completion_record(call, failed, error.code, 0.0)
        record.refusal = (error.details or {})["reason"]
        return [self.error_reply(call, error), record]


def _checked(value: Any) -> Any:
    """What a handler returned, unless it is a coroutine, which nobody will run."""
    if not isinstance(value, CoroutineType):
        return value
    value.close()  # Python would warn that it was never awaited
    raise ToolError(
        ErrorCode.INTERNAL,
        "The result cannot be written as JSON.",
        {"reason": "result_not_serializable"},
    ) from TypeError("the handler returned a coroutine: declare it with async def")


def _refusal(call: Invocation, error: StructuredError) -> Reply:
    data = StructuredError(
        error.code, error.message, error.details, call.run_id, call.correlation_id
    ).to_wire()
    if error.code is ErrorCode.NOT_FOUND and call.method == "resources/read":
        data["uri"] = call.name
    return error_reply(json_rpc_code(call, error.code), error.message, data, call.request_id)


def json_rpc_code(call: Invocation, code: ErrorCode) -> JsonRpcErrorCode:
    """The code of the JSON-RPC error that tells of a handler's error of `code` (FEAT-02)."""
    if code is ErrorCode.NOT_FOUND and call.method == "resources/read":
        return JsonRpcErrorCode(call.peer.revision.resource_not_found)
    if code in (ErrorCode.NOT_FOUND, ErrorCode.INVALID_ARGUMENT):
        return JsonRpcErrorCode.INVALID_PARAMS
    return JsonRpcErrorCode.INTERNAL_ERROR
