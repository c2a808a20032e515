"""Announcements of lists that have changed: each once, and none too often (COORD-18, COORD-19)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from attrs import define, field

from .catalogue import KINDS, Catalogue

log = logging.getLogger("foundation_rt.coordinator")


@define(eq=False)
class Announcer:
    """Compares the lists with those last announced.

    Args:
        callback: gets the kind of a list that changed; None: nobody does.
        interval: seconds between two announcements of what the connections of one server have
            changed.
    """

    _catalogue: Catalogue
    _callback: Callable[[str], object] | None
    _interval: float
    _has_begun: bool = field(default=False, init=False)
    _times: dict[str, float] = field(factory=dict, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    def begin(self) -> None:
        """Take the lists as they are for announced; what comes later is a change of them."""
        self._catalogue.announce(KINDS)
        self._has_begun = True

    def close(self) -> None:
        """Announce nothing more."""
        self._has_begun = False
        if self._timer is not None:
            self._timer.cancel()

    def announce(self) -> None:
        """Announce each list that has changed."""
        if not self._has_begun:
            return
        changed = self._catalogue.changes()
        self._catalogue.announce(changed)
        if self._callback is None:
            return
        for kind in changed:
            try:
                self._callback(kind)
            except Exception:
                log.exception("on_list_changed failed")

    def announce_connection(self, server: str) -> None:
        """Announce what a beginning or an end of this server has changed, later if need be."""
        if not self._has_begun or not self._catalogue.changes():
            return
        loop = asyncio.get_running_loop()
        due = self._times.get(server, -self._interval) + self._interval
        if loop.time() >= due:
            self._announce_for(server)
        elif self._timer is None:
            self._timer = loop.call_at(due, self._announce_for, server)

    def forget(self, server: str) -> None:
        """Forget a server that was removed."""
        self._times.pop(server, None)

    def _announce_for(self, server: str) -> None:
        self._timer = None
        self._times[server] = asyncio.get_running_loop().time()
        self.announce()
