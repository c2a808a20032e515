"""From a session and a message to effects: everything the server decides, and nothing it does.

`Dispatcher.dispatch` is a plain function over plain data. It starts nothing, writes nothing and
looks at no clock; whoever performs its effects (the engine, a host of its own, a simulation)
reports back through `conclude`, `expire` and `close`. Callers serialize the calls for one session.

A method is a row of `METHODS`: its name and the function that answers it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define

from .effects import Emit, Reply
from .errors import JsonRpcErrorCode
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
from .protocol.revisions import negotiate
from .refusals import (
    MAX_ECHOED_NAME,
    derive_correlation_id,
    error_reply,
    not_initialized_data,
)
from .session import Event, Session, State
from .tools_call import ToolsCall, protocol_error_record

if TYPE_CHECKING:
    from .effects import Effect
    from .invocation import Invocation, Outcome

_LIST_CHANGED = encode({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


@define
class ServerInfo:
    """What `initialize` says of the server.

    Attributes:
        instructions: advice for the model that uses the tools; left out when None.
    """

    name: str
    version: str
    instructions: str | None = None


@define(eq=False, repr=False)
class Dispatcher:
    """Decides what every message leads to."""

    info: ServerInfo
    tools_call: ToolsCall

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
        return self.tools_call.conclude(call, outcome, duration_ms)

    def break_off(self, call: Invocation, error: Exception, duration_ms: float) -> list[Effect]:
        """A bug kept a call from being concluded after `duration_ms`: it still ends, once."""
        return self.tools_call.break_off(call, error, duration_ms)

    def expire(self, call: Invocation) -> list[Effect]:
        """The deadline of a call has passed and its handler has not ended."""
        return self.tools_call.expire(call)

    def list_changed(self, session: Session) -> list[Effect]:
        """There are other tools than before: a RUNNING connection is told so (LIFE-10)."""
        return [Reply(_LIST_CHANGED)] if session.state is State.RUNNING else []

    def close(self, session: Session, reason: str = "disconnected") -> list[Effect]:
        """The peer has gone: the session is CLOSED for good, whatever runs is aborted (LIFE-06)."""
        if not session.advance(Event.CLOSE):
            return []
        calls = list(session.in_flight.values())
        return [effect for call in calls for effect in self.tools_call.disconnect(call, reason)]

    def _request(self, session: Session, request: Request) -> list[Effect]:
        if request.id in session.in_flight:
            return _refuse_duplicate_id(session, request)
        if request.method == "tools/call":
            return self.tools_call.begin(session, request)  # step 1 is its own gate
        if session.state is not State.RUNNING and not _is_handshake(session, request.method):
            data = not_initialized_data(session)
            return [
                error_reply(JsonRpcErrorCode.NOT_INITIALIZED, "Not initialized", data, request.id)
            ]
        method = METHODS.get(request.method)
        if method is None:
            name = request.method[:MAX_ECHOED_NAME]
            return _refuse(
                session, request, JsonRpcErrorCode.METHOD_NOT_FOUND, f"Method not found: {name}"
            )
        if request.params is not ABSENT and type(request.params) is not dict:
            return _invalid_params(session, request, "params must be an object")
        return method(self, session, request)

    def _notification(self, session: Session, notification: Notification) -> list[Effect]:
        handler = NOTIFICATIONS.get(notification.method)
        if handler is not None:
            return handler(self, session, notification)
        return _dropped(notification, "unknown notification")

    # -- methods -----------------------------------------------------------------------------

    def _initialize(self, session: Session, request: Request) -> list[Effect]:
        """LIFE-02, LIFE-04: agree on a revision."""
        if session.state is not State.STARTING:
            return _refuse(
                session,
                request,
                JsonRpcErrorCode.INVALID_REQUEST,
                "Invalid Request: the connection is already initialized",
                "already_initialized",
            )
        params = {} if request.params is ABSENT else request.params
        if type(params.get("protocolVersion")) is not str:
            return _invalid_params(session, request, "protocolVersion must be a string")
        for name in ("capabilities", "clientInfo"):
            if type(params.get(name, {})) is not dict:
                return _invalid_params(session, request, f"{name} must be an object")
        session.advance(Event.INITIALIZE)
        session.protocol_version = negotiate(params["protocolVersion"])
        session.client_info = params.get("clientInfo", {})
        result: dict[str, Any] = {
            "protocolVersion": session.protocol_version,
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": self.info.name, "version": self.info.version},
        }
        if self.info.instructions is not None:
            result["instructions"] = self.info.instructions
        client = session.client_info
        opened = {
            "protocolVersion": session.protocol_version,
            "clientName": client.get("name"),
            "clientVersion": client.get("version"),
        }
        return [_result(request, result), Emit("info", "client connected", opened)]

    def _initialized(self, session: Session, request: Request) -> list[Effect]:
        """The handshake's last step, sent as a request (LIFE-05)."""
        if session.advance(Event.INITIALIZED):
            return [_result(request, {})]
        return _refuse(
            session,
            request,
            JsonRpcErrorCode.INVALID_REQUEST,
            "Invalid Request: the connection is already initialized",
            "already_initialized",
        )

    def _ping(self, session: Session, request: Request) -> list[Effect]:
        return [_result(request, {})]

    def _tools_list(self, session: Session, request: Request) -> list[Effect]:
        """All tools in one page (REG-02): there is no cursor a client could have been given."""
        if request.params is not ABSENT and request.params.get("cursor") is not None:
            return _invalid_params(session, request, "there is no such cursor")
        encoded = orjson.Fragment(self.tools_call.registry.encoded_list())
        return [_result(request, encoded)]

    # -- notifications -----------------------------------------------------------------------

    def _on_initialized(self, session: Session, notification: Notification) -> list[Effect]:
        if session.advance(Event.INITIALIZED):
            return []
        return _dropped(notification, f"not expected in state {session.state.value}")

    def _on_cancelled(self, session: Session, notification: Notification) -> list[Effect]:
        """TIME-05: abort the call and never answer it; too late or unknown, ignore it."""
        params = notification.params
        request_id = params.get("requestId") if type(params) is dict else None
        if type(request_id) is str or type(request_id) is int:
            call = session.in_flight.get(request_id)
            if call is not None:
                return self.tools_call.cancel(call)
        return _dropped(notification, "no such call is in flight")


METHODS: dict[str, Callable[[Dispatcher, Session, Request], list[Effect]]] = {
    "initialize": Dispatcher._initialize,
    "initialized": Dispatcher._initialized,
    "notifications/initialized": Dispatcher._initialized,
    "ping": Dispatcher._ping,
    "tools/list": Dispatcher._tools_list,
}

NOTIFICATIONS: dict[str, Callable[[Dispatcher, Session, Notification], list[Effect]]] = {
    "initialized": Dispatcher._on_initialized,
    "notifications/initialized": Dispatcher._on_initialized,
    "notifications/cancelled": Dispatcher._on_cancelled,
}


def _is_handshake(session: Session, method: str) -> bool:
    """What passes the gate before RUNNING (LIFE-03)."""
    if method == "initialize":
        return True
    return session.state is State.INITIALIZING and METHODS.get(method) is Dispatcher._initialized


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


# -- replies -------------------------------------------------------------------------------------


def _result(request: Request, result: Any) -> Reply:
    return Reply(encode({"jsonrpc": "2.0", "id": request.id, "result": result}))


def _refuse(
    session: Session,
    request: Request,
    code: JsonRpcErrorCode,
    message: str,
    reason: str | None = None,
) -> list[Effect]:
    data = {"correlationId": derive_correlation_id(session, request.params)}
    if reason is not None:
        data["reason"] = reason
    return [error_reply(code, message, data, request.id)]


def _invalid_params(session: Session, request: Request, what: str) -> list[Effect]:
    return _refuse(
        session,
        request,
        JsonRpcErrorCode.INVALID_PARAMS,
        f"Invalid params: {what}",
        "invalid_params",
    )


def _dropped(notification: Notification, why: str) -> list[Effect]:
    fields = {"method": notification.method, "why": why}
    return [Emit("debug", "notification dropped", fields)]
