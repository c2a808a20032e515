"""Calls of the handlers of resources, prompts and completions (spec/features.md).

They take the steps of a tool call: a slot, a deadline, cancellation, one end with one record. They
fail with a JSON-RPC error, whose `data` has the members of a tool error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import define

from ..base.shown import Shown
from ..errors import ErrorCode, JsonRpcError, JsonRpcErrorCode, StructuredError, ToolError
from ..kernel.invocation import CallKind
from ..kernel.replies import derive_correlation_id, error_reply, invalid_params, result_reply
from ..protocol.jsonrpc import ABSENT
from ..protocol.methods import RESOURCES_READ

if TYPE_CHECKING:
    from ..kernel.call_lifecycle import CallLifecycle
    from ..kernel.effects import Effect, Reply
    from ..kernel.invocation import Invocation, ToResult
    from ..kernel.registry.catalog import Predicate
    from ..kernel.registry.tools import ExecutionMode, Handler
    from ..kernel.session import Session
    from ..protocol.jsonrpc import Request
    from ..protocol.peer import Peer


Check = Callable[["Invocation"], object]
"""Refuses a call by `ToolError`."""


@define(eq=False, repr=False)
class HandlerSpec(Shown):
    """A handler, and how it runs.

    Args:
        handler: called with a dict of arguments and a `ToolContext`.
        execution: where it runs.
        timeout_ms: deadline in ms; None means `tools.default_timeout_ms`.
        scopes: the scopes that the principal of a call needs, all of them.
        tags: of the entry, by which it can be switched off and on.
        visible: returns whether a principal sees the entry (VIS-02); None: all do.
    """

    handler: Handler
    execution: ExecutionMode
    timeout_ms: int | None
    scopes: frozenset[str]
    tags: frozenset[str] = frozenset()
    visible: Predicate | None = None


def begin_handler_call(
    calls: CallLifecycle,
    session: Session,
    peer: Peer,
    request: Request,
    *,
    name: str,
    handler: HandlerSpec,
    arguments: dict[str, Any],
    to_result: ToResult,
    check: Check | None = None,
) -> list[Effect]:
    """Begin a call whose handler the method has found: steps 3 and 6 of a call (FEAT-01).

    `check` is called before it takes a slot; it raises `ToolError` to refuse the call.

    Raises:
        JsonRpcError: `_meta`, or an answer of the client to an earlier round, is not valid.
    """
    call = assign_handler_ids(calls, FEATURE, session, peer, request, name, arguments)
    call.handler = handler.handler
    call.execution = handler.execution
    call.to_result = to_result
    call.timeout_ms = handler.timeout_ms or calls.limits.default_timeout_ms
    if peer.revision.is_stateless:
        for prepared in calls.prepared:
            prepared(call, request.params)
    return admit(calls, call, check=check)


def assign_handler_ids(
    calls: CallLifecycle,
    kind: CallKind,
    session: Session,
    peer: Peer,
    request: Request,
    name: str,
    arguments: dict[str, Any],
) -> Invocation:
    """Step 3: make the call with its ids.

    In its record the call has `name`: a URI, or the name of a prompt.

    Raises:
        JsonRpcError: `_meta` is not valid.
    """
    params = request.params
    if params is not ABSENT and "_meta" in params and type(params["_meta"]) is not dict:
        raise invalid_params("_meta must be an object")
    correlation_id = derive_correlation_id(session, params)
    return calls.assign_ids(kind, session, peer, request, name, arguments, correlation_id)


def admit(
    calls: CallLifecycle,
    call: Invocation,
    *,
    needs_slot: bool = True,
    check: Check | None = None,
) -> list[Effect]:
    """Step 6: take a slot, and let the handler start; or refuse the call (FEAT-01)."""
    try:
        if check is not None:
            check(call)
        for allow in calls.allow:
            allow(call)
        if needs_slot:
            call.slot = calls.resources.take_slot(call.principal)
    except JsonRpcError:
        raise
    except ToolError as refusal:
        return calls.refuse(call, refusal.to_structured())
    except Exception as error:
        calls.resources.record_completion()
        return calls.break_off(call, error, 0.0)
    call.session.in_flight[call.request_id] = call
    return [call]


def _to_reply(calls: CallLifecycle, call: Invocation, value: Any) -> tuple[Reply, bool]:
    result = calls.results.complete(call.peer, call.to_result(value, call))
    try:
        reply = result_reply(call.request_id, result)
    except TypeError as error:
        problem = "The result cannot be written as JSON."
        raise result_refused(problem, "result_not_serializable") from error
    check_size(calls, "result", reply.line)
    return reply, False


def check_size(calls: CallLifecycle, what: str, line: bytes) -> None:
    """Raise `ToolError` if a reply is too long; it has a `result` or an `error`."""
    limit = calls.limits.max_response_bytes
    if len(line) > limit:
        problem = f"The {what} is {len(line)} bytes; at most {limit} are sent."
        raise result_refused(problem, f"{what}_too_large", maxResponseBytes=limit)


def result_refused(problem: str, reason: str, **details: Any) -> ToolError:
    """Return the error of a call whose handler returned what cannot be sent."""
    return ToolError(ErrorCode.INTERNAL, problem, {"reason": reason, **details})


def _to_error(calls: CallLifecycle, call: Invocation, error: StructuredError) -> Reply:
    """Write `error` as a JSON-RPC error whose `data` is that of a tool error (FEAT-02)."""
    try:
        return _write_error(call, error)
    except BaseException:  # values in the details may raise anything (ERR-07)
        message = error.message.encode("utf-8", "backslashreplace").decode()
        details = {"reason": "details_not_serializable"}
        return _write_error(call, StructuredError(error.code, message, details))


def _write_error(call: Invocation, error: StructuredError) -> Reply:
    data = StructuredError(
        error.code, error.message, error.details, call.run_id, call.correlation_id
    ).to_wire()
    if error.code is ErrorCode.NOT_FOUND and call.method == RESOURCES_READ:
        data["uri"] = call.name
    return error_reply(json_rpc_code(call, error.code), error.message, data, call.request_id)


def json_rpc_code(call: Invocation, code: ErrorCode) -> JsonRpcErrorCode:
    """Return the JSON-RPC code for an error of `code` raised by a handler (FEAT-02)."""
    if code is ErrorCode.NOT_FOUND and call.method == RESOURCES_READ:
        return JsonRpcErrorCode(call.peer.revision.resource_not_found)
    if code in (ErrorCode.NOT_FOUND, ErrorCode.INVALID_ARGUMENT):
        return JsonRpcErrorCode.INVALID_PARAMS
    return JsonRpcErrorCode.INTERNAL_ERROR


FEATURE = CallKind("The handler", "", _to_reply, _to_error)
