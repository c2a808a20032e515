"""Limits of calls: what is refused, for how long, and what is kept of whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrate_limiter import Rate

from foundation_rt import Server
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.feature_sections import RateLimitSection
from foundation_rt.base.config.settings import ServerConfig, ToolsSection
from foundation_rt.features.rate_limit import (
    MemoryBuckets,
    RateLimit,
    RedisBuckets,
    make_rate_limit,
)
from foundation_rt.kernel.effects import CallCompleted, Notify, Reply
from foundation_rt.kernel.session import create_session
from foundation_rt.protocol.jsonrpc import ABSENT, Request
from foundation_rt.protocol.peer import Peer
from foundation_rt.protocol.principal import Principal
from foundation_rt.protocol.revisions import REVISIONS
from tests.lab.checks.recorded_log import RecordedLogger
from tests.lab.peers.answering_client import AnsweringClient
from tests.lab.places.cable import cable
from tests.lab.places.services import need_redis, unique_name
from tests.lab.servers.core import make_core
from tests.lab.servers.fixture import ServerFixture
from tests.lab.waiting import until

DECIDED = Notify(b"decided")

TOOLS = ("a", "b", "c", "echo")
HANDSHAKEN = Peer(REVISIONS["2025-11-25"])


def named(tools: Collection[str]) -> Callable[[str], str]:
    return lambda name: name if name in tools else ""


def made(clock: ManualClock, **settings: Any) -> RateLimit:
    return limit_of(RateLimitSection(**settings), RecordedLogger(), clock)


def limit_of(
    settings: RateLimitSection, logger: Any, clock: ManualClock | None = None
) -> RateLimit:
    dispatcher = make_core().dispatcher
    return make_rate_limit(settings, clock or ManualClock(), logger, dispatcher, named(TOOLS))


def attempt(
    limit: RateLimit, subject: str | None = "alice", name: str = "echo", method: str = "tools/call"
) -> dict[str, Any] | None:
    """Call something; return the details of the refusal, if it is one."""
    principal = None if subject is None else Principal(subject)
    session = create_session("http", "c", RecordedLogger(), principal=principal)  # type: ignore[arg-type]
    effects = limit.around(
        session, HANDSHAKEN, Request(1, method, {"name": name}), lambda: [DECIDED]
    )
    if effects == [DECIDED]:
        return None
    reply, record = effects
    assert isinstance(reply, Reply) and isinstance(record, CallCompleted)
    assert record.fields["errorCode"] == "RESOURCE_EXHAUSTED"
    assert record.refusal == "rate_limit"
    message = orjson.loads(reply.line)
    if method == "tools/call":
        assert message["result"]["isError"] is True
        found = orjson.loads(message["result"]["content"][0]["text"])
    else:
        assert message["error"]["code"] == -32603
        found = message["error"]["data"]
    assert found["code"] == "RESOURCE_EXHAUSTED"
    details: dict[str, Any] = found["details"]
    return details


@pytest.mark.rule("RATE-01", "RATE-02")
def test_client_may_spend_the_limit_at_once_and_then_evenly() -> None:
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
def test_each_client_has_a_bucket_and_anonymous_clients_share_one() -> None:
    limit = made(ManualClock(), per_key=1)
    assert attempt(limit, "alice") is None
    assert attempt(limit, "bob") is None
    assert attempt(limit, None) is None
    assert attempt(limit, "anonymous") is None
    for subject in ("alice", "bob", None):
        assert attempt(limit, subject) is not None


@pytest.mark.rule("RATE-01", "RATE-02")
def test_each_tool_has_a_bucket() -> None:
    limit = made(ManualClock(), per_tool=1)
    assert attempt(limit, name="a") is None
    assert attempt(limit, name="b") is None
    assert attempt(limit, "bob", name="a") is None
    assert (attempt(limit, name="a") or {})["limit"] == "tool"
    for _ in range(3):
        assert attempt(limit, name="a", method="prompts/get") is None


@pytest.mark.rule("RATE-09")
def test_both_limits_hold() -> None:
    limit = made(ManualClock(), per_key=3, per_tool=1)
    assert attempt(limit, name="a") is None
    assert (attempt(limit, name="a") or {})["limit"] == "tool"
    assert attempt(limit, name="b") is None
    assert (attempt(limit, name="c") or {})["limit"] == "client"


@pytest.mark.rule("RATE-10")
def test_single_tools_have_limits_of_their_own() -> None:
    limit = made(ManualClock(), per_tool=1, tools=("a=3", "b=0"))
    assert [attempt(limit, name="a") is None for _ in range(4)] == [True, True, True, False]
    assert [attempt(limit, "bob", name="a") is None for _ in range(4)] == [True, True, True, False]
    assert [attempt(limit, name="b") is None for _ in range(4)] == [True] * 4
    assert [attempt(limit, name="c") is None for _ in range(2)] == [True, False]
    assert (attempt(limit, name="a") or {})["limit"] == "tool"


@pytest.mark.rule("RATE-10")
def test_limit_of_a_single_tool_is_enough() -> None:
    limit = made(ManualClock(), tools=("a=1",))
    assert [attempt(limit, name="a") is None for _ in range(2)] == [True, False]
    assert [attempt(limit, name="b") is None for _ in range(9)] == [True] * 9
    assert RateLimitSection(tools=("a=1",)).is_set()
    assert not RateLimitSection(tools=("a=0",)).is_set()


@pytest.mark.rule("RATE-09", "RATE-10")
def test_limit_of_the_client_holds_beside_that_of_a_single_tool() -> None:
    limit = made(ManualClock(), per_key=2, tools=("a=9",))
    assert [attempt(limit, name="a") is None for _ in range(3)] == [True, True, False]
    assert (attempt(limit, name="a") or {})["limit"] == "client"


@pytest.mark.rule("RATE-10")
def test_tool_is_named_as_registered_or_as_clients_do() -> None:
    for name in ("agent/list", "agent_list"):
        settings = RateLimitSection(tools=(f"{name}=1",))
        rig = ServerFixture(
            ServerConfig(rate_limit=settings, tools=ToolsSection(name_separator="_"))
        )
        rig.server.tool(lambda: 1, name="agent/list", inline=True)  # type: ignore[call-overload]
        client = rig.connect()
        outcomes = [client.outcome(client.start("agent_list", {})) for _ in range(2)]
        assert outcomes[1]["code"] == "RESOURCE_EXHAUSTED"
        rig.assert_all_ended()


@pytest.mark.rule("RATE-10")
def test_unknown_tool_is_a_warning_and_has_its_limit_when_it_comes() -> None:
    logger, known = RecordedLogger(), set(TOOLS)
    settings = RateLimitSection(tools=("a=1", "later=1", "never=5"))
    dispatcher = make_core().dispatcher
    limit = make_rate_limit(settings, ManualClock(), logger, dispatcher, named(known))
    warnings = [message for _, message in logger.records if "rate_limit.tools" in message]
    assert warnings == [
        "rate_limit.tools names tools that do not exist {'tools': ['later', 'never']}"
    ]
    assert [attempt(limit, name="later") is None for _ in range(3)] == [True] * 3
    known.add("later")
    assert [attempt(limit, name="later") is None for _ in range(2)] == [True, False]


@pytest.mark.rule("RATE-10")
def test_tool_that_is_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="tools: expected each tool once"):
        RateLimitSection(tools=("a=1", "b=1", "a=2"))


@pytest.mark.rule("RATE-06")
def test_unknown_tools_share_a_bucket() -> None:
    limit = made(ManualClock(), per_tool=2)
    assert attempt(limit, name="x1") is None
    assert attempt(limit, name="x2") is None
    assert (attempt(limit, name="x3") or {})["limit"] == "tool"
    assert attempt(limit, name="a") is None


@pytest.mark.rule("RATE-06")
@pytest.mark.parametrize(
    "method", ["prompts/get", "resources/read", "completion/complete", "tools/call"]
)
@pytest.mark.parametrize("params", [ABSENT, 5, {}, {"name": 5, "uri": [], "ref": {}}])
def test_invalid_call_counts_towards_the_limit(method: str, params: Any) -> None:
    limit = made(ManualClock(), per_key=1)
    session = create_session("http", "c", RecordedLogger())  # type: ignore[arg-type]
    request = Request(1, method, params)
    assert limit.around(session, HANDSHAKEN, request, lambda: [DECIDED]) == [DECIDED]
    assert limit.around(session, HANDSHAKEN, request, lambda: [DECIDED]) != [DECIDED]
    # What is no call is not counted, nor what comes before a client is known.
    listing = Request(1, "tools/list", params)
    assert limit.around(session, HANDSHAKEN, listing, lambda: [DECIDED]) == [DECIDED]
    assert limit.around(session, None, request, lambda: [DECIDED]) == [DECIDED]


@pytest.mark.rule("RATE-06")
def test_call_beyond_the_limit_is_not_validated() -> None:
    rig = ServerFixture(ServerConfig(rate_limit=RateLimitSection(per_key=3)))
    rig.server.tool(lambda: 1, name="one")  # type: ignore[call-overload]
    tool = rig.server.runtime.registry.get("one")
    assert tool is not None
    checked = []
    validate = tool.validate

    def counting(arguments: Any) -> Any:
        checked.append(arguments)
        return validate(arguments)

    tool.validate = counting
    client = rig.connect()
    calls = [("one", {"no": 1}), ("none", {}), ("one", {"no": 2}), ("one", {"no": 3}), ("one", {})]
    outcomes = [client.outcome(client.start(name, arguments)) for name, arguments in calls]
    assert [each["code"] for each in outcomes] == [
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "INVALID_ARGUMENT",
        "RESOURCE_EXHAUSTED",
        "RESOURCE_EXHAUSTED",
    ]
    assert checked == [{"no": 1}, {"no": 2}]
    assert [record["outcome"] for record in rig.records] == ["tool_error"] * 5
    rig.assert_all_ended()


# Where the buckets are waited for


class SlowBuckets:
    """Answers what `answers` says, once it is let go."""

    is_local = False

    def __init__(self, *answers: int | None) -> None:
        self.answers = iter(answers)
        self.go = asyncio.Event()
        self.asked = 0

    async def take(self, key: str, rate: Rate) -> int | None:
        self.asked += 1
        await self.go.wait()
        return next(self.answers)

    async def close(self) -> None:
        pass


def slow(*answers: int | None, **tools: Any) -> tuple[ServerFixture, SlowBuckets]:
    rig, buckets = ServerFixture(level="debug"), SlowBuckets(*answers)
    rig.server.tool(lambda: 1, name="one", inline=True)  # type: ignore[call-overload]
    runtime = rig.server.runtime
    limit = RateLimit(buckets, runtime.dispatcher, named(TOOLS), Rate(1, 1000), None)
    runtime.dispatcher.around = (limit.around,)
    assert limit.needs_event_loop
    return rig, buckets


@pytest.mark.rule("RATE-08")
async def test_call_is_decided_after_it_was_admitted() -> None:
    rig, buckets = slow(None, 500, None)
    client = AnsweringClient(rig.server)
    first, second = client.start("one"), client.start("one")
    wrong = client.start("one", {"no": 1})
    assert client.unread() == []
    buckets.go.set()
    answers = [await client.next() for _ in range(3)]
    assert [each["id"] for each in answers] == [first, second, wrong]
    texts = [each["result"]["content"][0]["text"] for each in answers]
    assert texts[0] == "1"
    assert '"retryAfterMs":500' in texts[1]
    assert '"code":"INVALID_ARGUMENT"' in texts[2]
    await client.settle()
    assert [each["outcome"] for each in rig.records] == ["success", "tool_error", "tool_error"]
    rig.assert_all_ended()


@pytest.mark.rule("RATE-08", "TIME-05")
@pytest.mark.parametrize("how", ["cancelled", "disconnected"])
async def test_call_cancelled_while_it_waits_is_not_run(how: str) -> None:
    rig, buckets = slow(None)
    ran: list[int] = []
    rig.server.tool(lambda: ran.append(1), name="two")  # type: ignore[call-overload]
    client = AnsweringClient(rig.server)
    request_id = client.start("two")
    await asyncio.sleep(0)
    if how == "cancelled":
        client.write(method="notifications/cancelled", params={"requestId": request_id})
    else:
        client.connection.close()
    buckets.go.set()
    await until(lambda: not rig.server.runtime.engine.running, "no call runs")
    assert client.unread() == []
    assert ran == []
    assert [each["outcome"] for each in rig.records] == ["aborted"]
    assert buckets.asked == 1
    rig.assert_all_ended()


@pytest.mark.rule("RATE-08", "RPC-17")
async def test_the_id_of_a_call_that_waits_is_taken() -> None:
    rig, buckets = slow(None)
    client = AnsweringClient(rig.server)
    request_id = client.start("one")
    client.write(id=request_id, method="ping")
    error = (await client.next())["error"]
    assert error["data"]["reason"] == "duplicate_id"
    buckets.go.set()
    assert (await client.next())["id"] == request_id


@pytest.mark.rule("RATE-08", "RPC-14")
async def test_batch_is_answered_after_its_rate_limited_calls() -> None:
    rig, buckets = slow(None, 7)
    messages: list[Any] = []
    connection = rig.server.connect(lambda line: messages.append(orjson.loads(line)))
    shake = {"protocolVersion": "2025-03-26", "capabilities": {}}
    batch = [
        {"jsonrpc": "2.0", "id": each, "method": "tools/call", "params": {"name": "one"}}
        for each in (1, 2)
    ]
    for message in (
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": shake},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        batch,
    ):
        connection.feed(orjson.dumps(message) + b"\n")
    assert len(messages) == 1
    buckets.go.set()
    await until(lambda: len(messages) >= 2, "the batch is answered")
    assert [each["id"] for each in messages[1]] == [1, 2]
    assert [each["result"]["isError"] for each in messages[1]] == [False, True]
    rig.assert_all_ended()


@pytest.mark.rule("RATE-08", "OPS-23")
async def test_middleware_is_not_around_the_wait() -> None:
    rig, buckets = slow(None, 5)
    seen: list[str] = []

    def around(call: Any, proceed: Any) -> Any:
        seen.append(call.name)
        return proceed

    rig.server.runtime.engine.around = around
    client = AnsweringClient(rig.server)
    buckets.go.set()
    for _ in range(2):
        client.start("one")
        await client.next()
    assert seen == ["one"]


@pytest.mark.rule("RATE-01")
@given(
    limit=st.integers(1, 50),
    window_ms=st.integers(1, 100_000),
    pauses=st.lists(st.integers(0, 3000), min_size=1, max_size=200),
)
def test_window_has_at_most_twice_its_calls_and_retry_after_is_right(
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
async def test_least_recently_used_bucket_is_dropped() -> None:
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


@pytest.mark.rule("RATE-03")
def test_without_limits_there_is_no_middleware() -> None:
    config = ServerConfig()
    assert not config.rate_limit.is_set()
    assert not config.is_operated()
    assert RateLimitSection(per_key=1).is_set()
    assert RateLimitSection(per_tool=1).is_set()


@pytest.mark.rule("RATE-03")
def test_memory_buckets_are_logged_as_a_warning() -> None:
    logger = RecordedLogger()
    settings = RateLimitSection(per_tool=5)
    limit = limit_of(settings, logger)
    assert [level for level, _ in logger.records] == ["warn"]
    asyncio.run(limit.close())


# In Redis


@pytest.fixture
def url() -> str:
    return need_redis()


@pytest.fixture
@asynccontextmanager
async def prefix(url: str) -> AsyncIterator[str]:
    """Yield a prefix of keys in Redis, which are deleted afterwards."""
    from redis.asyncio import Redis

    prefix = unique_name()
    async with Redis.from_url(url) as client:
        yield prefix
        async for key in client.scan_iter(f"{prefix}*"):
            await client.delete(key)


def buckets_of(url: str, prefix: str, logger: Any = None, clock: Any = None) -> RedisBuckets:
    return RedisBuckets(url, clock or ManualClock(), logger or RecordedLogger(), prefix)


@pytest.mark.rule("RATE-01", "RATE-03")
async def test_all_processes_count_together(url: str, prefix: str) -> None:
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


@pytest.mark.rule("RATE-10")
async def test_limits_of_single_tools_hold_in_redis(url: str, prefix: str) -> None:
    rates = {"a": Rate(2, 3_600_000), "b": None}
    limits = [
        RateLimit(
            buckets_of(url, prefix),
            make_core().dispatcher,
            named(TOOLS),
            None,
            Rate(1, 3_600_000),
            rates,
        )
        for _ in range(2)
    ]

    async def attempts(name: str) -> list[bool]:
        principal = Principal("alice")
        return [await limit._judge(principal, name) is None for limit in limits * 2]

    assert await attempts("a") == [True, True, False, False]
    assert await attempts("b") == [True] * 4
    assert await attempts("c") == [True, False, False, False]
    for limit in limits:
        await limit.close()


@pytest.mark.rule("RATE-07", "OPS-14")
async def test_refused_session_is_counted_in_the_metrics() -> None:
    config = {"rate_limit": {"per_key": 1}, "telemetry": {"metrics": True}}
    runtime = Server("counted", config=config).runtime
    [opening] = runtime.engine.opening
    assert await opening(None) is None
    refusal = await opening(None)
    assert refusal.details["limit"] == "client"
    assert runtime.metrics is not None
    text = runtime.metrics.render()[1].decode()
    assert 'foundation_rt_rejections_total{reason="rate_limit"} 1.0' in text


@pytest.mark.rule("RATE-03")
async def test_the_clock_is_that_of_the_redis_server(url: str, prefix: str) -> None:
    clock = ManualClock()
    buckets, rate = buckets_of(url, prefix, clock=clock), Rate(1, 3_600_000)
    assert await buckets.take("a", rate) is None
    clock.advance(10**6)
    assert await buckets.take("a", rate) is not None
    soon = Rate(1, 20)
    assert await buckets.take("b", soon) is None
    await until(
        lambda: buckets.take("b", soon), "there is a token", lambda refused: refused is None
    )
    await buckets.close()


@pytest.mark.rule("RATE-04")
async def test_redis_keys_are_hashed_and_expire(url: str, prefix: str) -> None:
    from redis.asyncio import Redis

    buckets = buckets_of(url, prefix)
    assert await buckets.take("client:alice", Rate(10, 5_000)) is None
    await buckets.close()
    async with Redis.from_url(url) as client:
        (key,) = [key async for key in client.scan_iter(f"{prefix}*")]
        assert b"alice" not in key
        assert 0 < await client.pttl(key) <= 10_000


@pytest.mark.rule("RATE-05")
async def test_no_call_is_refused_while_redis_is_away(url: str, prefix: str) -> None:
    async with cable(url) as line:
        clock, logger = ManualClock(), RecordedLogger()
        buckets, rate = buckets_of(line.url, prefix, logger, clock), Rate(1, 3_600_000)
        assert await buckets.take("a", rate) is None
        assert await buckets.take("a", rate) is not None
        await line.cut()
        for _ in range(5):
            assert await buckets.take("a", rate) is None
        await line.mend()
        assert await buckets.take("a", rate) is None
        clock.advance(5)
        assert await buckets.take("a", rate) is not None
        assert [level for level, _ in logger.records] == ["warn", "info"]
        assert "127.0.0.1" not in str(logger.records)
        await buckets.close()


@pytest.mark.rule("RATE-03")
def test_server_may_change_its_loop() -> None:
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
def test_no_warning_with_buckets_in_redis() -> None:
    logger = RecordedLogger()
    settings = RateLimitSection(per_key=5, store="redis://127.0.0.1:1")
    limit_of(settings, logger)
    assert logger.records == []
