"""The sessions of a server: from an id or a key, in any thread, to the connection behind it.

The directory knows a connection as long as its host keeps it. It notifies all clients of a list
that has changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import ref

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...base.clock import Clock
    from ...protocol.principal import Principal
    from ..effects import Effect
    from ..session import Session
    from .connection import Connection

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


class SessionDirectory:
    """The sessions of one server, or of several that share it; safe from any thread.

    A plain class: as an attrs class it would cost every start 0.25 ms.

    Args:
        clock: tells how long changes of a list are held.

    Attributes:
        announcing: each is called with a list that has changed, when its clients are notified, and
            who sees the change; None for all.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_connections",
        "_held",
        "_ids",
        "_ids_by_key",
        "_lock",
        "announcing",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._ids = count(1)
        self._connections: dict[int, ref[Connection]] = {}
        self._ids_by_key: dict[str, int] = {}
        self.announcing: list[Callable[[str, SeenBy | None], object]] = []

    def session_id(self) -> int:
        """Return an id that no other session has."""
        return next(self._ids)

    def attach(self, connection: Connection) -> None:
        """Find `connection` by the id of its session from now on."""
        session = connection.session
        if session.id not in self._connections:
            # A host may drop a connection that it never closed.
            self._connections[session.id] = ref(connection, partial(self._detach, session))

    def name_session(self, key: str, session_id: int) -> None:
        """Find a session by the key that its handlers know, until `forget_key`."""
        self._ids_by_key[key] = session_id

    def forget_key(self, key: str | None) -> None:
        """Find a session that has ended no longer."""
        if key is not None:
            self._ids_by_key.pop(key, None)

    def id_of_key(self, key: str) -> int:
        """Return the id of the session of a key; 0 if there is none."""
        return self._ids_by_key.get(key, 0)

    def _detach(self, session: Session, dropped: Any) -> None:
        self._connections.pop(session.id, None)
        self.forget_key(session.key)
        for part in session.parts.values():
            part.close()

    def decide(self, session_id: int, decide: Callable[..., list[Effect]], *arguments: Any) -> None:
        """Perform `decide(session, *arguments)` where the host of the session expects that.

        Nothing is done for a session that is not there any more.
        """
        connection = self._connection_of(session_id)
        if connection is None:
            return
        send = partial(connection.apply, decide, *arguments)
        # In place where that is allowed: queued, the notifications to thousands of sessions took
        # 5 KB each.
        if connection.scheduler.is_here():
            send()
        else:
            connection.scheduler.return_to_host(send)

    def log(self, session_id: int, level: str, line: bytes) -> None:
        """Send a log message, encoded, to a session that lives and wants this level (NOTE-07)."""
        connection = self._connection_of(session_id)
        if connection is not None:
            self.decide(session_id, connection.dispatcher.log_to_session, level, line)

    def _connection_of(self, session_id: int) -> Connection | None:
        known = self._connections.get(session_id)
        return None if known is None else known()

    def list_changed(self, kind: str, *, seen_by: SeenBy | None = None) -> None:
        """Notify clients of a changed list of `tools`, `resources` or `prompts` (LIFE-10).

        Two changes are announced at once, such as those that replace a tool; those of the next
        50 ms together, after them.

        Args:
            kind: of the list.
            seen_by: returns whether a principal's clients are notified (SUB-15, VIS-07); None: all
                are.
        """
        if not self._connections:
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
            for connection in self._live_connections():
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
        for connection in self._live_connections():
            session = connection.session
            if not session.stateless and (seen_by is None or seen_by(session.principal)):
                _notify_of_list(connection, kind)
        for announce in self.announcing:
            announce(kind, seen_by)

    def _live_connections(self) -> Iterator[Connection]:
        for known in self._connections.copy().values():
            connection = known()
            if connection is not None:
                yield connection

    def list_of_session_changed(self, kind: str, key: str) -> None:
        """Notify the client of one session of a changed list; of an ended one, do nothing."""
        connection = self._connection_of(self.id_of_key(key))
        if connection is not None:
            _notify_of_list(connection, kind)


def _is_seen(changes: Iterable[SeenBy | None], principal: Principal | None) -> bool:
    return any(seen_by is None or seen_by(principal) for seen_by in changes)


def _notify_of_list(connection: Connection, kind: str) -> None:
    decide = connection.dispatcher.list_changed
    connection.scheduler.return_to_host(partial(connection.apply, decide, kind))
