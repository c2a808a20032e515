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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..core.effects import Effect, Publish
    from ..core.session import Session
    from ..core.subscriptions import Subscriptions
    from .connection import Connection


class Publisher:
    """Notifies the clients of one server, or of several that share it; safe from any thread.

    A plain class: as an attrs class it would cost every start 0.25 ms.

    Args:
        subscriptions: the subscribers; guarded by a lock.
    """

    __slots__ = ("__weakref__", "_connections", "_ids", "subscriptions")

    def __init__(self, subscriptions: Subscriptions) -> None:
        self.subscriptions = subscriptions
        self._ids = count(1)
        self._connections: dict[int, ref[Connection]] = {}

    def session_id(self) -> int:
        """Return an id that no other session has."""
        return next(self._ids)

    def attach(self, connection: Connection) -> None:
        """Reach `connection` by the id of its session from now on."""
        session = connection.session
        if session.id not in self._connections:
            # A host may drop a connection that it never closed.
            self._connections[session.id] = ref(connection, partial(self._detach, session))

    def _detach(self, session: Session, dropped: Any) -> None:
        self._connections.pop(session.id, None)
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

    def list_changed(self, kind: str) -> None:
        """Notify clients of a changed list of `tools`, `resources` or `prompts` (LIFE-10)."""
        for known in self._connections.copy().values():
            connection = known()
            if connection is not None and not connection.session.stateless:
                decide = connection.dispatcher.list_changed
                connection.scheduler.return_to_host(partial(connection.apply, decide, kind))
        self.publish(self.subscriptions.publish(("list", kind), list_changed_method(kind), {}))

    def resource_updated(self, uri: str) -> None:
        """Notify the subscribers of a resource that it has changed."""
        method = "notifications/resources/updated"
        self.publish(self.subscriptions.publish(("resource", uri), method, {"uri": uri}))

    def elicitation_completed(self, elicitation_id: str) -> None:
        """Notify the client whose user is done with the page of this elicitation."""
        topic = ("elicitation", elicitation_id)
        method = "notifications/elicitation/complete"
        params = {"elicitationId": elicitation_id}
        self.publish(self.subscriptions.publish(topic, method, params, is_last=True))
