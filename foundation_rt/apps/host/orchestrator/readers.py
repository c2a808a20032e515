"""The readers of the histories of the sessions that had a turn lately."""

from __future__ import annotations

from attrs import define, field

from .pruning import HistoryReader

_MOST = 256
"""Readers that are kept; a further session takes the place of the one that is idle the longest."""


@define(eq=False)
class HistoryReaders:
    """Keeps what was read of histories, as long as that is of use."""

    _readers: dict[str, HistoryReader] = field(factory=dict, init=False)

    def of(self, session_id: str) -> HistoryReader:
        """Return the reader of a session."""
        reader = self._readers.pop(session_id, None) or HistoryReader()
        self._readers[session_id] = reader  # the newest is the last
        if len(self._readers) > _MOST:
            del self._readers[next(iter(self._readers))]
        return reader

    def forget(self, session_id: str) -> None:
        """Forget a session that has ended."""
        self._readers.pop(session_id, None)
