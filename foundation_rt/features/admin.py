"""`admin/registerTool` and `admin/unregisterTool`: an administrator adds and removes tools.

A client sends a definition and never code: it names one of a closed set of types, and gets a tool
with the schema and the handler that the server has for that type (ADMIN-05). So all that a client
can reach is known before the server starts.

`policies` refuses calls that `tools.admin_policy` forbids, before a handler runs (ADMIN-03). The
registry checks the definition, logs the change and notifies the clients, as for every tool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define

from ..agents.errors import AgentNotFoundError
from ..base.exact_json import dumps
from ..base.jsonschema.objects import closed_object
from ..errors import ErrorCode, RegistrationError, ToolError
from ..kernel.registry.tool_definition import MAX_TOOL_NAME_LENGTH, ToolDefinition
from ..kernel.registry.tools import ExecutionMode
from .agent_tools.agents import scopes_of_agent, send_message_handler
from .health import HEALTH, health_report
from .policies import ADMINISTRATIVE, Administrative

if TYPE_CHECKING:
    from ..agents.local import AgentCoordinator
    from ..base.config.settings import ServerConfig
    from ..kernel.execution_limits import ResourceManager
    from ..kernel.registry.tools import Handler, ToolPart, ToolRegistry
    from .context import ToolContext

CANONICAL_SCHEMAS: dict[str, Mapping[str, Any]] = {
    "echo": {
        "type": "object",
        "properties": {"message": {"type": "string"}},
        "required": ["message"],
    },
    "health": HEALTH.input_schema,
    "agentProxy": {
        "type": "object",
        "properties": {"targetAgentId": {"type": "string"}, "message": {"type": "object"}},
        "required": ["targetAgentId", "message"],
    },
}
"""The types of dynamic tools, each with the input schema of its tools (ADMIN-05)."""

_NAME = {"type": "string", "minLength": 1, "maxLength": MAX_TOOL_NAME_LENGTH}

REGISTER_TOOL = ToolDefinition(
    name="admin/registerTool",
    description="Register a tool of one of the predefined types.",
    input_schema=closed_object(
        {
            "name": {**_NAME, "description": "Name of the new tool."},
            "description": {"type": "string", "description": "What the new tool is for."},
            "toolType": {"enum": [*CANONICAL_SCHEMAS], "description": "What the new tool does."},
            "inputSchema": {
                "type": "object",
                "description": "The input schema expected; it must be that of the type.",
            },
            "version": {"type": "string", "description": "Version of the new tool."},
        },
        ["name", "description", "toolType"],
    ),
)

UNREGISTER_TOOL = ToolDefinition(
    name="admin/unregisterTool",
    description="Remove a tool that was registered while the server runs.",
    input_schema=closed_object({"name": {**_NAME, "description": "Name of the tool."}}),
)


@define(eq=False, repr=False)
class AdminTools:
    """The handlers of the two tools.

    Args:
        registry: of the server.
        handlers: the handler of each type of `CANONICAL_SCHEMAS`, and where it runs.
        parts: what features keep for tools of a type.
    """

    registry: ToolRegistry
    handlers: Mapping[str, tuple[Handler, ExecutionMode]]
    parts: Mapping[str, Sequence[ToolPart]]

    def register_tool(self, arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """Add a tool of a predefined type (ADMIN-04 to ADMIN-07).

        Raises:
            ToolError: INVALID_ARGUMENT; `details.reason` says why.
        """
        name, tool_type = arguments["name"], arguments["toolType"]
        schema = CANONICAL_SCHEMAS[tool_type]
        if "inputSchema" in arguments:
            _check_assertion(arguments["inputSchema"], tool_type)
        definition = ToolDefinition(
            name, arguments["description"], schema, arguments.get("version")
        )
        handler, execution = self.handlers[tool_type]
        if self.registry.find(name) is not None:  # a newer version would get its calls
            raise self._describe_refusal(name, RegistrationError("the name is taken"))
        try:
            tool = self.registry.register(
                definition,
                handler,
                is_dynamic=True,
                execution=execution,
                tool_type=tool_type,
                parts=self.parts.get(tool_type, ()),
            )
        except RegistrationError as error:
            raise self._describe_refusal(name, error) from error
        return {"registered": tool.definition.name, "toolType": tool_type}

    def unregister_tool(self, arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """Remove a dynamic tool (ADMIN-08).

        Raises:
            ToolError: NOT_FOUND, or INVALID_ARGUMENT for a static tool.
        """
        name = arguments["name"]
        tool = self.registry.get(name)
        if tool is not None and not tool.is_dynamic:
            raise _refuse("static_tool", f"The tool {name!r} is static: it stays.", toolName=name)
        # This tool only: by now another may have its name, and that one may be static.
        if tool is None or not self.registry.remove(tool):
            details = {"toolName": name}
            raise ToolError(ErrorCode.NOT_FOUND, f"There is no tool {name!r}.", details)
        return {"unregistered": name}

    def _describe_refusal(self, name: str, error: RegistrationError) -> ToolError:
        """Return the error for the client when the registry has refused the tool (ADMIN-07)."""
        present = self.registry.find(name)
        if present is None:
            return _refuse("invalid_definition", f"{error}.")
        if present.is_dynamic:
            message = f"The name {name!r} is taken: choose another, or unregister that tool first."
            return _refuse("name_taken", message, toolName=name)
        message = f"The tool {name!r} is static and can't be replaced: choose another name."
        return _refuse("static_tool", message, toolName=name)


def add_admin_tools(
    registry: ToolRegistry,
    config: ServerConfig,
    resources: ResourceManager,
    agents: Callable[[], AgentCoordinator | None],
) -> None:
    """Register the two tools, unless an earlier runtime has registered them (ADMIN-01).

    Args:
        registry: of the server.
        config: of the server.
        resources: for the report of `health`.
        agents: returns the coordinator; a server may get one while it runs.

    Raises:
        RegistrationError: the author of the server has given one of the names to another tool.
    """
    present = registry.find(REGISTER_TOOL.name)
    if present is not None and Administrative in present.parts:
        return
    tools = AdminTools(
        registry,
        {
            "echo": (_echo, ExecutionMode.INLINE),
            "health": (lambda *_: health_report(config, resources), ExecutionMode.INLINE),
            "agentProxy": (_agent_proxy(agents), ExecutionMode.ASYNC),
        },
        {"agentProxy": [scopes_of_agent(agents, "targetAgentId")]},
    )
    for definition, handler in (
        (REGISTER_TOOL, tools.register_tool),
        (UNREGISTER_TOOL, tools.unregister_tool),
    ):
        # In place, so that a call sent right after it finds the tool, though a registration takes
        # most of a millisecond, to compile the schema.
        registry.register(
            definition,
            handler,
            execution=ExecutionMode.INLINE,
            parts=[ADMINISTRATIVE],
            scopes=config.tools.admin_scopes(),
        )


def _echo(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    return {"message": arguments["message"]}


def _agent_proxy(agents: Callable[[], AgentCoordinator | None]) -> Handler:
    async def send_message(arguments: dict[str, Any], context: ToolContext) -> Any:
        coordinator = agents()
        if coordinator is None:
            raise AgentNotFoundError(arguments["targetAgentId"])
        return await send_message_handler(coordinator)(arguments, context)

    return send_message


def _check_assertion(supplied: Mapping[str, Any], tool_type: str) -> None:
    """Refuse a supplied schema that is not, byte for byte, that of the type (ADMIN-06)."""
    canonical = CANONICAL_SCHEMAS[tool_type]
    if _canonical_encoding(supplied) != _canonical_encoding(canonical):
        raise _refuse(
            "schema_mismatch",
            f"inputSchema is not the schema of {tool_type} tools: leave it out, or send that one.",
            toolType=tool_type,
            canonicalSchema=canonical,
        )


def _canonical_encoding(schema: Mapping[str, Any]) -> bytes:
    return dumps(schema, option=orjson.OPT_SORT_KEYS)


def _refuse(reason: str, message: str, **details: Any) -> ToolError:
    return ToolError(ErrorCode.INVALID_ARGUMENT, message, {"reason": reason, **details})
