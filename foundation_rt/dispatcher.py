"""From a session and a message to effects: everything the server decides, and nothing it does.

`Dispatcher.dispatch` is a plain function over plain data. It starts nothing, writes nothing and
looks at no clock; whoever performs its effects (the engine, a host of its own, a simulation)
reports back through `conclude`, `expire` and `close`. Callers serialize the calls for one session.

A method is a row of `METHODS`: its name and the function in `methods/` that answers it. Who may use
it is a matter of the peer's revision. A request that names a revision in its `_meta` brings its
peer along and needs no handshake (REV-04); all others pass the gate of the session's state
(LIFE-03).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import define

from .effects import Emit, Notify
from .envelope import Envelope
from .errors import JsonRpcErrorCode
from .feature_calls import FeatureCalls
from .methods import discovery, lifecycle, tasks, tools
from .peer import Peer, PeerRefused, read_stateless_peer
from .protocol.framing import LineTooLong
from .protocol.jsonrpc import (
    ABSENT,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    encode,
)
from .protocol.revisions import VERSION_KEY
from .refusals import (
    derive_correlation_id,
    error_reply,
    invalid_params,
    method_not_found,
    not_initialized_data,
    refuse,
)
from .session import Event, Session, State
from .tools_call import ToolsCall, protocol_error_record

if TYPE_CHECKING:
    from .effects import Effect
    from .extensions.tasks.offer import TaskOffer
    from .invocation import Invocation, Outcome

_LIST_CHANGED = encode({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


@define(eq=False, repr=False)
class Dispatcher:
    """Decides what every message leads to."""

    envelope: Envelope
    tools_call: ToolsCall
    feature_calls: FeatureCalls
    tasks: TaskOffer

    def dispatch(self, session: Session, message: Message | LineTooLong) -> list[Effect]:
        """The effects of one message, in the order in which they are to be performed."""
        if session.state is State.CLOSED:
            return []
        if isinstance(message, Request):
            return self._request(session, message)
        if isinstance(message, Notification):
            return self._notification(session, message)
        return _DECISIONS[type(message)](session, message)

    def conclude(self, call: Invocation, outcome: Outcome, duration_ms: float) -> list[Effect]:
        """A handler has ended after `duration_ms`: steps 9 and 10."""
        return call.procedure.conclude(call, outcome, duration_ms)

    def break_off(self, call: Invocation, error: Exception, duration_ms: float) -> list[Effect]:
        """A bug kept a call from being concluded after `duration_ms`: it still ends, once."""
        return call.procedure.break_off(call, error, duration_ms)

    def expire(self, call: Invocation) -> list[Effect]:
        """The deadline of a call has passed and its handler has not ended."""
        return call.procedure.expire(call)

    def cancel(self, session: Session, request_id: Any) -> list[Effect]:
        """The client wants no answer to a request any more; one unknown or too late is ignored."""
        if type(request_id) is str or type(request_id) is int:
            call = session.in_flight.get(request_id)
            if call is not None:
                return call.procedure.cancel(call)
        return []

    def notify(self, call: Invocation, method: str, params: dict[str, Any]) -> list[Effect]:
        """A notification that belongs to `call`; none once it is not waited for any more."""
        return call.procedure.notify(call, method, params)

    def list_changed(self, session: Session) -> list[Effect]:
        """There are other tools than before: a RUNNING connection is told so (LIFE-10)."""
        return [Notify(_LIST_CHANGED)] if session.state is State.RUNNING else []

    def close(self, session: Session, reason: str = "disconnected") -> list[Effect]:
        """The peer has gone: the session is CLOSED for good, whatever runs is aborted (LIFE-06)."""
        if not session.advance(Event.CLOSE):
            return []
        calls = list(session.in_flight.values())
        return [effect for call in calls for effect in call.procedure.disconnect(call, reason)]

    def _request(self, session: Session, request: Request) -> list[Effect]:
        if request.id in session.in_flight:
            return _refuse_duplicate_id(session, request)
        peer = session.peer
        if session.stateless or _names_a_revision(request.params):
            try:
                peer = read_stateless_peer(request.params)
            except PeerRefused as refused:
                return _refuse_peer(session, request, refused)
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
        method = METHODS.get(request.method)
        if method is None or peer is None or request.method not in peer.revision.requests:
            return method_not_found(session, request)
        if not _has_object_params(request):
            return invalid_params(session, request, "params must be an object")
        return method(self, session, peer, request)

    def _notification(self, session: Session, notification: Notification) -> list[Effect]:
        handler = NOTIFICATIONS.get(notification.method)
        if handler is not None:
            return handler(self, session, notification)
        return _dropped(notification, "unknown notification")

    # -- notifications -----------------------------------------------------------------------

    def _on_initialized(self, session: Session, notification: Notification) -> list[Effect]:
        if session.advance(Event.INITIALIZED):
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

METHODS: dict[str, Callable[[Dispatcher, Session, Peer, Request], list[Effect]]] = {
    "ping": lifecycle.ping,
    "server/discover": discovery.discover,
    "tasks/cancel": tasks.cancel_task,
    "tasks/get": tasks.get_task,
    "tasks/update": tasks.update_task,
    "tools/list": tools.list_tools,
}

NOTIFICATIONS: dict[str, Callable[[Dispatcher, Session, Notification], list[Effect]]] = {
    "initialized": Dispatcher._on_initialized,
    "notifications/initialized": Dispatcher._on_initialized,
    "notifications/cancelled": Dispatcher._on_cancelled,
}


# -- gates ---------------------------------------------------------------------------------------


def _names_a_revision(params: Any) -> bool:
    """Whether a request belongs to the stateless era."""
    meta = params.get("_meta") if type(params) is dict else None
    return type(meta) is dict and VERSION_KEY in meta


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


# -- what is no request and no notification ------------------------------------------------------


def _malformed(session: Session, message: Malformed) -> list[Effect]:
    title = "Parse error" if message.code is JsonRpcErrorCode.PARSE_ERROR else "Invalid Request"
    data = {
        "reason": message.reason,
        "correlationId": derive_correlation_id(session, message.params),
    }
    # RPC-05: an answer with the id of a call in flight would be taken for that call's.
    request_id = None if message.id in session.in_flight else message.id
    return [error_reply(message.code, f"{title}: {message.detail}", data, request_id)]


def _line_too_long(session: Session, event: LineTooLong) -> list[Effect]:
    data = {
        "reason": "line_too_long",
        "maxLineBytes": event.limit,
        "correlationId": session.connection_correlation_id,
    }
    message = f"Invalid Request: a line is longer than {event.limit} bytes"
    return [error_reply(JsonRpcErrorCode.INVALID_REQUEST, message, data, None)]


def _stray_response(session: Session, response: Response) -> list[Effect]:
    """RPC-07: the server has asked nothing, so an answer belongs to nothing."""
    return [Emit("debug", "response dropped: nothing was asked", {})]


_DECISIONS: dict[type, Callable[[Session, Any], list[Effect]]] = {
    Malformed: _malformed,
    LineTooLong: _line_too_long,
    Response: _stray_response,
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
    return [Emit("debug", "notification dropped", fields)]
