"""`mcp-tasks-claim`, `mcp-tasks-update` and `mcp-tasks-delete`: working tasks off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....errors import ErrorCode, ToolError
from ..services import principal_of, quota_exceeded
from ..validation import (
    BOOLEAN,
    INTEGER,
    MAX_ID,
    MAX_PROJECT,
    MAX_WORKER,
    MEMBERS,
    STORED_TASK,
    TASK_ID,
    array,
    closed_object,
    integer,
    or_null,
    read_members,
    refuse,
    task_schema,
    text,
    uuid,
)
from .lists import fit

if TYPE_CHECKING:
    from ....features.context import ToolContext
    from ..services import Services
    from ..store import TaskUpdate

_MAX_CLAIM = 50
_MAX_CHANGED = 500
_LEASE_SECONDS = 900
_LEASES = 30, 86_400
_MAX_PLACES = 20

_OVERHEAD = 2_048
"""The bytes of an answer besides its tasks: the ids of `moreIds`."""


def add_change_tools(services: Services) -> None:
    """Add the tools that change stored tasks."""
    observation = services.observation

    @services.tool(
        "mcp-tasks-claim",
        "Claim tasks",
        {
            "count": integer("Most tasks to take.", 1, _MAX_CLAIM, default=1),
            "project": text("Only tasks of this project.", MAX_PROJECT),
            "worker": text("Your name; by default that of the caller.", MAX_WORKER),
            "leaseSeconds": integer(
                "How long they are yours, in seconds.", *_LEASES, default=_LEASE_SECONDS
            ),
        },
        closed_object(
            {
                "tasks": array(closed_object(STORED_TASK)),
                "truncated": BOOLEAN,
                "moreIds": array(INTEGER),
            }
        ),
        {"count": 1, "project": "website", "worker": "agent-7"},
        writes=True,
    )
    async def claim(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """Take up to `count` tasks to work on.

        They are TODO ones, and those whose claim has expired; the most urgent first, then the one
        due first. They are IN_PROGRESS and yours until the lease ends: no other worker gets them.
        Finish each with mcp-tasks-update (status DONE, ifVersion as here), or give it back (status
        TODO). Longer work: renew with leaseSeconds. Tasks that do not fit the answer are claimed
        too: read them with mcp-tasks-list, `ids` as in moreIds.
        """
        worker = arguments.get("worker") or principal_of(context)[:MAX_WORKER]
        tasks = await services.store.claim_tasks(
            int(arguments.get("count", 1)),
            arguments.get("project"),
            worker,
            int(arguments.get("leaseSeconds", _LEASE_SECONDS)),
        )
        observation.tasks_claimed([task.id for task in tasks], worker, context)
        shown, truncated = fit(tasks, None, services.settings.max_answer_bytes - _OVERHEAD)
        more = [task.id for task in tasks[len(shown) :]]
        return {"tasks": shown, "truncated": truncated, "moreIds": more}

    @services.tool(
        "mcp-tasks-update",
        "Update tasks",
        {
            "updates": array(
                _update_schema(), "The changes, each of another task.", maxItems=_MAX_CHANGED
            )
        },
        closed_object({"updated": array(closed_object({"id": INTEGER, "version": INTEGER}))}),
        {"updates": [{"id": 17, "ifVersion": 2, "status": "DONE"}]},
        required=["updates"],
        writes=True,
        destructive=True,
    )
    async def update(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """Change 1 to 500 tasks, all or none.

        With ifVersion a task is changed only if it still has that version, so that nobody's work is
        overwritten. null clears a member, or sets its default again. status TODO or DONE ends a
        claim; leaseSeconds renews one.
        """
        from ..store import QuotaExceededError, TasksNotFoundError, VersionConflictError

        updates = _read_updates(arguments["updates"])
        try:
            versions = await services.store.update_tasks(updates)
        except QuotaExceededError as error:
            raise quota_exceeded(error) from None
        except TasksNotFoundError as error:
            raise _not_found(error.ids) from None
        except VersionConflictError as error:
            raise _conflict(error.versions, updates) from None
        observation.tasks_updated([number for number, _ in versions], context)
        return {"updated": [{"id": number, "version": version} for number, version in versions]}

    @services.tool(
        "mcp-tasks-delete",
        "Delete tasks",
        {
            "ids": array(TASK_ID, "The tasks; or else give jobId.", maxItems=_MAX_CHANGED),
            "jobId": uuid("The job whose tasks are deleted."),
        },
        closed_object({"deleted": INTEGER, "missing": array(INTEGER)}),
        {"ids": [17, 18]},
        writes=True,
        destructive=True,
        idempotent=True,
    )
    async def delete(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """Delete up to 500 tasks by their ids, or all tasks that a job has stored.

        They cannot be restored. Ids that did not exist are returned as missing.
        """
        ids, job_id = arguments.get("ids"), arguments.get("jobId")
        if (ids is None) == (job_id is None):
            raise refuse("", "must have either ids or jobId", "ids_or_job")
        found = await services.store.delete_tasks(
            ids=None if ids is None else sorted({int(each) for each in ids}),
            job_id=None if job_id is None else job_id.lower(),
        )
        observation.tasks_deleted(found.deleted, ids, job_id, context)
        return {"deleted": found.deleted, "missing": found.missing}


def _update_schema() -> dict[str, Any]:
    members = {name: _clearable(name, one) for name, one in task_schema()["properties"].items()}
    return closed_object(
        {
            "id": TASK_ID,
            "ifVersion": integer("Change the task only if it has this version.", 1, MAX_ID),
            **members,
            "leaseSeconds": integer(
                "The claim ends that many seconds from now; of no effect on an unclaimed task.",
                *_LEASES,
            ),
        },
        ["id"],
    )


def _clearable(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a member of an update, which may be null unless it is the title."""
    own = {key: value for key, value in schema.items() if key != "default"}
    return own if name == "title" or "anyOf" in own else or_null(own)


def _read_updates(given: Sequence[Mapping[str, Any]]) -> list[TaskUpdate]:
    """Return the updates of a call.

    Raises:
        ToolError: INVALID_ARGUMENT: one changes nothing, or two are of one task.
    """
    from ..store import TaskUpdate

    updates: dict[int, TaskUpdate] = {}
    for index, each in enumerate(given):
        number, version, lease = int(each["id"]), each.get("ifVersion"), each.get("leaseSeconds")
        members = read_members({name: each[name] for name in each if name in MEMBERS})
        if not members and lease is None:
            raise refuse(f"/updates/{index}", "must change something", "nothing_to_change")
        if number in updates:
            problem = "must not be that of an earlier update"
            raise refuse(f"/updates/{index}/id", problem, "repeated_id")
        updates[number] = TaskUpdate(
            number,
            None if version is None else int(version),
            members,
            None if lease is None else int(lease),
        )
    return [*updates.values()]


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
    return ToolError(
        ErrorCode.INVALID_ARGUMENT,
        "Some of these tasks were changed by others. Nothing has changed: read them, then decide.",
        {"reason": "version_conflict", "current": current, "errors": places[:_MAX_PLACES]},
    )
