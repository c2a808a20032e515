"""Subscriptions that the forwarder has to agree to (FWD-23 to FWD-27).

`resources/subscribe` and `subscriptions/listen` for what the server itself does not have become
calls of the forwarder, which answers what of that it accepts. The server then keeps the subscriber,
sends it what `resource_updated` and `task_changed` publish, and reports its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import ErrorCode, ToolError
from ...kernel.effects import Attach
from ...kernel.invocation import CallKind
from ...kernel.replies import result_reply
from ..handler_calls import FEATURE, admit
from ..resources.uri_template import MAX_URI_LENGTH
from ..subscriptions.methods import (
    acknowledgement,
    honour,
    read_names,
    read_wanted,
    subscriptions_of,
    too_many_topics,
)
from ..subscriptions.subscriptions import MAX_LISTENING, MAX_TOPICS, subscribers_of
from .calls import RULES, to_reply
from .forwarder import forwarded

if TYPE_CHECKING:
    from ...kernel.call_lifecycle import CallLifecycle
    from ...kernel.effects import Effect, Notify, Reply
    from ...kernel.invocation import Invocation
    from ...kernel.session import Session
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ..subscriptions.subscriptions import Topic
    from .feature import Forwarding

KINDS: Mapping[str, str] = {"resourceSubscriptions": "resource", "taskIds": "task"}
"""The members of a `subscriptions/listen` that name things, with the kind of their topics."""


def subscribe(
    forwarding: Forwarding, session: Session, peer: Peer, request: Request, uri: str
) -> list[Effect]:
    """Begin the call that asks the forwarder whether the session may subscribe (FWD-23)."""
    subscriptions = subscriptions_of(forwarding.dispatcher)
    if not subscriptions.has_room(subscriptions.subscribe(session), ("resource", uri)):
        raise too_many_topics()
    call = forwarding.begin(FORWARDED_SUBSCRIBE, session, peer, request, uri)
    call.to_result = partial(_subscribed, forwarding)
    return admit(forwarding.dispatcher.calls, call)


def _subscribed(forwarding: Forwarding, value: Any, call: Invocation) -> dict[str, Any]:
    subscriptions = subscriptions_of(forwarding.dispatcher)
    forwarded(call).params = {"uri": call.name}  # what is kept is bounded
    topic = ("resource", call.name)
    subscriber = subscriptions.subscribe(call.session)
    if not subscriptions.add(subscriber, topic):
        raise _too_many(MAX_TOPICS)
    subscriptions.keep_grant(subscriber, topic, forwarded(call))
    return {}


def unsubscribe(
    forwarding: Forwarding, session: Session, peer: Peer, request: Request, uri: str
) -> list[Effect]:
    """End a subscription; the forwarder is told (FWD-25)."""
    subscriptions = subscriptions_of(forwarding.dispatcher)
    subscriptions.remove(subscriptions.subscribe(session), ("resource", uri))
    return [result_reply(request.id, {})]


def listen(
    forwarding: Forwarding, session: Session, peer: Peer, request: Request
) -> list[Effect] | None:
    """Begin the call that asks the forwarder what of the rest it accepts (FWD-24).

    Returns:
        None if there is nothing to ask it for.
    """
    wanted = read_wanted(session, request)
    honoured, topics = honour(forwarding.dispatcher, session, peer, wanted)
    foreign: dict[str, list[str]] = {}
    for member, kind in KINDS.items():
        if wanted.get(member) is not None and forwarding.offers_topics(kind):
            names = read_names(wanted[member], member)
            own = honoured.get(member, ())
            rest = [each for each in names if each not in own and len(each) <= MAX_URI_LENGTH]
            if rest:
                foreign[member] = rest
    if not foreign:
        return None
    params = request.members
    call = forwarding.begin(FORWARDED_LISTEN, session, peer, request, "")
    forwarded(call).params = {**params, "notifications": foreign}
    call.to_result = partial(_listened, forwarding, honoured, topics, foreign)
    # Before the forwarder starts: no event after that may be lost.
    return [Attach(), *admit(forwarding.dispatcher.calls, call)]


def _listened(
    forwarding: Forwarding,
    honoured: dict[str, Any],
    topics: list[Topic],
    foreign: dict[str, list[str]],
    value: Any,
    call: Invocation,
) -> dict[str, Any]:
    """Subscribe to what the server has and the forwarder accepts; return what is acknowledged."""
    accepted = value.get("notifications") if isinstance(value, Mapping) else None
    accepted = accepted if isinstance(accepted, Mapping) else {}
    kept: dict[str, list[str]] = {}
    for member, names in foreign.items():
        given = accepted.get(member)
        kept[member] = [each for each in names if isinstance(given, list) and each in given]
        honoured[member] = [*honoured.get(member, ()), *kept[member]]
        topics = [*topics, *((KINDS[member], each) for each in kept[member])]
    session, subscriptions = call.session, subscriptions_of(forwarding.dispatcher)
    if len(subscribers_of(session)) >= MAX_LISTENING:
        raise _too_many(MAX_LISTENING)
    forwarded(call).params = {"notifications": kept}  # what is kept is bounded
    subscriber = subscriptions.subscribe(session, call.request_id, call.peer.retain(), topics)
    subscriptions.keep_grant(subscriber, None, forwarded(call))
    return honoured


def _subscribe_reply(calls: CallLifecycle, call: Invocation, value: Any) -> tuple[Reply, bool]:
    reply = to_reply(calls, call, value)
    call.to_result(value, call)
    return reply


def _listen_reply(calls: CallLifecycle, call: Invocation, value: Any) -> tuple[Notify, bool]:
    return acknowledgement(call.request_id, call.to_result(value, call)), False


def _too_many(limit: int) -> ToolError:
    details = {"reason": "too_many_subscriptions", "maxSubscriptions": limit}
    return ToolError(ErrorCode.RESOURCE_EXHAUSTED, f"At most {limit} subscriptions.", details)


FORWARDED_SUBSCRIBE = CallKind(
    FEATURE.subject, FEATURE.label, _subscribe_reply, FEATURE.to_error, *RULES
)
FORWARDED_LISTEN = CallKind(FEATURE.subject, FEATURE.label, _listen_reply, FEATURE.to_error, *RULES)
