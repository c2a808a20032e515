"""Streamable HTTP, the client's side: every message is a POST, and its response has the answer.

    send ──► task of the message ──► exchange ─┬─► 202       there is nothing to say
                                               ├─► JSON      the answer
                                               ├─► events    what precedes the answer, and it
                                               └─► refused   failed, or the old transport
    agreed ► task that listens ────► GET ────────► events    of the server, in the handshake mode

There is no connection that could be lost: what goes wrong is one request's. Only a session can end,
when its server does not know it any more, or with the one stream of the old transport.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

from attrs import define, field

from ..errors import MCPError, SessionExpiredError, unexpected_error
from .http_exchange import INITIALIZE, HttpExchanges
from .http_headers import describe, session_headers
from .http_legacy import LegacyStream
from .http_server import HttpServer
from .http_streams import EventStreams, expired
from .http_wire import CONNECT_TIMEOUT, HttpWire
from .redaction import RedactingReceiver
from .transport import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from ...protocol.revisions import Revision
    from .transport import ClientMessage, Receiver


log = logging.getLogger("foundation_rt.client")

FAREWELL_TIMEOUT: Final = 2.0
"""Seconds that a server has to take note of the end of a session."""

_INITIALIZED = "notifications/initialized"
_LISTEN = "subscriptions/listen"  # lasts as long as the session: it would hold a place for ever
_MAX_TOLD = 20  # notifications under way; a thousand calls may be cancelled at once
_MAX_ANSWERS = 100  # that a server has not taken; one that asks on may not cost more than that
_PATIENCE = 1.0  # s; for what is under way in a session that has expired
# What is said of a server of the old transport, which takes no POST where its stream is.
_NO_ENDPOINT = ({"status": 400}, {"status": 404}, {"status": 405})


@define(eq=False, repr=False)
class HttpTransport:
    """A `Transport` over HTTP.

    Args:
        max_message_bytes: longest message that is taken from the server.
    """

    has_exchanges: ClassVar[bool] = True

    server: HttpServer
    max_message_bytes: int = MAX_MESSAGE_BYTES
    description: str = field(init=False)
    _receiver: Receiver = field(init=False)
    _wire: HttpWire | None = field(default=None, init=False)
    _streams: EventStreams = field(init=False)
    _exchanges: HttpExchanges = field(init=False)
    _legacy: LegacyStream | None = field(default=None, init=False)
    _tasks: set[asyncio.Task[None]] = field(factory=set, init=False)
    _requests: dict[str, asyncio.Task[None]] = field(factory=dict, init=False)
    _answers: set[asyncio.Task[None]] = field(factory=set, init=False)
    _admission: RequestLimiter = field(init=False)
    _telling: asyncio.Semaphore = field(factory=lambda: asyncio.Semaphore(_MAX_TOLD), init=False)
    _introduction: asyncio.Task[None] | None = field(default=None, init=False)
    _expiry: asyncio.Task[None] | None = field(default=None, init=False)
    _closing: asyncio.Task[None] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.description = describe(self.server.url)
        self._admission = RequestLimiter(self.server.max_connections)

    # -- beginning and end

    async def open(self, receiver: Receiver) -> None:
        """Get ready; the first connection is made with the first message.

        Raises:
            ConnectionLostError: the environment's proxy or certificates cannot be used.
        """
        self._wire = HttpWire(self.server)
        self._receiver = RedactingReceiver(receiver, self._wire.secrets)
        self._streams = EventStreams(self._wire, self._receiver, self.max_message_bytes)
        self._exchanges = HttpExchanges(self._streams)

    def negotiated(self, revision: Revision) -> None:
        """Say `revision` from now on; listen, if it is one that has sessions (CHTTP-27)."""
        self._streams.revision = revision
        if not revision.is_stateless and self._legacy is None:
            self._start(self._listen())

    async def close(self) -> None:
        """End what runs, the session, and all connections; at most `FAREWELL_TIMEOUT` late."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._end())
        if self._closing.done():
            return
        try:
            await asyncio.wait({self._closing})
        except asyncio.CancelledError:
            self._closing.cancel()  # no time for farewells
            await asyncio.wait({self._closing})
            raise

    def stderr_tail(self) -> str:
        """Nothing: what there is to say is in the errors."""
        return ""

    # -- messages

    @property
    def is_congested(self) -> bool:
        """Return whether as many requests are under way as may be, or others wait already."""
        return self._admission.is_full

    async def drained(self) -> None:
        """Wait until another request can be sent, in the order of those who wait (CHTTP-10)."""
        await self._admission.wait()

    def send(self, message: ClientMessage) -> None:
        """POST a message. What follows `notifications/initialized` waits until that was taken."""
        if self._wire is None or self._closing is not None:
            return
        is_answer = message.method is None
        if is_answer and len(self._answers) >= _MAX_ANSWERS:
            log.debug("dropped: an answer; the server does not take those to what it asked before")
            return
        task = self._start(self._carry(message, self._wire))
        if is_answer:
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)
        if message.method == _INITIALIZED:
            self._introduction = task
        if message.request_id is not None:
            self._requests[message.request_id] = task
            if message.method != _LISTEN:
                self._admission.take()
                task.add_done_callback(self._admitted)

    def _admitted(self, task: asyncio.Task[None]) -> None:
        self._admission.give_back()

    def forget(self, request_id: str) -> None:
        """Close the exchange of a request, which tells the server of the stateless mode."""
        task = self._requests.pop(request_id, None)
        if task is not None:
            task.cancel()

    # -- one message

    async def _carry(self, message: ClientMessage, wire: HttpWire) -> None:
        """Send a message and bring home what comes of it."""
        try:
            if message.method != _INITIALIZED:
                await self._introduced()
            if self._legacy is not None:
                await self._legacy.post(message)
            elif self._expiry is not None:
                raise expired()
            elif message.request_id is None and message.method is not None:
                async with self._telling:
                    await self._exchanges.run(message)
            else:
                await self._exchange_or_turn(message, wire)
        except MCPError as error:
            self._failed(message, error)
            if isinstance(error, SessionExpiredError):
                self._expire()
        except Exception as error:
            self._failed(message, _unexpected(error))
        finally:
            if message.request_id is not None:
                self._requests.pop(message.request_id, None)

    async def _exchange_or_turn(self, message: ClientMessage, wire: HttpWire) -> None:
        """Send it; to a server that takes no POST here and has the old transport, by that one."""
        try:
            await self._exchanges.run(message)
        except MCPError as error:
            if message.method != INITIALIZE or error.data not in _NO_ENDPOINT:
                raise
            self._legacy = await self._find_legacy(wire)
            if self._legacy is None:
                raise
            await self._legacy.post(message)

    async def _introduced(self) -> None:
        """Wait until the server knows that the handshake is over: two POSTs have no order."""
        if self._introduction is not None and not self._introduction.done():
            await asyncio.wait({self._introduction})

    def _failed(self, message: ClientMessage, error: MCPError) -> None:
        if message.request_id is not None:
            self._receiver.failed(message.request_id, error)
        else:
            what = message.method or "an answer"
            log.warning("the server did not take %s: %s", what, error.code)

    # -- what runs beside

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _listen(self) -> None:
        await self._introduced()
        try:
            await self._streams.listen()
        except SessionExpiredError:
            self._expire()
        except Exception as error:
            _unexpected(error)

    async def _find_legacy(self, wire: HttpWire) -> LegacyStream | None:
        """The old transport, if the server has it; its end is that of the channel (CHTTP-30)."""
        legacy = LegacyStream(wire, self._receiver, self.max_message_bytes, self.server.url)
        reading = self._start(self._read(legacy))
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                if await legacy.is_offered():
                    return legacy
        except TimeoutError:
            pass
        finally:
            if not legacy.is_open:
                reading.cancel()
        return None

    async def _read(self, legacy: LegacyStream) -> None:
        try:
            error = await legacy.read()
        except Exception as bug:
            error = _unexpected(bug)
        if legacy.is_open:
            self._admission.open()
            self._receiver.lost(error)

    def _expire(self) -> None:
        if self._expiry is None:
            self._expiry = self._start(self._lose_session())

    async def _lose_session(self) -> None:
        """Let what is under way hear for itself that it did not run (CHTTP-18)."""
        under_way = set(self._requests.values())
        if under_way:
            await asyncio.wait(under_way, timeout=_PATIENCE)
        self._admission.open()
        self._receiver.lost(expired())
        for task in self._requests.values():
            task.cancel()

    async def _end(self) -> None:
        self._admission.open()
        if self._wire is None:
            return
        tasks = {*self._tasks}
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                await asyncio.wait(tasks)
            await self._say_farewell(self._wire)
        finally:
            await self._wire.close()

    async def _say_farewell(self, wire: HttpWire) -> None:
        """End the session, so that its server need not wait for it to expire (CHTTP-19)."""
        if self._streams.session_id is None or self._expiry is not None:
            return
        headers = session_headers(self._streams.revision, self._streams.session_id)
        with suppress(Exception):
            async with (
                asyncio.timeout(FAREWELL_TIMEOUT),
                wire.exchange("DELETE", headers),
            ):
                pass


@define(eq=False, repr=False)
class RequestLimiter:
    """The places of one channel (CHTTP-10).

    Args:
        most: requests that may be under way.
    """

    most: int
    _taken: int = field(default=0, init=False)
    _granted: int = field(default=0, init=False)
    _queue: deque[asyncio.Future[None]] = field(factory=deque, init=False)
    _is_open: bool = field(default=False, init=False)

    @property
    def is_full(self) -> bool:
        """Return whether a new request has to wait: no place is free, or others wait already."""
        is_busy = self._taken + self._granted >= self.most or bool(self._queue)
        return is_busy and not self._is_open

    async def wait(self) -> None:
        """Wait until the caller may send, in turn. Cancelled, it leaves its place to the next."""
        if not self.is_full:
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._queue.append(turn)
        try:
            await turn
        finally:
            if turn.cancelled():
                if turn in self._queue:  # not, if a place was given back since it was cancelled
                    self._queue.remove(turn)
            elif not self._is_open:
                self._granted -= 1
                # The caller may not send after all: then the next one may.
                loop.call_soon(self._let_in)

    def take(self) -> None:
        """Count a request that is sent."""
        self._taken += 1

    def give_back(self) -> None:
        """Count a request whose exchange is over."""
        self._taken -= 1
        self._let_in()

    def open(self) -> None:
        """Let everybody through from now on: nothing will be sent any more."""
        self._is_open = True
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)

    def _let_in(self) -> None:
        while self._queue and self._taken + self._granted < self.most:
            turn = self._queue.popleft()
            if not turn.done():
                self._granted += 1
                turn.set_result(None)


def _unexpected(error: Exception) -> MCPError:
    """Log a bug of this program; return the error for the caller (CLIENT-18)."""
    unexpected = unexpected_error(error)
    log.error(unexpected.message)
    return unexpected
