"""The one session of a client: made on first use, and again after it was lost.

All calls that wait for it share one attempt to connect (CLIENT-07).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from attrs import define, field

from ...base.request_ids import RequestIdGenerator
from ...errors import UsageError
from ...protocol.revisions import NEWEST_HANDSHAKE_REVISION, REVISIONS, Revision
from ..errors import CallTimeoutError, ConnectionLostError, MCPError
from ..handlers.server_requests import ServerRequestHandlers
from ..options import ClientOptions
from ..resilience.deadline import Deadline, DeadlineTimer
from ..transports.transport import Transport
from .handshake import Handshake
from .pending_requests import PendingRequests
from .session import ClientSession, SessionObserver
from .shared_task import client_closed, join, shared, stop

TransportFactory = Callable[[], Transport]
"""Makes a new transport to the same server; called for each session."""


@define(eq=False, repr=False)
class SessionLink:
    """Holds the current session, and makes the next one.

    Args:
        prepare: runs after the handshake; an exception ends the session.
        watch: of the client's deadlines; those to connect stand still with them.

    Attributes:
        transport: the latest one; None before the first.
        loop: the event loop of its first use; None before that.
    """

    make_transport: TransportFactory
    options: ClientOptions
    handlers: ServerRequestHandlers
    ids: RequestIdGenerator
    observer: SessionObserver
    prepare: Callable[[ClientSession], Awaitable[None]]
    watch: DeadlineTimer = field(factory=DeadlineTimer)
    transport: Transport | None = field(default=None, init=False)
    loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _session: ClientSession | None = field(default=None, init=False)
    _connecting: asyncio.Task[ClientSession] | None = field(default=None, init=False)
    _known: Revision | None = field(default=None, init=False)
    _waiting: int = field(default=0, init=False)  # callers, for the session being made
    _overdue: asyncio.Timeout | None = field(default=None, init=False)
    _is_closed: bool = field(default=False, init=False)

    @property
    def current(self) -> ClientSession | None:
        """The session, if it takes requests, else None."""
        session = self._session
        return session if session is not None and session.is_usable else None

    def now(self) -> float:
        """Return the time of the event loop, also while that does not run; 0 before its use."""
        return 0.0 if self.loop is None else self.loop.time()

    async def session(self) -> ClientSession:
        """Return the session, or make a new one.

        Raises:
            MCPError: it cannot be made.
            UsageError: the client was first used on another event loop.
        """
        self.check()
        session = self._session
        if session is not None and session.is_usable:
            return session
        if self._connecting is None:
            self._connecting = shared(self._connect())
            self._connecting.add_done_callback(self._connected)
        self._waiting += 1
        try:
            return await join(self._connecting)
        finally:
            self._waiting -= 1
            self._look()

    def check(self) -> None:
        """Raise if the client is closed, or belongs to another event loop.

        Raises:
            ConnectionLostError: it is closed.
            UsageError: it was first used on another event loop.
        """
        if self._is_closed:
            raise client_closed()
        self._check_loop()

    async def close(self) -> None:
        """End the session for good."""
        if not self._is_closed:
            self._check_loop()
        self._is_closed = True
        try:
            if self._connecting is not None:
                await stop(self._connecting)
        finally:
            if self._session is not None:
                await self._session.close()

    def not_ready(self, purpose: str, limit: float) -> CallTimeoutError:
        """Return the error for a request that could not be sent in time, with the cause if known.

        Args:
            purpose: the request; may be empty.
            limit: the timeout, in s.
        """
        transport = self.transport
        assert transport is not None  # connecting begins with it
        wanted = f" for {purpose}" if purpose else ""
        message = f"{transport.description} was not ready{wanted} within {limit:g} s"
        said = transport.stderr_tail()
        return CallTimeoutError(f"{message}: {said}" if said else message, may_have_run=False)

    def _check_loop(self) -> None:
        """Raise on another event loop: a session belongs to one."""
        loop = asyncio.get_running_loop()
        if self.loop is None:
            self.loop = loop
        elif self.loop is not loop:
            raise UsageError(
                "a client belongs to the event loop that it was first used on: close it there, "
                "and make another one here"
            )

    def _connected(self, task: asyncio.Task[ClientSession]) -> None:
        self._connecting = None

    async def _connect(self) -> ClientSession:
        if self._session is not None:
            # Closed at once, an expired session could not report the requests that did not run.
            await self._session.ended.wait()
            await self._session.close()
        handshake = self._handshake(self._known)
        try:
            session = await self._begin(self.make_transport(), handshake)
        except ConnectionLostError as error:
            # A message that was never read says only that there is no connection (CHILD-15).
            if not (error.may_have_run and handshake.may_have_ended_it):
                raise
            # Some older servers end, or close the connection, on an unknown method: this one is
            # not probed again (CLIENT-02).
            handshake = self._handshake(REVISIONS[NEWEST_HANDSHAKE_REVISION])
            session = await self._begin(self.make_transport(), handshake)
        self._session = session
        session.is_begun = True
        self._known = session.server.revision
        if session.error is None:
            self.observer.connected(session.server)
        return session

    @asynccontextmanager
    async def _time_to_begin(self, transport: Transport) -> AsyncIterator[None]:
        """Limit the time to connect: `connect_timeout`, longer for a process that calls wait for.

        Restarting a process that is slow to start would not help. The deadlines of the calls that
        wait for it are the limit then (CHILD-17).
        """
        loop = asyncio.get_running_loop()
        if transport.has_exchanges:
            async with Deadline(loop.time() + self.options.connect_timeout, watch=self.watch):
                yield
            return
        async with asyncio.timeout(None) as limit:
            timer = loop.call_later(self.options.connect_timeout, self._mark_overdue, limit)
            try:
                yield
            finally:
                timer.cancel()
                self._overdue = None

    def _mark_overdue(self, limit: asyncio.Timeout) -> None:
        self._overdue = limit
        self._look()

    def _look(self) -> None:
        """Abort an overdue start as soon as no call waits for it."""
        if self._overdue is not None and not self._waiting:
            self._overdue.reschedule(asyncio.get_running_loop().time())
            self._overdue = None

    def _handshake(self, known: Revision | None) -> Handshake:
        options = self.options
        capabilities = self.handlers.capabilities
        return Handshake(options.info, capabilities, options.forced, known, options.extensions)

    async def _begin(self, transport: Transport, handshake: Handshake) -> ClientSession:
        options = self.options
        self._known = None  # set again by a success
        self.transport = transport
        session = ClientSession(
            transport,
            PendingRequests(self.ids),
            handshake,
            self.handlers,
            self.observer,
            options.probe_timeout,
            options.handler_timeout,
            options.log_level,
            self.watch,
        )
        try:
            async with self._time_to_begin(transport):
                await session.start(options.require)
                await self.prepare(session)
        except MCPError:
            await session.close()
            raise
        except TimeoutError:
            await session.close()
            raise self.not_ready("", options.connect_timeout) from None
        except BaseException:
            await session.close()
            raise
        return session
