"""What is kept for clients that do not read their answers, bounded over all connections (HTTP-29).

A connection *waits* from the moment its transport has more than `UNCOUNTED_BYTES` to send until the
client has taken most of it. Nothing is added to its transport meanwhile, so what its client has
read is the difference of two sizes. What the application keeps for it, *held* bytes, is counted
too. The sum is worked out when it may be too large: what was counted when a connection began to
wait is never less than what is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from attrs import define, field

UNCOUNTED_BYTES = 16 * 1024
"""What a transport takes before its connection waits; so much of each connection is not counted."""

_FAIR_SECONDS = 1.0
"""A client that has had less time than this to read is closed only after all others."""


class Reader(Protocol):
    """A connection, as far as it is read from.

    Attributes:
        held: bytes that the application keeps for it.
    """

    held: int

    def unsent(self) -> int:
        """Return how many bytes its transport has not sent."""
        ...

    def cut(self) -> None:
        """End the connection at once; what it has not sent is dropped."""
        ...


@define(eq=False, repr=False)
class _Wait:
    """A connection that waits.

    Attributes:
        since: seconds, of the clock.
        first: bytes that were unsent when it began to wait.
        counted: bytes that are counted as unsent now, at least as many as there are.
    """

    since: float
    first: int
    counted: int


@define(eq=False, repr=False)
class Unread:
    """The bytes that all clients of a server have not read; belongs to one event loop.

    Args:
        max_bytes: how many there may be; one connection alone may have more.
        now: the time in seconds.
    """

    _max_bytes: int
    _now: Callable[[], float]
    _counted: int = field(default=0, init=False)
    _waiting: dict[Reader, _Wait] = field(factory=dict, init=False)

    @property
    def counted(self) -> int:
        """Bytes counted now, at least as many as there are."""
        return self._counted

    def hold(self, reader: Reader, size: int) -> None:
        """Count `size` bytes more, or fewer, that the application keeps for `reader`."""
        reader.held += size
        self._counted += size
        if size > 0:
            self._bound()

    def wait(self, reader: Reader) -> None:
        """The transport of `reader` has more to send than its client takes."""
        size = reader.unsent()
        self._waiting[reader] = _Wait(self._now(), size, size)
        self._counted += size
        self._bound()

    def go_on(self, reader: Reader) -> None:
        """The client has taken most of it, or is gone."""
        wait = self._waiting.pop(reader, None)
        if wait is not None:
            self._counted -= wait.counted

    def forget(self, reader: Reader) -> None:
        """The connection is no more."""
        self.go_on(reader)
        self._counted -= reader.held
        reader.held = 0

    def _bound(self) -> None:
        if self._counted <= self._max_bytes:
            return
        for reader, wait in self._waiting.items():
            unsent = reader.unsent()
            self._counted -= wait.counted - unsent
            wait.counted = unsent
        while self._counted > self._max_bytes and len(self._waiting) > 1:
            slowest = min(self._waiting, key=self._rank)
            self.forget(slowest)
            slowest.cut()

    def _rank(self, reader: Reader) -> tuple[bool, float, float]:
        """Less for a client that has read less in the time it had (HTTP-29)."""
        wait = self._waiting[reader]
        seconds = self._now() - wait.since
        taken = wait.first - wait.counted
        return seconds < _FAIR_SECONDS, taken / max(seconds, _FAIR_SECONDS), wait.since
