"""The store of logins, as sealed texts by key: in memory, in a file, or in Redis (AUTHZ-30).

A login is one value. Whatever changes it is one atomic step, `swap`, which fails if somebody else
has changed it since it was read: so a code counts once, and a refresh token, in all workers.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from ...errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_LOGINS = 100_000
"""Most logins in memory; the one that was changed longest ago makes room."""


class StoreUnavailable(Exception):
    """The store did not answer."""


@contextmanager
def unavailable_after(*errors: type[Exception]) -> Iterator[None]:
    """Raise `StoreUnavailable` in place of the errors of a database."""
    try:
        yield
    except errors as error:
        raise StoreUnavailable(type(error).__name__) from None


class LoginStore(Protocol):
    """Keeps values by key until their time is over."""

    async def start(self) -> None:
        """Open it, on the event loop of all further calls.

        Raises:
            UsageError: it cannot be opened.
        """

    async def close(self) -> None:
        """Close it."""

    async def get(self, key: str) -> str | None:
        """Return a value; None if there is none, or not any more.

        Raises:
            StoreUnavailable: the store did not answer. So do all others.
        """

    async def swap(self, key: str, old: str | None, new: str, ttl_ms: int) -> bool:
        """Put a value in the place of another one; return False if that is not there.

        Args:
            key: of the value.
            old: the value that is there; None: there is none.
            new: the value.
            ttl_ms: how long it is kept.
        """

    async def delete(self, key: str) -> None:
        """Delete a value, if it is there."""


@define(eq=False, repr=False)
class MemoryStore:
    """A `LoginStore` of this process."""

    _now: Callable[[], float] = time.monotonic
    _values: dict[str, tuple[float, str]] = field(factory=dict, init=False)

    async def start(self) -> None:
        """See `LoginStore`."""

    async def close(self) -> None:
        """See `LoginStore`."""

    async def get(self, key: str) -> str | None:
        """See `LoginStore`."""
        until, value = self._values.get(key, (0.0, None))
        if value is None or self._now() < until:
            return value
        del self._values[key]
        return None

    async def swap(self, key: str, old: str | None, new: str, ttl_ms: int) -> bool:
        """See `LoginStore`."""
        if await self.get(key) != old:
            return False
        self._values.pop(key, None)
        now = self._now()
        if len(self._values) >= MAX_LOGINS:  # codes that nobody has used go first
            self._values = {name: each for name, each in self._values.items() if now < each[0]}
        if len(self._values) >= MAX_LOGINS:
            del self._values[next(iter(self._values))]
        self._values[key] = (now + ttl_ms / 1000, new)
        return True

    async def delete(self, key: str) -> None:
        """See `LoginStore`."""
        self._values.pop(key, None)


def make_store(url: str) -> LoginStore:
    """Return the store of `authorization.store`.

    Raises:
        UsageError: there can be none there.
        MissingExtraError: the extra `redis` is not installed.
    """
    if url == "memory":
        return MemoryStore()
    if url.startswith("sqlite:"):
        from .sqlite_store import SqliteStore

        path = url.removeprefix("sqlite:")
        if path.startswith("//"):
            raise UsageError("authorization.store: name a file, as in sqlite:/var/lib/logins.db")
        return SqliteStore(path)
    from .redis_store import RedisStore

    return RedisStore(url)
