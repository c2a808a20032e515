"""The contract of event stores, for those in memory and in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.clock import ManualClock
from foundation_rt.http.event_store import (
    EventStore,
    MemoryEventStore,
    Replay,
    SessionRecord,
    event_id,
    new_stream_id,
    parse_event_id,
)
from tests.lab.checks.recorded_log import RecordedLogger
from tests.lab.places.cable import cable
from tests.lab.places.services import need_redis, unique_name
from tests.lab.waiting import PATIENCE, until

SESSION = "session-1"
RECORD = SessionRecord("alice", "2025-11-25")
MAX_EVENTS = 5
MAX_SESSION_BYTES = 4000
TTL_MS = 60_000


def redis_store(url: str, prefix: str, **changes: Any) -> Any:
    from foundation_rt.http.event_store_redis import RedisEventStore

    settings = {
        "logger": RecordedLogger(),
        "max_events": MAX_EVENTS,
        "ttl_ms": TTL_MS,
        "session_ttl_ms": TTL_MS,
        "max_session_bytes": MAX_SESSION_BYTES,
        "prefix": prefix,
    }
    return RedisEventStore(url, **(settings | changes))


async def drop_keys(url: str, prefix: str) -> None:
    from redis.asyncio import Redis

    async with Redis.from_url(url) as client:
        async for key in client.scan_iter(f"{prefix}*"):
            await client.delete(key)


@asynccontextmanager
async def opened(kind: str) -> AsyncIterator[EventStore]:
    """Return a started store with the session in it."""
    store: Any
    if kind == "memory":
        store = MemoryEventStore(ManualClock(), MAX_EVENTS, TTL_MS, MAX_SESSION_BYTES)
        url = prefix = ""
    else:
        url, prefix = need_redis(), unique_name()
        store = redis_store(url, prefix)
    await store.start()
    store.open(SESSION, RECORD)
    try:
        yield store
    finally:
        await store.close()
        if prefix:
            await drop_keys(url, prefix)


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[EventStore]:
    """Return a store of each kind."""
    return opened(request.param)


def lines(replay: Replay | None) -> list[bytes] | None:
    return None if replay is None else [event.line for event in replay.events]


@pytest.mark.rule("RESUME-01")
@given(st.integers(0, 10**15 - 1))
def test_event_id_names_stream_and_place(place: int) -> None:
    stream = new_stream_id()
    assert parse_event_id(event_id(stream, place)) == (stream, place)


@pytest.mark.rule("RESUME-01")
@given(st.text(max_size=30) | st.from_regex(r"[0-9a-f]{15,17}-0?[0-9]{0,17}", fullmatch=True))
def test_malformed_id_is_not_an_event_id(text: str) -> None:
    named = parse_event_id(text)
    assert named is None or event_id(*named) == text


@pytest.mark.rule("RESUME-01", "RESUME-02")
async def test_replay_returns_missed_events(store: EventStore) -> None:
    trail = store.begin(SESSION)
    ids = [trail.record(line) for line in (b"", b'{"a":1}', b'{"b":"\xc3\xa4"}')]
    assert len(set(ids)) == 3
    first = await store.replay(SESSION, ids[0])
    assert first is not None
    assert [(e.event_id, e.line) for e in first.events] == [
        (ids[1], b'{"a":1}'),
        (ids[2], b'{"b":"\xc3\xa4"}'),
    ]
    assert (first.stream_id, first.ended) == (trail.stream_id, False)
    assert lines(await store.replay(SESSION, ids[1])) == [b'{"b":"\xc3\xa4"}']
    assert lines(await store.replay(SESSION, ids[2])) == []
    trail.end()
    last = await store.replay(SESSION, ids[2])
    assert last is not None
    assert last.ended


@pytest.mark.rule("RESUME-02")
async def test_replay_has_no_events_of_another_stream(store: EventStore) -> None:
    one, other = store.begin(SESSION), store.begin(SESSION)
    started = one.record(b"1a")
    other.record(b"2a")
    one.record(b"1b")
    other.record(b"2b")
    assert lines(await store.replay(SESSION, started)) == [b"1b"]


@pytest.mark.rule("RESUME-02")
async def test_replay_has_no_events_of_another_session(store: EventStore) -> None:
    store.open("session-2", RECORD)
    started = store.begin(SESSION).record(b"mine")
    assert await store.replay("session-2", started) is None
    assert await store.replay("session-3", started) is None


@pytest.mark.rule("RESUME-03")
@pytest.mark.parametrize("text", ["", "x", "0" * 16 + "-0", "0" * 16, "\x00", "9" * 5000, "ä-1"])
async def test_malformed_id_resumes_nothing(text: str, store: EventStore) -> None:
    store.begin(SESSION).record(b"a")
    assert await store.replay(SESSION, text) is None


@pytest.mark.rule("RESUME-03")
async def test_future_event_id_resumes_nothing(store: EventStore) -> None:
    trail = store.begin(SESSION)
    trail.record(b"a")
    assert await store.replay(SESSION, event_id(trail.stream_id, 1)) is None
    assert await store.replay(SESSION, event_id(trail.stream_id, 10**14)) is None


@pytest.mark.rule("RESUME-03", "RESUME-04")
async def test_oldest_events_are_dropped_first_and_gap_is_not_skipped(store: EventStore) -> None:
    trail, other = store.begin(SESSION), store.begin(SESSION)
    ids = [trail.record(b"%d" % i) for i in range(4)]
    other.record(b"x")
    other.record(b"y")  # one too many: the first of `trail` goes
    assert lines(await store.replay(SESSION, ids[0])) == [b"1", b"2", b"3"]
    other.record(b"z")
    assert await store.replay(SESSION, ids[0]) is None
    assert lines(await store.replay(SESSION, ids[1])) == [b"2", b"3"]
    for each in (ids[0], ids[1]):
        rest = await store.replay(SESSION, each, whole=False)
        assert rest is not None
        assert [(event.event_id, event.line) for event in rest.events] == [
            (ids[2], b"2"),
            (ids[3], b"3"),
        ]
    for _ in range(MAX_EVENTS):
        other.record(b"w")
    assert lines(await store.replay(SESSION, ids[0], whole=False)) == []
    assert await store.replay(SESSION, ids[2]) is None


@pytest.mark.rule("RESUME-04")
async def test_bytes_of_session_are_bounded(store: EventStore) -> None:
    trail = store.begin(SESSION)
    first = trail.record(b"")
    second = trail.record(b"a" * 1500)
    third = trail.record(b"b" * 1500)
    trail.record(b"c" * 1500)
    assert await store.replay(SESSION, first) is None
    assert lines(await store.replay(SESSION, third)) == [b"c" * 1500]
    assert lines(await store.replay(SESSION, second)) == [b"b" * 1500, b"c" * 1500]
    huge = trail.record(b"d" * (MAX_SESSION_BYTES + 1))
    assert await store.replay(SESSION, third) is None
    assert lines(await store.replay(SESSION, huge)) == []


@pytest.mark.rule("RESUME-04")
async def test_ended_stream_without_events_leaves_nothing(store: EventStore) -> None:
    trail = store.begin(SESSION)
    last = trail.record(b"a")
    trail.end()
    trail.end()
    other = store.begin(SESSION)
    for _ in range(MAX_EVENTS):
        other.record(b"b")
    assert await store.replay(SESSION, last) is None
    empty = store.begin(SESSION)
    empty.end()
    assert await store.replay(SESSION, event_id(empty.stream_id, 0)) is None


@pytest.mark.rule("RESUME-03")
async def test_silent_stream_continues_after_its_events_expired(store: EventStore) -> None:
    silent, other = store.begin(SESSION), store.begin(SESSION)
    last = silent.record(b"a")
    for _ in range(MAX_EVENTS):
        other.record(b"b")
    replay = await store.replay(SESSION, last)
    assert replay is not None
    assert (lines(replay), replay.ended) == ([], False)
    following = silent.record(b"c")
    assert lines(await store.replay(SESSION, last)) == [b"c"]
    assert lines(await store.replay(SESSION, following)) == []


@pytest.mark.rule("RESUME-05")
async def test_session_record_is_kept_until_session_ends(store: EventStore) -> None:
    assert await store.find(SESSION) == RECORD
    assert await store.find("session-2") is None
    trail = store.begin(SESSION)
    started = trail.record(b"a")
    trail.record(b"b")
    store.forget(SESSION)
    store.forget(SESSION)
    assert await store.find(SESSION) is None
    assert await store.replay(SESSION, started) is None
    trail.record(b"too late")
    trail.end()
    store.begin(SESSION).record(b"nowhere")
    assert await store.replay(SESSION, started) is None


# In memory alone


def memory(**changes: Any) -> tuple[MemoryEventStore, ManualClock]:
    clock = ManualClock()
    settings: dict[str, Any] = {"max_events": 100, "ttl_ms": 1000, "max_session_bytes": 10**6}
    return MemoryEventStore(clock, **(settings | changes)), clock


@pytest.mark.rule("RESUME-04")
async def test_event_expires() -> None:
    store, clock = memory()
    store.open(SESSION, RECORD)
    trail = store.begin(SESSION)
    first = trail.record(b"a")
    clock.advance(0.6)
    second = trail.record(b"b")
    clock.advance(0.3)
    assert lines(await store.replay(SESSION, first)) == [b"b"]
    clock.advance(0.7)
    assert await store.replay(SESSION, first) is None
    assert lines(await store.replay(SESSION, second)) == []
    assert store.size == 0


@pytest.mark.rule("RESUME-04")
def test_expired_events_of_silent_sessions_are_dropped() -> None:
    store, clock = memory()
    for name in ("a", "b"):
        store.open(name, RECORD)
    store.begin("a").record(b"x" * 1000)
    clock.advance(2)
    before = store.size
    store.begin("b").record(b"")
    assert 0 < store.size < before


@pytest.mark.rule("RESUME-04")
def test_bytes_of_all_sessions_are_bounded() -> None:
    store, _ = memory(max_bytes=10_000)
    trails = {}
    for name in map(str, range(20)):
        store.open(name, RECORD)
        trails[name] = store.begin(name)
        trails[name].record(b"x" * 1000)
        assert store.size <= 10_000
    replay = asyncio.run(store.replay("19", event_id(trails["19"].stream_id, 0)))
    assert lines(replay) == []
    asyncio.run(store.close())
    assert store.size == 0


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.sampled_from("rrrreft")), max_size=60
    )
)
def test_size_of_store_is_counted_correctly(steps: list[tuple[str, int, str]]) -> None:
    store, clock = memory(max_events=4, max_session_bytes=900, max_bytes=1500)
    trails: dict[tuple[str, int], Any] = {}
    for session, number, step in steps:
        if (session, number) not in trails:
            store.open(session, RECORD) if asyncio.run(store.find(session)) is None else None
            trails[session, number] = store.begin(session)
        trail = trails[session, number]
        if step == "r":
            trail.record(b"x" * (number * 100))
        elif step == "e":
            trail.end()
            del trails[session, number]
        elif step == "f":
            store.forget(session)
            trails = {key: trail for key, trail in trails.items() if key[0] != session}
        else:
            clock.advance(0.7)
        assert 0 <= store.size <= 1500
    for session in "ab":
        store.forget(session)
    assert store.size == 0


# In Redis alone


@pytest.fixture
@asynccontextmanager
async def prefix() -> AsyncIterator[str]:
    """Yield a prefix of keys in Redis, which are deleted afterwards."""
    prefix = unique_name()
    yield prefix
    await drop_keys(need_redis(), prefix)


@pytest.fixture
def url() -> str:
    return need_redis()


@pytest.mark.rule("RESUME-05")
async def test_another_process_finds_and_resumes_session(url: str, prefix: str) -> None:
    one, other = redis_store(url, prefix), redis_store(url, prefix)
    await one.start()
    await other.start()
    one.open(SESSION, RECORD)
    one.open("nobody's", SessionRecord(None, "2025-06-18"))
    trail = one.begin(SESSION)
    started = trail.record(b"a")
    trail.record(b"b")
    trail.end()
    one.begin("nobody's").record(b"c")
    assert await one.replay(SESSION, started) is not None  # so it has been written
    assert await other.find(SESSION) == RECORD
    assert await other.find("nobody's") == SessionRecord(None, "2025-06-18")
    replay = await other.replay(SESSION, started)
    assert (lines(replay), replay and replay.ended) == ([b"b"], True)
    await one.close()
    await other.close()


@pytest.mark.rule("RESUME-04", "RESUME-06")
async def test_keys_hide_the_session_and_expire(url: str, prefix: str) -> None:
    from redis.asyncio import Redis

    store = redis_store(url, prefix, session_ttl_ms=90_000)
    await store.start()
    store.open(SESSION, RECORD)
    store.begin(SESSION).record(b"a")
    await store.close()
    async with Redis.from_url(url) as client:
        keys = sorted([key async for key in client.scan_iter(f"{prefix}*")])
        assert [SESSION.encode() in key for key in keys] == [False, False]
        lives = [await client.pttl(key) for key in keys]
    assert 60_000 < lives[0] <= 90_000
    assert 0 < lives[1] <= 60_000


@pytest.mark.rule("RESUME-04")
async def test_redis_drops_old_events(url: str, prefix: str) -> None:
    store = redis_store(url, prefix, ttl_ms=1)
    await store.start()
    store.open(SESSION, RECORD)
    trail = store.begin(SESSION)
    first = trail.record(b"a")
    trail.record(b"b")
    while await store.replay(SESSION, first) is not None:
        trail.record(b"c")  # each takes with it what has become too old
    await store.close()


@pytest.mark.rule("RESUME-06")
async def test_writes_neither_wait_nor_grow_without_redis() -> None:
    async def scenario() -> None:
        logger = RecordedLogger()
        url = "redis://:s3cr3t@127.0.0.1:1/0"
        store = redis_store(url, "x", logger=logger, max_backlog_bytes=5_000)
        await store.start()
        store.open(SESSION, RECORD)
        trail = store.begin(SESSION)
        started = trail.record(b"x" * 100)
        for _ in range(1_000):
            trail.record(b"x" * 100)
        assert await store.find("elsewhere") is None
        assert store.backlog_bytes <= 5_000
        assert await store.replay(SESSION, started) is None
        await store.close()
        assert [level for level, _ in logger.records] == ["warn"]
        assert "s3cr3t" not in str(logger.records)

    async with asyncio.timeout(PATIENCE):
        await scenario()


@pytest.mark.rule("RESUME-06")
async def test_waiting_writes_are_done_when_redis_is_back(url: str, prefix: str) -> None:
    async with cable(url) as line:
        logger = RecordedLogger()
        store = redis_store(line.url, prefix, logger=logger)
        await line.cut()
        await store.start()
        store.open(SESSION, RECORD)
        trail = store.begin(SESSION)
        started = trail.record(b"a")
        trail.record(b"b")
        await logger_says(logger, "warn")
        assert await store.replay(SESSION, started) is None
        await line.mend()
        await logger_says(logger, "info")
        assert lines(await store.replay(SESSION, started)) == [b"b"]
        assert [level for level, _ in logger.records] == ["warn", "info"]
        await line.cut()
        assert await store.replay(SESSION, started) is None
        await store.close()


async def logger_says(logger: RecordedLogger, level: str) -> None:
    await until(lambda: level in dict(logger.records), f"a record of level {level}")


@pytest.mark.rule("RESUME-06")
async def test_write_that_cannot_be_sent_delays_no_other(url: str, prefix: str) -> None:
    logger = RecordedLogger()
    store = redis_store(url, prefix, logger=logger)
    await store.start()
    store.open("broken", SessionRecord(None, "\ud800"))
    trail = store.begin("broken")
    lost = trail.record(b"a")
    trail.record(b"b")
    assert await store.replay("broken", lost) is None
    store.open(SESSION, RECORD)
    trail = store.begin(SESSION)
    started = trail.record(b"a")
    trail.record(b"b")
    assert lines(await store.replay(SESSION, started)) == [b"b"]
    assert store.backlog_bytes == 0
    assert [level for level, _ in logger.records] == ["warn", "info"]
    await store.close()


@pytest.mark.rule("RESUME-06")
async def test_write_that_redis_refuses_delays_no_other(url: str, prefix: str) -> None:
    from redis.asyncio import Redis

    logger = RecordedLogger()
    store = redis_store(url, prefix, logger=logger)
    await store.start()
    store.open(SESSION, RECORD)
    async with Redis.from_url(url) as client:
        await client.set(store.keys(SESSION)[0], "no stream")
    trail = store.begin(SESSION)
    started = trail.record(b"a")
    trail.record(b"b")
    assert await store.replay(SESSION, started) is None
    store.open("session-2", RECORD)
    other = store.begin("session-2")
    begun = other.record(b"c")
    other.record(b"d")
    assert lines(await store.replay("session-2", begun)) == [b"d"]
    assert logger.records[0][0] == "warn"
    await store.close()


@pytest.mark.rule("RESUME-06")
def test_store_can_be_closed_before_start() -> None:
    asyncio.run(redis_store("redis://127.0.0.1:1", "x", logger=RecordedLogger()).close())
