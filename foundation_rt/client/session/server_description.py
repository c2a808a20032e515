"""The description of a server: its name, its revision, its capabilities (GEO-1.5a-003)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from attrs import frozen

from ...protocol.revisions import Revision
from ..errors import NotOfferedError


@frozen(eq=False)
class ServerDescription:
    """A server, as its handshake describes it.

    Attributes:
        revision: of the session.
        capabilities: as it declared them.
        implementation: its `serverInfo`, as it came.
        instructions: advice on its use, for language models.
    """

    revision: Revision
    capabilities: Mapping[str, Any]
    implementation: Mapping[str, Any]
    instructions: str | None = None

    @property
    def name(self) -> str:
        """Its name; empty if it gave none."""
        return _text(self.implementation.get("name"))

    @property
    def version(self) -> str:
        """Its version; empty if it gave none."""
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
        """Raise unless the server has the required capabilities (CLIENT-06).

        Args:
            required: paths of capabilities, as in `tools` or `resources.subscribe`.

        Raises:
            NotOfferedError: E205, for the first one that is missing.
        """
        for capability in sorted(required):
            if not self.can(*capability.split(".")):
                raise NotOfferedError(capability)

    def check_any(self) -> None:
        """Raise unless the server has tools, resources or prompts (CLIENT-06).

        Raises:
            NotOfferedError: E205, for `tools`: it has none of them.
        """
        if not any(map(self.can, ("tools", "resources", "prompts"))):
            raise NotOfferedError("tools")


def _text(said: Any) -> str:
    return said if isinstance(said, str) else ""
