"""An HTTP response: its head, and its body as it arrives."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define

from ...protocol.framing import LineTooLong
from ...shown import Shown
from ..errors import InvalidResponseError
from .http_headers import EVENTS_TYPE, JSON_TYPE, RawHeaders, media_type

if TYPE_CHECKING:
    import httpcore2

_MAX_REFUSAL = 64 * 1024  # bytes of the body of an error response


@define(eq=False, repr=False)
class HttpResponse(Shown):
    """The head of a response, with access to its body.

    Attributes:
        status_code: of the response.
        headers: by name in lower case; those of one name are joined by commas.
    """

    status_code: int
    headers: dict[str, str]
    _received: httpcore2.Response

    @classmethod
    def of(cls, received: httpcore2.Response) -> HttpResponse:
        """Return the response that httpcore2 has received."""
        return cls(received.status, _by_name(received.headers), received)

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the body as it arrives, never decompressed (CHTTP-14).

        A few bytes can decompress to gigabytes, which would block the event loop.

        Raises:
            InvalidResponseError: it is compressed, which no request allows.
        """
        if self.is_packed:
            raise InvalidResponseError(
                "the response is packed (Content-Encoding), though none may be"
            )
        return self._received.aiter_stream()

    @property
    def is_packed(self) -> bool:
        """Return whether the body is compressed, or otherwise encoded."""
        return self.headers.get("content-encoding", "identity").strip().lower() != "identity"

    @property
    def media_type(self) -> str:
        """The media type of the body; empty if the response has none."""
        return media_type(self.headers.get("content-type"))

    async def aclose(self) -> None:
        """End the exchange; the connection is closed unless the body was read to its end."""
        await self._received.aclose()

    async def close_connection(self) -> None:
        """Close the connection, even if the body was not read."""
        stream: Any = self._received.extensions.get("network_stream")
        if stream is not None:
            await stream.aclose()


def _by_name(raw: RawHeaders) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw_name, value in raw:
        name, text = raw_name.decode("latin-1").lower(), value.decode("latin-1")
        found[name] = f"{found[name]}, {text}" if name in found else text
    return found


def is_json(response: HttpResponse) -> bool:
    """Return whether the media type of a response is JSON."""
    return response.media_type == JSON_TYPE


def is_events(response: HttpResponse) -> bool:
    """Return whether the media type of a response is an event stream."""
    return response.media_type == EVENTS_TYPE


async def read_body(response: HttpResponse, max_bytes: int) -> bytes | LineTooLong:
    """Return the body of a response; nothing of a body that is too long.

    Raises:
        InvalidResponseError: it is compressed.
    """
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.chunks():
        size += len(chunk)
        if size > max_bytes:
            return LineTooLong(max_bytes)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def read_refusal(response: HttpResponse) -> bytes | LineTooLong:
    """Return the body of an error response; empty if it is compressed."""
    return b"" if response.is_packed else await read_body(response, _MAX_REFUSAL)


async def finish(response: HttpResponse) -> None:
    """Read and drop a response, so that its connection can be kept."""
    try:
        await read_refusal(response)
    finally:
        await response.aclose()


def detail(response: HttpResponse, body: bytes) -> str:
    """Return the text of an error response, or the message of its error; no HTML."""
    kind = response.media_type
    if kind in (JSON_TYPE, ""):
        with suppress(ValueError, TypeError, LookupError):
            return str(orjson.loads(body)["error"]["message"])
    if kind not in ("text/plain", JSON_TYPE, "") or (not kind and body.lstrip().startswith(b"<")):
        return ""
    return body.decode("utf-8", "replace")
