"""Authentication by httpx2's `auth`: its requests and responses, sent over a connection of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import httpcore2
import httpx2
from attrs import define

from .http_route import core_url

if TYPE_CHECKING:
    from .http_route import Connection


@define(eq=False, repr=False)
class _Body(httpx2.AsyncByteStream):
    """The body of a response, for an `auth` that reads it."""

    received: httpcore2.Response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self.received.aiter_stream():
            yield chunk

    async def aclose(self) -> None:
        await self.received.aclose()


async def send_authenticated(
    request: httpcore2.Request, body: bytes, connection: Connection, auth: httpx2.Auth
) -> httpcore2.Response:
    """Return the response to a request that `auth` may change, precede and repeat.

    Args:
        body: of the request.
    """
    flow = auth.async_auth_flow(
        httpx2.Request(
            request.method.decode("ascii"),
            str(httpx2.URL(bytes(request.url).decode("ascii"))),
            headers=httpx2.Headers(request.headers),
            stream=httpx2.ByteStream(body),
            extensions=dict(request.extensions),
        )
    )
    try:
        wanted = await anext(flow)
        while True:
            received = await connection.handle_async_request(_core_request(wanted))
            response = httpx2.Response(
                received.status,
                headers=received.headers,
                stream=_Body(received),
                extensions=dict(received.extensions),
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


def _core_request(request: httpx2.Request) -> httpcore2.Request:
    assert isinstance(request.stream, httpx2.AsyncByteStream)
    return httpcore2.Request(
        request.method,
        core_url(request.url),
        headers=request.headers.raw,
        content=request.stream,
        extensions=request.extensions,
    )
