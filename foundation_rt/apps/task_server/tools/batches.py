"""`mcp-tasks`, `mcp-tasks-from-file` and `mcp-job-status`: many tasks at once, as a job.

The client chooses the path of a file of tasks (TASKS-40), so nothing outside of the root may be
opened, not even for a moment: a FIFO or a device does something when it is opened. The path is
resolved first, and then walked from the root without following any link, so that a link that
appears in between is refused as well.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import stat
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from ....base.files import open_below, path_below
from ....errors import ErrorCode, ToolError
from ..services import RETRY_AFTER_MS, principal_of, quota_exceeded
from ..store import Change
from ..validation import (
    BOOLEAN,
    INTEGER,
    MAX_REQUEST_KEY,
    STRING,
    WITHOUT_NUL,
    array,
    closed_object,
    encode_payload,
    integer,
    nullable,
    read_tasks,
    refuse,
    task_schema,
    text,
    uuid,
)

if TYPE_CHECKING:
    from ....features.context import ToolContext
    from ..jobs import Job, Submission
    from ..services import Services


_MAX_PATH = 4_096
_MAX_WAIT_MS = 25_000

_OPTIONS = {
    "requestKey": text(
        "A key of your choice. A call that is repeated with the same key and the same tasks is the"
        " same job: nothing is stored twice. Use it whenever a call may have to be repeated.",
        MAX_REQUEST_KEY,
        WITHOUT_NUL,
    ),
    "waitMs": integer(
        "How long to wait for the end of the job, in ms; 0 returns at once.",
        *(0, _MAX_WAIT_MS),
        default=0,
    ),
}

_JOB: dict[str, Any] = {
    "jobId": STRING,
    "status": STRING,
    "totalTasks": INTEGER,
    "processedTasks": INTEGER,
    "progressPercent": INTEGER,
    "durationMs": nullable("integer"),
    "tasksPerSecond": nullable("number"),
    "errorMessage": nullable("string"),
    "attempts": INTEGER,
    "createdAt": STRING,
    "startedAt": nullable("string"),
    "completedAt": nullable("string"),
}
_SUBMISSION: dict[str, Any] = {
    "success": BOOLEAN,
    "jobId": STRING,
    "status": STRING,
    "totalTasks": INTEGER,
    "message": STRING,
    "duplicate": BOOLEAN,
}


def add_batch_tools(services: Services) -> None:
    """Add the tools that submit jobs and look at them."""
    most = services.settings.max_batch
    answer = closed_object({**_SUBMISSION, **_JOB}, [*_SUBMISSION])

    @services.tool(
        "mcp-tasks",
        "Create tasks",
        {"tasks": array(task_schema(), "The tasks.", maxItems=most), **_OPTIONS},
        answer,
        {
            "tasks": [
                {"title": "Write the release notes", "dueDate": "2026-12-01", "priority": "HIGH"},
                {"title": "Tag the release", "project": "website"},
            ],
            "requestKey": "release-notes-1",
        },
        required=["tasks"],
        writes=True,
        waits=True,
        description=f"Store 1 to {most} tasks. They are accepted durably at once and stored by a"
        " job: all together, or none. Returns the jobId; pass waitMs to wait for the end, or call"
        " mcp-job-status. More tasks, or more than the server takes in one call: split them, or"
        " use mcp-tasks-from-file.",
    )
    async def submit(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        # Taken out: the tasks are not held as well while the call waits for the job.
        submission = await _submit(services, arguments.pop("tasks"), arguments, context)
        return await _answer(services, submission, arguments, context)

    @services.tool(
        "mcp-tasks-from-file",
        "Create tasks from a file",
        {
            "filePath": text(
                "The path, absolute or relative to the folder.", _MAX_PATH, WITHOUT_NUL
            ),
            **_OPTIONS,
        },
        answer,
        {"filePath": "import/tasks.json", "requestKey": "import-1"},
        required=["filePath"],
        writes=True,
        waits=True,
    )
    async def submit_file(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """Store the tasks in a .json file on the server's machine.

        It has an array of tasks, or an object with `tasks`. Only files below the folder that the
        operator has chosen can be read. Otherwise like mcp-tasks.
        """
        tasks = await asyncio.to_thread(_read_file, services, arguments["filePath"])
        submission = await _submit(services, tasks, arguments, context)
        del tasks
        return await _answer(services, submission, arguments, context)

    @services.tool(
        "mcp-job-status",
        "Job status",
        {"jobId": uuid("The jobId that mcp-tasks returned."), "waitMs": _OPTIONS["waitMs"]},
        closed_object(_JOB),
        {"jobId": "2f1c1c3e-6d2b-4a4e-9d2f-1f6f4c1b7a10", "waitMs": 5000},
        required=["jobId"],
        waits=True,
    )
    async def look(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """Show how far a job is; with waitMs, wait until it has ended or that time has passed."""
        job_id = arguments["jobId"].lower()
        job = await _wait(services, job_id, arguments, context)
        if job is None:
            details = {"reason": "job_not_found", "jobId": job_id}
            raise ToolError(ErrorCode.NOT_FOUND, f"There is no job {job_id}.", details)
        return job_to_wire(job)


def job_to_wire(job: Job) -> dict[str, Any]:
    """Return a job as `mcp-job-status` shows it."""
    rate = None
    if job.status == "COMPLETED" and job.duration_ms is not None:
        rate = round(job.processed_tasks * 1000 / max(job.duration_ms, 1), 1)
    return {
        "jobId": job.job_id,
        "status": job.status,
        "totalTasks": job.total_tasks,
        "processedTasks": job.processed_tasks,
        "progressPercent": job.processed_tasks * 100 // max(job.total_tasks, 1),
        "durationMs": job.duration_ms,
        "tasksPerSecond": rate,
        "errorMessage": job.error_message,
        "attempts": job.attempts,
        "createdAt": job.created_at,
        "startedAt": job.started_at,
        "completedAt": job.completed_at,
    }


async def _submit(
    services: Services,
    tasks: Sequence[dict[str, Any]],
    arguments: dict[str, Any],
    context: ToolContext,
) -> Submission:
    """Submit a job, and have a worker look for it."""
    from uuid import uuid4

    from ..jobs import NewJob
    from ..store import KeyConflictError, QueueFullError, QuotaExceededError

    payload, digest, text_bytes = encode_payload(read_tasks(tasks))
    new = NewJob(
        str(uuid4()),
        principal_of(context),
        arguments.get("requestKey"),
        digest,
        payload,
        len(tasks),
        text_bytes,
        context.correlation_id,
    )
    try:
        submission = await services.store.submit_job(new, services.settings.max_pending_jobs)
    except QueueFullError:
        details = {"reason": "queue_full", "retryAfterMs": RETRY_AFTER_MS}
        raise ToolError(
            ErrorCode.RESOURCE_EXHAUSTED, "Server is busy. Please retry later.", details
        ) from None
    except QuotaExceededError as error:
        raise quota_exceeded(error) from None
    except KeyConflictError:
        raise refuse(
            "/requestKey",
            "belongs to a job with other tasks",
            "key_conflict",
            "This requestKey belongs to a job with other tasks: choose another key.",
        ) from None
    if not submission.duplicate:
        services.observation.job_created(submission.job, context)
        services.logs.follow(submission.job, context.session_log)
        services.wake_workers()
    return submission


async def _answer(
    services: Services, submission: Submission, arguments: dict[str, Any], context: ToolContext
) -> dict[str, Any]:
    """Return a submitted job as it is, or as it is after `waitMs`."""
    duplicate = submission.duplicate
    if not arguments.get("waitMs"):
        return _submission_to_wire(submission.job, duplicate)
    # A job that has ended long ago may have been removed since.
    job = await _wait(services, submission.job.job_id, arguments, context) or submission.job
    return {**job_to_wire(job), **_submission_to_wire(job, duplicate)}


def _submission_to_wire(job: Job, duplicate: bool) -> dict[str, Any]:
    return {
        "success": job.status != "FAILED",
        "jobId": job.job_id,
        "status": job.status,
        "totalTasks": job.total_tasks,
        "message": _message(job, duplicate),
        "duplicate": duplicate,
    }


def _message(job: Job, duplicate: bool) -> str:
    again = "This call was made before. " if duplicate else ""
    match job.status:
        case "COMPLETED":
            return f"{again}{job.total_tasks} tasks are stored."
        case "FAILED":
            return f"{again}No task is stored: {job.error_message}"
        case _:
            return f"{again}The tasks are accepted and being stored: see mcp-job-status."


_PERCENT = {"PENDING": 0, "RUNNING": 1}


async def _wait(
    services: Services, job_id: str, arguments: dict[str, Any], context: ToolContext
) -> Job | None:
    """Return the job when it has ended, or as it is when `waitMs` have passed (TASKS-23)."""
    seconds = int(arguments.get("waitMs", 0)) / 1000
    if not seconds:
        return await services.store.get_job(job_id)

    loop, signal, waiters = asyncio.get_running_loop(), context.abort_signal, services.waiters

    def report(job: Job) -> None:
        signal.raise_if_aborted()  # it ends the wait, and never the job (TASKS-24)
        percent = _PERCENT.get(job.status, 100)
        context.report_progress(percent, 100, f"{job.status}: {job.total_tasks} tasks")

    wake = partial(loop.call_soon_threadsafe, waiters.note, Change(jobs=(job_id,)))
    remove = signal.add_callback(wake)
    try:
        job = await waiters.wait(job_id, seconds, report)
    finally:
        remove()
    if job is not None and job.status == "COMPLETED":
        report(job)
    return job


def _read_file(services: Services, path: str) -> list[dict[str, Any]]:
    """Return the tasks of a file, valid ones.

    Raises:
        ToolError: the file cannot be read, or its tasks are not valid.
    """
    settings = services.settings
    tasks = read_task_file(path, settings.file_root, settings.max_file_bytes)
    check_tasks(services, tasks)
    return tasks


def check_tasks(services: Services, tasks: Sequence[Any]) -> None:
    """Refuse tasks of a file that `mcp-tasks` would refuse, by the same validator.

    The words are the same but for names of unknown members: they are quoted from the file.

    Raises:
        ToolError: INVALID_ARGUMENT, with the places.
    """
    tool = services.server.get("mcp-tasks")
    assert tool is not None, "where tasks are read from files, they may also be sent"
    issues = tool.validate({"tasks": tasks})
    if issues:
        errors = [{"path": each.path, "message": _unquoted(each.message)} for each in issues]
        first = errors[0]
        raise ToolError(
            ErrorCode.INVALID_ARGUMENT,
            f"Invalid tasks: {first['path'] or 'the file'} {first['message']}.",
            {"reason": "schema_validation", "errors": errors},
        )


def _unquoted(message: str) -> str:
    """Return a message without names from the file, which the caller may not be able to read."""
    return "must not have other properties" if message.startswith("must not have ") else message


def read_task_file(path: str, root: str | None, max_bytes: int) -> list[Any]:
    """Return the tasks in a JSON file: an array, or an object with `tasks`; they are not checked.

    Args:
        path: of the file; a relative one is taken from the root.
        root: the folder that clients may read from; None if they may not.
        max_bytes: the largest file that is read.

    Raises:
        ToolError: UNAUTHORIZED without a root, and outside of it; INVALID_ARGUMENT for anything
            that is no such file. No message quotes the file.
    """
    if root is None:
        raise ToolError(
            ErrorCode.UNAUTHORIZED,
            "This server reads no files. Send the tasks with mcp-tasks, or have the operator set"
            " task_server.file_root.",
            {"reason": "file_root_not_set"},
        )
    if not path.endswith(".json") or "\0" in path:
        raise _refusal("is not the path of a .json file", "not_json_file")
    try:
        data = _read(path, root, max_bytes)
    except OSError as error:
        raise _refusal(f"cannot be read: {error.strerror}", "unreadable") from None
    except UnicodeEncodeError:
        raise _refusal("has a name that is not valid Unicode", "unreadable") from None
    try:
        tasks = orjson.loads(data.removeprefix(codecs.BOM_UTF8))
    except orjson.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise _refusal(f"is not valid JSON ({where})", "not_json") from None
    if isinstance(tasks, dict):
        tasks = tasks.get("tasks")
    if not isinstance(tasks, list):
        raise _refusal("holds neither an array nor an object with `tasks`", "no_tasks")
    return tasks


def _read(path: str, root: str, max_bytes: int) -> bytes:
    folder = Path(os.path.realpath(root))
    found = path_below(folder, path)
    if found is None:
        raise ToolError(
            ErrorCode.UNAUTHORIZED,
            "The file is outside of the folder that this server may read from.",
            {"reason": "outside_file_root"},
        )
    descriptor = open_below(folder, found)
    # Python would not close the descriptor of a folder, which it refuses to make a file of.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _refusal("is not a regular file", "not_a_file")
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise _refusal(f"has more than {max_bytes} bytes", "file_too_large")
    return data


def _refusal(problem: str, reason: str) -> ToolError:
    details = {"reason": reason, "pointer": "/filePath"}
    return ToolError(ErrorCode.INVALID_ARGUMENT, f"The file {problem}.", details)
