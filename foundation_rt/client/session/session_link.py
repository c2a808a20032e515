"""The one session that a client has: made when it is first needed, and again when it is lost.

However many calls wait for it, it is made once (CLIENT-07).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from attrs import define, field

from ...errors import UsageError
from ...ids import RequestIdGenerator
from ...protocol.revisions import NEWEST_HANDSHAKE_REVISION, REVISIONS, Revision
from ..errors import CallTimeoutError, ConnectionLostError, MCPError
from ..handlers.client_handlers import ClientHandlers
from ..options import ClientOptions
from ..transports.transport import Transport
from .handshake import Handshake
from .pending_requests import PendingRequests
from .session import NotificationObserver, Session
from .shared_task import client_closed, join, shared, stop

TransportFactory = Callable[[], Transport]
"""Makes a new channel to the same server; called for every session."""


@define(eq=False, repr=False)
class SessionLink:
    """Keeps a session.

    Args:
        prepare: what belongs to beginning, beyond the handshake; what it raises ends the session.

    Attributes:
        channel: the last one there was; None before the first.
        loop: the event loop it was first used on; None before.
    """

    make_transport: TransportFactory
    options: ClientOptions
    handlers: ClientHandlers
    ids: RequestIdGenerator
    observer: NotificationObserver
    prepare: Callable[[Session], Awaitable[None]]
    transport: Transport | None = field(default=None, init=False)
    loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _session: Session | None = field(default=None, init=False)
    _connecting: asyncio.Task[Session] | None = field(default=None, init=False)
    _known: Revision | None = field(default=None, init=False)
    _waiting: int = field(default=0, init=False)  # callers, for the session being made
    _overdue: asyncio.Timeout | None = field(default=None, init=False)
    _is_closed: bool = field(default=False, init=False)

    @property
    def current(self) -> Session | None:
        """The session there is; None if there is none that can be used."""
        session = self._session
        return session if session is not None and session.is_usable else None

    async def session(self) -> Session:
        """The session there is, or a new one.

        Raises:
            MCPError: none can be made.
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
        """Raise unless the client can be used here and now.

        Raises:
            ConnectionLostError: it is closed.
            UsageError: it was first used on another event loop.
        """
        if self._is_closed:
            raise client_closed()
        self._stay()

    async def close(self) -> None:
        """End the session; there will be no other one."""
        if not self._is_closed:
            self._stay()
        self._is_closed = True
        try:
            if self._connecting is not None:
                await stop(self._connecting)
        finally:
            if self._session is not None:
                await self._session.close()

    def not_ready(self, purpose: str, limit: float) -> CallTimeoutError:
        """That nothing could be sent in time, with what is known of why.

        Args:
            purpose: what was to be sent, or nothing.
            limit: the time there was, in s.
        """
        transport = self.transport
        assert transport is not None  # connecting begins with it
        wanted = f" for {purpose}" if purpose else ""
        message = f"{transport.description} was not ready{wanted} within {limit:g} s"
        said = transport.stderr_tail()
        return CallTimeoutError(f"{message}: {said}" if said else message, may_have_run=False)

    def _stay(self) -> None:
        """Hold that there is one event loop: a session of another one would never answer."""
        loop = asyncio.get_running_loop()
        if self.loop is None:
            self.loop = loop
        elif self.loop is not loop:
            raise UsageError(
                "a client belongs to the event loop that it was first used on: close it there, "
                "and make another one here"
            )

    def _connected(self, task: asyncio.Task[Session]) -> None:
        self._connecting = None

    async def _connect(self) -> Session:
        if self._session is not None:
            # Closed at once, one that has expired could not hear what did not run either.
            await self._session.ended.wait()
            await self._session.close()
        handshake = self._handshake(self._known)
        try:
            session = await self._begin(self.make_transport(), handshake)
        except ConnectionLostError as error:
            # What nobody has read says only that there is no way to the server (CHILD-15).
            if not (error.may_have_run and handshake.may_have_ended_it):
                raise
            # There are servers of the older kind that end, or hang up, when they are asked what
            # they do not know: this one is not probed again (CLIENT-02).
            handshake = self._handshake(REVISIONS[NEWEST_HANDSHAKE_REVISION])
            session = await self._begin(self.make_transport(), handshake)
        self._session = session
        session.is_begun = True
        self._known = session.server.revision
        return session

    @asynccontextmanager
    async def _time_to_begin(self, transport: Transport) -> AsyncIterator[None]:
        """Limit the time to connect: `connect_timeout`, and longer while a process is waited for.

        A process that is slow to start is worth nothing when it is ended and started again. The
        deadlines of the calls that wait for it are the limit then (CHILD-17).
        """
        async with asyncio.timeout(self.options.connect_timeout) as limit:
            if transport.has_exchanges:
                yield
                return
            limit.reschedule(None)
            loop = asyncio.get_running_loop()
            timer = loop.call_later(self.options.connect_timeout, self._be_overdue, limit)
            try:
                yield
            finally:
                timer.cancel()
                self._overdue = None

    def _be_overdue(self, limit: asyncio.Timeout) -> None:
        self._overdue = limit
        self._look()

    def _look(self) -> None:
        """Give up what takes too long, once no caller waits for it."""
        if self._overdue is not None and not self._waiting:
            self._overdue.reschedule(asyncio.get_running_loop().time())
            self._overdue = None

    def _handshake(self, known: Revision | None) -> Handshake:
        options = self.options
        return Handshake(options.info, self.handlers.capabilities, options.forced, known)

    async def _begin(self, transport: Transport, handshake: Handshake) -> Session:
        options = self.options
        self._known = None  # remembered from a success only
        self.transport = transport
        session = Session(
            transport,
            PendingRequests(self.ids),
            handshake,
            self.handlers,
            self.observer,
            options.probe_timeout,
            options.handler_timeout,
            options.log_level,
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
