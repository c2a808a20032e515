"""Errors of a caller of AACP that does not get a result.

Each is a `ToolError`: a tool that does not catch one answers its caller with the right code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import ErrorCode, StructuredError, ToolError


class OutcomeUnknownError(ToolError):
    """The caller's time is over, and no outcome of the request is recorded (AACP-26).

    The request goes on. `status(request_id)` returns its outcome when there is one, and sending
    it again with this `request_id` waits for the same request.
    """

    def __init__(self, request_id: str) -> None:
        super().__init__(
            ErrorCode.TIMEOUT,
            f"The outcome of request {request_id} is not known yet: ask for its status, or send it"
            " again with the same request id.",
            {"reason": "outcome_unknown", "outcome": "UNKNOWN", "requestId": request_id},
        )
        self.request_id = request_id


class RequestFailedError(ToolError):
    """The request FAILED; code, message and details are the recorded ones."""

    def __init__(self, request_id: str, error: StructuredError) -> None:
        super().__init__(error.code, error.message, error.details)
        self.request_id = request_id


class RequestConflictError(ToolError):
    """Another request has this id (AACP-12)."""

    def __init__(self, error: StructuredError) -> None:
        super().__init__(error.code, error.message, error.details)


class LedgerRefusalError(ToolError):
    """The ledger has no room for a message, or its sender no share left (AACP-49)."""

    def __init__(self) -> None:
        super().__init__(
            ErrorCode.RESOURCE_EXHAUSTED,
            "The ledger in memory has no room for this message: try again when older requests have"
            " expired. What it may hold is set by aacp.max_memory_bytes and"
            " aacp.max_memory_records, and for how long by aacp.default_ttl_ms.",
            {"reason": "ledger_full"},
        )


def invalid(message: str, reason: str, details: Mapping[str, Any] | None = None) -> ToolError:
    """Return an INVALID_ARGUMENT error for a caller's argument."""
    return ToolError(ErrorCode.INVALID_ARGUMENT, message, {"reason": reason, **(details or {})})
