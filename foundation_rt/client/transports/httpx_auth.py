"""Requests that an `auth` of httpx2 may change, precede and repeat (CHTTP-15).

httpx2 is imported by whoever has such an `auth`; its requests and responses exist for it alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
from attrs import define

from ...base.http_client.exchange import HttpResponse, HttpSender, OutgoingRequest
from ...base.http_client.network import RequestUrl

_FRAMING = (b"content-length", b"transfer-encoding")


@define(eq=False, repr=False)
class _Body(httpx2.AsyncByteStream):
    """The body of a response, for an `auth` that reads it."""

    response: HttpResponse

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self.response.chunks():
            yield chunk

    async def aclose(self) -> None:
        await self.response.aclose()


async def send_authenticated(
    request: OutgoingRequest, connection: HttpSender, auth: httpx2.Auth
) -> HttpResponse:
    """Return the response to a request that `auth` may change, precede and repeat.

    Args:
        request: to send first.
        connection: to send it over.
        auth: of httpx2.
    """
    flow = auth.async_auth_flow(
        httpx2.Request(
            request.method,
            bytes(request.url).decode("ascii"),
            headers=httpx2.Headers(request.headers),
            stream=httpx2.ByteStream(request.body),
        )
    )
    try:
        wanted = await anext(flow)
        while True:
            received = await connection.send(await _plain_request(wanted))
            response = httpx2.Response(
                received.status_code,
                headers=received.raw_headers,
                stream=_Body(received),
                request=wanted,
            )
            try:
                wanted = await flow.asend(response)
            except StopAsyncIteration:
                return received
            except BaseException:
                await response.aclose()
                raise
            await response.aclose()
    finally:
        await flow.aclose()


async def _plain_request(request: httpx2.Request) -> OutgoingRequest:
    body = await request.aread()
    headers = [each for each in request.headers.raw if each[0].lower() not in _FRAMING]
    if body or request.method == "POST":
        headers.append((b"content-length", b"%d" % len(body)))
    return OutgoingRequest(request.method, RequestUrl.of(str(request.url)), headers, body)
