"""Results that are more than a plain value: content blocks, and values with an output schema.

Imported when the first tool returns one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from ..base.exact_json import dumps, loads
from ..base.jsonschema.issues import TOO_COMPLEX
from ..errors import ErrorCode, ToolError, has_type
from ..protocol.content import Block, Text, ToolResult
from ..protocol.plain_values import not_serializable, write_json, write_text
from .results import is_shaped, too_large

if TYPE_CHECKING:
    from ..base.jsonschema.compilation import Validator
    from ..protocol.revisions import Revision
    from .registry.tools import RegisteredTool


_WRAPPING = 64
"""The bytes of a content block besides its text."""


class OutputSchemaViolation(Exception):
    """The cause of a refused result: it violates the output schema; for the log (CONT-06)."""


def shaped_result(
    value: Any, tool: RegisteredTool, revision: Revision, max_bytes: int
) -> dict[str, Any]:
    """Return the result of a call of `tool` that returned `value`, as `results.tool_result`."""
    if tool.validate_output is not None and not is_shaped(value, tool):
        return _plain_result(value, tool, tool.validate_output, revision, max_bytes)
    given = _to_tool_result(value, tool)
    structured = _structured(given, tool.validate_output)
    content = _content(given, structured, revision)
    size = len(content) + len(structured or b"")
    if size > max_bytes:
        raise too_large(size, max_bytes)
    result: dict[str, Any] = {"content": orjson.Fragment(content), "isError": given.is_error}
    if structured is not None:
        _add_structured(result, structured, tool, revision)
    if given.meta is not None:
        result["_meta"] = loads(write_json(given.meta))
    return result


def _plain_result(
    value: Any, tool: RegisteredTool, validate: Validator, revision: Revision, max_bytes: int
) -> dict[str, Any]:
    """Return the result of a plain value: the value, and its JSON as text (CONT-03)."""
    structured = _checked(value, validate)
    is_text = tool.is_typed and issubclass(type(value), str)
    text = (write_text(value) if is_text else structured).decode()
    content = [{"type": "text", "text": text}]
    # As text it at most doubles, so most results need not be written to know that they fit.
    if 3 * len(structured) + _WRAPPING > max_bytes:
        size = len(dumps(content)) + len(structured)
        if size > max_bytes:
            raise too_large(size, max_bytes)
    result: dict[str, Any] = {"content": content, "isError": False}
    _add_structured(result, structured, tool, revision)
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
        return _checked(given.structured, validate)
    if given.structured is None:
        return None
    written = write_json(given.structured)
    return written if validate is None or not validate(orjson.loads(written)) else None


def _checked(value: Any, validate: Validator) -> bytes:
    """Write a value, and check what is written against the output schema (CONT-06)."""
    written = write_json(value)
    issues = validate(loads(written))
    if issues is TOO_COMPLEX:
        raise ToolError(
            ErrorCode.INTERNAL,
            "The tool's result is too complex to be checked against its output schema.",
            {"reason": "too_complex"},
        )
    if issues:
        found = "; ".join(f"{issue.path or 'the result'} {issue.message}" for issue in issues)
        raise ToolError(
            ErrorCode.INTERNAL,
            "The tool's result is not what its output schema says.",
            {"reason": "output_schema_violation"},
        ) from OutputSchemaViolation(found)
    return written


def _content(given: ToolResult, structured: bytes | None, revision: Revision) -> bytes:
    """Write the content blocks; without any, the structured value as text (CONT-03)."""
    blocks: list[Block | str] = [*(given.content or ())]
    if given.content is None and structured is not None:
        blocks = [structured.decode()]
    return write_json(
        [(Text(one) if isinstance(one, str) else one).to_wire(revision) for one in blocks]
    )


def _add_structured(
    result: dict[str, Any], structured: bytes, tool: RegisteredTool, revision: Revision
) -> None:
    """Add the structured value as results of this revision may have it, if at all (CONT-07)."""
    if not revision.any_structured_content:
        if tool.wraps_result:
            structured = b'{"result":' + structured + b"}"
        if not structured.startswith(b"{") or not revision.has("tool_result", "structuredContent"):
            return
    result["structuredContent"] = orjson.Fragment(structured)
