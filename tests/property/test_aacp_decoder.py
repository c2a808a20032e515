"""Bytes from anywhere, against the decoder of envelopes: an envelope or a `DecodeError`."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foundation_rt.agents.ledger.encoder import (
    DecodeError,
    decode,
    encode,
    encode_payload,
    is_agent_id,
)
from foundation_rt.agents.ledger.types import Envelope, MessageType
from tests.lab.agents.envelopes import envelopes, mutations
from tests.lab.sizes import examples

thorough = settings(max_examples=examples(500))


def decode_or_refuse(data: bytes) -> Envelope | None:
    """Return the envelope in `data`, or None; check that it is written back as it was read."""
    try:
        envelope = decode(data)
    except DecodeError as error:
        assert error.expected
        assert error.path in str(error)
        with pytest.raises(DecodeError) as again:
            decode(data)
        assert str(again.value) == str(error)
        return None
    assert_sound(envelope)
    return envelope


def assert_sound(envelope: Envelope) -> None:
    """All that the rest of AACP relies on, without looking again."""
    assert is_agent_id(envelope.source_agent_id)
    assert is_agent_id(envelope.target_agent_id)
    assert envelope.request_id or envelope.message_type is MessageType.EVENT
    assert 0 <= envelope.seq < 2**63
    assert envelope.ack is None or 0 <= envelope.ack < 2**63
    assert envelope.seq or envelope.ack is not None
    payload = orjson.loads(envelope.payload)
    if envelope.message_type is MessageType.RESPONSE and not envelope.tombstone:
        assert payload.keys() in ({"outcome", "result"}, {"outcome", "error"})
    else:
        assert encode_payload(payload) == envelope.payload
    assert decode(encode(envelope)) == envelope


# -- bytes that mean nothing

FRAGMENTS = [b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\\u", b"\0", b"\n", b"1e999", b"-0"]


@pytest.mark.rule("AACP-74")
@thorough
@given(
    data=st.binary(max_size=300)
    | st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=5), max_size=60).map(b"".join)
)
@example(data=b"[" * 1_000_000)
@example(data=b'{"a":' * 500_000)
@example(data=b"{" + b'"messageId":1,' * 100_000)
@example(data=b"\xf0\x9f" * 100_000)
@example(data=b'"' + b"\\u0000" * 200_000 + b'"')
@example(data=b"-" * 1_000_000)
@example(data=b"1" * 1_000_000)
def test_random_bytes_are_refused(data: bytes) -> None:
    assert decode_or_refuse(data) is None


# -- envelopes that were valid once


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Cut pieces out of bytes, double them, overwrite them or put some in, up to four times."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 12)))
        new = draw(
            st.sampled_from([b"", data[start:end] * 2, *FRAGMENTS])
            | st.binary(max_size=4)
            | st.sampled_from([b"0", b"9", b"Z", b"null", b"true", b"EVENT"])
        )
        data = data[:start] + new + data[end:]
    return data


@pytest.mark.rule("AACP-74")
@thorough
@given(data=envelopes().map(encode).flatmap(damaged))
def test_a_damaged_envelope_is_refused_or_a_sound_one(data: bytes) -> None:
    decode_or_refuse(data)


@pytest.mark.rule("AACP-74")
@thorough
@given(wire=envelopes().map(encode).map(orjson.loads).flatmap(mutations))
def test_an_envelope_with_other_members_is_refused_or_a_sound_one(wire: dict[str, object]) -> None:
    decode_or_refuse(orjson.dumps(wire))


@pytest.mark.rule("AACP-74")
@given(envelope=envelopes(), data=st.data())
def test_no_part_of_an_envelope_is_one(envelope: Envelope, data: st.DataObject) -> None:
    whole = encode(envelope)
    assert decode_or_refuse(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None
    assert decode_or_refuse(whole + whole) is None


# -- memory

LARGE = 1_000_000
ENVELOPE = (
    b'{"messageId":"00000000-0000-4000-8000-000000000001","sourceAgentId":"a","targetAgentId":"b",'
    b'"seq":1,"messageType":"EVENT","timestamp":"2024-01-15T10:30:00.000Z","payload":%s}'
)


def filled(piece: bytes) -> bytes:
    return piece * (LARGE // len(piece))


@pytest.mark.rule("AACP-74")
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(filled(b"["), id="depth"),
        pytest.param(ENVELOPE % (b"[" + filled(b"{},") + b"0]"), id="empty-objects"),
        pytest.param(ENVELOPE % (b"[" + filled(b"[],") + b"0]"), id="empty-lists"),
        pytest.param(ENVELOPE % (b"[" + filled(b"1.5,") + b"0]"), id="numbers"),
        pytest.param(ENVELOPE % (b'"' + filled("é🤖".encode()) + b'"'), id="wide-text"),
        pytest.param(ENVELOPE % (b'"' + filled(b"\\u0001") + b'"'), id="escapes"),
        pytest.param(ENVELOPE % b"0" + filled(b" "), id="blanks"),
        pytest.param(b'{"messageId":"' + filled(b"0") + b'"}', id="message-id"),
        pytest.param(b'{"' + filled(b"x") + b'":1}', id="member-name"),
        pytest.param((ENVELOPE % b"0").replace(b'"a"', b'"' + filled(b"a") + b'"'), id="agent-id"),
        pytest.param((ENVELOPE % b"0").replace(b":1,", b":" + filled(b"1") + b","), id="number"),
        pytest.param(b"{" + filled(b'"x":[],') + b'"y":0}', id="doubled-members"),
    ],
)
def test_memory_is_bounded_by_the_size_of_what_came_in(data: bytes) -> None:
    """An empty object is two bytes, a comma and, in Python, 64 bytes and a pointer to them."""
    tracemalloc.start()
    try:
        with suppress(DecodeError):
            decode(data)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * len(data)
    assert held < len(data) // 2  # nothing of it is kept anywhere
