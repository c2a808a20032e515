"""The runtime: the kernel of one server, wired, and its connections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..base.ids import IdGenerator
from ..base.logs.logger import StderrSink, StructuredLogger
from ..errors import describe_exception
from ..protocol.framing import LineReader
from .call_lifecycle import Hooks
from .effects import Abort, FeatureCallback
from .engine.connection import Connection, Deliver, Observe
from .engine.executor import Engine
from .execution_limits import ResourceManager
from .feature import hooks, use
from .registry.tools import ToolRegistry
from .session import Session, TransportType, create_session

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from ..protocol.principal import Principal
    from .engine.scheduling import Scheduler
    from .feature import RuntimeFeature

_DRAIN_SHARE = 0.5
"""The share of the time for leaving the lifespan in which handlers may still end."""


class Runtime:
    """Every component of a server, wired; beside what features add.

    Attributes:
        lifespan: the hooks of the server, if it has any.
        background: returns what runs beside the calls, from the first connection on.
        background_task: its task, once it was started.
        observers: are given the records of calls and handshakes.
    """

    background: Callable[[], Coroutine[Any, Any, None] | None] | None = None
    background_task: asyncio.Task[None] | None = None
    _has_begun = False
    _closing: Hooks = ()
    _stopping: Hooks = ()
    _features: Sequence[RuntimeFeature] = ()

    def __init__(
        self,
        engine: Engine,
        logger: StructuredLogger,
        registry: ToolRegistry,
        resources: ResourceManager,
        ids: IdGenerator,
        sink: StderrSink | None,
    ) -> None:
        self.engine = engine
        self.config = engine.config
        self.clock = engine.clock
        self.dispatcher = engine.dispatcher
        self.directory = engine.directory
        self.lifespan = engine.lifespan
        self.logger = logger
        self.registry = registry
        self.resources = resources
        self.ids = ids
        self._sink = sink
        self.observers: list[Observe] = []
        engine.workers.on_error = self.report_interruption

    def use(self, features: Sequence[RuntimeFeature]) -> None:
        """Let features join, before the server is served."""
        self._closing = hooks(features, "close")
        self._stopping = hooks(features, "stopping")
        self._features = features
        self.engine.opening = hooks(features, "opening")
        self.engine.starting = hooks(features, "starting")
        self.engine.forgetting = hooks(features, "forget")
        self.engine.ended = hooks(features, "session_ended")
        use(self.dispatcher, features)
        for feature in features:
            feature.join(self.engine)

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
        return any(each.needs_event_loop for each in self._features)

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

    def start_background(self, scheduler: Scheduler) -> None:
        """Start what runs beside the calls, once."""
        if self.background is None or self._has_begun:
            return
        self._has_begun = True
        background = self.background()
        if background is not None:
            scheduler.start_task(background, self._keep_background)

    def _keep_background(self, task: asyncio.Task[None]) -> None:
        self.background_task = task  # asyncio itself keeps only a weak reference

    async def stop_background(self) -> None:
        """End what runs beside the calls, on the same event loop."""
        if not self._has_begun:
            return
        import asyncio

        if self.background_task is None:
            await asyncio.sleep(0)  # it has begun, and the loop has yet to hand it over
        task, self.background_task, self._has_begun = self.background_task, None, False
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

    def report_interruption(self, message: str, error: BaseException | None) -> None:
        """Log an exception that was thrown into an idle thread of the runtime (ERR-07)."""
        described = None if error is None else describe_exception(error)
        self.logger.error(message, {"error": described})

    def report_loop_error(self, message: str, error: BaseException | None) -> None:
        """Log an error on an event loop of the runtime outside any call."""
        described = None if error is None else describe_exception(error)
        self.logger.error("event loop error", {"what": message, "error": described})

    def flush_logs(self, timeout: float) -> None:
        """Write the buffered records, in `timeout` seconds at most, and go on."""
        if self._sink is not None:
            self._sink.flush(timeout)

    def close_logs(self, timeout: float) -> None:
        """Write the buffered records, in `timeout` seconds at most, and end that."""
        if self._sink is not None:
            self._sink.close(timeout)
