"""The policy of administrative tools: over which connections they may be called (ADMIN-03)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ErrorCode, ToolError

if TYPE_CHECKING:
    from ..kernel.invocation import Invocation

_REFUSALS = {
    "deny_all": "Admin operations are disabled",
    "local_stdio_only": "Admin operations only allowed via stdio",
    "scopes": "Admin operations only allowed via stdio, or with a key or token",
    "token": "Token mode not supported",
}


def admit_administrative(mode: str, call: Invocation) -> None:
    """Refuse the call of an administrative tool unless the policy allows it.

    Args:
        mode: that of `tools.admin_policy`.
        call: of the tool.

    Raises:
        ToolError: UNAUTHORIZED.
    """
    if mode in ("local_stdio_only", "scopes") and call.session.transport_type == "stdio":
        return
    if mode == "scopes" and call.principal is not None:
        return  # its scopes are those of the tool (ADMIN-12)
    raise ToolError(ErrorCode.UNAUTHORIZED, _REFUSALS[mode], {"reason": mode})
