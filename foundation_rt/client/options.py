"""The settings of a client, and their defaults; the options of `connect`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from attrs import field, frozen

from ..errors import ConfigError
from ..protocol.peer import LOGGING_LEVELS
from ..protocol.revisions import REVISIONS, Revision
from ..version import __version__
from .callbacks import LogCallback, check_plain
from .resilience.circuit_breaker import BreakerSettings, CircuitState
from .resilience.retries import RetryPolicy
from .resilience.settings import at_least, check_positive, positive

if TYPE_CHECKING:
    from .errors import MCPError
    from .handlers.client_handlers import (
        ElicitationHandler,
        ElicitationUrlHandler,
        Places,
        RootsHandler,
        SamplingHandler,
    )
    from .session.handshake import ServerDescription

    ConnectedCallback = Callable[[ServerDescription], object]
    DisconnectedCallback = Callable[[MCPError], object]
    CircuitCallback = Callable[[str | None, CircuitState], object]
    NotificationCallback = Callable[[str, Mapping[str, Any]], object]

REVISION_VARIABLE = "MCP_PROTOCOL_VERSION"
TTL_VARIABLE = "MCP_TOOL_CACHE_TTL"

_TTL = r"0*[1-9][0-9]{0,11}"


def _names(value: Any) -> frozenset[str] | None:
    if value is None:
        return None
    if isinstance(value, Iterable) and not isinstance(value, str):
        names = frozenset(value)
        if all(isinstance(name, str) for name in names):
            return names
    raise ConfigError("require is a collection of names, as in {'tools'}")


def read_client_extensions(value: Any) -> Mapping[str, Mapping[str, Any]]:
    """Return a copy of the extensions of a client (EXT-09); raise `UsageError` for a wrong one."""
    if value == {}:
        return {}
    from ..features.declared import read_extensions

    return read_extensions(value)


def _all_positive(_: Any, attribute: Any, value: Mapping[str, Any]) -> None:
    for name, each in value.items():
        check_positive(f"{attribute.name} of {name}", each)


def _plain(_: Any, attribute: Any, value: Any) -> None:
    check_plain(attribute.name, value)


def _one_of(known: Any) -> Callable[[Any, Any, str | None], None]:
    def check(_: Any, attribute: Any, value: Any) -> None:
        if value is not None and not (isinstance(value, str) and value in known):
            raise ConfigError(f"{attribute.name} is one of {', '.join(known)}, not {value!r}")

    return check


@frozen(kw_only=True, eq=False)
class ClientOptions:
    """The settings of a client.

    Attributes:
        name: of the client, as servers see it, as are `version` and `title`.
        require: capabilities that the server must have (E205), such as `tools` or
            `resources.subscribe`. None requires tools, or else resources or prompts. Tools are
            listed at once unless they are left out here.
        extensions: settings of the extensions that the client has, by name, each an object of JSON:
            ``{"com.example/reports": {}}``.
        revision: the only one to speak; None agrees with the server on the newest that both
            speak. `MCP_PROTOCOL_VERSION` wins over it.
        timeout: in s, for a whole call.
        tool_timeouts: in s, by tool.
        connect_timeout: seconds that one attempt to connect may take. A process that takes longer
            to start is waited for as long as a call waits for it.
        probe_timeout: seconds after which a server that does not answer `server/discover` is asked
            `initialize` as well.
        handler_timeout: seconds that a handler may take for a request of the server; meanwhile no
            deadline runs.
        tool_cache_ttl_ms: how long listed tools are kept, in ms, where the server does not say.
            `MCP_TOOL_CACHE_TTL` wins over it.
        max_pages: the most pages of one list that are followed.
        breaker: when the circuit of a failing server opens.
        tool_breakers: whether every tool also has a breaker of its own.
        retries: how often and how soon a request is repeated.
        log_level: the least severe log messages that the server is to send; None leaves it to
            the server.
        on_log: gets log messages: level, logger or None, data; a plain function, as is
            `on_list_changed`.
        on_list_changed: gets the name of a list that changed: `tools`, `prompts` or `resources`.
        on_connected: gets the description of the server when a session has begun; a plain
            function, as are those below.
        on_disconnected: gets the error that has ended the session, as soon as it has; not called
            by `close`.
        on_circuit: gets the tool whose circuit has changed, None for that of the server, and its
            state.
        on_notification: gets the method and the params of every notification that belongs to no
            call, as they came.

    Raises:
        ConfigError: a value cannot be used; the message says why.
        UsageError: a callback is an `async def` function; an extension has no name with a prefix,
            or settings that are no object.
    """

    name: str = "foundation-rt"
    version: str = __version__
    title: str | None = None
    require: frozenset[str] | None = field(default=None, converter=_names)
    extensions: Mapping[str, Mapping[str, Any]] = field(
        factory=dict, converter=read_client_extensions
    )
    revision: str | None = field(default=None, validator=_one_of(REVISIONS))
    timeout: float = field(default=60.0, validator=positive)
    tool_timeouts: Mapping[str, float] = field(factory=dict, validator=_all_positive)
    connect_timeout: float = field(default=30.0, validator=positive)
    probe_timeout: float = field(default=5.0, validator=positive)
    handler_timeout: float = field(default=300.0, validator=positive)
    tool_cache_ttl_ms: int = field(default=300_000, validator=at_least(1))
    max_pages: int = field(default=100, validator=at_least(1))
    breaker: BreakerSettings = field(factory=BreakerSettings)
    tool_breakers: bool = False
    retries: RetryPolicy = field(factory=RetryPolicy)
    log_level: str | None = field(default=None, validator=_one_of(LOGGING_LEVELS))
    on_log: LogCallback | None = field(default=None, validator=_plain)
    on_list_changed: Callable[[str], object] | None = field(default=None, validator=_plain)
    on_connected: ConnectedCallback | None = field(default=None, validator=_plain)
    on_disconnected: DisconnectedCallback | None = field(default=None, validator=_plain)
    on_circuit: CircuitCallback | None = field(default=None, validator=_plain)
    on_notification: NotificationCallback | None = field(default=None, validator=_plain)

    @property
    def forced(self) -> Revision | None:
        """The only revision that may be spoken, if there is one."""
        return None if self.revision is None else REVISIONS[self.revision]

    @property
    def info(self) -> dict[str, Any]:
        """Name, version and title, as the wire has them."""
        info = {"name": self.name, "version": self.version}
        return info if self.title is None else {**info, "title": self.title}


def from_environment(given: Mapping[str, Any]) -> ClientOptions:
    """Return the options `given`, overridden by the environment (CLIENT-05).

    Raises:
        ConfigError: a value, or a variable, cannot be used.
    """
    found = dict(given)
    revision = os.environ.get(REVISION_VARIABLE)
    if revision:
        if revision not in REVISIONS:
            known = ", ".join(REVISIONS)
            raise ConfigError(f"{REVISION_VARIABLE} is one of {known}, not {revision!r}")
        found["revision"] = revision
    ttl = os.environ.get(TTL_VARIABLE)
    if ttl:
        if re.fullmatch(_TTL, ttl) is None:
            raise ConfigError(
                f"{TTL_VARIABLE} is a number of ms from 1 to 999999999999, not {ttl!r}"
            )
        found["tool_cache_ttl_ms"] = int(ttl)
    return ClientOptions(**found)


class ConnectOptions(TypedDict, total=False):
    """The options of `ClientOptions` and `ClientHandlers`, which describe them.

    A program that wraps `connect` passes them on with ``**options: Unpack[ConnectOptions]``. Type
    checkers derive no such dict from a class, so it stands beside them; a test compares the types.
    """

    name: str
    version: str
    title: str | None
    require: Collection[str] | None
    extensions: Mapping[str, Mapping[str, Any]]
    revision: str | None
    timeout: float
    tool_timeouts: Mapping[str, float]
    connect_timeout: float
    probe_timeout: float
    handler_timeout: float
    tool_cache_ttl_ms: int
    max_pages: int
    breaker: BreakerSettings
    tool_breakers: bool
    retries: RetryPolicy
    log_level: str | None
    on_log: LogCallback | None
    on_list_changed: Callable[[str], object] | None
    on_connected: ConnectedCallback | None
    on_disconnected: DisconnectedCallback | None
    on_circuit: CircuitCallback | None
    on_notification: NotificationCallback | None
    sampling: SamplingHandler | None
    sampling_tools: bool
    elicitation: ElicitationHandler | None
    elicitation_url: ElicitationUrlHandler | None
    roots: Places | RootsHandler | None
