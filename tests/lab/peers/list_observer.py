"""An observer of a registry that keeps its notifications."""

from __future__ import annotations

from typing import Any


class ListObserver:
    """Records the kind of each list that changed."""

    def __init__(self) -> None:
        self.notified: list[str] = []

    def list_changed(self, kind: str, *, seen_by: Any = None) -> None:
        self.notified.append(kind)
