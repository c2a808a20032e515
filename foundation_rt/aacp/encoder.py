"""Envelopes to bytes and back; what comes in is believed only as far as it is well-formed (AACP-40).

On the wire an envelope is one JSON object with the member names of the specification. Decoding is
strict: every member has its type and range, no member is unknown, and what belongs to one type of
message is not taken from another.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from ..errors import ErrorCode
from .types import VOID_PAYLOAD, Envelope, MessageType

MAX_AGENT_ID_LENGTH = 256
MAX_SEQ = 2**63 - 1

_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class DecodeError(ValueError):
    """What came in is no envelope.

    Attributes:
        path: the member that is wrong, as "/seq"; "" for the whole.
        expected: completes "expected ...". What came instead is not repeated: it may be a secret.
    """

    def __init__(self, path: str, expected: str) -> None:
        super().__init__(f"{path or 'the envelope'}: expected {expected}")
        self.path = path
        self.expected = expected


class PayloadError(ValueError):
    """A payload cannot be said in JSON."""


# -- what may stand in an envelope --------------------------------------------------------------


def is_agent_id(value: object) -> bool:
    """A printable string of 1 to 256 characters without white space at its ends (AGENT-01)."""
    return (
        type(value) is str
        and 0 < len(value) <= MAX_AGENT_ID_LENGTH
        and value.isprintable()
        and value == value.strip()
    )


def is_request_id(value: object) -> bool:
    """1 to 128 of letters, digits and ``._:-``, the first a letter or digit (AACP-12)."""
    return type(value) is str and _REQUEST_ID.fullmatch(value) is not None


def encode_payload(value: Any) -> bytes:
    """A payload as canonical JSON: keys sorted, no spaces; equal values give equal bytes.

    Raises:
        PayloadError: JSON cannot say it.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, RecursionError) as error:
        raise PayloadError(str(error)) from None


def format_time(time_ms: int) -> str:
    """Milliseconds since 1970 as ISO 8601: ``2024-01-15T10:30:00.000Z``."""
    instant = _EPOCH + timedelta(milliseconds=time_ms)
    return f"{instant.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def parse_time(text: str) -> int:
    """The inverse of `format_time`.

    Raises:
        ValueError: it is no such time.
    """
    if not _TIMESTAMP.fullmatch(text):
        raise ValueError(text)
    return (datetime.fromisoformat(text) - _EPOCH) // _MILLISECOND


# -- encoding -----------------------------------------------------------------------------------


def encode(envelope: Envelope) -> bytes:
    """An envelope as one JSON object; what is None or false is left out."""
    wire: dict[str, Any] = {"messageId": envelope.message_id}
    if envelope.request_id is not None:
        wire["requestId"] = envelope.request_id
    wire["sourceAgentId"] = envelope.source_agent_id
    wire["targetAgentId"] = envelope.target_agent_id
    wire["seq"] = envelope.seq
    if envelope.ack is not None:
        wire["ack"] = envelope.ack
    wire["messageType"] = envelope.message_type._value_
    wire["timestamp"] = format_time(envelope.timestamp_ms)
    if envelope.expires_at_ms is not None:
        wire["expiresAt"] = format_time(envelope.expires_at_ms)
    if envelope.tombstone:
        wire["tombstone"] = True
    wire["payload"] = orjson.Fragment(envelope.payload)
    return orjson.dumps(wire)


# -- decoding -----------------------------------------------------------------------------------


def decode(data: bytes) -> Envelope:
    """The envelope in `data`.

    Raises:
        DecodeError: says which member is wrong and what was expected.
    """
    try:
        wire = orjson.loads(data)
    except ValueError:
        raise DecodeError("", "JSON in UTF-8") from None
    if type(wire) is not dict:
        raise DecodeError("", "an object")
    _check_members(wire)
    message_type = MessageType(wire["messageType"])
    tombstone = wire.get("tombstone", False)
    _check_combination(wire, message_type, tombstone)
    try:
        payload = VOID_PAYLOAD if tombstone else encode_payload(wire["payload"])
    except PayloadError:
        raise DecodeError("/payload", "at most 254 levels") from None
    return Envelope(
        wire["messageId"],
        wire.get("requestId"),
        wire["sourceAgentId"],
        wire["targetAgentId"],
        wire["seq"],
        wire.get("ack"),
        message_type,
        parse_time(wire["timestamp"]),
        payload,
        parse_time(wire["expiresAt"]) if "expiresAt" in wire else None,
        tombstone,
    )


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_SEQ


def _is_time(value: object) -> bool:
    try:
        return type(value) is str and parse_time(value) >= 0
    except ValueError:
        return False


def _is_uuid4(value: object) -> bool:
    return type(value) is str and _UUID4.fullmatch(value) is not None


_AGENT_ID = "a printable string of 1 to 256 characters without white space at its ends"
_TIME = "a time as 2024-01-15T10:30:00.000Z"
_NUMBER = "an integer from 0 to 2^63-1"

# Member: whether it is required, what it accepts, and how to say so.
_MEMBERS: dict[str, tuple[bool, Callable[[object], bool], str]] = {
    "messageId": (True, _is_uuid4, "a UUID of version 4"),
    "requestId": (False, is_request_id, "1 to 128 letters, digits and . _ : -"),
    "sourceAgentId": (True, is_agent_id, _AGENT_ID),
    "targetAgentId": (True, is_agent_id, _AGENT_ID),
    "seq": (True, _is_number, _NUMBER),
    "ack": (False, _is_number, _NUMBER),
    "messageType": (
        True,
        lambda value: type(value) is str and value in MessageType._value2member_map_,
        "REQUEST, RESPONSE or EVENT",
    ),
    "timestamp": (True, _is_time, _TIME),
    "expiresAt": (False, _is_time, _TIME),
    "tombstone": (False, lambda value: value is True, "true, or nothing"),
    "payload": (True, lambda value: True, "any JSON"),
}


def _check_members(wire: dict[str, Any]) -> None:
    for name, (required, accepts, expected) in _MEMBERS.items():
        if name not in wire:
            if required:
                raise DecodeError(f"/{name}", expected)
        elif not accepts(wire[name]):
            raise DecodeError(f"/{name}", expected)
    if len(wire.keys() - _MEMBERS.keys()):
        raise DecodeError("", f"no members but {', '.join(_MEMBERS)}")


def _check_combination(wire: dict[str, Any], message_type: MessageType, tombstone: bool) -> None:
    if message_type is not MessageType.EVENT and "requestId" not in wire:
        raise DecodeError("/requestId", f"one, since it is a {message_type}")
    if wire["seq"] == 0 and (message_type is not MessageType.EVENT or "ack" not in wire):
        raise DecodeError("/seq", "at least 1, unless it is an EVENT that carries only an ack")
    if message_type is MessageType.RESPONSE and not tombstone:
        _check_response(wire["payload"])


def _check_response(payload: Any) -> None:
    if type(payload) is dict:
        outcome = payload.get("outcome")
        if outcome == "COMPLETED" and payload.keys() == {"outcome", "result"}:
            return
        if outcome == "FAILED" and payload.keys() == {"outcome", "error"}:
            _check_error(payload["error"])
            return
    raise DecodeError("/payload", "an outcome: COMPLETED with a result, or FAILED with an error")


def _check_error(error: Any) -> None:
    if not (
        type(error) is dict
        and error.get("code") in ErrorCode._value2member_map_
        and type(error.get("message")) is str
        and type(error.get("details", {})) is dict
    ):
        raise DecodeError("/payload/error", "a structured error: code, message, details")
