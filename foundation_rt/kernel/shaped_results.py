"""Results that a handler has shaped itself: content blocks, and `ToolResult` (CONT-01).

Imported when the first tool returns one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from ..base.exact_json import loads
from ..errors import has_type
from ..protocol.content import Block, Text, ToolResult
from ..protocol.plain_values import not_serializable, write_json, write_text
from .results import add_structured, checked, too_large

if TYPE_CHECKING:
    from ..base.jsonschema.compilation import Validator
    from ..protocol.revisions import Revision
    from .registry.tools import RegisteredTool


def shaped_result(
    value: Any, tool: RegisteredTool, revision: Revision, max_bytes: int
) -> dict[str, Any]:
    """Return the result of a call of `tool` that returned `value`, as `results.tool_result`."""
    given = _to_tool_result(value, tool)
    structured = _structured(given, tool.validate_output)
    content = _content(given, structured, revision)
    size = len(content) + len(structured or b"")
    if size > max_bytes:
        raise too_large(size, max_bytes)
    result: dict[str, Any] = {"content": orjson.Fragment(content), "isError": given.is_error}
    if structured is not None:
        add_structured(result, structured, tool, revision)
    if given.meta is not None:
        result["_meta"] = loads(write_json(given.meta))
    return result


def _to_tool_result(value: Any, tool: RegisteredTool) -> ToolResult:
    if has_type(value, ToolResult):
        return value
    if tool.is_typed and type(value) in (list, tuple):
        value = [_to_block(each) for each in value]
    try:
        return ToolResult(value)
    except TypeError as error:  # a list that begins with content, and goes on with something else
        raise not_serializable() from error


def _to_block(value: Any) -> Block | str:
    """Return a member of a typed tool's list as content: text, itself, or its JSON (CONT-11)."""
    if isinstance(value, Block):
        return value
    return (write_text(value) if issubclass(type(value), str) else write_json(value)).decode()


def _structured(given: ToolResult, validate: Validator | None) -> bytes | None:
    """Write the structured value, and check it against the output schema (CONT-06)."""
    if validate is not None and not given.is_error:
        return checked(given.structured, validate)
    if given.structured is None:
        return None
    written = write_json(given.structured)
    return written if validate is None or not validate(orjson.loads(written)) else None


def _content(given: ToolResult, structured: bytes | None, revision: Revision) -> bytes:
    """Write the content blocks; without any, the structured value as text (CONT-03)."""
    blocks: list[Block | str] = [*(given.content or ())]
    if given.content is None and structured is not None:
        blocks = [structured.decode()]
    return write_json(
        [(Text(one) if isinstance(one, str) else one).to_wire(revision) for one in blocks]
    )
