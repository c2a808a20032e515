"""The runtime: `compose` creates and wires every component of a server."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from ..base.clock import Clock, SystemClock
from ..base.config.settings import ServerConfig
from ..base.ids import IdGenerator, UuidGenerator
from ..base.logs.logger import FormedSink, StderrSink, StructuredLogger
from ..base.logs.redaction import Redactor
from ..errors import MissingExtraError, UsageError, describe_exception
from ..protocol.framing import LineReader
from .call_lifecycle import CallLifecycle, Hooks
from .dispatcher import Dispatcher
from .effects import Abort, FeatureCallback
from .engine.connection import Connection, Deliver, Observe, Send
from .engine.directory import SessionDirectory
from .engine.executor import Engine
from .engine.scheduling import Background, HostLoop, running_loop
from .engine.worker_threads import WorkerPool
from .execution_limits import ResourceManager, resident_memory_bytes
from .feature import hooks, use
from .registry.tools import ToolRegistry
from .replies import ResultWriter, ServerInfo
from .session import Session, TransportType, create_session

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from ..agents.local import AgentCoordinator
    from ..features.audit import AuditLog
    from ..features.instruments import Instruments
    from ..features.lifespan import Lifespan
    from ..features.metrics import Metrics
    from ..features.middleware import Middleware, MiddlewareStack
    from ..features.observers import CallObserver
    from ..features.proxy.forwarder import RequestForwarder
    from ..features.readiness import ReadinessChecks
    from ..features.session_callbacks import SessionCallback
    from ..features.subscriptions.publisher import Publisher
    from ..protocol.content import Icon
    from ..protocol.principal import Principal
    from .context import HandlerContext
    from .effects import Notify, Reply
    from .engine.loop_monitor import Closable, HostLoopMonitor
    from .engine.scheduling import Scheduler
    from .feature import Feature
    from .registry.features import Features


_DRAIN_SHARE = 0.5
"""The share of the time for leaving the lifespan in which handlers may still end."""


HttpPage = Callable[["Principal | None"], Any]
"""A function of the application that answers GET at a path; see `Server.http_get`."""

HttpMiddleware = Callable[[Callable[..., Awaitable[None]]], Callable[..., Awaitable[None]]]
"""Takes an ASGI application and returns one around it; see `Server.http_middleware`."""


@frozen(eq=False)
class MountedApp:
    """The ASGI application of the author, as `Server.http_app` was given it.

    Attributes:
        app: called for requests and WebSockets.
        public: paths that need no credential; one that ends with `/` stands for all below it.
        page_token: one more key, of the application's page; None: it has none.
        websocket: whether it takes WebSockets.
        endpoint: whether MCP is served beside it.
    """

    app: Callable[..., Awaitable[None]]
    public: tuple[str, ...] = ()
    page_token: str | None = field(default=None, repr=False)
    websocket: bool = True
    endpoint: bool = True


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


@define(eq=False, repr=False)
class Runtime:
    """Every component of a server, wired; made by `compose`.

    Attributes:
        lifespan: the hooks of the server, if it has any.
        instruments: the metrics of the application, if it has any.
        checks: the readiness checks of the application, if it has any.
        http_pages: the pages of the application, by path.
        http_app: the ASGI application of the author, if there is one.
        http_middleware: put around everything that is served over HTTP, the first outermost.
        agents: the coordinator, if the server has agents.
        agents_task: the background task of the agents, once it was started.
        observers: are given the records of calls and handshakes.
        audit: writes the audit records, if the configuration asks for them.
        metrics: counts for Prometheus, if the configuration asks for it.
    """

    config: ServerConfig
    logger: StructuredLogger
    registry: ToolRegistry
    resources: ResourceManager
    ids: IdGenerator
    clock: Clock
    dispatcher: Dispatcher
    directory: SessionDirectory
    engine: Engine
    lifespan: Lifespan[Any] | None
    _sink: StderrSink | None
    instruments: Instruments | None = field(default=None, init=False)
    checks: ReadinessChecks | None = field(default=None, init=False)
    http_pages: Mapping[str, HttpPage] = field(factory=dict, init=False)
    http_app: MountedApp | None = field(default=None, init=False)
    http_middleware: tuple[HttpMiddleware, ...] = field(default=(), init=False)
    agents: AgentCoordinator | None = field(default=None, init=False)
    _agents_started: bool = field(default=False, init=False)
    agents_task: asyncio.Task[None] | None = field(default=None, init=False)
    observers: list[Observe] = field(factory=list, init=False)
    audit: AuditLog | None = field(default=None, init=False)
    metrics: Metrics | None = field(default=None, init=False)
    _stacked: Sequence[Feature] = field(default=(), init=False)
    _background: Background = field(init=False)
    _closing: Hooks = field(default=(), init=False)
    _stopping: Hooks = field(default=(), init=False)
    _needs_event_loop: bool = field(default=False, init=False)
    _monitored_host: HostLoopMonitor | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._background = Background(self.report_loop_error)
        self.engine.workers.on_error = self.report_interruption

    @property
    def serves_endpoint(self) -> bool:
        """Return whether MCP is served over HTTP (HTTP-51)."""
        return self.http_app is None or self.http_app.endpoint

    def attach_agents(self, coordinator: AgentCoordinator) -> None:
        """Use `coordinator` for the agents of this server, with its logger, limits and ids."""
        coordinator.attach(self.logger, self.config, self.ids)
        self.agents = coordinator
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

    def attach_features(self, features: Features) -> None:
        """Offer `features` from now on."""
        self.dispatcher.features = features
        features.observe(self.directory)

    def attach_instruments(self, instruments: Instruments) -> None:
        """Show `instruments` in the metrics from now on; without metrics they stay off."""
        self.instruments = instruments
        if self.metrics is not None:
            self.metrics.instruments = instruments
            instruments.start(self.clock, self.logger)

    def use(self, features: Sequence[Feature]) -> None:
        """Let features join, after those of the stack, before the server is served."""
        features = [*self._stacked, *features]
        self._closing = hooks(features, "close")
        self._stopping = hooks(features, "stopping")
        self._needs_event_loop = any(each.needs_event_loop for each in features)
        self.engine.opening = hooks(features, "opening")
        self.engine.starting = hooks(features, "starting")
        self.engine.forgetting = hooks(features, "forget")
        self.engine.ended = hooks(features, "session_ended")
        use(self.dispatcher, features)
        for feature in features:
            feature.join(self.engine)

    def use_stack(self, stack: MiddlewareStack) -> None:
        """Put `stack` around the calls of this server from now on."""
        self.audit, self.metrics, self._stacked = stack.audit, stack.metrics, stack.features
        self._show_agents()
        self.observers += stack.observers
        self.engine.around = stack.around

    def open_session(self, transport_type: TransportType) -> Session:
        """Return a new session, for hosts that perform effects themselves."""
        return create_session(transport_type, self.ids.connection_correlation_id(), self.logger)

    def connect(
        self,
        deliver: Deliver,
        transport_type: TransportType,
        scheduler: Scheduler,
        *,
        principal: Principal | None = None,
        stateless: bool = False,
    ) -> Connection:
        """Return a connection whose timers and coroutines run on `scheduler`.

        Args:
            deliver: is given every outgoing message.
            transport_type: how the peer is connected.
            scheduler: the place of its timers and coroutines.
            principal: the authenticated peer.
            stateless: it is for requests of the stateless mode only.
        """
        session = create_session(
            transport_type,
            self.ids.connection_correlation_id(),
            self.logger,
            principal=principal,
            stateless=stateless,
            session_id=self.directory.session_id(),
        )
        connection = Connection(
            session,
            self.dispatcher,
            self.engine,
            scheduler,
            LineReader(self.config.transport.max_line_bytes),
            deliver,
            self.observers,
        )
        if not stateless:
            self.directory.attach(connection)
        return connection

    def needs_event_loop(self) -> bool:
        """Return whether any call will be a task."""
        if self.engine.around is not None or self.registry.has_async_tools():
            return True
        if self._needs_event_loop:
            return True
        features = self.dispatcher.features
        return features is not None and features.has_async_handlers()

    @property
    def needs_closing(self) -> bool:
        """Return whether there is anything to release when serving ends."""
        return self.lifespan is not None or bool(self._closing)

    async def start_lifespan(self) -> None:
        """Enter the lifespan hooks before messages are served (OPS-01); without hooks do nothing.

        Raises:
            LifespanError: a hook failed.
        """
        if self.lifespan is not None:
            await self.lifespan.start()

    async def stop_lifespan(self, timeout: float | None = None) -> None:
        """Leave the lifespan hooks, on the same event loop; handlers may end before.

        Args:
            timeout: seconds this may take; by default `server.shutdown_timeout_ms`.
        """
        if self.lifespan is None:
            return
        left = self.config.server.shutdown_timeout_ms / 1000 if timeout is None else timeout
        if self.lifespan.holders == 1 and self.engine.running:
            import asyncio

            await asyncio.to_thread(self.engine.wait_idle, left * _DRAIN_SHARE)
            left *= 1 - _DRAIN_SHARE
        await self.lifespan.stop(left)

    async def close_features(self) -> None:
        """Close the features, on the same loop, once no call is served."""
        for close in self._closing:
            if (closing := close()) is not None:
                await closing

    def run_in_background(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `function()` on the loop thread of a host without a loop, and wait for its end.

        Raises:
            UsageError: an event loop runs in this thread.
        """
        if running_loop() is not None:
            raise UsageError("this host has an event loop: use `async with server.lifetime():`")
        self._background.run(function())

    def start_agents(self, scheduler: Scheduler) -> None:
        """Start the background task of the agents, once (AACP-27)."""
        if self.agents is None or self._agents_started:
            return
        self._agents_started = True
        background = self.agents.background()
        if background is not None:
            scheduler.start_task(background, self._keep_agents_task)

    def _keep_agents_task(self, task: asyncio.Task[None]) -> None:
        self.agents_task = task  # asyncio itself keeps only a weak reference

    async def stop_agents(self) -> None:
        """End the background task of the agents, on the same event loop."""
        if not self._agents_started:
            return
        import asyncio

        if self.agents_task is None:
            await asyncio.sleep(0)  # it has begun, and the loop has yet to hand it over
        task, self.agents_task, self._agents_started = self.agents_task, None, False
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def stop_features(self, reason: str) -> None:
        """End what features have beside the calls of connections: the server stops."""
        for stopping in self._stopping:
            for effect in stopping(reason):
                if isinstance(effect, Abort):
                    self.engine.abort(effect.invocation, effect.reason)
                elif isinstance(effect, FeatureCallback):
                    effect.function()

    def connect_host(self, send: Send, transport_type: TransportType) -> Connection:
        """Return a connection of an embedding host, on its running event loop if it has one.

        Raises:
            UsageError: the server has lifespan hooks that have not been entered (OPS-06).
        """
        if self.lifespan is not None and not self.lifespan.is_open:
            raise UsageError(
                "the server has lifespan hooks: connect within `async with server.lifetime():`,"
                " or in a host without an event loop within `with server.lifetime():`"
            )
        loop = running_loop()

        def deliver(message: Reply | Notify) -> None:
            send(message.line)

        if loop is None:
            connection = self.connect(deliver, transport_type, self._background)
        else:
            host = self._host_monitor(loop)
            connection = self.connect(deliver, transport_type, host.host)
            host.watch(connection)
        self.start_agents(connection.scheduler)
        return connection

    def use_loop(self, loop: asyncio.AbstractEventLoop, user: Closable) -> HostLoop:
        """Return the scheduler of `loop`, whose delay is monitored until `user` is closed."""
        host = self._host_monitor(loop)
        host.watch(user)
        return host.host

    @property
    def is_serving(self) -> bool:
        """Return whether a connection or an application on a host's event loop is open."""
        return self._monitored_host is not None and self._monitored_host.is_used()

    def _host_monitor(self, loop: asyncio.AbstractEventLoop) -> HostLoopMonitor:
        """Return the monitor of `loop`; the delay of the latest loop is the reported one."""
        if self._monitored_host is None or self._monitored_host.host.loop is not loop:
            from .engine.loop_monitor import HostLoopMonitor

            self._monitored_host = monitored = HostLoopMonitor(HostLoop(loop))
            self.resources.event_loop_delay = lambda: monitored.monitor.p99_ms(time.monotonic())
        return self._monitored_host

    def report_interruption(self, message: str, error: BaseException | None) -> None:
        """Log an exception that was thrown into an idle thread of the runtime (ERR-07)."""
        described = None if error is None else describe_exception(error)
        self.logger.error(message, {"error": described})

    def report_loop_error(self, message: str, error: BaseException | None) -> None:
        """Log an error on an event loop of the runtime outside any call."""
        described = None if error is None else describe_exception(error)
        self.logger.error("event loop error", {"what": message, "error": described})

    def flush_logs(self, timeout: float) -> None:
        """Write the buffered log and audit records, in `timeout` seconds at most, and go on."""
        until = time.monotonic() + timeout
        if self.audit is not None:
            self.audit.flush(timeout * _AUDIT_SHARE)  # what it cannot write is logged
            timeout = max(0.0, until - time.monotonic())
        if self._sink is not None:
            self._sink.flush(timeout)

    def close_logs(self, timeout: float) -> None:
        """Write the buffered log and audit records, in `timeout` seconds at most, and end that."""
        until = time.monotonic() + timeout
        if self.audit is not None:
            self.audit.close(timeout * _AUDIT_SHARE)
            timeout = max(0.0, until - time.monotonic())
        if self._sink is not None:
            self._sink.close(timeout)


def compose(
    registry: ToolRegistry,
    options: ServerOptions,
    config: ServerConfig,
    context: type[HandlerContext[Any]],
) -> Runtime:
    """Create every component that `options` does not contain, and wire all of them.

    Args:
        registry: the tools of the server.
        options: components, and what the author has registered.
        config: the configuration.
        context: the class of the contexts that handlers get.
    """
    clock = options.clock or SystemClock()
    ids = options.id_generator or UuidGenerator()
    sink: StderrSink | None = None
    logger = options.logger
    if logger is None:
        capacity, form = config.logging.buffer_bytes, options.log_form
        sink = (
            FormedSink(form, capacity, clock=clock) if form else StderrSink(capacity, clock=clock)
        )
        redactor = Redactor(config.logging.redact_keys)
        logger = StructuredLogger(sink, clock, config.logging.level, redactor)
    registry.use_separator(config.tools.name_separator)
    registry.use_formats(config.tools.check_formats)
    registry.attach_logger(logger)
    resources = options.resource_manager or ResourceManager(config, resident_memory_bytes)
    info = ServerInfo(
        config.server.name,
        config.server.version,
        options.instructions,
        options.title,
        options.website_url,
        options.icons,
        options.experimental,
    )
    results = ResultWriter(info, config.server.cache_ttl_ms, config.server.cache_scope)
    publisher = options.publisher
    directory = SessionDirectory(clock) if publisher is None else publisher.directory
    registry.observe(directory)
    calls = CallLifecycle(resources, config.tools, registry, ids, results)
    dispatcher = Dispatcher(results, calls, config.server.page_size)
    workers = WorkerPool(resources.config.resources.max_concurrent_executions)
    lifespan, middleware = options.lifespan, options.middleware
    if lifespan is not None:
        lifespan.attach_logger(logger)
    engine = Engine(
        dispatcher,
        clock,
        config,
        workers,
        directory,
        lifespan=lifespan,
        make_context=context,
    )
    engine.dependency_overrides = options.dependency_overrides
    runtime = Runtime(
        config,
        logger,
        registry,
        resources,
        ids,
        clock,
        dispatcher,
        directory,
        engine,
        lifespan,
        sink,
    )
    if options.features is not None:
        runtime.attach_features(options.features)
    if options.agent_coordinator is not None:
        runtime.attach_agents(options.agent_coordinator)
    if middleware or options.call_observers or config.is_operated():
        from ..features.middleware import build_stack

        try:
            stack = build_stack(
                config,
                registry,
                resources,
                dispatcher,
                clock,
                logger,
                middleware,
                options.call_observers,
                has_others=options.forwarder is not None,
            )
        except MissingExtraError as error:
            raise error.also(*config.extras()) from None
        runtime.use_stack(stack)
    if options.checks is not None:
        runtime.checks = options.checks
        options.checks.attach(clock, logger)
    runtime.http_pages, runtime.http_app = options.http_pages, options.http_app
    runtime.http_middleware = options.http_middleware
    if options.instruments is not None:
        runtime.attach_instruments(options.instruments)
    if config.is_dynamic_registration_effective():
        from ..features.admin import add_admin_tools

        add_admin_tools(registry, config, resources, lambda: runtime.agents)
    if config.tools.admin_agents_enabled:
        from ..features.agent_tools.administration import add_agent_admin_tools

        add_agent_admin_tools(registry, config.tools, lambda: runtime.agents)
    return runtime
