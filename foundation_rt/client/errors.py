"""The errors of the client, and their catalogue (CERR-01).

An `MCPError` says that the call did not get its response: the server, or the way to it, failed or
refused. A `ToolCallError` is a response: the tool ran, and failed. They never mix.

Every `MCPError` says three things to three readers: its `code` to programs, `user_message` and
`suggested_action` to users of the program, `message` to its developers. And it
says whether the request may have been carried out, on which every repetition depends (CERR-03).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import frozen

from ..base.shown import Shown

if TYPE_CHECKING:
    from ..base.jsonschema.issues import ValidationIssue
    from ..errors import ErrorCode


@frozen(eq=False, repr=False)
class ErrorEntry(Shown):
    """One application code.

    Attributes:
        code: `E201`.
        name: `SERVICE_UNAVAILABLE`, for programs and logs.
        user_message: the problem, for users of the program.
        suggested_action: what they can do about it.
        retryable: whether the same request may succeed later; not whether it is safe to repeat.
    """

    code: str
    name: str
    user_message: str
    suggested_action: str
    retryable: bool


@frozen(eq=False, repr=False)
class ErrorRange(Shown):
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
        "INVALID_RESPONSE",
        "Unusable response of the service",
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


class _Portable(Exception):
    """An exception that survives pickling, with any signature of `__init__` (CERR-06).

    Python would call the class with `args`; one that wants something else breaks the process pool
    that it is raised in.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[_Portable], args: tuple[Any, ...], state: dict[str, Any]) -> _Portable:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class MCPError(_Portable):
    """A request to a server got no usable response (CERR-03).

    Args:
        code: one of `CATALOGUE`, whose entry says what is not given here.
        message: the problem, for developers.
        user_message: the same, for users of the program.
        suggested_action: what they can do.
        retryable: whether the same request may succeed later.
        original_code: the JSON-RPC error code that it stands for; None if there was none.
        data: what the server said besides, as it came; of an HTTP response that said nothing by
            JSON-RPC, `{"status": 503}`.
        may_have_run: whether the request may have been carried out; False only if it is known that
            it was not.
        retry_after: how long to wait before trying again, in s, if the server said so.
        wire: the JSON-RPC error object as it came, with the server's own code, message and data;
            None if there was none. The message may be missing, or anything.

    Raises:
        ValueError: `code` is not in the catalogue.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        user_message: str | None = None,
        suggested_action: str | None = None,
        retryable: bool | None = None,
        original_code: int | None = None,
        data: Any = None,
        may_have_run: bool = False,
        retry_after: float | None = None,
        wire: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        entry = CATALOGUE.get(code)
        if entry is None:
            raise ValueError(f"{code} is not in the catalogue of errors")
        self.code = code
        self.message = message
        self.user_message = entry.user_message if user_message is None else user_message
        self.suggested_action = (
            entry.suggested_action if suggested_action is None else suggested_action
        )
        self.retryable = entry.retryable if retryable is None else retryable
        self.original_code = original_code
        self.data = data
        self.may_have_run = may_have_run
        self.retry_after = retry_after
        self.wire = wire

    def __str__(self) -> str:
        if self.message.endswith("\n"):  # it quotes lines of a server's stderr
            return f"{self.code} {self.message}{self.suggested_action}"
        stop = "" if self.message.endswith((".", "!", "?")) else "."
        return f"{self.code} {self.message}{stop} {self.suggested_action}"


class _CodedError(MCPError):
    """An error whose class has one code of the catalogue."""

    _code: ClassVar[str]

    def __init__(
        self,
        message: str,
        *,
        may_have_run: bool,
        retryable: bool | None = None,
        original_code: int | None = None,
        data: Any = None,
    ) -> None:
        super().__init__(
            self._code,
            message,
            retryable=retryable,
            original_code=original_code,
            data=data,
            may_have_run=may_have_run,
        )


class ConnectionLostError(_CodedError, ConnectionError):
    """The connection to the server was lost, or could not be made: E201."""

    _code = "E201"


class SessionExpiredError(ConnectionLostError):
    """The server does not know the session: nothing ran, and a new session helps."""

    def __init__(self, message: str, *, original_code: int | None = None, data: Any = None) -> None:
        super().__init__(message, may_have_run=False, original_code=original_code, data=data)


class AuthorizationError(MCPError):
    """The client is not authorized, and no repetition would change that: E207; nothing ran.

    Args:
        suggested_action: what the person can do.
    """

    def __init__(self, message: str, suggested_action: str | None = None) -> None:
        super().__init__("E207", message, user_message=message, suggested_action=suggested_action)


class CallTimeoutError(_CodedError, TimeoutError):
    """There was no response in time: E202. A late response is dropped."""

    _code = "E202"


class CircuitOpenError(MCPError):
    """The circuit is open: the server has failed too often (E201). Nothing was sent (BREAK-02).

    Args:
        retry_after: time until the next request may be sent, in s.
    """

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__("E201", message, retry_after=retry_after)


class InvalidArgumentsError(MCPError):
    """Arguments that the tool's schema does not allow: E203; nothing was sent.

    Attributes:
        tool: its name.
        issues: what is wrong, at least one; no value stands in them.
    """

    def __init__(self, tool: str, issues: Sequence[ValidationIssue]) -> None:
        listed = "; ".join(f"{issue.path or 'they'} {issue.message}" for issue in issues)
        super().__init__("E203", f"the arguments do not fit the schema of {tool}: {listed}")
        self.tool = tool
        self.issues = tuple(issues)


class InvalidResponseError(_CodedError):
    """The server sent a response that cannot be used: E209."""

    _code = "E209"

    def __init__(
        self,
        message: str,
        *,
        may_have_run: bool = True,
        original_code: int | None = None,
        data: Any = None,
    ) -> None:
        super().__init__(message, may_have_run=may_have_run, original_code=original_code, data=data)


class NotOfferedError(MCPError):
    """The server lacks a capability that is required: E205; nothing was sent.

    Attributes:
        capability: its name, as in `tools`.
    """

    def __init__(self, capability: str) -> None:
        super().__init__("E205", f"the server does not offer the capability {capability}")
        self.capability = capability


class ToolCallError(_Portable):
    """A tool reported that it failed (`isError`); the server did not fail.

    What servers of this runtime say in a `StructuredError` is in the attributes; of other servers
    there are only the message and the content.

    Attributes:
        message: what the tool said.
        code: None if the server gave none that is known.
        details: for programs, if there are any.
        run_id: of the call, in the server's log.
        correlation_id: of the request.
        content: the blocks of the result.
    """

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        details: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        correlation_id: str | None = None,
        content: Sequence[Any] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.details = details
        self.run_id = run_id
        self.correlation_id = correlation_id
        self.content = tuple(content)

    def __str__(self) -> str:
        return self.message if self.code is None else f"{self.code}: {self.message}"


def place_of(error: Exception) -> str:
    """Return the type of an exception, and the line that raised it.

    Its text is left out: it may repeat a token or an argument.
    """
    from traceback import extract_tb

    place = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in line {place.lineno} of {place.filename}"


def unexpected_error(error: Exception) -> ConnectionLostError:
    """Return the error for a caller whose message a bug of this program has lost (CLIENT-18)."""
    what = place_of(error)
    return ConnectionLostError(f"a message could not be handled: {what}", may_have_run=True)
