"""Plain values that handlers return, as JSON, and the base of explicit results.

Explicit results are defined in `content`, which a server that returns plain values never imports.
"""

from __future__ import annotations

import sys
from types import CoroutineType
from typing import Any

import attrs
import orjson

from ..errors import ErrorCode, ToolError, has_type


class ExplicitResult:
    """A value with which a handler shapes its result itself (CONT-01)."""

    __slots__ = ()


def write_json(value: Any) -> bytes:
    """Write the result of a handler, or a part of it, as JSON in UTF-8.

    attrs instances, dataclasses and models of pydantic become objects, keys that are not strings
    become strings as orjson spells them, NaN and the infinities become null (CALL-16, CALL-20).

    Raises:
        ToolError: INTERNAL, `result_not_serializable`.
    """
    # orjson would write the dataclasses of pydantic without their aliases and serializers.
    own = orjson.OPT_PASSTHROUGH_DATACLASS if "pydantic.dataclasses" in sys.modules else 0
    try:
        try:
            return orjson.dumps(value, default=unstructured, option=own)
        except TypeError:
            # With this option at once, every result would be slower for the few with such keys.
            return orjson.dumps(value, default=unstructured, option=own | orjson.OPT_NON_STR_KEYS)
    except BaseException as error:  # the value's own code: it may raise anything (ERR-07)
        raise not_serializable() from error


def write_text(text: str) -> bytes:
    """Write a text in UTF-8, as it is.

    Raises:
        ToolError: INTERNAL, `result_not_serializable`: it has a lone surrogate.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise not_serializable() from error


def not_serializable() -> ToolError:
    """Return the refusal of a result that JSON cannot represent (CALL-17)."""
    return ToolError(
        ErrorCode.INTERNAL,
        "The tool's result cannot be written as JSON.",
        {"reason": "result_not_serializable"},
    )


def unstructured(value: Any) -> Any:
    """Return a value that orjson does not write as one that it does; its members are as they are.

    Raises:
        TypeError: it has no form in JSON.
    """
    if has_type(value, ExplicitResult):
        raise TypeError("content inside of a plain value: return a list that begins with content")
    if attrs.has(type(value)):
        return {each.name: getattr(value, each.name) for each in attrs.fields(type(value))}
    if hasattr(value, "__await__"):
        if isinstance(value, CoroutineType):
            value.close()  # it will never run; Python would warn that it was never awaited
        raise TypeError("the handler returned an awaitable: declare it with async def")
    from .rich_values import plain_form

    return plain_form(value)
