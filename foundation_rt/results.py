"""What a handler returned, as the text of a `tools/call` result (CALL-10)."""

from __future__ import annotations

from types import CoroutineType
from typing import Any

import attrs
import orjson

from .errors import ErrorCode, ToolError


def encode_result(value: Any, max_bytes: int) -> str:
    """A handler's result as JSON text (CALL-10).

    Raises:
        ToolError: INTERNAL; its details say `result_not_serializable` or `result_too_large`.
    """
    text = write_json(value)
    if len(text) > max_bytes:
        raise ToolError(
            ErrorCode.INTERNAL,
            f"The tool's result is {len(text)} bytes; at most {max_bytes} are sent.",
            {"reason": "result_too_large", "resultBytes": len(text), "maxResponseBytes": max_bytes},
        )
    return text.decode()


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
    except Exception as error:
        raise ToolError(
            ErrorCode.INTERNAL,
            "The tool's result cannot be written as JSON.",
            {"reason": "result_not_serializable"},
        ) from error


def _unstructure(value: Any) -> dict[str, Any]:
    if attrs.has(type(value)):
        return {each.name: getattr(value, each.name) for each in attrs.fields(type(value))}
    if hasattr(value, "__await__"):
        if isinstance(value, CoroutineType):
            value.close()  # it will never run; Python would warn that it was never awaited
        raise TypeError("the handler returned an awaitable: declare it with async def")
    raise TypeError(f"{type(value).__name__} is not JSON-serializable")
