"""Resources of the server that its own handlers read, in the name of their client (MRES-23)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode, ToolError
from .methods.scopes import require_scopes

if TYPE_CHECKING:
    from .invocation import Invocation
    from .registry.features import Features
    from .registry.resources import RegisteredResource, RegisteredTemplate


def find_resource(
    features: Features | None, call: Invocation, uri: str
) -> tuple[RegisteredResource | RegisteredTemplate, dict[str, Any]]:
    """Return the resource of `uri`, and the arguments of its handler.

    Raises:
        ToolError: NOT_FOUND, or UNAUTHORIZED where the principal of `call` lacks a scope.
    """
    uri = str(uri)  # others have classes for URIs
    try:
        if features is None:
            raise LookupError(uri)
        found, values = features.resources.find(uri, call.principal)
    except LookupError:
        details = {"reason": "resource_not_found", "uri": uri}
        raise ToolError(ErrorCode.NOT_FOUND, "Resource not found", details) from None
    require_scopes(call, found.scopes)
    return found, {**values, "uri": uri}
