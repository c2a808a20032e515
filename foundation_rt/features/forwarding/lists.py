"""Lists that have entries of the server itself and of a forwarder, in pages (FWD-06).

The entries of a tuple are sorted once, and each is encoded once for each revision, as long as the
forwarder returns that tuple: a page of 1,000 forwarded tools costs what one of our own costs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from ...base.cursors import names_after, write_cursor
from ...base.exact_json import compact, dumps
from ...base.shown import Shown
from .results import adapt_entry

if TYPE_CHECKING:
    from ...kernel.registry.catalog import Page, Registry
    from ...protocol.principal import Principal
    from ...protocol.revisions import Revision
    from .forwarder import ListKind

MAX_KEPT_LISTS = 16
"""Most tuples of a kind whose preparation is kept: lists may differ by session and principal."""

KEY_MEMBERS: Mapping[ListKind, str] = {
    "tools": "name",
    "resources": "uri",
    "resourceTemplates": "uriTemplate",
    "prompts": "name",
    "skills": "uri",
}
"""The member that a list is sorted by."""


@define(eq=False, repr=False)
class ForwardedList(Shown):
    """The entries of one sequence of a forwarder, sorted.

    Entries without a key are left out, and so are those that cannot be written as JSON. Of entries
    with equal keys the first is listed.

    Attributes:
        kind: of the list.
        source: the sequence that the forwarder returned.
        keys: of the entries, in ascending order.
    """

    kind: ListKind
    source: Iterable[Any]
    keys: Sequence[str] = field(init=False)
    _entries: dict[str, Mapping[str, Any]] = field(factory=dict, init=False)
    _encoded: dict[str, dict[str, orjson.Fragment | None]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        member = KEY_MEMBERS[self.kind]
        for entry in self.source:
            key = entry.get(member) if isinstance(entry, Mapping) else None
            if type(key) is str and _is_writable(key):
                self._entries.setdefault(key, entry)
        self.keys = sorted(self._entries)

    def following(
        self, after: str | None, count: int, revision: Revision
    ) -> tuple[list[str], list[orjson.Fragment | None]]:
        """Return the keys of at most `count` entries after the key `after`, and these as JSON.

        An entry that cannot be written as JSON is None.
        """
        encoded = self._encoded.setdefault(revision.name, {})
        keys = [*names_after(self.keys, after, count)]
        try:
            return keys, [encoded[key] for key in keys]  # nearly always: once they are encoded
        except KeyError:
            for key in keys:
                if key not in encoded:
                    encoded[key] = self._encode(key, revision)
        return keys, [encoded[key] for key in keys]

    def _encode(self, key: str, revision: Revision) -> orjson.Fragment | None:
        try:
            wire = dumps(adapt_entry(self.kind, self._entries[key], revision))
        except TypeError:
            return None
        return orjson.Fragment(compact(wire))


@define(eq=False, repr=False)
class ForwardedLists(Shown):
    """The lists of a forwarder that were prepared, the latest `MAX_KEPT_LISTS` of each kind."""

    _kept: dict[ListKind, dict[int, ForwardedList]] = field(factory=dict, init=False)

    def prepare(self, kind: ListKind, entries: Iterable[Any]) -> ForwardedList:
        """Return the sorted list of `entries`; that of a tuple is kept.

        Raises:
            TypeError: `entries` cannot be iterated.
        """
        if type(entries) is not tuple:
            return ForwardedList(kind, entries)
        kept = self._kept.setdefault(kind, {})
        known = kept.pop(id(entries), None)
        if known is None:
            known = ForwardedList(kind, entries)
        kept[id(entries)] = known  # it holds the tuple, so that no other has this id
        if len(kept) > MAX_KEPT_LISTS:
            kept.pop(next(iter(kept.copy())), None)  # others prepare lists in other threads
        return known


def merged_page(
    own: Registry[Any] | None,
    forwarded: ForwardedList,
    after: str | None,
    size: int,
    revision: Revision,
    principal: Principal | None,
) -> Page:
    """Return one page of both lists, and the cursor of the next; of equal keys, our own entry.

    Args:
        own: the entries of the server; None where it has no such list.
        forwarded: those of the forwarder.
        after: the key after which the page begins; None for the first page.
        size, revision, principal: as of `Registry.page`.
    """
    keys, entries = forwarded.following(after, size + 1, revision)
    ours = {} if own is None else own.following(after, size + 1, revision, principal)
    for key, entry in ours.items():
        place = bisect_left(keys, key)
        if place < len(keys) and keys[place] == key:
            entries[place] = entry
        else:
            keys.insert(place, key)
            entries.insert(place, entry)
    next_cursor = write_cursor(keys[size - 1]) if len(keys) > size else None
    return [entry for entry in entries[:size] if entry is not None], next_cursor


def _is_writable(key: str) -> bool:
    """Return whether UTF-8 can carry `key`: lone surrogates it cannot."""
    try:
        return key.isascii() or bool(key.encode())
    except UnicodeEncodeError:
        return False
