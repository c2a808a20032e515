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


@pytest.mark.rule("CHTTP-20", "CHTTP-21")
@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [("message", b"a")]),
        (b"data:a\r\rdata:b\r\n\r\n", [("message", b"a"), ("message", b"b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("message", b"a")]),
        (b"\n\xef\xbb\xbfdata: a\n\n", []),
        (b"data: a\ndata\ndata:  b\n\n", [("message", b"a\n\n b")]),
        (b": hello\n\ndata: a\n: in between\n\n", [("message", b"a")]),
        (b"event: endpoint\ndata: /x\n\ndata: a\n\n", [("endpoint", b"/x"), ("message", b"a")]),
        (b"datas: a\nData: b\n\n", []),
        (b"data: \n\ndata\n\n", []),
        (b"event: \xff\ndata: a\n\n", [("\N{REPLACEMENT CHARACTER}", b"a")]),
    ],
)
def test_fields_make_events(stream: bytes, events: list[Any]) -> None:
    assert read(stream)[0] == events


@pytest.mark.rule("CHTTP-21")
@pytest.mark.parametrize(
    ("stream", "last_id"),
    [
        (b"id: 1\n\n", b"1"),
        (b"id: 1\ndata:\n\n", b"1"),
        (b"id: 1\ndata: a\n\ndata: b\n\n", b"1"),
        (b"id: 1\n\nid: 2\0\n\n", b"1"),
        (b"id: 1\n\nid\n\n", None),
        (b"id: 1\n\nid: 2\ndata: not complete\n", b"1"),
        (b"id: " + b"x" * 5_000 + b"\n\n", None),
    ],
)
def test_the_last_id_is_that_of_a_complete_event(stream: bytes, last_id: bytes | None) -> None:
    reader = EventReader(10_000)
    reader.feed(stream)
    assert reader.last_id == last_id


@pytest.mark.rule("CHTTP-21")
@pytest.mark.parametrize(
    ("field", "retry_ms"),
    [
        (b"500", 500),
        (b"0", 0),
        (b"", None),
        (b"-1", None),
        (b"1.5", None),
        (b"9" * 10, None),
        (b"9" * 5000, None),
        ("٥".encode(), None),
    ],
)
def test_retry_is_digits(field: bytes, retry_ms: int | None) -> None:
    assert read(b"retry: " + field + b"\n")[1].retry_ms == retry_ms


@pytest.mark.rule("CHTTP-22")
def test_incomplete_event_at_the_end_is_dropped() -> None:
    assert read(b"data: a\n\ndata: b\n")[0] == [("message", b"a")]
    assert read(b"data: a")[0] == []


@pytest.mark.rule("CHTTP-20")
def test_an_event_is_there_as_soon_as_its_blank_line_is_whatever_follows_a_cr() -> None:
    reader = EventReader(LIMIT)
    assert told(reader.feed(b"data: a\r\n\r")) == [("message", b"a")]
    assert told(reader.feed(b"\ndata: b\r\n\r\n")) == [("message", b"b")]
    assert told(reader.feed(b"data: c\r\r")) == [("message", b"c")]
    assert reader.feed(b"") == []
    assert told(reader.feed(b"\ndata: d\n\n")) == [("message", b"d")]


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
