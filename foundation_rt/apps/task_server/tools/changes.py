"""`mcp-tasks-claim`, `mcp-tasks-update` and `mcp-tasks-delete`: working tasks off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....errors import ErrorCode, ToolError
from ..services import principal_of, quota_exceeded
from ..validation import (
    MAX_PROJECT,
    MAX_WORKER,
    MEMBERS,
    invalid,
    or_null,
    read_members,
    task_schema,
    text,
)
from .lists import fit
from .task_tool import (
    INTEGER,
    MAX_ID,
    STORED_TASK,
    TaskTool,
    closed_object,
    integer,
    task_id,
    uuid,
)

if TYPE_CHECKING:
    from ....features.context import ToolContext
    from ..services import Services
    from ..store import TaskUpdate

_MAX_CLAIM = 50
_MAX_CHANGED = 500
_LEASE_SECONDS = 900
_LEASES = 30, 86_400

_OVERHEAD = 2_048
"""The bytes of an answer besides its tasks: the ids of `moreIds`."""


def change_tools(services: Services) -> list[TaskTool]:
    """Return the tools that change stored tasks."""
    return [_claim_tool(services), _update_tool(services), _delete_tool(services)]


def _lease(description: str, **more: Any) -> dict[str, Any]:
    return integer(description, *_LEASES, **more)


def _claim_tool(services: Services) -> TaskTool:
    async def claim(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        worker = arguments.get("worker") or principal_of(context)[:MAX_WORKER]
        tasks = await services.store.claim_tasks(
            int(arguments.get("count", 1)),
            arguments.get("project"),
            worker,
            int(arguments.get("leaseSeconds", _LEASE_SECONDS)),
        )
        services.observation.tasks_claimed([task.id for task in tasks], worker, context)
        shown, truncated = fit(tasks, None, services.settings.max_answer_bytes - _OVERHEAD)
        more = [task.id for task in tasks[len(shown) :]]
        return {"tasks": shown, "truncated": truncated, "moreIds": more}

    return TaskTool(
        "mcp-tasks-claim",
        "Claim tasks",
        "Take up to `count` tasks to work on: TODO ones, and those whose claim has expired; the"
        " most urgent first, then the one due first. They are IN_PROGRESS and yours until the"
        " lease ends: no other worker gets them. Finish each with mcp-tasks-update (status DONE,"
        " ifVersion as here), or give it back (status TODO). Longer work: renew with leaseSeconds."
        " Tasks that do not fit the answer are claimed too: read them with mcp-tasks-list, `ids` as"
        " in moreIds.",
        {
            "count": integer("Most tasks to take.", 1, _MAX_CLAIM, default=1),
            "project": text("Only tasks of this project.", MAX_PROJECT),
            "worker": text("Your name; by default that of the caller.", MAX_WORKER),
            "leaseSeconds": _lease("How long they are yours, in seconds.", default=_LEASE_SECONDS),
        },
        claim,
        closed_object(
            {
                "tasks": {"type": "array", "items": closed_object(STORED_TASK)},
                "truncated": {"type": "boolean"},
                "moreIds": {"type": "array", "items": INTEGER},
            }
        ),
        {"count": 1, "project": "website", "worker": "agent-7"},
        writes=True,
    )


def _update_tool(services: Services) -> TaskTool:
    async def update(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        from ..store import QuotaExceededError, TasksNotFoundError, VersionConflictError

        given = arguments["updates"]
        updates = [_read_update(each, f"/updates/{i}") for i, each in enumerate(given)]
        _refuse_repeated([each.id for each in updates])
        try:
            versions = await services.store.update_tasks(updates)
        except QuotaExceededError as error:
            raise quota_exceeded(error) from None
        except TasksNotFoundError as error:
            raise _not_found(error.ids) from None
        except VersionConflictError as error:
            raise _conflict(error.versions, updates) from None
        services.observation.tasks_updated([number for number, _ in versions], context)
        return {"updated": [{"id": number, "version": version} for number, version in versions]}

    return TaskTool(
        "mcp-tasks-update",
        "Update tasks",
        "Change 1 to 500 tasks, all or none. With ifVersion a task is changed only if it still has"
        " that version, so that nobody's work is overwritten. null clears a member, or sets its"
        " default again. status TODO or DONE ends a claim; leaseSeconds renews one.",
        {
            "updates": {
                "type": "array",
                "minItems": 1,
                "maxItems": _MAX_CHANGED,
                "items": _update_schema(),
                "description": "The changes, each of another task.",
            }
        },
        update,
        closed_object(
            {
                "updated": {
                    "type": "array",
                    "items": closed_object({"id": INTEGER, "version": INTEGER}),
                }
            }
        ),
        {"updates": [{"id": 17, "ifVersion": 2, "status": "DONE"}]},
        ["updates"],
        writes=True,
        destructive=True,
    )


def _update_schema() -> dict[str, Any]:
    members = {name: _clearable(name, one) for name, one in task_schema()["properties"].items()}
    return closed_object(
        {
            "id": task_id(),
            "ifVersion": integer("Change the task only if it has this version.", 1, MAX_ID),
            **members,
            "leaseSeconds": _lease(
                "The claim ends that many seconds from now; of no effect on an unclaimed task."
            ),
        },
        ["id"],
    )


def _clearable(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a member of an update, which may be null unless it is the title."""
    own = {key: value for key, value in schema.items() if key != "default"}
    if name == "title":
        return own
    return own if "anyOf" in own else or_null(own)


def _read_update(given: Mapping[str, Any], path: str) -> TaskUpdate:
    members = read_members({name: given[name] for name in given if name in MEMBERS})
    version, lease = given.get("ifVersion"), given.get("leaseSeconds")
    if not members and lease is None:
        problem = "must change something"
        raise invalid(
            f"Invalid arguments: {path} {problem}.",
            "nothing_to_change",
            errors=[{"path": path, "message": problem}],
        )
    from ..store import TaskUpdate

    return TaskUpdate(
        int(given["id"]),
        None if version is None else int(version),
        members,
        None if lease is None else int(lease),
    )


def _refuse_repeated(ids: Sequence[int]) -> None:
    seen: set[int] = set()
    for index, number in enumerate(ids):
        if number in seen:
            path, problem = f"/updates/{index}/id", "must not be that of an earlier update"
            raise invalid(
                f"Invalid arguments: {path} {problem}.",
                "repeated_id",
                errors=[{"path": path, "message": problem}],
            )
        seen.add(number)


def _not_found(ids: Sequence[int]) -> ToolError:
    return ToolError(
        ErrorCode.NOT_FOUND,
        "Some of these tasks do not exist. Nothing has changed.",
        {"reason": "tasks_not_found", "ids": list(ids)},
    )


def _conflict(versions: Mapping[int, int], updates: Sequence[TaskUpdate]) -> ToolError:
    current = [{"id": number, "version": version} for number, version in versions.items()]
    places = [
        {"path": f"/updates/{index}/ifVersion", "message": "must be the current version"}
        for index, each in enumerate(updates)
        if each.id in versions
    ]
    return invalid(
        "Some of these tasks were changed by others. Nothing has changed: read them, then decide.",
        "version_conflict",
        current=current,
        errors=places[:_MAX_PLACES],
    )


_MAX_PLACES = 20


def _delete_tool(services: Services) -> TaskTool:
    async def delete(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        ids, job_id = arguments.get("ids"), arguments.get("jobId")
        if (ids is None) == (job_id is None):
            problem = "must have either ids or jobId"
            raise invalid(
                f"Invalid arguments: the arguments {problem}.",
                "ids_or_job",
                errors=[{"path": "", "message": problem}],
            )
        if ids is not None:
            found = await services.store.delete_tasks(ids=sorted({int(each) for each in ids}))
        else:
            found = await services.store.delete_tasks(job_id=str(job_id).lower())
        services.observation.tasks_deleted(found.deleted, ids, job_id, context)
        return {"deleted": found.deleted, "missing": found.missing}

    return TaskTool(
        "mcp-tasks-delete",
        "Delete tasks",
        "Delete up to 500 tasks by their ids, or all tasks that a job has stored. They cannot be"
        " restored. Ids that did not exist are returned as missing.",
        {
            "ids": {
                "type": "array",
                "minItems": 1,
                "maxItems": _MAX_CHANGED,
                "items": task_id(),
                "description": "The tasks; or else give jobId.",
            },
            "jobId": uuid("The job whose tasks are deleted."),
        },
        delete,
        closed_object({"deleted": INTEGER, "missing": {"type": "array", "items": INTEGER}}),
        {"ids": [17, 18]},
        writes=True,
        destructive=True,
        idempotent=True,
    )
