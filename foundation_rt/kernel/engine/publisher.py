"""Publishing: from an event in any thread to the connections of its subscribers.

The core names sessions by their ids. The publisher knows which connection an id stands for, as long
as the host keeps that connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import ref

from ...protocol.methods import (
    NOTIFICATIONS_ELICITATION_COMPLETE,
    NOTIFICATIONS_RESOURCES_UPDATED,
    NOTIFICATIONS_TASKS,
)
from ...protocol.principal import identity_of
from ..subscriptions import list_changed_method

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from ...base.clock import Clock
    from ...protocol.principal import Principal
    from ..effects import Effect, Publish
    from ..session import Session
    from ..subscriptions import Subscriptions
    from .connection import Connection


KINDS = ("list", "resource", "elicitation")
"""The kinds of changes that are announced."""

Announcement = tuple[str, str, str | None, str | None]
"""A change for the clients of all workers: its kind (one of `KINDS`), what has changed, and the key
of the only session, or the identity of the only principal, that is notified.
"""


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


class Publisher:
    """Notifies the clients of one server, or of several that share it; safe from any thread.

    A plain class: as an attrs class it would cost every start 0.25 ms.

    Args:
        subscriptions: the subscribers; guarded by a lock.
        clock: tells how long changes of a list are held.

    Attributes:
        relay: hands an announcement to the other workers, from any thread; None if there are none.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_connections",
        "_held",
        "_ids",
        "_ids_by_key",
        "_lock",
        "relay",
        "subscriptions",
    )

    def __init__(self, subscriptions: Subscriptions, clock: Clock) -> None:
        self.subscriptions = subscriptions
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._ids = count(1)
        self._connections: dict[int, ref[Connection]] = {}
        self._ids_by_key: dict[str, int] = {}
        self.relay: Callable[[Announcement], object] | None = None

    def session_id(self) -> int:
        """Return an id that no other session has."""
        return next(self._ids)

    def attach(self, connection: Connection) -> None:
        """Reach `connection` by the id of its session from now on."""
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

    def _detach(self, session: Session, dropped: Any) -> None:
        self._connections.pop(session.id, None)
        self.forget_key(session.key)
        self.subscriptions.end_session(session)

    def publish(self, effects: Iterable[Publish]) -> None:
        """Send each notification on the connection of its session, if that is still there."""
        for effect in effects:
            connection = self._connection_of(effect.session_id)
            if connection is not None:
                self._decide(connection, connection.dispatcher.notify_subscriber, effect)

    def log(self, session_id: int, level: str, line: bytes) -> None:
        """Send a log message, encoded, to a session that lives and wants this level (NOTE-07)."""
        connection = self._connection_of(session_id)
        if connection is not None:
            self._decide(connection, connection.dispatcher.log_to_session, level, line)

    def _connection_of(self, session_id: int) -> Connection | None:
        known = self._connections.get(session_id)
        return None if known is None else known()

    @staticmethod
    def _decide(
        connection: Connection, decide: Callable[..., list[Effect]], *arguments: Any
    ) -> None:
        """Decide, and perform the decision, where the host of `connection` expects that."""
        send = partial(connection.apply, decide, *arguments)
        # In place where that is allowed: queued, the notifications to thousands of subscribers
        # took 5 KB each.
        if connection.scheduler.is_here():
            send()
        else:
            connection.scheduler.return_to_host(send)

    def announce(self, announcement: Announcement, *, all_workers: bool = True) -> None:
        """Notify the clients that a change concerns, those of other workers included (SUB-17).

        Args:
            announcement: says what has changed, and whom it concerns.
            all_workers: whether clients of other workers are notified.
        """
        self.perform(announcement)
        if self.relay is not None and all_workers and announcement[2] not in self._ids_by_key:
            self.relay(announcement)

    def perform(self, announcement: Announcement) -> None:
        """Notify the clients of this worker alone."""
        kind, name, key, identity = announcement
        seen_by = None if identity is None else partial(_is_of, identity)
        if kind == "resource":
            self.resource_updated(name, seen_by, key)
        elif kind == "elicitation":
            self.elicitation_completed(name)
        elif key is not None:
            self.list_of_session_changed(name, key)
        else:
            self.list_changed(name, seen_by=seen_by)

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
        method = list_changed_method(kind)
        self.publish(self.subscriptions.publish(("list", kind), method, {}, seen_by=seen_by))

    def _live_connections(self) -> Iterator[Connection]:
        for known in self._connections.copy().values():
            connection = known()
            if connection is not None:
                yield connection

    def list_of_session_changed(self, kind: str, key: str) -> None:
        """Notify the client of one session of a changed list; of an ended one, do nothing."""
        connection = self._connection_of(self._ids_by_key.get(key, 0))
        if connection is not None:
            _notify_of_list(connection, kind)

    def resource_updated(
        self,
        uri: str,
        seen_by: Callable[[Principal | None], bool] | None = None,
        key: str | None = None,
        grants: Collection[Any] | None = None,
    ) -> None:
        """Notify the subscribers of a resource that it has changed.

        Args:
            uri: of the resource.
            seen_by: returns whether a principal's clients are notified (SUB-16); None: all are.
            key: of the session that alone is notified; None for all.
            grants: those whose subscriptions alone are notified (FWD-32); None for all.
        """
        found = self.subscriptions.publish(
            ("resource", uri),
            NOTIFICATIONS_RESOURCES_UPDATED,
            {"uri": uri},
            seen_by=seen_by,
            grants=grants,
        )
        if key is not None:
            session_id = self._ids_by_key.get(key, 0)
            found = (each for each in found if each.session_id == session_id)
        self.publish(found)

    def task_changed(self, task: Mapping[str, Any]) -> None:
        """Notify the subscribers of a task of another server that it has changed (FWD-27)."""
        topic = ("task", task["taskId"])
        self.publish(self.subscriptions.publish(topic, NOTIFICATIONS_TASKS, dict(task)))

    def elicitation_completed(self, elicitation_id: str) -> None:
        """Notify the client whose user is done with the page of this elicitation."""
        topic = ("elicitation", elicitation_id)
        method = NOTIFICATIONS_ELICITATION_COMPLETE
        params = {"elicitationId": elicitation_id}
        self.publish(self.subscriptions.publish(topic, method, params, is_last=True))


def _is_seen(changes: Iterable[SeenBy | None], principal: Principal | None) -> bool:
    return any(seen_by is None or seen_by(principal) for seen_by in changes)


def _is_of(identity: str, principal: Principal | None) -> bool:
    return identity_of(principal) == identity


def _notify_of_list(connection: Connection, kind: str) -> None:
    decide = connection.dispatcher.list_changed
    connection.scheduler.return_to_host(partial(connection.apply, decide, kind))
