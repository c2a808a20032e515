"""Lists of a server: entries found by key at once, listed in the order of their keys, in pages.

Entries may come and go in any thread while others are used. Changes are made one at a time, under
a lock that finding an entry never takes. Each observer is notified after a change was made, in the
thread that made it and without the lock: an observer takes locks of its own.

A cursor names the key after which the next page begins, and not the number of keys before it. So
an entry that is added or removed between two pages moves no other one: an entry that is there all
the time is seen exactly once. The server keeps no cursor: each worker understands the cursors of
the others, and none can be leaked (spec/pagination.md).
"""

from __future__ import annotations

import threading
from binascii import Error, a2b_base64, b2a_base64
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from weakref import WeakSet

import orjson
from attrs import define, field

from ..protocol.jsonrpc import compact
from ..shown import Shown

if TYPE_CHECKING:
    from ..protocol.principal import Principal
    from ..protocol.revisions import Revision

Page = tuple[list[orjson.Fragment], str | None]
"""The entries of one page as JSON, and the cursor of the next one; None after the last page."""

_MARK = "after:"
_TO_URL = str.maketrans("+/", "-_")
_FROM_URL = str.maketrans("-_", "+/")


class InvalidCursor(ValueError):
    """The cursor is not one that the server has sent."""


class Observer(Protocol):
    """An object that is notified when a list has changed."""

    def list_changed(self, kind: str) -> None:
        """Take note that the list of `kind` has changed; called in the thread that changed it."""


@define(eq=False, repr=False)
class ChangeNotifier(Shown):
    """The lock under which the lists of one kind change, and the observers of these lists.

    Args:
        kind: `tools`, `resources` or `prompts`, as the `list_changed` notification has it.
    """

    kind: str
    # Reentrant: a finalizer or a signal handler may change a list while its thread holds it.
    lock: threading.RLock = field(factory=threading.RLock, init=False)
    _observers: WeakSet[Observer] = field(factory=WeakSet, init=False)

    def observe(self, observer: Observer) -> None:
        """Notify `observer` of every change from now on; the notifier does not keep it alive."""
        with self.lock:
            self._observers.add(observer)

    def notify(self) -> None:
        """Notify all observers; the caller must not hold the lock."""
        with self.lock:
            observers = [*self._observers]
        for observer in observers:
            observer.list_changed(self.kind)


class Listed(Protocol):
    """An entry of a catalog."""

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that a principal needs to use the entry, all of them."""

    def wire(self, revision: Revision) -> dict[str, Any]:
        """Return the entry as a list shows it to a peer that speaks `revision`."""


Entry = TypeVar("Entry", bound=Listed)


@define(eq=False, repr=False)
class Catalog(Shown, Generic[Entry]):
    """The entries of one list, by the key that the list is sorted by.

    Attributes:
        get: returns the entry of a key; None if there is none.
        was_used: the catalog has an entry, or has had one.
        has_scopes: an entry needs scopes, or one has needed them.
    """

    notifier: ChangeNotifier
    was_used: bool = field(default=False, init=False)
    has_scopes: bool = field(default=False, init=False)
    get: Callable[[str], Entry | None] = field(init=False)
    _entries: dict[str, Entry] = field(factory=dict, init=False)
    # Each entry is encoded once for each revision; a page joins the encoded entries.
    _encoded: dict[str, dict[str, orjson.Fragment]] = field(factory=dict, init=False)
    _keys: tuple[str, ...] | None = field(default=(), init=False)

    def __attrs_post_init__(self) -> None:
        self.get = self._entries.get  # each call of a tool looks one up: one function less

    def add(self, key: str, entry: Entry) -> bool:
        """Add an entry unless the key is taken; return whether it was added."""
        with self.notifier.lock:
            if key in self._entries:
                return False
            self._entries[key] = entry
            self._keys = None
            self.was_used = True
            self.has_scopes |= bool(entry.scopes)
        return True

    def remove(self, key: str) -> bool:
        """Remove an entry; return whether there was one."""
        with self.notifier.lock:
            if self._entries.pop(key, None) is None:
                return False
            self._encoded.pop(key, None)
            self._keys = None
        return True

    def entries(self) -> tuple[Entry, ...]:
        """Return all entries, in the order of their keys."""
        with self.notifier.lock:
            return tuple(self._entries[key] for key in self._sorted())

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
            principal: the page shows only what it may use (AUTH-26); None may use everything.

        Raises:
            InvalidCursor: `cursor` is not one that the server has sent (PAGE-03).
        """
        with self.notifier.lock:
            keys, following = page_of(self._usable(principal), cursor, size)
            return [self._encode(key, revision) for key in keys], following

    def following(
        self, after: str | None, count: int, revision: Revision, principal: Principal | None
    ) -> dict[str, orjson.Fragment]:
        """Return at most `count` entries as JSON, by key, that come after the key `after`.

        None is before every key. `principal` sees what it may use.
        """
        with self.notifier.lock:
            keys = names_after(self._usable(principal), after, count)
            return {key: self._encode(key, revision) for key in keys}

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


def page_of(
    names: Sequence[str], cursor: str | None, size: int
) -> tuple[Sequence[str], str | None]:
    """Return the names of one page, and the cursor of the next page (PAGE-01, PAGE-02).

    Args:
        names: all names, in ascending order.
        cursor: from the page before; None for the first page.
        size: the most names of a page, at least 1.

    Returns:
        The names, and None in place of a cursor after the last page.

    Raises:
        InvalidCursor: `cursor` is not one that the server has sent (PAGE-03).
    """
    chosen = names_after(names, None if cursor is None else read_cursor(cursor), size + 1)
    if len(chosen) <= size:
        return chosen, None
    return chosen[:size], write_cursor(chosen[size - 1])


def names_after(names: Sequence[str], after: str | None, count: int) -> Sequence[str]:
    """Return at most `count` of `names`, which are in ascending order, that come after `after`."""
    start = 0 if after is None else bisect_right(names, after)
    return names[start : start + count]


def write_cursor(name: str) -> str:
    """Return the cursor of the page that begins after `name`: base64url without padding."""
    encoded = b2a_base64((_MARK + name).encode(), newline=False).decode()
    return encoded.rstrip("=").translate(_TO_URL)


def read_cursor(cursor: str) -> str:
    """Return the name after which the page begins.

    Raises:
        InvalidCursor: `write_cursor` did not write it.
    """
    try:
        padded = cursor.translate(_FROM_URL) + "=" * (-len(cursor) % 4)
        name = a2b_base64(padded).decode().removeprefix(_MARK)
    except (Error, ValueError):
        raise InvalidCursor from None
    # Base64 spells one text in many ways, and `write_cursor` in one of them; and the mark is there.
    if write_cursor(name) != cursor:
        raise InvalidCursor
    return name
