"""Tools derived from functions, with the context type that servers use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from foundation_rt.base.jsonschema.compilation import compile_schema
from foundation_rt.features.context import ToolContext
from foundation_rt.features.typed import tool_signature
from foundation_rt.features.typed.tool_signature import TypedTool


def derive_tool(function: Callable[..., Any], **options: Any) -> TypedTool:
    """Derive a tool as `Server.tool` does."""
    return tool_signature.derive_tool(function, ToolContext, **options)


def tool_of(hint: Any, schema: dict[str, Any] | None = None) -> Any:
    """Return a tool that returns its parameter `it`, which has this annotation."""

    def tool(it: Any) -> Any:
        return it

    tool.__annotations__ = {"it": hint}
    return derive_tool(tool, input_schema=schema)


def arrived(hint: Any, value: Any) -> Any:
    """Return the argument that a function gets for `value`, which the schema accepts."""
    tool = tool_of(hint)
    arguments = orjson.loads(orjson.dumps({"it": value}))
    assert compile_schema(tool.input_schema).validate(arguments) == ()
    return tool.handler(arguments, None)
