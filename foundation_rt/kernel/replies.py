"""Replies: results and JSON-RPC errors, written as the peer's revision requires.

Every JSON-RPC error carries a correlation id: the request's own where it can be read, else the
connection's (RPC-09).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from ..base.shown import Shown
from ..errors import ErrorCode, JsonRpcError, JsonRpcErrorCode, to_json_rpc_error
from ..protocol.jsonrpc import encode
from ..protocol.peer import CORRELATION_KEY, SERVER_INFO_KEY
from .effects import Reply

if TYPE_CHECKING:
    from ..errors import ToolError
    from ..protocol.content import Icon
    from ..protocol.jsonrpc import Request, RequestId
    from ..protocol.peer import Peer
    from ..protocol.revisions import Revision
    from .session import Session

MAX_CORRELATION_ID_LENGTH = 128

MAX_ECHOED_NAME = 128
"""Characters of a name sent by a client that an error message repeats."""


# -- correlation ids -----------------------------------------------------------------------------


def client_correlation_id(params: Any) -> str | None:
    """Return the correlation id in the `_meta` of a request, if it has a valid one (CALL-03)."""
    meta = params.get("_meta") if type(params) is dict else None
    if type(meta) is dict:
        candidate = meta.get(CORRELATION_KEY)
        if type(candidate) is str and 0 < len(candidate) <= MAX_CORRELATION_ID_LENGTH:
            return candidate
    return None


def derive_correlation_id(session: Session, params: Any) -> str:
    """Return the request's own correlation id, or the connection's (RPC-09)."""
    return client_correlation_id(params) or session.connection_correlation_id


# -- JSON-RPC errors -----------------------------------------------------------------------------


def invalid_params(problem: str, reason: str = "invalid_params", **data: Any) -> JsonRpcError:
    """Return the error for a request whose params have `problem`."""
    message = f"Invalid params: {problem}"
    return JsonRpcError(JsonRpcErrorCode.INVALID_PARAMS, message, {"reason": reason, **data})


def method_not_found(request: Request) -> JsonRpcError:
    """Return the error for a method that does not exist, or not for this peer."""
    message = f"Method not found: {request.method[:MAX_ECHOED_NAME]}"
    return JsonRpcError(JsonRpcErrorCode.METHOD_NOT_FOUND, message)


def not_initialized(session: Session) -> JsonRpcError:
    """Return the error for a request that comes before the handshake (LIFE-03)."""
    data = {
        "code": ErrorCode.NOT_INITIALIZED.value,
        "message": "Send initialize, then notifications/initialized, before anything else.",
        "correlationId": session.connection_correlation_id,
    }
    return JsonRpcError(JsonRpcErrorCode.NOT_INITIALIZED, "Not initialized", data)


def as_json_rpc_error(error: ToolError) -> JsonRpcError:
    """Return the JSON-RPC error whose data is that of a tool error (RES-13, AUTH-13)."""
    wire = error.to_structured().to_wire()
    return JsonRpcError(JsonRpcErrorCode.INTERNAL_ERROR, error.message, wire)


def error_reply(
    code: JsonRpcErrorCode, message: str, data: dict[str, Any], request_id: RequestId | None
) -> Reply:
    """Write a JSON-RPC error; `request_id` is None where it is unknown."""
    line = encode(to_json_rpc_error(code, message, data, request_id))
    return Reply(line, request_id, int(code))


def internal_error_reply(request_id: RequestId, correlation_id: str) -> Reply:
    """Write the error for a request that failed because of a bug of the runtime (RPC-10)."""
    data = {"reason": "internal_error", "correlationId": correlation_id}
    return error_reply(JsonRpcErrorCode.INTERNAL_ERROR, "Internal error", data, request_id)


# -- results -------------------------------------------------------------------------------------


@define(eq=False, repr=False)
class ServerInfo(Shown):
    """The description of a server.

    Attributes:
        instructions: advice for the model that uses the server; left out when None.
        title: a name for people; left out when None.
        website_url: where people read about the server; left out when None.
        icons: shown to people.
    """

    name: str
    version: str
    instructions: str | None = None
    title: str | None = None
    website_url: str | None = None
    icons: Sequence[Icon] = ()

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """Return the `Implementation` object of `revision`."""
        return revision.write(
            "implementation",
            name=self.name,
            version=self.version,
            title=self.title,
            websiteUrl=self.website_url,
            icons=[icon.to_wire() for icon in self.icons] or None,
        )


@define(eq=False, repr=False)
class ResultWriter:
    """Completes results: in the stateless protocol each names its type and server (REV-06).

    Args:
        cache_ttl_ms: how long a client may reuse a list, in ms (REV-07).
        cache_scope: `public` where the result of one client may be reused for another, else
            `private`.
    """

    info: ServerInfo
    cache_ttl_ms: int = 0
    cache_scope: str = "private"
    _server_info: dict[str, dict[str, Any]] = field(factory=dict, init=False)

    def complete(self, peer: Peer, result: dict[str, Any]) -> dict[str, Any]:
        """Return `result` with the members of a final result."""
        if not peer.revision.is_stateless:
            return result
        return self.with_type(peer, "complete", result)

    def with_type(self, peer: Peer, result_type: str, result: dict[str, Any]) -> dict[str, Any]:
        """Return `result` with its type, for a peer of the stateless protocol."""
        meta = {**result.get("_meta", {}), SERVER_INFO_KEY: self.server_info(peer.revision)}
        return {"resultType": result_type, **result, "_meta": meta}

    def cache_hints(
        self, peer: Peer, ttl_ms: int | None = None, *, differs: bool = False
    ) -> dict[str, Any]:
        """Return the members that say how long a result may be reused, and by whom (REV-07).

        That is `ttl_ms`, in ms; by default `cache_ttl_ms`. A result that `differs` between
        principals is private.
        """
        if not peer.revision.is_stateless:
            return {}
        return {
            "ttlMs": self.cache_ttl_ms if ttl_ms is None else ttl_ms,
            "cacheScope": "private" if differs else self.cache_scope,
        }

    def server_info(self, revision: Revision) -> dict[str, Any]:
        """Return the `Implementation` object of the server; made once for each revision."""
        wire = self._server_info.get(revision.name)
        if wire is None:
            wire = self._server_info[revision.name] = self.info.to_wire(revision)
        return wire

    def reply(self, peer: Peer, request: Request, result: dict[str, Any]) -> Reply:
        """Write the reply whose final result is `result`."""
        return result_reply(request.id, self.complete(peer, result))


def result_reply(request_id: RequestId, result: Any) -> Reply:
    """Write the reply whose result is `result`, unchanged."""
    whole = {"jsonrpc": "2.0", "id": request_id, "result": result}
    try:
        line = orjson.dumps(whole)
    except TypeError:
        line = encode(whole)  # it may hold an integer beyond 64 bits
    return Reply(line, request_id)
