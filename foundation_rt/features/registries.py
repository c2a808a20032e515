"""The resources, prompts, completions and skills of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .completions.feature import Completions
from .prompts.feature import Prompts
from .resources.feature import Resources

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..kernel.feature import RuntimeFeature
    from ..kernel.registry.catalog import Observer
    from .completions.registry import CompletionRegistry
    from .prompts.registry import PromptRegistry
    from .resources.registry import ResourceRegistry
    from .skills.feature import Skills
    from .skills.registry import SkillRegistry


class Features:
    """The registries of a server besides that of tools, each made when it is first used."""

    def __init__(self) -> None:
        self._resources, self._prompts = Resources(), Prompts()
        self._completions = Completions(self._prompts, self._resources)
        self._skills: Skills | None = None

    @property
    def joining(self) -> Iterable[RuntimeFeature]:
        """Return the features that they belong to."""
        skills = () if self._skills is None else (self._skills,)
        return (self._resources, self._prompts, self._completions, *skills)

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

    @property
    def has_skills(self) -> bool:
        """Return whether the registry of skills was made; after the start it is too late."""
        return self._skills is not None

    @property
    def skills(self) -> SkillRegistry:
        """The skills."""
        if self._skills is None:
            from .skills.feature import Skills

            self._skills = Skills(self._resources)
        return self._skills.registry

    def observe(self, observer: Observer) -> None:
        """Notify `observer` of every change of a list from now on (MRES-12, PROMPT-07)."""
        self._resources.notifier.observe(observer)
        self._prompts.notifier.observe(observer)
