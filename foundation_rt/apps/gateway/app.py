"""The gateway, put together: a `Server` whose requests go to the servers of a coordinator."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from ...base.logs.python_records import records_written_to
from ...features.resources.registry import ResourceDefinition
from ...server import Server
from ..coordinator import for_many, shared_logins
from .client_request_bridge import ClientRequestBridge
from .forwarder import GatewayForwarder, TaskIds
from .parked_calls import ParkedCalls
from .server_routes import ServerRoutes
from .settings import SEARCH, SECTION, GatewaySettings
from .source import client_headers, log
from .status import URI
from .subscriptions import ForwardedSubscriptions

if TYPE_CHECKING:
    from ...features.context import ToolContext
    from ...protocol.principal import Principal
    from ..coordinator import Coordinator
    from ..coordinator.servers import Source

NAME = "foundation-rt-gateway"
TITLE = "Gateway"

_MIB = 1024 * 1024
_LOGGERS = ("foundation_rt.client", "foundation_rt.coordinator", "foundation_rt.gateway")

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "resources": {"max_concurrent_executions": 1_000},
    "tools": {"max_payload_bytes": 16 * _MIB, "max_response_bytes": 64 * _MIB},
    "transport": {"max_line_bytes": 20 * _MIB},
    "http": {"max_body_bytes": 20 * _MIB},
}
"""Settings of the runtime that differ from its own defaults: calls wait for others (GATE-09)."""


@frozen(eq=False)
class Gateway:
    """A gateway, and the servers behind it.

    Attributes:
        server: to be served.
        coordinator: has the servers; started and closed with the server.
        servers: the ways to what they list.
    """

    server: Server
    coordinator: Coordinator
    servers: ServerRoutes


def read_settings(config: str | os.PathLike[str] | None) -> GatewaySettings:
    """Return the settings with which a gateway would start now.

    Raises:
        ConfigError: lists every problem of the configuration.
    """
    server = _new_server()
    if config is not None:
        server.configure(config)
    return server.settings(GatewaySettings)


def create_gateway(
    source: Source,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    on_started: Callable[[Mapping[str, Any]], object] | None = None,
) -> Server:
    """Return a gateway, not started yet.

    Args:
        source: the servers behind it.
        overrides: settings by section that win over every other source, as of a command line.
        config: a configuration file, .toml or .json.
        on_started: gets the first status, as `/status` has it.

    Raises:
        ConfigError: lists every problem of the configuration.
        UsageError: the servers cannot be read; says why.
    """
    server = _new_server()
    return add_gateway(server, source, overrides, config=config, on_started=on_started).server


def _new_server() -> Server:
    return Server(NAME, title=TITLE, config=DEFAULTS, sections={SECTION: GatewaySettings})


def add_gateway(
    server: Server,
    source: Source,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    on_started: Callable[[Mapping[str, Any]], object] | None = None,
    has_status: bool = True,
    **sharing: Any,
) -> Gateway:
    """Make a gateway of a server that is not started yet, and that has `GatewaySettings`.

    Args:
        server: of an application that uses the same servers, perhaps.
        source: the servers behind it.
        overrides: settings by section that win over every other source, as of a command line.
        config: a configuration file, .toml or .json.
        on_started: gets the first status, as `/status` has it.
        has_status: clients can read `gateway://status` and `/status` (GATE-40).
        sharing: `handlers`, `circuits`, `guidance`, `listed_after_loss_ms` and
            `announce_interval_ms` of `ServerRoutes`.

    Raises:
        ConfigError: lists every problem of the configuration.
        UsageError: the servers cannot be read; says why.
    """
    if config is not None:
        server.configure(config)
    for section, settings in (overrides or {}).items():
        server.override(section, **settings)
    is_for_many = server.load_config().has_shares()
    source = evolve(source, read=for_many(source.read)) if is_for_many else source
    _allow_headers(server, source)
    found = server.load_config()
    loaded = found.section(GatewaySettings)
    servers = ServerRoutes(server, source, loaded, on_started, **sharing)
    bridge = ClientRequestBridge(
        server, ParkedCalls(found.server.input_ttl_ms, loaded.max_parked_calls)
    )
    is_search = loaded.expose == SEARCH
    subscriptions = ForwardedSubscriptions(server, servers)
    servers.on_task_changed = subscriptions.task_changed
    task_ids = TaskIds(found.security.state_key)
    server.forward(GatewayForwarder(servers, bridge, subscriptions, task_ids, is_search))
    if is_search:
        from .search import register_search

        register_search(server, servers)
    if has_status:
        _add_status(server, servers)
    server.readiness_check("servers")(servers.has_ready_server)
    shared = shared_logins(source.read()) if is_for_many else []
    _add_lifespan(server, servers, bridge, subscriptions, shared)
    return Gateway(server, servers.coordinator, servers)


def _allow_headers(server: Server, source: Source) -> None:
    """Let servers have the headers of clients that their entries name in `headersFrom`."""
    wanted = client_headers(source.read())
    if wanted:
        allowed = server.load_config().http.request_headers
        server.override("http", request_headers=tuple(sorted({*allowed, *wanted})))


def _add_status(server: Server, servers: ServerRoutes) -> None:
    definition = ResourceDefinition(
        uri=URI,
        name="gateway-status",
        title="Status of the gateway",
        description="The servers behind the gateway: states, circuits, calls, last errors.",
        mime_type="application/json",
    )

    async def read(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        return servers.status()

    server.register_resource(definition, read)

    @server.http_get("/status")
    def status(principal: Principal | None) -> dict[str, Any]:
        return servers.status()


def _add_lifespan(
    server: Server,
    servers: ServerRoutes,
    bridge: ClientRequestBridge,
    subscriptions: ForwardedSubscriptions,
    shared: Sequence[str],
) -> None:
    server.on_session_end(servers.session_ended)
    server.on_roots_changed(servers.roots_changed)

    async def gateway(_: Server) -> AsyncIterator[None]:
        with records_written_to(server.runtime.logger, _LOGGERS):
            for name in shared:
                log.warning("at server %r everybody acts as the person who logged in", name)
            servers.start()
            try:
                yield
            finally:
                await bridge.parked.close()
                await subscriptions.close()
                await servers.close()

    server.lifespan(gateway)
