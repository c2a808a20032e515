"""The choice of the connection to close when clients do not read."""

from __future__ import annotations

import pytest

from foundation_rt.base.clock import ManualClock
from foundation_rt.http.sse import EventBody
from foundation_rt.http.uvicorn_protocol import UnreadBytes

LIMIT = 1000


class UnreadConnection:
    """A connection whose client reads on command."""

    def __init__(self, unread: UnreadBytes) -> None:
        self.unread = unread
        self.held = 0
        self.size = 0
        self.is_cut = False

    def unsent(self) -> int:
        return self.size

    def cut(self) -> None:
        self.is_cut = True

    def write(self, size: int) -> None:
        self.size = size
        self.unread.wait(self)

    def take(self, size: int) -> None:
        self.size -= size


def make(count: int) -> tuple[ManualClock, UnreadBytes, list[UnreadConnection]]:
    clock = ManualClock()
    unread = UnreadBytes(LIMIT, clock.monotonic)
    return clock, unread, [UnreadConnection(unread) for _ in range(count)]


@pytest.mark.rule("HTTP-32")
def test_slowest_reader_is_cut_off() -> None:
    clock, unread, (slow, deaf, quick, young) = make(4)
    for each in (slow, deaf, quick):
        each.write(300)
    clock.advance(10)
    slow.take(10)
    quick.take(100)
    young.write(400)
    assert [each.is_cut for each in (slow, deaf, quick, young)] == [False, True, False, False]
    assert unread.counted == 290 + 200 + 400


@pytest.mark.rule("HTTP-32")
def test_bytes_read_meanwhile_are_not_counted() -> None:
    _, unread, (first, second, third) = make(3)
    first.write(500)
    second.write(500)
    first.take(400)
    third.write(400)
    assert not any(each.is_cut for each in (first, second, third))
    assert unread.counted == LIMIT


@pytest.mark.rule("HTTP-32")
def test_longest_waiting_of_idle_readers_is_cut_off() -> None:
    clock, unread, connections = make(5)
    for each in connections:
        each.write(300)
        clock.advance(0.1)
    assert [each.is_cut for each in connections] == [True, True, False, False, False]
    assert unread.counted == 900


@pytest.mark.rule("HTTP-29")
def test_single_connection_is_not_cut_off() -> None:
    _, unread, (only, other) = make(2)
    only.write(5 * LIMIT)
    assert not only.is_cut
    other.write(100)
    assert only.is_cut and not other.is_cut
    assert unread.counted == 100


@pytest.mark.rule("HTTP-29")
def test_bytes_held_by_application_are_counted() -> None:
    clock, unread, (first, second) = make(2)
    first.write(500)
    clock.advance(5)
    second.write(100)
    unread.hold(second, 300)
    assert not (first.is_cut or second.is_cut)
    unread.hold(second, 200)
    assert first.is_cut and not second.is_cut
    unread.hold(second, -500)
    unread.resume(second)
    assert unread.counted == 0


@pytest.mark.rule("HTTP-29")
def test_closed_connection_is_not_counted() -> None:
    _, unread, (first, _) = make(2)
    first.write(500)
    unread.hold(first, 100)
    unread.forget(first)
    assert (unread.counted, first.held) == (0, 0)


@pytest.mark.rule("HTTP-29")
def test_stream_bytes_are_held_until_sent_or_dropped() -> None:
    held: list[int] = []
    body = EventBody(hold=held.append)
    body.write(b"12345")
    body.begin_with(b"123")
    body.leave()
    body.leave()
    assert held == [5, 3, -8]
