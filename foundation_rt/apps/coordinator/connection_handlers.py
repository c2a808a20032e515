"""The handlers of a connection: who answers what its server asks outside of calls (COORD-59).

What belongs to a call goes to the handlers of that call. A server may also ask right after the
handshake, or while several calls run, and not say for which. On the connection of one client's
session there is only one who can be meant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...protocol.methods import ROOTS_LIST

if TYPE_CHECKING:
    from ...client import Revision, ServerRequestHandlers


@define(eq=False)
class ConnectionHandlers:
    """Answers for the session that owns a connection, by the latest of its requests that runs.

    Args:
        otherwise: answers what belongs to nobody.
        on_unowned: called when that is asked.

    Attributes:
        answered: set when the owner has answered once.
        roots_changed: the server is to be notified of new roots with the owner's next request.
    """

    _otherwise: ServerRequestHandlers
    _on_unowned: Callable[[], object]
    answered: asyncio.Event = field(factory=asyncio.Event, init=False)
    roots_changed: bool = field(default=False, init=False)
    _running: list[ServerRequestHandlers] = field(factory=list, init=False)
    _latest: ServerRequestHandlers | None = field(default=None, init=False)

    @property
    def has_owner(self) -> bool:
        """Return whether a request of the owner runs."""
        return bool(self._running)

    def capabilities(self, revision: Revision) -> Mapping[str, Any]:
        """Return those of the owner; without one, those of all connections."""
        return (self._latest or self._otherwise).capabilities(revision)

    async def handle(self, method: str, params: Any, revision: Revision) -> Mapping[str, Any]:
        """Return the result of the owner; see `ServerRequestHandlers`."""
        if not self._running:
            self._on_unowned()
            if method == ROOTS_LIST:
                self.roots_changed = True  # so that it asks again when somebody can answer
            return await self._otherwise.handle(method, params, revision)
        try:
            return await self._running[-1].handle(method, params, revision)
        finally:
            self.answered.set()

    @contextmanager
    def asking(self, owner: ServerRequestHandlers) -> Iterator[None]:
        """Let a request of the owning session answer within the block."""
        self._latest = owner
        self._running.append(owner)
        try:
            yield
        finally:
            self._running.remove(owner)
