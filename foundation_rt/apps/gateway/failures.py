"""Failures on the way to a server, as the model reads them (GATE-05).

An error of the server itself goes out as it came. Where the way to it failed, nothing came; then
the gateway says which server failed, whether the call may have run, and when to try again.
"""

from __future__ import annotations

from ...client import MCPError
from ...errors import ErrorCode, ToolError
from ...features.forwarding.forwarder import ForwardedError
from ..coordinator.requests import CODES

_CODES = {**CODES, "E201": ErrorCode.RESOURCE_EXHAUSTED}
"""The codes of errors that are no fault of the gateway or the server's program."""


def failure(server: str, error: MCPError) -> ForwardedError | ToolError:
    """Return the error for a client whose request to `server` got no result.

    Args:
        server: its id.
        error: of the request.
    """
    wire = error.wire
    if wire is not None and type(wire.get("code")) is int and type(wire.get("message")) is str:
        return ForwardedError(wire["code"], wire["message"], wire.get("data"))
    code = _CODES.get(error.code, ErrorCode.INTERNAL)
    if error.may_have_run and code is ErrorCode.RESOURCE_EXHAUSTED:
        code = ErrorCode.INTERNAL  # RESOURCE_EXHAUSTED invites to repeat what may have run
    details = {"server": server, "appCode": error.code, "mayHaveRun": error.may_have_run}
    if error.retry_after is not None:
        details["retryAfterMs"] = round(error.retry_after * 1000)
    return ToolError(code, f"The server {server!r} has sent no result: {error.message}", details)
