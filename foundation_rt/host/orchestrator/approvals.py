"""Approvals: the calls that need one, and those allowed before (TURN-20 to TURN-26)."""

from __future__ import annotations

from fnmatch import fnmatchcase
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from ...coordinator import ToolRegistryEntry
from ..events import Decision
from .pending import PendingAnswers

if TYPE_CHECKING:
    from ...coordinator import Coordinator
    from .histories import ConversationHistories

SAMPLING = "sampling/createMessage"
"""Stands for the tool, where a server asks for the model."""

REFUSING = ("deny", "unattended", "expired")
"""The decisions after which a call does not run."""

_MAX_ALLOWED = 1000
"""The most definitions that a session allows; further ones are asked for each time."""


@define(eq=False)
class Approvals:
    """The approvals of all sessions.

    Args:
        coordinator: has the tools, and the settings of their servers.
        histories: keep what is allowed for good.
        approve_all: whether nothing is asked for.

    Attributes:
        pending: those that wait for a person.
    """

    _coordinator: Coordinator
    _histories: ConversationHistories
    approve_all: bool
    pending: PendingAnswers[Decision] = field(factory=PendingAnswers, init=False)
    _of_sessions: dict[str, set[str]] = field(factory=dict, init=False)

    def needs_none(self, entry: ToolRegistryEntry) -> bool:
        """Return whether a tool may be called in any session without asking (TURN-20)."""
        return self.approve_all or is_read_only(entry) or self._is_listed(entry)

    async def is_allowed(self, session_id: str, digest: str) -> bool:
        """Return whether a definition was allowed in this session."""
        if digest in self._of_sessions.get(session_id, ()):
            return True
        return digest in await self._histories.always_allowed(session_id)

    async def remember(self, session_id: str, digest: str, decision: Decision) -> None:
        """Keep a decision for the calls to come."""
        if decision == "session":
            allowed = self._of_sessions.setdefault(session_id, set())
            if len(allowed) < _MAX_ALLOWED:
                allowed.add(digest)
        elif decision == "always":
            await self._histories.allow_always(session_id, digest)

    def forget(self, session_id: str) -> None:
        """Forget what was allowed in a session that has ended."""
        self._of_sessions.pop(session_id, None)

    def _is_listed(self, entry: ToolRegistryEntry) -> bool:
        """Return whether `alwaysAllow` of its server names the tool."""
        server = self._coordinator.server(entry.server_id)
        if server is None:
            return False
        patterns = server.settings.always_allow
        return any(fnmatchcase(entry.definition.name, pattern) for pattern in patterns)


def is_read_only(entry: ToolRegistryEntry) -> bool:
    """Return whether a tool says that it changes nothing."""
    return entry.definition.annotations.get("readOnlyHint") is True


def digest_of(entry: ToolRegistryEntry) -> str:
    """Return the digest of a tool: its server, its name and its whole definition (TURN-25)."""
    return _digest(entry.qualified_name, entry.definition.wire)


def sampling_digest(server_id: str) -> str:
    """Return the digest that stands for a server's use of the model."""
    return _digest(f"{server_id}:{SAMPLING}", None)


def _digest(name: str, definition: Any) -> str:
    try:
        written = orjson.dumps([name, definition], option=orjson.OPT_SORT_KEYS)
    except TypeError:  # deeper than orjson writes, or with longer integers
        written = repr([name, definition]).encode("utf-8", "surrogatepass")
    return sha256(written).hexdigest()
