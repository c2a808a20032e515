"""`resources/list`, `resources/templates/list` and `resources/read` (spec/mcp-resources.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import JsonRpcError, JsonRpcErrorCode
from ...kernel.methods.lists import answer_list
from ...kernel.replies import invalid_params, method_not_found
from ..handler_calls import begin_handler_call
from ..scopes import require_scopes
from .feature import Resources

if TYPE_CHECKING:
    from ...kernel.dispatcher import Dispatcher
    from ...kernel.effects import Effect
    from ...kernel.invocation import Invocation, ToResult
    from ...kernel.session import Session
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from .registry import RegisteredResource, RegisteredTemplate, ResourceRegistry


def list_resources(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """Return a page of the resources that have a URI of their own (MRES-02)."""
    resources = require_resources(dispatcher, request).resources
    return answer_list(dispatcher, session, peer, request, "resources", resources)


def list_templates(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """Return a page of the resource templates (MRES-03)."""
    templates = require_resources(dispatcher, request).templates
    return answer_list(dispatcher, session, peer, request, "resourceTemplates", templates)


def read_resource(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """Begin the call that reads the contents of a resource (MRES-04)."""
    resources = require_resources(dispatcher, request)
    uri = read_uri(request)
    try:
        found, values = resources.find(uri, session.principal)
    except LookupError:
        raise resource_not_found(peer, uri) from None
    require_scopes(session, found.scopes)
    return begin_handler_call(
        dispatcher.calls,
        session,
        peer,
        request,
        name=uri,
        handler=found.handler_spec,
        arguments={**values, "uri": uri},
        to_result=_make_to_result(dispatcher, found),
    )


def require_resources(dispatcher: Dispatcher, request: Request) -> ResourceRegistry:
    """Return the resources; raise `JsonRpcError` where the server never had any."""
    resources: Resources = dispatcher.parts[Resources]
    if not resources.is_offered:
        raise method_not_found(request)
    return resources.registry


def read_uri(request: Request) -> str:
    """Return the `uri` in the params of `request`; raise `JsonRpcError` unless it is valid."""
    from .uri_template import MAX_URI_LENGTH

    uri = request.members.get("uri")
    if type(uri) is not str or len(uri) > MAX_URI_LENGTH:
        raise invalid_params(f"uri must be a string of at most {MAX_URI_LENGTH} characters")
    return uri


def resource_not_found(peer: Peer, uri: str) -> JsonRpcError:
    """Return the error for a URI that no resource has (MRES-04)."""
    code = JsonRpcErrorCode(peer.revision.resource_not_found)
    data = {"reason": "resource_not_found", "uri": uri}
    return JsonRpcError(code, "Resource not found", data)


def _make_to_result(
    dispatcher: Dispatcher, found: RegisteredResource | RegisteredTemplate
) -> ToResult:
    """Return a function that makes a result, which says how long it may be reused (MRES-14)."""
    from .results import shape_contents

    def to_result(value: Any, call: Invocation) -> dict[str, Any]:
        mime_type = found.definition.mime_type
        result = shape_contents(value, call.name, mime_type, call.peer.revision)
        differs = bool(found.scopes) or found.visible is not None
        hints = dispatcher.results.cache_hints(call.peer, found.cache_ttl_ms, differs=differs)
        return {**result, **hints}

    return to_result
