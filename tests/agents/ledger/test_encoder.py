"""Envelopes to bytes and back: all that is valid, and nothing else."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import attrs
import orjson
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from foundation_rt.agents.ledger.encoder import (
    MAX_SEQ,
    MAX_TIME_MS,
    DecodeError,
    PayloadError,
    decode,
    encode,
    encode_payload,
    format_time,
    parse_time,
)
from foundation_rt.agents.ledger.ownership import is_request_id
from foundation_rt.agents.ledger.rules import read_response, response_payload
from foundation_rt.agents.ledger.types import Envelope, MessageType, RequestState
from foundation_rt.base.exact_json import loads
from tests.lab.agents.envelopes import MEMBERS, envelopes, json_values, mutations, times
from tests.lab.checks import wire as schemas
from tests.lab.sizes import examples

MESSAGE_ID = "00000000-0000-4000-8000-000000000001"
TIME = "2024-01-15T10:30:00.000Z"
TIME_MS = 1_705_314_600_000
SECRET = "hunter2"

REQUEST: dict[str, Any] = {
    "messageId": MESSAGE_ID,
    "requestId": "order-7",
    "sourceAgentId": "shop",
    "targetAgentId": "warehouse",
    "seq": 3,
    "series": 1_705_000_000_000,
    "floor": 2,
    "ack": 2,
    "ackSeries": 1_704_000_000_000,
    "messageType": "REQUEST",
    "timestamp": TIME,
    "expiresAt": "2024-01-15T11:30:00.000Z",
    "payload": {"item": 5},
}
RESPONSE = REQUEST | {
    "messageType": "RESPONSE",
    "payload": {"outcome": "COMPLETED", "result": True},
}
EVENT = {name: REQUEST[name] for name in REQUEST if name != "requestId"} | {"messageType": "EVENT"}
TOMBSTONE = REQUEST | {"tombstone": True, "payload": None}
ACK = {
    name: EVENT[name] for name in EVENT if name not in ("seq", "floor", "expiresAt", "payload")
} | {"seq": 0, "payload": None}
KINDS = {
    "request": REQUEST,
    "response": RESPONSE,
    "event": EVENT,
    "tombstone": TOMBSTONE,
    "ack": ACK,
}
ERROR = {"code": "NOT_FOUND", "message": "no such item"}


def decode_value(value: Any) -> Envelope:
    return decode(orjson.dumps(value))


def refusal(value: Any) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decode_value(value)
    return caught.value


def without(wire: dict[str, Any], name: str) -> dict[str, Any]:
    return {each: wire[each] for each in wire if each != name}


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


# -- there and back


@pytest.mark.rule("AACP-40")
@given(envelope=envelopes())
def test_envelope_survives_round_trip(envelope: Envelope) -> None:
    data = encode(envelope)
    assert decode(data) == envelope
    assert type(decode(data).message_type) is MessageType
    assert encode(decode(data)) == data
    assert schemas.problems("aacp-envelope", orjson.loads(data)) == []


@pytest.mark.rule("AACP-40")
def test_envelope_has_documented_wire_form() -> None:
    envelope = Envelope(
        MESSAGE_ID,
        "order-7",
        "shop",
        "warehouse",
        3,
        2,
        MessageType.REQUEST,
        TIME_MS,
        b'{"item":5}',
        TIME_MS + 3_600_000,
        incarnation=1_705_000_000_000,
        ack_incarnation=1_704_000_000_000,
        low_watermark=2,
    )
    assert orjson.loads(encode(envelope)) == REQUEST
    assert decode_value(REQUEST) == envelope
    assert decode(encode(envelope)[:-1] + b"  }\n") == envelope


@pytest.mark.rule("AACP-14", "AACP-73")
def test_tombstone_has_no_payload() -> None:
    void = decode_value(TOMBSTONE)
    assert (void.tombstone, void.payload) == (True, b"null")
    kept = attrs.evolve(void, payload=b'"hunter2"')
    assert decode(encode(kept)) == void
    assert refusal(TOMBSTONE | {"payload": SECRET}).path == "/payload"
    for message_type in MessageType:
        assert decode_value(TOMBSTONE | {"messageType": message_type.value}).tombstone


# -- strictness, member by member

NO_STRING: list[Any] = [None, True, 1, 1.5, [], ["a"], {}, {"a": 1}]
NO_NUMBER: list[Any] = [None, True, False, "1", 1.0, 1.5, -1, MAX_SEQ + 1, 2.0**64, [1], {}]
NO_TIME: list[Any] = [
    *NO_STRING,
    "",
    TIME_MS,
    "2024-01-15T10:30:00Z",
    "2024-01-15T10:30:00.00Z",
    "2024-01-15T10:30:00.0000Z",
    "2024-01-15T10:30:00.000",
    "2024-01-15T10:30:00.000+00:00",
    "2024-01-15T10:30:00.000z",
    "2024-01-15t10:30:00.000Z",
    "2024-01-15 10:30:00.000Z",
    "2024-01-15T10:30:00,000Z",
    f" {TIME}",
    f"{TIME}\n",
    "2024-1-15T10:30:00.000Z",
    "20240115T103000.000Z",
    "2024-W03-1T10:30:00.000Z",
    "2024-02-30T10:30:00.000Z",
    "2023-02-29T10:30:00.000Z",
    "2024-13-01T10:30:00.000Z",
    "2024-00-15T10:30:00.000Z",
    "2024-01-00T10:30:00.000Z",
    "2024-01-15T24:00:00.000Z",
    "2024-01-15T10:60:00.000Z",
    "2024-01-15T23:59:60.000Z",
    "0000-01-01T00:00:00.000Z",
    "0001-01-01T00:00:00.000Z",
    "1969-12-31T23:59:59.999Z",
    "12024-01-15T10:30:00.000Z",
    "-2024-01-15T10:30:00.000Z",
    "٢٠٢٤-01-15T10:30:00.000Z",
]
NO_AGENT_ID: list[Any] = [
    *NO_STRING,
    "",
    " ",
    " a",
    "a ",
    "a\n",
    "a\tb",
    "a\0b",
    "a\u00a0b",
    "a\u200bb",
    "a\u2028b",
    "x" * 257,
]
RETRY: dict[str, Any] = {
    "attempts": 3,
    "baseDelayMs": 100,
    "maxDelayMs": 1000,
    "multiplier": 1.5,
    "jitter": 0.5,
    "final": ["INVALID_ARGUMENT"],
}
NO_RETRY: list[dict[str, Any]] = [
    {"attempts": 0},
    {"attempts": 1_001},
    {"attempts": True},
    {"baseDelayMs": 0},
    {"maxDelayMs": 2**31},
    {"maxDelayMs": "1000"},
    {"multiplier": 0.5},
    {"multiplier": None},
    {"jitter": 1.5},
    {"final": "INTERNAL"},
    {"final": [1]},
    {"final": ["x" * 101]},
    {"final": ["x"] * 101},
    {"more": 1},
]
WRONG: dict[str, list[Any]] = {
    "messageId": [
        *NO_STRING,
        "",
        "x",
        MESSAGE_ID.upper().replace("0", "A"),
        MESSAGE_ID.replace("-", ""),
        f"{{{MESSAGE_ID}}}",
        f"{MESSAGE_ID}\n",
        "00000000-0000-1000-8000-000000000001",
        "00000000-0000-4000-c000-000000000001",
    ],
    "requestId": [*NO_STRING, "", "-a", ".a", "a b", "a/b", "ä", "a\n", "x" * 129],
    "sourceAgentId": NO_AGENT_ID,
    "targetAgentId": NO_AGENT_ID,
    "seq": NO_NUMBER,
    "series": NO_NUMBER,
    "floor": [*NO_NUMBER, 0],
    "ack": NO_NUMBER,
    "ackSeries": NO_NUMBER,
    "messageType": [*NO_STRING, "", "request", "COMMAND", "REQUEST ", ["REQUEST"]],
    "timestamp": NO_TIME,
    "expiresAt": NO_TIME,
    "tombstone": [False, None, 1, "true", [], {}],
    "options": [
        *(value for value in NO_STRING if value != {}),
        "a",
        *({"notBeforeMs": value} for value in (None, True, "1", -1, 1.5, 2**62)),
        *({"priority": value} for value in (None, False, "1", -1, 10, 0.5)),
        *({"retry": value} for value in (None, [], {})),
        *({"retry": RETRY | change} for change in NO_RETRY),
        {"retry": {name: RETRY[name] for name in RETRY if name != "jitter"}},
    ],
}


# What is sound as far as a schema can say: it knows neither calendars nor how a number is spelled.
# Nor does it know bytes that are no JSON, members of one name, and levels: those have tests below.
BEYOND_A_SCHEMA = (1.0, "2024-02-30T10:30:00.000Z", "2023-02-29T10:30:00.000Z")


@pytest.mark.rule("AACP-73")
@pytest.mark.parametrize("name", MEMBERS)
def test_required_members_are_required(name: str) -> None:
    optional = {"requestId", "expiresAt", "tombstone", "options"}
    if name in ("ack", "ackSeries"):
        assert refusal(without(REQUEST, name)).path == "/ackSeries"
        wire = without(without(REQUEST, "ack"), "ackSeries")
        assert orjson.loads(encode(decode_value(wire))) == wire
    elif name in optional:
        assert orjson.loads(encode(decode_value(without(EVENT, name)))) == without(EVENT, name)
    else:
        error = refusal(without(REQUEST, name))
        assert error.path == f"/{name}"


@pytest.mark.rule("AACP-40", "AACP-73", "AACP-74", "AACP-62")
@pytest.mark.parametrize("name", WRONG)
def test_a_member_has_its_type_and_range(name: str) -> None:
    for value in WRONG[name]:
        error = refusal(REQUEST | {name: value})
        assert error.path == f"/{name}", value
        is_beyond = type(value) in (float, str) and value in BEYOND_A_SCHEMA
        problems = schemas.problems("aacp-envelope", REQUEST | {name: value})
        assert (problems == []) is is_beyond, value


@pytest.mark.rule("AACP-73", "AACP-62")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("messageId", "ffffffff-ffff-4fff-bfff-ffffffffffff"),
        ("requestId", "0"),
        ("requestId", "a._:-Z9"),
        ("requestId", "x" * 128),
        ("sourceAgentId", "x"),
        ("sourceAgentId", "größter Agent 🤖"),
        ("targetAgentId", "🤖" * 256),
        ("seq", 1),
        ("seq", MAX_SEQ),
        ("series", 0),
        ("series", MAX_SEQ),
        ("floor", 1),
        ("floor", MAX_SEQ),
        ("ack", 0),
        ("ack", MAX_SEQ),
        ("ackSeries", 0),
        ("ackSeries", MAX_SEQ),
        ("timestamp", "1970-01-01T00:00:00.000Z"),
        ("timestamp", "9999-12-31T23:59:59.999Z"),
        ("expiresAt", "2024-02-29T23:59:59.999Z"),
        # Whether a message has expired is for the ledger to say.
        ("expiresAt", "1970-01-01T00:00:00.000Z"),
        ("sourceAgentId", REQUEST["targetAgentId"]),
        ("options", {}),
        ("options", {"notBeforeMs": 0, "priority": 1}),
        ("options", {"notBeforeMs": 2**62 - 1, "priority": 9, "retry": RETRY}),
    ],
)
def test_a_member_may_be_at_its_limits(name: str, value: Any) -> None:
    wire = REQUEST | {name: value}
    assert orjson.loads(encode(decode_value(wire))) == wire
    assert schemas.problems("aacp-envelope", wire) == []


@pytest.mark.rule("AACP-40", "AACP-74")
@pytest.mark.parametrize("name", ["", "Seq", "seq ", "message_id", "tombStone", "hunter2"])
def test_an_unknown_member_is_refused_and_not_named(name: str) -> None:
    error = refusal(REQUEST | {name: SECRET})
    assert error.path == ""
    assert SECRET not in str(error)
    assert all(known in error.expected for known in MEMBERS)


# -- strictness, together


@pytest.mark.rule("AACP-125")
@pytest.mark.parametrize("wire", [RESPONSE, TOMBSTONE])
def test_only_what_is_executed_has_options(wire: dict[str, Any]) -> None:
    assert refusal(wire | {"options": {"priority": 1}}).path == "/options"
    assert schemas.problems("aacp-envelope", wire | {"options": {"priority": 1}})


@pytest.mark.rule("AACP-125")
def test_longest_delay_of_options_is_not_below_the_first() -> None:
    wire = REQUEST | {"options": {"retry": RETRY | {"maxDelayMs": 99}}}
    assert refusal(wire).path == "/options"


@pytest.mark.rule("AACP-16", "AACP-73")
@pytest.mark.parametrize("wire", [REQUEST, RESPONSE, TOMBSTONE])
def test_only_an_event_may_be_without_a_request_id(wire: dict[str, Any]) -> None:
    assert refusal(without(wire, "requestId")).path == "/requestId"
    assert decode_value(EVENT | {"requestId": "e"}).request_id == "e"


@pytest.mark.rule("AACP-73")
@pytest.mark.parametrize(
    "change",
    [
        {"messageType": "REQUEST", "requestId": "r"},
        {"messageType": "RESPONSE", "requestId": "r", "payload": RESPONSE["payload"]},
        {"requestId": "r"},
        {"floor": 1},
        {"expiresAt": TIME},
        {"tombstone": True},
        {"payload": {}},
        {"payload": False},
    ],
)
def test_a_bare_acknowledgement_carries_nothing_else(change: dict[str, Any]) -> None:
    assert decode_value(ACK).seq == 0
    assert refusal(ACK | change).path == "/seq"
    assert refusal(without(without(ACK, "ack"), "ackSeries")).path == "/seq"


@pytest.mark.rule("AACP-16", "AACP-74")
@pytest.mark.parametrize(
    "payload",
    [
        {"outcome": "COMPLETED", "result": None},
        {"result": {"outcome": "FAILED"}, "outcome": "COMPLETED"},
        {"outcome": "FAILED", "error": ERROR},
        {"outcome": "FAILED", "error": ERROR | {"details": {"reason": "gone"}}},
        {"outcome": "FAILED", "error": ERROR | {"details": [1]}},
        {"outcome": "FAILED", "error": ERROR | {"runId": MESSAGE_ID, "correlationId": "c"}},
    ],
)
def test_a_response_carries_an_outcome(payload: dict[str, Any]) -> None:
    envelope = decode_value(RESPONSE | {"payload": payload})
    assert orjson.loads(envelope.payload) == payload
    state, result, error = read_response(envelope.payload)
    assert state == payload["outcome"]
    assert orjson.loads(result or error or b"") == payload.get("result", payload.get("error"))


@pytest.mark.rule("AACP-16", "AACP-74")
@pytest.mark.parametrize(
    ("payload", "path"),
    [
        (None, "/payload"),
        ("COMPLETED", "/payload"),
        ([], "/payload"),
        ({}, "/payload"),
        ({"outcome": "COMPLETED"}, "/payload"),
        ({"outcome": "COMPLETED", "result": 1, "error": ERROR}, "/payload"),
        ({"outcome": "COMPLETED", "error": ERROR}, "/payload"),
        ({"outcome": "FAILED", "result": 1}, "/payload"),
        ({"outcome": "UNKNOWN", "result": 1}, "/payload"),
        ({"outcome": ["COMPLETED"], "result": 1}, "/payload"),
        ({"outcome": {}, "result": 1}, "/payload"),
        ({"result": 1}, "/payload"),
        ({"outcome": "FAILED", "error": None}, "/payload/error"),
        ({"outcome": "FAILED", "error": "hunter2"}, "/payload/error"),
        ({"outcome": "FAILED", "error": {}}, "/payload/error"),
        ({"outcome": "FAILED", "error": {"code": "INTERNAL"}}, "/payload/error"),
        ({"outcome": "FAILED", "error": {"message": ""}}, "/payload/error"),
        ({"outcome": "FAILED", "error": ERROR | {"code": "hunter2"}}, "/payload/error"),
        ({"outcome": "FAILED", "error": ERROR | {"code": ["INTERNAL"]}}, "/payload/error"),
        ({"outcome": "FAILED", "error": ERROR | {"code": {}}}, "/payload/error"),
        ({"outcome": "FAILED", "error": ERROR | {"message": None}}, "/payload/error"),
        ({"outcome": "FAILED", "error": ERROR | {"runId": 1}}, "/payload/error"),
        ({"outcome": "FAILED", "error": ERROR | {"correlationId": None}}, "/payload/error"),
        ({"outcome": "FAILED", "error": ERROR | {"hunter2": 1}}, "/payload/error"),
    ],
)
def test_response_without_outcome_is_refused(payload: Any, path: str) -> None:
    assert refusal(RESPONSE | {"payload": payload}).path == path
    # Others may carry what they like.
    assert orjson.loads(decode_value(REQUEST | {"payload": payload}).payload) == payload


# -- what JSON is, and is not


@pytest.mark.rule("AACP-74")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b'"{}"',
        b"7",
        b"{",
        b"{}{}",
        b"\xef\xbb\xbf" + orjson.dumps(REQUEST),
        orjson.dumps(REQUEST) + b"\0",
        orjson.dumps(REQUEST).decode().encode("utf-16"),
        orjson.dumps(REQUEST).replace(b"shop", b"sh\xff"),
        orjson.dumps(REQUEST).replace(b"shop", b"\\ud800"),
        orjson.dumps(REQUEST).replace(b"shop", b"\\udc00\\ud800"),
        orjson.dumps(REQUEST).replace(b"5", b"NaN"),
        orjson.dumps(REQUEST).replace(b"5", b"-Infinity"),
        orjson.dumps(REQUEST).replace(b"5", b"1e400"),
        orjson.dumps(REQUEST).replace(b'{"item":5}', b"9" * 400),
        orjson.dumps(REQUEST).replace(b'{"item":5}', b"[" * 1025 + b"]" * 1025),
        b'{"payload":' * 100_000,
        b"[" * 1_000_000,
    ],
)
def test_bytes_that_are_no_json_object_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(data)
    assert (caught.value.path, caught.value.expected) == ("", "a JSON object in UTF-8")


@pytest.mark.rule("AACP-40")
@pytest.mark.parametrize("levels", [1, 253, 254])
def test_a_payload_and_a_result_may_have_254_levels_each(levels: int) -> None:
    deep = encode_payload(nested(levels))
    request = attrs.evolve(decode_value(REQUEST), payload=deep)
    assert decode(encode(request)) == request
    payload = response_payload(RequestState.COMPLETED, deep, None)
    response = attrs.evolve(decode_value(RESPONSE), payload=payload)
    assert decode(encode(response)) == response
    assert read_response(decode(encode(response)).payload) == (RequestState.COMPLETED, deep, None)


@pytest.mark.rule("AACP-40", "AACP-74")
@pytest.mark.parametrize("levels", [255, 256, 1000])
def test_a_payload_with_more_levels_is_refused(levels: int) -> None:
    with pytest.raises(PayloadError):
        encode_payload(nested(levels))
    deep = b"[" * levels + b"]" * levels
    for payload in (deep, b'{"outcome":"COMPLETED","result":' + deep + b"}"):
        wire = RESPONSE if payload is not deep else REQUEST
        data = orjson.dumps(wire | {"payload": orjson.Fragment(payload)})
        with pytest.raises(DecodeError) as caught:
            decode(data)
        assert (caught.value.path, caught.value.expected) == ("/payload", "at most 254 levels")


@pytest.mark.rule("AACP-40")
def test_of_members_of_one_name_the_last_counts() -> None:
    data = b'{"seq":"x","payload":{"a":1},' + orjson.dumps(REQUEST)[1:-1] + b',"seq":9}'
    assert decode(data) == attrs.evolve(decode_value(REQUEST), seq=9)
    data = orjson.dumps(REQUEST).replace(b'"item":5', b'"item":1,"item":5')
    assert decode(data).payload == b'{"item":5}'


@pytest.mark.rule("AACP-40", "RPC-19")
@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (b"18446744073709551615", b"18446744073709551615"),
        (b"-9223372036854775808", b"-9223372036854775808"),
        (b"18446744073709551616", b"18446744073709551616"),
        (b"1E2", b"100.0"),
        (b"-0", b"0"),
        (b"-0.0", b"-0.0"),
        (b"5e-324", b"5e-324"),
        (b"1e-400", b"0.0"),
    ],
)
def test_a_number_is_kept_in_its_canonical_form(sent: bytes, kept: bytes) -> None:
    data = orjson.dumps(REQUEST | {"payload": orjson.Fragment(sent)})
    assert loads(decode(data).payload) == loads(kept)
    assert type(loads(decode(data).payload)) is type(loads(kept))
    assert encode_payload(loads(sent)) == decode(data).payload


# -- errors repeat nothing


def texts_of(error: BaseException | None) -> str:
    """All that an exception and those it came from would tell anybody."""
    written = ""
    while error is not None:
        written += f"{error!r} {error} {error.args} {vars(error)}"
        error = error.__cause__ or error.__context__
    return written


@pytest.mark.rule("AACP-74")
@pytest.mark.parametrize("name", [name for name in MEMBERS if name != "payload"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spoil", [str, list, lambda text: {text: text}, lambda text: f"\0{text}"])
def test_no_error_repeats_a_value(kind: str, name: str, spoil: Callable[[str], Any]) -> None:
    wire = KINDS[kind] | {name: spoil(f"2024{SECRET}"), "extra": SECRET}
    error = refusal(wire)
    assert SECRET not in texts_of(error)
    assert str(error).startswith(f"{error.path or 'the envelope'}: expected {error.expected}")


@pytest.mark.rule("AACP-74")
@pytest.mark.parametrize(
    "data",
    [
        b'{"messageId":"hunter2"',
        orjson.dumps(REQUEST | {"timestamp": "2024-02-30T10:30:00.000Z", "payload": SECRET}),
        orjson.dumps(RESPONSE | {"payload": {"outcome": SECRET, "result": SECRET}}),
        orjson.dumps(RESPONSE | {"payload": {"outcome": "FAILED", "error": {"code": SECRET}}}),
        orjson.dumps(REQUEST | {"seq": 0, "payload": SECRET}),
        orjson.dumps(TOMBSTONE | {"payload": SECRET}),
        orjson.dumps(REQUEST).replace(b"5", b"[" * 300 + b'"hunter2"' + b"]" * 300),
    ],
)
def test_no_error_repeats_what_it_came_from(data: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(data)
    written = texts_of(caught.value)
    assert SECRET not in written
    assert "02-30" not in written


# -- time


@pytest.mark.rule("AACP-40")
@given(time_ms=times)
@example(time_ms=0)
@example(time_ms=MAX_TIME_MS)
@example(time_ms=68_169_600_000)  # a 29th of February
def test_a_time_is_kept_to_the_millisecond(time_ms: int) -> None:
    text = format_time(time_ms)
    assert parse_time(text) == time_ms
    assert len(text) == 24
    instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    assert text[:10] == f"{instant.year:04d}-{instant.month:02d}-{instant.day:02d}"
    assert text[10:] == f"T{instant:%H:%M:%S}.{instant.microsecond // 1000:03d}Z"


@pytest.mark.rule("AACP-40")
@pytest.mark.parametrize(
    ("time_ms", "written"),
    [
        (-1, "1970-01-01T00:00:00.000Z"),
        (-(10**30), "1970-01-01T00:00:00.000Z"),
        (MAX_TIME_MS, "9999-12-31T23:59:59.999Z"),
        (MAX_TIME_MS + 1, "9999-12-31T23:59:59.999Z"),
        (2**63 - 1, "9999-12-31T23:59:59.999Z"),
        (10**30, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_time_out_of_range_becomes_nearest_in_range(time_ms: int, written: str) -> None:
    assert format_time(time_ms) == written
    envelope = attrs.evolve(decode_value(REQUEST), timestamp_ms=time_ms, expires_at_ms=time_ms)
    decoded = decode(encode(envelope))
    assert decoded.timestamp_ms == decoded.expires_at_ms == parse_time(written)


@pytest.mark.rule("AACP-40")
@given(
    year=st.integers(1970, 9999),
    month=st.integers(1, 12),
    day=st.integers(1, 31),
    rest=st.sampled_from(["00:00:00.000", "23:59:59.999", "12:34:56.789"]),
)
def test_time_is_read_on_real_days_only(year: int, month: int, day: int, rest: str) -> None:
    text = f"{year:04d}-{month:02d}-{day:02d}T{rest}Z"
    if day <= monthrange(year, month)[1]:
        assert format_time(parse_time(text)) == text
    else:
        with pytest.raises(ValueError, match="day"):
            parse_time(text)


# -- canonical payloads


def shuffled(value: Any, chance: Any) -> Any:
    """Return the same JSON with the members of its objects in another order."""
    if isinstance(value, dict):
        names = list(value)
        chance.shuffle(names)
        return {name: shuffled(value[name], chance) for name in names}
    if isinstance(value, list):
        return [shuffled(each, chance) for each in value]
    return value


@pytest.mark.rule("AACP-12")
@given(value=json_values, chance=st.randoms(use_true_random=False))
def test_equal_values_give_equal_bytes_before_and_after_wire(value: Any, chance: Any) -> None:
    payload = encode_payload(value)
    assert encode_payload(shuffled(value, chance)) == payload
    assert encode_payload(orjson.loads(payload)) == payload
    assert orjson.loads(payload) == value
    spaced = orjson.dumps(shuffled(value, chance), option=orjson.OPT_INDENT_2)
    sent = orjson.dumps(REQUEST | {"payload": orjson.Fragment(spaced)})
    assert decode(sent).payload == payload


@pytest.mark.rule("AACP-12")
@given(one=json_values, other=json_values)
def test_different_values_give_different_bytes(one: Any, other: Any) -> None:
    assume(one != other)
    assert encode_payload(one) != encode_payload(other)


@pytest.mark.rule("AACP-12")
def test_values_that_json_distinguishes_give_different_bytes() -> None:
    apart = [1, 1.0, True, "1", [1], 0, 0.0, -0.0, False, None, "", [], {}, "e\u0301", "\u00e9"]
    assert len({encode_payload(value) for value in apart}) == len(apart)


@dataclass
class Order:
    """Its fields are not in the order of their names."""

    number: int
    items: list[Any]
    shop: ClassVar[str] = "corner"


@attrs.define
class Parcel:
    weight: float
    content: Any


@pytest.mark.rule("AACP-12")
def test_classes_are_written_as_equal_dictionaries() -> None:
    value = [Order(7, [Parcel(1.5, Order(8, []))])]
    plain = [
        {
            "number": 7,
            "items": [{"weight": 1.5, "content": {"number": 8, "items": []}}],
        }
    ]
    assert encode_payload(value) == encode_payload(plain)
    moment = datetime(2024, 1, 15, tzinfo=UTC)
    assert encode_payload((moment, RequestState.SENT)) == b'["2024-01-15T00:00:00+00:00","SENT"]'


@pytest.mark.rule("AACP-12")
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinities_become_null(number: float) -> None:
    assert encode_payload({"x": number}) == b'{"x":null}'


RECURSIVE: list[Any] = []
RECURSIVE.append({"again": RECURSIVE})


class Hostile:
    """Says nothing about itself."""

    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.rule("AACP-12")
@pytest.mark.parametrize(
    "value",
    [
        {1: 2},
        {None: 1},
        {True: 1},
        {(): 1},
        {"a": {1: "nested"}},
        "\ud800",
        {"\ud800": 1},
        b"bytes",
        {1, 2},
        1j,
        object(),
        Order,
        Parcel,
        Hostile(),
        len,
        nested(255),
        RECURSIVE,
    ],
)
def test_value_that_is_not_json_is_refused_as_payload(value: Any) -> None:
    with pytest.raises(PayloadError) as caught:
        encode_payload(value)
    assert str(caught.value)
    assert caught.value.__cause__ is None


# -- ids


@pytest.mark.rule("AACP-62")
@given(text=st.text(max_size=130) | st.text("aZ09._:- \n", max_size=130))
def test_request_ids_have_documented_characters(text: str) -> None:
    letters = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
    expected = 0 < len(text) <= 128 and text[0] in letters and set(text) <= letters | set("._:-")
    assert is_request_id(text) is expected


# -- the schema


@pytest.mark.rule("AACP-40", "AACP-73")
@settings(max_examples=examples(500))
@given(data=st.data(), envelope=envelopes())
def test_schema_and_decoder_accept_same_envelopes(data: st.DataObject, envelope: Envelope) -> None:
    wire = data.draw(mutations(orjson.loads(encode(envelope))))
    counters = ("seq", "series", "floor", "ack", "ackSeries")
    assume(not any(type(wire.get(name)) is float for name in counters))
    problems = schemas.problems("aacp-envelope", wire)
    try:
        decode_value(wire)
    except DecodeError as error:
        assert problems, error
    else:
        assert problems == []
