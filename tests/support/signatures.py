"""Tools derived from functions, with the context type that servers use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foundation_rt.core.context import ToolContext
from foundation_rt.registry import tool_signature
from foundation_rt.registry.tool_signature import TypedTool


def derive_tool(function: Callable[..., Any], **options: Any) -> TypedTool:
    """Derive a tool as `Server.tool` does."""
    return tool_signature.derive_tool(function, ToolContext, **options)
