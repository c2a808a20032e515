"""The policies of restricted tools: who may call them (CALL-43).

They are asked in one order, in step 5: `Policies.admit` has its beginning, and the features that
stand after it in `builtin` its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode, ToolError
from ..kernel.call_lifecycle import no_such_tool
from ..kernel.feature import RuntimeFeature
from ..kernel.registry.catalog import is_visible
from ..kernel.registry.tools import ToolPart

if TYPE_CHECKING:
    from ..base.config.settings import AdminPolicy
    from ..kernel.invocation import Invocation
    from ..kernel.registry.tools import RegisteredTool


class Administrative(ToolPart):
    """Calls of a tool are subject to `tools.admin_policy` (ADMIN-03)."""

    __slots__ = ()
    restricts = True


ADMINISTRATIVE = Administrative()


class ArgumentScopes(ToolPart):
    """Calls of a tool need scopes that follow from their arguments (AUTH-27).

    Attributes:
        of: returns these scopes, given arguments that are not validated yet; must not raise.
    """

    __slots__ = ("of",)
    restricts = True

    def __init__(self, of: Callable[[dict[str, Any]], frozenset[str]]) -> None:
        self.of = of


def scopes_for(tool: RegisteredTool, arguments: dict[str, Any]) -> frozenset[str]:
    """Return the scopes that a call with these arguments needs (AUTH-13, AUTH-27)."""
    found: ArgumentScopes | None = tool.parts.get(ArgumentScopes)
    return tool.scopes if found is None else tool.scopes | found.of(arguments)


class Policies(RuntimeFeature):
    """Refuses calls of restricted tools whose client may not call them.

    Args:
        admin_policy: that of administrative tools.
    """

    def __init__(self, admin_policy: AdminPolicy) -> None:
        self._admin_policy = admin_policy

    def admit(self, call: Invocation) -> None:
        """Ask each policy in turn.

        Raises:
            ToolError: NOT_FOUND: the principal does not see the tool (VIS-02). UNAUTHORIZED: the
                policy for administrative tools, or a missing scope.
        """
        tool = call.tool
        if not is_visible(tool, call.principal):
            raise no_such_tool(call.name)
        if Administrative in tool.parts:
            from .admin_policy import admit_administrative

            admit_administrative(self._admin_policy.mode, call)
        _require_scopes(call)


def _require_scopes(call: Invocation) -> None:
    """Refuse a call whose principal, if there is one, lacks scopes (AUTH-13, AUTH-27)."""
    if call.principal is None:
        return
    scopes = scopes_for(call.tool, call.arguments)
    if call.principal.lacks(scopes):
        details = {"reason": "insufficient_scope", "scopes": sorted(scopes)}
        raise ToolError(ErrorCode.UNAUTHORIZED, "The client lacks scopes of this call.", details)
