"""The resources of the task server: all tasks, one task, and the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import ErrorCode, ToolError
from ...kernel.registry.completions import Completion
from ...kernel.registry.resources import ResourceDefinition, ResourceTemplateDefinition
from .tools.lists import summary_to_wire
from .tools.task_tool import MAX_ID, READ_SCOPE

if TYPE_CHECKING:
    from ...features.context import ToolContext
    from .services import Services

ALL_TASKS = "task://all"
STATISTICS = "db://stats"
TASK_PREFIX = "task://"
ONE_TASK = "task://{id}"

_JSON = "application/json"
_COMPLETIONS = 100


def register_resources(services: Services) -> None:
    """Register the resources, and the completion of the ids of tasks (TASKS-36)."""
    server, most = services.server, services.settings.resource_max_tasks

    async def all_tasks(arguments: dict[str, Any], context: ToolContext) -> list[dict[str, Any]]:
        from .queries import TaskFilter, TaskQuery

        page = await services.store.list_tasks(TaskQuery(TaskFilter(), limit=most, count=False))
        return [task.to_wire() for task in page.tasks]

    async def one_task(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        number = _read_id(arguments["id"])
        task = await services.store.get_task(number) if number <= MAX_ID else None
        if task is None:
            raise ToolError(ErrorCode.NOT_FOUND, "There is no such task.")
        return task.to_wire()

    async def figures(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        return summary_to_wire(await services.store.summarize())

    async def complete(arguments: dict[str, Any], context: ToolContext) -> Completion:
        return await _complete_id(services, arguments["value"])

    options: Any = {"scopes": (READ_SCOPE,)}
    server.register_resource(
        ResourceDefinition(
            uri=ALL_TASKS,
            name="all-tasks",
            title="All tasks",
            description=f"The first {most} tasks by id, as an array.",
            mime_type=_JSON,
        ),
        services.guard(all_tasks),
        **options,
    )
    server.register_resource(
        ResourceDefinition(
            uri=STATISTICS,
            name="statistics",
            title="Statistics",
            description="The number of tasks by status, their due dates, and the unfinished jobs.",
            mime_type=_JSON,
        ),
        services.guard(figures),
        **options,
    )
    server.register_resource_template(
        ResourceTemplateDefinition(
            uri_template=ONE_TASK,
            name="task",
            title="One task",
            description="A task by its id.",
            mime_type=_JSON,
        ),
        services.guard(one_task),
        **options,
    )
    server.register_completion(ONE_TASK, "id", services.guard(complete))


def _read_id(text: str) -> int:
    """Return the id in a URI; longer numbers than any id are one that no task has.

    Raises:
        ToolError: INVALID_ARGUMENT, which a client sees as -32602.
    """
    if not (text.isascii() and text.isdecimal()) or text != (text.lstrip("0") or "0"):
        details = {"reason": "invalid_id"}
        raise ToolError(ErrorCode.INVALID_ARGUMENT, "The id of a task is a number.", details)
    return int(text) if len(text) <= len(str(MAX_ID)) else MAX_ID + 1


async def _complete_id(services: Services, begun: str) -> Completion:
    """Return the first ids that begin so; without a beginning, the first ids of all."""
    from .queries import TaskFilter, TaskQuery

    where = TaskFilter()
    if begun:
        if not (begun.isascii() and begun.isdecimal()) or begun.startswith("0"):
            return Completion([], 0)
        number = int(begun[: len(str(MAX_ID))])
        within = [number, *range(number * 10, number * 10 + 10)]
        where = TaskFilter(ids=tuple(each for each in within if each <= MAX_ID))
    page = await services.store.list_tasks(TaskQuery(where, limit=_COMPLETIONS, count=False))
    return Completion([str(task.id) for task in page.tasks], has_more=page.has_more or None)
