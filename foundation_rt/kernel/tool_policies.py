"""The rules of tool calls alone: their policies, and the form of their results and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode, StructuredError, ToolError, to_tool_error
from .invocation import CallKind
from .replies import MAX_ECHOED_NAME, result_reply
from .results import tool_result

if TYPE_CHECKING:
    from ..base.config.settings import AdminPolicy
    from ..protocol.principal import Principal
    from .call_lifecycle import CallLifecycle
    from .effects import Reply
    from .invocation import Invocation
    from .registry.tools import RegisteredTool
    from .session import TransportType

_ADMIN_REFUSALS = {
    "deny_all": "Admin operations are disabled",
    "local_stdio_only": "Admin operations only allowed via stdio",
    "scopes": "Admin operations only allowed via stdio, or with a key or token",
    "token": "Token mode not supported",
}


# -- step 5: policies of restricted tools ---------------------------------------------------------


def enforce_policies(call: Invocation, tool: RegisteredTool, admin_policy: AdminPolicy) -> None:
    """Refuse the call of a restricted tool where its client may not call it.

    Raises:
        ToolError: NOT_FOUND: the principal does not see the tool (VIS-02). UNAUTHORIZED: the
            policy for administrative tools, or a missing scope.
    """
    if tool.visible is not None and not tool.visible(call.principal):
        raise no_such_tool(call.name)
    if tool.administrative:
        enforce_admin_policy(admin_policy, call.session.transport_type, call.principal)
    enforce_scopes(call, tool)


def no_such_tool(name: str) -> ToolError:
    """Return the error of a call of a tool that is not there (CALL-06)."""
    name = name[:MAX_ECHOED_NAME]
    return ToolError(ErrorCode.NOT_FOUND, f"There is no tool {name!r}.", {"toolName": name})


def enforce_admin_policy(
    policy: AdminPolicy, transport_type: TransportType, principal: Principal | None
) -> None:
    """Refuse the call of an administrative tool unless `policy` allows it (ADMIN-03)."""
    if policy.mode in ("local_stdio_only", "scopes") and transport_type == "stdio":
        return
    if policy.mode == "scopes" and principal is not None:
        return  # its scopes are those of the tool (ADMIN-12)
    reason = policy.mode
    raise ToolError(ErrorCode.UNAUTHORIZED, _ADMIN_REFUSALS[reason], {"reason": reason})


def enforce_scopes(call: Invocation, tool: RegisteredTool) -> None:
    """Refuse a call whose principal, if there is one, lacks scopes (AUTH-13, AUTH-27)."""
    if call.principal is None:
        return
    scopes = tool.scopes_for(call.arguments)
    if call.principal.lacks(scopes):
        details = {"reason": "insufficient_scope", "scopes": sorted(scopes)}
        raise ToolError(ErrorCode.UNAUTHORIZED, "The client lacks scopes of this call.", details)


# -- step 10: results and errors -----------------------------------------------------------------


def _to_reply(calls: CallLifecycle, call: Invocation, value: Any) -> tuple[Reply, bool]:
    max_bytes = calls.limits.max_response_bytes
    result = tool_result(value, call.tool, call.peer.revision, max_bytes)
    is_error: bool = result["isError"]
    if call.peer.revision.is_stateless:
        result = calls.results.complete(call.peer, result)
    return result_reply(call.request_id, result), is_error


def _to_error(calls: CallLifecycle, call: Invocation, error: StructuredError) -> Reply:
    result = to_tool_error(error, run_id=call.run_id, correlation_id=call.correlation_id)
    return result_reply(call.request_id, calls.results.complete(call.peer, result))


TOOL = CallKind("The tool", "tool ", _to_reply, _to_error)
