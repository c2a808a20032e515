"""Resources as a feature; their registry is made, and imported, when it is first used."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...base.lazy_names import lazy
from ...kernel.feature import RuntimeFeature
from ...kernel.registry.catalog import ChangeNotifier
from ...kernel.registry.tools import ExecutionMode
from ...protocol.methods import RESOURCES_LIST, RESOURCES_READ, RESOURCES_TEMPLATES_LIST

if TYPE_CHECKING:
    from ...kernel.dispatcher import Dispatcher
    from ...protocol.principal import Principal
    from .registry import RegisteredResource, RegisteredTemplate, ResourceRegistry

_METHODS = f"{__package__}.methods"


class Resources(RuntimeFeature):
    """The resources of a server, and their templates."""

    requests = MappingProxyType(
        {
            RESOURCES_LIST: lazy(_METHODS, "list_resources"),
            RESOURCES_READ: lazy(_METHODS, "read_resource"),
            RESOURCES_TEMPLATES_LIST: lazy(_METHODS, "list_templates"),
        }
    )

    def __init__(self) -> None:
        self.notifier = ChangeNotifier("resources")
        self._registry: ResourceRegistry | None = None

    @property
    def registry(self) -> ResourceRegistry:
        """Return the registry; made when it is first needed."""
        with self.notifier.lock:
            if self._registry is None:
                from .registry import ResourceRegistry

                self._registry = ResourceRegistry(self.notifier)
            return self._registry

    @property
    def is_offered(self) -> bool:
        """Return whether the server advertises resources: it has or has had one (MRES-13)."""
        return self._registry is not None and self._registry.is_offered

    def look_up(
        self, uri: str, principal: Principal | None
    ) -> tuple[RegisteredResource | RegisteredTemplate, dict[str, str]]:
        """Return the resource or the template of a URI, and its variables (MRES-08).

        Raises:
            LookupError: there is neither that the principal sees (VIS-02).
        """
        if self._registry is None:
            raise LookupError(uri)
        return self._registry.find(uri, principal)

    def template(self, uri: str, principal: Principal | None) -> RegisteredTemplate | None:
        """Return the template registered as `uri`; None if there is none that is seen (VIS-02)."""
        return None if self._registry is None else self._registry.templates.seen(uri, principal)

    def decide(self, dispatcher: Dispatcher) -> None:
        """Be found by methods, and by other features."""
        dispatcher.parts[Resources] = self

    def advertise(self, capabilities: dict[str, Any]) -> None:
        """Add the capability to those of the server."""
        if self.is_offered:
            capabilities["resources"] = {"subscribe": True, "listChanged": True}

    @property
    def needs_event_loop(self) -> bool:
        """Return whether any handler is a coroutine function."""
        if self._registry is None:
            return False
        entries = (
            *self._registry.resources.all_registered(),
            *self._registry.templates.all_registered(),
        )
        return any(each.handler_spec.execution is ExecutionMode.ASYNC for each in entries)
