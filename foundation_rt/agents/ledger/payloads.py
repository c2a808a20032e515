"""Messages, results and errors as a ledger keeps them, and what is too large for it (AACP-44)."""

from __future__ import annotations

from typing import Any

import orjson

from ...errors import ErrorCode, StructuredError, ToolError
from ..messages import AgentMessage
from .encoder import PayloadError, encode_payload
from .errors import invalid
from .types import Claim

_DEFAULT_TYPE = "message"

_ALWAYS_TOLD_BYTES = 4096


def encode_message(message: Any, max_bytes: int) -> bytes:
    """A message as it is kept.

    Args:
        message: an `AgentMessage`, or the payload of one of the default type.

    Raises:
        ToolError: INVALID_ARGUMENT, JSON cannot say it; RESOURCE_EXHAUSTED, it is too large.
    """
    if not isinstance(message, AgentMessage):
        message = AgentMessage(_DEFAULT_TYPE, message)
    try:
        payload = encode_payload({"payload": message.payload, "type": message.type})
    except PayloadError as error:
        raise invalid(
            f"The payload cannot be written as JSON: {error}.", "payload_not_serializable"
        ) from None
    if len(payload) > max_bytes:
        raise ToolError(
            ErrorCode.RESOURCE_EXHAUSTED,
            f"The message is {len(payload)} bytes as JSON; at most {max_bytes} are taken.",
            {"reason": "payload_too_large", "maxPayloadBytes": max_bytes},
        )
    return payload


def read_message(claim: Claim) -> AgentMessage:
    """The message in a claim; a payload of another form than ours is one of the default type."""
    payload = orjson.loads(claim.payload)
    if (
        type(payload) is dict
        and payload.keys() == {"payload", "type"}
        and type(payload["type"]) is str
    ):
        return AgentMessage(payload["type"], payload["payload"], claim.source_agent_id)
    return AgentMessage(_DEFAULT_TYPE, payload, claim.source_agent_id)


def encode_result(value: Any, max_bytes: int) -> bytes:
    """What a handler returned, as it is kept.

    Raises:
        ToolError: INTERNAL, JSON cannot say it, or it is too large.
    """
    try:
        result = encode_payload(value)
    except PayloadError:
        raise ToolError(
            ErrorCode.INTERNAL,
            "The agent's response cannot be written as JSON.",
            {"reason": "result_not_serializable"},
        ) from None
    if len(result) > max_bytes:
        raise ToolError(
            ErrorCode.INTERNAL,
            f"The agent's response is larger than {max_bytes} bytes.",
            {"reason": "result_too_large", "maxPayloadBytes": max_bytes},
        )
    return result


def keepable(error: StructuredError) -> StructuredError:
    """The error as it is kept: what JSON cannot say, or is too much, is left out."""
    try:
        if len(orjson.dumps(error.to_wire())) <= _ALWAYS_TOLD_BYTES:
            return error
        details = {"reason": "error_too_large"}
    except (TypeError, RecursionError):
        details = {"reason": "details_not_serializable"}
    message = error.message.encode("utf-8", "backslashreplace").decode()
    return StructuredError(error.code, message[:1024], details)
