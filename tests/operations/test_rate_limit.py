"""Limits of calls: what is refused, for how long, and what is kept of whom."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrate_limiter import Rate

from foundation_rt.clock import ManualClock
from foundation_rt.configuration.sections import RateLimitSection, ServerConfig
from foundation_rt.errors import ErrorCode, ToolError
from foundation_rt.operations.rate_limit import (
    MemoryBuckets,
    RateLimit,
    RedisBuckets,
    make_rate_limit,
)
from foundation_rt.protocol.principal import Principal
from tests.support.gate import Gate
from tests.support.services import need_redis, unique_name

PATIENCE = 20.0


class Logger:
    def __init__(self) -> None:
        self.records: list[tuple[str, str]] = []

    def info(self, message: str, fields: Any = None) -> None:
        self.records.append(("info", message))

    def warn(self, message: str, fields: Any = None) -> None:
        self.records.append(("warn", f"{message} {fields}"))


def made(clock: ManualClock, **settings: Any) -> RateLimit:
    return make_rate_limit(RateLimitSection(**settings), clock, Logger())  # type: ignore[arg-type]


def attempt(
    limit: RateLimit, subject: str | None = "alice", name: str = "echo", method: str = "tools/call"
) -> dict[str, Any] | None:
    """Call something; return the details of the refusal, if it is one."""
    principal = None if subject is None else Principal(subject)
    call: Any = SimpleNamespace(principal=principal, name=name, method=method)
    handled = []

    async def proceed() -> str:
        handled.append(True)
        return "done"

    try:
        assert asyncio.run(limit(call, proceed)) == "done"
    except ToolError as error:
        assert error.code is ErrorCode.RESOURCE_EXHAUSTED
        assert handled == []
        return dict(error.details or {})
    assert handled == [True]
    return None


@pytest.mark.rule("RATE-01", "RATE-02")
def test_a_client_makes_so_many_calls_at_once_and_then_evenly() -> None:
    clock = ManualClock()
    limit = made(clock, per_key=3, window_ms=3000)
    for name in ("a", "b", "a"):
        assert attempt(limit, name=name) is None
    details = attempt(limit)
    assert details == {"reason": "rate_limit", "limit": "client", "retryAfterMs": 1000}
    clock.advance(0.999)
    assert (attempt(limit) or {})["retryAfterMs"] == 1
    clock.advance(0.001)
    assert attempt(limit) is None
    assert attempt(limit) is not None
    clock.advance(60)
    assert [attempt(limit) is None for _ in range(4)] == [True, True, True, False]


@pytest.mark.rule("RATE-01")
def test_each_client_has_its_own_and_the_nameless_share_one() -> None:
    limit = made(ManualClock(), per_key=1)
    assert attempt(limit, "alice") is None
    assert attempt(limit, "bob") is None
    assert attempt(limit, None) is None
    assert attempt(limit, "anonymous") is None
    for subject in ("alice", "bob", None):
        assert attempt(limit, subject) is not None


@pytest.mark.rule("RATE-01", "RATE-02")
def test_each_tool_has_its_own() -> None:
    limit = made(ManualClock(), per_tool=1)
    assert attempt(limit, name="a") is None
    assert attempt(limit, name="b") is None
    assert attempt(limit, "bob", name="a") is None
    assert (attempt(limit, name="a") or {})["limit"] == "tool"
    for _ in range(3):
        assert attempt(limit, name="a", method="prompts/get") is None


@pytest.mark.rule("RATE-01")
def test_both_limits_hold() -> None:
    limit = made(ManualClock(), per_key=3, per_tool=1)
    assert attempt(limit, name="a") is None
    assert (attempt(limit, name="a") or {})["limit"] == "tool"
    assert attempt(limit, name="b") is None
    assert (attempt(limit, name="c") or {})["limit"] == "client"


@pytest.mark.rule("RATE-01")
@given(
    limit=st.integers(1, 50),
    window_ms=st.integers(1, 100_000),
    pauses=st.lists(st.integers(0, 3000), min_size=1, max_size=200),
)
def test_no_window_has_more_than_twice_its_calls_and_a_hint_is_right(
    limit: int, window_ms: int, pauses: list[int]
) -> None:
    async def main() -> None:
        clock = ManualClock()
        buckets, rate = MemoryBuckets(clock), Rate(limit, window_ms)
        admitted = []
        for pause in pauses:
            clock.advance(pause / 1000)
            retry_after_ms = await buckets.take("a", rate)
            if retry_after_ms is not None:
                assert retry_after_ms > 0
                clock.advance(retry_after_ms / 1000)
                assert await buckets.take("a", rate) is None
            admitted.append(round(clock.monotonic() * 1000))
        for index, start in enumerate(admitted):
            assert sum(start <= each < start + window_ms for each in admitted[index:]) <= 2 * limit

    asyncio.run(main())


@pytest.mark.rule("RATE-04")
def test_who_has_called_longest_ago_is_forgotten() -> None:
    async def main() -> None:
        buckets, rate = MemoryBuckets(ManualClock(), 2), Rate(1, 1000)
        assert await buckets.take("a", rate) is None
        assert await buckets.take("b", rate) is None
        assert await buckets.take("a", rate) is not None
        assert await buckets.take("c", rate) is None
        assert len(buckets) == 2
        assert await buckets.take("a", rate) is not None
        assert await buckets.take("b", rate) is None
        await buckets.close()
        assert len(buckets) == 0

    asyncio.run(main())


@pytest.mark.rule("RATE-03")
def test_without_limits_there_is_no_middleware() -> None:
    config = ServerConfig()
    assert not config.rate_limit.is_set()
    assert not config.is_operated()
    assert RateLimitSection(per_key=1).is_set()
    assert RateLimitSection(per_tool=1).is_set()


@pytest.mark.rule("RATE-03")
def test_limits_of_one_process_say_so() -> None:
    logger = Logger()
    settings = RateLimitSection(per_tool=5)
    limit = make_rate_limit(settings, ManualClock(), logger)  # type: ignore[arg-type]
    assert [level for level, _ in logger.records] == ["warn"]
    asyncio.run(limit.close())


# In Redis


def with_redis(scenario: Callable[[str, str], Awaitable[None]]) -> None:
    url, prefix = need_redis(), unique_name()

    async def main() -> None:
        from redis.asyncio import Redis

        async with asyncio.timeout(PATIENCE), Redis.from_url(url) as client:
            try:
                await scenario(url, prefix)
            finally:
                async for key in client.scan_iter(f"{prefix}*"):
                    await client.delete(key)

    asyncio.run(main())


def buckets_of(url: str, prefix: str, logger: Any = None, clock: Any = None) -> RedisBuckets:
    return RedisBuckets(url, clock or ManualClock(), logger or Logger(), prefix)


@pytest.mark.rule("RATE-01", "RATE-03")
def test_all_processes_count_together() -> None:
    async def scenario(url: str, prefix: str) -> None:
        one, other = buckets_of(url, prefix), buckets_of(url, prefix)
        rate = Rate(3, 3_600_000)
        assert await one.take("a", rate) is None
        assert await other.take("a", rate) is None
        assert await one.take("a", rate) is None
        for buckets in (one, other):
            retry_after_ms = await buckets.take("a", rate)
            assert retry_after_ms is not None
            assert 1_100_000 < retry_after_ms <= 1_200_000
        assert await other.take("b", rate) is None
        assert await other.take("a", Rate(4, 3_600_000)) is None
        await one.close()
        await one.close()
        await other.close()

    with_redis(scenario)


@pytest.mark.rule("RATE-03")
def test_the_clock_is_that_of_the_redis_server() -> None:
    async def scenario(url: str, prefix: str) -> None:
        clock = ManualClock()
        buckets, rate = buckets_of(url, prefix, clock=clock), Rate(1, 3_600_000)
        assert await buckets.take("a", rate) is None
        clock.advance(10**6)
        assert await buckets.take("a", rate) is not None
        soon = Rate(1, 20)
        assert await buckets.take("b", soon) is None
        while await buckets.take("b", soon) is not None:
            pass
        await buckets.close()

    with_redis(scenario)


@pytest.mark.rule("RATE-04")
def test_keys_tell_nothing_and_expire() -> None:
    async def scenario(url: str, prefix: str) -> None:
        from redis.asyncio import Redis

        buckets = buckets_of(url, prefix)
        assert await buckets.take("client:alice", Rate(10, 5_000)) is None
        await buckets.close()
        async with Redis.from_url(url) as client:
            (key,) = [key async for key in client.scan_iter(f"{prefix}*")]
            assert b"alice" not in key
            assert 0 < await client.pttl(key) <= 10_000

    with_redis(scenario)


@pytest.mark.rule("RATE-05")
def test_while_redis_is_away_nobody_is_refused() -> None:
    async def scenario(url: str, prefix: str) -> None:
        async with Gate(url) as gate:
            clock, logger = ManualClock(), Logger()
            buckets, rate = buckets_of(gate.url, prefix, logger, clock), Rate(1, 3_600_000)
            assert await buckets.take("a", rate) is None
            assert await buckets.take("a", rate) is not None
            gate.shut()
            for _ in range(5):
                assert await buckets.take("a", rate) is None
            gate.open()
            assert await buckets.take("a", rate) is None
            clock.advance(5)
            assert await buckets.take("a", rate) is not None
            assert [level for level, _ in logger.records] == ["warn", "info"]
            assert "127.0.0.1" not in str(logger.records)
            await buckets.close()

    with_redis(scenario)


@pytest.mark.rule("RATE-03")
def test_a_server_may_change_its_loop() -> None:
    url, prefix = need_redis(), unique_name()
    buckets = buckets_of(url, prefix)

    async def main() -> int | None:
        try:
            return await buckets.take("a", Rate(1, 2_000))
        finally:
            await buckets.close()

    assert asyncio.run(main()) is None
    assert asyncio.run(main()) is not None
    asyncio.run(buckets.close())


@pytest.mark.rule("RATE-03")
def test_a_store_in_redis_is_not_warned_of() -> None:
    logger = Logger()
    settings = RateLimitSection(per_key=5, store="redis://127.0.0.1:1")
    make_rate_limit(settings, ManualClock(), logger)  # type: ignore[arg-type]
    assert logger.records == []
