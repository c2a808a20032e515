"""The answers to lines that are no messages (RPC-02, RPC-03, FRAME-04)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import JsonRpcErrorCode
from .replies import derive_correlation_id, error_reply

if TYPE_CHECKING:
    from ..protocol.framing import LineTooLong
    from ..protocol.jsonrpc import Malformed
    from .dispatcher import Dispatcher
    from .effects import Effect
    from .session import Session


def malformed(dispatcher: Dispatcher, session: Session, message: Malformed) -> list[Effect]:
    title = "Parse error" if message.code is JsonRpcErrorCode.PARSE_ERROR else "Invalid Request"
    data = {
        "reason": message.reason,
        "correlationId": derive_correlation_id(session, message.params),
    }
    # RPC-05: an answer with the id of a call in flight would be taken for that call's.
    request_id = None if session.is_open(message.id) else message.id
    return [error_reply(message.code, f"{title}: {message.detail}", data, request_id)]


def line_too_long(dispatcher: Dispatcher, session: Session, event: LineTooLong) -> list[Effect]:
    data = {
        "reason": "line_too_long",
        "maxLineBytes": event.limit,
        "correlationId": session.connection_correlation_id,
    }
    message = f"Invalid Request: a line is longer than {event.limit} bytes"
    return [error_reply(JsonRpcErrorCode.INVALID_REQUEST, message, data, None)]
