"""Envelopes to bytes and back, decoded strictly (AACP-40).

On the wire an envelope is one JSON object with the member names of the specification; its schema is
spec/schemas/aacp-envelope.schema.json. Decoding is strict: every member has its type and range, no
member is unknown, and a member of one type of message is refused in another.

Integers of any size stay exact (RPC-19), and of members of one name the last counts. A decoded
envelope still has one meaning: its payload is passed on in canonical form, and not as the bytes
that came in.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any

import attrs
import orjson

from ...base.exact_json import compact, dumps, loads
from ...base.rich_values import problem_in
from ...errors import ErrorCode
from .ownership import is_ledger_id
from .request_options import RequestOptions
from .rules import response_payload
from .types import VOID_PAYLOAD, Envelope, MessageType, RequestState

MAX_AGENT_ID_LENGTH = 256
MAX_SEQ = 2**63 - 1
MAX_TIME_MS = 253_402_300_799_999
"""The last millisecond of the year 9999: ISO 8601 has no later year of four digits."""

_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_TIME = re.compile(
    r"(?:19[7-9][0-9]|[2-9][0-9]{3})-[0-9]{2}-[0-9]{2}"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{3}Z"
)
_EPOCH = datetime(1970, 1, 1)  # in UTC, as all here: naive ones are twice as fast
_MILLISECOND = timedelta(milliseconds=1)


class DecodeError(ValueError):
    """The bytes are not an envelope.

    Attributes:
        path: the invalid member, as "/seq"; "" for the whole.
        expected: completes "expected ...". The value itself is not repeated: it may be a secret.
    """

    def __init__(self, path: str, expected: str) -> None:
        super().__init__(f"{path or 'the envelope'}: expected {expected}")
        self.path = path
        self.expected = expected


class PayloadError(ValueError):
    """A payload cannot be written as JSON."""


# -- values of an envelope --------------------------------------------------------------


def is_agent_id(value: object) -> bool:
    """Return whether a value is a valid agent id (AGENT-01).

    It is a printable string of 1 to 256 characters without white space at its ends.
    """
    return (
        type(value) is str
        and 0 < len(value) <= MAX_AGENT_ID_LENGTH
        and value.isprintable()
        and value == value.strip()
    )


def encode_payload(value: Any) -> bytes:
    """Return a payload as canonical JSON: keys sorted, no spaces; equal values give equal bytes.

    Equal means equal as JSON, where 1, 1.0 and true are three values, and 0.0 and -0.0 two. attrs
    instances and dataclasses become objects, as in CALL-10; but keys have to be strings, since 1
    and "1" would become the same. NaN is null: what an application gives goes to `refuse_nan`.

    Raises:
        PayloadError: JSON cannot represent it within 254 levels.
    """
    try:
        return compact(dumps(value, default=_unstructure, option=_CANONICAL))
    except (TypeError, RecursionError) as error:
        raise PayloadError(str(error)) from None


def refuse_nan(value: Any, written: bytes) -> None:
    """Refuse a value with a number that `encode_payload` has written as null (AACP-165).

    Args:
        value: of an application.
        written: JSON that has all of it.

    Raises:
        PayloadError: names the place: "$.a is NaN".
    """
    if b"null" in written and (problem := problem_in(value, _unstructure)):
        raise PayloadError(problem)


# orjson would write the fields of a dataclass in the order of their definition.
_CANONICAL = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS


def _unstructure(value: Any) -> dict[str, Any]:
    kind = type(value)
    if attrs.has(kind):
        names = [each.name for each in attrs.fields(kind)]
    elif is_dataclass(kind):
        names = [each.name for each in fields(kind)]
    else:
        raise TypeError(f"{kind.__name__} is not JSON-serializable")
    return {name: getattr(value, name) for name in names}


def format_time(time_ms: int) -> str:
    """Return milliseconds since 1970 as ISO 8601: ``2024-01-15T10:30:00.000Z``.

    A time before 1970 or after 9999 becomes the nearest time in that range: an expiry beyond it
    never comes, and an envelope can always be sent.
    """
    instant = _EPOCH + timedelta(milliseconds=min(max(time_ms, 0), MAX_TIME_MS))
    return instant.isoformat("T", "milliseconds") + "Z"


def parse_time(text: str) -> int:
    """Return the milliseconds of a text that `format_time` may have made.

    Raises:
        ValueError: it is not such a text.
    """
    if not _TIME.fullmatch(text):
        raise ValueError("no time as format_time writes it")
    return (datetime.fromisoformat(text[:-1]) - _EPOCH) // _MILLISECOND


# -- encoding -----------------------------------------------------------------------------------


def encode(envelope: Envelope) -> bytes:
    """Encode an envelope as one JSON object, without members that are None or false."""
    wire: dict[str, Any] = {"messageId": envelope.message_id}
    if envelope.request_id is not None:
        wire["requestId"] = envelope.request_id
    wire["sourceAgentId"] = envelope.source_agent_id
    wire["targetAgentId"] = envelope.target_agent_id
    wire["seq"] = envelope.seq
    wire["series"] = envelope.incarnation
    if envelope.seq:
        wire["floor"] = envelope.low_watermark
    if envelope.ack is not None:
        wire["ack"] = envelope.ack
        wire["ackSeries"] = envelope.ack_incarnation
    wire["messageType"] = envelope.message_type._value_
    wire["timestamp"] = format_time(envelope.timestamp_ms)
    if envelope.expires_at_ms is not None:
        wire["expiresAt"] = format_time(envelope.expires_at_ms)
    if envelope.tombstone:
        wire["tombstone"] = True
    elif envelope.options is not None:
        wire["options"] = orjson.Fragment(envelope.options)
    wire["payload"] = orjson.Fragment(VOID_PAYLOAD if envelope.tombstone else envelope.payload)
    return dumps(wire)


# -- decoding -----------------------------------------------------------------------------------


def decode(data: bytes) -> Envelope:
    """Decode an envelope.

    Raises:
        DecodeError: names the invalid member and what was expected.
    """
    try:
        wire = loads(data)
    except ValueError:
        wire = None
    # Raised here, the error does not chain the one above, which holds all the bytes.
    if type(wire) is not dict:
        raise DecodeError("", "a JSON object in UTF-8")
    envelope = _read_members(wire)
    payload = wire["payload"]
    _check_combination(envelope, payload)
    try:
        if envelope.message_type is MessageType.RESPONSE and not envelope.tombstone:
            envelope.payload = _read_response(payload)
        else:
            envelope.payload = encode_payload(payload)
    except PayloadError:
        raise DecodeError("/payload", "at most 254 levels") from None
    return envelope


def _read_members(wire: dict[str, Any]) -> Envelope:
    values: list[Any] = []
    for name, absent, read, expected in _MEMBERS:
        value = read(wire[name]) if name in wire else absent
        if value is _INVALID:
            raise DecodeError(f"/{name}", expected)
        values.append(value)
    if not wire.keys() <= _NAMES:
        raise DecodeError("", f"no members but {', '.join(sorted(_NAMES))}")
    return Envelope(*values)


_INVALID: Any = object()
"""The result of reading an invalid member."""


def _read_uuid4(value: object) -> Any:
    return value if type(value) is str and _UUID4.fullmatch(value) else _INVALID


def _read_request_id(value: object) -> Any:
    return value if is_ledger_id(value) else _INVALID


def _read_agent_id(value: object) -> Any:
    return value if is_agent_id(value) else _INVALID


def _read_number(value: object) -> Any:
    return value if type(value) is int and 0 <= value <= MAX_SEQ else _INVALID


def _read_counter(value: object) -> Any:
    return value if type(value) is int and 1 <= value <= MAX_SEQ else _INVALID


def _read_type(value: object) -> Any:
    return _TYPES.get(value, _INVALID) if type(value) is str else _INVALID


def _read_time(value: object) -> Any:
    try:
        return parse_time(value) if type(value) is str else _INVALID
    except ValueError:
        return _INVALID


def _read_payload(value: object) -> Any:
    return VOID_PAYLOAD  # until the type of the message is known


def _read_tombstone(value: object) -> Any:
    return True if value is True else _INVALID


def _read_options(value: object) -> Any:
    try:
        return RequestOptions.from_json(dumps(value)).to_json()
    except (ValueError, TypeError):  # TypeError: over 254 levels
        return _INVALID


_TYPES = {each._value_: each for each in MessageType}

_LEDGER_ID = "1 to 128 letters, digits and . _ : -, then nothing, or @ and 32 hexadecimal digits"
_AGENT_ID = "a printable string of 1 to 256 characters without white space at its ends"
_INSTANT = "a time as 2024-01-15T10:30:00.000Z, from 1970 on"
_NUMBER = "an integer from 0 to 2^63-1"

# In the order of the attributes of `Envelope`: name, value when absent, reader, and the text that
# completes "expected ...".
_MEMBERS: tuple[tuple[str, Any, Callable[[object], Any], str], ...] = (
    ("messageId", _INVALID, _read_uuid4, "a UUID of version 4"),
    ("requestId", None, _read_request_id, _LEDGER_ID),
    ("sourceAgentId", _INVALID, _read_agent_id, _AGENT_ID),
    ("targetAgentId", _INVALID, _read_agent_id, _AGENT_ID),
    ("seq", _INVALID, _read_number, _NUMBER),
    ("ack", None, _read_number, _NUMBER),
    ("messageType", _INVALID, _read_type, "REQUEST, RESPONSE or EVENT"),
    ("timestamp", _INVALID, _read_time, _INSTANT),
    ("payload", _INVALID, _read_payload, "any JSON"),
    ("expiresAt", None, _read_time, _INSTANT),
    ("tombstone", False, _read_tombstone, "true, or nothing"),
    ("series", _INVALID, _read_number, _NUMBER),
    ("ackSeries", None, _read_number, _NUMBER),
    ("floor", 0, _read_counter, "an integer from 1 to 2^63-1"),
    ("options", None, _read_options, "the options of a request: notBeforeMs, priority, retry"),
)
_NAMES = {name for name, *_ in _MEMBERS}


def _check_combination(envelope: Envelope, payload: Any) -> None:
    is_event = envelope.message_type is MessageType.EVENT
    if envelope.request_id is None and not is_event:
        raise DecodeError("/requestId", f"one, since it is a {envelope.message_type._value_}")
    if (envelope.ack is None) != (envelope.ack_incarnation is None):
        raise DecodeError("/ackSeries", "one with an ack, and none without")
    if envelope.tombstone and payload is not None:
        raise DecodeError("/payload", "null, since it is a tombstone")
    if envelope.seq > 0 and envelope.low_watermark == 0:
        raise DecodeError("/floor", "one, since seq is at least 1")
    is_response = envelope.message_type is MessageType.RESPONSE
    if envelope.options is not None and (is_response or envelope.tombstone):
        raise DecodeError("/options", "none, since it is a RESPONSE or a tombstone")
    if envelope.seq == 0 and not (is_event and _carries_only_an_ack(envelope, payload)):
        raise DecodeError("/seq", "at least 1, unless it is an EVENT that carries only an ack")


def _carries_only_an_ack(envelope: Envelope, payload: Any) -> bool:
    return (
        envelope.ack is not None
        and envelope.request_id is None
        and envelope.expires_at_ms is None
        and envelope.options is None
        and not envelope.tombstone
        and envelope.low_watermark == 0
        and payload is None
    )


def _read_response(payload: Any) -> bytes:
    """Return the payload of a RESPONSE; its result or error may have 254 levels (AACP-16)."""
    if type(payload) is dict:
        outcome = payload.get("outcome")
        if outcome == "COMPLETED" and payload.keys() == {"outcome", "result"}:
            result = encode_payload(payload["result"])
            return response_payload(RequestState.COMPLETED, result, None)
        if outcome == "FAILED" and payload.keys() == {"outcome", "error"}:
            _check_error(payload["error"])
            return response_payload(RequestState.FAILED, None, encode_payload(payload["error"]))
    raise DecodeError("/payload", "an outcome: COMPLETED with a result, or FAILED with an error")


def _check_error(error: Any) -> None:
    """Refuse what `StructuredError.to_wire` cannot make; `details` may be anything (ERR-02)."""
    if not (
        type(error) is dict
        and error.keys() <= _ERROR_MEMBERS
        and all(type(error.get(name, "")) is str for name in _ERROR_MEMBERS - {"details"})
        and error.get("code") in _ERROR_CODES
        and "message" in error
    ):
        raise DecodeError("/payload/error", "a structured error: code, message, details")


_ERROR_MEMBERS = {"code", "message", "details", "runId", "correlationId"}
_ERROR_CODES = frozenset(ErrorCode)
