"""Values by key, of which only the newest are kept. Pure."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(dict[K, V]):
    """A dict that drops its oldest item when it has too many; setting an item makes it the newest.

    Args:
        most: items that are kept.
    """

    __slots__ = ("_most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > self._most:
            del self[next(iter(self))]

    def use(self, key: K) -> V | None:
        """Return the value of a key, which becomes the newest; None if there is none."""
        if key in self:
            self[key] = self[key]
        return self.get(key)
