"""The link to a Redis server: its client, and whether it answers. Needs the extra `redis`.

A client connects with its first command. It replaces a stale connection, and tries nothing else
again.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from attrs import define, field

from ..errors import MissingExtraError

try:
    from redis import ConnectionPool as BlockingPool
    from redis import Redis as BlockingRedis
    from redis.asyncio import ConnectionPool, Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import ConnectionError, RedisError, TimeoutError
    from redis.retry import Retry as BlockingRetry
except ImportError:
    raise MissingExtraError("A store in Redis", "redis") from None

if TYPE_CHECKING:
    from .clock import Clock
    from .logs.logger import StructuredLogger

T = TypeVar("T")

FAILURES = RedisError, OSError
"""The exceptions of a command that Redis refuses or does not answer."""

NO_ANSWER = ConnectionError, TimeoutError, OSError
"""Those of a command that is not answered, and may be tried again."""


def is_url(url: str) -> bool:
    """Return whether both clients take a URL, with its parameters; nothing is sent (CONF-29)."""
    try:
        for pool in (BlockingPool, ConnectionPool):
            pool.from_url(url).make_connection()
        parts = urlsplit(url)
    except Exception:  # the classes get the parameters as they are: each fails in its own way
        return False
    if parts.scheme == "unix":
        return len(parts.path) > 1
    # The clients take database 0 for one that is no number.
    return re.fullmatch("/?|/[0-9]{1,9}/?", parts.path) is not None


def connect(url: str, seconds: float, **options: Any) -> Redis:
    """Return a client for one event loop.

    Args:
        url: the URL of the server; may hold a password, and is never shown.
        seconds: the longest wait for a connection, and for each response.
        options: more of the client.
    """
    waits: dict[str, Any] = {"socket_timeout": seconds, "socket_connect_timeout": seconds}
    return Redis.from_url(url, retry=Retry(NoBackoff(), 1), **waits, **options)


def connect_blocking(url: str, seconds: float) -> BlockingRedis:
    """Return a client for worker threads; its arguments are those of `connect`."""
    # What was not answered in time is not tried again.
    retry = BlockingRetry(NoBackoff(), 1, supported_errors=(ConnectionError,))
    waits: dict[str, Any] = {"socket_timeout": seconds, "socket_connect_timeout": seconds}
    return BlockingRedis.from_url(url, retry=retry, **waits)


@define(eq=False, repr=False)
class Outage:
    """The failures of Redis for one user of it: logged once, and once when it works again.

    Safe from any thread.

    Args:
        logger: logs both.
        fails: the message while Redis fails, a warning.
        works: the message when all parts work again.
        clock: times the pause; None if there is none.
        pause_seconds: how long after a failure Redis is left alone.
    """

    _logger: StructuredLogger
    _fails: str
    _works: str
    _clock: Clock | None = None
    _pause_seconds: float = 0.0
    _until: float = field(default=0.0, init=False)
    _failing: set[str] = field(factory=set, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    @property
    def pauses(self) -> bool:
        """Return whether Redis has failed a moment ago, and is left alone."""
        clock = self._clock
        return bool(self._failing) and clock is not None and clock.monotonic() < self._until

    def note(self, error: Exception | None, part: str = "") -> None:
        """Note that a command has failed, or None: it has worked.

        Args:
            error: of the command.
            part: of the user; another part that works says nothing of this one.
        """
        if error is None and not self._failing:
            return
        with self._lock:
            was_failing = bool(self._failing)
            if error is None:
                self._failing.discard(part)
            else:
                self._failing.add(part)
                if self._clock is not None:
                    self._until = self._clock.monotonic() + self._pause_seconds
            is_failing = bool(self._failing)
        if error is not None and not was_failing:
            self._logger.warn(self._fails, {"error": {"type": type(error).__name__}})
        elif was_failing and not is_failing:
            self._logger.info(self._works)

    async def answer(self, command: Awaitable[T], part: str = "") -> T | None:
        """Return the answer to a command; None if Redis fails. Both are noted."""
        try:
            found = await command
        except FAILURES as error:
            self.note(error, part)
            return None
        self.note(None, part)
        return found
