"""HTTP+SSE, the transport of revision 2024-11-05: one stream down, POSTs up (CHTTP-30 to CHTTP-32).

The first event of the stream names the place to POST to; everything that the server says is an
event of the stream. With the stream the session ends: there is no resuming.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from attrs import define, field

from ...protocol.framing import LineTooLong
from ..errors import CallTimeoutError, ConnectionLostError, InvalidResponseError, MCPError
from .http_headers import message_headers, same_origin, stream_headers
from .http_wire import ACKNOWLEDGE_TIMEOUT, HttpWire, is_events, read_refusal
from .sse import EventReader, ServerSentEvent

if TYPE_CHECKING:
    from .transport import ClientMessage, Receiver


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
