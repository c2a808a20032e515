"""The tools of the task server, and their registration (spec/task-server.md, "Tools").

batches     mcp-tasks, mcp-tasks-from-file, mcp-job-status
lists       mcp-tasks-list, mcp-tasks-summary
changes     mcp-tasks-claim, mcp-tasks-update, mcp-tasks-delete
about       mcp-schema-tasks, mcp-help
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .about import about_tools
from .batches import batch_tools
from .changes import change_tools
from .lists import list_tools
from .task_tool import register_tool

if TYPE_CHECKING:
    from ..services import Services


def register_tools(services: Services) -> None:
    """Register all tools; of a read-only server those that change nothing (TASKS-04)."""
    for make in (batch_tools, list_tools, change_tools, about_tools):
        for tool in make(services):
            if not (tool.writes and services.settings.read_only):
                register_tool(services, tool)
