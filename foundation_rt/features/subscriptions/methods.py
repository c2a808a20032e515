"""`resources/subscribe`, `resources/unsubscribe`, and `subscriptions/listen`, their successor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import JsonRpcError
from ...kernel.effects import Attach, Notify
from ...kernel.replies import invalid_params, result_reply
from ...protocol.jsonrpc import encode
from ...protocol.methods import NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED
from ...protocol.peer import SUBSCRIPTION_ID_KEY
from ..resources.feature import Resources
from ..resources.methods import read_uri, require_resources, resource_not_found
from .feature import Subscribing
from .subscriptions import (
    MAX_LISTENING,
    MAX_SUBSCRIPTION_ID_LENGTH,
    MAX_TOPICS,
    Subscriptions,
    subscribers_of,
)

if TYPE_CHECKING:
    from ...kernel.dispatcher import Dispatcher
    from ...kernel.effects import Effect
    from ...kernel.session import Session
    from ...protocol.jsonrpc import Request, RequestId
    from ...protocol.peer import Peer
    from .subscriptions import Topic


def subscriptions_of(dispatcher: Dispatcher) -> Subscriptions:
    """Return the subscriptions of the server that `dispatcher` decides for."""
    subscribing: Subscribing = dispatcher.parts[Subscribing]
    return subscribing.subscriptions


# -- clients with a handshake ------------------------------------------------------------------


def subscribe(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """Notify the session of updates of a resource (SUB-01)."""
    require_resources(dispatcher, request)
    uri = read_uri(request)
    topic = resource_topic(dispatcher, session, uri)
    if topic is None:
        raise resource_not_found(peer, uri)
    subscriptions = subscriptions_of(dispatcher)
    if not subscriptions.add(subscriptions.subscribe(session), topic):
        raise too_many_topics()
    return [result_reply(request.id, {})]


def unsubscribe(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """End a subscription; without one, do nothing (SUB-01)."""
    require_resources(dispatcher, request)
    uri = read_uri(request)
    topic = resource_topic(dispatcher, session, uri) or ("resource", uri)
    subscriptions = subscriptions_of(dispatcher)
    subscriptions.remove(subscriptions.subscribe(session), topic)
    return [result_reply(request.id, {})]


# -- stateless clients -------------------------------------------------------------------------


def listen(dispatcher: Dispatcher, session: Session, peer: Peer, request: Request) -> list[Effect]:
    """Keep the request open, and send what it asked for as it happens (SUB-03, SUB-04)."""
    honoured, topics = honour(dispatcher, session, peer, read_wanted(session, request))
    subscriptions_of(dispatcher).subscribe(session, request.id, peer.retain(), topics)
    # Before the client learns that it is subscribed: no event after that may be lost.
    return [Attach(), acknowledgement(request.id, honoured)]


def read_wanted(session: Session, request: Request) -> dict[str, Any]:
    """Return what a `subscriptions/listen` asks for.

    Raises:
        JsonRpcError: it is malformed, or the connection has too many of them.
    """
    wanted: Any = request.members.get("notifications")
    if type(wanted) is not dict:
        raise invalid_params("notifications must be an object")
    if type(request.id) is str and len(request.id) > MAX_SUBSCRIPTION_ID_LENGTH:
        raise invalid_params(
            f"the id of a subscription has at most {MAX_SUBSCRIPTION_ID_LENGTH} characters"
        )
    if len(subscribers_of(session)) >= MAX_LISTENING:
        raise _too_many(MAX_LISTENING)
    return wanted


def honour(
    dispatcher: Dispatcher, session: Session, peer: Peer, wanted: dict[str, Any]
) -> tuple[dict[str, Any], list[Topic]]:
    """Return the part of `wanted` that the server honours, and its topics (SUB-04)."""
    honoured: dict[str, Any] = {}
    topics: list[Topic] = []
    for name, read in {**_FIELDS, **dispatcher.parts[Subscribing].fields}.items():
        if wanted.get(name) is not None:
            value, found = read(dispatcher, session, peer, wanted[name])
            if found:
                honoured[name] = value
                topics += found
    return honoured, topics


def acknowledgement(request_id: RequestId, honoured: dict[str, Any]) -> Notify:
    """Return the first message for a `subscriptions/listen` (SUB-03)."""
    acknowledged = {
        "jsonrpc": "2.0",
        "method": NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED,
        "params": {"_meta": {SUBSCRIPTION_ID_KEY: request_id}, "notifications": honoured},
    }
    return Notify(encode(acknowledged), request_id)


_Found = tuple[Any, list["Topic"]]
"""The part of a field that is honoured, and its topics."""


def _changes_of(kind: str) -> Callable[..., _Found]:
    def read(dispatcher: Dispatcher, session: Session, peer: Peer, value: Any) -> _Found:
        if type(value) is not bool:
            raise invalid_params(f"notifications.{kind}ListChanged must be true or false")
        return value, [("list", kind)] if value else []

    return read


def _updates(dispatcher: Dispatcher, session: Session, peer: Peer, value: Any) -> _Found:
    uris = read_names(value, "resourceSubscriptions")
    found = {uri: resource_topic(dispatcher, session, uri) for uri in uris}
    known = {uri: topic for uri, topic in found.items() if topic is not None}
    return [*known], [*known.values()]


_FIELDS: dict[str, Callable[..., _Found]] = {
    "toolsListChanged": _changes_of("tools"),
    "promptsListChanged": _changes_of("prompts"),
    "resourcesListChanged": _changes_of("resources"),
    "resourceSubscriptions": _updates,
}
"""The fields that a client may ask for; others are not honoured, and so not acknowledged."""


def read_names(value: Any, name: str) -> list[str]:
    """Return the URIs or ids of a field, each once; raise `JsonRpcError` unless it is valid."""
    if type(value) is not list or not all(type(one) is str for one in value):
        raise invalid_params(f"notifications.{name} must be an array of strings")
    if len(value) > MAX_TOPICS:
        raise too_many_topics()
    return list(dict.fromkeys(value))


# -- both --------------------------------------------------------------------------------------


def resource_topic(dispatcher: Dispatcher, session: Session, uri: str) -> Topic | None:
    """Return the topic of a resource that the client may read; None without one (AUTH-26).

    It has the URI of the list, whichever equivalent one the client has sent (MRES-26).
    """
    from ..resources.registry import RegisteredResource
    from ..resources.uri_template import MAX_URI_LENGTH

    if len(uri) > MAX_URI_LENGTH:
        return None
    try:
        found, _ = dispatcher.parts[Resources].look_up(uri, session.principal)
    except LookupError:
        return None
    if session.principal is not None and session.principal.lacks(found.scopes):
        return None
    return "resource", found.definition.uri if isinstance(found, RegisteredResource) else uri


def too_many_topics() -> JsonRpcError:
    """Return the error for more subscriptions of a kind than one subscriber may have (SUB-05)."""
    return _too_many(MAX_TOPICS)


def _too_many(limit: int) -> JsonRpcError:
    """Return the error for more subscriptions than a client may have (SUB-05)."""
    problem = f"at most {limit} subscriptions"
    return invalid_params(problem, "too_many_subscriptions", maxSubscriptions=limit)
