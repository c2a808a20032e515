"""Resources of the server that its own handlers read, in the name of their client (MRES-23)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import ErrorCode, ToolError
from ...kernel.registry.tools import ExecutionMode
from ...protocol.plain_values import settled
from ..scopes import require_scopes
from .feature import Resources
from .results import all_contents

if TYPE_CHECKING:
    from ...kernel.dispatcher import Dispatcher
    from ...kernel.engine.connection import Connection
    from ...kernel.invocation import Invocation
    from ...protocol.content import ResourceContents
    from ..context import ToolContext
    from ..handler_calls import HandlerSpec
    from .registry import RegisteredResource, RegisteredTemplate


async def read_own_resource(
    call: Invocation, connection: Connection, uri: str, context: ToolContext[Any]
) -> tuple[ResourceContents, ...]:
    """Return the contents of a resource, as the client of `call` reads them.

    Raises:
        ToolError: there is no such resource for the client, or its handler failed.
    """
    found, arguments = find_resource(connection.dispatcher, call, uri)
    value = await own_value(found.handler_spec, arguments, context)
    return all_contents(value, uri, found.definition.mime_type)


async def own_value(
    spec: HandlerSpec, arguments: dict[str, Any], context: ToolContext[Any]
) -> object:
    """Return what the handler of a resource or a prompt returns, run within a call."""
    handler = partial(spec.handler, arguments, context)
    is_blocking = spec.execution is ExecutionMode.THREAD
    return await settled(await context.run_in_worker(handler) if is_blocking else handler())


def find_resource(
    dispatcher: Dispatcher, call: Invocation, uri: str
) -> tuple[RegisteredResource | RegisteredTemplate, dict[str, Any]]:
    """Return the resource of `uri`, and the arguments of its handler.

    Raises:
        ToolError: NOT_FOUND, or UNAUTHORIZED where the principal of `call` lacks a scope.
    """
    uri = str(uri)  # others have classes for URIs
    try:
        found, values = dispatcher.parts[Resources].look_up(uri, call.principal)
    except LookupError:
        details = {"reason": "resource_not_found", "uri": uri}
        raise ToolError(ErrorCode.NOT_FOUND, "Resource not found", details) from None
    require_scopes(call, found.scopes)
    return found, {**values, "uri": uri}
