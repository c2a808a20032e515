"""The resources, prompts and completions of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from .completions import CompletionRegistry
from .prompts import PromptRegistry
from .resources import ResourceRegistry
from .tools import ExecutionMode

if TYPE_CHECKING:
    from .catalog import Observer


@define(eq=False, repr=False)
class Features:
    """The registries of a server besides that of tools; made when one of them is first used."""

    resources: ResourceRegistry = field(factory=ResourceRegistry)
    prompts: PromptRegistry = field(factory=PromptRegistry)
    completions: CompletionRegistry = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.completions = CompletionRegistry(self.prompts, self.resources)

    def observe(self, observer: Observer) -> None:
        """Notify `observer` of every change of a list from now on (MRES-12, PROMPT-07)."""
        self.resources.observe(observer)
        self.prompts.observe(observer)

    def has_async_handlers(self) -> bool:
        """Return whether any handler needs an event loop."""
        resources, prompts = self.resources, self.prompts
        specs = [
            *(entry.handler_spec for entry in resources.resources.all_registered()),
            *(entry.handler_spec for entry in resources.templates.all_registered()),
            *(entry.handler_spec for entry in prompts.prompts.all_registered()),
        ]
        return any(spec.execution is ExecutionMode.ASYNC for spec in specs)
