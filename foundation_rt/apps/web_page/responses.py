"""Responses of applications over ASGI: JSON, errors, and the files of a page.

A file is read once, and sent with a strict policy and an ETag (HOST-34, HOST-35).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Any

from attrs import frozen

from ...base.exact_json import dumps

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
RawHeaders = Sequence[tuple[bytes, bytes]]


async def send_response(
    send: Send,
    status: int,
    body: bytes = b"",
    content_type: bytes = b"text/plain; charset=utf-8",
    headers: RawHeaders = (),
) -> None:
    """Send a whole response."""
    own = [(b"content-type", content_type)] if body else []
    if status not in (204, 304):
        own.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, value: Any, status: int = 200, headers: RawHeaders = ()) -> None:
    """Send a response of JSON."""
    await send_response(send, status, dumps(value), b"application/json", headers)


async def send_error(
    send: Send, status: int, code: str, message: str, headers: RawHeaders = ()
) -> None:
    """Send what is wrong, for programs and people."""
    await send_json(send, {"error": {"code": code, "message": message}}, status, headers)


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data: blob:; media-src data: blob:; frame-src 'self'; form-action 'none';"
    " frame-ancestors 'none'; base-uri 'none'"
)

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "json": "application/json",
    "webmanifest": "application/manifest+json",
}

PAGE_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


@frozen(eq=False)
class PageFile:
    """One file of the page."""

    body: bytes
    content_type: bytes
    etag: bytes


def read_folder(package: str, folder: str) -> dict[str, PageFile]:
    """Return the files of a package's folder by their name, those of a kind that browsers need."""
    found = {}
    for file in files(package).joinpath(folder).iterdir():
        content_type = _TYPES.get(file.name.rpartition(".")[2])
        if content_type is not None and file.is_file():
            body = file.read_bytes()
            etag = f'"{sha256(body).hexdigest()[:32]}"'
            found[file.name] = PageFile(body, content_type.encode(), etag.encode())
    return found


def read_page(package: str) -> dict[str, PageFile]:
    """Return the files of a page by their path, with the shared ones; `/` is the page itself.

    Args:
        package: the package whose folder `page` has the files.
    """
    own = read_folder(package, "page")
    found = {f"/{name}": file for name, file in (read_folder(__package__, "shared") | own).items()}
    if "index.html" in own:
        found["/"] = own["index.html"]
    return found
