"""A request that is turned away before the protocol sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from ...errors import JsonRpcErrorCode, to_json_rpc_error
from ...protocol.jsonrpc import RequestId, encode

RawHeaders = tuple[tuple[bytes, bytes], ...]


@frozen(eq=False)
class HttpRefusal:
    """Why a request is refused, for whoever writes the response.

    Attributes:
        status: of HTTP.
        message: what to change; holds nothing that is secret.
        code: of the JSON-RPC error in the body.
        reason: the same as `message`, for programs.
        headers: those that the status calls for.
        data: what else programs are told.
    """

    status: int
    message: str
    code: JsonRpcErrorCode = JsonRpcErrorCode.INVALID_REQUEST
    reason: str = "invalid_request"
    headers: RawHeaders = ()
    data: Mapping[str, Any] = field(factory=dict)

    def body(self, correlation_id: str, request_id: RequestId | None = None) -> bytes:
        """The JSON-RPC error response; without an id where none could be read."""
        data = {"reason": self.reason, "correlationId": correlation_id, **self.data}
        return encode(to_json_rpc_error(self.code, self.message, data, request_id))
