"""Errors of server requests; a handler may catch each of them.

One that is not caught ends the call: with a tool error, or with the JSON-RPC error that the
revision defines for it (ASK-05).

    ServerRequestError
    ├── ClientCapabilityError    the client did not declare the capability
    ├── ClientErrorResponse      the client answered with an error
    ├── InvalidClientResult      the client's result is invalid
    ├── AnswerTimeoutError       the client did not answer in time
    ├── ClientGoneError          the client lost its connection and did not come back
    └── UrlElicitationRequired   raised by handlers: the user has to visit a page first
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import ErrorCode, ToolError

if TYPE_CHECKING:
    from .elicitation import ElicitUrl

_LONGEST_ECHO = 500


class ServerRequestError(ToolError):
    """The base of errors of server requests."""


class ClientCapabilityError(ServerRequestError):
    """The client did not declare a capability, so no request was sent (ASK-04).

    Attributes:
        required_capabilities: the missing ones, as an object of client capabilities.
    """

    def __init__(self, required: Mapping[str, Any], reason: str = "") -> None:
        names = " and ".join(".".join(path) for path in _paths(required))
        super().__init__(
            ErrorCode.INVALID_ARGUMENT,
            f"This needs a client with the capability {names}{reason}.",
            {"reason": "missing_client_capability", "requiredCapabilities": dict(required)},
        )
        self.required_capabilities = dict(required)


class ClientErrorResponse(ServerRequestError):
    """The client answered with an error (ASK-08).

    Attributes:
        json_rpc_code: its code, such as -1 for a user who rejected the request.
        json_rpc_message: its text, as it came.
        json_rpc_data: its data, as it came; None without any.
    """

    def __init__(self, code: int | None, message: str, data: Any = None) -> None:
        self.json_rpc_code = code
        self.json_rpc_message = message
        self.json_rpc_data = data
        super().__init__(
            ErrorCode.INTERNAL,
            f"The client refused: {message[:_LONGEST_ECHO]}",
            {"reason": "client_refused", "jsonRpcCode": code},
        )


class AnswerTimeoutError(ServerRequestError):
    """The client did not answer within `server.input_ttl_ms` (ASK-17).

    Args:
        waited_ms: how long the server waited, in ms.
    """

    def __init__(self, waited_ms: int) -> None:
        super().__init__(
            ErrorCode.TIMEOUT,
            f"The client did not answer within {waited_ms} ms.",
            {"reason": "no_answer", "timeoutMs": waited_ms},
        )


class ClientGoneError(ServerRequestError):
    """The client lost its connection and did not come back in time to answer (ASK-19).

    Args:
        away_ms: how long the server waited, in ms.
    """

    def __init__(self, away_ms: int) -> None:
        super().__init__(
            ErrorCode.TIMEOUT,
            f"The client has gone: it had no connection for {away_ms} ms.",
            {"reason": "client_gone", "timeoutMs": away_ms},
        )


class InvalidClientResult(ServerRequestError):
    """The client's result is invalid (ASK-09).

    Attributes:
        issues: each problem as a JSON pointer and a text.
    """

    def __init__(self, *issues: tuple[str, str]) -> None:
        path, problem = issues[0]
        super().__init__(
            ErrorCode.INTERNAL,
            f"The client's answer is not valid: {path or 'it'} {problem}.",
            {
                "reason": "invalid_client_answer",
                "errors": [{"path": at, "message": text} for at, text in issues],
            },
        )
        self.issues = issues


class UrlElicitationRequired(ServerRequestError):
    """Raised by a handler that needs its user to visit some pages first (ASK-18).

    The call ends with the error that the revision defines for it; in the stateless mode with
    requests to visit the pages. The client calls again when the user has been there.

    Args:
        pages: at least one.
    """

    def __init__(self, *pages: ElicitUrl) -> None:
        super().__init__(
            ErrorCode.INVALID_ARGUMENT,
            "This needs the user to visit a page first.",
            {"reason": "url_elicitation_required"},
        )
        self.pages = pages


def merge_capabilities(*required: Mapping[str, Any]) -> dict[str, Any]:
    """Return one object of client capabilities with all of `required`."""
    merged: dict[str, Any] = {}
    for one in required:
        for name, value in one.items():
            merged[name] = merge_capabilities(merged.get(name, {}), value)
    return merged


def _paths(required: Mapping[str, Any]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, value in required.items():
        inner = _paths(value)
        found += [(name, *path) for path in inner] or [(name,)]
    return found
