"""Tasks as clients give them: their schema, and the rows that jobs store.

The schema is advertised by the tools and enforced by the validator that the runtime has generated
from it. There is no second validator: what comes from a file is checked by the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from ...errors import ErrorCode, ToolError
from .tasks import PRIORITIES, STATUSES, WIRE_NAMES, text_bytes

DEFAULT_STATUS = "TODO"
DEFAULT_PROJECT = "default"
DEFAULT_PRIORITY = "NORMAL"

MAX_TITLE = 255
MAX_DESCRIPTION = 2_000
MAX_PROJECT = 100
MAX_REQUEST_KEY = 128
MAX_WORKER = 128

DIALECT = "https://json-schema.org/draft/2020-12/schema"
"""The dialect that the answer of `mcp-schema-tasks` names. The keywords are those that mean the
same in draft-07, so the tools need no engine for it."""

NOT_BLANK = r"^\s*[^\s\u0000][^\u0000]*$"
"""A text with a character that is no white space, and without U+0000, which PostgreSQL refuses."""

WITHOUT_NUL = r"^[^\u0000]*$"

_PRIORITY_INDEX: dict[str, int] = {name: index for index, name in enumerate(PRIORITIES)}
_NORMAL = _PRIORITY_INDEX[DEFAULT_PRIORITY]


def text(description: str, maximum: int, pattern: str = NOT_BLANK, **more: Any) -> dict[str, Any]:
    """Return the schema of a text of at least one character."""
    return {
        "type": "string",
        "minLength": 1,
        "maxLength": maximum,
        "pattern": pattern,
        "description": description,
        **more,
    }


def or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a value that may be null instead; hosts refuse a list of types."""
    notes = {name: schema[name] for name in ("description", "default") if name in schema}
    own = {name: value for name, value in schema.items() if name not in notes}
    return {"anyOf": [own, {"type": "null"}], **notes}


def date(description: str) -> dict[str, Any]:
    """Return the schema of a date; the year 0 is none, as the databases have none."""
    return {
        "type": "string",
        "format": "date",
        "pattern": "^0{0,3}[1-9]",
        "description": description,
    }


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


def array(items: Mapping[str, Any], description: str | None = None, **more: Any) -> dict[str, Any]:
    """Return the schema of an array; one with a description is an argument, and not empty."""
    if description is None:
        return {"type": "array", "items": items}
    return {"type": "array", "minItems": 1, "items": items, "description": description, **more}


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


def choice(names: Sequence[str], description: str, **more: Any) -> dict[str, Any]:
    """Return the schema of one of a few words."""
    return {"type": "string", "enum": [*names], "description": description, **more}


MAX_ID = 2**53 - 1
"""The largest id that every client can write."""

TASK_ID = integer("The id of a task.", 1, MAX_ID)
STRING = {"type": "string"}
INTEGER = {"type": "integer"}
BOOLEAN = {"type": "boolean"}

STORED_TASK: dict[str, Any] = {
    **dict.fromkeys(WIRE_NAMES, STRING),
    **dict.fromkeys(("id", "version"), INTEGER),
    **dict.fromkeys(("description", "dueDate", "claimedBy", "claimExpiresAt"), nullable("string")),
}
"""The members of a stored task, as answers have them."""


def task_schema() -> dict[str, Any]:
    """Return the JSON Schema of a task as `mcp-tasks` takes it."""
    return {
        "type": "object",
        "title": "Task",
        "properties": {
            "title": text("What is to be done; not blank.", MAX_TITLE),
            "description": or_null(
                {
                    "type": "string",
                    "maxLength": MAX_DESCRIPTION,
                    "pattern": WITHOUT_NUL,
                    "description": "Details.",
                }
            ),
            "status": choice(STATUSES, "The state of the work.", default=DEFAULT_STATUS),
            "dueDate": or_null(date("When it is due, such as 2026-11-22.")),
            "project": text(
                "The project it belongs to; not blank.", MAX_PROJECT, default=DEFAULT_PROJECT
            ),
            "priority": choice(PRIORITIES, "How urgent it is.", default=DEFAULT_PRIORITY),
        },
        "required": ["title"],
        "additionalProperties": False,
    }


def read_tasks(tasks: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return valid tasks as rows in the order of `NewTask`, with the defaults filled in."""
    index = _PRIORITY_INDEX
    return [
        (
            task["title"],
            task.get("description") or None,
            task.get("status", DEFAULT_STATUS),
            task.get("dueDate"),
            task.get("project", DEFAULT_PROJECT),
            index[task["priority"]] if "priority" in task else _NORMAL,
        )
        for task in tasks
    ]


def encode_payload(rows: Sequence[tuple[Any, ...]]) -> tuple[bytes, bytes, int]:
    """Return the payload of a job, its digest, and its bytes that count against a quota.

    Equal tasks are equal payloads.
    """
    from hashlib import sha256  # 5 ms that no start has to wait for

    payload = orjson.dumps(rows)
    size = sum(text_bytes(row[0], row[1], row[4]) for row in rows)
    return payload, sha256(payload).digest(), size


def read_members(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of an update by the names of the columns; null and "" clear.

    That is: a title cannot be cleared, and the members with a default have it again.
    """
    members: dict[str, Any] = {}
    for name, value in given.items():
        column, default = _COLUMNS[name]
        members[column] = value or default
    if isinstance(members.get("priority"), str):
        members["priority"] = _PRIORITY_INDEX[members["priority"]]
    return members


_COLUMNS: dict[str, tuple[str, Any]] = {
    "title": ("title", None),
    "description": ("description", None),
    "status": ("status", DEFAULT_STATUS),
    "dueDate": ("due_date", None),
    "project": ("project", DEFAULT_PROJECT),
    "priority": ("priority", DEFAULT_PRIORITY),
}
MEMBERS = (*_COLUMNS,)
"""The members of a task that clients set."""


def refuse(
    path: str, problem: str, reason: str, message: str | None = None, **details: Any
) -> ToolError:
    """Return the error of an argument that the schema allows and the tool does not (TASKS-13).

    Args:
        path: a JSON pointer into the arguments; empty for all of them.
        problem: follows the name of what is wrong.
        reason: for programs.
        message: by default the path and the problem.
        details: more of them.
    """
    return ToolError(
        ErrorCode.INVALID_ARGUMENT,
        message or f"Invalid arguments: {path or 'the arguments'} {problem}.",
        {"reason": reason, **details, "errors": [{"path": path, "message": problem}]},
    )
