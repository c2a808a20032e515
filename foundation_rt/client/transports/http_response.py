"""A response over HTTP: its head, and its body as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define

from ...protocol.framing import LineTooLong
from ..errors import InvalidResponseError
from .http_headers import EVENTS_TYPE, JSON_TYPE, RawHeaders, media_type

if TYPE_CHECKING:
    import httpcore2

_MAX_REFUSAL = 64 * 1024  # bytes of a body that says why not


@define(eq=False, repr=False)
class HttpResponse:
    """The head of a response, and the way to its body.

    Attributes:
        status_code: of the response.
        headers: by name in lower case; those of one name are joined by commas.
    """

    status_code: int
    headers: dict[str, str]
    _received: httpcore2.Response

    @classmethod
    def of(cls, received: httpcore2.Response) -> HttpResponse:
        """Return a response as httpcore2 has received it."""
        return cls(received.status, _by_name(received.headers), received)

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the body as it comes, nothing unpacked (CHTTP-14).

        A few bytes can unpack to gigabytes; meanwhile the event loop would stand still.

        Raises:
            InvalidResponseError: it is packed, though no request allows that.
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
        """The type that the response says its body has; empty if it says none."""
        return media_type(self.headers.get("content-type"))

    async def aclose(self) -> None:
        """End the exchange; the connection is closed unless the body was read to its end."""
        await self._received.aclose()

    async def hang_up(self) -> None:
        """Close the connection, whatever was read."""
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
    """Return whether a response says that its body is JSON."""
    return response.media_type == JSON_TYPE


def is_events(response: HttpResponse) -> bool:
    """Return whether a response says that its body is a stream of events."""
    return response.media_type == EVENTS_TYPE


async def read_body(response: HttpResponse, max_bytes: int) -> bytes | LineTooLong:
    """Return the body of a response; of one that is longer nothing is kept.

    Raises:
        InvalidResponseError: it is packed.
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
    """Return the body of a response that says why not; its status counts even if it is packed."""
    return b"" if response.is_packed else await read_body(response, _MAX_REFUSAL)


async def finish(response: HttpResponse) -> None:
    """Read a response that is of no interest to its end, so that its connection can be kept."""
    try:
        await read_refusal(response)
    finally:
        await response.aclose()


def detail(response: HttpResponse, body: bytes) -> str:
    """Return what a refusal says to a reader: its text, or the message of its error; no page."""
    kind = response.media_type
    if kind in (JSON_TYPE, ""):
        with suppress(ValueError, TypeError, LookupError):
            return str(orjson.loads(body)["error"]["message"])
    if kind not in ("text/plain", JSON_TYPE, "") or (not kind and body.lstrip().startswith(b"<")):
        return ""
    return body.decode("utf-8", "replace")
