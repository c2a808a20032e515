"""Identifiers: random ones for production, counted ones for tests and vectors.

There are four kinds, all UUID version 4 (RFC 9562): a *run id* identifies one invocation of a tool,
a *correlation id* one chain of requests, a *connection correlation id* one connection, a *request
id* one request of a client. Every component that needs ids is given a generator.
"""

from __future__ import annotations

import os
import sys
import weakref
from itertools import count
from typing import Protocol

# One refill makes this many ids and holds a call up for 20 us.
_POOL_IDS = 64
_GROUPS = len("????-????-????-4???-????-????-????-????\n")  # RFC 9562 section 4: the version is 4
_VERSION, _VARIANT = 15, 20
_TO_VARIANT = bytes.maketrans(b"0123456789abcdef", b"89ab" * 4)  # RFC 9562 section 4.1


class IdGenerator(Protocol):
    """Generates unique identifiers (ID-01)."""

    def run_id(self) -> str:
        """Return the id of one invocation of a tool."""
        ...

    def correlation_id(self) -> str:
        """Return the id of one chain of requests whose client sent none."""
        ...

    def connection_correlation_id(self) -> str:
        """Return the id of one connection."""
        ...


def _random_ids() -> list[str]:
    # For the whole pool at once: the loops run in C. Slicing each id out of its own 32 digits takes
    # several times as long. Groups of four digits are made, and three separators removed.
    lines = bytearray(os.urandom(16 * _POOL_IDS).hex("-", 2).encode()) + b"-"
    lines[_VERSION::_GROUPS] = b"4" * _POOL_IDS
    lines[_VARIANT::_GROUPS] = lines[_VARIANT::_GROUPS].translate(_TO_VARIANT)
    lines[_GROUPS - 1 :: _GROUPS] = b"\n" * _POOL_IDS
    del lines[34::_GROUPS], lines[29 :: _GROUPS - 1], lines[4 :: _GROUPS - 2]
    return lines.decode().split()


def refill(pool: list[str]) -> str:
    """Return a new id, and add more of them to the pool."""
    fresh = _random_ids()
    taken = fresh.pop()
    pool.extend(fresh)
    return taken


class UuidGenerator:
    """Random ids from the operating system's generator; safe to share between threads (ID-01).

    Ids are made in batches, because one `os.urandom` call alone costs 0.5 us: an id takes 0.4 us in
    total, against 2.5 us for ``str(uuid.uuid4())``. A forked child drops the rest of the batch, so
    that parent and child never generate the same id (ID-02).
    """

    __slots__ = ("__weakref__", "_pool")

    def __init__(self) -> None:
        self._pool: list[str] = []
        # Comparing the process id in each call would cost 0.15 us. The hook cannot be removed, so
        # it holds a weak reference.
        this = weakref.ref(self)

        def forget() -> None:
            if (generator := this()) is not None:
                generator._pool = []

        if sys.platform != "win32":
            os.register_at_fork(after_in_child=forget)

    def run_id(self) -> str:
        """Return a random UUID v4."""
        try:
            return self._pool.pop()  # atomic: no two threads get the same one
        except IndexError:
            return refill(self._pool)

    correlation_id = connection_correlation_id = run_id


class SequentialIds:
    """Ids that count from 1 and show their kind: for tests and replayed sessions (ID-03).

    The n-th of each kind is ``00000000-0000-4000-V000-n``, n in twelve hexadecimal digits; V is 8
    for run ids, 9 for correlation ids, a for connection correlation ids and b for request ids. Each
    is a valid UUID v4.
    """

    __slots__ = ("_connections", "_correlations", "_requests", "_runs")

    def __init__(self) -> None:
        self._runs = count(1)
        self._correlations = count(1)
        self._connections = count(1)
        self._requests = count(1)

    def run_id(self) -> str:
        """Return the next run id."""
        return f"00000000-0000-4000-8000-{next(self._runs):012x}"

    def correlation_id(self) -> str:
        """Return the next correlation id."""
        return f"00000000-0000-4000-9000-{next(self._correlations):012x}"

    def connection_correlation_id(self) -> str:
        """Return the next connection correlation id."""
        return f"00000000-0000-4000-a000-{next(self._connections):012x}"

    def request_id(self) -> str:
        """Return the next request id."""
        return f"00000000-0000-4000-b000-{next(self._requests):012x}"
