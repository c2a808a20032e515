"""`mcp-schema-tasks` and `mcp-help`: how the task server is used."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....errors import ErrorCode, ToolError
from ..validation import DIALECT, STRING, array, closed_object, task_schema

if TYPE_CHECKING:
    from ....features.context import ToolContext
    from ....kernel.registry.tool_definition import ToolDefinition
    from ..services import Services


def add_about_tools(services: Services) -> None:
    """Add the tools that explain the others."""
    texts = array(STRING)
    shown = ("name", "title", "description", "usage")

    @services.tool(
        "mcp-schema-tasks",
        "Schema of a task",
        {},
        {
            "type": "object",
            "properties": {"$schema": STRING, "type": STRING, "properties": {"type": "object"}},
            "required": ["$schema", "type", "properties"],
        },
    )
    async def schema(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """Return the JSON Schema of a task as mcp-tasks takes it."""
        return {"$schema": DIALECT, **task_schema()}

    @services.tool(
        "mcp-help",
        "Help",
        {"tool": {**STRING, "minLength": 1, "maxLength": 256, "description": "Only this tool."}},
        closed_object(
            {
                "server": STRING,
                "version": STRING,
                "protocolRevisions": texts,
                "tools": array(
                    closed_object({**dict.fromkeys(shown, STRING), "example": {"type": "object"}})
                ),
                "workflow": texts,
                "tips": texts,
            }
        ),
        {"tool": "mcp-tasks-list"},
    )
    async def show(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """Explain the tools of this server, and the way to work with them.

        Each has its usage and an example.
        """
        return _help(services, arguments.get("tool"), context)


_TOOL_NAME = re.compile(r"mcp(?:-[a-z]+)+")

WORKFLOW = (
    "Create tasks with mcp-tasks (up to thousands in one call). Give a requestKey, so that the call"
    " can be repeated safely, and waitMs to wait until they are stored.",
    "If the answer says PENDING or RUNNING, call mcp-job-status with its jobId and waitMs until it"
    " says COMPLETED or FAILED.",
    "Find tasks with mcp-tasks-list; get figures with mcp-tasks-summary.",
    "To work tasks off, call mcp-tasks-claim; several agents can do so at once, and none gets the"
    " task of another.",
    "Report the result with mcp-tasks-update: status DONE, with ifVersion as the claim returned it."
    " If that is refused with version_conflict, the claim has expired and somebody else has it.",
)

TIPS = (
    "Ask mcp-schema-tasks for the members of a task before you create many.",
    "Ask for the fields that you need only: answers are shorter.",
    "Continue lists with nextCursor instead of page numbers.",
    "When a call fails with RESOURCE_EXHAUSTED, wait retryAfterMs and repeat it.",
    "When a call of mcp-tasks fails with a timeout or outcome_unknown, repeat it with the same"
    " requestKey: nothing is stored twice.",
    "Subscribe to task://all, db://stats or task://{id} to be told of changes.",
)


def _help(services: Services, name: str | None, context: ToolContext) -> dict[str, Any]:
    server = services.server
    definitions = [each for each in server.list() if _may_call(services, each.name, context)]
    if name is not None:
        definitions = [each for each in definitions if each.name == name]
        if not definitions:
            details = {"reason": "tool_not_found", "toolName": name}
            raise ToolError(ErrorCode.NOT_FOUND, f"There is no tool {name!r}.", details)
    about = server.load_config().server
    return {
        "server": about.name,
        "version": about.version,
        "protocolRevisions": [*server.revisions],
        "tools": [_describe(each) for each in definitions],
        "workflow": _fitting(WORKFLOW, services, context),
        "tips": _fitting(TIPS, services, context),
    }


def _fitting(texts: Sequence[str], services: Services, context: ToolContext) -> list[str]:
    """Return the texts that name no tool but those that this caller has."""
    return [
        text
        for text in texts
        if all(_may_call(services, name, context) for name in _TOOL_NAME.findall(text))
    ]


def _may_call(services: Services, name: str, context: ToolContext) -> bool:
    """Return whether the lists of this caller have the tool (AUTH-26)."""
    tool = services.server.get(name)
    principal = context.principal
    return tool is not None and (principal is None or not principal.lacks(tool.scopes))


def _describe(definition: ToolDefinition) -> dict[str, Any]:
    schema = definition.input_schema
    examples: Sequence[dict[str, Any]] = schema.get("examples") or ({},)
    return {
        "name": definition.name,
        "title": definition.title or definition.name,
        "description": definition.description,
        "usage": f"{definition.name}({', '.join(_parameters(schema))})",
        "example": examples[0],
    }


def _parameters(schema: Mapping[str, Any]) -> list[str]:
    """Return the arguments of a tool: ``tasks``, ``waitMs=0``, ``requestKey?``."""
    required = schema.get("required", ())
    shown = []
    for name, one in schema["properties"].items():
        if "default" in one:
            shown.append(f"{name}={one['default']}")
        else:
            shown.append(name if name in required else f"{name}?")
    return shown
