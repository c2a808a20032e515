"""The tools of the task server, and their registration (spec/task-server.md, "Tools").

batches     mcp-tasks, mcp-tasks-from-file, mcp-job-status
lists       mcp-tasks-list, mcp-tasks-summary
changes     mcp-tasks-claim, mcp-tasks-update, mcp-tasks-delete
about       mcp-schema-tasks, mcp-help
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .about import add_about_tools
from .batches import add_batch_tools
from .changes import add_change_tools
from .lists import add_list_tools

if TYPE_CHECKING:
    from ..services import Services


def register_tools(services: Services) -> None:
    """Register all tools."""
    for add in (add_batch_tools, add_list_tools, add_change_tools, add_about_tools):
        add(services)
