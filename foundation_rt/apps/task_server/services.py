"""The parts that the tools, resources and prompts of one task server share.

Errors of the database reach clients as errors of tools: never SQL, never an address.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...base.database.errors import (
    CommitUnknownError,
    DatabaseError,
    DatabaseFullError,
    DatabaseReadOnlyError,
    DatabaseUnavailableError,
)
from ...errors import ErrorCode, ToolError
from ...kernel.registry.tool_definition import ToolDefinition
from ...protocol.tool_annotations import ToolAnnotations
from .validation import closed_object

if TYPE_CHECKING:
    from ...features.context import ToolContext
    from ...kernel.invocation import Invocation
    from ...server import Server
    from .changes import JobLogs, JobWaiters
    from .observation import Observation
    from .settings import TaskServerSettings
    from .store import QuotaExceededError, TaskServerStore
    from .worker import JobWorkers


LOCAL = "local"
"""The principal where nobody logs in."""

Handler = Callable[[dict[str, Any], "ToolContext"], Coroutine[Any, Any, Any]]
"""Takes the arguments of a call, which its schema allows, and the context of the call."""


@define(eq=False)
class Services:
    """The parts of a task server.

    Attributes:
        server: that the tools belong to.
        settings: of the section `task_server`.
        observation: metrics and audit records.
        store: of tasks and jobs; there, and open, while the server serves.
        waiters: callers that wait for jobs; there while the server serves.
        logs: sessions that are sent log messages about their jobs; there while the server serves.
        workers: that carry out jobs; None where the server is read-only, and before it serves.
    """

    server: Server
    settings: TaskServerSettings
    observation: Observation
    store: TaskServerStore = field(init=False)
    waiters: JobWaiters = field(init=False)
    logs: JobLogs = field(init=False)
    workers: JobWorkers | None = field(default=None, init=False)

    def wake_workers(self) -> None:
        """Have a worker of this process look for a job now."""
        if self.workers is not None:
            self.workers.wake()

    def translate_database_errors(self) -> None:
        """Have every handler raise a `ToolError` for an error of the database (TASKS-14)."""

        @self.server.middleware
        async def translate(call: Invocation, proceed: Callable[[], Awaitable[Any]]) -> Any:
            try:
                return await proceed()
            except DatabaseError as error:
                self.observation.database_failed(error, call.correlation_id)
                raise to_tool_error(error) from error

    def tool(
        self,
        name: str,
        title: str,
        arguments: Mapping[str, Any],
        answer: Mapping[str, Any],
        example: Mapping[str, Any] | None = None,
        *,
        required: Sequence[str] = (),
        writes: bool = False,
        destructive: bool = False,
        idempotent: bool = False,
        waits: bool = False,
        description: str | None = None,
    ) -> Callable[[Handler], Handler]:
        """Make a tool of a handler; of a read-only server only if it changes nothing (TASKS-04).

        Args:
            name: for programs.
            title: for people.
            arguments: the schema of each argument.
            answer: the schema of the answer.
            example: arguments of a call that makes sense.
            required: the arguments without a default.
            writes: it changes tasks.
            destructive: it deletes or overwrites.
            idempotent: a second call with the same arguments changes nothing more.
            waits: it has `waitMs`.
            description: for the model; by default the docstring of the handler.
        """

        def register(handler: Handler) -> Handler:
            if writes and self.settings.read_only:
                return handler
            definition = ToolDefinition(
                name,
                description or " ".join((handler.__doc__ or "").split()),
                {**closed_object(arguments, required), "examples": [example or {}]},
                title=title,
                output_schema=answer,
                annotations=ToolAnnotations(
                    read_only=not writes,
                    destructive=destructive,
                    idempotent=idempotent or not writes,
                    open_world=False,
                ),
            )
            options: Any = {"scopes": (WRITE_SCOPE if writes else READ_SCOPE,)}
            self.server.register(definition, handler, **options, **(_WAITS if waits else {}))
            return handler

        return register


READ_SCOPE = "tasks:read"
WRITE_SCOPE = "tasks:write"

_WAITS: Any = {
    "timeout_ms": 60_000,  # the longest wait, and what comes before and after it
    "task": "optional",
    "task_after_ms": 2_000,
}
"""The options of a tool that has `waitMs`: a call of it may become a task (TASKS-23)."""


def principal_of(context: ToolContext) -> str:
    """Return the name of the caller; `LOCAL` where nobody logs in."""
    return LOCAL if context.principal is None else context.principal.subject


RETRY_AFTER_MS = 2_000
"""The time after which a caller should try again, refused for the load or for the database."""


def to_tool_error(error: DatabaseError) -> ToolError:
    """Return the tool error for an error of the database (TASKS-14)."""
    for cls, (code, reason, message) in _ERRORS.items():
        if isinstance(error, cls):
            details: dict[str, object] = {"reason": reason}
            if code is ErrorCode.RESOURCE_EXHAUSTED:
                details["retryAfterMs"] = RETRY_AFTER_MS
            return ToolError(code, message, details)
    raise AssertionError(error)


def quota_exceeded(error: QuotaExceededError) -> ToolError:
    """Return the tool error for a principal that would store too much (TASKS-98)."""
    return ToolError(
        ErrorCode.RESOURCE_EXHAUSTED,
        f"{quota_message(error)} Nothing has changed.",
        {
            "reason": "quota_exceeded",
            "limit": error.limit,
            "stored": error.stored,
            "requested": error.added,
            "most": error.most,
        },
    )


def quota_message(error: QuotaExceededError) -> str:
    """Return what is too much, and what to do about it."""
    unit = "tasks" if error.limit == "tasks" else "bytes of tasks"
    return (
        f"{error.stored} of at most {error.most} {unit} of this key are stored, and this needs"
        f" {error.added} more: delete tasks with mcp-tasks-delete, or have the operator raise"
        f" task_server.max_{error.limit}_per_key."
    )


_ERRORS: dict[type[DatabaseError], tuple[ErrorCode, str, str]] = {
    DatabaseUnavailableError: (
        ErrorCode.RESOURCE_EXHAUSTED,
        "database_unavailable",
        "The database cannot be reached now. Nothing has changed. Please retry later.",
    ),
    DatabaseFullError: (
        ErrorCode.RESOURCE_EXHAUSTED,
        "disk_full",
        "The disk of the database is full. Nothing has changed. An operator has to make room.",
    ),
    DatabaseReadOnlyError: (
        ErrorCode.INTERNAL,
        "database_read_only",
        "The database cannot be written to. Nothing has changed. An operator has to change that.",
    ),
    CommitUnknownError: (
        ErrorCode.INTERNAL,
        "outcome_unknown",
        "The connection to the database was lost while it committed: the change has happened or"
        " not. Tasks: repeat the call with the same requestKey. Otherwise: read the tasks first.",
    ),
    DatabaseError: (
        ErrorCode.INTERNAL,
        "database_error",
        "The database refused the operation. Nothing has changed. The server's log has the cause.",
    ),
}
