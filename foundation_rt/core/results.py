"""What a handler returned, as the result of a `tools/call` (CALL-10).

Nearly every result is a plain value of a tool without an output schema, and that way is the short
one: what tells it from all others is one look at its type (two for a list).
"""

from __future__ import annotations

from types import CoroutineType
from typing import TYPE_CHECKING, Any

import attrs
import orjson

from ..errors import ErrorCode, ToolError, has_type
from ..protocol.shaped import Shaped

if TYPE_CHECKING:
    from ..protocol.revisions import Revision
    from ..registry.tools import RegisteredTool


def tool_result(
    value: Any, tool: RegisteredTool, revision: Revision, max_bytes: int
) -> dict[str, Any]:
    """The result of a call of `tool` that returned `value`, for a peer that speaks `revision`.

    Args:
        max_bytes: the largest result, in bytes of JSON.

    Raises:
        ToolError: INTERNAL; its details say `result_not_serializable`, `result_too_large` or
            `output_schema_violation`.
    """
    if tool.validate_output is None:
        kind = type(value)
        # What most tools return is known by its type alone: 0.02 us, where `is_shaped` takes 0.1.
        if kind is dict or kind is str or not is_shaped(value):
            text = encode_result(value, max_bytes)
            return {"content": [{"type": "text", "text": text}], "isError": False}
    from .shaped_results import shaped_result

    return shaped_result(value, tool, revision, max_bytes)


def is_shaped(value: Any) -> bool:
    """Whether a handler has shaped its result: a list tells by its first member (CONT-01)."""
    # By type alone: `isinstance` would run a `__class__` that the class of a value may define.
    kind = type(value)
    if (kind is list or kind is tuple) and value:
        kind = type(value[0])
    return issubclass(kind, Shaped)


def encode_result(value: Any, max_bytes: int) -> str:
    """A plain value as JSON text (CALL-10).

    Raises:
        ToolError: INTERNAL; its details say `result_not_serializable` or `result_too_large`.
    """
    text = write_json(value)
    if len(text) > max_bytes:
        raise too_large(len(text), max_bytes)
    return text.decode()


def too_large(size: int, max_bytes: int) -> ToolError:
    """What refuses a result of `size` bytes."""
    return ToolError(
        ErrorCode.INTERNAL,
        f"The tool's result is {size} bytes; at most {max_bytes} are sent.",
        {"reason": "result_too_large", "resultBytes": size, "maxResponseBytes": max_bytes},
    )


def write_json(value: Any) -> bytes:
    """A handler's result, or a part of one, as JSON in UTF-8.

    attrs instances and dataclasses become objects, keys that are not strings become strings as
    orjson spells them, NaN and the infinities become null.

    Raises:
        ToolError: INTERNAL, `result_not_serializable`.
    """
    try:
        try:
            return orjson.dumps(value, default=_unstructure)
        except TypeError:
            # Asking for it at once would slow every result down for the few with such keys.
            return orjson.dumps(value, default=_unstructure, option=orjson.OPT_NON_STR_KEYS)
    except BaseException as error:  # the value's own code: it may raise anything (ERR-07)
        raise ToolError(
            ErrorCode.INTERNAL,
            "The tool's result cannot be written as JSON.",
            {"reason": "result_not_serializable"},
        ) from error


def _unstructure(value: Any) -> dict[str, Any]:
    if has_type(value, Shaped):
        raise TypeError("content inside of a plain value: return a list that begins with content")
    if attrs.has(type(value)):
        return {each.name: getattr(value, each.name) for each in attrs.fields(type(value))}
    if hasattr(value, "__await__"):
        if isinstance(value, CoroutineType):
            value.close()  # it will never run; Python would warn that it was never awaited
        raise TypeError("the handler returned an awaitable: declare it with async def")
    raise TypeError(f"{type(value).__name__} is not JSON-serializable")
