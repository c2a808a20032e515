"""`resources/list`, `resources/templates/list` and `resources/read` (spec/mcp-resources.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import JsonRpcErrorCode
from ..protocol.jsonrpc import ABSENT
from ..refusals import invalid_params, method_not_found, refuse
from .lists import answer_list

if TYPE_CHECKING:
    from ..dispatcher import Dispatcher
    from ..effects import Effect
    from ..features.resources import RegisteredResource, RegisteredTemplate
    from ..invocation import Invocation, Shape
    from ..peer import Peer
    from ..protocol.jsonrpc import Request
    from ..session import Session


def list_resources(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """The resources that have a URI of their own (MRES-02)."""
    features = dispatcher.features
    if features is None or not features.resources.is_offered:
        return method_not_found(session, request)
    page = features.resources.resources.page
    return answer_list(dispatcher, session, peer, request, "resources", page)


def list_templates(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """The templates of all others (MRES-03)."""
    features = dispatcher.features
    if features is None or not features.resources.is_offered:
        return method_not_found(session, request)
    page = features.resources.templates.page
    return answer_list(dispatcher, session, peer, request, "resourceTemplates", page)


def read_resource(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """The contents of a resource (MRES-04)."""
    from ..protocol.uri_template import MAX_URI_LENGTH

    features = dispatcher.features
    if features is None or not features.resources.is_offered:
        return method_not_found(session, request)
    uri = None if request.params is ABSENT else request.params.get("uri")
    if type(uri) is not str or len(uri) > MAX_URI_LENGTH:
        what = f"uri must be a string of at most {MAX_URI_LENGTH} characters"
        return invalid_params(session, request, what)
    try:
        found, values = features.resources.find(uri)
    except LookupError:
        code = JsonRpcErrorCode(peer.revision.resource_not_found)
        return refuse(session, request, code, "Resource not found", "resource_not_found", uri=uri)
    return dispatcher.feature_calls.begin(
        session,
        peer,
        request,
        name=uri,
        handler=found.handling.handler,
        execution=found.handling.execution,
        arguments={**values, "uri": uri},
        shape=_shape(dispatcher, found),
        timeout_ms=found.handling.timeout_ms,
    )


def _shape(dispatcher: Dispatcher, found: RegisteredResource | RegisteredTemplate) -> Shape:
    """What makes the result out of what was read; it says how long that may be kept (MRES-14)."""
    from ..features.reading import shape_contents

    def shape(value: Any, call: Invocation) -> dict[str, Any]:
        mime_type = found.definition.mime_type
        result = shape_contents(value, call.name, mime_type, call.peer.revision)
        return {**result, **dispatcher.envelope.cache_hints(call.peer, found.cache_ttl_ms)}

    return shape
