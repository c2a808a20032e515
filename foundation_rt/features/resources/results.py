"""The contents of a resource, from what its handler returned (spec/mcp-resources.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import evolve

from ...errors import ToolError
from ...protocol.content import BlobContents, ResourceContents, TextContents
from ...protocol.methods import RESOURCES_READ
from ...protocol.plain_values import ExplicitResult, write_json
from ..handler_calls import result_refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...protocol.revisions import Revision
    from ..context import ToolContext

_EXPLICIT = (TextContents, BlobContents)


def shape_contents(
    value: Any, uri: str, mime_type: str | None, revision: Revision
) -> dict[str, Any]:
    """Return the result of `resources/read`.

    Args:
        value: of the handler.
        uri: of the request.
        mime_type: of contents without one of their own; by default it depends on the type.
        revision: of the protocol, as the peer speaks it.

    Raises:
        ToolError: INTERNAL, `result_not_serializable`.
    """
    return {"contents": [each.to_wire(revision) for each in all_contents(value, uri, mime_type)]}


def all_contents(value: Any, uri: str, mime_type: str | None) -> tuple[ResourceContents, ...]:
    """Return what a handler returned as contents: one, or several; raises as `contents_of`."""
    values = value if _is_several(value) else (value,)
    return tuple(contents_of(each, uri, mime_type) for each in values)


def contents_of(value: Any, uri: str, mime_type: str | None) -> ResourceContents:
    """Return one value as contents: text, bytes, contents unchanged, anything else as JSON.

    Raises:
        ToolError: INTERNAL, `result_not_serializable`.
    """
    if isinstance(value, _EXPLICIT):
        return value
    if isinstance(value, str):
        return TextContents(uri, value, mime_type or "text/plain")
    if isinstance(value, bytes | bytearray | memoryview):
        return BlobContents(uri, bytes(value), mime_type or "application/octet-stream")
    try:
        if isinstance(value, ExplicitResult):
            raise TypeError(f"a resource has contents, and {type(value).__name__} is none")
        text = write_json(value).decode()
    except (ToolError, TypeError) as error:
        problem = "The resource cannot be written as JSON."
        cause = error.__cause__ or error
        raise result_refused(problem, "result_not_serializable") from cause
    return TextContents(uri, text, mime_type or "application/json")


def as_asked(
    found: ResourceContents, arguments: Mapping[str, Any], context: ToolContext[Any]
) -> ResourceContents:
    """Return contents with the URI that was asked for: one of a mounted server has another."""
    call = context.call
    if call is None or call.method != RESOURCES_READ:
        return evolve(found, uri=arguments["uri"])
    return evolve(found, uri=call.name)


def _is_several(value: Any) -> bool:
    """Return whether it is a sequence of contents, and not one JSON array."""
    return isinstance(value, list | tuple) and any(
        isinstance(each, (*_EXPLICIT, bytes)) for each in value
    )
