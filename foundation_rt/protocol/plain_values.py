"""Plain values that handlers return, as JSON, and the base of explicit results.

Explicit results are defined in `content`, which a server that returns plain values never imports.
"""

from __future__ import annotations

import sys
from types import CoroutineType
from typing import Any

import attrs
import orjson

from ..base.exact_json import dumps, may_hold_nan
from ..errors import ErrorCode, ToolError, has_type


class ExplicitResult:
    """A value with which a handler shapes its result itself (CONT-01)."""

    __slots__ = ()


def write_json(value: Any) -> bytes:
    """Write the result of a handler, or a part of it, as JSON in UTF-8.

    attrs instances, dataclasses and models of pydantic become objects, and keys that are not
    strings become strings as orjson spells them (CALL-16, CALL-20).

    Raises:
        ToolError: INTERNAL, `result_not_serializable`.
    """
    # orjson would write the dataclasses of pydantic without their aliases and serializers.
    own = orjson.OPT_PASSTHROUGH_DATACLASS if "pydantic.dataclasses" in sys.modules else 0
    is_suspect = False
    try:
        try:
            written = orjson.dumps(value, default=unstructured, option=own)
        except TypeError:
            # With this option at once, every result would be slower for the few with such keys.
            own |= orjson.OPT_NON_STR_KEYS
            written = dumps(value, unstructured, own)
            is_suspect = True  # two keys may have become one
    except BaseException as error:  # the value's own code: it may raise anything (ERR-07)
        raise not_serializable() from _cause(value, error)
    # orjson writes NaN as null. By `find`: for `in` Python makes a TypeError first, and drops it.
    if is_suspect or (value is not None and written.find(b"null") >= 0 and may_hold_nan(value)):
        from ..base.rich_values import problem_in

        problem = problem_in(value, unstructured)
        if problem is not None:
            raise not_serializable(problem) from ValueError(problem)
    return written


def write_text(text: str) -> bytes:
    """Write a text in UTF-8, as it is.

    Raises:
        ToolError: INTERNAL, `result_not_serializable`: it has a lone surrogate.
    """
    try:
        return str.encode(text)  # a subclass may have an `encode` of its own
    except UnicodeEncodeError as error:
        raise not_serializable() from error


async def settled(value: Any) -> Any:
    """Return the value of an awaitable that a handler returned, or any other value (CALL-40)."""
    while hasattr(type(value), "__await__"):
        value = await value
    return value


def not_serializable(problem: str = "") -> ToolError:
    """Return the refusal of a result that JSON cannot represent (CALL-17).

    Args:
        problem: a place and what is wrong with it, which the caller may learn: "$.a is NaN".
    """
    details = {"reason": "result_not_serializable"}
    message = "The result cannot be written as JSON"
    if problem:
        details["problem"] = problem
        message += f": {problem}"
    return ToolError(ErrorCode.INTERNAL, f"{message}.", details)


def _cause(value: Any, error: BaseException) -> BaseException:
    """Return the reason for the log: the place that cannot be written, if it can be found."""
    if not isinstance(error, TypeError):
        return error
    from ..base.rich_values import problem_in

    try:
        problem = problem_in(value, unstructured)
    except BaseException:  # the value's own code
        return error
    return error if problem is None else TypeError(problem)


def unstructured(value: Any) -> Any:
    """Return a value that orjson does not write as one that it does; its members are as they are.

    Raises:
        TypeError: it has no form in JSON.
    """
    if has_type(value, ExplicitResult):
        raise TypeError("content inside of a plain value: return a list that begins with content")
    if attrs.has(type(value)):
        return {each.name: getattr(value, each.name) for each in attrs.fields(type(value))}
    if hasattr(type(value), "__await__"):
        raise TypeError(_forgotten(value))
    from ..base.rich_values import plain_form

    return plain_form(value, write_json)


def _forgotten(awaitable: Any) -> str:
    """Return the error for an awaitable inside of a result; it names a coroutine function."""
    if not isinstance(awaitable, CoroutineType):
        return f"{type(awaitable).__name__} was not awaited"
    awaitable.close()  # it will never run; Python would warn that it was never awaited
    code = awaitable.cr_code
    return f"{awaitable.__qualname__}() was not awaited ({code.co_filename}:{code.co_firstlineno})"
