"""The tools of the servers that have an app, or are for apps alone (HAPP-10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base.app_format import ToolUi

if TYPE_CHECKING:
    from ..coordinator import Coordinator, ToolRegistryEntry


def ui_of(entry: ToolRegistryEntry) -> ToolUi:
    """Return the app of a tool, and who may call it."""
    return ToolUi.read(entry.definition.wire.get("_meta"))


def tools_for_model(coordinator: Coordinator) -> list[ToolRegistryEntry]:
    """Return the tools of all servers, without those that are for apps alone."""
    return [entry for entry in coordinator.tools if ui_of(entry).for_model]
