"""POSTs and their responses (CHTTP-13 to -18); streams, resumed and listened to (-20 to -29).

In the handshake mode a stream may end before its response: the server ended it, to be polled later
(SEP-1699), or the connection broke. It is resumed after its last event, if that had an id. In the
stateless mode nothing is resumed: a stream that ends without its response has failed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from attrs import define, field

from ...base.backoff import exponential_delay
from ...base.shown import Shown
from ...protocol.framing import LineTooLong
from ...protocol.jsonrpc import Response as RpcResponse
from ...protocol.jsonrpc import parse
from ...protocol.methods import INITIALIZE
from ..errors import (
    CallTimeoutError,
    ConnectionLostError,
    InvalidResponseError,
    MCPError,
    SessionExpiredError,
)
from .http_headers import can_resume, is_session_id, message_headers, stream_headers
from .http_wire import ACKNOWLEDGE_TIMEOUT, HttpWire, is_events, is_json, read_body, read_refusal
from .sse import EventReader, ServerSentEvent

if TYPE_CHECKING:
    from ...base.http_client.exchange import HttpResponse
    from ...protocol.revisions import Revision
    from .transport import ClientMessage, Receiver

MAX_ATTEMPTS: Final = 5
"""Most attempts in a row to resume a stream that bring no event."""

_RETRY_MS = 1_000  # if the server names no time
_LEAST_RETRY = 0.01  # s; if the server names 0, so that it cannot keep us busy
_MOST_RETRY = 30.0  # s; bound of the backoff
_LINGER_SECONDS = (
    1.0  # s; for the end of a stream whose response has come, so that its connection is kept
)
_STATUS_SAYS_MORE = (401, 403, 404, 405, 429)  # than a JSON-RPC error that names no request


@define(eq=False, repr=False)
class ReconnectBackoff(Shown):
    """The backoff before a stream is opened again.

    Attributes:
        failures: attempts in a row without an event.
    """

    failures: int = 0

    def delay(self, retry_ms: int | None, draw: float) -> float:
        """Return the seconds to wait, at least as the server asks.

        Args:
            retry_ms: what the server asks for; None for nothing.
            draw: random, from 0 to 1, so that many clients do not reconnect at one time.
        """
        least = max((_RETRY_MS if retry_ms is None else retry_ms) / 1000, _LEAST_RETRY)
        most = max(least, exponential_delay(self.failures + 1, least, _MOST_RETRY))
        return least + draw * (most - least)


@define(eq=False, repr=False)
class EventStreams:
    """The event streams of one session.

    Attributes:
        revision: of the session; None before one is agreed on.
        session_id: as the server set it; None if it set none.
    """

    wire: HttpWire
    receiver: Receiver
    max_bytes: int
    revision: Revision | None = field(default=None, init=False)
    session_id: str | None = field(default=None, init=False)

    def reader(self) -> EventReader:
        """Return a reader for a new stream."""
        return EventReader(self.max_bytes)

    async def relay(
        self, response: HttpResponse, reader: EventReader, request_id: str | None
    ) -> None:
        """Pass on the messages of a stream, until it ends or its request has a response.

        Raises:
            MCPError: it broke off.
        """
        chunks = response.chunks()
        async for chunk in chunks:
            for event in reader.feed(chunk):
                self._hand_on(event, request_id)
            if request_id is not None and not self.receiver.awaits(request_id):
                await _linger(chunks)
                return

    async def resume(self, reader: EventReader, request_id: str, reason: MCPError) -> None:
        """Resume the stream of a request that has no response yet (CHTTP-24 to CHTTP-26).

        Args:
            reader: of the stream that has ended.
            request_id: of the request.
            reason: of the end; raised if it cannot be resumed.

        Raises:
            MCPError: no response will come.
        """
        pace = ReconnectBackoff()
        while self.receiver.awaits(request_id):
            if pace.failures == MAX_ATTEMPTS or not can_resume(reader.last_id):
                raise reason
            await asyncio.sleep(pace.delay(reader.retry_ms, random.random()))
            try:
                reader = await self._attempt(reader, request_id, pace)
            except _StreamRefused:
                raise reason from None

    async def listen(self) -> None:
        """Listen to messages without a request, while the server offers a stream (CHTTP-27).

        Raises:
            SessionExpiredError: the server does not know the session any more.
        """
        reader, pace = self.reader(), ReconnectBackoff()
        was_offered = False
        while True:
            try:
                reader = await self._attempt(reader, None, pace)
            except _StreamRefused as refused:
                # A server without such a stream may answer 404.
                if was_offered and refused.status == 404 and self.session_id is not None:
                    raise expired() from None
                return
            was_offered = was_offered or pace.failures == 0
            await asyncio.sleep(pace.delay(reader.retry_ms, random.random()))

    async def _attempt(
        self, before: EventReader, request_id: str | None, pace: ReconnectBackoff
    ) -> EventReader:
        """Open or resume a stream, and read it to its end, also after an error.

        Raises:
            _StreamRefused: the server does not offer it.
        """
        last_id = before.last_id if can_resume(before.last_id) else None
        reader = EventReader(self.max_bytes, last_id, before.retry_ms)
        headers = stream_headers(self.revision, self.session_id, last_id)
        try:
            async with self.wire.exchange("GET", headers) as response:
                status = response.status_code
                if status < 500 and not (status == 200 and is_events(response)):
                    raise _StreamRefused(status)
                if status < 500:
                    await self.relay(response, reader, request_id)
        except MCPError:
            pass  # it is opened again
        pace.failures = pace.failures + 1 if reader.is_silent else 0
        return reader

    def _hand_on(self, event: ServerSentEvent | LineTooLong, request_id: str | None) -> None:
        if isinstance(event, LineTooLong):
            self.receiver.received(event, request_id)
        elif event.kind == "message":  # other kinds are not part of the protocol
            self.receiver.received(event.data, request_id)


def expired() -> SessionExpiredError:
    """Return the error for a session that the server does not know any more."""
    return SessionExpiredError(
        "the server does not know the session any more", data={"status": 404}
    )


class _StreamRefused(Exception):
    """The server refused a stream."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


async def _linger(chunks: AsyncIterator[bytes]) -> None:
    """Read a finished stream to its end, so that its connection is kept."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            async for _ in chunks:
                pass


@define(eq=False, repr=False)
class HttpExchanges:
    """Sends the messages of one session.

    Args:
        streams: of the session; they keep its id.
    """

    streams: EventStreams

    async def run(self, message: ClientMessage) -> None:
        """Send a message, and receive its response, in one HTTP response or in several.

        Raises:
            MCPError: it was not accepted, or no response will come.
        """
        if message.request_id is not None:
            await self._run_request(message, message.request_id)
            return
        try:
            async with asyncio.timeout(ACKNOWLEDGE_TIMEOUT):
                await self._exchange(message, self.streams.reader())
        except CallTimeoutError:  # what a status says
            raise
        except TimeoutError:
            what = f"the server did not take a message within {ACKNOWLEDGE_TIMEOUT:g} s"
            raise CallTimeoutError(what, may_have_run=True) from None

    async def _run_request(self, message: ClientMessage, request_id: str) -> None:
        streams, reader = self.streams, self.streams.reader()
        reason: MCPError | None = None
        try:
            await self._exchange(message, reader)
        except ConnectionLostError as error:
            reason = error
        if not streams.receiver.awaits(request_id):
            return
        if reason is None:
            what = "the stream has ended without a response"
            reason = ConnectionLostError(what, may_have_run=True)
        if message.revision is not None and message.revision.is_stateless:
            raise reason
        await streams.resume(reader, request_id, reason)

    async def _exchange(self, message: ClientMessage, reader: EventReader) -> None:
        """Send a message, and read the HTTP response to it."""
        streams, request_id = self.streams, message.request_id
        headers = message_headers(message, streams.session_id)
        exchange = streams.wire.exchange(
            "POST", headers, message.line, may_login=request_id is not None
        )
        async with exchange as response:
            try:
                await self._take(message, response, reader)
            finally:
                if request_id is not None and streams.receiver.awaits(request_id):
                    # What comes next might be its response (CHTTP-10).
                    await response.close_connection()

    async def _take(
        self, message: ClientMessage, response: HttpResponse, reader: EventReader
    ) -> None:
        """Read a response; a stream to its end."""
        receiver, request_id = self.streams.receiver, message.request_id
        if response.status_code >= 300:
            await self._take_refusal(message, response)
            return
        if request_id is None:
            return
        if message.method == INITIALIZE:
            self._note_session(response)
        if is_events(response):
            await self.streams.relay(response, reader, request_id)
        elif is_json(response):
            body = await read_body(response, self.streams.max_bytes)
            if not (isinstance(body, bytes) and request_id.encode() in body):
                await response.close_connection()  # its response may follow (CHTTP-10)
            receiver.received(body, request_id)
            if receiver.awaits(request_id):
                raise InvalidResponseError("the response does not answer its request")
        else:
            raise InvalidResponseError("the response is neither JSON nor a stream of events")

    async def _take_refusal(self, message: ClientMessage, response: HttpResponse) -> None:
        """Handle a status of 300 or more: a JSON-RPC error, or one of HTTP.

        Raises:
            SessionExpiredError: the server does not know the session; nothing ran.
            MCPError: another error of HTTP.
        """
        if response.status_code == 404 and self.streams.session_id is not None:
            raise expired()
        body = await read_refusal(response)
        if isinstance(body, bytes) and _responds_to(message, response.status_code, body):
            self.streams.receiver.received(body, message.request_id)
        else:
            raise self.streams.wire.refusal(response, body)

    def _note_session(self, response: HttpResponse) -> None:
        session_id = response.headers.get("mcp-session-id")
        if session_id is not None and not is_session_id(session_id):
            raise InvalidResponseError("the id of the session is none that a header can hold")
        self.streams.session_id = session_id


def _responds_to(message: ClientMessage, status: int, body: bytes) -> bool:
    """Return whether the body of a refusal is a JSON-RPC response to its request."""
    found = parse(body)
    if message.request_id is None or not isinstance(found, RpcResponse):
        return False
    if found.id is None and found.error is not None:
        return status not in _STATUS_SAYS_MORE and status < 500
    return bool(found.id == message.request_id)
