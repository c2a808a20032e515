"""Visibility: the tags, predicates and switches of entries of lists (spec/visibility.md).

Loaded when a tag, a predicate or a switch is used.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from ..base.shown import Shown
from ..errors import RegistrationError, UsageError
from ..kernel.registry.tools import check_scopes

if TYPE_CHECKING:
    from ..kernel.registry.catalog import Listed, Predicate
    from ..protocol.principal import Principal

MAX_TAG_LENGTH = 128


def read_tags(subject: str, tags: object) -> frozenset[str]:
    """Return the tags of an entry.

    Raises:
        RegistrationError: names `subject` and what to change.
    """
    if not isinstance(tags, Iterable) or isinstance(tags, str) or not all(map(_is_tag, tags)):
        raise RegistrationError(
            f"{subject}: tags must be several strings of 1 to {MAX_TAG_LENGTH} printable"
            ' characters: tags={"admin"}'
        )
    return frozenset(tags)


def _is_tag(tag: Any) -> bool:
    return isinstance(tag, str) and 0 < len(tag) <= MAX_TAG_LENGTH and tag.isprintable()


def read_visible(subject: str, visible: Predicate | Iterable[str]) -> Predicate:
    """Return the predicate of an entry: as given, or of principals with these scopes (VIS-01).

    Raises:
        RegistrationError: names `subject` and what to change.
    """
    if callable(visible):
        return visible
    if not isinstance(visible, Iterable):
        raise RegistrationError(
            f"{subject}: visible must be a function of the principal, or scopes, not {visible!r}"
        )
    scopes = check_scopes(subject, visible)

    def has_scopes(principal: Principal | None) -> bool:
        return principal is None or not principal.lacks(scopes)

    return has_scopes


@frozen
class Switch:
    """One call of `Server.enable` or `Server.disable`.

    Attributes:
        on: the entries are switched on.
        names: of tools and prompts; URIs of resources and templates. None: of all entries, but
            for those that are reserved (VIS-06).
        tags: entries with any of these tags are switched as well.
    """

    on: bool
    names: frozenset[str] | None
    tags: frozenset[str]

    def concerns(self, entry: Listed) -> bool:
        """Return whether `entry` is switched."""
        if self.names is None:
            return not entry.reserved
        return not (self.names.isdisjoint(entry.names) and self.tags.isdisjoint(entry.tags))


def read_switch(on: bool, names: Sequence[object], tags: object) -> Switch:
    """Return the switch of the arguments of `Server.enable` or `Server.disable`.

    Raises:
        UsageError: says what to change.
    """
    if not all(isinstance(name, str) for name in names):
        raise UsageError("names are strings: of tools and prompts, or URIs of resources")
    try:
        found = read_tags("enable and disable", tags)
    except RegistrationError as error:
        raise UsageError(str(error)) from None
    if not names and not found:
        raise UsageError('name what to switch: disable("delete"), or disable(tags={"admin"})')
    return Switch(on, frozenset(map(str, names)), found)


ALL_OFF = Switch(False, None, frozenset())


@define(eq=False, repr=False)
class Switches(Shown):
    """The switches of a server: the last one that concerns an entry decides (VIS-04)."""

    _switches: list[Switch] = field(factory=list, init=False)
    _lock: threading.RLock = field(factory=threading.RLock, init=False)

    def add(self, *switches: Switch) -> None:
        """Add switches, and drop those that can decide nothing any more; from any thread."""
        with self._lock:
            added = self._switches
            for switch in switches:
                concerned = switch.names, switch.tags
                added = [each for each in added if (each.names, each.tags) != concerned]
                added.append(switch)
            self._switches = added

    def is_on(self, entry: Listed) -> bool:
        """Return whether `entry` is switched on; without any switch, it is."""
        return next((each.on for each in reversed(self._switches) if each.concerns(entry)), True)
