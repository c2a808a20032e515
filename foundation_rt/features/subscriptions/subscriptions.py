"""Subscribers: which client is notified of which events.

A client in the handshake mode is notified of changed lists as long as its connection runs, and of
the resources that it has subscribed to. A client in the stateless mode is notified of what it
named in a `subscriptions/listen` request, as long as that request is open.

Everything that can change is a *topic*. Subscribers are kept by topic, so an event costs as much as
the topic has subscribers, however many there are of others (SUB-06).

Nothing is sent here: `publish` returns one effect for each subscriber, with the id of its session.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...base.config.settings import ServerConfig
from ...base.shown import Shown
from ...kernel.effects import Log, Notify
from ...kernel.replies import result_reply
from ...kernel.session import SessionPart
from ...protocol.jsonrpc import encode
from ...protocol.methods import NOTIFICATIONS_CANCELLED
from ...protocol.peer import SUBSCRIPTION_ID_KEY
from ...protocol.principal import identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from ...base.principal_shares import Quota
    from ...kernel.effects import Effect
    from ...kernel.replies import ResultWriter
    from ...kernel.session import Session
    from ...protocol.jsonrpc import RequestId
    from ...protocol.peer import Peer
    from ...protocol.principal import Principal

Topic = tuple[str, str]
"""A kind (`list`, `resource`, `elicitation`, ...) and a name of that kind: `("resource", uri)`."""

MAX_TOPICS = 1000
"""Most topics of a kind that one subscriber can have."""

MAX_LISTENING = 100
"""Most `subscriptions/listen` requests of one connection that are open at the same time."""

MAX_SUBSCRIPTION_ID_LENGTH = 256
"""Characters of the id of a `subscriptions/listen` request, kept while that is open (SUB-09)."""

MAX_ELICITATION_ID_LENGTH = 1024
"""Characters of the id of a page beyond which no client is notified of its end (ASK-43)."""


_CANCELLED_REASON = "The server ends the subscription."


@define(eq=False, repr=False)
class Publish(Shown):
    """A notification about `topic` for a subscriber.

    Attributes:
        session_id: the `Session.id` of the subscriber's session.
        subscription_id: names the subscriber within its session.
        line: the notification, encoded.
        is_last: nothing more will happen to the topic.
    """

    session_id: int
    subscription_id: RequestId | None
    topic: Topic
    line: bytes
    is_last: bool = False


@define(eq=False, repr=False)
class Subscriber(Shown):
    """A `subscriptions/listen` request that is open, or a session in the handshake mode.

    Attributes:
        subscription_id: the id of the request; None for a session.
        peer: the sender of the request; None for a session.
        identity: of its principal, whose share it counts for (RES-18).
        topics: what it is notified of, by kind; in the order in which the topics were added.
        grants: by topic, what a feature has granted it by; under None that of all of them.
    """

    session: Session
    subscription_id: RequestId | None
    peer: Peer | None
    identity: str | None
    topics: dict[str, dict[str, None]] = field(factory=dict, init=False)
    grants: dict[Topic | None, Any] | None = field(default=None, init=False)

    def has(self, topic: Topic) -> bool:
        """Return whether it is subscribed to `topic`."""
        kind, name = topic
        return name in self.topics.get(kind, ())

    def grant_of(self, topic: Topic) -> Any:
        """Return what a feature has granted `topic` by; None without that."""
        grants = self.grants or {}
        return grants.get(topic) or grants.get(None)


class SubscribersOfSession(SessionPart):
    """The subscribers of one session.

    Attributes:
        by_id: the open `subscriptions/listen` requests by id; under None the session itself.
    """

    __slots__ = ("by_id", "subscriptions")

    subscriptions: Subscriptions

    def __init__(self) -> None:
        self.by_id: dict[RequestId | None, Subscriber] = {}

    @property
    def is_busy(self) -> bool:
        """Return whether the client is subscribed to anything."""
        return bool(self.by_id)

    def holds(self, request_id: RequestId | None) -> bool:
        """Return whether a request is an open `subscriptions/listen`."""
        return request_id is not None and request_id in self.by_id

    def cancel(self, request_id: RequestId) -> list[Effect]:
        """End a `subscriptions/listen` that its client has cancelled (SUB-08)."""
        subscriber = self.by_id.get(request_id)
        if subscriber is None:
            return []
        self.subscriptions.end(subscriber)
        return [Log("debug", "subscription cancelled", {"subscriptionId": request_id})]

    def stopping(self, results: ResultWriter) -> list[Effect]:
        """Give every `subscriptions/listen` its result: the server stops (SUB-08)."""
        ended = [each for each in self.by_id.values() if each.peer is not None]
        self.close()
        return [effect for each in ended for effect in _final(results, each)]

    def close(self) -> None:
        """Remove all subscribers: the client has gone."""
        for subscriber in list(self.by_id.values()):
            self.subscriptions.end(subscriber)


def subscribers_of(session: Session) -> dict[RequestId | None, Subscriber]:
    """Return the subscribers of a session by id."""
    part: SubscribersOfSession | None = session.parts.get(SubscribersOfSession)
    return {} if part is None else part.by_id


@define(eq=False, repr=False)
class Subscriptions:
    """The subscribers of every topic.

    Args:
        config: sets how many subscriptions there may be, and how many of one principal (RES-18).
        guard: held by every operation; a reentrant lock where several threads share them.

    Attributes:
        on_grant_end: called with each grant of a feature, when its subscription ends; under the
            guard, in any thread.
    """

    _config: ServerConfig = field(factory=ServerConfig)
    _guard: AbstractContextManager[Any] = field(factory=nullcontext)
    _quota: Quota | None = field(default=None, init=False)
    _by_topic: dict[Topic, set[Subscriber]] = field(factory=dict, init=False)
    _open: set[Subscriber] = field(factory=set, init=False)
    on_grant_end: Callable[[Any], object] | None = field(default=None, init=False)

    def subscribe(
        self,
        session: Session,
        subscription_id: RequestId | None = None,
        peer: Peer | None = None,
        topics: Iterable[Topic] = (),
    ) -> Subscriber:
        """Return the subscriber of that id; make it, with `topics`, if the session has none.

        Raises:
            LimitReached: there would be too many subscriptions; nothing has changed (RES-18).
        """
        with self._guard:
            part = session.part(SubscribersOfSession)
            part.subscriptions = self
            subscriber = part.by_id.get(subscription_id)
            if subscriber is None:
                wanted = dict.fromkeys(topics)
                subscriber = Subscriber(
                    session, subscription_id, peer, identity_of(session.principal)
                )
                weight = _weight_of(subscriber) + sum(map(_weight, wanted))
                self.quota.take(subscriber.identity, weight)
                part.by_id[subscription_id] = subscriber
                self._open.add(subscriber)
                for topic in wanted:
                    self._enter(subscriber, topic)
            return subscriber

    def add(self, subscriber: Subscriber, topic: Topic) -> bool:
        """Subscribe to `topic`; return False if that would be too many of one kind (SUB-05).

        Raises:
            LimitReached: there would be too many subscriptions in the process (RES-18).
        """
        with self._guard:
            if subscriber.has(topic):
                return True
            if not self.has_room(subscriber, topic):
                return False
            self.quota.take(subscriber.identity, _weight(topic))
            self._enter(subscriber, topic)
            return True

    @staticmethod
    def has_room(subscriber: Subscriber, topic: Topic) -> bool:
        """Return whether a subscriber may have this topic besides its others (SUB-05)."""
        return subscriber.has(topic) or len(subscriber.topics.get(topic[0], ())) < MAX_TOPICS

    def keep_grant(self, subscriber: Subscriber, topic: Topic | None, grant: object) -> None:
        """Report the end of `grant` when `topic`, or the whole subscriber for None, ends."""
        with self._guard:
            self._end_grant(subscriber, topic)
            if subscriber.grants is None:
                subscriber.grants = {}
            subscriber.grants[topic] = grant

    def _end_grant(self, subscriber: Subscriber, topic: Topic | None) -> None:
        if subscriber.grants is None:
            return
        grant = subscriber.grants.pop(topic, None)
        if grant is not None and self.on_grant_end is not None:
            self.on_grant_end(grant)

    def _enter(self, subscriber: Subscriber, topic: Topic) -> None:
        kind, name = topic
        subscriber.topics.setdefault(kind, {})[name] = None
        self._by_topic.setdefault(topic, set()).add(subscriber)

    def remove(self, subscriber: Subscriber, topic: Topic) -> None:
        """Unsubscribe from `topic`."""
        with self._guard:
            if not subscriber.has(topic):
                return
            kind, name = topic
            del subscriber.topics[kind][name]
            self.quota.give_back(subscriber.identity, _weight(topic))
            subscribers = self._by_topic.get(topic, set())
            subscribers.discard(subscriber)
            if not subscribers:
                self._by_topic.pop(topic, None)
            self._end_grant(subscriber, topic)

    def end(self, subscriber: Subscriber) -> None:
        """Remove a subscriber, with all of its topics."""
        with self._guard:
            for kind, names in subscriber.topics.items():
                for name in list(names):
                    self.remove(subscriber, (kind, name))
            subscribers_of(subscriber.session).pop(subscriber.subscription_id, None)
            if subscriber in self._open:
                self._open.discard(subscriber)
                self.quota.give_back(subscriber.identity, _weight_of(subscriber))
            self._end_grant(subscriber, None)

    def notify(self, session: Session, published: Publish) -> list[Effect]:
        """Send a notification to a subscriber that still has its topic (SUB-02)."""
        subscriber = subscribers_of(session).get(published.subscription_id)
        if subscriber is None or not subscriber.has(published.topic):
            return []
        if published.is_last:
            self.remove(subscriber, published.topic)
        return [Notify(published.line, published.subscription_id)]

    def follow_elicitation(self, session: Session, elicitation_id: str) -> None:
        """Notify this client alone when its user is done with a page (ASK-18).

        Where the limit is reached, the oldest page of the session gives way. If the session has
        none, its client is not notified of this one.
        """
        from ...base.principal_shares import LimitReached

        with self._guard:
            subscriber = self.subscribe(session)
            topic = ("elicitation", elicitation_id)
            with suppress(LimitReached):
                if self.add(subscriber, topic):
                    return
            pages = subscriber.topics.get("elicitation")
            if pages:
                self.remove(subscriber, ("elicitation", next(iter(pages))))
                self.add(subscriber, topic)

    def publish(
        self,
        topic: Topic,
        method: str,
        params: dict[str, Any],
        *,
        is_last: bool = False,
        seen_by: Callable[[Principal | None], bool] | None = None,
        grants: Collection[Any] | None = None,
    ) -> Iterator[Publish]:
        """Return the notifications to the subscribers of `topic`, and to no others (SUB-02).

        Each is encoded when it is taken: thousands at a time would hold 5 KB each.

        Args:
            topic: the topic that has changed.
            method: the method of the notification.
            params: its params, without the id of the subscription.
            is_last: nothing more will happen to the topic: it is removed from its subscribers.
            seen_by: returns whether the subscribers of a principal are notified; None: all are.
            grants: those whose subscriptions alone are notified; None for all.
        """
        with self._guard:
            subscribers = list(self._by_topic.get(topic, ()))
            if grants is not None:
                subscribers = [each for each in subscribers if each.grant_of(topic) in grants]
        if seen_by is not None:
            subscribers = [each for each in subscribers if seen_by(each.session.principal)]
        return (
            Publish(
                each.session.id,
                each.subscription_id,
                topic,
                _notification(each.subscription_id, method, params),
                is_last,
            )
            for each in subscribers
        )

    def names(self, kind: str) -> list[str]:
        """Return the names of this kind that have a subscriber (SUB-13)."""
        with self._guard:
            return [name for each, name in self._by_topic if each == kind]

    @property
    def quota(self) -> Quota:
        """Return the count of the subscriptions of all clients (RES-18)."""
        if self._quota is None:
            from ...base.principal_shares import Limit, Quota

            most = self._config.resources.max_subscriptions
            limit = Limit(
                most, "places for subscriptions", "maxSubscriptions", "subscription_limit"
            )
            self._quota = Quota(self._config, limit)
        return self._quota


def _weight(topic: Topic) -> int:
    """Return how many subscriptions a topic counts for; lists are few and not counted (RES-18)."""
    return 0 if topic[0] == "list" else 1


def _weight_of(subscriber: Subscriber) -> int:
    """Return how many subscriptions a subscriber counts for, without its topics."""
    return 0 if subscriber.subscription_id is None else 1


def _notification(subscription_id: RequestId | None, method: str, params: dict[str, Any]) -> bytes:
    """Return the notification as a line, which names the subscription that it is for (SUB-03)."""
    if subscription_id is not None:
        params = {**params, "_meta": {SUBSCRIPTION_ID_KEY: subscription_id}}
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params:
        message["params"] = params
    return encode(message)


def _final(results: ResultWriter, subscriber: Subscriber) -> list[Effect]:
    """Return the result of a `subscriptions/listen` that the server ends (SUB-08).

    Where other messages use the same connection, a cancellation follows.
    """
    subscription_id, peer = subscriber.subscription_id, subscriber.peer
    assert subscription_id is not None and peer is not None  # only a request has a result
    result = {"_meta": {SUBSCRIPTION_ID_KEY: subscription_id}}
    completed = results.complete(peer, result)
    effects: list[Effect] = [result_reply(subscription_id, completed)]
    if not subscriber.session.stateless:
        params = {"requestId": subscription_id, "reason": _CANCELLED_REASON}
        cancelled = {"jsonrpc": "2.0", "method": NOTIFICATIONS_CANCELLED, "params": params}
        effects.append(Notify(encode(cancelled)))
    return effects
