"""What is known of a server: what it said of itself, and what it can do (GEO-1.5a-003)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from attrs import frozen

from ...protocol.revisions import Revision
from ..errors import NotOfferedError


@frozen(eq=False)
class ServerDescription:
    """A server, as it introduced itself.

    Attributes:
        revision: what is spoken with it.
        capabilities: what it can do, as it said.
        implementation: its `serverInfo`, as it came.
        instructions: how it wants to be used; for language models.
    """

    revision: Revision
    capabilities: Mapping[str, Any]
    implementation: Mapping[str, Any]
    instructions: str | None = None

    @property
    def name(self) -> str:
        """What it calls itself; empty if it did not say."""
        return _text(self.implementation.get("name"))

    @property
    def version(self) -> str:
        """Its version; empty if it did not say."""
        return _text(self.implementation.get("version"))

    def can(self, *path: str) -> bool:
        """Return whether it declared a capability: ``server.can("resources", "subscribe")``."""
        found: Any = self.capabilities
        for name in path:
            if not isinstance(found, Mapping) or found.get(name) in (None, False):
                return False
            found = found[name]
        return True

    def check(self, required: Collection[str]) -> None:
        """Look for what the caller cannot do without (CLIENT-06).

        Args:
            required: paths of capabilities, as in `tools` or `resources.subscribe`.

        Raises:
            NotOfferedError: E205, for the first one that is missing.
        """
        for capability in sorted(required):
            if not self.can(*capability.split(".")):
                raise NotOfferedError(capability)

    def check_any(self) -> None:
        """Look for something to offer: tools, resources or prompts (CLIENT-06).

        Raises:
            NotOfferedError: E205, for `tools`: there is none of them.
        """
        if not any(map(self.can, ("tools", "resources", "prompts"))):
            raise NotOfferedError("tools")


def _text(said: Any) -> str:
    return said if isinstance(said, str) else ""
