"""The registry of workers while Redis is away."""

from __future__ import annotations

import asyncio
from secrets import token_hex

import pytest

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.base.redis_link import Outage
from foundation_rt.http.cluster import worker_registry_redis
from foundation_rt.http.cluster.session_seal import WorkerName
from foundation_rt.http.cluster.worker_registry_redis import WorkerRegistry
from tests.lab.places.processes import redis_server
from tests.lab.places.services import need_redis
from tests.lab.servers.http_server import free_port
from tests.lab.waiting import until


@pytest.mark.rule("HTTP-69")
async def test_sessions_of_other_groups_are_not_said_to_be_gone_while_redis_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_registry_redis, "_CLOSE_SECONDS", 0.0)
    sink = MemorySink()
    logger = StructuredLogger(sink, ManualClock(), "info")
    url = f"redis://:hidden@127.0.0.1:{free_port()}/0"
    name = WorkerName("0123456789ab", 0)
    registry = WorkerRegistry(url, logger, name, ("127.0.0.1", 7000), "channel")
    await registry.start(lambda message: None)
    assert not await registry.publish("lost")
    registry.mark("digest")
    registry.keep("digest")
    registry.forget("digest")
    for found in (registry.find_session("digest", name), registry.address_of(name)):
        with pytest.raises(ConnectionError):
            await found
    await registry.close()
    failing = [each for each in sink.lines if each["level"] == "warn"]
    assert [each["message"] for each in failing] == [
        "the registry of workers in Redis fails: sessions of other hosts cannot be found"
    ]
    assert "hidden" not in repr(sink.lines)


@pytest.mark.rule("HTTP-69")
async def test_worker_is_found_by_its_sessions_as_long_as_it_lives() -> None:
    logger = StructuredLogger(MemorySink(), ManualClock(), "info")
    here, there, gone = (WorkerName(token_hex(6), 0) for _ in range(3))
    digest, url = token_hex(16), need_redis()
    registries = [
        WorkerRegistry(url, logger, each, (host, 7000), token_hex(6))
        for each, host in ((here, "127.0.0.1"), (there, "::1"))
    ]
    for each in registries:
        await each.start(lambda message: None)
    try:
        registries[0].mark(digest)
        found = registries[1].find_session
        await until(lambda: found(digest, gone), "the session is found", lambda name: name == here)
        assert await found(token_hex(16), gone) is None
        for name, address in ((here, ("127.0.0.1", 7000)), (there, ("::1", 7000)), (gone, None)):
            assert await registries[0].address_of(name) == address
    finally:
        for each in registries:
            await each.close()


@pytest.mark.rule("SUB-20")
async def test_redis_that_vanishes_without_a_word_is_noticed_and_listened_to_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_registry_redis, "_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(worker_registry_redis, "_BEAT_SECONDS", 0.01)
    sink = MemorySink()
    logger = StructuredLogger(sink, ManualClock(), "info")
    heard: list[str] = []

    def said(text: str) -> int:
        return sum(text in str(each["message"]) for each in sink.lines)

    with redis_server() as redis:
        names = [WorkerName("0123456789ab", 0), WorkerName("ba9876543210", 0)]
        here, there = (
            WorkerRegistry(redis.url, logger, each, ("127.0.0.1", 7000), "channel")
            for each in names
        )
        await here.start(heard.append)
        await there.start(lambda message: None)

        async def reaches(message: str) -> None:
            while message not in heard:
                await there.publish(message)
                await asyncio.sleep(0.01)

        await until(  # nothing is said meanwhile, and both go on to listen
            lambda: here._redis.info("commandstats"),
            "six pings",
            lambda stats: stats.get("cmdstat_ping", {"calls": 0})["calls"] >= 6,
        )
        assert said("fails") == 0
        await reaches("before")
        redis.freeze()
        await until(lambda: said("fails") >= 2, "both notice that Redis is gone")
        assert not await there.publish("late")
        redis.thaw()
        await reaches("thawed")
        redis.kill()
        redis.start()
        await reaches("started")
        await here.close()
        await there.close()


@pytest.mark.rule("HTTP-79")
def test_redis_works_again_when_all_parts_of_its_user_do() -> None:
    sink = MemorySink()
    outage = Outage(StructuredLogger(sink, ManualClock(), "info"), "fails", "works")
    for part, error in (("find", OSError()), ("write", OSError()), ("find", None), ("find", None)):
        outage.note(error, part)
    assert [each["message"] for each in sink.lines] == ["fails"]
    outage.note(None, "write")
    assert [each["message"] for each in sink.lines] == ["fails", "works"]
