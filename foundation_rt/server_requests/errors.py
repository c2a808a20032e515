"""What can go wrong when a client is asked; a handler may catch each of them.

One that is not caught is what its caller reads: a tool error, or the JSON-RPC error that the
revision has for it (ASK-05).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode, ToolError

if TYPE_CHECKING:
    from .elicitation import ElicitUrl

_LONGEST_ECHO = 500


class ServerRequestError(ToolError):
    """The client was not asked, or did not answer as it should."""


class ClientCapabilityError(ServerRequestError):
    """The client did not declare that it can be asked this; it was not asked (ASK-04).

    Attributes:
        required_capabilities: what it lacks, as an object of client capabilities.
    """

    def __init__(self, required: Mapping[str, Any], why: str = "") -> None:
        names = " and ".join(".".join(path) for path in _paths(required))
        super().__init__(
            ErrorCode.INVALID_ARGUMENT,
            f"This needs a client with the capability {names}{why}.",
            {"reason": "missing_client_capability", "requiredCapabilities": dict(required)},
        )
        self.required_capabilities = dict(required)


class ClientErrorResponse(ServerRequestError):
    """The client answered with an error (ASK-08).

    Attributes:
        json_rpc_code: its code: -1, say, for a user who rejected it.
        json_rpc_message: its text, cut at 500 characters.
    """

    def __init__(self, code: int | None, message: str) -> None:
        self.json_rpc_code = code
        self.json_rpc_message = message[:_LONGEST_ECHO]
        super().__init__(
            ErrorCode.INTERNAL,
            f"The client refused: {self.json_rpc_message}",
            {"reason": "client_refused", "jsonRpcCode": code},
        )


class AnswerTimeoutError(ServerRequestError):
    """The client did not answer within `server.input_ttl_ms` (ASK-17).

    Args:
        waited_ms: how long it was waited for, in ms.
    """

    def __init__(self, waited_ms: int) -> None:
        super().__init__(
            ErrorCode.TIMEOUT,
            f"The client did not answer within {waited_ms} ms.",
            {"reason": "no_answer", "timeoutMs": waited_ms},
        )


class ClientGoneError(ServerRequestError):
    """The client has gone, and has not come back in time to answer (ASK-19).

    Args:
        away_ms: how long it was waited for, in ms.
    """

    def __init__(self, away_ms: int) -> None:
        super().__init__(
            ErrorCode.TIMEOUT,
            f"The client has gone: it had no connection for {away_ms} ms.",
            {"reason": "client_gone", "timeoutMs": away_ms},
        )


class InvalidClientResult(ServerRequestError):
    """The client's answer is not what it was asked for (ASK-09).

    Attributes:
        issues: what is wrong with it: pairs of a JSON pointer and a text.
    """

    def __init__(self, *issues: tuple[str, str]) -> None:
        path, what = issues[0]
        super().__init__(
            ErrorCode.INTERNAL,
            f"The client's answer is not valid: {path or 'it'} {what}.",
            {
                "reason": "invalid_client_answer",
                "errors": [{"path": at, "message": text} for at, text in issues],
            },
        )
        self.issues = issues


class UrlElicitationRequired(ServerRequestError):
    """Raised by a handler that can do nothing before its user has visited some pages (ASK-18).

    Where the revision has an error that says so, the call ends with it; in the stateless mode it
    ends as one that asks. The client calls again when the user has been there.

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
    """One object of client capabilities that says all of `required`."""
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
