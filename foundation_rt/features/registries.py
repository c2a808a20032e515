"""The resources, prompts, completions, skills and apps of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .completions.feature import Completions
from .prompts.feature import Prompts
from .resources.feature import Resources

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..kernel.feature import RuntimeFeature
    from ..kernel.registry.catalog import Observer
    from .apps.feature import Apps
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
        self._apps: Apps | None = None

    @property
    def joining(self) -> Iterable[RuntimeFeature]:
        """Return the features that they belong to."""
        used = [each for each in (self._skills, self._apps) if each is not None]
        return (self._resources, self._prompts, self._completions, *used)

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

    @property
    def has_apps(self) -> bool:
        """Return whether the server has apps; after the start it is too late."""
        return self._apps is not None

    @property
    def apps(self) -> Apps:
        """The feature of the apps, which are resources."""
        if self._apps is None:
            from .apps.feature import Apps

            self._apps = Apps(self._resources)
        return self._apps

    def observe(self, observer: Observer) -> None:
        """Notify `observer` of every change of a list from now on (MRES-12, PROMPT-07)."""
        self._resources.notifier.observe(observer)
        self._prompts.notifier.observe(observer)
