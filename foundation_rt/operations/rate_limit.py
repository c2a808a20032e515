"""How many calls a client may make: a middleware that refuses those beyond.

A client has a store of calls that is full at first, is filled up evenly within the window, and out
of which each call takes one (GCRA, a token bucket that is kept as one number). So what is kept of a
client does not grow with its calls. Clients are kept in this process, or in Redis for all processes
of a server, by the clock of the Redis server. Needs the extra `http` (pyrate-limiter), and for
Redis the extra `redis`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from ..errors import ErrorCode, MissingExtraError, ToolError
from ..protocol.principal import identity_of

try:
    from pyrate_limiter import Rate
    from pyrate_limiter.abstracts.algorithm import GCRA
except ImportError:
    raise MissingExtraError("A rate limit", "http") from None

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from ..calls.invocation import Invocation
    from ..clock import Clock
    from ..configuration.sections import RateLimitSection
    from ..logs.logger import StructuredLogger
    from .middleware import Proceed

MAX_KEYS = 100_000
"""How many clients, and pairs of client and tool, are remembered in memory."""

ANONYMOUS = "anonymous"
"""All clients that have not said who they are, together."""

_TIMEOUT_SECONDS = 1.0
_RETRY_SECONDS = 5.0

_ALGORITHM = GCRA()

# pyrate-limiter's own script takes the time of whoever calls it. Here it is the server's: clocks of
# several processes would each refill the store in their own way.
_SCRIPT = f"""
local time = redis.call('TIME')
ARGV[1] = time[1] * 1000 + math.floor(time[2] / 1000)
{_ALGORITHM.redis_script()}
"""


class Buckets(Protocol):
    """Where it is kept how much every client may still do."""

    async def take(self, key: str, rate: Rate) -> int | None:
        """Take one call of `key`; return None, or in how many ms there will be one."""
        ...

    async def close(self) -> None:
        """Nothing is taken any more."""
        ...


@define(eq=False, repr=False)
class RateLimit:
    """The middleware.

    Args:
        buckets: where it is kept what clients may still do.
        per_client: how often a client may call anything; None: as it likes.
        per_tool: how often a client may call one tool; None: as it likes.

    Attributes:
        observers: are given every call that is refused, and what its client is told.
    """

    _buckets: Buckets
    _per_client: Rate | None
    _per_tool: Rate | None
    observers: list[Callable[[Invocation, ToolError], object]] = field(factory=list, init=False)

    async def __call__(self, call: Invocation, proceed: Proceed) -> Any:
        """Run the rest of the call, unless its client has made too many (RATE-01, RATE-02).

        Raises:
            ToolError: RESOURCE_EXHAUSTED, with the time to wait.
        """
        identity = identity_of(call.principal)
        client = ANONYMOUS if identity is None else f"client:{identity}"
        if self._per_client is not None:
            await self._take(call, client, self._per_client, "client")
        if self._per_tool is not None and call.method == "tools/call":
            await self._take(call, f"{call.name}\n{client}", self._per_tool, "tool")
        return await proceed()

    async def close(self) -> None:
        """No call comes any more."""
        await self._buckets.close()

    async def _take(self, call: Invocation, key: str, rate: Rate, limit: str) -> None:
        retry_after_ms = await self._buckets.take(key, rate)
        if retry_after_ms is None:
            return
        refusal = ToolError(
            ErrorCode.RESOURCE_EXHAUSTED,
            f"Too many calls: at most {rate.limit} in {rate.interval} ms; try again later",
            {"reason": "rate_limit", "limit": limit, "retryAfterMs": retry_after_ms},
        )
        for observe in self.observers:
            observe(call, refusal)
        raise refusal


@define(eq=False, repr=False)
class MemoryBuckets:
    """Keeps clients in this process; of too many it forgets who has called longest ago (RATE-04).

    Args:
        clock: says how much of a store has been filled up.
        max_keys: how many are remembered.
    """

    _clock: Clock
    _max_keys: int = MAX_KEYS
    _states: dict[str, tuple[float, ...]] = field(factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._states)

    async def take(self, key: str, rate: Rate) -> int | None:
        """Take one call of `key`; return None, or in how many ms there will be one."""
        # Behind the first second: a state of 0 stands for a key that was never used.
        now = round(self._clock.monotonic() * 1000) + 1000
        state = self._states.pop(key, None) or _ALGORITHM.initial([rate])
        self._states[key], decision = _ALGORITHM.step([rate], state, now, 1)
        if len(self._states) > self._max_keys:
            del self._states[next(iter(self._states))]
        return None if decision.allowed else decision.retry_after_ms

    async def close(self) -> None:
        """Forget everybody."""
        self._states.clear()


@define(eq=False, repr=False)
class RedisBuckets:
    """Keeps clients in Redis; while it does not answer, nobody is refused (RATE-05).

    Args:
        url: of the server; may hold a password, and is shown nowhere.
        clock: says when to try again.
        logger: told when Redis goes and comes.
        prefix: of all keys.

    Raises:
        MissingExtraError: the extra `redis` is not installed.
    """

    _url: str
    _clock: Clock
    _logger: StructuredLogger
    _prefix: str = "foundation-rt:rate:"
    _redis: Redis | None = field(default=None, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _away_until: float | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        try:
            import redis.asyncio  # noqa: F401 - only to know whether it is there
        except ImportError:
            raise MissingExtraError("A rate limit in Redis", "redis") from None

    async def take(self, key: str, rate: Rate) -> int | None:
        """Take one call of `key`; return None, or in how many ms there will be one."""
        from redis.exceptions import RedisError

        if self._away_until is not None and self._clock.monotonic() < self._away_until:
            return None
        try:
            failed, retry_after_ms = await self._run(self._name(key, rate), rate)
        except (RedisError, OSError) as error:
            if self._away_until is None:
                self._logger.warn(
                    "the rate limit's Redis does not answer: nobody is refused meanwhile",
                    {"error": {"type": type(error).__name__}},
                )
            self._away_until = self._clock.monotonic() + _RETRY_SECONDS
            return None
        if self._away_until is not None:
            self._away_until = None
            self._logger.info("the rate limit's Redis answers again")
        return None if failed < 0 else retry_after_ms

    async def close(self) -> None:
        """Close the connections of the running loop."""
        if self._redis is not None and self._loop is asyncio.get_running_loop():
            await self._redis.aclose()
        self._redis = None

    async def _run(self, name: str, rate: Rate) -> Sequence[int]:
        # Twice the window: until then the store has been filled up, and the key says nothing more.
        arguments = [0, 1, 2 * rate.interval, 1, *_ALGORITHM.redis_args([rate])]
        script = self._client().register_script(_SCRIPT)
        reply: Sequence[int] = await script(keys=[name], args=arguments)
        return reply

    def _client(self) -> Redis:
        """The client of the running loop: connections belong to the loop that made them."""
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        loop = asyncio.get_running_loop()
        if self._redis is None or self._loop is not loop:
            self._loop = loop
            self._redis = Redis.from_url(
                self._url,
                socket_timeout=_TIMEOUT_SECONDS,
                socket_connect_timeout=_TIMEOUT_SECONDS,
                retry=Retry(NoBackoff(), 1),  # a connection that has gone stale is made anew
            )
        return self._redis

    def _name(self, key: str, rate: Rate) -> str:
        # Hashed: subjects and names come from outside, are long, and are nobody's business. With
        # another limit the number that is kept means something else.
        digest = sha256(f"{rate.limit}/{rate.interval}\n{key}".encode()).hexdigest()
        return self._prefix + digest


def make_rate_limit(
    settings: RateLimitSection, clock: Clock, logger: StructuredLogger
) -> RateLimit:
    """The rate limit that `settings` ask for, which have one: `is_set()` says so (RATE-03).

    Raises:
        MissingExtraError: the extra `redis` is needed.
    """
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
        _rate(settings.per_key, settings.window_ms),
        _rate(settings.per_tool, settings.window_ms),
    )


def _rate(calls: int, window_ms: int) -> Rate | None:
    return Rate(calls, window_ms) if calls else None
