"""Notifying the clients of a server of a list that has changed (LIFE-10)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..base.clock import Clock
    from ..kernel.engine.connection import Connection
    from ..kernel.engine.directory import SessionDirectory
    from ..protocol.principal import Principal

_HOLD_SECONDS = 0.05
_AT_ONCE = 2

SeenBy = Callable[["Principal | None"], bool]
"""Returns whether the clients of a principal are notified of a change."""


class _Held:
    """Changes of one list that are to be announced together.

    Attributes:
        until: changes are held until this time, in monotonic seconds.
        at_once: how many may be announced before.
        seen_by: for each change that was not announced, who sees it.
    """

    __slots__ = ("at_once", "seen_by", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self.at_once = 0
        self.seen_by: list[SeenBy | None] = []

    def hold(self, now: float, *, at_once: int) -> None:
        """Hold changes from `now` on, but for the first `at_once`."""
        self.until, self.at_once = now + _HOLD_SECONDS, at_once


class ListChanges:
    """Notifies the clients of one server, or of several that share it; safe from any thread.

    A plain class: as an attrs class it would cost every start 0.25 ms.

    Args:
        directory: finds the sessions of the clients.
        clock: tells how long changes of a list are held.

    Attributes:
        announcing: each is called with a list that has changed, when its clients are notified, and
            who sees the change; None for all.
    """

    __slots__ = ("__weakref__", "_clock", "_held", "_lock", "announcing", "directory")

    def __init__(self, directory: SessionDirectory, clock: Clock) -> None:
        self.directory = directory
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self.announcing: list[Callable[[str, SeenBy | None], object]] = []

    def list_changed(self, kind: str, *, seen_by: SeenBy | None = None) -> None:
        """Notify clients of a changed list of `tools`, `resources` or `prompts` (LIFE-10).

        Two changes are announced at once, such as those that replace a tool; those of the next
        50 ms together, after them.

        Args:
            kind: of the list.
            seen_by: returns whether a principal's clients are notified (SUB-15, VIS-07); None: all
                are.
        """
        if self.directory.is_empty:
            return
        with self._lock:
            held = self._held.setdefault(kind, _Held())
            held.seen_by.append(seen_by)
            is_first = len(held.seen_by) == 1
            wait = held.until - self._clock.monotonic()
            if wait <= 0:
                held.hold(self._clock.monotonic(), at_once=_AT_ONCE)
            is_at_once = held.at_once > 0
            held.at_once -= is_at_once
        if is_at_once:
            self._announce(kind, held)
        elif is_first:
            for connection in self.directory.connections():
                connection.scheduler.run_later(wait, partial(self._announce_held, kind, held))
                return

    def _announce_held(self, kind: str, held: _Held) -> None:
        """Announce the changes of a list that were held, and hold all of the next ones."""
        with self._lock:
            held.hold(self._clock.monotonic(), at_once=0)
        self._announce(kind, held)

    def _announce(self, kind: str, held: _Held) -> None:
        with self._lock:
            changes, held.seen_by = held.seen_by, []
        seen_by = None if None in changes else partial(_is_seen, changes)
        for connection in self.directory.connections():
            session = connection.session
            if not session.stateless and (seen_by is None or seen_by(session.principal)):
                _notify_of_list(connection, kind)
        for announce in self.announcing:
            announce(kind, seen_by)

    def list_of_session_changed(self, kind: str, key: str) -> None:
        """Notify the client of one session of a changed list; of an ended one, do nothing."""
        connection = self.directory.connection_of(self.directory.id_of_key(key))
        if connection is not None:
            _notify_of_list(connection, kind)


def _is_seen(changes: Iterable[SeenBy | None], principal: Principal | None) -> bool:
    return any(seen_by is None or seen_by(principal) for seen_by in changes)


def _notify_of_list(connection: Connection, kind: str) -> None:
    decide = connection.dispatcher.list_changed
    connection.scheduler.return_to_host(partial(connection.apply, decide, kind))
