"""JSON-RPC 2.0 messages: a line becomes one of five values, and values become bytes.

`parse` never raises: any input becomes a `Request`, a `Notification`, a `Response`, a `Batch` of
values that `read` turns into messages, or a `Malformed` that has the error of its reply. The values
are plain mutable attrs classes because a frozen one costs four times as much to make, and one is
made for every line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson
from attrs import define

from ..base.exact_json import DIGITS, SAMPLED, STRIDE, dumps, may_hold_long_integer, read_exactly
from ..base.shown import Shown
from ..errors import JsonRpcErrorCode

RequestId = str | int
"""The id of a request: a string, or an integer within 64 bits (RPC-04)."""


class _Absent:
    """The type of `ABSENT`, which stands for params that were not sent; `null` was sent."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()


@define(eq=False, repr=False)
class Request(Shown):
    """A message that gets a reply; `params` is unchecked, or ABSENT."""

    id: RequestId
    method: str
    params: Any

    @property
    def members(self) -> dict[str, Any]:
        """Return the params, once they are known to be an object; empty if none were sent."""
        members: dict[str, Any] = {} if self.params is ABSENT else self.params
        return members


@define(eq=False, repr=False)
class Notification(Shown):
    """A message that gets no reply; `params` is unchecked, or ABSENT."""

    method: str
    params: Any


@define(eq=False, repr=False)
class Response(Shown):
    """A result or an error from the peer; `id` is unchecked."""

    id: Any
    result: Any
    error: Any


@define(eq=False, repr=False)
class Malformed(Shown):
    """A line that is not a message, with the error of its reply (RPC-02, RPC-03).

    `id` is the request's own, or None if it could not be read. `params` is kept if it could be
    read, because it may have a correlation id.
    """

    code: JsonRpcErrorCode
    reason: str
    detail: str
    id: RequestId | None = None
    params: Any = ABSENT


@define(eq=False, repr=False)
class Batch(Shown):
    """An array; `items` are JSON values, one for each message (RPC-13)."""

    items: list[Any]


Message = Request | Notification | Response | Malformed | Batch


def is_request_id(value: object) -> bool:
    """Return whether `value` can be the id of a request; integers beyond 64 bits are floats."""
    kind = type(value)
    return kind is int or kind is str


def _with_exact_integers(line: bytes, value: Any) -> Any:
    """Return the JSON value of a line, its integers exact but for ids (RPC-04, RPC-19)."""
    if not may_hold_long_integer(line):
        return value
    exact = read_exactly(line)
    together = zip(exact, value, strict=True) if type(exact) is list else ((exact, value),)
    for message, rounded in together:
        if type(message) is dict and type(rounded.get("id")) is float:
            message["id"] = rounded["id"]
    return exact


def parse(line: bytes, loads: Callable[[bytes], Any] | None = None) -> Message:
    """Return the message in one line (RPC-01 to RPC-08).

    Args:
        line: the line, without its line ending.
        loads: parses JSON; raises `orjson.JSONDecodeError` for invalid JSON.
    """
    try:
        message = orjson.loads(line) if loads is None else loads(line)
        # Inlined: most lines have no run of digits, and two calls would cost each of them 1 %. By
        # `find`: for `in` Python makes a TypeError first, and drops it, which is 1 % more.
        if loads is None and line[::STRIDE].translate(DIGITS).find(SAMPLED) >= 0:
            message = _with_exact_integers(line, message)
    except orjson.JSONDecodeError:
        from .malformed import fault_of

        return Malformed(JsonRpcErrorCode.PARSE_ERROR, "parse_error", fault_of(line))
    return Batch(message) if type(message) is list else read(message)


def read(message: Any) -> Request | Notification | Response | Malformed:
    """Return the message in one JSON value: a line of its own, or an item of a batch."""
    # The well-formed request first: nearly every line is one.
    if type(message) is dict and message.get("jsonrpc") == "2.0":
        method = message.get("method", ABSENT)
        if type(method) is str:
            request_id = message.get("id", ABSENT)
            if type(request_id) is int or type(request_id) is str:
                return Request(request_id, method, message.get("params", ABSENT))
            if request_id is ABSENT:
                return Notification(method, message.get("params", ABSENT))
        elif method is ABSENT and ("result" in message or "error" in message):
            return Response(message.get("id"), message.get("result"), message.get("error"))
    from .malformed import explain

    return explain(message)


encode: Callable[[Any], bytes] = dumps
"""Encodes a message that the runtime has built, without a newline."""
