"""Streamable HTTP, the client's side: every message is a POST, its HTTP response has the result.

    send ──► task of the message ──► exchange ─┬─► 202       there is nothing to say
                                               ├─► JSON      the response
                                               ├─► events    what precedes the response, and it
                                               └─► refused   failed, or the old transport
    agreed ► task that listens ────► GET ────────► events    of the server, in the handshake mode

No connection can be lost: each failure belongs to one request. Only a session can end, when its
server does not know it any more, or with the one stream of the old transport.

`LegacyStream` is HTTP+SSE, the transport of revision 2024-11-05: one stream down, POSTs up
(CHTTP-30 to CHTTP-32). The first event of the stream names the place to POST to; everything that
the server says is an event of the stream. With the stream the session ends: there is no
resuming.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urljoin

from attrs import define, field

from ...base.http_client.network import CONNECT_SECONDS
from ...base.http_client.values import readable_url, same_origin
from ...protocol.framing import LineTooLong
from ...protocol.methods import INITIALIZE, NOTIFICATIONS_INITIALIZED, SUBSCRIPTIONS_LISTEN
from ..errors import (
    CallTimeoutError,
    ConnectionLostError,
    InvalidResponseError,
    MCPError,
    SessionExpiredError,
    unexpected_error,
)
from ..targets import HttpServer
from .http_headers import message_headers, session_headers, stream_headers
from .http_streams import EventStreams, HttpExchanges, expired
from .http_wire import ACKNOWLEDGE_TIMEOUT, HttpWire, is_events, read_refusal
from .redaction import RedactingReceiver
from .sse import EventReader, ServerSentEvent
from .transport import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from ...protocol.revisions import Revision
    from ..auth.authorizer import Authorizer
    from .transport import ClientMessage, Receiver


log = logging.getLogger("foundation_rt.client")

DELETE_TIMEOUT: Final = 2.0
"""Seconds that a server has to respond to the DELETE of a session."""

_MAX_NOTIFICATIONS = 20  # notifications under way; a thousand calls may be cancelled at once
_MAX_RESPONSES = 100  # responses that the server has not taken; further ones are dropped
_EXPIRY_SECONDS = 1.0  # s; for what is under way in a session that has expired
# The error data that suggest the old transport, which takes no POST at the URL of its stream.
_NO_ENDPOINT = ({"status": 400}, {"status": 404}, {"status": 405})


@define(eq=False, repr=False)
class HttpTransport:
    """A `Transport` over HTTP.

    Args:
        max_message_bytes: longest message that is accepted from the server, in bytes.
        authorizer: of the client; None: one of its own, if the server's `auth` describes one.
    """

    has_exchanges: ClassVar[bool] = True

    server: HttpServer
    max_message_bytes: int = MAX_MESSAGE_BYTES
    authorizer: Authorizer | None = None
    description: str = field(init=False)
    _receiver: Receiver = field(init=False)
    _wire: HttpWire | None = field(default=None, init=False)
    _streams: EventStreams = field(init=False)
    _exchanges: HttpExchanges = field(init=False)
    _legacy: LegacyStream | None = field(default=None, init=False)
    _tasks: set[asyncio.Task[None]] = field(factory=set, init=False)
    _requests: dict[str, asyncio.Task[None]] = field(factory=dict, init=False)
    _responses: set[asyncio.Task[None]] = field(factory=set, init=False)
    _admission: RequestLimiter = field(init=False)
    _notifying: asyncio.Semaphore = field(
        factory=lambda: asyncio.Semaphore(_MAX_NOTIFICATIONS), init=False
    )
    _initialized: asyncio.Task[None] | None = field(default=None, init=False)
    _expiry: asyncio.Task[None] | None = field(default=None, init=False)
    _closing: asyncio.Task[None] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.description = readable_url(self.server.url)
        self._admission = RequestLimiter(self.server.max_connections)
        if self.authorizer is None:
            self.authorizer = authorizer_of(self.server)

    # -- start and end

    async def open(self, receiver: Receiver) -> None:
        """Prepare; the first message makes the first connection.

        Raises:
            ConnectionLostError: the environment's proxy or certificates cannot be used.
        """
        self._wire = HttpWire(self.server, self.authorizer)
        self._receiver = RedactingReceiver(receiver, self._wire.secrets)
        self._streams = EventStreams(self._wire, self._receiver, self.max_message_bytes)
        self._exchanges = HttpExchanges(self._streams)

    def negotiated(self, revision: Revision) -> None:
        """Send `revision` from now on; listen, if it has sessions (CHTTP-27)."""
        self._streams.revision = revision
        if not revision.is_stateless and self._legacy is None:
            self._start(self._listen())

    async def close(self) -> None:
        """End all requests, the session and all connections, within `DELETE_TIMEOUT`."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._end())
        if self._closing.done():
            return
        try:
            await asyncio.wait({self._closing})
        except asyncio.CancelledError:
            self._closing.cancel()  # skip the DELETE
            await asyncio.wait({self._closing})
            raise

    def stderr_tail(self) -> str:
        """Return nothing: the errors say it."""
        return ""

    # -- messages

    @property
    def is_congested(self) -> bool:
        """Return whether no slot is free, or other requests wait already."""
        return self._admission.is_full

    async def drained(self) -> None:
        """Wait for a slot, in order (CHTTP-10)."""
        await self._admission.wait()

    def send(self, message: ClientMessage) -> None:
        """POST a message; later ones wait until `notifications/initialized` was taken."""
        if self._wire is None or self._closing is not None:
            return
        is_response = message.method is None
        if is_response and len(self._responses) >= _MAX_RESPONSES:
            log.debug("dropped: a response; the server has not taken the earlier ones")
            return
        task = self._start(self._send_message(message, self._wire))
        if is_response:
            self._responses.add(task)
            task.add_done_callback(self._responses.discard)
        if message.method == NOTIFICATIONS_INITIALIZED:
            self._initialized = task
        if message.request_id is not None:
            self._requests[message.request_id] = task
            if message.method != SUBSCRIPTIONS_LISTEN:  # it lasts as long as the session
                self._admission.take()
                task.add_done_callback(lambda _: self._admission.give_back())

    def forget(self, request_id: str) -> None:
        """Close the exchange of a request, which cancels it in the stateless mode."""
        task = self._requests.pop(request_id, None)
        if task is not None:
            task.cancel()

    # -- one message

    async def _send_message(self, message: ClientMessage, wire: HttpWire) -> None:
        """Send a message, and handle its response."""
        try:
            if message.method != NOTIFICATIONS_INITIALIZED:
                await self._wait_initialized()
            if self._legacy is not None:
                await self._legacy.post(message)
            elif self._expiry is not None:
                raise expired()
            elif message.request_id is None and message.method is not None:
                async with self._notifying:
                    await self._exchanges.run(message)
            else:
                await self._exchange_or_fall_back(message, wire)
        except MCPError as error:
            self._failed(message, error)
            if isinstance(error, SessionExpiredError):
                self._expire()
        except Exception as error:
            self._failed(message, _unexpected(error))
        finally:
            if message.request_id is not None:
                self._requests.pop(message.request_id, None)

    async def _exchange_or_fall_back(self, message: ClientMessage, wire: HttpWire) -> None:
        """Send it; fall back to the old transport for a server that takes no POST here."""
        try:
            await self._exchanges.run(message)
        except MCPError as error:
            if message.method != INITIALIZE or error.data not in _NO_ENDPOINT:
                raise
            self._legacy = await self._find_legacy(wire)
            if self._legacy is None:
                raise
            await self._legacy.post(message)

    async def _wait_initialized(self) -> None:
        """Wait until the server has `notifications/initialized`: two POSTs have no order."""
        if self._initialized is not None and not self._initialized.done():
            await asyncio.wait({self._initialized})

    def _failed(self, message: ClientMessage, error: MCPError) -> None:
        if message.request_id is not None:
            self._receiver.failed(message.request_id, error)
        else:
            what = message.method or "a response"
            log.warning("the server did not take %s: %s", what, error.code)

    # -- background tasks

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _listen(self) -> None:
        await self._wait_initialized()
        try:
            await self._streams.listen()
        except SessionExpiredError:
            self._expire()
        except Exception as error:
            _unexpected(error)

    async def _find_legacy(self, wire: HttpWire) -> LegacyStream | None:
        """Return the old transport, if the server has it; its end ends the session (CHTTP-30)."""
        legacy = LegacyStream(wire, self._receiver, self.max_message_bytes, self.server.url)
        reading = self._start(self._read(legacy))
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
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
        """Give pending requests time to get their own error (CHTTP-18)."""
        under_way = set(self._requests.values())
        if under_way:
            await asyncio.wait(under_way, timeout=_EXPIRY_SECONDS)
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
            await self._delete_session(self._wire)
        finally:
            await self._wire.close()
            if self.authorizer is not None:
                await self.authorizer.settled()

    async def _delete_session(self, wire: HttpWire) -> None:
        """DELETE the session, so that it need not expire (CHTTP-19)."""
        if self._streams.session_id is None or self._expiry is not None:
            return
        headers = session_headers(self._streams.revision, self._streams.session_id)
        with suppress(Exception):
            async with (
                asyncio.timeout(DELETE_TIMEOUT),
                wire.exchange("DELETE", headers),
            ):
                pass


@define(eq=False, repr=False)
class RequestLimiter:
    """Limits the requests of one transport; more of them wait in order (CHTTP-10).

    A request takes a slot, and releases it when its exchange is over. A caller that was let through
    takes its slot in the same step of the event loop, so a granted slot counts for that step only.

    Args:
        most: requests at one time.
    """

    most: int
    _taken: int = field(default=0, init=False)
    _granted: int = field(default=0, init=False)
    _queue: deque[asyncio.Future[None]] = field(factory=deque, init=False)
    _is_open: bool = field(default=False, init=False)

    @property
    def is_full(self) -> bool:
        """Return whether a new request has to wait: no slot is free, or others wait already."""
        # A granted slot is not taken yet: a new request would overtake the one that has it.
        is_busy = self._granted or self._queue or self._taken >= self.most
        return bool(is_busy) and not self._is_open

    async def wait(self) -> None:
        """Wait until the caller may send, in order; a cancelled caller gives up its slot."""
        if not self.is_full:
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._queue.append(turn)
        try:
            await turn
        finally:
            if turn.cancelled():
                if turn in self._queue:  # unless a slot was released since the cancellation
                    self._queue.remove(turn)
            elif not self._is_open:
                self._granted -= 1
                # The caller may not send after all; then the next one may.
                loop.call_soon(self._let_in)

    def take(self) -> None:
        """Count a request that is sent."""
        self._taken += 1

    def give_back(self) -> None:
        """Count a request whose exchange is over."""
        self._taken -= 1
        self._let_in()

    def open(self) -> None:
        """Let all callers through from now on: nothing will be sent any more."""
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


def authorizer_of(server: HttpServer) -> Authorizer | None:
    """Return what authorizes requests to a server, if its `auth` describes that."""
    if server.auth is None:
        return None
    from ..auth.descriptions import is_description

    if not is_description(server.auth):
        return None
    from ..auth.authorizer import Authorizer

    return Authorizer(server.url, server.auth)


def _unexpected(error: Exception) -> MCPError:
    """Log a bug of this program; return the error for the caller (CLIENT-18)."""
    unexpected = unexpected_error(error)
    log.error(unexpected.message)
    return unexpected


@define(eq=False, repr=False)
class LegacyStream:
    """A session of the HTTP+SSE transport.

    Args:
        url: of the stream.
    """

    wire: HttpWire
    receiver: Receiver
    max_bytes: int
    url: str
    _endpoint: asyncio.Future[str | MCPError] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._endpoint = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        """Return whether the server has named its endpoint."""
        return self._endpoint.done() and isinstance(self._endpoint.result(), str)

    async def is_offered(self) -> bool:
        """Wait until the server has named its endpoint, or has failed to.

        Raises:
            InvalidResponseError: it named one that is not its own.
        """
        named = await asyncio.shield(self._endpoint)
        if isinstance(named, InvalidResponseError):
            raise named
        return isinstance(named, str)

    async def read(self) -> MCPError:
        """Read the stream to its end; return the reason of its end."""
        try:
            await self._read()
            error: MCPError = ConnectionLostError(
                "the server has ended the stream", may_have_run=True
            )
        except MCPError as broken:
            error = broken
        if not self._endpoint.done():
            self._endpoint.set_result(error)
        return error

    async def _read(self) -> None:
        reader = EventReader(self.max_bytes)
        async with self.wire.exchange("GET", stream_headers(None, None)) as response:
            if response.status_code != 200 or not is_events(response):
                raise self.wire.refusal(response, b"")
            async for chunk in response.chunks():
                for event in reader.feed(chunk):
                    self._take(event)

    async def post(self, message: ClientMessage) -> None:
        """Send a message; its response, if it has one, comes in the stream.

        The response may arrive before the POST is acknowledged; that is waited for no longer than
        for a notification.

        Raises:
            MCPError: it was not accepted.
        """
        url = self._endpoint.result()
        assert isinstance(url, str)
        headers = message_headers(message, None)
        try:
            async with (
                asyncio.timeout(ACKNOWLEDGE_TIMEOUT),
                self.wire.exchange("POST", headers, message.line, url) as response,
            ):
                if response.status_code >= 300:
                    raise self.wire.refusal(response, await read_refusal(response))
        except CallTimeoutError:  # what a status says
            raise
        except TimeoutError:
            pass

    def _take(self, event: ServerSentEvent | LineTooLong) -> None:
        if isinstance(event, LineTooLong):
            self.receiver.received(event, None)
        elif self._endpoint.done():
            if event.kind == "message":
                self.receiver.received(event.data, None)
        elif event.kind == "endpoint":
            self._endpoint.set_result(self._place(event.data))

    def _place(self, data: bytes) -> str:
        """Return the URL to POST to; of the same origin only, since requests carry tokens."""
        url = urljoin(self.url, data.decode("utf-8", "replace"))
        if not same_origin(self.url, url):
            raise InvalidResponseError(
                "the server names an endpoint that is not its own", may_have_run=False
            )
        return url
