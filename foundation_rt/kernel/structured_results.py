"""Results with structured values: values of tools with an output schema (CONT-06, CONT-07)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from ..base.exact_json import dumps, loads
from ..base.jsonschema.issues import TOO_COMPLEX
from ..errors import ErrorCode, ToolError
from ..protocol.plain_values import write_json, write_text
from .results import too_large

if TYPE_CHECKING:
    from ..base.jsonschema.compilation import Validator
    from ..protocol.revisions import Revision
    from .registry.tools import RegisteredTool

_WRAPPING = 64
"""The bytes of a content block besides its text."""


class OutputSchemaViolation(Exception):
    """The cause of a refused result: it violates the output schema; for the log (CONT-06)."""


def structured_result(
    value: Any, tool: RegisteredTool, validate: Validator, revision: Revision, max_bytes: int
) -> dict[str, Any]:
    """Return the result of a plain value: the value, and its JSON as text (CONT-03)."""
    structured = checked(value, validate)
    is_text = tool.is_typed and issubclass(type(value), str)
    text = (write_text(value) if is_text else structured).decode()
    content = [{"type": "text", "text": text}]
    # As text it at most doubles, so most results need not be written to know that they fit.
    if 3 * len(structured) + _WRAPPING > max_bytes:
        size = len(dumps(content)) + len(structured)
        if size > max_bytes:
            raise too_large(size, max_bytes)
    result: dict[str, Any] = {"content": content, "isError": False}
    add_structured(result, structured, tool, revision)
    return result


def checked(value: Any, validate: Validator) -> bytes:
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


def add_structured(
    result: dict[str, Any], structured: bytes, tool: RegisteredTool, revision: Revision
) -> None:
    """Add the structured value as results of this revision may have it, if at all (CONT-07)."""
    if not revision.any_structured_content:
        if tool.wraps_result:
            structured = b'{"result":' + structured + b"}"
        if not structured.startswith(b"{") or not revision.has("tool_result", "structuredContent"):
            return
    result["structuredContent"] = orjson.Fragment(structured)
