"""Changes of resources, as whoever subscribed to them takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from attrs import define, field

from ...errors import UsageError

# Of one subscription, that nobody has taken yet. What a server tells beyond says no more.
_MAX_CHANGES = 1_000


@define(eq=False, repr=False)
class Subscription:
    """An asynchronous iterator over the URIs of resources that have changed.

    A URI that changed several times before it was taken comes once. After a connection was lost
    every URI counts as changed, because nobody knows. It ends when it is closed, or with an
    `MCPError` when the server does not take it any more.

    Args:
        timeout: seconds that the server has to confirm it.

    Attributes:
        uris: what is subscribed to.
    """

    uris: tuple[str, ...]
    timeout: float
    _begin: Callable[[Subscription], None]
    _end: Callable[[Subscription], None]
    _established: asyncio.Event = field(factory=asyncio.Event, init=False)
    _changed: dict[str, None] = field(factory=dict, init=False)
    _wake: asyncio.Event = field(factory=asyncio.Event, init=False)
    _is_entered: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)
    _error: Exception | None = field(default=None, init=False)

    async def __aenter__(self) -> Subscription:
        """Subscribe; returns when the server has confirmed.

        Raises:
            MCPError: it refused, or cannot be reached, or did not confirm in time.
            UsageError: this has been entered before.
        """
        if self._is_entered:
            raise UsageError("a subscription is entered once; make another one")
        self._is_entered = True
        self._begin(self)
        try:
            await self._established.wait()
        except BaseException:
            self.close()
            raise
        if self._error is not None:
            self.close()
            raise self._error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> str:
        if not self._is_entered:
            raise UsageError("a subscription is entered first: async with ... as changes")
        while not self._changed:
            if self._error is not None:
                raise self._error
            if self._is_closed:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        uri = next(iter(self._changed))
        del self._changed[uri]
        return uri

    def close(self) -> None:
        """Unsubscribe; whoever iterates gets what has come so far, and the end."""
        if not self._is_closed:
            self._is_closed = True
            self._wake.set()
            self._end(self)

    def changed(self, uri: str) -> None:
        """A resource has changed: `uri`, or something below it."""
        for each in (uri,) if len(self._changed) < _MAX_CHANGES else self.uris:
            self._changed[each] = None
        self._wake.set()

    @property
    def is_established(self) -> bool:
        """Return whether the server has confirmed it once."""
        return self._established.is_set() and self._error is None

    def established(self) -> None:
        """The server has confirmed it; if not for the first time, everything may have changed."""
        if self.is_established:
            for uri in self.uris:
                self.changed(uri)
        self._established.set()

    def ended(self, error: Exception) -> None:
        """The server does not take it, or not any more."""
        self._error = error
        self._established.set()
        self._wake.set()

    def covers(self, uri: str) -> bool:
        """Whether a change of `uri` is one of what was subscribed to: it, or a part of it."""
        return any(uri == each or uri.startswith(each.rstrip("/") + "/") for each in self.uris)
