"""The error catalogue: every application code that an `MCPError` can have, as data (CERR-01).

The codes E201 to E205, E302 and E303 are the seed's, and so are the ranges (GEO-1.5a-005); E206 to
E210 say what a client meets besides. What an error of the wire becomes is in `error_mapping`.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen


@frozen(eq=False, repr=False)
class ErrorEntry:
    """One application code.

    Attributes:
        code: `E201`.
        name: `SERVICE_UNAVAILABLE`, for programs and logs.
        user_message: what happened, for whoever uses the program.
        suggested_action: what they can do about it.
        retryable: whether the same request may succeed later; not whether it is safe to repeat.
    """

    code: str
    name: str
    user_message: str
    suggested_action: str
    retryable: bool


@frozen(eq=False, repr=False)
class ErrorRange:
    """Codes that are kept for one kind of error, whether they are in use or not (CERR-02).

    Attributes:
        first: the lowest code of the range; `last`: the highest.
    """

    name: str
    first: str
    last: str
    description: str


RANGES = (
    ErrorRange("File", "E000", "E099", "File validation errors"),
    ErrorRange("URL", "E100", "E199", "URL validation errors"),
    ErrorRange("MCP", "E200", "E299", "MCP communication errors"),
    ErrorRange("Processing", "E300", "E399", "Document processing errors"),
    ErrorRange("Database", "E400", "E499", "Database operation errors"),
)
"""In order; the client itself uses codes of two of them."""

_ENTRIES = (
    ErrorEntry(
        "E201",
        "SERVICE_UNAVAILABLE",
        "Processing service unavailable",
        "Try again later.",
        retryable=True,
    ),
    ErrorEntry(
        "E202",
        "REQUEST_TIMEOUT",
        "Request timeout",
        "Try again, or allow more time.",
        retryable=True,
    ),
    ErrorEntry(
        "E203",
        "INVALID_REQUEST",
        "Invalid parameters",
        "Correct the request.",
        retryable=False,
    ),
    ErrorEntry(
        "E204",
        "NOT_AVAILABLE",
        "Requested tool not available",
        "Check the name against what the server lists.",
        retryable=False,
    ),
    ErrorEntry(
        "E205",
        "CAPABILITY_MISSING",
        "Required capability not available",
        "Use a server that has the capability, or do not require it.",
        retryable=False,
    ),
    ErrorEntry(
        "E206",
        "NO_COMMON_REVISION",
        "No common version of the protocol",
        "Update the client or the server.",
        retryable=False,
    ),
    ErrorEntry(
        "E207",
        "NOT_AUTHORIZED",
        "Not authorized",
        "Check the credentials and what they allow.",
        retryable=False,
    ),
    ErrorEntry(
        "E208",
        "TOO_MANY_REQUESTS",
        "Too many requests",
        "Wait a moment, then try again.",
        retryable=True,
    ),
    ErrorEntry(
        "E209",
        "INVALID_ANSWER",
        "Unusable answer of the service",
        "Report it to whoever runs the server.",
        retryable=False,
    ),
    ErrorEntry(
        "E210",
        "INPUT_NOT_GIVEN",
        "Input that the service asked for was not given",
        "Give it and try again, or do without.",
        retryable=False,
    ),
    ErrorEntry(
        "E302",
        "CONVERSION_FAILED",
        "Document conversion failed",
        "Try again; if it fails again, check the document.",
        retryable=True,
    ),
    ErrorEntry(
        "E303",
        "EXPORT_FAILED",
        "Export generation failed",
        "Try again; if it fails again, choose another format.",
        retryable=True,
    ),
)

CATALOGUE: Mapping[str, ErrorEntry] = {entry.code: entry for entry in _ENTRIES}
"""Every code in use, in order."""
