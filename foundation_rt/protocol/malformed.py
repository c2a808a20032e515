"""The faults of lines that are no messages (RPC-02, RPC-20)."""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import Any

from ..errors import JsonRpcErrorCode
from .jsonrpc import ABSENT, Malformed, RequestId, is_request_id


def fault_of(line: bytes) -> str:
    """Return what is wrong with a line, or with a body, that is no JSON (RPC-20)."""
    if not line.strip():
        return "It is empty: a message is a JSON object."
    if line.startswith(BOM_UTF8):
        return "It begins with a byte order mark: send the JSON without one."
    return "The line is not valid JSON in UTF-8."


def explain(message: Any) -> Malformed:
    """Return the fault of a JSON value that is neither a request, a notification nor a response."""
    if type(message) is not dict:
        return invalid("not_an_object", "A message is a JSON object.")
    request_id = message.get("id", ABSENT)
    readable = request_id if is_request_id(request_id) else None
    params = message.get("params", ABSENT)
    if message.get("jsonrpc") != "2.0":
        return invalid("jsonrpc_version", 'The member "jsonrpc" must be "2.0".', readable, params)
    if "method" not in message:
        return invalid("no_method", 'The member "method" is missing.', readable, params)
    if type(message["method"]) is not str:
        return invalid("method_not_a_string", '"method" must be a string.', readable, params)
    return invalid(
        "invalid_id", '"id" must be a string or an integer within 64 bits.', None, params
    )


def invalid(
    reason: str, detail: str, request_id: RequestId | None = None, params: Any = ABSENT
) -> Malformed:
    """Return a message that is answered as an invalid request (RPC-02)."""
    return Malformed(JsonRpcErrorCode.INVALID_REQUEST, reason, detail, request_id, params)
