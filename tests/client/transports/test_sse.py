"""Server-sent events out of bytes: however they are chunked, and whatever they are."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client.transports.sse import EventReader, ServerSentEvent
from foundation_rt.protocol.framing import LineTooLong

LIMIT = 1_000
TOO_LONG = "too long"

# Everything that means something, so that chance puts it together in every way.
PIECES = st.sampled_from(
    [
        b"\n",
        b"\r",
        b"\r\n",
        b"data",
        b"data:",
        b"data: ",
        b":",
        b" ",
        b"id: 7",
        b"id:",
        b"\x00",
        b"event: message",
        b"retry: 5",
        b"retry: -1",
        b"retry: 1234567890",
        "retry: ٥".encode(),
        b"\xef\xbb\xbf",
        b"x",
        b"{}",
        b"d" * 30,
        b"\xff",
        b"\n\n",
    ]
)


def told(events: list[ServerSentEvent | LineTooLong]) -> list[Any]:
    return [TOO_LONG if isinstance(e, LineTooLong) else (e.kind, e.data) for e in events]


def read(*chunks: bytes, limit: int = LIMIT) -> tuple[list[Any], EventReader]:
    reader = EventReader(limit)
    return told([event for chunk in chunks for event in reader.feed(chunk)]), reader


def state(reader: EventReader) -> tuple[Any, ...]:
    return reader.last_id, reader.retry_ms, reader.is_silent


def by_the_book(stream: bytes) -> tuple[list[Any], bytes | None, int | None]:
    """Apply the algorithm of the HTML standard, 9.2.6; ids and data may be bytes."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    *lines, _ = text.split(b"\n")
    data, kind, last, named, retry, found = b"", b"", None, None, None, []
    for line in lines:
        if not line:
            last = last if named is None else named or None
            if data.removesuffix(b"\n"):  # an empty one is no message
                found.append((kind.decode("utf-8", "replace") or "message", data[:-1]))
            data, kind, named = b"", b"", None
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data += value + b"\n"
        elif field == b"event":
            kind = value
        elif field == b"id" and b"\0" not in value:
            named = value
        elif field == b"retry" and value.isdigit() and len(value) < 10:
            retry = int(value)
    return found, last, retry


@pytest.mark.rule("CHTTP-20", "CHTTP-21", "CHTTP-22")
@given(st.lists(PIECES, max_size=40).map(b"".join), st.data())
def test_any_chunking_gives_the_events_of_the_standard(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=10)))
    edges = [0, *cuts, len(stream)]
    chunks = [stream[start:end] for start, end in itertools.pairwise(edges)]
    events, reader = read(*chunks)
    whole, at_once = read(stream)
    each, by_byte = read(*(stream[at : at + 1] for at in range(len(stream))))
    assert events == whole == each
    assert state(reader) == state(at_once) == state(by_byte)
    assert (events, reader.last_id, reader.retry_ms) == by_the_book(stream)


@pytest.mark.rule("CHTTP-14", "CHTTP-23")
@given(st.lists(PIECES, max_size=60).map(b"".join), st.integers(0, 40))
def test_event_that_is_too_long_is_reported_once_in_its_place(stream: bytes, limit: int) -> None:
    expected = [
        TOO_LONG if len(data) > limit else (kind, data) for kind, data in by_the_book(stream)[0]
    ]
    found, reader = read(stream, limit=limit)
    each, by_byte = read(*(stream[at : at + 1] for at in range(len(stream))), limit=limit)
    assert found == each == expected
    assert state(reader) == state(by_byte)


@pytest.mark.rule("CHTTP-21")
def test_an_id_that_is_too_long_is_none() -> None:
    _, reader = read(b"id: 1\n\nid: " + b"x" * 5_000 + b"\n\n", limit=10_000)
    assert reader.last_id == b"1"


@pytest.mark.rule("CHTTP-23")
@pytest.mark.parametrize("line", [b"data: ", b"data", b": ", b"id: ", b"x", b"\xef\xbb\xbfdata: "])
def test_no_more_is_held_than_one_event(line: bytes) -> None:
    reader = EventReader(LIMIT)
    reader.feed(line)
    for _ in range(1_000):
        assert reader.feed(b"y" * 1_000) == []
        assert len(reader._line) <= 2 * LIMIT + 10
    is_data = line.endswith(b"data: ")
    assert told(reader.feed(b"\n\ndata: a\n\n")) == [TOO_LONG] * is_data + [("message", b"a")]


@pytest.mark.rule("CHTTP-23")
def test_many_short_lines_are_counted_as_one_event() -> None:
    reader = EventReader(LIMIT)
    for _ in range(5):
        assert reader.feed(b"data: 1\ndata\n" * 1_000) == []
        assert reader._data is None
    assert told(reader.feed(b"\n")) == [TOO_LONG]
    exact = b"data: " + b"x" * (LIMIT - 2) + b"\ndata: y\n\n"
    assert told(reader.feed(exact)) == [("message", b"x" * (LIMIT - 2) + b"\ny")]


def test_resumed_stream_takes_over_id_and_retry_time() -> None:
    reader = EventReader(LIMIT, b"7", 500)
    assert reader.is_silent
    reader.feed(b": here\n\nretry: 9\n\n")
    assert (reader.last_id, reader.retry_ms, reader.is_silent) == (b"7", 9, True)
    reader.feed(b"data: a\n\n")
    assert not reader.is_silent
