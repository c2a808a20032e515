"""Prompts and resources as tools, for clients that have tools alone (PROMPT-12, MRES-27)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from ..base.cursors import InvalidCursor
from ..base.jsonschema.objects import closed_object
from ..errors import ErrorCode, JsonRpcError, ToolError
from ..kernel.registry.tool_definition import ToolDefinition
from ..protocol.content import EmbeddedResource, Text, TextContents
from ..protocol.tool_annotations import ToolAnnotations
from .prompts.methods import check_arguments
from .prompts.results import shape_prompt
from .resources.own import own_value
from .scopes import require_scopes

if TYPE_CHECKING:
    from ..kernel.registry.catalog import Registry
    from ..kernel.registry.tools import ToolRegistry
    from ..protocol.content import Block
    from .context import ToolContext
    from .prompts.registry import PromptRegistry
    from .resources.registry import ResourceRegistry

_PAGE = 100
_CURSOR = {
    "type": "string",
    "maxLength": 2_000,
    "description": "Of the next page: nextCursor of the page before.",
}


def add_prompt_tools(tools: ToolRegistry, prompts: PromptRegistry) -> None:
    """Register `list_prompts` and `get_prompt`.

    Args:
        tools: they are added to these.
        prompts: of the server.

    Raises:
        RegistrationError: a tool has one of these names.
    """

    def list_prompts(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        return _page(prompts, "prompts", arguments, context)

    async def get_prompt(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        prompt = prompts.seen(arguments["name"], context.principal)
        if prompt is None:
            raise ToolError(ErrorCode.NOT_FOUND, "There is no such prompt: list_prompts has them.")
        require_scopes(context, prompt.scopes)
        given = arguments.get("arguments", {})
        try:
            check_arguments(prompt, given)
        except JsonRpcError as error:
            raise ToolError(ErrorCode.INVALID_ARGUMENT, error.message) from None
        value = await own_value(prompt.handler_spec, given, context)
        return shape_prompt(value, prompt.definition.description, context.client.revision)

    tools.register(_definition("list_prompts", "List the prompts.", cursor=_CURSOR), list_prompts)
    tools.register(
        _definition(
            "get_prompt",
            "Return the messages of a prompt, filled in.",
            ("name",),
            name={"type": "string", "description": "As list_prompts has it."},
            arguments={"type": "object", "additionalProperties": {"type": "string"}},
        ),
        get_prompt,
    )


def add_resource_tools(tools: ToolRegistry, resources: ResourceRegistry) -> None:
    """Register `list_resources` and `read_resource`.

    Args:
        tools: they are added to these.
        resources: of the server.

    Raises:
        RegistrationError: a tool has one of these names.
    """

    def list_resources(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        kinds: dict[str, Registry[Any]] = {
            "resources": resources.resources,
            "resourceTemplates": resources.templates,
        }
        member = "resourceTemplates" if arguments.get("templates") else "resources"
        return _page(kinds[member], member, arguments, context)

    async def read_resource(arguments: dict[str, Any], context: ToolContext) -> list[Block]:
        contents = await context.read_resource(arguments["uri"])
        return [
            Text(each.text) if isinstance(each, TextContents) else EmbeddedResource(each)
            for each in contents
        ]

    tools.register(
        _definition(
            "list_resources",
            "List the resources, or the templates from which their URIs are made.",
            cursor=_CURSOR,
            templates={"type": "boolean", "description": "List the templates instead."},
        ),
        list_resources,
    )
    tools.register(
        _definition(
            "read_resource",
            "Read a resource.",
            ("uri",),
            uri={"type": "string", "description": "As list_resources has it, or of a template."},
        ),
        read_resource,
    )


def _definition(
    name: str, description: str, required: tuple[str, ...] = (), /, **properties: Any
) -> ToolDefinition:
    return ToolDefinition(
        name,
        description,
        closed_object(properties, required),
        annotations=ToolAnnotations(read_only=True, open_world=False),
    )


def _page(
    entries: Registry[Any], member: str, arguments: dict[str, Any], context: ToolContext
) -> dict[str, Any]:
    """Return a page of what the principal sees and may use."""
    try:
        page, following = entries.page(
            arguments.get("cursor"), _PAGE, context.client.revision, context.principal
        )
    except InvalidCursor:
        reason = {"reason": "invalid_cursor"}
        raise ToolError(ErrorCode.INVALID_ARGUMENT, "There is no such cursor.", reason) from None
    found: dict[str, Any] = {member: orjson.loads(orjson.dumps(page))}
    return found if following is None else {**found, "nextCursor": following}
