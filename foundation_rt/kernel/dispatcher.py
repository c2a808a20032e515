"""From a session and a message to effects: everything that the server decides.

`Dispatcher.dispatch` is a plain function over plain data. It starts nothing, writes nothing and
reads no clock. The engine (or a host of its own, or a simulation) performs the effects and reports
back through `conclude`, `expire` and `close`. Callers serialize the calls for one session.

`Dispatcher.methods` has the function for each method; the peer's revision says which methods it may
use. A stateless request names a revision in its `_meta`, brings its peer along and needs no
handshake (REV-04); every other request passes the gate of the session's state (LIFE-03).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..base.lazy_names import lazy
from ..errors import JsonRpcError, JsonRpcErrorCode, ToolError, describe_exception
from ..protocol.framing import LineTooLong
from ..protocol.jsonrpc import ABSENT, Malformed, Message, Notification, Request, encode
from ..protocol.methods import (
    INITIALIZE,
    INITIALIZED_SHORT,
    NOTIFICATIONS_CANCELLED,
    NOTIFICATIONS_INITIALIZED,
    NOTIFICATIONS_PROGRESS,
    TOOLS_CALL,
    facts,
)
from ..protocol.peer import Peer, brings_peer, read_stateless_peer
from .effects import ClientDisconnected, Log, Notify, SessionEnded
from .methods import METHODS, lifecycle
from .records import protocol_error_record
from .replies import (
    ResultWriter,
    as_json_rpc_error,
    derive_correlation_id,
    error_reply,
    internal_error_reply,
    invalid_params,
    method_not_found,
    not_initialized,
)
from .session import CLOSED, Session, SessionEvent, State

if TYPE_CHECKING:
    from .call_lifecycle import CallLifecycle, Hooks
    from .effects import Effect
    from .invocation import CallOutcome, Invocation, Step
    from .methods import Method

Decide = Callable[[], "list[Effect]"]
"""Decides about one request."""

Decision = Callable[["Dispatcher", "Session", Any], "list[Effect]"]
"""Decides about a message of one class."""


class Dispatcher:
    """Decides about every message.

    Args:
        page_size: entries in one page of a list.

    Attributes:
        methods: answers requests, by method.
        messages: decides about messages that are neither requests nor notifications, by class.
        notifications: decides about notifications, by method.
        own: the methods that MCP does not have; each is a call, in every revision (EXT-03).
        parts: what features decide with, by the class of that.
        around, instructions, advertise, answer, knows, label, header_parameters: the hooks of
            features; see `RuntimeFeature`.
    """

    around: Hooks = ()
    instructions: Hooks = ()
    advertise: Hooks = ()
    answer: Hooks = ()
    knows: Hooks = ()
    label: Hooks = ()
    header_parameters: Hooks = ()

    def __init__(self, results: ResultWriter, calls: CallLifecycle, page_size: int) -> None:
        self.results = results
        self.calls = calls
        self.page_size = page_size
        self.own: set[str] = set()
        self.parts: dict[type, Any] = {}
        self.methods: dict[str, Method] = {**METHODS}
        self.messages: dict[type, Decision] = {
            Malformed: lazy(f"{__package__}.malformed_replies", "malformed"),
            LineTooLong: lazy(f"{__package__}.malformed_replies", "line_too_long"),
        }
        self.notifications: dict[str, Decision] = {**NOTIFICATIONS}

    def dispatch(self, session: Session, message: Message | LineTooLong) -> list[Effect]:
        """Return the effects of one message, in the order in which to perform them."""
        if session.state is CLOSED:
            return []
        if isinstance(message, Request):
            return self._request(session, message)
        if isinstance(message, Notification):
            return self._notification(session, message)
        return self.messages[type(message)](self, session, message)

    def restore(self, session: Session, peer: Peer) -> list[Effect]:
        """Continue, in a new session, one that had nothing but its handshake (HTTP-62)."""
        from .methods.lifecycle import restore

        return restore(self, session, peer)

    # -- the steps of a call -----------------------------------------------------------------

    def conclude(self, call: Invocation, outcome: CallOutcome, duration_ms: float) -> list[Effect]:
        """Take steps 9 and 10: a handler has ended after `duration_ms`."""
        if not (call.around_steps or call.session.parts):
            return self.calls.conclude(call, outcome, duration_ms)
        return self._take_step(call, self.calls.conclude, outcome, duration_ms)

    def break_off(self, call: Invocation, error: BaseException, duration_ms: float) -> list[Effect]:
        """End a call, once, that a bug kept from being concluded after `duration_ms`."""
        return self._take_step(call, self.calls.break_off, error, duration_ms)

    def expire(self, call: Invocation) -> list[Effect]:
        """Decide about a call whose deadline has passed while its handler runs."""
        return self._take_step(call, self.calls.expire)

    def cancel_call(self, call: Invocation) -> list[Effect]:
        """Abort a call whose client has cancelled it."""
        return self._take_step(call, self.calls.cancel)

    def _take_step(self, call: Invocation, step: Step, *arguments: Any) -> list[Effect]:
        """Take one step of a call, within what features have around it; then tell its session."""
        effects = _around(call, step)(call, *arguments)
        session = call.session
        if session.parts and call.request_id not in session.in_flight:
            # A call that was admitted goes on under its id.
            for part in session.parts.values():
                effects = part.ended(call.request_id, effects)
        return effects

    def cancel(self, session: Session, request_id: Any) -> list[Effect]:
        """Cancel a request of the client; ignore one that is unknown or has been answered."""
        if type(request_id) is str or type(request_id) is int:
            call = session.in_flight.get(request_id)
            if call is not None:
                return self.cancel_call(call)
            for part in session.parts.values():
                effects: list[Effect] = part.cancel(request_id)
                if effects:
                    return effects
        return []

    def notify(self, call: Invocation, method: str, params: dict[str, Any]) -> list[Effect]:
        """Send a notification that belongs to `call`, while the call is pending."""
        if method == NOTIFICATIONS_PROGRESS:  # NOTE-02: decided in the order in which it is sent
            if not call.progress < params["progress"] < math.inf:
                return []
            call.progress = params["progress"]
        return _around(call, self.calls.notify)(call, method, params)

    def list_changed(self, session: Session, kind: str) -> list[Effect]:
        """Notify a RUNNING connection that a list has changed (LIFE-10).

        Nothing is sent about a kind of list that the server did not advertise to it.
        """
        if session.state is not State.RUNNING or kind not in session.capabilities:
            return []
        return [Notify(encode({"jsonrpc": "2.0", "method": list_changed_method(kind)}))]

    def prepare_stop(self, session: Session) -> list[Effect]:
        """End what is open beside the calls in flight: the server stops."""
        return [effect for part in session.parts.values() for effect in part.stopping(self.results)]

    def close(self, session: Session, reason: str = "disconnected") -> list[Effect]:
        """Close the session for good and abort its calls: the peer has gone (LIFE-06)."""
        if not session.advance(SessionEvent.CLOSE):
            return []
        for part in session.parts.values():
            part.close()
        calls = list(session.in_flight.values())
        effects = self.disconnect(calls, reason)
        if session.peer is not None:
            effects.append(ClientDisconnected("debug", "client disconnected", {"reason": reason}))
        if session.key is not None:
            effects.append(SessionEnded(session.key))
        return effects

    def disconnect(self, calls: list[Invocation], reason: str) -> list[Effect]:
        """Abort calls whose client has gone, or whose server stops."""
        steps = [self._take_step(call, self.calls.disconnect, reason) for call in calls]
        return [effect for effects in steps for effect in effects]

    def report_bug(
        self, session: Session, message: Message | LineTooLong, error: BaseException
    ) -> list[Effect]:
        """Log a bug of the runtime, and answer the request nevertheless (RPC-10)."""
        effects: list[Effect] = [
            Log("error", "internal error", {"error": describe_exception(error)})
        ]
        if isinstance(message, Request):
            correlation_id = derive_correlation_id(session, message.params)
            effects.append(internal_error_reply(message.id, correlation_id))
        return effects

    def _request(self, session: Session, request: Request) -> list[Effect]:
        peer = session.peer
        params = request.params
        if request.id in session.in_flight or (session.parts and session.is_open(request.id)):
            return self._refuse_duplicate_id(session, request)
        if session.stateless or (
            type(params) is dict and "_meta" in params and brings_peer(params)
        ):
            try:
                peer = read_stateless_peer(params)
            except JsonRpcError as refusal:
                return self._refuse(session, request, refusal)
        if not self.around:
            return self._decide(session, peer, request)
        decide: Decide = partial(self._decide, session, peer, request)
        for around in reversed(self.around):
            decide = partial(around, session, peer, request, decide)
        return decide()

    def _decide(self, session: Session, peer: Peer | None, request: Request) -> list[Effect]:
        """Decide about a request of `peer`, within what features have around that."""
        try:
            if request.method == TOOLS_CALL:
                return self.calls.begin(session, peer, request)  # step 1 is its own gate
            return self._answer(session, peer, request)
        except JsonRpcError as refusal:
            return self._refuse(session, request, refusal)
        except ToolError as error:
            return self._refuse(session, request, as_json_rpc_error(error))

    def _answer(self, session: Session, peer: Peer | None, request: Request) -> list[Effect]:
        """Answer a request for any method but `tools/call`."""
        is_stateless = peer is not None and peer.revision.is_stateless
        if not is_stateless:
            if session.state is not State.RUNNING and not _is_handshake(session, request.method):
                raise not_initialized(session)
            if request.method in HANDSHAKE:
                _require_object(request)
                return HANDSHAKE[request.method](self, session, request)
        method = self.methods.get(request.method)
        if method is None or peer is None or not self._has(peer, request.method):
            raise method_not_found(request)
        _require_object(request)
        for answer in self.answer:
            answered: list[Effect] | None = answer(session, peer, request)
            if answered is not None:
                return answered
        return method(self, session, peer, request)

    def _has(self, peer: Peer, method: str) -> bool:
        return method in peer.revision.requests or method in self.own

    def is_call(self, method: str) -> bool:
        """Return whether the requests of a method are calls, with records and limits (FEAT-01)."""
        return facts(method).is_call or method in self.own

    def _refuse(
        self, session: Session, request: Request, error: JsonRpcError, *, has_id: bool = True
    ) -> list[Effect]:
        """Reply with a JSON-RPC error (RPC-09); a call has a record, too (CALL-14, FEAT-07).

        The reply has the id of the request, unless `has_id` is false.
        """
        data = {"correlationId": derive_correlation_id(session, request.params), **error.data}
        request_id = request.id if has_id else None
        effects: list[Effect] = [error_reply(error.code, error.message, data, request_id)]
        if self.is_call(request.method):
            effects.append(protocol_error_record(request, data["correlationId"], error))
        return effects

    def _refuse_duplicate_id(self, session: Session, request: Request) -> list[Effect]:
        """Reply without an id: with it, this would be taken for the reply to the call (RPC-05)."""
        message = "Invalid Request: a request with this id is still in flight"
        error = JsonRpcError(JsonRpcErrorCode.INVALID_REQUEST, message, {"reason": "duplicate_id"})
        return self._refuse(session, request, error, has_id=False)

    def _notification(self, session: Session, notification: Notification) -> list[Effect]:
        handler = self.notifications.get(notification.method)
        if handler is not None:
            return handler(self, session, notification)
        return dropped(notification, "unknown notification")

    # -- notifications -----------------------------------------------------------------------

    def _on_initialized(self, session: Session, notification: Notification) -> list[Effect]:
        if session.advance(SessionEvent.INITIALIZED):
            return []
        return dropped(notification, f"not expected in state {session.state.value}")

    def _on_cancelled(self, session: Session, notification: Notification) -> list[Effect]:
        """Abort the call and never answer it (TIME-05)."""
        params = notification.params
        request_id = params.get("requestId") if type(params) is dict else None
        effects = self.cancel(session, request_id)
        return effects or dropped(notification, "no such call is in flight")


def _around(call: Invocation, step: Step) -> Step:
    """Return a step of a call with what features have around it."""
    name = step.__name__
    for around in call.around_steps:
        step = partial(around, name, step)
    return step


HANDSHAKE: dict[str, Callable[[Dispatcher, Session, Request], list[Effect]]] = {
    INITIALIZE: lifecycle.initialize,
    INITIALIZED_SHORT: lifecycle.initialized,
    NOTIFICATIONS_INITIALIZED: lifecycle.initialized,
}

NOTIFICATIONS: dict[str, Callable[[Dispatcher, Session, Notification], list[Effect]]] = {
    INITIALIZED_SHORT: Dispatcher._on_initialized,
    NOTIFICATIONS_INITIALIZED: Dispatcher._on_initialized,
    NOTIFICATIONS_CANCELLED: Dispatcher._on_cancelled,
}


def list_changed_method(kind: str) -> str:
    """Return the method of the notification that the list of `kind` has changed."""
    return f"notifications/{kind}/list_changed"


# -- gates ---------------------------------------------------------------------------------------


def _is_handshake(session: Session, method: str) -> bool:
    """Return whether the method may be used before RUNNING (LIFE-03)."""
    if method == INITIALIZE:
        return True
    return session.state is State.INITIALIZING and method in HANDSHAKE


def _require_object(request: Request) -> None:
    if request.params is not ABSENT and type(request.params) is not dict:
        raise invalid_params("params must be an object")


def dropped(notification: Notification, reason: str) -> list[Effect]:
    """Log a notification that has no effect."""
    fields = {"method": notification.method, "why": reason}
    return [Log("debug", "notification dropped", fields)]
