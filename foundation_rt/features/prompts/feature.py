"""Prompts as a feature; their registry is made, and imported, when it is first used."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...base.lazy_names import lazy
from ...kernel.feature import RuntimeFeature
from ...kernel.registry.catalog import ChangeNotifier
from ...kernel.registry.tools import ExecutionMode
from ...protocol.methods import PROMPTS_GET, PROMPTS_LIST

if TYPE_CHECKING:
    from ...kernel.dispatcher import Dispatcher
    from ...protocol.principal import Principal
    from .registry import PromptRegistry, RegisteredPrompt

_METHODS = f"{__package__}.methods"


class Prompts(RuntimeFeature):
    """The prompts of a server."""

    requests = MappingProxyType(
        {
            PROMPTS_LIST: lazy(_METHODS, "list_prompts"),
            PROMPTS_GET: lazy(_METHODS, "get_prompt"),
        }
    )

    def __init__(self) -> None:
        self.notifier = ChangeNotifier("prompts")
        self._registry: PromptRegistry | None = None

    @property
    def registry(self) -> PromptRegistry:
        """Return the registry; made when it is first needed."""
        with self.notifier.lock:
            if self._registry is None:
                from .registry import PromptRegistry

                self._registry = PromptRegistry(self.notifier)
            return self._registry

    @property
    def is_offered(self) -> bool:
        """Return whether the server advertises prompts: it has or has had one (PROMPT-07)."""
        return self._registry is not None and self._registry.was_used

    def look_up(self, name: str, principal: Principal | None) -> RegisteredPrompt | None:
        """Return the prompt of a name; None if there is none that the principal sees (VIS-02)."""
        return None if self._registry is None else self._registry.seen(name, principal)

    def has(self, name: str) -> bool:
        """Return whether there is a prompt of this name, whoever sees it."""
        return self._registry is not None and self._registry.get(name) is not None

    def decide(self, dispatcher: Dispatcher) -> None:
        """Be found by methods, and by other features."""
        dispatcher.parts[Prompts] = self

    def advertise(self, capabilities: dict[str, Any]) -> None:
        """Add the capability to those of the server."""
        if self.is_offered:
            capabilities["prompts"] = {"listChanged": True}

    @property
    def needs_event_loop(self) -> bool:
        """Return whether any handler is a coroutine function."""
        entries = () if self._registry is None else self._registry.all_registered()
        return any(each.handler_spec.execution is ExecutionMode.ASYNC for each in entries)
