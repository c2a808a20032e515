"""What answers a request: results and JSON-RPC errors, as the peer's revision has them.

Every JSON-RPC error carries a correlation id: the request's own where it can be read, else the
connection's (RPC-09).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..errors import ErrorCode, JsonRpcErrorCode, to_json_rpc_error
from ..protocol.jsonrpc import encode
from ..protocol.peer import SERVER_INFO_KEY
from .effects import Reply

if TYPE_CHECKING:
    from ..errors import ToolError
    from ..protocol.content import Icon
    from ..protocol.jsonrpc import Request, RequestId
    from ..protocol.peer import Peer
    from ..protocol.revisions import Revision
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


# -- results -------------------------------------------------------------------------------------


@define(eq=False, repr=False)
class ServerInfo:
    """What a server says of itself.

    Attributes:
        instructions: advice for the model that uses the server; left out when None.
        title: for people; likewise `icons`.
        website_url: where people read about the server.
    """

    name: str
    version: str
    instructions: str | None = None
    title: str | None = None
    website_url: str | None = None
    icons: Sequence[Icon] = ()

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """The server as an `Implementation` of `revision`."""
        wire: dict[str, Any] = {"name": self.name, "version": self.version}
        if self.title is not None:
            wire["title"] = self.title
        if self.website_url is not None:
            wire["websiteUrl"] = self.website_url
        if self.icons:
            wire["icons"] = [icon.to_wire() for icon in self.icons]
        return revision.keep("implementation", wire)


@define(eq=False, repr=False)
class ResultWriter:
    """Completes results; in the stateless mode each says its type and its server (REV-06).

    Args:
        cache_ttl_ms: how long a client may take a list for fresh, in ms (REV-07).
        cache_scope: whether what one client was told may be told another: `public` or `private`.
    """

    info: ServerInfo
    cache_ttl_ms: int = 0
    cache_scope: str = "private"
    _server_info: dict[str, dict[str, Any]] = field(factory=dict, init=False)

    def complete(self, peer: Peer, result: dict[str, Any]) -> dict[str, Any]:
        """`result` as the final one of a request."""
        if not peer.revision.is_stateless:
            return result
        return self.with_type(peer, "complete", result)

    def with_type(self, peer: Peer, result_type: str, result: dict[str, Any]) -> dict[str, Any]:
        """`result` of another type than `complete`, for a peer of the stateless mode."""
        meta = {**result.get("_meta", {}), SERVER_INFO_KEY: self.server_info(peer.revision)}
        return {"resultType": result_type, **result, "_meta": meta}

    def cache_hints(self, peer: Peer, ttl_ms: int | None = None) -> dict[str, Any]:
        """The members that say how long a result may be kept (REV-07).

        Args:
            ttl_ms: by default what is set for all, in ms.
        """
        if not peer.revision.is_stateless:
            return {}
        return {
            "ttlMs": self.cache_ttl_ms if ttl_ms is None else ttl_ms,
            "cacheScope": self.cache_scope,
        }

    def server_info(self, revision: Revision) -> dict[str, Any]:
        """The server as an `Implementation` of `revision`; made once for each."""
        wire = self._server_info.get(revision.name)
        if wire is None:
            wire = self._server_info[revision.name] = self.info.to_wire(revision)
        return wire

    def reply(self, peer: Peer, request: Request, result: dict[str, Any]) -> Reply:
        """The reply that carries `result` as the final one."""
        return result_reply(request.id, self.complete(peer, result))


def result_reply(request_id: RequestId, result: Any) -> Reply:
    """The reply that carries `result` as it is."""
    return Reply(encode({"jsonrpc": "2.0", "id": request_id, "result": result}), request_id)
