"""A server whose time, coroutines and workers a test controls, and a handler that waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from foundation_rt import ToolContext, ToolDefinition
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.settings import ResourcesSection, ServerConfig, ToolsSection
from foundation_rt.features.middleware import wrap
from foundation_rt.kernel.engine.executor import Engine
from tests.lab.clock.fake_scheduler import FakeScheduler, HeldWorkers
from tests.lab.servers.fixture import LIST_CHANGED, ServerFixture, ServerPeer

if TYPE_CHECKING:
    from foundation_rt.features.middleware import Middleware

ANYTHING = {"type": "object"}


class EngineHarness:
    """A server whose time, coroutines and workers a test controls."""

    def __init__(
        self,
        *,
        slots: int = 10,
        clock: ManualClock | None = None,
        middleware: Sequence[Middleware] = (),
        **limits: Any,
    ) -> None:
        self.clock = clock or ManualClock()
        self.rig = ServerFixture(
            ServerConfig(
                tools=ToolsSection(**{"default_timeout_ms": 1000, "cancel_grace_ms": 300} | limits),
                resources=ResourcesSection(max_concurrent_executions=slots),
            ),
            self.clock,
        )
        runtime = self.rig.server.runtime
        self.workers = HeldWorkers()
        self.engine = runtime.engine = Engine(
            runtime.dispatcher,
            self.clock,
            runtime.config,
            self.workers,  # type: ignore[arg-type]
            runtime.directory,
            ToolContext,
        )
        self.engine.around = partial(wrap, middleware) if middleware else None
        self.scheduler = FakeScheduler(self.clock)
        self.broken = False  # whether every send fails
        self.peer = self.connect()

    def __enter__(self) -> EngineHarness:
        return self

    def __exit__(self, *error: object) -> None:
        self.scheduler.close()

    def connect(self) -> ServerPeer:
        peer = ServerPeer()

        def send(line: bytes) -> None:
            if orjson.loads(line) == LIST_CHANGED:
                return  # tests register their tools while this peer is connected
            if self.broken:
                raise BrokenPipeError(32, "Broken pipe")
            peer.receive(line)

        peer.connection = self.rig.server.runtime.connect(
            lambda message: send(message.line), "memory", self.scheduler
        )
        peer.shake_hands()
        return peer

    def tool(self, handler: Callable[..., Any], **options: Any) -> str:
        """Register a handler under its own name; a lambda, which has none, as `lambda`."""
        name = getattr(handler, "__name__", type(handler).__name__).strip("<>")
        self.rig.server.register(ToolDefinition(name, "", ANYTHING), handler, **options)
        return name

    def start(self, tool: str) -> int | str:
        request_id = self.peer.start(tool)
        self.scheduler.settle()
        return request_id

    def wait(self, milliseconds: float) -> None:
        self.scheduler.advance(milliseconds / 1000)

    @property
    def record(self) -> dict[str, Any]:
        """The only completion record."""
        [record] = self.rig.records
        return record

    def assert_over(self) -> None:
        """Check that nothing is left: no slot, no handler, no timer, no id in flight."""
        self.rig.assert_all_ended()
        assert self.scheduler.timers == []
        assert self.peer.connection.session.in_flight == {}


class HeldHandler:
    """A coroutine handler that waits until the test ends it, and keeps what it was given."""

    __name__ = "held"

    def __init__(self) -> None:
        self.context: ToolContext
        self.cancellations = 0
        self.stubborn = False
        self._end: asyncio.Future[Any]

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        self.context = context
        while True:
            self._end = asyncio.get_running_loop().create_future()
            try:
                return await self._end
            except asyncio.CancelledError:
                self.cancellations += 1
                if not self.stubborn:
                    raise

    def end(self, value: Any = None) -> None:
        if isinstance(value, BaseException):
            self._end.set_exception(value)
        else:
            self._end.set_result(value)
