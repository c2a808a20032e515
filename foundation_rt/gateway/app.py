"""The gateway, put together: a `Server` whose requests go to the servers of a coordinator."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..registry.resources import ResourceDefinition
from ..server import Server
from .forwarder import GatewayForwarder
from .log_records import records_written_to
from .parked_calls import ParkedCalls
from .relay import Relay
from .settings import SEARCH, SECTION, GatewaySettings
from .source import client_headers
from .status import URI
from .subscriptions import ForwardedSubscriptions
from .task_ids import TaskIds
from .upstreams import Upstreams

if TYPE_CHECKING:
    from ..core.context import ToolContext
    from ..protocol.principal import Principal
    from .source import Source

NAME = "foundation-rt-gateway"
TITLE = "Gateway"

_MIB = 1024 * 1024

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "resources": {"max_concurrent_executions": 1_000},
    "tools": {"max_payload_bytes": 16 * _MIB, "max_response_bytes": 64 * _MIB},
    "transport": {"max_line_bytes": 20 * _MIB},
    "http": {"max_body_bytes": 20 * _MIB},
}
"""Settings of the runtime that differ from its own defaults: calls wait for others (GATE-09)."""


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
    server = Server(NAME, title=TITLE, config=DEFAULTS, sections={SECTION: GatewaySettings})
    if config is not None:
        server.configure(config)
    for section, settings in (overrides or {}).items():
        server.override(section, **settings)
    _allow_headers(server, source)
    found = server.load_config()
    loaded = found.section(GatewaySettings)
    upstreams = Upstreams(server, source, loaded, on_started)
    relay = Relay(server, ParkedCalls(found.server.input_ttl_ms, loaded.max_parked_calls))
    is_search = loaded.expose == SEARCH
    subscriptions = ForwardedSubscriptions(server, upstreams)
    upstreams.on_task_changed = subscriptions.task_changed
    task_ids = TaskIds(found.security.state_key)
    server.forward(GatewayForwarder(upstreams, relay, subscriptions, task_ids, is_search))
    if is_search:
        from .search import register_search

        register_search(server, upstreams)
    _add_status(server, upstreams)
    _add_lifespan(server, upstreams, relay, subscriptions)
    return server


def _allow_headers(server: Server, source: Source) -> None:
    """Let servers have the headers of clients that their entries name in `headersFrom`."""
    wanted = client_headers(source.read())
    if wanted:
        allowed = server.load_config().http.request_headers
        server.override("http", request_headers=tuple(sorted({*allowed, *wanted})))


def _add_status(server: Server, upstreams: Upstreams) -> None:
    definition = ResourceDefinition(
        uri=URI,
        name="gateway-status",
        title="Status of the gateway",
        description="The servers behind the gateway: states, circuits, calls, last errors.",
        mime_type="application/json",
    )

    async def read(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        return upstreams.status()

    server.register_resource(definition, read)

    @server.http_get("/status")
    def status(principal: Principal | None) -> dict[str, Any]:
        return upstreams.status()

    server.readiness_check("servers")(upstreams.has_ready_server)


def _add_lifespan(
    server: Server, upstreams: Upstreams, relay: Relay, subscriptions: ForwardedSubscriptions
) -> None:
    server.on_session_end(upstreams.session_ended)

    async def gateway(_: Server) -> AsyncIterator[None]:
        with records_written_to(server.runtime.logger):
            upstreams.start()
            try:
                with _signal_calls(upstreams.reload):
                    yield
            finally:
                await relay.parked.close()
                await subscriptions.close()
                await upstreams.close()

    server.lifespan(gateway)


@contextmanager
def _signal_calls(function: Callable[[], object]) -> Iterator[None]:
    """Call a function in this loop for each SIGUSR1, within the block (GATE-42).

    In the main thread alone: elsewhere the signals are those of a program that embeds the gateway.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    # Not by the loop's own means: the watchdog needs the descriptor that signals are written to.
    before = signal.signal(
        signal.SIGUSR1, lambda number, frame: loop.call_soon_threadsafe(function)
    )
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)
