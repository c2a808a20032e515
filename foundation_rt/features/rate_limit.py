"""The rate limit: how many calls a client may make, around the decision about each (RATE-06).

Each client has a token bucket. It is full at first and is refilled evenly within the window, and
each call takes one token (GCRA, which keeps a bucket as one number). So the memory for a client
does not grow with its calls. Buckets are kept in this process, or in Redis for all processes of a
server, by the clock of the Redis server. Needs the extra `http` (pyrate-limiter), and for Redis the
extra `redis`.

Buckets in this process answer at once, and the call is decided in the same step. A call that waits
for Redis can be cancelled like any other call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from ..errors import ErrorCode, MissingExtraError, StructuredError, ToolCompletionOutcome
from ..kernel.feature import RuntimeFeature
from ..kernel.records import completion_record
from ..kernel.registry.tool_definition import advertised_name
from ..protocol.methods import TOOLS_CALL, facts
from ..protocol.principal import identity_of
from .waits import early_call, wait

try:
    from pyrate_limiter import Rate
    from pyrate_limiter.abstracts.algorithm import GCRA
except ImportError:
    raise MissingExtraError("A rate limit", "http-full") from None

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from ..base.clock import Clock
    from ..base.config.feature_sections import RateLimitSection
    from ..base.logs.logger import StructuredLogger
    from ..base.redis_link import Outage
    from ..kernel.dispatcher import Decide, Dispatcher
    from ..kernel.effects import Effect
    from ..kernel.invocation import Invocation
    from ..kernel.session import Session
    from ..protocol.jsonrpc import Request
    from ..protocol.peer import Peer
    from ..protocol.principal import Principal

MAX_KEYS = 100_000
"""Most buckets in memory, of clients and of pairs of client and tool."""

ANONYMOUS = "anonymous"
"""The key of all clients without a principal, together."""

REASON = "rate_limit"
"""The `reason` of every refusal of a rate limit."""

_TIMEOUT_SECONDS = 1.0
_RETRY_SECONDS = 5.0

_ALGORITHM = GCRA()

# pyrate-limiter's own script takes the time of the calling process. Here it is the Redis server's:
# the clocks of several processes would refill a bucket differently.
_SCRIPT = f"""
local time = redis.call('TIME')
ARGV[1] = time[1] * 1000 + math.floor(time[2] / 1000)
{_ALGORITHM.redis_script()}
"""


class Buckets(Protocol):
    """The token buckets of all clients.

    Attributes:
        is_local: `take` never waits.
    """

    is_local: bool

    async def take(self, key: str, rate: Rate) -> int | None:
        """Take one token of `key`; return None, or in how many ms there will be one."""
        ...

    async def close(self) -> None:
        """Release the buckets; no token is taken after this."""
        ...


@define(eq=False, repr=False)
class RateLimit(RuntimeFeature):
    """Refuses the calls of a client that has made too many, before any other check.

    Args:
        buckets: the token buckets of the clients.
        dispatcher: decides about the calls that are admitted.
        name_of: returns the name of the tool that a client calls; "" if there is none.
        per_client: the rate of all calls of a client; None for no limit.
        per_tool: the rate of a client's calls of one tool; None for no limit.
        tools: the rates of single tools, by the names that clients use, instead of `per_tool`.

    Attributes:
        call_observers: are given every refused call and its error.
        session_observers: are given the error of every refused session.
    """

    _buckets: Buckets
    _dispatcher: Dispatcher
    _name_of: Callable[[str], str]
    _per_client: Rate | None
    _per_tool: Rate | None
    _tools: Mapping[str, Rate | None] = field(factory=dict)
    call_observers: list[Callable[[Invocation, StructuredError], object]] = field(
        factory=list, init=False
    )
    session_observers: list[Callable[[StructuredError], object]] = field(factory=list, init=False)

    @property
    def needs_event_loop(self) -> bool:
        """Return whether calls wait for another process."""
        return not self._buckets.is_local

    def around(
        self, session: Session, peer: Peer | None, request: Request, decide: Decide
    ) -> list[Effect]:
        """Return what `decide` returns, or the refusal of a call too many (RATE-01, RATE-02)."""
        if peer is None or not self._dispatcher.is_call(request.method):
            return decide()
        name = _name_of(request)
        tool = name if request.method == TOOLS_CALL else None
        if not self._buckets.is_local:
            call = early_call(self._dispatcher, session, peer, request, name)
            judge = partial(self._judge, session.principal, tool)
            return wait(self._dispatcher, call, judge, partial(self._continue, decide))
        refusal = _result_of(self._judge(session.principal, tool))
        if refusal is None:
            return decide()
        return self.refuse(early_call(self._dispatcher, session, peer, request, name), refusal)

    def _continue(
        self, decide: Decide, call: Invocation, refusal: StructuredError | None
    ) -> list[Effect]:
        """Decide about the request, or refuse it: the buckets have answered (RATE-08)."""
        return decide() if refusal is None else self.refuse(call, refusal)

    async def opening(self, principal: Principal | None) -> StructuredError | None:
        """Count a new session of `principal`; return why it may have none now (RATE-07)."""
        refusal = await self._judge(principal, None)
        if refusal is not None:
            for observe in self.session_observers:
                observe(refusal)
        return refusal

    async def close(self) -> None:
        """Release the buckets."""
        await self._buckets.close()

    def refuse(self, call: Invocation, refusal: StructuredError) -> list[Effect]:
        """Return the reply and the record of a call whose client has made too many."""
        for observe in self.call_observers:
            observe(call, refusal)
        record = completion_record(call, ToolCompletionOutcome.TOOL_ERROR, refusal, 0.0)
        record.refusal = REASON
        return [self._dispatcher.calls.error_reply(call, refusal), record]

    async def _judge(self, principal: Principal | None, tool: str | None) -> StructuredError | None:
        """Take one token of each bucket; return the error if one of them is empty."""
        identity = identity_of(principal)
        client = ANONYMOUS if identity is None else f"client:{identity}"
        refusal = await self._take(client, self._per_client, "client")
        if refusal is not None or tool is None:
            return refusal
        # All unknown names share a bucket: else a client could create any number of them.
        name = self._name_of(tool)
        rate = self._tools.get(name, self._per_tool)
        return await self._take(f"{name}\n{client}", rate, "tool")

    async def _take(self, key: str, rate: Rate | None, limit: str) -> StructuredError | None:
        if rate is None:
            return None
        retry_after_ms = await self._buckets.take(key, rate)
        if retry_after_ms is None:
            return None
        return StructuredError(
            ErrorCode.RESOURCE_EXHAUSTED,
            f"Too many calls: at most {rate.limit} in {rate.interval} ms; try again later",
            {"reason": REASON, "limit": limit, "retryAfterMs": retry_after_ms},
        )


def _name_of(request: Request) -> str:
    """Return the name of a call's target; "" if it has none."""
    params = request.params
    name = params.get(facts(request.method).target) if type(params) is dict else None
    return name if type(name) is str else ""


def _result_of(judging: Coroutine[Any, Any, StructuredError | None]) -> StructuredError | None:
    """Return the result of a coroutine that never waits."""
    try:
        judging.send(None)
    except StopIteration as done:
        result: StructuredError | None = done.value
        return result
    raise RuntimeError("buckets that are local have waited")


@define(eq=False, repr=False)
class MemoryBuckets:
    """Buckets in this process; beyond the limit the least recently used is dropped (RATE-04).

    Args:
        clock: refills the buckets.
        max_keys: how many buckets are kept.
    """

    _clock: Clock
    _max_keys: int = MAX_KEYS
    _states: dict[str, tuple[float, ...]] = field(factory=dict, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    is_local = True

    def __len__(self) -> int:
        return len(self._states)

    async def take(self, key: str, rate: Rate) -> int | None:
        """Take one token of `key`; return None, or in how many ms there will be one."""
        # Above 0 from the start: a state of 0 stands for a key that was never used.
        now = round(self._clock.monotonic() * 1000) + 1000
        with self._lock:  # connections may be fed in several threads
            state = self._states.pop(key, None) or _ALGORITHM.initial([rate])
            self._states[key], decision = _ALGORITHM.step([rate], state, now, 1)
            if len(self._states) > self._max_keys:
                del self._states[next(iter(self._states))]
        return None if decision.allowed else decision.retry_after_ms

    async def close(self) -> None:
        """Drop all buckets."""
        self._states.clear()


@define(eq=False, repr=False)
class RedisBuckets:
    """Buckets in Redis; while it does not answer, no call is refused (RATE-05).

    Args:
        url: the URL of the server; it may contain a password and is never shown.
        clock: times the attempts to reach a server that does not answer.
        logger: logs when Redis stops answering and when it answers again.
        prefix: the prefix of all keys.

    Raises:
        MissingExtraError: the extra `redis` is not installed.
    """

    _url: str
    _clock: Clock
    _logger: StructuredLogger
    _prefix: str = "foundation-rt:rate:"
    _redis: Redis | None = field(default=None, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _outage: Outage = field(init=False)

    is_local = False

    def __attrs_post_init__(self) -> None:
        from ..base.redis_link import Outage

        self._outage = Outage(
            self._logger,
            "the rate limit's Redis does not answer: no call is refused meanwhile",
            "the rate limit's Redis answers again",
            self._clock,
            _RETRY_SECONDS,
        )

    async def take(self, key: str, rate: Rate) -> int | None:
        """Take one token of `key`; return None, or in how many ms there will be one."""
        if self._outage.pauses:
            return None
        reply = await self._outage.answer(self._run(self._name(key, rate), rate))
        if reply is None:
            return None
        failed, retry_after_ms = reply
        return None if failed < 0 else retry_after_ms

    async def close(self) -> None:
        """Close the connections of the running loop."""
        if self._redis is not None and self._loop is asyncio.get_running_loop():
            await self._redis.aclose()
        self._redis = None

    async def _run(self, name: str, rate: Rate) -> Sequence[int]:
        # Twice the window: by then the bucket is full, and the key is not needed.
        arguments = [0, 1, 2 * rate.interval, 1, *_ALGORITHM.redis_args([rate])]
        script = self._client().register_script(_SCRIPT)
        reply: Sequence[int] = await script(keys=[name], args=arguments)
        return reply

    def _client(self) -> Redis:
        """Return the client of the running loop: connections belong to the loop that made them."""
        from ..base.redis_link import connect

        loop = asyncio.get_running_loop()
        if self._redis is None or self._loop is not loop:
            self._loop = loop
            self._redis = connect(self._url, _TIMEOUT_SECONDS)
        return self._redis

    def _name(self, key: str, rate: Rate) -> str:
        # Hashed: subjects and names come from outside, may be long, and may be private. The limit
        # is part of the key because the stored number has another meaning under another limit.
        digest = sha256(f"{rate.limit}/{rate.interval}\n{key}".encode()).hexdigest()
        return self._prefix + digest


def make_rate_limit(
    settings: RateLimitSection,
    clock: Clock,
    logger: StructuredLogger,
    dispatcher: Dispatcher,
    name_of: Callable[[str], str],
    separator: str = "/",
) -> RateLimit:
    """Return the rate limit of `settings`, which must have one (RATE-03).

    A tool that `settings` name and that does not exist is logged: it may come later (RATE-10).

    Args:
        settings: the `rate_limit` section of the configuration.
        clock: refills the buckets in memory.
        logger: logs the state of the buckets' store.
        dispatcher: decides about the calls that are admitted.
        name_of: returns the name of the tool that a client calls; "" if there is none.
        separator: stands for `/` in the names that clients use (REG-11).

    Raises:
        MissingExtraError: the extra `redis` is needed.
    """
    tools = {
        advertised_name(name, separator): _rate(calls, settings.window_ms)
        for name, calls in settings.calls_by_tool().items()
    }
    unknown = sorted(name for name in tools if name_of(name) != name)
    if unknown:
        logger.warn("rate_limit.tools names tools that do not exist", {"tools": unknown})
    buckets: Buckets
    if settings.store == "memory":
        logger.warn(
            "rate limits count in this process alone: with several, set rate_limit.store to Redis"
        )
        buckets = MemoryBuckets(clock)
    else:
        buckets = RedisBuckets(settings.store, clock, logger)
    return RateLimit(
        buckets,
        dispatcher,
        name_of,
        _rate(settings.per_key, settings.window_ms),
        _rate(settings.per_tool, settings.window_ms),
        tools,
    )


def _rate(calls: int, window_ms: int) -> Rate | None:
    return Rate(calls, window_ms) if calls else None
