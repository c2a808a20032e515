"""The errors of a call through a coordinator, with the texts of the seed (COORD-26)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
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
