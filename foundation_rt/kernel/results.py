"""The form of tool calls: the result from the value that a handler returned, the error (CALL-10).

Nearly every result is a plain value, and takes a short way: one look at its type tells it from what
a handler has shaped itself. For a list, its members are looked at as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from ..base.exact_json import dumps, loads
from ..base.jsonschema.issues import TOO_COMPLEX
from ..errors import ErrorCode, StructuredError, ToolError, to_tool_error
from ..protocol.plain_values import ExplicitResult, write_json, write_text
from .invocation import CallKind
from .replies import result_reply

if TYPE_CHECKING:
    from ..base.jsonschema.compilation import Validator
    from ..protocol.revisions import Revision
    from .call_lifecycle import CallLifecycle
    from .effects import Reply
    from .invocation import Invocation
    from .registry.tools import RegisteredTool

_PLAIN = frozenset((dict, str, int, float, bool, type(None)))
"""Types of values that are plain whatever they hold: most handlers return one of them."""


_WRAPPING = 64
"""The bytes of a content block besides its text."""


class OutputSchemaViolation(Exception):
    """The cause of a refused result: it violates the output schema; for the log (CONT-06)."""


def tool_result(
    value: Any, tool: RegisteredTool, revision: Revision, max_bytes: int
) -> dict[str, Any]:
    """Return the result of a call of `tool` whose handler returned `value`.

    Args:
        value: the value.
        tool: the tool.
        revision: the revision that the peer speaks.
        max_bytes: the largest result, in bytes of JSON.

    Raises:
        ToolError: INTERNAL; its details say `result_not_serializable`, `result_too_large` or
            `output_schema_violation`.
    """
    # 0.02 us for most values by their type alone, where `is_shaped` takes 0.1.
    kind = type(value)
    if tool.validate_output is None and (kind in _PLAIN or not is_shaped(value, tool)):
        is_text = tool.is_typed and issubclass(kind, str)
        text = write_text(value) if is_text else write_json(value)
        if len(text) > max_bytes:
            raise too_large(len(text), max_bytes)
        return {"content": [{"type": "text", "text": text.decode()}], "isError": False}
    if tool.validate_output is not None and not is_shaped(value, tool):
        return structured_result(value, tool, tool.validate_output, revision, max_bytes)
    from .shaped_results import shaped_result

    return shaped_result(value, tool, revision, max_bytes)


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


def is_shaped(value: Any, tool: RegisteredTool) -> bool:
    """Return whether a handler has shaped its result itself (CONT-01).

    A list counts by its first member, that of a typed tool by any (CONT-11).
    """
    # By type alone: `isinstance` would run a `__class__` that the class of a value may define.
    kind = type(value)
    if (kind is list or kind is tuple) and value:
        if tool.is_typed:
            return any(issubclass(each, ExplicitResult) for each in set(map(type, value)))
        kind = type(value[0])
    return issubclass(kind, ExplicitResult)


def too_large(size: int, max_bytes: int) -> ToolError:
    """Return the refusal of a result of `size` bytes."""
    return ToolError(
        ErrorCode.INTERNAL,
        f"The tool's result is {size} bytes; at most {max_bytes} are sent.",
        {"reason": "result_too_large", "resultBytes": size, "maxResponseBytes": max_bytes},
    )


def _to_reply(calls: CallLifecycle, call: Invocation, value: Any) -> tuple[Reply, bool]:
    max_bytes = calls.limits.max_response_bytes
    result = tool_result(value, call.tool, call.peer.revision, max_bytes)
    is_error: bool = result["isError"]
    if call.peer.revision.is_stateless:
        result = calls.results.complete(call.peer, result)
    return result_reply(call.request_id, result), is_error


def _to_error(calls: CallLifecycle, call: Invocation, error: StructuredError) -> Reply:
    result = to_tool_error(error, run_id=call.run_id, correlation_id=call.correlation_id)
    return result_reply(call.request_id, calls.results.complete(call.peer, result))


TOOL = CallKind("The tool", "tool ", _to_reply, _to_error)
