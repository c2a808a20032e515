"""The form of calls that are handed to a forwarder: their results and their errors (FWD-03).

They take the steps of every call (`kernel.call_lifecycle`). Errors that the runtime makes itself
have the form of the method: that of tools for `tools/call`, that of features for all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from ...base.exact_json import dumps
from ...errors import ToolCompletionOutcome, has_type
from ...kernel.effects import Reply
from ...kernel.invocation import CallKind
from ...kernel.records import completion_record
from ...kernel.results import TOOL
from ..handler_calls import FEATURE, check_size, result_refused
from ..tasks.support import can_have_tasks
from .forwarder import ForwardedError, forwarded
from .results import adapt_result, complete

if TYPE_CHECKING:
    from ...kernel.call_lifecycle import CallLifecycle
    from ...kernel.effects import CallCompleted
    from ...kernel.invocation import Invocation

_COMPLETE, _INPUT_REQUIRED, _TASK = "complete", "input_required", "task"


def to_reply(calls: CallLifecycle, call: Invocation, value: Any) -> tuple[Reply, bool]:
    """Write the result of a forwarder, less what the revision of the client lacks (FWD-05)."""
    if not isinstance(value, Mapping):
        cause = TypeError(f"forward() returned {type(value).__name__}, not a mapping")
        raise result_refused("The result is not an object.", "result_not_an_object") from cause
    _check_type(call, value)
    result = adapt_result(call.method, value, call.peer.revision)
    complete(calls.results, call.peer, call.method, result)
    try:
        reply = Reply(_write(call, {"result": result}), call.request_id)
    except TypeError as error:
        problem = "The result cannot be written as JSON."
        raise result_refused(problem, "result_not_serializable") from error
    check_size(calls, "result", reply.line)
    return reply, result.get("isError") is True


def _to_list_reply(calls: CallLifecycle, call: Invocation, value: Any) -> tuple[Reply, bool]:
    """Write a page of a list; as in lists of our own only its entries are bounded (FWD-29)."""
    result = calls.results.complete(call.peer, call.to_result(value, call))
    return Reply(_write(call, {"result": result}), call.request_id), False


def _check_type(call: Invocation, result: Mapping[str, Any]) -> None:
    """Refuse a result of a type that the client cannot take (FWD-07)."""
    kind = result.get("resultType", _COMPLETE)
    if kind == _COMPLETE:
        return
    forwarded(call).result_type = kind if type(kind) is str else None
    stateless = call.peer.revision.is_stateless
    if not stateless or (kind == _TASK and not can_have_tasks(call.peer)):
        problem = "The result is of a type that this client cannot take."
        raise result_refused(problem, "result_type", resultType=kind)


def is_error_of_another(error: BaseException) -> TypeGuard[ForwardedError]:
    """Return whether an exception is the error of another server."""
    return has_type(error, ForwardedError)


def answer_error(
    calls: CallLifecycle, call: Invocation, error: ForwardedError, duration_ms: float
) -> tuple[Reply, CallCompleted]:
    """Return the reply with the error of another server, as it came, and the record (FWD-08).

    Raises:
        ToolError: it is too large, or cannot be written.
    """
    wire: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        wire["data"] = error.data
    try:
        line = _write(call, {"error": wire})
    except TypeError as cause:
        problem = "The error cannot be written as JSON."
        raise result_refused(problem, "error_not_serializable") from cause
    check_size(calls, "error", line)
    record = completion_record(call, ToolCompletionOutcome.TOOL_ERROR, None, duration_ms)
    record.fields["jsonRpcCode"] = error.code
    record.failure = error.message
    return Reply(line, call.request_id, error.code), record


def _write(call: Invocation, member: dict[str, Any]) -> bytes:
    """Write a response; integers of any size stay exact."""
    return dumps({"jsonrpc": "2.0", "id": call.request_id, **member})


def log_fields(call: Invocation) -> dict[str, str]:
    """Return what log lines about a call have besides its ids and its name (FWD-11)."""
    return forwarded(call).log_fields()


RULES = (False, is_error_of_another, log_fields)
"""The rules that all kinds of calls of a forwarder have in common."""

FORWARDED_TOOL = CallKind(TOOL.subject, TOOL.label, to_reply, TOOL.to_error, *RULES)
FORWARDED = CallKind(FEATURE.subject, FEATURE.label, to_reply, FEATURE.to_error, *RULES)
FORWARDED_LIST = CallKind(FEATURE.subject, FEATURE.label, _to_list_reply, FEATURE.to_error, True)
