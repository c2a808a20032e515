"""The scopes that requests for prompts, resources, completions and own methods need (AUTH-13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.skill_format import DIRECTORY_READ, MANIFEST
from ..errors import ErrorCode, ToolError
from ..protocol.methods import COMPLETION_COMPLETE, PROMPTS_GET, RESOURCES_READ
from .prompts.feature import Prompts
from .resources.feature import Resources

if TYPE_CHECKING:
    from ..kernel.dispatcher import Dispatcher
    from ..kernel.invocation import Invocation
    from ..kernel.session import Session
    from ..protocol.jsonrpc import Request
    from ..protocol.principal import Principal
    from .context import ToolContext

_NONE: frozenset[str] = frozenset()


def require_scopes(
    of: Session | Invocation | ToolContext, scopes: frozenset[str], what: str = "this"
) -> None:
    """Raise `ToolError` where the principal of a session, or call, lacks any scope (AUTH-13)."""
    if of.principal is not None and of.principal.lacks(scopes):
        raise ToolError(
            ErrorCode.UNAUTHORIZED,
            f"The client lacks scopes of {what}.",
            {"reason": "insufficient_scope", "scopes": sorted(scopes)},
        )


def scopes_of(
    dispatcher: Dispatcher, request: Request, principal: Principal | None
) -> frozenset[str]:
    """Return the scopes of what `request` names, if seen, or of a method of the author (EXT-05)."""
    if request.method in dispatcher.own:
        scopes = _scopes_of_method(dispatcher, request.method)
        if scopes is not None:
            return scopes
    params = request.params
    if type(params) is not dict:
        return _NONE
    if request.method == COMPLETION_COMPLETE:
        ref = params.get("ref")
        params = ref if type(ref) is dict else {}
    name, uri = params.get("name"), params.get("uri")
    if request.method != RESOURCES_READ and type(name) is str:
        prompts: Prompts = dispatcher.parts[Prompts]
        prompt = prompts.look_up(name, principal)
        return _NONE if prompt is None else prompt.scopes
    if request.method == DIRECTORY_READ:
        uri = f"{uri}/{MANIFEST}"  # which has the scopes of the folder
    if request.method != PROMPTS_GET and type(uri) is str:
        resources: Resources = dispatcher.parts[Resources]
        template = resources.template(uri, principal)
        if template is not None and request.method == COMPLETION_COMPLETE:
            return template.scopes
        try:
            return resources.look_up(uri, principal)[0].scopes
        except LookupError:
            return _NONE
    return _NONE


def _scopes_of_method(dispatcher: Dispatcher, method: str) -> frozenset[str] | None:
    """Return the scopes of a method of the author; None if it is of a feature."""
    from .custom_methods import CustomMethods

    custom: CustomMethods | None = dispatcher.parts.get(CustomMethods)
    found = None if custom is None else custom.methods.get(method)
    return None if found is None else found.handler_spec.scopes
