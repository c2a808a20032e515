"""Serving over HTTP: from the socket to the exit code (spec/http.md, spec/process.md).

`HttpServing` is uvicorn around one application, as a coroutine for whichever loop there is.
`HttpProcess` is a process that does nothing else:

    serving ── a signal ──► no new connections; calls may finish, subscriptions are told
    ── all answered, or four fifths of the time are over ──► what runs is aborted
    ── lifespan left ──► gone

A second signal, or the end of `server.shutdown_timeout_ms`, ends the process at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import uvicorn
import uvloop
from attrs import define, field

from ...core.records import identity_fields
from ...engine.forks import ForkGuard
from ...engine.loop_monitor import LoopDelay
from ...engine.scheduling import report_errors, run_protected
from ...errors import UsageError
from ..stdio.loop import finish_loop
from ..stdio.watchdog import Watchdog
from .application import HttpApplication
from .garbage import collecting_rarely
from .guard import is_loopback
from .signals import handling_signals
from .unread import Unread
from .wire import BoundedProtocol, UvicornLog, WireLimits
from .workers import report_serving

if TYPE_CHECKING:
    from types import FrameType

    from ...config.settings import HttpSection
    from ...runtime import Runtime

_BACKLOG = 2048

# The share of the shutdown budget in which requests may still be answered; then what runs is
# aborted. After the second one responses that have not ended are cut, after the third whatever
# still runs is left behind.
_PATIENCE = 0.8
_CUT = 0.86
_STOP = 0.9
_UVICORN_PAUSES = 0.1  # seconds, before it begins to wait

_LAST_WORDS = 0.2  # seconds for the log, when the process is ended
_LOOP_GRACE = 0.5  # seconds in which tasks that handlers left behind may end when cancelled


def listen(settings: HttpSection, *, shares_port: bool = False) -> socket.socket:
    """A socket that listens where `settings` says.

    Args:
        shares_port: other processes listen there too, and each gets some of the connections.

    Raises:
        UsageError: nothing can listen there; says why.
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
        budget: seconds from `stop` to the end of `run`.
        on_serving: called when it begins to serve.
    """

    application: HttpApplication
    runtime: Runtime
    _socket: socket.socket
    _budget: float
    _on_serving: Callable[[], object] = field(default=lambda: None)
    _server: uvicorn.Server = field(init=False)
    _stopping_since: float | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.runtime.config.http
        limits = WireLimits(settings.header_timeout_ms, settings.max_connections)
        unread = Unread(settings.max_unread_bytes, time.monotonic)
        config = uvicorn.Config(
            self.application,
            http=partial(BoundedProtocol, limits, unread),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",  # started and stopped here, where a failure can be told
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )
        # uvicorn's annotations say whole seconds; it waits for fractions as well.
        config.timeout_keep_alive = limits.keep_alive_seconds  # type: ignore[assignment]
        self._server = _Server(config, self)

    @property
    def url(self) -> str:
        """Of the endpoint."""
        host, port = self._socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{port}{self.runtime.config.http.path}"

    async def run(self) -> None:
        """Serve until `stop`, and then until all has ended or its time is up.

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
        """Take no more connections, let what runs end, and have `run` return."""
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
        self._on_serving()

    @property
    def descriptors(self) -> list[int]:
        """Of the listening socket and of the connections."""
        connections = self._server.server_state.connections
        found = [each.transport.get_extra_info("socket") for each in connections]
        return [each.fileno() for each in (self._socket, *found) if each is not None]

    def remaining(self, share: float = _STOP) -> float:
        """Seconds left of a share of the budget."""
        if self._stopping_since is None:
            return self._budget
        return max(0.0, self._stopping_since + self._budget * share - time.monotonic())


class _Server(uvicorn.Server):
    """uvicorn's, without its signal handlers: they would decide on the exit code."""

    def __init__(self, config: uvicorn.Config, serving: HttpServing) -> None:
        super().__init__(config)
        self._serving = serving

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for responses; before uvicorn cuts them, have them end (HTTP-16)."""
        serving = self._serving
        loop = asyncio.get_running_loop()
        timer = loop.call_later(serving.remaining(_PATIENCE), serving.application.abandon)
        seconds = max(0.0, serving.remaining(_CUT) - _UVICORN_PAUSES)
        self.config.timeout_graceful_shutdown = seconds  # type: ignore[assignment]
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()


@contextmanager
def _uvicorn_logs(runtime: Runtime) -> Iterator[None]:
    """While this lasts, what uvicorn logs is in our log and nowhere else."""
    logger, handler = logging.getLogger("uvicorn.error"), UvicornLog(runtime.logger)
    previous = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate, logger.level = False, logging.WARNING
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate, logger.level = previous


def serve(runtime: Runtime, *, process_goes_on: bool = False, shares_port: bool = False) -> int:
    """Serve over HTTP until a signal comes; return the exit code: 143, 130 or 129 (HTTP-22).

    Args:
        process_goes_on: the process may live on when all has ended; otherwise it is ended at the
            latest when its budget is spent, whatever keeps the interpreter alive (PROC-06).
        shares_port: this is one of several processes behind one port.

    Raises:
        UsageError: the server cannot be served so; says why and what to change.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError(
            "HTTP is served in the main thread, where signals come: elsewhere, hand asgi_app() to"
            " an ASGI server"
        )
    serving = make_serving(runtime, shares_port=shares_port)
    return HttpProcess(runtime, serving, process_goes_on, shares_port).run()


def make_serving(runtime: Runtime, *, shares_port: bool = False) -> HttpServing:
    """A server as its configuration has it, listening already.

    Args:
        shares_port: this is one of several processes behind one port.

    Raises:
        UsageError: it cannot be served so; says why and what to change.
    """
    settings = runtime.config.http
    application = HttpApplication(runtime, settings.path)
    budget = runtime.config.server.shutdown_timeout_ms / 1000
    opened = listen(settings, shares_port=shares_port)
    if shares_port:
        return HttpServing(application, runtime, opened, budget, report_serving)
    return HttpServing(application, runtime, opened, budget)


@define(eq=False, repr=False)
class HttpProcess:
    """A process that serves HTTP alone; made and run in the main thread.

    Args:
        process_goes_on: the process may live on when all has ended; otherwise it is ended at the
            latest when its budget is spent, whatever keeps the interpreter alive (PROC-06).
        ends_with_input: standard input at its end is as good as SIGTERM: whoever holds the other
            end has gone.
    """

    runtime: Runtime
    _serving: HttpServing
    _process_goes_on: bool
    _ends_with_input: bool = False
    _loop: asyncio.AbstractEventLoop = field(factory=uvloop.new_event_loop, init=False)
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
            LoopDelay(),
            hang_up_budget=budget,
            signal_budget=budget,
            on_blocked=lambda seconds: None,
            on_signal=self._wake,
            end_process=self._end_process,
        )
        asyncio.set_event_loop(self._loop)
        report_errors(self._loop, self.runtime.report_loop_error)
        self._watchdog.start()
        self._guard = ForkGuard(
            self.runtime.engine, self._own_descriptors, self._on_signal, self.runtime.flush_logs
        )
        try:
            with handling_signals(self._on_signal), collecting_rarely():
                self._run_loop()
        finally:
            finish_loop(self._loop, _LOOP_GRACE, None)
            self._account_for_what_runs()
            self._guard.stop()
            self.runtime.close_logs(1.0)
            if self._process_goes_on or self._signal is None:
                self._watchdog.stop()
        return 128 + (self._signal or 0)

    def _own_descriptors(self) -> list[int]:
        return [*self._serving.descriptors, *self._watchdog.descriptors]

    def _run_loop(self) -> None:
        task = self._loop.create_task(self._serve())
        task.add_done_callback(lambda _: self._loop.stop())
        while not task.done():
            run_protected(self._loop)  # a task of a handler may raise SystemExit through the loop
        task.result()

    async def _serve(self) -> None:
        # The loop has just claimed the descriptor that signals are written to. The watchdog needs
        # them more: it wakes the loop, and ends the process where the loop cannot be woken.
        previous = signal.set_wakeup_fd(self._watchdog.signal_descriptor, warn_on_full_buffer=False)
        if self._ends_with_input:
            self._loop.add_reader(0, self._on_input)
        try:
            await self._serving.run()
        finally:
            signal.set_wakeup_fd(previous)

    def _on_input(self) -> None:
        if not os.read(0, 64):
            self._loop.remove_reader(0)
            signal.raise_signal(signal.SIGTERM)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._signal is None:
            self._signal = number
            self._loop.call_soon_threadsafe(self._serving.stop)
        else:
            self._watchdog.limit(0, 128 + number)  # asked twice: at once

    def _wake(self) -> None:
        """Have the interpreter call `_on_signal`, which it does between two steps of the loop."""
        self._loop.call_soon_threadsafe(lambda: None)

    def _account_for_what_runs(self) -> None:
        """PROC-10: what has not ended is named, and has its record."""
        for call in self.runtime.engine.give_up():
            fields = identity_fields(call)
            self.runtime.logger.warn("handler has not ended; the process ends without it", fields)

    def _end_process(self, exit_code: int) -> None:
        """The last resort: calls and log are settled, everything else is left where it is."""
        last = threading.Thread(target=self._settle, daemon=True)
        last.start()
        last.join(_LAST_WORDS)
        self.runtime.close_logs(_LAST_WORDS)
        os._exit(exit_code)

    def _settle(self) -> None:
        self._serving.application.abandon()
        self._account_for_what_runs()
