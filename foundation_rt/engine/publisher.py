"""Publishing: from an event in any thread to the connections of its subscribers.

The core names sessions by their ids. The publisher knows which connection an id stands for, as long
as the host keeps that connection.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..core.subscriptions import list_changed_method
from ..protocol.principal import identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ..core.effects import Effect, Publish
    from ..core.forwarding.forwarder import ForwardedRequest
    from ..core.session import Session
    from ..core.subscriptions import Subscriptions
    from ..protocol.principal import Principal
    from .connection import Connection


KINDS = ("list", "resource", "elicitation")
"""The kinds of changes that are announced."""

Announcement = tuple[str, str, str | None, str | None]
"""A change for the clients of all workers: its kind (one of `KINDS`), what has changed, and the key
of the only session, or the identity of the only principal, that is notified.
"""


class Publisher:
    """Notifies the clients of one server, or of several that share it; safe from any thread.

    A plain class: as an attrs class it would cost every start 0.25 ms.

    Args:
        subscriptions: the subscribers; guarded by a lock.

    Attributes:
        relay: hands an announcement to the other workers, from any thread; None if there are none.
    """

    __slots__ = ("__weakref__", "_connections", "_ids", "_ids_by_key", "relay", "subscriptions")

    def __init__(self, subscriptions: Subscriptions) -> None:
        self.subscriptions = subscriptions
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

    def list_changed(
        self, kind: str, *, seen_by: Callable[[Principal | None], bool] | None = None
    ) -> None:
        """Notify clients of a changed list of `tools`, `resources` or `prompts` (LIFE-10).

        Args:
            kind: of the list.
            seen_by: returns whether a principal's clients are notified (SUB-15, VIS-07); None: all
                are.
        """
        for known in self._connections.copy().values():
            connection = known()
            if connection is None or connection.session.stateless:
                continue
            if seen_by is None or seen_by(connection.session.principal):
                _notify_of_list(connection, kind)
        method = list_changed_method(kind)
        self.publish(self.subscriptions.publish(("list", kind), method, {}, seen_by=seen_by))

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
        requests: Collection[ForwardedRequest] | None = None,
    ) -> None:
        """Notify the subscribers of a resource that it has changed.

        Args:
            uri: of the resource.
            seen_by: returns whether a principal's clients are notified (SUB-16); None: all are.
            key: of the session that alone is notified; None for all.
            requests: those whose subscriptions alone are notified (FWD-32); None for all.
        """
        found = self.subscriptions.publish(
            ("resource", uri),
            "notifications/resources/updated",
            {"uri": uri},
            seen_by=seen_by,
            requests=requests,
        )
        if key is not None:
            session_id = self._ids_by_key.get(key, 0)
            found = (each for each in found if each.session_id == session_id)
        self.publish(found)

    def task_changed(self, task: Mapping[str, Any]) -> None:
        """Notify the subscribers of a task of another server that it has changed (FWD-27)."""
        topic = ("task", task["taskId"])
        self.publish(self.subscriptions.publish(topic, "notifications/tasks", dict(task)))

    def elicitation_completed(self, elicitation_id: str) -> None:
        """Notify the client whose user is done with the page of this elicitation."""
        topic = ("elicitation", elicitation_id)
        method = "notifications/elicitation/complete"
        params = {"elicitationId": elicitation_id}
        self.publish(self.subscriptions.publish(topic, method, params, is_last=True))


def _is_of(identity: str, principal: Principal | None) -> bool:
    return identity_of(principal) == identity


def _notify_of_list(connection: Connection, kind: str) -> None:
    decide = connection.dispatcher.list_changed
    connection.scheduler.return_to_host(partial(connection.apply, decide, kind))
