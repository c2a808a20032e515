"""Things that a server lists: found by key at once, listed in order, in pages.

They may come and go in any thread while others are used. Changes are made one at a time, under a
lock that finding one never takes. Whoever observes is told of each change after it was made, in the
thread that made it and without the lock: an observer takes locks of its own.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from weakref import WeakSet

import orjson
from attrs import define, field

from ..protocol.jsonrpc import compact
from .pages import page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..protocol.principal import Principal
    from ..protocol.revisions import Revision


class Observer(Protocol):
    """Who wants to know that there are other things to list than before."""

    def list_changed(self, kind: str) -> None:
        """The list of `kind` has changed; called in the thread that changed it."""


@define(eq=False, repr=False)
class ChangeNotifier:
    """The lock under which the lists of one kind change, and who is told of it.

    Args:
        kind: `resources` or `prompts`, as its `list_changed` notification calls it.
    """

    kind: str
    # Reentrant: a finalizer or a signal handler may change a list while its thread holds it.
    lock: threading.RLock = field(factory=threading.RLock, init=False)
    _observers: WeakSet[Observer] = field(factory=WeakSet, init=False)

    def observe(self, observer: Observer) -> None:
        """Tell `observer` of every change from now on, as long as somebody else holds it."""
        with self.lock:
            self._observers.add(observer)

    def notify(self) -> None:
        """Tell all observers; to be called without the lock."""
        with self.lock:
            observers = [*self._observers]
        for observer in observers:
            observer.list_changed(self.kind)


class Listed(Protocol):
    """A thing that can be listed."""

    @property
    def scopes(self) -> frozenset[str]:
        """What a principal must have been granted to use it, all of it."""

    def wire(self, revision: Revision) -> dict[str, Any]:
        """How a list shows it to a peer that speaks `revision`."""


Entry = TypeVar("Entry", bound=Listed)


@define(eq=False, repr=False)
class Catalog(Generic[Entry]):
    """Things of one list, by the key that their list is sorted by.

    Attributes:
        was_used: there is something in it, or has been.
        has_scopes: something in it needs scopes, or has needed them.
    """

    notifier: ChangeNotifier
    was_used: bool = field(default=False, init=False)
    has_scopes: bool = field(default=False, init=False)
    _entries: dict[str, Entry] = field(factory=dict, init=False)
    # Each thing is encoded once for each revision; a page puts them together.
    _encoded: dict[str, dict[str, orjson.Fragment]] = field(factory=dict, init=False)
    _keys: tuple[str, ...] | None = field(default=(), init=False)

    def get(self, key: str) -> Entry | None:
        """The thing of that key, if there is one."""
        return self._entries.get(key)

    def add(self, key: str, entry: Entry) -> bool:
        """Add a thing, unless the key is taken; return whether it was added."""
        with self.notifier.lock:
            if key in self._entries:
                return False
            self._entries[key] = entry
            self._keys = None
            self.was_used = True
            self.has_scopes |= bool(entry.scopes)
        return True

    def remove(self, key: str) -> bool:
        """Remove a thing; return whether there was one."""
        with self.notifier.lock:
            if self._entries.pop(key, None) is None:
                return False
            self._encoded.pop(key, None)
            self._keys = None
        return True

    def entries(self) -> tuple[Entry, ...]:
        """All of them, in the order of their keys."""
        with self.notifier.lock:
            return tuple(self._entries[key] for key in self._sorted())

    def page(
        self,
        cursor: str | None,
        size: int,
        revision: Revision,
        principal: Principal | None = None,
    ) -> tuple[list[orjson.Fragment], str | None]:
        """One page of the list as JSON, and the cursor of the page after it.

        Args:
            principal: only what it may use is shown (AUTH-26); None may use everything.

        Raises:
            InvalidCursor: `cursor` is none that was ever given out (PAGE-03).
        """
        with self.notifier.lock:
            keys, following = page(self._usable(principal), cursor, size)
            return [self._encode(key, revision) for key in keys], following

    def _usable(self, principal: Principal | None) -> Sequence[str]:
        if principal is None or not self.has_scopes:
            return self._sorted()
        return [key for key in self._sorted() if not principal.lacks(self._entries[key].scopes)]

    def _sorted(self) -> tuple[str, ...]:
        if self._keys is None:
            self._keys = tuple(sorted(self._entries))
        return self._keys

    def _encode(self, key: str, revision: Revision) -> orjson.Fragment:
        encoded = self._encoded.setdefault(key, {})
        if revision.name not in encoded:
            wire = orjson.dumps(self._entries[key].wire(revision))
            encoded[revision.name] = orjson.Fragment(compact(wire))
        return encoded[revision.name]
