"""The options of a coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict

from attrs import field, frozen

from ...base.mcp_json import ServerSettings
from ...client import BreakerSettings
from ...errors import UsageError
from .catalogue import KINDS, Definition
from .server_state import LISTED_AFTER_LOSS

if TYPE_CHECKING:
    from ...client import ConnectOptions


NotificationCallback = Callable[[str, str | None, str, Mapping[str, Any]], object]
"""Takes the id of a server, the owner of its connection or None, method and params."""


Admission = Callable[[str, str, Definition], bool]
"""Returns whether a definition may be used: of a server's id, a kind, the definition."""


class CircuitOptions(TypedDict, total=False):
    """The options of circuits: when they open, and for how long; entries may say it otherwise.

    Attributes:
        circuit_failures: failures that open a circuit (5).
        circuit_window_ms: age up to which a failure counts (60,000).
        circuit_open_ms: how long a circuit is open before a probe (60,000).
    """

    circuit_failures: int
    circuit_window_ms: int
    circuit_open_ms: int


class CoordinatorOptions(CircuitOptions, total=False):
    """The options of `Coordinator`, beside those of `CircuitOptions`.

    Attributes:
        start_wait_ms: the longest time that `Coordinator.initialize` waits for servers (10,000).
        lists: the lists to read: `tools` (alone by default), `resources`, `resourceTemplates`,
            `prompts`, `skills`, and `instructions`, which is one entry with `name` and `text` at
            most.
        guidance: whether the guidance of servers is read (true).
        listed_after_loss_ms: how long the lists of a server that is gone stay as they were
            (30,000).
        announce_interval_ms: the least time between two announcements of what the ends and
            beginnings of one server have changed (5,000).
        principal_share_percent: how much of the connections and calls of a server one principal
            may have (100).
        admits: returns whether a tool (`tools`), or the guidance of a server (`guidance`), may be
            used: gets the id of the server, the kind and the definition. `Coordinator.listed` has
            also those that may not. It is asked again when servers are read again.
        on_list_changed: gets the kind of a list that changed; a plain function.
        on_notification: gets the notifications that belong to no call, as they came: the server,
            the owner of the connection or None, method and params; a plain function.
        connections: options of `connect`, for every connection; `tool_timeouts` goes by the names
            that servers have for tools.
        now: returns the time for metrics, aware.
    """

    start_wait_ms: float
    lists: Iterable[str]
    guidance: bool
    listed_after_loss_ms: float
    announce_interval_ms: float
    principal_share_percent: int
    admits: Admission
    on_list_changed: Callable[[str], object] | None
    on_notification: NotificationCallback | None
    connections: ConnectOptions
    now: Callable[[], datetime]


def _admits_all(_: str, __: str, ___: Definition) -> bool:
    return True


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _kinds(given: Iterable[str]) -> tuple[str, ...]:
    kinds = tuple(given)
    known = KINDS[:-1]  # the guidance has an option of its own
    unknown = set(kinds) - {*known}
    if unknown:
        raise UsageError(f"lists are of {', '.join(known)}, not {', '.join(sorted(unknown))}")
    return kinds


_OWN = (
    "breaker",
    "retries",
    "timeout",
    "tool_breakers",
    "on_circuit",
    "on_connected",
    "on_disconnected",
    "on_list_changed",
    "on_notification",
)
"""Options of connections that the coordinator sets itself."""


def _not_own(_: object, __: object, given: Mapping[str, Any]) -> None:
    own = sorted(given.keys() & set(_OWN))
    if own:
        raise UsageError(
            f"connections: {', '.join(own)} is set by the coordinator itself: entries have"
            " timeoutMs, and circuits are options of the coordinator"
        )


@frozen(kw_only=True, eq=False)
class CoordinatorSettings:
    """The options of a coordinator, with their defaults; see `CoordinatorOptions`.

    The type checker compares both where `Coordinator` makes this of them.
    """

    start_wait_ms: float = 10_000
    lists: tuple[str, ...] = field(default=("tools",), converter=_kinds)
    guidance: bool = True
    listed_after_loss_ms: float = LISTED_AFTER_LOSS * 1000
    announce_interval_ms: float = 5_000
    principal_share_percent: int = 100
    circuit_failures: int = 5
    circuit_window_ms: int = 60_000
    circuit_open_ms: int = 60_000
    admits: Admission = _admits_all
    on_list_changed: Callable[[str], object] | None = None
    on_notification: NotificationCallback | None = None
    connections: Mapping[str, Any] = field(factory=dict, validator=_not_own)
    now: Callable[[], datetime] = _utc_now

    def __attrs_post_init__(self) -> None:
        self.circuit(ServerSettings())  # raises for what is no number

    def circuit(self, entry: ServerSettings) -> BreakerSettings:
        """Return the settings of the circuits of a server and its tools (COORD-21)."""
        open_ms = entry.circuit_open_ms or self.circuit_open_ms
        return BreakerSettings(
            failure_threshold=entry.circuit_failures or self.circuit_failures,
            window_ms=entry.circuit_window_ms or self.circuit_window_ms,
            forgive=True,
            reset_timeout_ms=open_ms,
            probe_timeout_ms=open_ms,
        )

    def share_of(self, limit: int) -> int:
        """Return how much of a limit one principal may have; at least 1 (COORD-73)."""
        return max(1, -(-limit * self.principal_share_percent // 100))  # rounded up

    @property
    def listed_after_loss(self) -> float:
        """The time for which lists stay as they were after a connection has ended, in s."""
        return self.listed_after_loss_ms / 1000
