"""Ids of the requests of clients."""

from __future__ import annotations

import os
from typing import Protocol

from .ids import refill


class RequestIdGenerator(Protocol):
    """Generates unique ids for the requests of a client (ID-01)."""

    def request_id(self) -> str:
        """Return the id of one request of a client."""
        ...


class UuidRequestIds:
    """Random ids for the requests of one client; safe to share between threads (ID-01).

    A program may have any number of clients, and a hook for forks can never be removed: 0.6 KB for
    each. So every call compares the process id, which takes 0.15 us of a request.
    """

    __slots__ = ("_pool", "_process")

    def __init__(self) -> None:
        self._pool: list[str] = []
        self._process = 0

    def request_id(self) -> str:
        """Return a random UUID v4."""
        process = os.getpid()
        if process != self._process:  # a forked child leaves its parent's ids alone (ID-02)
            self._pool, self._process = [], process
        try:
            return self._pool.pop()
        except IndexError:
            return refill(self._pool)
