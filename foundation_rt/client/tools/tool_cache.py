"""The cache of a server's tools. Pure.

The server or the settings choose its lifetime. `now` is the time of a monotonic clock, in s.
`ServerTools` lists the tools, once for all calls that wait for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from attrs import define, field

from ...base.tool_versions import SEPARATOR
from ..results.tool_schemas import ToolSchema

REFUSING_SECONDS: Final = 1.0
"""Age up to which a cached list may refuse a call, in s; a call lists no more often."""


def tool_of(tools: Mapping[str, ToolSchema], name: str) -> ToolSchema | None:
    """Return the tool of a name, or the version of ``NAME@VERSION``."""
    found = tools.get(name)
    if found is None:
        plain, _, version = name.rpartition(SEPARATOR)
        newest = tools.get(plain)
        return None if newest is None else newest.at_version(version)
    return found


@define(eq=False, repr=False)
class ToolCache:
    """The tools of one server.

    Args:
        ttl_ms: lifetime of a list without a hint of the server; 0: it is stale at once.
    """

    ttl_ms: int
    _tools: dict[str, ToolSchema] | None = field(default=None, init=False)
    _kept: Mapping[str, ToolSchema] = field(factory=dict, init=False)
    _stored_at: float = field(default=0.0, init=False)
    _lifetime: float = field(default=0.0, init=False)

    def store(self, tools: Iterable[ToolSchema], now: float, ttl_hint_ms: Any = None) -> None:
        """Store a whole list; of two tools with one name the first counts (CTOOL-06, CTOOL-08).

        Args:
            tools: all tools, in the server's order.
            now: when the list came, in s.
            ttl_hint_ms: `ttlMs` of the list as it came, the least of its pages; None: it has none.
        """
        found: dict[str, ToolSchema] = {}
        for tool in tools:
            known = self._kept.get(tool.name, tool)
            found.setdefault(tool.name, known if known.says_the_same(tool) else tool)
        self._tools = self._kept = found
        self._stored_at = now
        is_hint = type(ttl_hint_ms) is int and ttl_hint_ms >= 0
        self._lifetime = (ttl_hint_ms if is_hint else self.ttl_ms) / 1000

    @property
    def is_known(self) -> bool:
        """Return whether there is a list that was not invalidated, fresh or not."""
        return self._tools is not None

    def is_fresh(self, now: float) -> bool:
        """Return whether the list may be used without listing again."""
        return self.is_known and now < self._stored_at + self._lifetime

    def may_refuse(self, now: float) -> bool:
        """Return whether the list is new enough to refuse a name or arguments (CLIENT-24)."""
        return self.is_fresh(now) and now < self._stored_at + REFUSING_SECONDS

    def expires_by_time(self, now: float) -> bool:
        """Return whether the list had a lifetime, and it has run out.

        A list without a lifetime (0 ms) does not count: its server wants a new list each time it is
        shown, not before each call.
        """
        return self.is_known and self._lifetime > 0 and not self.is_fresh(now)

    @property
    def tools(self) -> tuple[ToolSchema, ...]:
        """The tools in the server's order; none if no list is known."""
        return () if self._tools is None else tuple(self._tools.values())

    def get(self, name: str) -> ToolSchema | None:
        """Return the tool of that name, if it is in the list, fresh or not."""
        return None if self._tools is None else tool_of(self._tools, name)

    def invalidate(self) -> None:
        """Drop the list (CTOOL-07); compiled schemas stay, for tools that come back."""
        self._tools = None
