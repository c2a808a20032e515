"""Map errors of the wire to `MCPError`: JSON-RPC errors and HTTP statuses.

`BY_NUMBER` is the seed's table (GEO-1.5a-005), and what the specification has added to it. A number
alone is ambiguous: -32002 is a failed conversion to the seed, a missing resource to the
specification before the stateless mode, and to a server of this runtime also that there was no
handshake; -32602 is wrong parameters or an unknown tool. So the error is asked first what it says
of itself, from the most explicit to the least (CERR-08 to CERR-11): a `StructuredError` in its
data, the beginning of its message, other members of its data together with the request's method;
then its number. Nothing that a server sends makes this raise (CERR-12).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil
from typing import Any

from attrs import evolve, frozen

from ...base.shown import Shown
from ...errors import ErrorCode, JsonRpcErrorCode
from ...protocol.methods import (
    facts,
)
from ..errors import CallTimeoutError, InvalidResponseError, MCPError, SessionExpiredError
from ..safe_text import readable

REQUEST_CANCELLED = -32800
"""The code of a response to a cancelled request (Language Server Protocol)."""

_CONVERSION_FAILED_OR_NOT_FOUND = int(JsonRpcErrorCode.RESOURCE_NOT_FOUND)


@frozen(eq=False, repr=False)
class Meaning(Shown):
    """The meaning of an error for a caller (CERR-07).

    Attributes:
        code: of the catalogue, whose entry replaces each None below.
        may_have_run: whether the request may have run.
        is_about_session: whether the server does not know the session, and nothing else is wrong.
    """

    code: str
    user_message: str | None = None
    suggested_action: str | None = None
    retryable: bool | None = None
    may_have_run: bool = False
    is_about_session: bool = False


@frozen(eq=False, repr=False)
class _WireError(Shown):
    """A well-formed error object, and the method of its request."""

    number: int
    message: str
    data: Mapping[str, Any]
    method: str | None


_MALFORMED = Meaning("E203", "Invalid request format", "Report it to whoever runs the server.")
_INVALID = Meaning("E203", "Invalid parameters")
_FAILED = Meaning("E201", "Processing service error", may_have_run=True)
_NO_SESSION = Meaning("E201", is_about_session=True)
_NO_COMMON_REVISION = Meaning("E206")
_BUSY = Meaning("E208")
_CLIENT_CAPABILITY = Meaning(
    "E205",
    "The service needs a capability that this program does not have",
    "Use a program that has the capability.",
)
UNKNOWN = Meaning("E201", "An unexpected error occurred", "Try again later.", may_have_run=True)
"""The meaning of every number that is not in `BY_NUMBER` (AC-005.5)."""

BY_NUMBER: Mapping[int, Meaning] = {
    int(JsonRpcErrorCode.PARSE_ERROR): _MALFORMED,
    int(JsonRpcErrorCode.INVALID_REQUEST): _MALFORMED,
    int(JsonRpcErrorCode.METHOD_NOT_FOUND): Meaning("E204"),
    int(JsonRpcErrorCode.INVALID_PARAMS): _INVALID,
    int(JsonRpcErrorCode.INTERNAL_ERROR): _FAILED,
    -32000: Meaning("E201", may_have_run=True),
    -32001: Meaning("E202", may_have_run=True),
    _CONVERSION_FAILED_OR_NOT_FOUND: Meaning("E302", may_have_run=True),
    -32003: Meaning("E303", may_have_run=True),
    int(JsonRpcErrorCode.HEADER_MISMATCH): Meaning(
        "E203",
        "Request headers and body disagree",
        "List the tools again; if it stays, look for a proxy that changes headers.",
    ),
    int(JsonRpcErrorCode.MISSING_CLIENT_CAPABILITY): _CLIENT_CAPABILITY,
    int(JsonRpcErrorCode.UNSUPPORTED_PROTOCOL_VERSION): _NO_COMMON_REVISION,
    int(JsonRpcErrorCode.URL_ELICITATION_REQUIRED): Meaning(
        "E210", "The service needs you to visit a page first", "Visit the page, then try again."
    ),
    REQUEST_CANCELLED: Meaning(
        "E201", "The service cancelled the request", "Try again.", may_have_run=True
    ),
}
"""By JSON-RPC error code, unless the error says more than its number."""

_BY_ERROR_CODE: Mapping[str, Meaning] = {
    ErrorCode.INVALID_ARGUMENT: _INVALID,
    ErrorCode.NOT_FOUND: Meaning("E204"),
    ErrorCode.TIMEOUT: Meaning("E202", may_have_run=True),
    ErrorCode.RESOURCE_EXHAUSTED: evolve(_BUSY, may_have_run=True),
    ErrorCode.INTERNAL: _FAILED,
    ErrorCode.UNAUTHORIZED: Meaning("E207"),
    ErrorCode.NOT_INITIALIZED: _FAILED,  # chosen by a handler: no word of the session
}
# Reasons of a RESOURCE_EXHAUSTED that is said before a handler runs (FEAT-01, RATE-02, RES-13).
_REFUSED_FOR_LOAD = ("concurrency_limit", "principal_share", "rate_limit")

_NOUNS = {"tools": "tool", "prompts": "prompt", "resources": "resource", "tasks": "task"}

# What other runtimes say under numbers that mean several things. Only the beginning counts: what
# follows may repeat names and values of anybody's choosing. Patterns are compiled when they are
# first needed: all of them take a millisecond, which most starts can do without.
_MISSING = (
    r"(?i)(?:the )?(?:unknown|no such) (?P<noun>tool|prompt|resource)\b"
    r"|(?:the )?(?P<kind>tool|prompt|resource)(?: template)?(?: \S+)? (?:is |was )?"
    r"(?:not found|unknown|disabled|does not exist)\b"
)
_UNKNOWN_SESSION = (
    r"(?i)(?:bad request: |not found: )?"
    r"(?:session not found|session has been terminated|invalid or expired session id"
    r"|no valid session id(?: provided)?|(?:server )?not initialized)\.?"
)
_OTHER_REVISION = r"(?i)(?:bad request: )?unsupported protocol version\b"
_PREFIX = r"MCP error -?\d{1,10}: "
# What transports use. A handler has sessions of its own to miss, and mostly says it with others.
_SESSION_NUMBERS = (-32000, -32001, -32002, JsonRpcErrorCode.INVALID_REQUEST)


def map_mcp_error(error: Any, method: str | None = None) -> MCPError:
    """Return the error to raise for a JSON-RPC error object (CERR-07 to CERR-12).

    Args:
        error: the member `error` of a response, as it came; may be any JSON.
        method: of the request; None if it is not known.

    Returns:
        With `original_code` and `data` as they came, and the whole object as `wire`. E202 is a
        `CallTimeoutError`; an unknown session is a `SessionExpiredError`, and what is no error
        object an `InvalidResponseError`.
    """
    number = error.get("code") if isinstance(error, Mapping) else None
    if type(number) is not int:
        return InvalidResponseError("the server answered with an error that has no code")
    data = error.get("data")
    message = readable(error.get("message")) or f"the server answered with error {number}"
    wire = _WireError(number, message, data if isinstance(data, Mapping) else {}, method)
    mapped = _make_error(_meaning(wire), message, number, data, _retry_after(wire.data))
    mapped.wire = error
    return mapped


def map_http_status(status: int, *, retry_after: float | None = None, detail: str = "") -> MCPError:
    """Return the error to raise for an HTTP response without a JSON-RPC error (CERR-13).

    It is also what 401, 403, 429 and 5xx mean whose body is a JSON-RPC error that names no
    request: there the status says more.

    Args:
        status: of the response; stands in the error's `data`.
        retry_after: what the response asks to wait, in s.
        detail: the beginning of its body, or its reason, for developers.
    """
    meaning = _BY_STATUS.get(status) or _by_class(status)
    said = readable(detail)
    message = f"the server answered with HTTP status {status}" + (f": {said}" if said else "")
    return _make_error(meaning, message, None, {"status": status}, retry_after)


def _make_error(
    meaning: Meaning, message: str, number: int | None, data: Any, retry_after: float | None
) -> MCPError:
    error: MCPError
    if meaning.is_about_session:
        error = SessionExpiredError(message, original_code=number, data=data)
    elif meaning.code == "E202":
        error = CallTimeoutError(
            message, may_have_run=meaning.may_have_run, original_code=number, data=data
        )
    else:
        error = MCPError(
            meaning.code,
            message,
            user_message=meaning.user_message,
            suggested_action=meaning.suggested_action,
            retryable=meaning.retryable,
            original_code=number,
            data=data,
            may_have_run=meaning.may_have_run,
        )
    error.retry_after = retry_after
    if retry_after is not None and meaning.code == "E208":
        error.suggested_action = f"Wait {ceil(retry_after)} s, then try again."
    return error


def _meaning(wire: _WireError) -> Meaning:
    """Return the first meaning found, from the most explicit sign to the least."""
    if _is_about_session(wire):
        return BY_NUMBER[-32000] if facts(wire.method).opens_session else _NO_SESSION
    found = _by_error_code(wire) or _by_message(wire) or _by_data(wire)
    found = found or BY_NUMBER.get(wire.number, UNKNOWN)
    if found.code == "E204" and found.user_message is None:
        return _not_available(_noun(wire.method))
    return found


def _is_about_session(wire: _WireError) -> bool:
    """Return whether the server does not know the session, and says so beyond doubt (CERR-11).

    The session is given up for it, with all that waits in it: a tool that has lost a session of its
    own must not be taken for that.
    """
    if wire.number not in _SESSION_NUMBERS:
        return False
    is_ours = wire.number == JsonRpcErrorCode.NOT_INITIALIZED
    if is_ours and wire.data.get("code") == ErrorCode.NOT_INITIALIZED:
        return True
    return re.fullmatch(_UNKNOWN_SESSION, _words(wire)) is not None


def _by_error_code(wire: _WireError) -> Meaning | None:
    """Find the meaning by the `StructuredError` of a server of this runtime (CERR-08)."""
    code = wire.data.get("code")
    found = _BY_ERROR_CODE.get(code) if isinstance(code, str) else None
    details = wire.data.get("details")
    if code == ErrorCode.RESOURCE_EXHAUSTED and isinstance(details, Mapping):
        return _BUSY if details.get("reason") in _REFUSED_FOR_LOAD else found
    return found


def _by_data(wire: _WireError) -> Meaning | None:
    """Find the meaning by unambiguous members of the data, and by the method (CERR-10)."""
    if isinstance(wire.data.get("requiredCapabilities"), Mapping):
        return _CLIENT_CAPABILITY
    if facts(wire.method).opens_session and isinstance(wire.data.get("supported"), list):
        return _NO_COMMON_REVISION
    has_uri = isinstance(wire.data.get("uri"), str)
    names_resource = facts(wire.method).target == "uri"
    if wire.number == _CONVERSION_FAILED_OR_NOT_FOUND:
        is_missing = has_uri or names_resource
    else:
        is_invalid = wire.number == JsonRpcErrorCode.INVALID_PARAMS
        is_missing = is_invalid and has_uri and (wire.method is None or names_resource)
    return _not_available("resource") if is_missing else None


def _by_message(wire: _WireError) -> Meaning | None:
    """Find the meaning by the beginning of the message, whatever the number is (CERR-09)."""
    text = _words(wire)
    missing = re.match(_MISSING, text)
    if missing:
        return _not_available((missing["noun"] or missing["kind"]).lower())
    return _NO_COMMON_REVISION if re.match(_OTHER_REVISION, text) else None


def _words(wire: _WireError) -> str:
    return re.sub(_PREFIX, "", wire.message, count=1)


def _not_available(noun: str) -> Meaning:
    return Meaning("E204", f"Requested {noun} not available")


def _noun(method: str | None) -> str:
    """Return the noun of a method; for other methods the function itself is missing."""
    return _NOUNS.get((method or "tools").partition("/")[0], "function")


def _retry_after(data: Mapping[str, Any]) -> float | None:
    """Return the time that a server of this runtime asks to wait, in s (RATE-02)."""
    details = data.get("details")
    waited = details.get("retryAfterMs") if isinstance(details, Mapping) else None
    return waited / 1000 if type(waited) is int and waited >= 0 else None


_UNUSABLE = Meaning("E209", may_have_run=True)
_REFUSED = Meaning("E203", "Request refused by the service")
_NOT_AUTHORIZED = Meaning("E207")
_NO_SERVICE = Meaning(
    "E204", "No such service at this address", "Check the URL: it often ends in /mcp."
)
_TIMEOUT = Meaning("E202", may_have_run=True)

_BY_STATUS: Mapping[int, Meaning] = {
    400: _MALFORMED,
    401: _NOT_AUTHORIZED,
    403: _NOT_AUTHORIZED,
    404: _NO_SERVICE,
    405: _NO_SERVICE,
    407: _NOT_AUTHORIZED,
    408: _TIMEOUT,
    410: _NO_SERVICE,
    413: Meaning("E203", "Request too large", "Send less at once."),
    421: _NO_SERVICE,
    429: _BUSY,
    431: Meaning("E203", "Request too large", "Send less at once."),
    501: Meaning("E204", "Function not available"),
    # A proxy says 502 and 503 of a connection that broke after the request was passed on, too.
    502: Meaning("E201", may_have_run=True),
    503: Meaning("E201", may_have_run=True),
    504: _TIMEOUT,
}


def _by_class(status: int) -> Meaning:
    """Return the meaning of a status by its class (RFC 9110, 15)."""
    if 300 <= status < 400:
        return _NO_SERVICE
    if 400 <= status < 500:
        return _REFUSED
    return _FAILED if 500 <= status < 600 else _UNUSABLE
