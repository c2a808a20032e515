"""Bytes to lines: however the bytes are cut, within bounded memory and linear work."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foundation_rt.protocol.framing import LineReader, LineTooLong
from tests.lab.clock.counting import CallCounter

LIMIT = 16

pieces = st.sampled_from(
    [b"\n", b"\r\n", b"\r", b" ", b"\t", b"\x0b", b"\x00", b"\xff", b"{}", b"a", b"x" * 15]
)
streams = st.lists(pieces | st.binary(max_size=20), max_size=40).map(b"".join)


def lines_of(*chunks: bytes, limit: int = LIMIT) -> list[bytes | LineTooLong]:
    reader = LineReader(limit)
    return [event for chunk in chunks for event in reader.feed(chunk)] + reader.end()


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(each % (len(data) + 1) for each in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def expected_lines(stream: bytes, limit: int) -> list[bytes | LineTooLong]:
    """Apply the rules to whole input, without chunks and without care for memory."""
    events: list[bytes | LineTooLong] = []
    for piece in stream.split(b"\n"):
        line = piece.removesuffix(b"\r")
        if len(line) > limit:
            events.append(LineTooLong(limit))
        elif line.strip(b" \t\r\x0b\x0c"):
            events.append(line)
    return events


@pytest.mark.rule("FRAME-01", "FRAME-02", "FRAME-03", "FRAME-04", "FRAME-05")
@given(stream=streams, cuts=st.lists(st.integers(0), max_size=12))
@example(stream=b"x" * LIMIT + b"\r\n", cuts=[LIMIT, LIMIT + 1])
@example(stream=b"x" * LIMIT + b"\r\r\n", cuts=[LIMIT + 1])
@example(stream=b"x" * (LIMIT + 1) + b"\n", cuts=[])
@example(stream=b" " * (LIMIT + 1) + b"\n{}", cuts=[])
def test_chunking_does_not_change_lines(stream: bytes, cuts: list[int]) -> None:
    assert lines_of(*cut(stream, cuts)) == lines_of(stream) == expected_lines(stream, LIMIT)


@pytest.mark.rule("FRAME-01")
def test_line_is_returned_with_its_line_feed() -> None:
    reader = LineReader(LIMIT)
    assert reader.feed(b'{"a"') == []
    assert reader.pending_bytes == 4
    assert reader.feed(b":1}\n[]\n[") == [b'{"a":1}', b"[]"]
    assert reader.pending_bytes == 1
    assert reader.feed(b"") == []
    assert reader.feed(b"]\n") == [b"[]"]
    assert reader.pending_bytes == 0


@pytest.mark.rule("FRAME-04")
@given(chunks=st.lists(st.binary(max_size=40), max_size=40))
def test_buffer_is_bounded_by_limit_and_line_ending(chunks: list[bytes]) -> None:
    reader = LineReader(LIMIT)
    for chunk in chunks:
        reader.feed(chunk)
        assert reader.pending_bytes <= LIMIT + len(b"\r")


class CountedBytes(bytes):
    """Bytes that count how many of them were looked at."""

    examined = 0

    def find(self, *arguments: Any) -> int:
        CountedBytes.examined += len(self)
        return super().find(*arguments)

    def split(self, *arguments: Any) -> list[bytes]:
        CountedBytes.examined += len(self)
        return super().split(*arguments)


@pytest.mark.rule("FRAME-06")
@given(stream=streams, cuts=st.lists(st.integers(0), max_size=12))
def test_every_byte_is_searched_at_most_twice(stream: bytes, cuts: list[int]) -> None:
    reader = LineReader(LIMIT)
    CountedBytes.examined = 0
    for chunk in cut(stream, cuts):
        reader.feed(CountedBytes(chunk))
    assert CountedBytes.examined <= 2 * len(stream)


@pytest.mark.rule("FRAME-06")
def test_cost_of_chunk_is_independent_of_buffer() -> None:
    reader = LineReader(1_000_000)
    costs = set()
    for _ in range(6):
        reader.feed(b"x" * 100_000)
        with CallCounter() as counter:
            reader.feed(b"x")
        costs.add(counter.calls)
    assert len(costs) == 1


@pytest.mark.rule("FRAME-06")
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"x" * LIMIT + b"\n"])
def test_work_is_linear_in_lines(ending: bytes) -> None:
    def work(lines: int) -> int:
        reader = LineReader(LIMIT)
        with CallCounter() as counter:
            reader.feed((b"{}" + ending) * lines)
        return counter.calls

    assert work(1000) <= 10 * work(100)
