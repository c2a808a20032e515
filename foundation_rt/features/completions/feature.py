"""Completions as a feature; their registry is made, and imported, when it is first used."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...base.lazy_names import lazy
from ...kernel.feature import RuntimeFeature
from ...protocol.methods import COMPLETION_COMPLETE

if TYPE_CHECKING:
    from ...kernel.dispatcher import Dispatcher
    from ..prompts.feature import Prompts
    from ..resources.feature import Resources
    from .registry import CompletionRegistry


class Completions(RuntimeFeature):
    """The completers of the prompts and templates of a server."""

    requests = MappingProxyType({COMPLETION_COMPLETE: lazy(f"{__package__}.methods", "complete")})

    def __init__(self, prompts: Prompts, resources: Resources) -> None:
        self._prompts = prompts
        self._resources = resources
        self._registry: CompletionRegistry | None = None

    @property
    def registry(self) -> CompletionRegistry:
        """Return the registry; made when it is first needed."""
        prompts, resources = self._prompts.registry, self._resources.registry
        with self._prompts.notifier.lock:
            if self._registry is None:
                from .registry import CompletionRegistry

                self._registry = CompletionRegistry(prompts, resources)
            return self._registry

    @property
    def is_offered(self) -> bool:
        """Return whether the server advertises completions: it has or has had one (COMP-06)."""
        has_subjects = self._prompts.is_offered or self._resources.is_offered
        return (has_subjects or self._registry is not None) and self.registry.is_offered

    def decide(self, dispatcher: Dispatcher) -> None:
        """Be found by methods, and by other features."""
        dispatcher.parts[Completions] = self

    def advertise(self, capabilities: dict[str, Any]) -> None:
        """Add the capability to those of the server."""
        if self.is_offered:
            capabilities["completions"] = {}
