"""Messages, results and errors as a ledger keeps them, and their limits (AACP-44)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...base.exact_json import dumps, loads
from ...errors import ErrorCode, StructuredError, ToolError
from ..messages import AgentMessage
from .encoder import PayloadError, encode_payload, refuse_nan
from .errors import invalid
from .types import Claim

if TYPE_CHECKING:
    from ...base.config.feature_sections import AacpSection
    from ..transports import AACPTransport

_DEFAULT_TYPE = "message"

_MAX_ERROR_BYTES = 4096

_ENVELOPE_BYTES = 8192
"""More than the rest of an envelope takes: most of it for two ids of 256 characters of any kind."""


def max_payload_bytes(settings: AacpSection, transport: AACPTransport | None) -> int:
    """Return the largest payload that the ledger may hold and the transport, if any, can carry."""
    if transport is None:
        return settings.max_payload_bytes
    return min(settings.max_payload_bytes, transport.max_envelope_bytes - _ENVELOPE_BYTES)


def encode_message(message: Any, max_bytes: int) -> bytes:
    """Return a message as the ledger keeps it.

    Args:
        message: an `AgentMessage`, or the payload of one of the default type.
        max_bytes: the largest size as JSON.

    Raises:
        ToolError: INVALID_ARGUMENT, JSON cannot represent it; RESOURCE_EXHAUSTED, it is too large.
    """
    if not isinstance(message, AgentMessage):
        message = AgentMessage(_DEFAULT_TYPE, message)
    try:
        payload = encode_payload({"payload": message.payload, "type": message.type})
        refuse_nan(message.payload, payload)
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
    """Return the message in a claim; a payload of another form is one of the default type."""
    payload = loads(claim.payload)
    if (
        type(payload) is dict
        and payload.keys() == {"payload", "type"}
        and type(payload["type"]) is str
    ):
        return AgentMessage(payload["type"], payload["payload"], claim.source_agent_id)
    return AgentMessage(_DEFAULT_TYPE, payload, claim.source_agent_id)


def encode_result(value: Any, max_bytes: int) -> bytes:
    """Return a handler's result as the ledger keeps it.

    Raises:
        ToolError: INTERNAL, JSON cannot represent it, or it is too large.
    """
    try:
        result = encode_payload(value)
        refuse_nan(value, result)
    except PayloadError as error:
        raise ToolError(
            ErrorCode.INTERNAL,
            f"The agent's response cannot be written as JSON: {error}.",
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
    """Return the error as the ledger keeps it, without details that are too large or not JSON."""
    try:
        if len(dumps(error.to_wire())) <= _MAX_ERROR_BYTES:
            return error
        details = {"reason": "error_too_large"}
    except (TypeError, RecursionError):
        details = {"reason": "details_not_serializable"}
    message = error.message.encode("utf-8", "backslashreplace").decode()
    return StructuredError(error.code, message[:1024], details)
