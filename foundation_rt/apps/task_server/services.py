"""The parts that the tools, resources and prompts of one task server share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...base.database.errors import DatabaseError
from .database_errors import to_tool_error

if TYPE_CHECKING:
    from ...features.context import ToolContext
    from ...server import Server
    from .changes import JobLogs, JobWaiters
    from .observation import Observation
    from .settings import TaskServerSettings
    from .store import TaskServerStore
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

    def guard(self, handler: Handler) -> Handler:
        """Return `handler` with errors of the database turned into tool errors (TASKS-14)."""

        async def guarded(arguments: dict[str, Any], context: ToolContext) -> Any:
            try:
                return await handler(arguments, context)
            except DatabaseError as error:
                self.observation.database_failed(error, context.correlation_id)
                raise to_tool_error(error) from error

        return guarded


def principal_of(context: ToolContext) -> str:
    """Return the name of the caller; `LOCAL` where nobody logs in."""
    return LOCAL if context.principal is None else context.principal.subject
