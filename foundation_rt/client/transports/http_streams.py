"""Streams of events over HTTP: read, resumed after a break, and listened to (CHTTP-20 to CHTTP-29).

In the handshake mode a stream may end before its answer: the server ended it to be asked again
later (SEP-1699), or the connection broke. Then it goes on from its last event, if that had an id.
In the stateless mode nothing is resumed: a stream that ends without its answer has failed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from attrs import define, field

from ...protocol.framing import LineTooLong
from ..errors import MCPError, SessionExpiredError
from .http_headers import can_resume, stream_headers
from .http_response import is_events
from .http_wire import HttpWire
from .sse import EventReader, ServerSentEvent

if TYPE_CHECKING:
    from ...protocol.revisions import Revision
    from .http_response import HttpResponse
    from .transport import Receiver

MAX_ATTEMPTS: Final = 5
"""So often in a row a stream is asked for without anything coming of it, until it is given up."""

_RETRY_MS = 1_000  # where the server names no time
_LEAST_RETRY = 0.01  # s; of a server that names 0, so that it cannot keep us busy
_MOST_RETRY = 30.0  # s; to which the time grows where a server does not answer
_LINGER = 1.0  # s; for the end of a stream whose answer has come, so that its connection is kept


@define(eq=False, repr=False)
class ReconnectBackoff:
    """How long to wait before a stream is asked for again.

    Attributes:
        failures: attempts in a row of which nothing came.
    """

    failures: int = 0

    def delay(self, retry_ms: int | None, draw: float) -> float:
        """Seconds to wait: never less than the server wants, and no more before the first try.

        Args:
            retry_ms: what the server wants; None if it named nothing.
            draw: random, from 0 to 1, so that many clients do not come back at one time.
        """
        least = max((_RETRY_MS if retry_ms is None else retry_ms) / 1000, _LEAST_RETRY)
        most = max(least, min(least * (1 << min(self.failures, 10)), _MOST_RETRY))
        return least + draw * (most - least)


@define(eq=False, repr=False)
class EventStreams:
    """What a server says in streams of events, for one session.

    Attributes:
        revision: that is spoken; None before one is agreed on.
        session_id: that the server gave; None if it gave none.
    """

    wire: HttpWire
    receiver: Receiver
    max_bytes: int
    revision: Revision | None = field(default=None, init=False)
    session_id: str | None = field(default=None, init=False)

    def reader(self) -> EventReader:
        """For a stream that begins."""
        return EventReader(self.max_bytes)

    async def relay(
        self, response: HttpResponse, reader: EventReader, request_id: str | None
    ) -> None:
        """Hand on what a stream says, until it ends, or has answered the request that it is for.

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

    async def resume(self, reader: EventReader, request_id: str, why: MCPError) -> None:
        """Go on with the stream of a request that has no answer yet (CHTTP-24 to CHTTP-26).

        Args:
            reader: of the stream that has ended.
            why: it ended; raised if it cannot be resumed.

        Raises:
            MCPError: no answer will come.
        """
        pace = ReconnectBackoff()
        while self.receiver.awaits(request_id):
            if pace.failures == MAX_ATTEMPTS or not can_resume(reader.last_id):
                raise why
            await asyncio.sleep(pace.delay(reader.retry_ms, random.random()))
            try:
                reader = await self._attempt(reader, request_id, pace)
            except _Refused:
                raise why from None

    async def listen(self) -> None:
        """Listen to what belongs to no request, as long as the server offers it (CHTTP-27).

        Raises:
            SessionExpiredError: the server does not know the session any more.
        """
        reader, pace = self.reader(), ReconnectBackoff()
        was_offered = False
        while True:
            try:
                reader = await self._attempt(reader, None, pace)
            except _Refused as refused:
                # A server without such a stream may answer 404 to what it has no path for.
                if was_offered and refused.status == 404 and self.session_id is not None:
                    raise expired() from None
                return
            was_offered = was_offered or pace.failures == 0
            await asyncio.sleep(pace.delay(reader.retry_ms, random.random()))

    async def _attempt(
        self, before: EventReader, request_id: str | None, pace: ReconnectBackoff
    ) -> EventReader:
        """Ask for a stream, or for what follows in one, and read it to its end; whatever that is.

        Raises:
            _Refused: the server does not offer it.
        """
        last_id = before.last_id if can_resume(before.last_id) else None
        reader = EventReader(self.max_bytes, last_id, before.retry_ms)
        headers = stream_headers(self.revision, self.session_id, last_id)
        try:
            async with self.wire.exchange("GET", headers) as response:
                status = response.status_code
                if status < 500 and not (status == 200 and is_events(response)):
                    raise _Refused(status)
                if status < 500:
                    await self.relay(response, reader, request_id)
        except MCPError:
            pass  # it is asked for again
        pace.failures = pace.failures + 1 if reader.is_silent else 0
        return reader

    def _hand_on(self, event: ServerSentEvent | LineTooLong, request_id: str | None) -> None:
        if isinstance(event, LineTooLong):
            self.receiver.received(event, request_id)
        elif event.kind == "message":  # whatever else there is was not agreed on
            self.receiver.received(event.data, request_id)


def expired() -> SessionExpiredError:
    """The server does not know the session any more."""
    return SessionExpiredError(
        "the server does not know the session any more", data={"status": 404}
    )


class _Refused(Exception):
    """There is no such stream."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


async def _linger(chunks: AsyncIterator[bytes]) -> None:
    """Read to the end of a stream that has nothing more to say, so that its connection is kept."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER):
            async for _ in chunks:
                pass
