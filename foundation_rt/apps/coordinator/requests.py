"""A call as a value, its response, and its errors (COORD-25 to COORD-27).

The errors have the texts of the seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from ...client import MCPError
from ...errors import ErrorCode, UsageError

if TYPE_CHECKING:
    from attrs import Attribute

    from ...client import MCPError, ValidationIssue


def first_line(error: MCPError) -> str:
    """Return the message of an error without the lines of stderr that may follow it.

    They are in the log; a model and a table of servers have no use for them.
    """
    return error.message.partition("\n")[0].removesuffix("; the last lines of its stderr:")


class CoordinatorError(Exception):
    """A call has no result; one of the four below.

    The arguments of the exception are those of its class, so that it can be pickled.
    """


class ToolNotFoundError(CoordinatorError):
    """No server has a tool of this name, or several have.

    Attributes:
        tool_name: as it was given.
        candidates: qualified names of the tools of this bare name; empty unless there are several.
        nearest: qualified names that are spelled alike.
    """

    def __init__(
        self, tool_name: str, candidates: Sequence[str] = (), nearest: Sequence[str] = ()
    ) -> None:
        super().__init__(tool_name, tuple(candidates), tuple(nearest))
        self.tool_name = tool_name
        self.candidates = tuple(candidates)
        self.nearest = tuple(nearest)

    def __str__(self) -> str:
        return f"Tool not found: {self.tool_name}"


class ToolValidationError(CoordinatorError):
    """The arguments do not fit the tool's schema; nothing was sent.

    Attributes:
        tool_name: the qualified name.
        validation_errors: what is wrong; no value stands in them.
    """

    def __init__(self, tool_name: str, validation_errors: Sequence[ValidationIssue]) -> None:
        super().__init__(tool_name, tuple(validation_errors))
        self.tool_name = tool_name
        self.validation_errors = tuple(validation_errors)

    def __str__(self) -> str:
        return f"Invalid arguments for tool: {self.tool_name}"


class ToolCircuitOpenError(CoordinatorError):
    """The tool, or its server, has failed too often; nothing was sent.

    Attributes:
        tool_name: the qualified name.
        failure_count: failures that the open circuit has counted.
        last_failure: of the tool; None if it never failed.
        retry_after: time until the next call may be sent, in s.
        server_id: of the server whose circuit it is; None: it is that of the tool.
    """

    def __init__(
        self,
        tool_name: str,
        failure_count: int,
        last_failure: datetime | None,
        retry_after: float,
        server_id: str | None = None,
    ) -> None:
        super().__init__(tool_name, failure_count, last_failure, retry_after, server_id)
        self.tool_name = tool_name
        self.failure_count = failure_count
        self.last_failure = last_failure
        self.retry_after = retry_after
        self.server_id = server_id

    def __str__(self) -> str:
        if self.server_id is not None:
            return f"Circuit open for server: {self.server_id} after {self.failure_count} failures"
        return f"Circuit open for tool: {self.tool_name} after {self.failure_count} failures"


@frozen
class ExecutionContext:
    """The call that failed."""

    tool_name: str
    server_id: str
    request_id: str
    arguments: Mapping[str, Any]


class ToolExecutionError(CoordinatorError):
    """The call got no usable result; `cause` says why, and whether it may have run.

    Attributes:
        message: the seed's text.
        cause: an `MCPError`.
        context: the call.
    """

    def __init__(self, message: str, cause: Exception, context: ExecutionContext) -> None:
        super().__init__(message, cause, context)
        self.message = message
        self.cause = cause
        self.context = context

    def __str__(self) -> str:
        return self.message


# Codes of JSON-RPC, of the protocol's SDKs and of the Language Server Protocol.
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
CONNECTION_CLOSED = -32000
REQUEST_TIMEOUT = -32001
REQUEST_CANCELLED = -32800

_NUMBERS = {
    "E202": REQUEST_TIMEOUT,
    "E203": INVALID_PARAMS,
    "E204": METHOD_NOT_FOUND,
    "E209": INTERNAL_ERROR,
}
"""JSON-RPC codes of errors of the client that had none; -32000 of all others."""

CODES = {
    "E202": ErrorCode.TIMEOUT,
    "E203": ErrorCode.INVALID_ARGUMENT,
    "E204": ErrorCode.NOT_FOUND,
    "E207": ErrorCode.UNAUTHORIZED,
    "E208": ErrorCode.RESOURCE_EXHAUSTED,
}
"""Codes of tool errors by those of the client; INTERNAL of all others."""


class Priority(IntEnum):
    """The order of calls that wait for a full server."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


def priority_of(value: Priority | str) -> Priority:
    """Return the priority that a word names.

    Raises:
        UsageError: there is none of this name.
    """
    if isinstance(value, Priority):
        return value
    try:
        return Priority[value.upper()]
    except KeyError:
        raise UsageError(f"priority is high, normal or low, not {value!r}") from None


def _not_negative(_: object, attribute: Attribute[Any], value: object) -> None:
    if type(value) not in (int, float) or not 0 <= value < float("inf"):  # type: ignore[operator]
        raise UsageError(f"{attribute.name} is a number, at least 0, not {value!r}")


@frozen
class RetryOptions:
    """Retries of one call; what may have run is repeated only if it may run twice.

    Attributes:
        max_retries: after the first attempt.
        delay_ms: before each retry, in ms; a server that asks for more gets it, up to 5 s.
        retryable_error_codes: of the client, such as `E201`; None: those that the catalogue calls
            retryable.
    """

    max_retries: int = field(default=1, validator=_not_negative)
    delay_ms: float = field(default=100, validator=_not_negative)
    retryable_error_codes: frozenset[str] | None = None


ONE_RETRY = RetryOptions()
"""Of calls that have no options of their own."""


@frozen
class ToolExecutionOptions:
    """Options of one call.

    Attributes:
        timeout_ms: for all of it; that of the request wins over it, that of the server is the
            default.
        priority: one of `Priority`, or its name in lower case.
        retry_options: None: one retry.
    """

    timeout_ms: float | None = None
    priority: Priority = field(default=Priority.NORMAL, converter=priority_of)
    retry_options: RetryOptions | None = None


@frozen
class ToolCallRequest:
    """A call of a tool.

    Attributes:
        tool_name: qualified, or bare if only one server has it.
        request_id: names the call, for `abort`.
        timeout_ms: for all of it.
    """

    tool_name: str
    arguments: Mapping[str, Any] = field(factory=dict)
    request_id: str = ""
    timeout_ms: float | None = None


@frozen
class ToolCallFailure:
    """The error in a response.

    Attributes:
        code: of JSON-RPC: the server's own, else the one that fits.
        message: for a model or a person.
        tool_code: the code of a tool error that says the same.
        app_code: of the client's catalogue, such as `E201`; None if the call was refused before.
        may_have_run: whether the tool may have run.
        retry_after_ms: how long to wait before trying again, if that is known.
    """

    code: int
    message: str
    tool_code: ErrorCode
    app_code: str | None = None
    may_have_run: bool = False
    retry_after_ms: float | None = None


@frozen
class ToolCallResponse:
    """The response to a call: its result or an error; both if the tool says that it failed.

    Attributes:
        tool_name: qualified, if it is known.
        result: as it came from the server; None if there is none.
        error: None if the call succeeded.
        execution_time_ms: of all of it.
    """

    tool_name: str
    result: Mapping[str, Any] | None
    error: ToolCallFailure | None
    request_id: str
    execution_time_ms: float


def failure_of(error: CoordinatorError) -> ToolCallFailure:
    """Return the error for a response (COORD-27)."""
    match error:
        case ToolNotFoundError():
            hints = error.candidates or error.nearest
            more = f". Did you mean {' or '.join(hints)}?" if hints else ""
            return ToolCallFailure(INVALID_PARAMS, f"{error}{more}", ErrorCode.NOT_FOUND)
        case ToolValidationError():
            listed = "; ".join(f"{each.path or 'they'} {each.message}" for each in error.args[1])
            return ToolCallFailure(INVALID_PARAMS, f"{error}: {listed}", ErrorCode.INVALID_ARGUMENT)
        case ToolCircuitOpenError():
            return ToolCallFailure(
                CONNECTION_CLOSED,
                str(error),
                ErrorCode.RESOURCE_EXHAUSTED,
                "E201",
                retry_after_ms=error.retry_after * 1000,
            )
        case ToolExecutionError(cause=MCPError() as cause):
            return _of_client_error(error, cause)
    return ToolCallFailure(INTERNAL_ERROR, str(error), ErrorCode.INTERNAL)


def _of_client_error(error: ToolExecutionError, cause: MCPError) -> ToolCallFailure:
    number = cause.original_code
    if number is None:
        number = _NUMBERS.get(cause.code, CONNECTION_CLOSED)
    after = cause.retry_after
    return ToolCallFailure(
        number,
        f"{error}: {first_line(cause)}",
        CODES.get(cause.code, ErrorCode.INTERNAL),
        cause.code,
        cause.may_have_run,
        None if after is None else after * 1000,
    )
