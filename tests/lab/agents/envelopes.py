"""Envelopes of AACP as hypothesis makes them: valid ones, and wire objects that nearly are."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import strategies as st

from foundation_rt.agents.ledger.encoder import MAX_SEQ, MAX_TIME_MS, encode_payload
from foundation_rt.agents.ledger.request_options import (
    MAX_ATTEMPTS,
    MAX_PRIORITY,
    ExecutionRetries,
    RequestOptions,
)
from foundation_rt.agents.ledger.rules import response_payload
from foundation_rt.agents.ledger.types import VOID_PAYLOAD, Envelope, MessageType, RequestState
from foundation_rt.errors import ErrorCode

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)

uuids = st.uuids(version=4).map(str)
request_ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}(@[0-9a-f]{32})?", fullmatch=True)
# Only characters that long have been assigned: later ones are a matter of the version of Unicode.
printable = st.characters(exclude_categories=("C", "Z"), max_codepoint=0xFFFF)
agent_ids = st.text(printable | st.just(" "), min_size=1, max_size=256).filter(
    lambda text: text == text.strip()
)
times = st.integers(0, MAX_TIME_MS)
numbers = st.integers(1, 100) | st.integers(1, MAX_SEQ)
incarnation = st.integers(0, MAX_SEQ)
acks = st.none() | st.integers(0, 100) | st.integers(0, MAX_SEQ)

errors = st.fixed_dictionaries(
    {"code": st.sampled_from([str(code) for code in ErrorCode]), "message": st.text(max_size=12)},
    optional={"details": json_values, "runId": uuids, "correlationId": st.text(max_size=12)},
)
responses = st.builds(
    lambda value: response_payload(RequestState.COMPLETED, encode_payload(value), None),
    json_values,
) | st.builds(
    lambda error: response_payload(RequestState.FAILED, None, encode_payload(error)), errors
)


retries = st.builds(
    lambda base, more, **values: ExecutionRetries(
        base_delay_ms=base, max_delay_ms=base + more, **values
    ),
    base=st.integers(1, 1_000_000),
    more=st.integers(0, 1_000_000),
    attempts=st.integers(1, MAX_ATTEMPTS),
    multiplier=st.floats(1, 1_000) | st.integers(1, 1_000),
    jitter=st.floats(0, 1),
    final=st.lists(st.text(max_size=100), max_size=3),
)
options = st.builds(
    RequestOptions,
    st.none() | times,
    st.integers(0, MAX_PRIORITY),
    st.none() | retries.map(ExecutionRetries.to_json),
).map(RequestOptions.to_json)


@st.composite
def envelopes(draw: st.DrawFn) -> Envelope:
    """Every envelope that can be sent."""
    message_type = draw(st.sampled_from(MessageType))
    is_event = message_type is MessageType.EVENT
    if is_event and draw(st.integers(0, 3)) == 0:
        return draw(bare_acks)
    tombstone = draw(st.booleans())
    payloads = (
        responses if message_type is MessageType.RESPONSE else json_values.map(encode_payload)
    )
    return Envelope(
        draw(uuids),
        draw(st.none() | request_ids if is_event else request_ids),
        draw(agent_ids),
        draw(agent_ids),
        draw(numbers),
        ack := draw(acks),
        message_type,
        draw(times),
        VOID_PAYLOAD if tombstone else draw(payloads),
        draw(st.none() | times),
        tombstone,
        draw(incarnation),
        None if ack is None else draw(incarnation),
        draw(numbers),
        None
        if tombstone or message_type is MessageType.RESPONSE
        else draw(st.none() | st.none() | options),
    )


bare_acks = st.builds(
    Envelope,
    message_id=uuids,
    request_id=st.none(),
    source_agent_id=agent_ids,
    target_agent_id=agent_ids,
    seq=st.just(0),
    ack=st.integers(0, MAX_SEQ),
    message_type=st.just(MessageType.EVENT),
    timestamp_ms=times,
    payload=st.just(VOID_PAYLOAD),
    incarnation=incarnation,
    ack_incarnation=incarnation,
    low_watermark=st.just(0),
)

MEMBERS = (
    *("messageId", "requestId", "sourceAgentId", "targetAgentId", "seq", "series", "floor"),
    *("ack", "ackSeries", "messageType", "timestamp", "expiresAt", "tombstone", "options"),
    "payload",
)

# What a member may be changed to: often valid for some other member, or nearly valid.
_REPLACEMENTS: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        [
            0,
            1,
            -1,
            MAX_SEQ,
            MAX_SEQ + 1,
            2.5,
            True,
            False,
            None,
            "",
            " a",
            "a b",
            "a\n",
            "a\u00a0b",
            "a\u200bb",
            "x" * 128,
            "x" * 129,
            "\u00e9" * 256,
            "x" * 257,
            "-x",
            "REQUEST",
            "RESPONSE",
            "EVENT",
            "request",
            "00000000-0000-4000-8000-00000000000a",
            "00000000-0000-4000-8000-00000000000A",
            "00000000-0000-1000-8000-00000000000a",
            "00000000-0000-4000-c000-00000000000a",
            "1969-12-31T23:59:59.999Z",
            "1970-01-01T00:00:00.000Z",
            "9999-12-31T23:59:59.999Z",
            "2024-02-29T23:59:59.999Z",
            "2024-13-01T00:00:00.000Z",
            "2024-00-01T00:00:00.000Z",
            "2024-01-32T00:00:00.000Z",
            "2024-01-00T00:00:00.000Z",
            "2024-01-15T24:00:00.000Z",
            "2024-01-15T10:60:00.000Z",
            "2024-01-15T10:30:60.000Z",
            "2024-01-15T10:30:00Z",
            "2024-01-15T10:30:00.000+00:00",
            "2024-01-15 10:30:00.000Z",
            "2024-01-15T10:30:00.000z",
            "2024-01-15T10:30:00.00\u0660Z",
            "\u0662\u0660\u0662\u0664-01-15T10:30:00.000Z",
            {},
            {"notBeforeMs": 0, "priority": 9},
            {"notBeforeMs": -1},
            {"priority": 10},
            {"retry": {}},
            {"outcome": "COMPLETED"},
            {"outcome": "COMPLETED", "result": 1, "error": 1},
            {"outcome": "UNKNOWN", "result": 1},
            {"outcome": ["COMPLETED"], "result": 1},
            {"outcome": "FAILED", "error": None},
            {"outcome": "FAILED", "error": {"code": "NOPE", "message": ""}},
            {"outcome": "FAILED", "error": {"code": [], "message": ""}},
            {"outcome": "FAILED", "error": {"code": "INTERNAL"}},
            {"outcome": "FAILED", "error": {"code": "INTERNAL", "message": 1}},
            {"outcome": "FAILED", "error": {"message": "", "runId": "r"}},
            {"outcome": "FAILED", "error": {"code": "INTERNAL", "message": "", "runId": 1}},
            {"outcome": "FAILED", "error": {"code": "INTERNAL", "message": "", "more": 1}},
            {"outcome": "FAILED", "error": {"code": "INTERNAL", "message": "", "details": [1]}},
        ]
    ),
    responses.map(orjson.loads),
    json_values,
)


@st.composite
def mutations(draw: st.DrawFn, wire: dict[str, Any]) -> dict[str, Any]:
    """Return a wire object with up to three members changed, left out or added."""
    changed = dict(wire)
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(MEMBERS) | st.text(max_size=6))
        if draw(st.booleans()):
            changed.pop(name, None)
        else:
            changed[name] = draw(_REPLACEMENTS)
    return changed
