"""The resources, prompts and completions of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .completions.feature import Completions
from .prompts.feature import Prompts
from .resources.feature import Resources

if TYPE_CHECKING:
    from ..kernel.registry.catalog import Observer
    from .completions.registry import CompletionRegistry
    from .prompts.registry import PromptRegistry
    from .resources.registry import ResourceRegistry


class Features:
    """The registries of a server besides that of tools, each made when it is first used.

    Attributes:
        joining: the features that they belong to.
    """

    def __init__(self) -> None:
        self._resources, self._prompts = Resources(), Prompts()
        self._completions = Completions(self._prompts, self._resources)
        self.joining = (self._resources, self._prompts, self._completions)

    @property
    def resources(self) -> ResourceRegistry:
        """The resources and templates."""
        return self._resources.registry

    @property
    def prompts(self) -> PromptRegistry:
        """The prompts."""
        return self._prompts.registry

    @property
    def completions(self) -> CompletionRegistry:
        """The completers of prompts and templates."""
        return self._completions.registry

    def observe(self, observer: Observer) -> None:
        """Notify `observer` of every change of a list from now on (MRES-12, PROMPT-07)."""
        self._resources.notifier.observe(observer)
        self._prompts.notifier.observe(observer)
