"""From a session and a message to effects: everything the server decides, and nothing it does.

`Dispatcher.dispatch` is a plain function over plain data. It starts nothing, writes nothing and
looks at no clock; whoever performs its effects (the engine, a host of its own, a simulation)
reports back through `conclude`, `expire` and `close`. Callers serialize the calls for one session.

A method is a row of `METHODS`: its name and the function in `methods/` that answers it. The peer's
revision says whether it may use the method. A request that names a revision in its `_meta` brings
its peer along and needs no handshake (REV-04); every other request passes the gate of the session's
state (LIFE-03).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..errors import JsonRpcErrorCode, UsageError, describe_exception
from ..protocol.framing import LineTooLong
from ..protocol.jsonrpc import (
    ABSENT,
    Batch,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    encode,
    invalid,
    read,
)
from ..protocol.peer import Peer, PeerRefused, brings_peer, read_stateless_peer
from .batches import MAX_BATCH, PendingBatch, gather, wait
from .effects import ClientDisconnected, Log, Notify, Resolve
from .invocation import Phase
from .methods import lifecycle
from .replies import (
    Refused,
    ResultWriter,
    derive_correlation_id,
    error_reply,
    internal_error_reply,
    invalid_params,
    method_not_found,
    not_initialized_data,
    refuse,
)
from .session import Session, SessionEvent, State
from .subscriptions import Subscriptions, list_changed_method
from .tools_call import ToolsCall, protocol_error_record

if TYPE_CHECKING:
    from ..registry.features import Features
    from ..server_requests.requests import PreparedRequest
    from .client_input import ClientInput
    from .effects import Effect, Publish
    from .feature_calls import FeatureCalls
    from .invocation import Invocation, Outcome
    from .procedure import Procedure
    from .tasks.policy import TaskPolicy

Around = Callable[
    ["Session", "Peer | None", "Request", Callable[[], "list[Effect]"]], "list[Effect]"
]
"""Middleware of decisions: is given a request, its peer and what decides about it."""


@define(eq=False, repr=False)
class Dispatcher:
    """Decides what every message leads to.

    Args:
        page_size: how many entries of a list one answer holds.

    Attributes:
        features: what the server offers besides tools; None as long as there is nothing.
        around: is called in place of the decision about a request, which it is given; None where
            nothing is around it.
    """

    results: ResultWriter
    tools_call: ToolsCall
    tasks: TaskPolicy
    page_size: int
    client_input: ClientInput
    subscriptions: Subscriptions
    features: Features | None = field(default=None, init=False)
    around: Around | None = field(default=None, init=False)
    _feature_calls: FeatureCalls | None = field(default=None, init=False)

    def dispatch(self, session: Session, message: Message | LineTooLong) -> list[Effect]:
        """The effects of one message, in the order in which they are to be performed."""
        if session.state is State.CLOSED:
            return []
        if isinstance(message, Request):
            return self._request(session, message)
        if isinstance(message, Notification):
            return self._notification(session, message)
        if isinstance(message, Batch):
            return self._batch(session, message)
        return _DECISIONS[type(message)](session, message)

    @property
    def feature_calls(self) -> FeatureCalls:
        """What decides about calls that are no tools'; made when there is the first of them."""
        if self._feature_calls is None:
            from .feature_calls import FeatureCalls

            of_tools = self.tools_call
            self._feature_calls = FeatureCalls(
                of_tools.resources,
                of_tools.limits,
                of_tools.ids,
                self.results,
                self.client_input,
            )
        return self._feature_calls

    def procedure_of(self, method: str) -> Procedure:
        """What decides about calls of `method`."""
        return self.tools_call if method == "tools/call" else self.feature_calls

    def conclude(self, call: Invocation, outcome: Outcome, duration_ms: float) -> list[Effect]:
        """A handler has ended after `duration_ms`: steps 9 and 10."""
        effects = call.procedure.conclude(call, outcome, duration_ms)
        if not call.session.batches or call.request_id in call.session.in_flight:
            return effects  # what ended was only its admission
        return gather(call.session, call.request_id, effects)

    def break_off(self, call: Invocation, error: BaseException, duration_ms: float) -> list[Effect]:
        """A bug kept a call from being concluded after `duration_ms`: it still ends, once."""
        return _end(call, call.procedure.break_off(call, error, duration_ms))

    def expire(self, call: Invocation) -> list[Effect]:
        """The deadline of a call has passed and its handler has not ended."""
        return _end(call, call.procedure.expire(call))

    def cancel(self, session: Session, request_id: Any) -> list[Effect]:
        """The client wants no answer to a request any more; one unknown or too late is ignored."""
        if type(request_id) is str or type(request_id) is int:
            call = session.in_flight.get(request_id)
            if call is not None:
                return _end(call, call.procedure.cancel(call))
            subscriber = session.subscribers.get(request_id)
            if subscriber is not None:
                self.subscriptions.end(subscriber)
                return [Log("debug", "subscription cancelled", {"subscriptionId": request_id})]
        return []

    def notify(self, call: Invocation, method: str, params: dict[str, Any]) -> list[Effect]:
        """A notification that belongs to `call`; none once it is not waited for any more."""
        if method == "notifications/progress":  # NOTE-02: decided in the order in which it is sent
            if not call.progress < params["progress"] < math.inf:
                return []
            call.progress = params["progress"]
        return call.procedure.notify(call, method, params)

    def ask(self, call: Invocation, request: PreparedRequest) -> tuple[str | None, list[Effect]]:
        """Return the id of a new request to the client of `call`, and the effects that send it.

        The id is None if the call has been answered or aborted.

        Raises:
            UsageError: the call has ended, and something that it left behind asks.
        """
        session = call.session
        if session.in_flight.get(call.request_id) is not call:
            if call.phase is Phase.PENDING:
                raise UsageError("the call has ended: a handler asks its client while it runs")
            return None, []
        session.server_request_count += 1
        request_id = f"server-{session.server_request_count}"
        session.server_requests.add(request_id)
        line = encode({"jsonrpc": "2.0", "id": request_id, **request.to_wire()})
        if "elicitationId" in request.params:
            self.subscriptions.follow_elicitation(session, request.params["elicitationId"])
        return request_id, [Notify(line, call.request_id)]

    def cancel_requests(self, call: Invocation, request_ids: list[str]) -> list[Effect]:
        """Cancel those requests to the client of `call` that have no response yet."""
        session = call.session
        open_ids = [each for each in request_ids if each in session.server_requests]
        session.server_requests.difference_update(open_ids)
        belongs = call.request_id if session.in_flight.get(call.request_id) is call else None
        return [Notify(_cancelled(request_id), belongs) for request_id in open_ids]

    def fail_requests(self, session: Session, away_ms: int) -> list[Effect]:
        """Raise `ClientGoneError` in the handlers that wait for a response (ASK-19).

        They cancel their requests, as after any other failure.
        """
        from ..server_requests.errors import ClientGoneError

        waiting = sorted(session.server_requests)
        return [Resolve(each, None, ClientGoneError(away_ms)) for each in waiting]

    def list_changed(self, session: Session, kind: str) -> list[Effect]:
        """A list is another one than before: a RUNNING connection is told so (LIFE-10).

        Not of a kind that it knows nothing of: no such capability was agreed on with it.
        """
        if session.state is not State.RUNNING or kind not in session.capabilities:
            return []
        return [Notify(encode({"jsonrpc": "2.0", "method": list_changed_method(kind)}))]

    def notify_subscriber(self, session: Session, published: Publish) -> list[Effect]:
        """Send a notification to a subscriber that still has its topic (SUB-02)."""
        subscriber = session.subscribers.get(published.subscription_id)
        if subscriber is None or not subscriber.has(published.topic):
            return []
        if published.is_last:
            self.subscriptions.remove(subscriber, published.topic)
        return [Notify(published.line, published.subscription_id)]

    def end_subscriptions(self, session: Session) -> list[Effect]:
        """Give every `subscriptions/listen` its result: the server stops (SUB-08)."""
        ended = [each for each in session.subscribers.values() if each.peer is not None]
        self.subscriptions.end_session(session)
        if not ended:
            return []
        from .methods.subscriptions import final

        return [effect for each in ended for effect in final(self, each)]

    def close(self, session: Session, reason: str = "disconnected") -> list[Effect]:
        """The peer has gone: the session is CLOSED for good, whatever runs is aborted (LIFE-06)."""
        if not session.advance(SessionEvent.CLOSE):
            return []
        self.subscriptions.end_session(session)
        session.batches.clear()
        calls = list(session.in_flight.values())
        effects = [e for call in calls for e in call.procedure.disconnect(call, reason)]
        if session.peer is not None:
            effects.append(ClientDisconnected("debug", "client disconnected", {"reason": reason}))
        return effects

    def report_bug(
        self, session: Session, message: Message | LineTooLong, error: BaseException
    ) -> list[Effect]:
        """A bug of ours: loud in the log, and a request still gets an answer (RPC-10)."""
        effects: list[Effect] = [
            Log("error", "internal error", {"error": describe_exception(error)})
        ]
        if isinstance(message, Request):
            correlation_id = derive_correlation_id(session, message.params)
            effects.append(internal_error_reply(message.id, correlation_id))
        return effects

    def _batch(self, session: Session, batch: Batch) -> list[Effect]:
        """RPC-13 to RPC-16: each message as if it had come alone, their answers together."""
        refusal = _refuse_batch(session, batch)
        if refusal is not None:
            return _malformed(session, refusal)
        pending = PendingBatch()
        effects: list[Effect] = []
        for message in map(_read_batched, batch.items):
            try:
                found = self.dispatch(session, message)
            except Exception as error:
                found = self.report_bug(session, message, error)
            rest = pending.keep_replies(found)
            effects += rest
            if isinstance(message, Request):
                pending.latest = message.id
                if len(rest) == len(found):
                    wait(session, pending, message.id)
        pending.reading = False
        return effects + pending.answer()

    def _request(self, session: Session, request: Request) -> list[Effect]:
        if request.id in session.in_flight or request.id in session.subscribers:
            return _refuse_duplicate_id(session, request)
        peer = session.peer
        if session.stateless or brings_peer(request.params):
            try:
                peer = read_stateless_peer(request.params)
            except PeerRefused as refused:
                return _refuse_peer(session, request, refused)
        if self.around is not None:
            return self.around(
                session, peer, request, partial(self._decide, session, peer, request)
            )
        return self._decide(session, peer, request)

    def _decide(self, session: Session, peer: Peer | None, request: Request) -> list[Effect]:
        """What a request of `peer` leads to, whatever is around that decision."""
        if request.method == "tools/call":
            return self.tools_call.begin(session, peer, request)  # step 1 is its own gate
        is_stateless = peer is not None and peer.revision.is_stateless
        if not is_stateless:
            if session.state is not State.RUNNING and not _is_handshake(session, request.method):
                return _refuse_uninitialized(session, request)
            if request.method in HANDSHAKE:
                if not _has_object_params(request):
                    return invalid_params(session, request, "params must be an object")
                return HANDSHAKE[request.method](self, session, request)
        place = METHODS.get(request.method)
        if place is None or peer is None or request.method not in peer.revision.requests:
            return method_not_found(session, request)
        if not _has_object_params(request):
            return invalid_params(session, request, "params must be an object")
        try:
            return _load(place)(self, session, peer, request)
        except Refused as refused:
            return refused.effects

    def _notification(self, session: Session, notification: Notification) -> list[Effect]:
        handler = NOTIFICATIONS.get(notification.method)
        if handler is not None:
            return handler(self, session, notification)
        return _dropped(notification, "unknown notification")

    # -- notifications -----------------------------------------------------------------------

    def _on_initialized(self, session: Session, notification: Notification) -> list[Effect]:
        if session.advance(SessionEvent.INITIALIZED):
            return []
        return _dropped(notification, f"not expected in state {session.state.value}")

    def _on_cancelled(self, session: Session, notification: Notification) -> list[Effect]:
        """TIME-05: abort the call and never answer it."""
        params = notification.params
        request_id = params.get("requestId") if type(params) is dict else None
        effects = self.cancel(session, request_id)
        return effects or _dropped(notification, "no such call is in flight")


HANDSHAKE: dict[str, Callable[[Dispatcher, Session, Request], list[Effect]]] = {
    "initialize": lifecycle.initialize,
    "initialized": lifecycle.initialized,
    "notifications/initialized": lifecycle.initialized,
}

Method = Callable[[Dispatcher, Session, "Peer", Request], "list[Effect]"]

METHODS: dict[str, tuple[str, str]] = {
    "completion/complete": ("completion", "complete"),
    "logging/setLevel": ("logging", "set_level"),
    "ping": ("lifecycle", "ping"),
    "prompts/get": ("prompts", "get_prompt"),
    "prompts/list": ("prompts", "list_prompts"),
    "resources/list": ("resources", "list_resources"),
    "resources/read": ("resources", "read_resource"),
    "resources/subscribe": ("subscriptions", "subscribe"),
    "resources/templates/list": ("resources", "list_templates"),
    "resources/unsubscribe": ("subscriptions", "unsubscribe"),
    "server/discover": ("discovery", "discover"),
    "subscriptions/listen": ("subscriptions", "listen"),
    "tasks/cancel": ("tasks", "cancel_task"),
    "tasks/get": ("tasks", "get_task"),
    "tasks/update": ("tasks", "update_task"),
    "tools/list": ("tools", "list_tools"),
}
"""Of each method the module in `core/methods/` and the function there that answers it.

They are imported as they are asked for: most servers are never asked for most of them.
"""

NOTIFICATIONS: dict[str, Callable[[Dispatcher, Session, Notification], list[Effect]]] = {
    "initialized": Dispatcher._on_initialized,
    "notifications/initialized": Dispatcher._on_initialized,
    "notifications/cancelled": Dispatcher._on_cancelled,
}


def _load(place: tuple[str, str]) -> Method:
    module, function = place
    method: Method = getattr(import_module(f".methods.{module}", __package__), function)
    return method


# -- gates ---------------------------------------------------------------------------------------


def _is_handshake(session: Session, method: str) -> bool:
    """What passes the gate before RUNNING (LIFE-03)."""
    if method == "initialize":
        return True
    return session.state is State.INITIALIZING and method in HANDSHAKE


def _has_object_params(request: Request) -> bool:
    return request.params is ABSENT or type(request.params) is dict


def _refuse_uninitialized(session: Session, request: Request) -> list[Effect]:
    data = not_initialized_data(session)
    return [error_reply(JsonRpcErrorCode.NOT_INITIALIZED, "Not initialized", data, request.id)]


def _refuse_peer(session: Session, request: Request, refused: PeerRefused) -> list[Effect]:
    effects = refuse(session, request, refused.code, refused.message, **refused.data)
    if request.method == "tools/call":
        correlation_id = derive_correlation_id(session, request.params)
        effects.append(protocol_error_record(request, correlation_id))
    return effects


# -- batches -------------------------------------------------------------------------------------


def _refuse_batch(session: Session, batch: Batch) -> Malformed | None:
    """RPC-13, RPC-16: what keeps a batch from being looked at."""
    if session.peer is None or not session.peer.revision.batches:
        return invalid("batch_not_supported", "Batches are not supported: send one message a line.")
    if not batch.items:
        return invalid("empty_batch", "A batch has one message or more.")
    if len(batch.items) > MAX_BATCH:
        return invalid("batch_too_large", f"A batch has {MAX_BATCH} messages or less.")
    return None


def _read_batched(item: Any) -> Request | Notification | Response | Malformed:
    """A member of a batch; in the stateless mode there are none (RPC-16)."""
    message = read(item)
    if isinstance(message, Request) and brings_peer(message.params):
        detail = "The revision that the request names has no batches."
        return invalid("revision_without_batches", detail, message.id, message.params)
    return message


def _end(call: Invocation, effects: list[Effect]) -> list[Effect]:
    """What the end of a call leads to, whether it came alone or in a batch."""
    if not call.session.batches:
        return effects
    return gather(call.session, call.request_id, effects)


# -- what is no request and no notification ------------------------------------------------------


def _malformed(session: Session, message: Malformed) -> list[Effect]:
    title = "Parse error" if message.code is JsonRpcErrorCode.PARSE_ERROR else "Invalid Request"
    data = {
        "reason": message.reason,
        "correlationId": derive_correlation_id(session, message.params),
    }
    # RPC-05: an answer with the id of a call in flight would be taken for that call's.
    request_id = None if session.is_open(message.id) else message.id
    return [error_reply(message.code, f"{title}: {message.detail}", data, request_id)]


def _line_too_long(session: Session, event: LineTooLong) -> list[Effect]:
    data = {
        "reason": "line_too_long",
        "maxLineBytes": event.limit,
        "correlationId": session.connection_correlation_id,
    }
    message = f"Invalid Request: a line is longer than {event.limit} bytes"
    return [error_reply(JsonRpcErrorCode.INVALID_REQUEST, message, data, None)]


def _response(session: Session, response: Response) -> list[Effect]:
    """ASK-17: the answer to a request of ours; RPC-07: one that belongs to nothing is dropped."""
    request_id = response.id
    if type(request_id) is not str or request_id not in session.server_requests:
        return [Log("debug", "response dropped: nothing was asked", {})]
    session.server_requests.remove(request_id)
    return [Resolve(request_id, response.result, response.error)]


def _cancelled(request_id: str) -> bytes:
    params = {"requestId": request_id, "reason": "The answer is not needed any more."}
    return encode({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})


_DECISIONS: dict[type, Callable[[Session, Any], list[Effect]]] = {
    Malformed: _malformed,
    LineTooLong: _line_too_long,
    Response: _response,
}


def _refuse_duplicate_id(session: Session, request: Request) -> list[Effect]:
    """RPC-05: answered with no id, since an answer with this one would be taken for the call's."""
    correlation_id = derive_correlation_id(session, request.params)
    data = {"reason": "duplicate_id", "correlationId": correlation_id}
    effects: list[Effect] = [
        error_reply(
            JsonRpcErrorCode.INVALID_REQUEST,
            "Invalid Request: a request with this id is still in flight",
            data,
            None,
        )
    ]
    if request.method == "tools/call":
        effects.append(protocol_error_record(request, correlation_id))
    return effects


def _dropped(notification: Notification, why: str) -> list[Effect]:
    fields = {"method": notification.method, "why": why}
    return [Log("debug", "notification dropped", fields)]
