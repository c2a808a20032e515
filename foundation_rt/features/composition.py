"""The composition: what a server is made of, and how its components are wired."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..base.clock import Clock, SystemClock
from ..base.config.settings import ServerConfig
from ..base.ids import IdGenerator, UuidGenerator
from ..base.logs.logger import StderrSink, StructuredLogger
from ..base.logs.redaction import Redactor
from ..errors import MissingExtraError
from ..kernel.call_lifecycle import CallLifecycle
from ..kernel.dispatcher import Dispatcher
from ..kernel.engine.directory import SessionDirectory
from ..kernel.engine.executor import Engine
from ..kernel.engine.worker_threads import WorkerPool
from ..kernel.execution_limits import ResourceManager
from ..kernel.feature import NO_ROWS
from ..kernel.registry.tools import ToolRegistry
from ..kernel.replies import ResultWriter, ServerInfo
from ..kernel.runtime import Runtime
from .builtin import built_in
from .context import ToolContext

if TYPE_CHECKING:
    from ..agents.local import AgentCoordinator
    from ..kernel.feature import RuntimeFeature
    from ..protocol.content import Icon
    from .audit import AuditLog
    from .custom_methods import CustomMethod
    from .embedding import Embedding
    from .forwarding.forwarder import RequestForwarder
    from .http_pages import HttpMiddleware, HttpPage, MountedApp
    from .instruments import Instruments
    from .lifespan import Lifespan
    from .metrics import Metrics
    from .middleware import Middleware, MiddlewareStack
    from .observers import CallObserver
    from .otel_metrics import OtelMetrics
    from .own_features import Feature
    from .readiness import ReadinessChecks
    from .registries import Features
    from .session_callbacks import SessionCallback
    from .subscriptions.publisher import Publisher

_AUDIT_SHARE = 0.5
"""The share of the time for the last records in which those of the audit log are written."""


@define(eq=False, repr=False)
class ServerOptions:
    """Components that replace the defaults of a server.

    Attributes:
        config: used as it is, without file and environment; None to load it from them.
        instructions: advice for the model that uses the tools, sent by `initialize`.
        title: the name of the server for people.
        website_url: a page about the server.
        experimental: capabilities that no revision defines, by name (REV-13).
        extensions: the settings of extensions, by name (EXT-08).
        methods: the methods of the author, by name.
        own_features: what `Server.add_feature` was given.
        features: the registries of resources, prompts and completions.
        lifespan: the hooks that are entered before the first message.
        middleware: put around every handler, the first outermost.
        call_observers: are given every call that has ended.
        session_end_callbacks: are called with the key of every session that has ended.
        roots_callbacks: are called with the key of a session whose roots have changed.
        instruments: the metrics of the application.
        checks: whether the application can work.
        http_pages: by path, functions that `Server.http_get` was given.
        http_app: what `Server.http_app` was given.
        http_middleware: put around everything that is served over HTTP, the first outermost.
        publisher: notifies subscribers; that of another server, to share its subscriptions.
        dependency_overrides: what `Server.dependency_overrides` holds.
        forwarder: answers what the server has no tool, resource or prompt of its own for.
        log_form: what `Server.log_as` was given.
    """

    config: ServerConfig | None = None
    logger: StructuredLogger | None = None
    tool_registry: ToolRegistry | None = None
    resource_manager: ResourceManager | None = None
    id_generator: IdGenerator | None = None
    clock: Clock | None = None
    agent_coordinator: AgentCoordinator | None = None
    instructions: str | None = None
    title: str | None = None
    website_url: str | None = None
    icons: Sequence[Icon] = ()
    experimental: Mapping[str, Mapping[str, Any]] | None = None
    extensions: Mapping[str, Mapping[str, Any]] = NO_ROWS
    methods: Mapping[str, CustomMethod] = NO_ROWS
    own_features: tuple[Feature, ...] = ()
    publisher: Publisher | None = None
    features: Features | None = None
    lifespan: Lifespan[Any] | None = None
    middleware: tuple[Middleware, ...] = ()
    call_observers: tuple[CallObserver, ...] = ()
    session_end_callbacks: tuple[SessionCallback, ...] = ()
    roots_callbacks: tuple[SessionCallback, ...] = ()
    instruments: Instruments | None = None
    checks: ReadinessChecks | None = None
    http_pages: Mapping[str, HttpPage] = field(factory=dict)
    http_app: MountedApp | None = None
    http_middleware: tuple[HttpMiddleware, ...] = ()
    forwarder: RequestForwarder | None = None
    dependency_overrides: dict[Callable[..., Any], Callable[..., Any]] = field(factory=dict)
    log_form: Callable[[bytes], bytes] | None = None


class ServerRuntime(Runtime):
    """Every component of a server, wired; made by `compose`.

    A plain class: as an attrs class it would cost every start 1.2 %.

    Attributes:
        instruments: the metrics of the application, if it has any.
        checks: the readiness checks of the application, if it has any.
        http_pages: the pages of the application, by path.
        http_app: the ASGI application of the author, if there is one.
        http_middleware: put around everything that is served over HTTP, the first outermost.
        agents: the coordinator, if the server has agents.
        audit: writes the audit records, if the configuration asks for them.
        metrics: counts for Prometheus, if the configuration asks for it.
        otel_metrics: records with OpenTelemetry, if the configuration asks for it.
    """

    instruments: Instruments | None = None
    checks: ReadinessChecks | None = None
    http_pages: Mapping[str, HttpPage] = NO_ROWS
    http_app: MountedApp | None = None
    http_middleware: tuple[HttpMiddleware, ...] = ()
    agents: AgentCoordinator | None = None
    audit: AuditLog | None = None
    metrics: Metrics | None = None
    otel_metrics: OtelMetrics | None = None

    _embedding: Embedding | None = None

    @property
    def embedding(self) -> Embedding:
        """Return what connects the program that the server is part of; made when first needed."""
        if self._embedding is None:
            from .embedding import Embedding

            # The first one wins, should two threads make one.
            self.__dict__.setdefault("_embedding", Embedding(self))
            assert self._embedding is not None
        return self._embedding

    @property
    def is_embedded(self) -> bool:
        """Return whether a connection or an application on a host's event loop is open."""
        return self._embedding is not None and self._embedding.is_serving

    @property
    def serves_endpoint(self) -> bool:
        """Return whether MCP is served over HTTP (HTTP-51)."""
        return self.http_app is None or self.http_app.endpoint

    def attach_agents(self, coordinator: AgentCoordinator) -> None:
        """Use `coordinator` for the agents of this server, with its logger, limits and ids."""
        coordinator.attach(self.logger, self.config, self.ids)
        self.agents, self.background = coordinator, coordinator.background
        self.engine.on_unanswered = coordinator.note_call
        self._show_agents()

    def _show_agents(self) -> None:
        """Show the agents in the metrics, if there are both."""
        if self.metrics is None or self.agents is None:
            return
        source = self.agents.metric_source()
        if source is not None:
            source.probe.attach(self.clock, self.logger)
            self.metrics.sources.append(source)

    def attach_instruments(self, instruments: Instruments) -> None:
        """Show `instruments` in the metrics from now on; without metrics they stay off."""
        self.instruments = instruments
        if self.otel_metrics is not None:
            instruments.mirror = self.otel_metrics.mirror
        if self.metrics is not None:
            self.metrics.instruments = instruments
        if self.metrics is not None or self.otel_metrics is not None:
            instruments.start(self.clock, self.logger)

    def use_stack(self, stack: MiddlewareStack) -> None:
        """Put `stack` around the calls of this server from now on."""
        self.audit, self.metrics = stack.audit, stack.metrics
        self.otel_metrics = stack.otel_metrics
        self._show_agents()
        self.observers += stack.observers
        self.engine.around = stack.around

    def flush_logs(self, timeout: float) -> None:
        """Write the buffered log and audit records, in `timeout` seconds at most, and go on."""
        until = time.monotonic() + timeout
        if self.audit is not None:
            self.audit.flush(timeout * _AUDIT_SHARE)  # what it cannot write is logged
        super().flush_logs(max(0.0, until - time.monotonic()))

    def close_logs(self, timeout: float) -> None:
        """Write the buffered log and audit records, in `timeout` seconds at most, and end that."""
        until = time.monotonic() + timeout
        if self.audit is not None:
            self.audit.close(timeout * _AUDIT_SHARE)
        super().close_logs(max(0.0, until - time.monotonic()))


def compose(registry: ToolRegistry, options: ServerOptions, config: ServerConfig) -> ServerRuntime:
    """Create every component that `options` does not contain, and wire all of them.

    Args:
        registry: the tools of the server.
        options: components, and what the author has registered.
        config: the configuration.
    """
    clock = options.clock or SystemClock()
    ids = options.id_generator or UuidGenerator()
    sink: StderrSink | None = None
    logger = options.logger
    if logger is None:
        capacity = config.logging.buffer_bytes
        if options.log_form is None:
            sink = StderrSink(capacity, clock=clock)
        else:
            from ..base.logs.formed import FormedSink

            sink = FormedSink(options.log_form, capacity, clock=clock)
        redactor = Redactor(config.logging.redact_keys)
        logger = StructuredLogger(sink, clock, config.logging.level, redactor)
    registry.use_separator(config.tools.name_separator)
    registry.use_formats(config.tools.check_formats)
    registry.attach_logger(logger)
    resources = options.resource_manager or ResourceManager(config)
    info = ServerInfo(
        config.server.name,
        config.server.version,
        options.instructions,
        options.title,
        options.website_url,
        options.icons,
    )
    results = ResultWriter(info, config.server.cache_ttl_ms, config.server.cache_scope)
    publisher = options.publisher
    directory = SessionDirectory() if publisher is None else publisher.directory
    calls = CallLifecycle(resources, config.tools, registry, ids, results)
    dispatcher = Dispatcher(results, calls, config.server.page_size)
    workers = WorkerPool(resources.config.resources.max_concurrent_executions)
    lifespan, middleware = options.lifespan, options.middleware
    if lifespan is not None:
        lifespan.attach_logger(logger)
    engine = Engine(dispatcher, clock, config, workers, directory, ToolContext, lifespan=lifespan)
    engine.dependency_overrides = options.dependency_overrides
    runtime = ServerRuntime(engine, logger, registry, resources, ids, sink)
    if options.agent_coordinator is not None:
        runtime.attach_agents(options.agent_coordinator)
    features: list[RuntimeFeature] = []
    if config.tools.expose == "search":
        from .tool_search.feature import ToolSearch

        features.append(ToolSearch(registry, config.tools.pinned, options.forwarder))
    if middleware or options.call_observers or config.is_operated():
        from .middleware import build_stack

        try:
            has_others = options.forwarder is not None
            stack = build_stack(runtime, middleware, options.call_observers, has_others=has_others)
        except MissingExtraError as error:
            raise error.also(*config.extras()) from None
        runtime.use_stack(stack)
        features += stack.features
    if options.checks is not None:
        runtime.checks = options.checks
        options.checks.attach(clock, logger)
    runtime.http_pages, runtime.http_app = options.http_pages, options.http_app
    runtime.http_middleware = options.http_middleware
    if options.instruments is not None:
        runtime.attach_instruments(options.instruments)
    if config.is_dynamic_registration_effective():
        from .admin import add_admin_tools

        add_admin_tools(registry, config, resources, lambda: runtime.agents)
    if config.tools.admin_agents_enabled:
        from .agent_tools.administration import add_agent_admin_tools

        add_agent_admin_tools(registry, config.tools, lambda: runtime.agents)
    runtime.use([*features, *built_in(runtime, options)])
    return runtime
