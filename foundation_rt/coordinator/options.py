"""The options of a coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict

from attrs import field, frozen

from ..errors import UsageError
from .catalogue import KINDS
from .server_state import LISTED_AFTER_LOSS

if TYPE_CHECKING:
    from ..client import ConnectOptions


NotificationCallback = Callable[[str, str | None, str, Mapping[str, Any]], object]
"""Takes the id of a server, the owner of its connection or None, method and params."""


class CoordinatorOptions(TypedDict, total=False):
    """The options of `Coordinator`.

    Attributes:
        start_wait_ms: the longest time that `Coordinator.initialize` waits for servers (10,000).
        lists: the lists to read: `tools` (alone by default), `resources`, `resourceTemplates`,
            `prompts`.
        guidance: whether the guidance of servers is read (true).
        listed_after_loss_ms: how long the lists of a server that is gone stay as they were
            (30,000).
        announce_interval_ms: the least time between two announcements of what the ends and
            beginnings of one server have changed (5,000).
        on_list_changed: gets the kind of a list that changed; a plain function.
        on_notification: gets the notifications that belong to no call, as they came: the server,
            the owner of the connection or None, method and params; a plain function.
        connections: options of `connect`, for every connection.
        now: returns the time for metrics, aware.
    """

    start_wait_ms: float
    lists: Iterable[str]
    guidance: bool
    listed_after_loss_ms: float
    announce_interval_ms: float
    on_list_changed: Callable[[str], object] | None
    on_notification: NotificationCallback | None
    connections: ConnectOptions
    now: Callable[[], datetime]


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _kinds(given: Iterable[str]) -> tuple[str, ...]:
    kinds = tuple(given)
    unknown = set(kinds) - set(KINDS)
    if unknown:
        raise UsageError(f"lists are of {', '.join(KINDS)}, not {', '.join(sorted(unknown))}")
    return kinds


_OWN = (
    "breaker",
    "retries",
    "on_connected",
    "on_disconnected",
    "on_list_changed",
    "on_notification",
)
"""Options of connections that the coordinator sets itself."""


def _not_own(_: object, __: object, given: Mapping[str, Any]) -> None:
    own = sorted(given.keys() & set(_OWN))
    if own:
        raise UsageError(f"connections: {', '.join(own)} is set by the coordinator itself")


@frozen(kw_only=True, eq=False)
class CoordinatorSettings:
    """The options of a coordinator, with their defaults; see `CoordinatorOptions`."""

    start_wait_ms: float = 10_000
    lists: tuple[str, ...] = field(default=("tools",), converter=_kinds)
    guidance: bool = True
    listed_after_loss_ms: float = LISTED_AFTER_LOSS * 1000
    announce_interval_ms: float = 5_000
    on_list_changed: Callable[[str], object] | None = None
    on_notification: NotificationCallback | None = None
    connections: Mapping[str, Any] = field(factory=dict, validator=_not_own)
    now: Callable[[], datetime] = _utc_now

    @property
    def start_wait(self) -> float:
        """The longest time to wait for the servers, in s."""
        return self.start_wait_ms / 1000
