"""`resources/list`, `resources/templates/list` and `resources/read` (spec/mcp-resources.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import JsonRpcErrorCode
from ...protocol.jsonrpc import ABSENT
from ..replies import Refused, invalid_params, method_not_found, refuse
from .lists import answer_list
from .scopes import require_scopes

if TYPE_CHECKING:
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ...registry.resources import RegisteredResource, RegisteredTemplate, ResourceRegistry
    from ..dispatcher import Dispatcher
    from ..effects import Effect
    from ..invocation import Invocation, Shape
    from ..session import Session


def list_resources(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """The resources that have a URI of their own (MRES-02)."""
    resources = offered(dispatcher, session, request).resources
    return answer_list(dispatcher, session, peer, request, "resources", resources)


def list_templates(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """The templates of all others (MRES-03)."""
    templates = offered(dispatcher, session, request).templates
    return answer_list(dispatcher, session, peer, request, "resourceTemplates", templates)


def read_resource(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """The contents of a resource (MRES-04)."""
    resources = offered(dispatcher, session, request)
    uri = read_uri(session, request)
    try:
        found, values = resources.find(uri)
    except LookupError:
        raise not_found(session, peer, request, uri) from None
    require_scopes(session, request, found.scopes)
    return dispatcher.feature_calls.begin(
        session,
        peer,
        request,
        name=uri,
        handler=found.handler_spec.handler,
        execution=found.handler_spec.execution,
        arguments={**values, "uri": uri},
        shape=_shape(dispatcher, found),
        timeout_ms=found.handler_spec.timeout_ms,
    )


def offered(dispatcher: Dispatcher, session: Session, request: Request) -> ResourceRegistry:
    """The resources there are; `Refused`, if there never were any: there is no such method."""
    features = dispatcher.features
    if features is None or not features.resources.is_offered:
        raise Refused(method_not_found(session, request))
    return features.resources


def read_uri(session: Session, request: Request) -> str:
    """The `uri` that `request` names; raises `Refused` where that is none."""
    from ...protocol.uri_template import MAX_URI_LENGTH

    uri = None if request.params is ABSENT else request.params.get("uri")
    if type(uri) is not str or len(uri) > MAX_URI_LENGTH:
        what = f"uri must be a string of at most {MAX_URI_LENGTH} characters"
        raise Refused(invalid_params(session, request, what))
    return uri


def not_found(session: Session, peer: Peer, request: Request, uri: str) -> Refused:
    """What to raise where no resource has that URI (MRES-04)."""
    code = JsonRpcErrorCode(peer.revision.resource_not_found)
    return Refused(
        refuse(session, request, code, "Resource not found", "resource_not_found", uri=uri)
    )


def _shape(dispatcher: Dispatcher, found: RegisteredResource | RegisteredTemplate) -> Shape:
    """What makes the result out of what was read; it says how long that may be kept (MRES-14)."""
    from ...registry.reading import shape_contents

    def shape(value: Any, call: Invocation) -> dict[str, Any]:
        mime_type = found.definition.mime_type
        result = shape_contents(value, call.name, mime_type, call.peer.revision)
        hints = dispatcher.results.cache_hints(call.peer, found.cache_ttl_ms)
        if hints and found.scopes:
            hints["cacheScope"] = "private"  # another principal may not read it
        return {**result, **hints}

    return shape
