"""The contents of a resource, from what its handler returned (spec/mcp-resources.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import ErrorCode, ToolError
from ...protocol.content import BlobContents, ResourceContents, TextContents
from ...protocol.plain_values import ExplicitResult, write_json

if TYPE_CHECKING:
    from ...protocol.revisions import Revision

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
        raise ToolError(
            ErrorCode.INTERNAL,
            "The resource cannot be written as JSON.",
            {"reason": "result_not_serializable"},
        ) from (error.__cause__ or error)
    return TextContents(uri, text, mime_type or "application/json")


def _is_several(value: Any) -> bool:
    """Return whether it is a sequence of contents, and not one JSON array."""
    return isinstance(value, list | tuple) and any(
        isinstance(each, (*_EXPLICIT, bytes)) for each in value
    )
