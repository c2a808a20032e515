"""The prompts of the task server, with the figures of the moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import ErrorCode, ToolError
from ...features.prompts.registry import PromptArgument, PromptDefinition
from .tasks import PRIORITIES, STATUSES
from .tools.task_tool import READ_SCOPE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...features.context import ToolContext
    from .queries import Summary
    from .services import Services

FORMATS = ("brief", "detailed")

_MAX_DESCRIPTION = 20_000


def register_prompts(services: Services) -> None:
    """Register the prompts, and the completion of their arguments (TASKS-38)."""
    for definition, write, choices in _PROMPTS:
        if write is _write_creation and services.settings.read_only:
            continue
        handler = services.guard(_handler(services, write))
        services.server.register_prompt(definition, handler, scopes=(READ_SCOPE,))
        for argument, values in choices.items():
            services.server.register_completion(
                definition.name, argument, _completer(values), inline=True
            )


def _handler(services: Services, write: Callable[[dict[str, str], Summary], str]) -> Any:
    async def get(arguments: dict[str, Any], context: ToolContext) -> str:
        return write(arguments, await services.store.summarize())

    return get


def _completer(values: Sequence[str]) -> Callable[[dict[str, Any], ToolContext], list[str]]:
    def complete(arguments: dict[str, Any], context: ToolContext) -> list[str]:
        begun = arguments["value"].casefold()
        return [value for value in values if value.casefold().startswith(begun)]

    return complete


def _write_creation(arguments: dict[str, str], summary: Summary) -> str:
    description = arguments["description"]
    if not description.strip() or len(description) > _MAX_DESCRIPTION:
        raise _refusal(f"description must be a text of 1 to {_MAX_DESCRIPTION} characters")
    return f"""\
Turn the description below into tasks, and store them with one call of the tool mcp-tasks.

Each task has a `title` (what is to be done, at most 255 characters). Where the description \
says so, it also has a `description`, a `dueDate` (YYYY-MM-DD), a `project` and a `priority` \
({", ".join(PRIORITIES)}). Make one task of each piece of work that one person can finish. Give a \
`requestKey`, so that the call can be repeated safely, and `waitMs` 5000.

{_figures(summary)}

Description:
{description}"""


def _write_summary(arguments: dict[str, str], summary: Summary) -> str:
    status = arguments.get("status", "")
    if status and status not in STATUSES:
        raise _refusal(f"status must be one of {', '.join(STATUSES)}")
    which = f"the tasks with the status {status}" if status else "the tasks of each status"
    condition = f"`status` {status}" if status else "each `status` in turn"
    count = f"There are {summary.count_by_status[status]} of them.\n\n" if status else ""
    return f"""\
Summarize {which} for a person in a hurry: what they are about, what is overdue, what to do next.

{count}{_figures(summary)}

Read the tasks with the tool mcp-tasks-list ({condition}, `sort` dueDate), as far as you need \
them."""


def _write_report(arguments: dict[str, str], summary: Summary) -> str:
    wanted = arguments.get("format") or FORMATS[0]
    if wanted not in FORMATS:
        raise _refusal(f"format must be one of {', '.join(FORMATS)}")
    parts = _BRIEF if wanted == FORMATS[0] else _DETAILED
    return f"Write a {wanted} report about the tasks.\n\n{_figures(summary)}\n\n{parts}"


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


def _refusal(message: str) -> ToolError:
    return ToolError(ErrorCode.INVALID_ARGUMENT, f"The argument {message}.")


_PROMPTS: tuple[
    tuple[PromptDefinition, Callable[[dict[str, str], Summary], str], dict[str, Sequence[str]]], ...
] = (
    (
        PromptDefinition(
            "create-tasks-from-description",
            title="Create tasks from a description",
            description="Turn a description in plain words into stored tasks.",
            arguments=(
                PromptArgument("description", description="What is to be done.", required=True),
            ),
        ),
        _write_creation,
        {},
    ),
    (
        PromptDefinition(
            "summarize-tasks-by-status",
            title="Summarize tasks by status",
            description="Summarize the stored tasks, of all statuses or of one.",
            arguments=(PromptArgument("status", description="One of TODO, IN_PROGRESS, DONE."),),
        ),
        _write_summary,
        {"status": STATUSES},
    ),
    (
        PromptDefinition(
            "task-report-template",
            title="Task report",
            description="Write a report about the stored tasks.",
            arguments=(PromptArgument("format", description="brief (default) or detailed."),),
        ),
        _write_report,
        {"format": FORMATS},
    ),
)
