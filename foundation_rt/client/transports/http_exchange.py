"""One message over HTTP: a POST and its response (CHTTP-13 to -18)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from attrs import define

from ...protocol.jsonrpc import Response as Answer
from ...protocol.jsonrpc import parse
from ..errors import CallTimeoutError, ConnectionLostError, InvalidResponseError
from .http_headers import is_session_id, message_headers
from .http_response import is_events, is_json, read_body, read_refusal
from .http_streams import EventStreams, expired
from .http_wire import ACKNOWLEDGE_TIMEOUT

if TYPE_CHECKING:
    from .http_response import HttpResponse
    from .sse import EventReader
    from .transport import ClientMessage

INITIALIZE: Final = "initialize"

_STATUS_SAYS_MORE = (401, 403, 404, 405, 429)  # than a JSON-RPC error that names no request


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
        streams, request_id = self.streams, message.request_id
        reader = streams.reader()
        headers = message_headers(message, streams.session_id)
        reason = ConnectionLostError("the stream has ended without an answer", may_have_run=True)
        try:
            async with (
                asyncio.timeout(ACKNOWLEDGE_TIMEOUT if request_id is None else None),
                streams.wire.exchange("POST", headers, message.line) as response,
            ):
                try:
                    await self._take(message, response, reader)
                finally:
                    if request_id is not None and streams.receiver.awaits(request_id):
                        await (
                            response.close_connection()
                        )  # what comes next might be its answer (CHTTP-10)
        except CallTimeoutError:  # what a status says
            raise
        except TimeoutError:
            what = f"the server did not take a message within {ACKNOWLEDGE_TIMEOUT:g} s"
            raise CallTimeoutError(what, may_have_run=True) from None
        except ConnectionLostError as error:
            if request_id is None:
                raise
            reason = error
        if request_id is None or not streams.receiver.awaits(request_id):
            return
        if message.revision is not None and message.revision.is_stateless:
            raise reason
        await streams.resume(reader, request_id, reason)

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
        if isinstance(body, bytes) and _answers(message, response.status_code, body):
            self.streams.receiver.received(body, message.request_id)
        else:
            raise self.streams.wire.refusal(response, body)

    def _note_session(self, response: HttpResponse) -> None:
        session_id = response.headers.get("mcp-session-id")
        if session_id is not None and not is_session_id(session_id):
            raise InvalidResponseError("the id of the session is none that a header can hold")
        self.streams.session_id = session_id


def _answers(message: ClientMessage, status: int, body: bytes) -> bool:
    """Return whether the body of a refusal is a JSON-RPC response to its request."""
    answer = parse(body)
    if message.request_id is None or not isinstance(answer, Answer):
        return False
    if answer.id is None and answer.error is not None:
        return status not in _STATUS_SAYS_MORE and status < 500
    return bool(answer.id == message.request_id)
