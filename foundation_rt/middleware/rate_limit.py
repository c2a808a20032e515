"""How many calls a client may make: a wrapper around the decision about each of them (RATE-06).

A client has a store of calls that is full at first, is filled up evenly within the window, and out
of which each call takes one (GCRA, a token bucket that is kept as one number). So what is kept of a
client does not grow with its calls. Clients are kept in this process, or in Redis for all processes
of a server, by the clock of the Redis server. Needs the extra `http` (pyrate-limiter), and for
Redis the extra `redis`.

The store in this process answers at once, and the call is decided in the same step. Redis is waited
for: meanwhile the call has a `continuation`; it can be cancelled like any call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from ..core.feature_calls import FEATURE
from ..core.invocation import CallOutcome, Invocation, Phase, Returned, Stopped
from ..core.records import completion_record, late_record
from ..core.replies import client_correlation_id
from ..core.tools_call import TOOL
from ..errors import ErrorCode, MissingExtraError, StructuredError, ToolCompletionOutcome
from ..protocol.principal import identity_of
from ..registry.tools import ExecutionMode

try:
    from pyrate_limiter import Rate
    from pyrate_limiter.abstracts.algorithm import GCRA
except ImportError:
    raise MissingExtraError("A rate limit", "http") from None

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from ..clock import Clock
    from ..config.settings import RateLimitSection
    from ..core.context import ToolContext
    from ..core.dispatcher import Dispatcher
    from ..core.effects import Effect
    from ..core.session import Session
    from ..logs.logger import StructuredLogger
    from ..protocol.jsonrpc import Request
    from ..protocol.peer import Peer
    from ..protocol.principal import Principal

    Decide = Callable[[], list[Effect]]

MAX_KEYS = 100_000
"""How many clients, and pairs of client and tool, are remembered in memory."""

ANONYMOUS = "anonymous"
"""All clients that have not said who they are, together."""

REASON = "rate_limit"
"""The `reason` of every refusal of a rate limit."""

_COUNTED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "completion/complete": "ref",
}
"""The methods that are counted, and the member of their params that names what is called."""

_PATIENCE_MS = 60_000

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
    """Where it is kept how much every client may still do.

    Attributes:
        is_local: `take` never waits.
    """

    is_local: bool

    async def take(self, key: str, rate: Rate) -> int | None:
        """Take one call of `key`; return None, or in how many ms there will be one."""
        ...

    async def close(self) -> None:
        """Nothing is taken any more."""
        ...


@define(eq=False, repr=False)
class RateLimit:
    """Refuses the calls of a client that has made too many, before anything of them is checked.

    Args:
        buckets: where it is kept what clients may still do.
        dispatcher: decides about the calls that are let through.
        is_tool: whether a name is that of a tool.
        per_client: how often a client may call anything; None: as it likes.
        per_tool: how often a client may call one tool; None: as it likes.

    Attributes:
        call_observers: are given every call that is refused, and what its client is told.
        session_observers: are given what the client of a refused session is told.
    """

    _buckets: Buckets
    _dispatcher: Dispatcher
    _is_tool: Callable[[str], bool]
    _per_client: Rate | None
    _per_tool: Rate | None
    call_observers: list[Callable[[Invocation, StructuredError], object]] = field(
        factory=list, init=False
    )
    session_observers: list[Callable[[StructuredError], object]] = field(factory=list, init=False)

    @property
    def waits(self) -> bool:
        """Return whether calls wait for an answer from elsewhere, and need an event loop for it."""
        return not self._buckets.is_local

    def __call__(
        self, session: Session, peer: Peer | None, request: Request, decide: Decide
    ) -> list[Effect]:
        """Return what `decide` returns, or the refusal of a call too many (RATE-01, RATE-02)."""
        if peer is None or request.method not in _COUNTED:
            return decide()
        name = _name_of(request)
        tool = name if request.method == "tools/call" else None
        if self._buckets.is_local:
            refusal = _result_of(self._judge(session.principal, tool))
            if refusal is None:
                return decide()
            return self.refuse(self._begin(session, peer, request, name), refusal)
        return [self._admit(self._begin(session, peer, request, name), tool, decide)]

    async def check_session(self, principal: Principal | None) -> StructuredError | None:
        """Count a new session of `principal`; return why it may have none now (RATE-07)."""
        refusal = await self._judge(principal, None)
        if refusal is not None:
            for observe in self.session_observers:
                observe(refusal)
        return refusal

    async def close(self) -> None:
        """No call comes any more."""
        await self._buckets.close()

    def refuse(self, call: Invocation, refusal: StructuredError) -> list[Effect]:
        """The reply and the record of a call whose client has made too many."""
        for observe in self.call_observers:
            observe(call, refusal)
        record = completion_record(call, ToolCompletionOutcome.TOOL_ERROR, refusal.code, 0.0)
        record.refusal = REASON
        return [self._dispatcher.calls.error_reply(call, refusal), record]

    def _begin(self, session: Session, peer: Peer, request: Request, name: str) -> Invocation:
        """Return the call of a request that nothing has checked yet."""
        ids = self._dispatcher.calls.ids
        return Invocation(
            session,
            peer,
            request.id,
            ids.run_id(),
            client_correlation_id(request.params) or ids.correlation_id(),
            request.method,
            name,
            {},
            None,
            session.principal,
            TOOL if request.method == "tools/call" else FEATURE,
        )

    def _admit(self, call: Invocation, tool: str | None, decide: Decide) -> Invocation:
        """Return `call`, which waits for the buckets before anything else (RATE-08)."""

        async def wait(arguments: dict[str, Any], context: ToolContext) -> StructuredError | None:
            return await self._judge(call.principal, tool)

        call.continuation = partial(self._continue, decide)
        call.handler, call.execution, call.timeout_ms = wait, ExecutionMode.ASYNC, _PATIENCE_MS
        call.session.in_flight[call.request_id] = call
        return call

    def _continue(
        self, decide: Decide, call: Invocation, outcome: CallOutcome, duration_ms: float
    ) -> list[Effect]:
        """Decide about the request, or refuse it: the buckets have answered (RATE-08)."""
        if call.phase is not Phase.PENDING:
            return [late_record(call, Stopped(), duration_ms)]
        session = call.session
        del session.in_flight[call.request_id]
        if not isinstance(outcome, Returned):
            return self._dispatcher.calls.answer(call, outcome, duration_ms)
        if outcome.value is not None:
            return self.refuse(call, outcome.value)
        # Later messages of the session may have brought another token of the same principal.
        latest, session.principal = session.principal, call.principal
        try:
            return decide()
        finally:
            session.principal = latest

    async def _judge(self, principal: Principal | None, tool: str | None) -> StructuredError | None:
        """Take one call out of each store; return what to tell a client whose store is empty."""
        identity = identity_of(principal)
        client = ANONYMOUS if identity is None else f"client:{identity}"
        refusal = await self._take(client, self._per_client, "client")
        if refusal is not None or tool is None:
            return refusal
        # Names that no tool has are one: else a client could have any number of stores kept.
        name = tool if self._is_tool(tool) else ""
        return await self._take(f"{name}\n{client}", self._per_tool, "tool")

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
    """What a call names, "" where it names nothing."""
    params = request.params
    name = params.get(_COUNTED[request.method]) if type(params) is dict else None
    return name if type(name) is str else ""


def _result_of(judging: Coroutine[Any, Any, StructuredError | None]) -> StructuredError | None:
    """What a coroutine that never waits returns."""
    try:
        judging.send(None)
    except StopIteration as done:
        result: StructuredError | None = done.value
        return result
    raise RuntimeError("buckets that are local have waited")


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
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    is_local = True

    def __len__(self) -> int:
        return len(self._states)

    async def take(self, key: str, rate: Rate) -> int | None:
        """Take one call of `key`; return None, or in how many ms there will be one."""
        # Behind the first second: a state of 0 stands for a key that was never used.
        now = round(self._clock.monotonic() * 1000) + 1000
        with self._lock:  # connections may be fed in several threads
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

    is_local = False

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
    settings: RateLimitSection,
    clock: Clock,
    logger: StructuredLogger,
    dispatcher: Dispatcher,
    is_tool: Callable[[str], bool],
) -> RateLimit:
    """The rate limit that `settings` ask for, which have one: `is_set()` says so (RATE-03).

    Args:
        dispatcher: decides about the calls that are let through.
        is_tool: whether a name is that of a tool.

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
        dispatcher,
        is_tool,
        _rate(settings.per_key, settings.window_ms),
        _rate(settings.per_tool, settings.window_ms),
    )


def _rate(calls: int, window_ms: int) -> Rate | None:
    return Rate(calls, window_ms) if calls else None
