"""The sessions of a server: from an id or a key, in any thread, to the connection behind it.

The directory knows a connection as long as its host keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import ref

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..effects import Effect
    from ..session import Session
    from .connection import Connection


class SessionDirectory:
    """The sessions of one server, or of several that share it; safe from any thread.

    A plain class: as an attrs class it would cost every start 0.25 ms.
    """

    __slots__ = ("_connections", "_ids", "_ids_by_key")

    def __init__(self) -> None:
        self._ids = count(1)
        self._connections: dict[int, ref[Connection]] = {}
        self._ids_by_key: dict[str, int] = {}

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
        connection = self.connection_of(session_id)
        if connection is None:
            return
        send = partial(connection.apply, decide, *arguments)
        # In place where that is allowed: queued, the notifications to thousands of sessions took
        # 5 KB each.
        if connection.scheduler.is_here():
            send()
        else:
            connection.scheduler.return_to_host(send)

    def connection_of(self, session_id: int) -> Connection | None:
        """Return the connection of a session; None if it is not there any more."""
        known = self._connections.get(session_id)
        return None if known is None else known()

    @property
    def is_empty(self) -> bool:
        """Return whether no session is there."""
        return not self._connections

    def connections(self) -> Iterator[Connection]:
        """Yield the connection of every session that is there."""
        for known in self._connections.copy().values():
            connection = known()
            if connection is not None:
                yield connection
