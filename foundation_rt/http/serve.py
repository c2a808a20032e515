"""Serving over HTTP: from the socket to the exit code (spec/http.md, spec/process.md).

`HttpServing` is uvicorn around one application, as a coroutine for any event loop. `HttpProcess`
is a process that does nothing else:

    serving ── a signal ──► no new connections; calls may finish, subscriptions end
    ── all answered, or four fifths of the time are over ──► running calls are aborted
    ── lifespan left ──► gone

A second signal, or the end of `server.shutdown_timeout_ms`, ends the process at once.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from attrs import define, field

if sys.platform == "win32":
    from asyncio import new_event_loop
else:
    from uvloop import new_event_loop

from ..errors import UsageError
from ..kernel.engine.forks import ForkGuard
from ..kernel.engine.loop_monitor import LoopMonitor
from ..kernel.engine.scheduling import report_errors, run_protected
from ..kernel.engine.shutdown import (
    HANDLER_SHARE,
    LOOP_GRACE_SECONDS,
    STOP_SHARE,
    abandon_calls,
    end_process,
    exit_code,
    handling_signals,
)
from ..kernel.records import identity_fields
from ..kernel.stdio.loop import finish_loop
from ..kernel.stdio.watchdog import Watchdog
from .app import HttpApplication
from .cluster.worker_processes import report_serving
from .host_check import is_loopback
from .uvicorn_protocol import BoundedProtocol, ConnectionLimits, UnreadBytes, UvicornLogHandler

if TYPE_CHECKING:
    from types import FrameType

    from ..base.config.http_sections import HttpSection
    from ..features.composition import ServerRuntime
    from .cluster.worker_group import WorkerGroup
    from .cluster.worker_processes import WorkerPlace

_BACKLOG = 2048

_RESPONSE_SHARE = 0.86
"""The share of the shutdown budget after which responses that have not ended are cut off."""

_UVICORN_PAUSE = 0.1  # seconds, before uvicorn begins to wait

_GC_ALLOCATIONS = 10_000


def listen(settings: HttpSection, *, shares_port: bool = False) -> socket.socket:
    """Return a socket that listens at the address in `settings`.

    Args:
        settings: the section `http`.
        shares_port: whether other processes listen there too, each for some of the connections.

    Raises:
        UsageError: the address cannot be used; says why.
    """
    if shares_port and settings.port == 0:
        raise UsageError("several workers need a port to share: --http HOST:PORT, or http.port")
    host, port = settings.host.strip("[]"), settings.port
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(
            address[:2], family=family, backlog=_BACKLOG, reuse_port=shares_port
        )
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another address with"
            " --http HOST:PORT, or http.host and http.port"
        ) from error


@define(eq=False, repr=False)
class HttpServing:
    """One application behind one listening socket; belongs to one event loop.

    Args:
        budget: the time from `stop` to the end of `run`, in seconds.
        is_worker: whether it is one of several processes behind one port.

    Attributes:
        on_serving: called with the URL when it begins to serve.
        monitor: a turn of it lasts from one tick of uvicorn, of ten in a second, to the next.
    """

    application: HttpApplication
    runtime: ServerRuntime
    _socket: socket.socket
    _budget: float
    _is_worker: bool = False
    on_serving: Callable[[str], object] | None = field(default=None, init=False)
    monitor: LoopMonitor = field(factory=LoopMonitor, init=False)
    _server: uvicorn.Server = field(init=False)
    _stopping_since: float | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.runtime.config.http
        limits = ConnectionLimits(settings.header_timeout_ms, settings.max_connections)
        unread = UnreadBytes(settings.max_unread_bytes, time.monotonic)
        config = uvicorn.Config(
            self.application,
            http=partial(BoundedProtocol, limits, unread),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",  # started and stopped here, where a failure can be raised
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )
        if self.runtime.http_app is not None and self.runtime.http_app.websocket:
            from .uvicorn_websocket import take_websockets

            take_websockets(config, unread)
        # uvicorn's annotations say whole seconds; it waits for fractions as well.
        config.timeout_keep_alive = limits.keep_alive_seconds  # type: ignore[assignment]
        self._server = _Server(config, self)

    @property
    def url(self) -> str:
        """Return the URL of the endpoint; of the application, where MCP is not served."""
        host, port = self._socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        path = self.runtime.config.http.path if self.runtime.serves_endpoint else "/"
        return f"http://{shown}:{port}{path}"

    async def run(self) -> None:
        """Serve until `stop`, and then until every call has ended or the time is up.

        Raises:
            LifespanError: a hook of the server could not be entered.
        """
        with self._socket, _uvicorn_logs(self.runtime):
            await self.application.start()
            try:
                self._announce()
                await self._server.serve([self._socket])
            finally:
                await self.application.stop(self.remaining())

    def stop(self) -> None:
        """Take no more connections, let calls end, and make `run` return."""
        if self._stopping_since is None:
            self._stopping_since = time.monotonic()
            self.application.begin_stop()
            self._server.should_exit = True

    def _announce(self) -> None:
        self.runtime.logger.info("serving over HTTP", {"url": self.url})
        if not is_loopback(self.runtime.config.http.host):
            self.runtime.logger.warn(
                "HTTP is open to other machines, and without TLS: put a proxy in front of it",
                {"url": self.url},
            )
        if self._is_worker:
            report_serving()
        if self.on_serving is not None:
            self.on_serving(self.url)

    @property
    def descriptors(self) -> list[int]:
        """Return the descriptors of the listening socket and of the connections."""
        connections = self._server.server_state.connections
        found = [each.transport.get_extra_info("socket") for each in connections]
        group = self.application.group
        others = () if group is None else group.descriptors
        return [*(each.fileno() for each in (self._socket, *found) if each is not None), *others]

    def remaining(self, share: float = STOP_SHARE) -> float:
        """Return what is left of a share of the budget, in seconds."""
        if self._stopping_since is None:
            return self._budget
        return max(0.0, self._stopping_since + self._budget * share - time.monotonic())


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers, which would determine the exit code."""

    def __init__(self, config: uvicorn.Config, serving: HttpServing) -> None:
        super().__init__(config)
        self._serving = serving

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen at the private addresses too, where other workers connect."""
        await super().startup(sockets)
        group = self._serving.application.group
        if group is not None:
            self.servers += await self._listen_for(group)

    async def _listen_for(self, group: WorkerGroup) -> list[asyncio.Server]:
        loop, protocol = asyncio.get_running_loop(), cast("Any", self.config.http_protocol_class)
        connect = partial(
            protocol,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        return [
            await (
                loop.create_unix_server(connect, sock=each)
                if each.family == socket.AF_UNIX
                else loop.create_server(connect, sock=each)
            )
            for each in group.sockets
        ]

    async def on_tick(self, counter: int) -> bool:
        """Begin a turn: what blocks the loop makes it last."""
        self._serving.monitor.begin_turn(time.monotonic())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for responses, and end them before uvicorn would cut them off (HTTP-16)."""
        serving = self._serving
        serving.monitor.end_turn(time.monotonic())
        loop = asyncio.get_running_loop()
        timer = loop.call_later(serving.remaining(HANDLER_SHARE), serving.application.abandon)
        seconds = max(0.0, serving.remaining(_RESPONSE_SHARE) - _UVICORN_PAUSE)
        self.config.timeout_graceful_shutdown = seconds  # type: ignore[assignment]
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()


@contextmanager
def _uvicorn_logs(runtime: ServerRuntime) -> Iterator[None]:
    """Redirect uvicorn's log to the server's log within the block."""
    logger, handler = logging.getLogger("uvicorn.error"), UvicornLogHandler(runtime.logger)
    previous = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate, logger.level = False, logging.WARNING
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate, logger.level = previous


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Collect garbage after 10,000 new objects within the block, and ignore the existing ones.

    Python's default is 700. The objects of 128 open requests are more than that, so each was
    looked at several times, for a tenth of the time of a call.
    """
    previous = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_GC_ALLOCATIONS, *previous[1:])
    try:
        yield
    finally:
        gc.set_threshold(*previous)
        gc.unfreeze()


def serve(
    runtime: ServerRuntime,
    *,
    process_goes_on: bool = False,
    place: WorkerPlace | None = None,
    on_serving: Callable[[str], object] | None = None,
) -> int:
    """Serve over HTTP until a signal comes; return the exit code: 143, 130 or 129 (HTTP-22).

    Args:
        runtime: the server's runtime.
        process_goes_on: whether the process may continue afterwards. Otherwise it ends at the
            latest when its budget is spent, whatever keeps the interpreter alive (PROC-06).
        place: that of this process, if it is one of several behind one port.
        on_serving: called with the URL of the endpoint when it begins to serve.

    Raises:
        UsageError: the server cannot be served so; says why and what to change.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError(
            "HTTP is served in the main thread, where signals come: elsewhere, hand asgi_app() to"
            " an ASGI server"
        )
    serving = make_serving(runtime, place)
    serving.on_serving = on_serving
    return HttpProcess(runtime, serving, process_goes_on, place is not None).run()


def make_serving(runtime: ServerRuntime, place: WorkerPlace | None = None) -> HttpServing:
    """Return the serving of a runtime as its configuration describes it, already listening.

    Args:
        runtime: the server's runtime.
        place: that of this process, if it is one of several behind one port.

    Raises:
        UsageError: the server cannot be served so; says why and what to change.
    """
    settings, is_worker = runtime.config.http, place is not None
    application = HttpApplication(runtime, settings.path)
    budget = runtime.config.server.shutdown_timeout_ms / 1000
    opened = listen(settings, shares_port=is_worker)
    if is_worker or settings.worker_address is not None:
        from .cluster.worker_group import make_group

        application.group = make_group(runtime, place)
        runtime.engine.is_one_of_several = True
    return HttpServing(application, runtime, opened, budget, is_worker)


@define(eq=False, repr=False)
class HttpProcess:
    """A process that serves HTTP only; made and run in the main thread.

    Args:
        process_goes_on: whether the process may continue afterwards. Otherwise it ends at the
            latest when its budget is spent, whatever keeps the interpreter alive (PROC-06).
        ends_with_input: whether the end of standard input counts as SIGTERM, because the process
            that holds its other end has gone.
    """

    runtime: ServerRuntime
    _serving: HttpServing
    _process_goes_on: bool
    _ends_with_input: bool = False
    _loop: asyncio.AbstractEventLoop = field(factory=new_event_loop, init=False)
    _watchdog: Watchdog = field(init=False)
    _signal: int | None = field(default=None, init=False)
    _guard: ForkGuard = field(init=False)

    def run(self) -> int:
        """Serve until a signal comes; return the exit code: 143, 130 or 129.

        Raises:
            LifespanError: a hook of the server could not be entered.
        """
        budget = self.runtime.config.server.shutdown_timeout_ms / 1000
        self._watchdog = Watchdog(
            None,
            self._serving.monitor,
            hang_up_budget=budget,
            signal_budget=budget,
            on_blocked=self._report_blocked,
            on_signal=self._wake,
            end_process=self._end_process,
        )
        asyncio.set_event_loop(self._loop)
        report_errors(self._loop, self.runtime.report_loop_error)
        self._watchdog.start()
        self._guard = ForkGuard(
            self.runtime.engine, self._own_descriptors, self._on_signal, self.runtime.flush_logs
        )
        signals = ExitStack()
        try:
            signals.enter_context(handling_signals(self._on_signal))
            with collecting_rarely():
                self._run_loop()
        finally:
            if self._signal is None:
                signals.close()
            finish_loop(self._loop, LOOP_GRACE_SECONDS, None)
            abandon_calls(self.runtime.engine, self.runtime.logger)
            self._guard.stop()
            self.runtime.close_logs(1.0)
            if self._process_goes_on or self._signal is None:
                signals.close()
                self._watchdog.stop()
        return exit_code(self._signal or 0)

    def _own_descriptors(self) -> list[int]:
        return [*self._serving.descriptors, *self._watchdog.descriptors]

    def _run_loop(self) -> None:
        task = self._loop.create_task(self._serve())
        task.add_done_callback(lambda _: self._loop.stop())
        while not task.done():
            run_protected(self._loop)  # a handler's task may raise SystemExit through the loop
        task.result()

    async def _serve(self) -> None:
        # The loop has just claimed the descriptor that signals are written to. The watchdog claims
        # it back: it wakes the loop, and ends the process if the loop cannot be woken.
        previous = signal.set_wakeup_fd(self._watchdog.signal_descriptor, warn_on_full_buffer=False)
        if self._ends_with_input:
            self._loop.add_reader(0, self._on_input)
        try:
            await self._serving.run()
        finally:
            if self._process_goes_on or self._signal is None:
                signal.set_wakeup_fd(previous)

    def _on_input(self) -> None:
        with suppress(ConnectionResetError):  # it has gone, and had not read that this one serves
            if os.read(0, 64):
                return
        self._loop.remove_reader(0)
        signal.raise_signal(signal.SIGTERM)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._signal is None:
            self._signal = number
            self._loop.call_soon_threadsafe(self._serving.stop)
        else:
            self._watchdog.limit(0, exit_code(number))  # the second signal: at once

    def _report_blocked(self, seconds: float) -> None:
        """Log the handler that blocks the event loop (TIME-09)."""
        call = self.runtime.engine.on_loop(self._loop)
        if call is not None:  # else the process may have been stopped for a while
            fields = {"blockedSeconds": round(seconds, 1), **identity_fields(call)}
            self.runtime.logger.warn("a handler blocks the event loop", fields)

    def _wake(self) -> None:
        """Let the interpreter call `_on_signal`, which it does between two steps of the loop."""
        with suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(lambda: None)

    def _end_process(self, exit_code: int) -> None:
        end_process(self._settle, self.runtime.close_logs, exit_code)

    def _settle(self) -> None:
        self._serving.application.abandon()
        abandon_calls(self.runtime.engine, self.runtime.logger)
