"""The three tools that stand for all others: to search, to describe and to call (SEARCH-01).

Applications may import this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base.jsonschema.objects import closed_object
from ...errors import ErrorCode, ToolError
from ...kernel.registry.tool_definition import ToolDefinition
from ...protocol.tool_annotations import ToolAnnotations

MAX_RESULTS = 50
DEFAULT_RESULTS = 10

_READS = ToolAnnotations(read_only=True, open_world=False)

SEARCH_TOOLS = ToolDefinition(
    "search_tools",
    "Find tools by words of their names and descriptions. Returns the best matches with a short"
    " description each; describe_tool has the arguments of one.",
    closed_object(
        {
            "query": {
                "type": "string",
                "description": "Words that say what the tool should do; empty lists all tools.",
                "maxLength": 1000,
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_RESULTS,
                "default": DEFAULT_RESULTS,
            },
        },
        ["query"],
    ),
    title="Search tools",
    annotations=_READS,
)

DESCRIBE_TOOL = ToolDefinition(
    "describe_tool",
    "Return the whole definition of a tool: description, arguments, annotations.",
    closed_object({"name": {"type": "string", "description": "As search_tools has it."}}),
    title="Describe a tool",
    annotations=_READS,
)

CALL_TOOL: dict[str, Any] = {
    "name": "call_tool",
    "title": "Call a tool",
    "description": "Call a tool that search_tools found, with the arguments that it describes.",
    "inputSchema": closed_object(
        {
            "name": {"type": "string", "description": "As search_tools has it."},
            "arguments": {"type": "object", "description": "Of the tool, by name."},
        },
        ["name"],
    ),
}
"""Not a tool of the gateway itself: its result is that of the other tool, as it came."""


def read_call(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params of the call that `call_tool` is to make.

    Raises:
        ToolError: INVALID_ARGUMENT: there is no name.
    """
    given = params.get("arguments")
    given = given if isinstance(given, dict) else {}
    name = given.get("name")
    if not isinstance(name, str):
        raise ToolError(
            ErrorCode.INVALID_ARGUMENT, "call_tool needs the name of a tool: search_tools has it."
        )
    return {**params, "name": name, "arguments": given.get("arguments", {})}
