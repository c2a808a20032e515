"""Who wants to hear of what (spec/subscriptions.md).

A client of the handshake era hears of changed lists as long as its connection runs, and of the
resources it has subscribed to. One of the stateless era hears of what it named in a
`subscriptions/listen` request, as long as that request is open.

Everything that can be heard of is a *topic*, and those who listen are kept by topic: an event costs
as much as it has listeners, however many there are of others (SUB-06). Events come from any thread;
each listener is told where its host expects to be called.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, finalize

from attrs import define, field

from ..config.settings import ServerConfig
from ..protocol.jsonrpc import encode
from ..protocol.peer import SUBSCRIPTION_ID_KEY
from ..protocol.principal import identity_of
from .effects import Notify

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..engine.connection import Connection
    from ..protocol.jsonrpc import RequestId
    from ..protocol.peer import Peer
    from ..shares import Quota
    from .session import Session

Topic = tuple[str, str]
"""A kind (`list`, `resource`, `elicitation`, ...) and which of the kind: `("resource", uri)`."""

MAX_TOPICS = 1000
"""How many topics of a kind one client can hear of at a time, by one request or in one session."""

MAX_LISTENING = 100
"""How many `subscriptions/listen` requests of one connection can be open at a time."""

MAX_SUBSCRIPTION_ID_LENGTH = 256
"""Characters of the id of a `subscriptions/listen` request, kept while that is open (SUB-09)."""


@define(eq=False, repr=False)
class Subscriber:
    """One that listens: a `subscriptions/listen` request, or a session of the handshake era.

    Attributes:
        subscription_id: the id of the request; None for a session.
        peer: who sent the request; None for a session.
        identity: of its principal, whose share it counts for (RES-18).
        topics: what it wants to hear of, by kind; in the order in which it came to want it.
    """

    session: Session
    subscription_id: RequestId | None
    peer: Peer | None
    identity: str | None
    topics: dict[str, dict[str, None]] = field(factory=dict, init=False)


@define(eq=False, repr=False)
class Subscriptions:
    """Tells those who want to hear of something that it has happened; safe from any thread.

    Args:
        config: says how many subscriptions there may be, and how many of one principal (RES-18).
    """

    _config: ServerConfig = field(factory=ServerConfig)
    _quota: Quota | None = field(default=None, init=False)
    _by_topic: dict[Topic, set[Subscriber]] = field(factory=dict, init=False)
    _open: set[Subscriber] = field(factory=set, init=False)
    _connections: WeakSet[Connection] = field(factory=WeakSet, init=False)
    _followed: WeakSet[Connection] = field(factory=WeakSet, init=False)
    _lock: threading.RLock = field(factory=threading.RLock, init=False)

    # -- who listens ---------------------------------------------------------------------------

    def attach(self, connection: Connection) -> None:
        """Tell `connection` of changed lists, once it runs (LIFE-10)."""
        with self._lock:
            self._connections.add(connection)

    def listen(
        self,
        session: Session,
        subscription_id: RequestId | None = None,
        peer: Peer | None = None,
        topics: Iterable[Topic] = (),
    ) -> Subscriber:
        """Begin to listen to `topics`; the same again if it has begun already.

        Raises:
            LimitReached: there would be too many subscriptions; nothing has begun then (RES-18).
        """
        with self._lock:
            listening = session.listening.get(subscription_id)
            if listening is None:
                wanted = dict.fromkeys(topics)
                listening = Subscriber(
                    session, subscription_id, peer, identity_of(session.principal)
                )
                weight = _weight_of(listening) + sum(map(_weight, wanted))
                self.quota.take(listening.identity, weight)
                if not session.listening:
                    self._forget_with_connection(session)
                session.listening[subscription_id] = listening
                self._open.add(listening)
                for topic in wanted:
                    self._begin(listening, topic)
            return listening

    def add(self, listening: Subscriber, topic: Topic) -> bool:
        """Hear of `topic` from now on; return False if that would be too many (SUB-05).

        Raises:
            LimitReached: there would be too many subscriptions in the process (RES-18).
        """
        with self._lock:
            kind, name = topic
            names = listening.topics.get(kind, {})
            if name in names:
                return True
            if len(names) >= MAX_TOPICS:
                return False
            self.quota.take(listening.identity, _weight(topic))
            self._begin(listening, topic)
            return True

    def _begin(self, listening: Subscriber, topic: Topic) -> None:
        kind, name = topic
        listening.topics.setdefault(kind, {})[name] = None
        self._by_topic.setdefault(topic, set()).add(listening)

    def remove(self, listening: Subscriber, topic: Topic) -> None:
        """Hear of `topic` no more."""
        with self._lock:
            kind, name = topic
            names = listening.topics.get(kind, {})
            if name not in names:
                return
            del names[name]
            self.quota.give_back(listening.identity, _weight(topic))
            listeners = self._by_topic.get(topic, set())
            listeners.discard(listening)
            if not listeners:
                self._by_topic.pop(topic, None)

    def end(self, listening: Subscriber) -> None:
        """Hear of nothing any more."""
        with self._lock:
            for kind, names in listening.topics.items():
                for name in list(names):
                    self.remove(listening, (kind, name))
            listening.session.listening.pop(listening.subscription_id, None)
            if listening in self._open:
                self._open.discard(listening)
                self.quota.give_back(listening.identity, _weight_of(listening))

    def forget(self, session: Session) -> None:
        """The client has gone."""
        with self._lock:
            for listening in list(session.listening.values()):
                self.end(listening)

    def end_all(self) -> None:
        """The server ends: every open request gets its result; where hosts are called (SUB-08)."""
        with self._lock:
            # A copy: a connection that is dropped meanwhile is forgotten in whichever thread.
            found = {listening.session.connection() for listening in list(self._open)}
        for connection in found:
            if connection is not None:
                connection.end_listening()

    def follow_elicitation(self, session: Session, elicitation_id: str) -> None:
        """Its client, and nobody else, is to hear when the user is done with a page (ASK-18).

        Where there is no room the oldest page of the session gives way. Where it has none, the
        client does not hear of this one.
        """
        from ..shares import LimitReached

        with self._lock:
            listening = self.listen(session)
            topic = ("elicitation", elicitation_id)
            with suppress(LimitReached):
                if self.add(listening, topic):
                    return
            pages = listening.topics.get("elicitation")
            if pages:
                self.remove(listening, ("elicitation", next(iter(pages))))
                self.add(listening, topic)

    @property
    def quota(self) -> Quota:
        """Return what counts the subscriptions of all clients (RES-18)."""
        if self._quota is None:
            from ..shares import Limit, Quota

            most = self._config.resources.max_subscriptions
            limit = Limit(
                most, "places for subscriptions", "maxSubscriptions", "subscription_limit"
            )
            self._quota = Quota(self._config, limit)
        return self._quota

    # -- what happens --------------------------------------------------------------------------

    def publish(self, topic: Topic, method: str, params: dict[str, Any]) -> None:
        """Send the notification to all who listen to `topic`, and to nobody else (SUB-02)."""
        with self._lock:
            listeners = list(self._by_topic.get(topic, ()))
        for listening in listeners:
            connection = listening.session.connection()
            if connection is not None:
                connection.tell_listening(listening, _notification(listening, method, params))

    def list_changed(self, kind: str) -> None:
        """The list of `tools`, `resources` or `prompts` is another one than before."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.list_changed(kind)
        self.publish(("list", kind), list_changed_method(kind), {})

    def resource_updated(self, uri: str) -> None:
        """The resource is another one than it was when it was last read."""
        self.publish(("resource", uri), "notifications/resources/updated", {"uri": uri})

    def elicitation_completed(self, elicitation_id: str) -> None:
        """The user is done with the page of this elicitation."""
        topic = ("elicitation", elicitation_id)
        params = {"elicitationId": elicitation_id}
        self.publish(topic, "notifications/elicitation/complete", params)
        with self._lock:
            for listening in list(self._by_topic.get(topic, ())):
                self.remove(listening, topic)

    def _forget_with_connection(self, session: Session) -> None:
        """A host may drop a connection that it never closed."""
        connection = session.connection()
        # Once: a finalizer is kept as long as its connection, and clients come to listen again.
        if connection is not None and connection not in self._followed:
            self._followed.add(connection)
            finalize(connection, self.forget, session).atexit = False


def _weight(topic: Topic) -> int:
    """Return how many subscriptions a topic counts for: lists are few, whoever listens (RES-18)."""
    return 0 if topic[0] == "list" else 1


def _weight_of(listening: Subscriber) -> int:
    """Return how many subscriptions one that listens counts for, without its topics."""
    return 0 if listening.subscription_id is None else 1


def list_changed_method(kind: str) -> str:
    """What the notification is called that a list of `kind` has changed."""
    return f"notifications/{kind}/list_changed"


def _notification(listening: Subscriber, method: str, params: dict[str, Any]) -> Notify:
    """The message for one who listens; says which of its subscriptions it is for (SUB-03)."""
    if listening.subscription_id is not None:
        params = {**params, "_meta": {SUBSCRIPTION_ID_KEY: listening.subscription_id}}
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params:
        message["params"] = params
    return Notify(encode(message), listening.subscription_id)
