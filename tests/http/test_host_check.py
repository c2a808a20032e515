"""Names, sizes and times of requests, and the headers of responses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.http_sections import HttpSection
from foundation_rt.http.asgi import (
    Event,
    HttpRefusal,
    Receive,
    with_security_headers,
)
from foundation_rt.http.headers import RequestHead
from foundation_rt.http.host_check import is_loopback, make_host_check
from foundation_rt.http.request import ClientGone, read_body
from tests.lab.clock.virtual_loop import run_virtual


@given(st.lists(st.tuples(st.text(max_size=20), st.none() | st.text(max_size=20)), max_size=30))
def test_verdict_on_same_names_never_changes(names: list[tuple[str, str | None]]) -> None:
    host_check = make_host_check(HttpSection())
    heads = [RequestHead(host=host, origin=origin) for host, origin in names]
    first = [host_check.check(head) for head in heads]
    assert [host_check.check(head) for head in heads] == first


def test_remembered_verdicts_are_bounded() -> None:
    host_check = make_host_check(HttpSection())
    for number in range(3000):
        assert host_check.check(RequestHead(host=f"host{number}")) is not None
    assert host_check.check(RequestHead(host="h" * 5000)) is not None
    assert host_check.remembered <= 1024


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("example.com", False),
        ("", False),
    ],
)
def test_loopback_addresses(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


# Bodies

SETTINGS = HttpSection(max_body_bytes=1024, body_timeout_ms=1000)


def feeding(*events: Event, pause: float = 0.0) -> tuple[Receive, list[Event]]:
    """Return a `receive` that returns `events`, then waits for ever; and the remaining events."""
    left = list(events)

    async def receive() -> Event:
        await asyncio.sleep(pause)
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    return receive, left


def chunk(body: bytes, more: bool = True) -> Event:
    return {"type": "http.request", "body": body, "more_body": more}


def read(receive: Receive, **head: str) -> bytes | HttpRefusal:
    return run_virtual(lambda _: read_body(RequestHead(**head), receive, SETTINGS))


def refused(answer: bytes | HttpRefusal) -> int:
    assert isinstance(answer, HttpRefusal)
    assert answer.headers == ((b"connection", b"close"),)
    return answer.status


@given(st.lists(st.binary(max_size=100), max_size=10))
def test_body_is_read_completely(chunks: list[bytes]) -> None:
    receive, _ = feeding(*map(chunk, chunks), chunk(b"", False))
    assert read(receive) == b"".join(chunks)


def test_available_body_is_read_without_loop() -> None:
    async def receive() -> Event:
        return chunk(b"a", False)

    reading = read_body(RequestHead(), receive, SETTINGS)
    with pytest.raises(StopIteration) as done:
        reading.send(None)
    assert done.value.value == b"a"


def test_waiting_for_body_can_be_cancelled() -> None:
    ended = []

    async def receive() -> Event:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        raise AssertionError

    async def main() -> None:
        reading = asyncio.create_task(read_body(RequestHead(), receive, SETTINGS))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    asyncio.run(main())
    assert ended == [True]


def test_events_may_omit_empty_members() -> None:
    receive, _ = feeding({"type": "http.request"})
    assert read(receive) == b""


@pytest.mark.rule("AUTH-22")
def test_body_with_too_large_content_length_is_not_read() -> None:
    receive, left = feeding(chunk(b"a", False))
    assert refused(read(receive, content_length="1025")) == 413
    assert refused(read(receive, content_length="9" * 5000)) == 413
    assert len(left) == 1
    assert read(receive, content_length="1024") == b"a"


@pytest.mark.rule("AUTH-22")
def test_reading_stops_at_body_limit() -> None:
    receive, left = feeding(*[chunk(b"a" * 512)] * 2, chunk(b"b"), chunk(b"c"))
    assert refused(read(receive)) == 413
    assert len(left) == 1


@pytest.mark.rule("AUTH-23")
def test_missing_body_times_out() -> None:
    receive, _ = feeding(chunk(b"a"))
    assert refused(read(receive)) == 408


@pytest.mark.rule("AUTH-23")
def test_trickling_body_times_out() -> None:
    receive, left = feeding(*[chunk(b"a")] * 20, pause=0.3)

    async def main(clock: ManualClock) -> None:
        assert refused(await read_body(RequestHead(), receive, SETTINGS)) == 408
        assert 1.0 <= clock.monotonic() < 1.1

    run_virtual(main)
    assert len(left) >= 15


def test_disconnect_ends_reading() -> None:
    receive, _ = feeding(chunk(b"a"), {"type": "http.disconnect"})
    with pytest.raises(ClientGone):
        read(receive)


# Responses


def test_other_scopes_pass_through() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope, receive, send))

    asyncio.run(with_security_headers(app)({"type": "lifespan"}, "receive", "send"))  # type: ignore[arg-type]
    assert seen == [({"type": "lifespan"}, "receive", "send")]
