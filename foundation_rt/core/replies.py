"""JSON-RPC error responses of the server: what they carry, whoever decides on them.

Every one carries a correlation id: the request's own where it can be read, else the connection's
(RPC-09).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode, JsonRpcErrorCode, to_json_rpc_error
from ..protocol.jsonrpc import encode
from .effects import Reply

if TYPE_CHECKING:
    from ..errors import ToolError
    from ..protocol.jsonrpc import Request, RequestId
    from .effects import Effect
    from .session import Session

MAX_CORRELATION_ID_LENGTH = 128

MAX_ECHOED_NAME = 128
"""Characters of a name that a client sent which a message repeats."""


class Refused(Exception):
    """Raised by what decides about a request, to have it answered with an error.

    Attributes:
        effects: the answer.
    """

    def __init__(self, effects: list[Effect]) -> None:
        self.effects = effects


def error_reply(
    code: JsonRpcErrorCode, message: str, data: dict[str, Any], request_id: RequestId | None
) -> Reply:
    """The response to one request; `request_id` is None where it is unknown."""
    line = encode(to_json_rpc_error(code, message, data, request_id))
    return Reply(line, request_id, int(code))


def internal_error_reply(request_id: RequestId, correlation_id: str) -> Reply:
    """The answer to a request that a bug of ours kept from being answered (RPC-10)."""
    data = {"reason": "internal_error", "correlationId": correlation_id}
    return error_reply(JsonRpcErrorCode.INTERNAL_ERROR, "Internal error", data, request_id)


def not_initialized_data(session: Session) -> dict[str, Any]:
    """The data of every -32002 error (LIFE-03)."""
    return {
        "code": ErrorCode.NOT_INITIALIZED.value,
        "message": "Send initialize, then notifications/initialized, before anything else.",
        "correlationId": session.connection_correlation_id,
    }


def client_correlation_id(params: Any) -> str | None:
    """The correlation id a client gave in `_meta`, if it is one (CALL-03)."""
    meta = params.get("_meta") if type(params) is dict else None
    if type(meta) is dict:
        candidate = meta.get("correlationId")
        if type(candidate) is str and 0 < len(candidate) <= MAX_CORRELATION_ID_LENGTH:
            return candidate
    return None


def derive_correlation_id(session: Session, params: Any) -> str:
    """The request's own correlation id, or the connection's (RPC-09)."""
    return client_correlation_id(params) or session.connection_correlation_id


def refuse(
    session: Session,
    request: Request,
    code: JsonRpcErrorCode,
    message: str,
    reason: str | None = None,
    **data: Any,
) -> list[Effect]:
    """Answer `request` with an error whose data has its correlation id, `reason` and `data`."""
    data["correlationId"] = derive_correlation_id(session, request.params)
    if reason is not None:
        data["reason"] = reason
    return [error_reply(code, message, data, request.id)]


def resource_exhausted(session: Session, request: Request, error: ToolError) -> list[Effect]:
    """Answer `request` with a limit that is used up; its data is what a tool error is (RES-13)."""
    data = error.to_structured().to_wire()
    data["correlationId"] = derive_correlation_id(session, request.params)
    return [error_reply(JsonRpcErrorCode.INTERNAL_ERROR, error.message, data, request.id)]


def invalid_params(
    session: Session, request: Request, what: str, reason: str = "invalid_params"
) -> list[Effect]:
    """Answer `request` with what is wrong with its params."""
    message = f"Invalid params: {what}"
    return refuse(session, request, JsonRpcErrorCode.INVALID_PARAMS, message, reason)


def method_not_found(session: Session, request: Request) -> list[Effect]:
    """Answer `request` with that there is no such method, for this peer at least."""
    message = f"Method not found: {request.method[:MAX_ECHOED_NAME]}"
    return refuse(session, request, JsonRpcErrorCode.METHOD_NOT_FOUND, message)
