"""Lists of a server: entries found by key at once, listed in the order of their keys, in pages.

Entries may come and go in any thread while others are used. Changes are made one at a time, under
a lock that finding an entry never takes. Each observer is notified after a change was made, in the
thread that made it and without the lock: an observer takes locks of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from weakref import WeakSet

import orjson

from ...base.exact_json import compact, dumps

if TYPE_CHECKING:
    from ...protocol.principal import Principal
    from ...protocol.revisions import Revision

Predicate = Callable[["Principal | None"], bool]
"""Returns whether a principal sees an entry; called with None where authentication is off."""

IsOn = Callable[["Listed"], bool]
"""Returns whether an entry is switched on."""

Page = tuple[list[orjson.Fragment], str | None]
"""The entries of one page as JSON, and the cursor of the next one; None after the last page."""


class Observer(Protocol):
    """An object that is notified when a list has changed."""

    def list_changed(self, kind: str, *, seen_by: Predicate | None = None) -> None:
        """Take note that the list of `kind` has changed; called in the thread that changed it.

        Args:
            kind: of the list.
            seen_by: returns whether a principal sees the change (VIS-07); None: all do.
        """


class ChangeNotifier:
    """The lock under which the lists of one kind change, and the observers of these lists.

    Args:
        kind: `tools`, `resources` or `prompts`, as the `list_changed` notification has it.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        # Reentrant: a finalizer or a signal handler may change a list while its thread holds it.
        self.lock = threading.RLock()
        self._observers: WeakSet[Observer] = WeakSet()

    def observe(self, observer: Observer) -> None:
        """Notify `observer` of every change from now on; the notifier does not keep it alive."""
        with self.lock:
            self._observers.add(observer)

    def notify(self, *changed: Listed) -> None:
        """Notify all observers of entries that came or went; the caller must not hold the lock."""
        with self.lock:
            observers = [*self._observers]
        seen_by = None
        if changed and all(each.scopes or each.visible is not None for each in changed):

            def seen_by(principal: Principal | None) -> bool:
                try:
                    return any(is_shown(each, principal) for each in changed)
                except Exception:  # of a predicate; it is raised when the list is asked for
                    return True

        for observer in observers:
            observer.list_changed(self.kind, seen_by=seen_by)


class Listed(Protocol):
    """An entry of a registry."""

    @property
    def names(self) -> Sequence[str]:
        """The names, or the URI, by which the entry can be switched off and on."""

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that a principal needs to use the entry, all of them."""

    @property
    def tags(self) -> frozenset[str]:
        """The tags by which the entry can be switched off and on."""

    @property
    def visible(self) -> Predicate | None:
        """Returns whether a principal sees the entry (VIS-02); None: all do."""

    @property
    def reserved(self) -> bool:
        """Return whether the entry is switched off by its name alone (VIS-06)."""

    def wire(self, revision: Revision) -> dict[str, Any]:
        """Return the entry as a list shows it to a peer that speaks `revision`."""


Entry = TypeVar("Entry", bound=Listed)


def is_visible(entry: Listed, principal: Principal | None) -> bool:
    """Return whether a principal sees an entry, which it may lack scopes for (VIS-02)."""
    return entry.visible is None or bool(entry.visible(principal))


def is_shown(entry: Listed, principal: Principal | None) -> bool:
    """Return whether lists show an entry to a principal (AUTH-26, VIS-02)."""
    if principal is not None and principal.lacks(entry.scopes):
        return False
    return is_visible(entry, principal)


class Registry(Generic[Entry]):
    """The entries of one list, by the key that the list is sorted by.

    Attributes:
        is_on: returns whether an entry is switched on; None: all are.
        get: returns the entry of a key; None if there is none, or it is switched off.
        was_used: the registry has an entry, or has had one.
        differs: principals may see different lists: an entry needs scopes or has a predicate, or
            one has had them.
    """

    def __init__(self, notifier: ChangeNotifier) -> None:
        self.notifier = notifier
        self.is_on: IsOn | None = None
        self.was_used = self.differs = False
        self._entries: dict[str, Entry] = {}
        self._off: dict[str, Entry] = {}
        # Each entry is encoded once for each revision; a page joins the encoded entries.
        self._encoded: dict[str, dict[str, orjson.Fragment]] = {}
        self._keys: tuple[str, ...] | None = ()
        # Each call of a tool looks one up: one function less.
        self.get: Callable[[str], Entry | None] = self._entries.get

    def put(self, key: str, entry: Entry) -> bool:
        """Add an entry unless the key is taken; return whether it was added."""
        with self.notifier.lock:
            if key in self._entries or key in self._off:
                return False
            is_on = self.is_on is None or self.is_on(entry)
            (self._entries if is_on else self._off)[key] = entry
            self._keys = None
            self.was_used = True
            self.differs |= bool(entry.scopes) or entry.visible is not None
        return True

    def drop(self, key: str) -> bool:
        """Remove an entry; return whether there was one."""
        with self.notifier.lock:
            if self._off.pop(key, None) is not None:
                return True
            if self._entries.pop(key, None) is None:
                return False
            self._encoded.pop(key, None)
            self._keys = None
        return True

    def take_over(self, other: Registry[Entry]) -> None:
        """Have the entries of `other` instead of the own ones."""
        with self.notifier.lock:
            self._entries, self._off = other._entries, other._off
            self._encoded, self._keys = {}, None
            self.get = self._entries.get

    def registered(self, key: str) -> Entry | None:
        """Return the entry of a key, switched off or on; None if there is none."""
        return self._entries.get(key) or self._off.get(key)

    def seen(self, key: str, principal: Principal | None) -> Entry | None:
        """Return the entry of a key; None if there is none that the principal sees (VIS-02)."""
        entry = self._entries.get(key)
        if entry is None or entry.visible is None or entry.visible(principal):
            return entry
        return None

    def observe(self, observer: Observer) -> None:
        """Notify `observer` of every change from now on; the registry does not keep it alive."""
        self.notifier.observe(observer)

    def switch(self, is_on: IsOn) -> None:
        """Switch entries off and on, also those that come later (VIS-04)."""
        changed = self.apply(is_on)
        if changed:
            self.notifier.notify(*changed)

    def apply(self, is_on: IsOn) -> list[Entry]:
        """Switch entries, without notifying anyone; return those that changed."""
        with self.notifier.lock:
            self.is_on = is_on
            to_off = {k: v for k, v in self._entries.items() if not is_on(v)}
            to_on = {k: v for k, v in self._off.items() if is_on(v)}
            for key in to_off:
                del self._entries[key]
            self._off = {k: v for k, v in self._off.items() if k not in to_on} | to_off
            self._entries.update(to_on)
            self._keys = None
        return [*to_off.values(), *to_on.values()]

    def entries(self) -> tuple[Entry, ...]:
        """Return all entries that are switched on, in the order of their keys."""
        with self.notifier.lock:
            return tuple(self._entries[key] for key in self._sorted())

    def all_registered(self) -> tuple[Entry, ...]:
        """Return all entries, switched off or on."""
        with self.notifier.lock:
            return (*self._entries.values(), *self._off.values())

    def page(
        self,
        cursor: str | None,
        size: int,
        revision: Revision,
        principal: Principal | None = None,
    ) -> Page:
        """Return one page of the list as JSON, and the cursor of the next page.

        Args:
            cursor: from the page before; None for the first page.
            size: the most entries of a page, at least 1.
            revision: of the protocol, as the peer speaks it.
            principal: the page shows only what it may use and sees (AUTH-26, VIS-02); None may use
                everything.

        Raises:
            InvalidCursor: `cursor` is not one that the server has sent (PAGE-03).
        """
        from ...base.cursors import page_of

        with self.notifier.lock:
            keys, following = page_of(self._seen_by(principal), cursor, size)
            return [self._encode(key, revision) for key in keys], following

    def following(
        self, after: str | None, count: int, revision: Revision, principal: Principal | None
    ) -> dict[str, orjson.Fragment]:
        """Return at most `count` entries as JSON, by key, that come after the key `after`.

        None is before every key. `principal` sees what it may use.
        """
        from ...base.cursors import names_after

        with self.notifier.lock:
            keys = names_after(self._seen_by(principal), after, count)
            return {key: self._encode(key, revision) for key in keys}

    def _seen_by(self, principal: Principal | None) -> Sequence[str]:
        if not self.differs:
            return self._sorted()
        return [key for key in self._sorted() if is_shown(self._entries[key], principal)]

    def _sorted(self) -> tuple[str, ...]:
        if self._keys is None:
            self._keys = tuple(sorted(self._entries))
        return self._keys

    def _encode(self, key: str, revision: Revision) -> orjson.Fragment:
        encoded = self._encoded.setdefault(key, {})
        if revision.name not in encoded:
            wire = dumps(self._entries[key].wire(revision))
            encoded[revision.name] = orjson.Fragment(compact(wire))
        return encoded[revision.name]
