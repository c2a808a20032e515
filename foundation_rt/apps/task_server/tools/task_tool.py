"""One tool of the task server: its definition, its handler, and how both are registered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from ....kernel.registry.tool_definition import ToolDefinition
from ....protocol.tool_annotations import ToolAnnotations
from ..validation import or_null

if TYPE_CHECKING:
    from ..services import Handler, Services

READ_SCOPE = "tasks:read"
WRITE_SCOPE = "tasks:write"

MAX_WAIT_MS = 25_000
TASK_AFTER_MS = 2_000
_WAITING_TIMEOUT_MS = 60_000
"""The deadline of a tool that waits: the wait, and what comes before and after it."""

MAX_ID = 2**53 - 1
"""The largest id that every client can write."""


@frozen(eq=False)
class TaskTool:
    """A tool.

    Attributes:
        name: for programs.
        title: for people.
        description: for the model.
        arguments: the schema of each argument.
        handler: see `Handler`.
        answer: the schema of the answer.
        example: arguments of a call that makes sense.
        required: the arguments without a default.
        writes: it changes tasks.
        destructive: it deletes or overwrites.
        idempotent: a second call with the same arguments changes nothing more.
        waits: it has `waitMs`, so a call may become a task (TASKS-23).
    """

    name: str
    title: str
    description: str
    arguments: Mapping[str, Any]
    handler: Handler
    answer: Mapping[str, Any]
    example: Mapping[str, Any] = field(factory=dict)
    required: Sequence[str] = ()
    writes: bool = False
    destructive: bool = False
    idempotent: bool = False
    waits: bool = False


def register_tool(services: Services, tool: TaskTool) -> None:
    """Register a tool with its scope, and with tasks if it waits."""
    definition = ToolDefinition(
        tool.name,
        tool.description,
        {**closed_object(tool.arguments, tool.required), "examples": [dict(tool.example)]},
        title=tool.title,
        output_schema=tool.answer,
        annotations=ToolAnnotations(
            read_only=not tool.writes,
            destructive=tool.destructive,
            idempotent=tool.idempotent or not tool.writes,
            open_world=False,
        ),
    )
    scopes = (WRITE_SCOPE if tool.writes else READ_SCOPE,)
    handler = services.guard(tool.handler)
    if tool.waits:
        services.server.register(
            definition,
            handler,
            scopes=scopes,
            timeout_ms=_WAITING_TIMEOUT_MS,
            task="optional",
            task_after_ms=TASK_AFTER_MS,
        )
    else:
        services.server.register(definition, handler, scopes=scopes)


def closed_object(
    properties: Mapping[str, Any], required: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the schema of an object without other members; all are required by default."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [*(properties if required is None else required)],
        "additionalProperties": False,
    }


def integer(description: str, minimum: int, maximum: int, **more: Any) -> dict[str, Any]:
    """Return the schema of a whole number."""
    return {
        "type": "integer",
        "minimum": minimum,
        "maximum": maximum,
        "description": description,
        **more,
    }


def nullable(kind: str) -> dict[str, Any]:
    """Return the schema of an answer's member that may be unknown."""
    return or_null({"type": kind})


def uuid(description: str) -> dict[str, Any]:
    """Return the schema of the id of a job."""
    return {"type": "string", "format": "uuid", "description": description}


def task_id(description: str = "The id of a task.") -> dict[str, Any]:
    """Return the schema of the id of a task."""
    return integer(description, 1, MAX_ID)


STRING = {"type": "string"}
INTEGER = {"type": "integer"}
BOOLEAN = {"type": "boolean"}

STORED_TASK: dict[str, Any] = {
    "id": INTEGER,
    "title": STRING,
    "description": nullable("string"),
    "status": STRING,
    "dueDate": nullable("string"),
    "project": STRING,
    "priority": STRING,
    "version": INTEGER,
    "claimedBy": nullable("string"),
    "claimExpiresAt": nullable("string"),
    "jobId": STRING,
    "createdBy": STRING,
    "createdAt": STRING,
    "updatedAt": STRING,
}
"""The members of a stored task, as answers have them."""
