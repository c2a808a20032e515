"""The prompts of the task server, with the figures of the moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from ...features.signatures.constraints import Constraints
from .services import READ_SCOPE
from .tasks import PRIORITIES, STATUSES, TaskStatus

if TYPE_CHECKING:
    from .queries import Summary
    from .services import Services

Description = Annotated[str, Constraints(max_length=20_000, pattern=r"\S")]


def register_prompts(services: Services) -> None:
    """Register the prompts (TASKS-38)."""
    server = services.server
    options: Any = {"scopes": (READ_SCOPE,)}

    async def create(description: Description) -> str:
        """Turn a description in plain words into stored tasks.

        Args:
            description: What is to be done.
        """
        return f"""\
Turn the description below into tasks, and store them with one call of the tool mcp-tasks.

Each task has a `title` (what is to be done, at most 255 characters). Where the description \
says so, it also has a `description`, a `dueDate` (YYYY-MM-DD), a `project` and a `priority` \
({", ".join(PRIORITIES)}). Make one task of each piece of work that one person can finish. Give a \
`requestKey`, so that the call can be repeated safely, and `waitMs` 5000.

{_figures(await services.store.summarize())}

Description:
{description}"""

    if not services.settings.read_only:
        title = "Create tasks from a description"
        server.prompt("create-tasks-from-description", title=title, **options)(create)

    @server.prompt("summarize-tasks-by-status", title="Summarize tasks by status", **options)
    async def summarize(status: TaskStatus | None = None) -> str:
        """Summarize the stored tasks, of all statuses or of one.

        Args:
            status: One of TODO, IN_PROGRESS, DONE.
        """
        summary = await services.store.summarize()
        which, condition, count = "the tasks of each status", "each `status` in turn", ""
        if status is not None:
            which, condition = f"the tasks with the status {status}", f"`status` {status}"
            count = f"There are {summary.count_by_status[status]} of them.\n\n"
        return f"""\
Summarize {which} for a person in a hurry: what they are about, what is overdue, what to do next.

{count}{_figures(summary)}

Read the tasks with the tool mcp-tasks-list ({condition}, `sort` dueDate), as far as you need \
them."""

    @server.prompt("task-report-template", title="Task report", **options)
    async def report(format: Literal["brief", "detailed"] = "brief") -> str:
        """Write a report about the stored tasks.

        Args:
            format: brief (default) or detailed.
        """
        figures = _figures(await services.store.summarize())
        parts = _BRIEF if format == "brief" else _DETAILED
        return f"Write a {format} report about the tasks.\n\n{figures}\n\n{parts}"


_BRIEF = """\
The report has three sentences: how much is done, what is overdue, what comes next."""

_DETAILED = """\
The report has these sections:
1. Overview: the figures above, and the share that is done.
2. Overdue: each overdue task with its project and due date (mcp-tasks-list with dueBefore today \
and sort dueDate).
3. In progress: who works on what, and until when (mcp-tasks-list with status IN_PROGRESS).
4. Next: the most urgent open tasks (mcp-tasks-list with status TODO and sort -priority).
5. Risks, and what you recommend."""


def _figures(summary: Summary) -> str:
    counts = summary.count_by_status
    total = sum(counts.values())
    listed = ", ".join(f"{counts[status]} {status}" for status in STATUSES)
    lines = [f"Stored now ({summary.generated_at}): {total} tasks ({listed})."]
    lines.append(f"{summary.overdue} are overdue.")
    if summary.earliest_due_date is not None:
        lines.append(f"Due dates: {summary.earliest_due_date} to {summary.latest_due_date}.")
    if summary.jobs_pending or summary.jobs_running:
        unfinished = summary.jobs_pending + summary.jobs_running
        lines.append(f"{unfinished} jobs are still storing tasks.")
    return " ".join(lines)
