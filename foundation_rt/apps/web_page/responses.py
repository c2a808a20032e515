"""Responses of applications over ASGI: JSON, errors, and the files of a page.

A file is read once, and sent with a strict policy and an ETag (HOST-34, HOST-35).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Any

import orjson
from attrs import frozen

from ...base.exact_json import dumps, loads_bounded

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


async def refuse_method(send: Send, use: str, allow: str = "") -> None:
    """Send that the method of a request is not allowed.

    Args:
        use: the methods for people.
        allow: those of the header; by default the same.
    """
    headers = ((b"allow", (allow or use).encode()),)
    await send_error(send, 405, "method_not_allowed", f"use {use}", headers)


async def read_body(receive: Receive, most: int) -> bytes | None:
    """Return the body of a request; None if it has more bytes than `most`, or breaks off."""
    body = b""
    while len(body) <= most:
        event = await receive()
        if event["type"] != "http.request":
            return None
        body += event.get("body", b"")
        if not event.get("more_body", False):
            return body if len(body) <= most else None
    return None


def read_object(body: bytes | None) -> dict[str, Any] | None:
    """Return the object that a body is; None if there is no body, or it is none."""
    try:
        found = None if body is None else loads_bounded(body)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return a header of a request; None if it has none."""
    value: bytes
    for found, value in scope["headers"]:
        if found == name:
            return value
    return None


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


async def send_file(scope: Scope, send: Send, file: PageFile) -> None:
    """Answer a request for a file of a page.

    The browser asks each time whether it has the newest version, and gets 304 if it has.
    """
    if scope["method"] not in ("GET", "HEAD"):
        await refuse_method(send, "GET", "GET, HEAD")
        return
    headers = (*PAGE_HEADERS, (b"etag", file.etag), (b"cache-control", b"no-cache"))
    if _is_unchanged(header(scope, b"if-none-match"), file):
        await send_response(send, 304, headers=headers)
    else:
        await send_response(send, 200, file.body, file.content_type, headers)


def _is_unchanged(if_none_match: bytes | None, file: PageFile) -> bool:
    """Return whether the browser has this version of a file already."""
    if if_none_match is None:
        return False
    tags = [each.strip().removeprefix(b"W/") for each in if_none_match.split(b",")]
    return file.etag in tags or b"*" in tags
