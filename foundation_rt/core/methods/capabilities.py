"""What a server says it can do: what is there, and no more (REV-08)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..tasks.support import EXTENSION

if TYPE_CHECKING:
    from ...protocol.revisions import Revision
    from ...registry.features import Features
    from ..dispatcher import Dispatcher


def capabilities_of(dispatcher: Dispatcher, revision: Revision) -> dict[str, Any]:
    """The `ServerCapabilities` for a peer that speaks `revision`."""
    capabilities: dict[str, Any] = {"logging": {}, "tools": {"listChanged": True}}
    features = dispatcher.features
    if features is not None:
        capabilities.update(_of_features(features))
    if dispatcher.tasks.offered:
        capabilities["extensions"] = {EXTENSION: {}}
    return revision.keep("capabilities", capabilities)


def _of_features(features: Features) -> dict[str, Any]:
    capabilities: dict[str, Any] = {}
    if features.resources.is_offered:
        capabilities["resources"] = {"subscribe": True, "listChanged": True}
    if features.prompts.is_offered:
        capabilities["prompts"] = {"listChanged": True}
    if features.completions.is_offered:
        capabilities["completions"] = {}
    return capabilities
