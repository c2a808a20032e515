"""Logins in Redis, for the workers of all hosts (extra `redis`).

PREFIX{key}    string: a login, sealed; gone when its time is over
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from ...base.redis_link import FAILURES, connect
from .store import unavailable_after

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.commands.core import AsyncScript

_TIMEOUT_SECONDS = 2.0

# A command that was not answered is sent again: the value that it has put there is its own.
_SWAP = """
local found = redis.call('GET', KEYS[1]) or ''
if found == ARGV[2] then return 1 end
if found ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
"""


@define(eq=False, repr=False)
class RedisStore:
    """A `LoginStore` in Redis.

    Args:
        url: of the server; may hold a password, and is never shown.
        prefix: of all keys.
    """

    _url: str
    _prefix: str = "foundation-rt:login:"
    _redis: Redis = field(init=False)
    _swap: AsyncScript = field(init=False)

    async def start(self) -> None:
        """See `LoginStore`; the first command opens the connection."""
        self._redis = connect(self._url, _TIMEOUT_SECONDS, decode_responses=True)
        self._swap = self._redis.register_script(_SWAP)

    async def close(self) -> None:
        """See `LoginStore`."""
        with unavailable_after(*FAILURES):
            await self._redis.aclose()

    async def get(self, key: str) -> str | None:
        """See `LoginStore`."""
        with unavailable_after(*FAILURES):
            found = await self._redis.get(self._prefix + key)
            return None if found is None else str(found)

    async def swap(self, key: str, old: str | None, new: str, ttl_ms: int) -> bool:
        """See `LoginStore`."""
        with unavailable_after(*FAILURES):
            return bool(await self._swap(keys=[self._prefix + key], args=[old or "", new, ttl_ms]))

    async def delete(self, key: str) -> None:
        """See `LoginStore`."""
        with unavailable_after(*FAILURES):
            await self._redis.delete(self._prefix + key)
