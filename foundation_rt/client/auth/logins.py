"""Logins of a person: in a browser of this machine, of another one, or by a code (CAUTH-50)."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

from attrs import evolve, field, frozen

from ...base.abort import call_in_loop
from ...errors import UsageError
from ..errors import AuthorizationError
from ..targets import HttpServer, describe
from .authorizer import Authorizer
from .descriptions import Login, LoginRequest, OAuth

if TYPE_CHECKING:
    from ...base.mcp_json import ServerEntry

_MAX_HEAD_BYTES: Final = 16 * 1024
_HEAD_SECONDS: Final = 10.0  # s; for the head of a request to come
_MOST_CONNECTIONS: Final = 32

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>foundation-rt</title>
<body style="font: 16px sans-serif; margin: 4em auto; max-width: 30em">
<p>{}</p></body></html>
"""
_DONE = "You can close this page. The program says whether the login succeeded."
_FOREIGN = "No login waits for this page."


async def log_in(target: HttpServer | ServerEntry, login: Login) -> None:
    """Let a person log in to a server; what that brings is kept in the store of its `OAuth`.

    Args:
        target: the server, or the entry of a file that describes it.
        login: shows the page, such as `browser_login()`.

    Raises:
        AuthorizationError: there is no token to be had.
        ConnectionLostError: the server, or its authorization server, does not answer.
        UsageError: nobody logs in to such a server.
    """
    server = describe(target, None, None, None)
    if not isinstance(server, HttpServer) or not isinstance(server.auth, OAuth):
        raise UsageError("a person logs in to a server over HTTP whose auth is an OAuth")
    authorizer = Authorizer(server.url, evolve(server.auth, login=login))
    await authorizer.login(await authorizer.challenged())


def browser_login(open_page: Callable[[str], object] = webbrowser.open) -> Login:
    """Return a login in the browser of this machine, which comes back to a port of it.

    The page is opened by a thread of its own: a browser that stays in the foreground delays
    nothing.

    Args:
        open_page: opens a URL.

    Raises:
        AuthorizationError: by the login: the port is taken.
    """

    async def login(request: LoginRequest) -> str:
        came: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        async with _listening(request, came):
            threading.Thread(target=open_page, args=(request.url,), daemon=True).start()
            return await came

    return login


def paste_login(
    say: Callable[[str], object] | None = None, read: Callable[[], str] | None = None
) -> Login:
    """Return a login whose page a person opens anywhere; its answer is pasted.

    Args:
        say: shows a text; None: writes it to stderr.
        read: returns a line; None: reads it from stdin. It is called in a thread.
    """

    async def login(request: LoginRequest) -> str:
        (say or _say)(
            f"Open this page and log in:\n\n  {request.url}\n\n"
            "The browser ends at an address that it may be unable to show. Paste that address:\n"
        )
        came: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()

        def work() -> None:
            try:
                line = (read or sys.stdin.readline)()
            except (OSError, ValueError):
                line = ""
            call_in_loop(loop, _settle, came, line.strip())

        threading.Thread(target=work, daemon=True).start()
        pasted = await came
        if not pasted:
            raise AuthorizationError("No address was pasted", "Run it again.")
        return pasted

    return login


@frozen
class DeviceLogin:
    """Shows the page and the code of a login on another device; made by `device_login`."""

    say: Callable[[str], object] = field(repr=False)
    is_device: bool = field(default=True, init=False)

    async def __call__(self, request: LoginRequest) -> str:
        """Show them; who asks whether the person has agreed is the client."""
        code = f" and enter {request.user_code}" if request.user_code else ""
        self.say(f"Open {request.url}{code}\n")
        return ""


def device_login(say: Callable[[str], object] | None = None) -> Login:
    """Return a login on another device, which shows a code to be entered there (RFC 8628).

    Args:
        say: shows a text; None: writes it to stderr.
    """
    return DeviceLogin(say or _say)


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _settle(came: asyncio.Future[str], text: str) -> None:
    if not came.done():
        came.set_result(text)


@asynccontextmanager
async def _listening(request: LoginRequest, came: asyncio.Future[str]) -> AsyncIterator[None]:
    """Listen at the redirect URI, until the browser comes back with the state of this login.

    Connections that it has opened and not used end with the block.
    """
    place = urlsplit(request.redirect_uri)
    state = parse_qs(urlsplit(request.url).query)["state"]
    serving: dict[asyncio.Task[None], None] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                target = _target(await reader.readuntil(b"\r\n\r\n"))
                asked = urlsplit(target)
                is_ours = asked.path == (place.path or "/")
                is_ours = is_ours and parse_qs(asked.query).get("state") == state
                writer.write(_response(is_ours))
                await writer.drain()
                if is_ours:
                    _settle(came, f"{place.scheme}://{place.netloc}{target}")
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # no browser, or one that has gone

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(serving) >= _MOST_CONNECTIONS:
            next(iter(serving)).cancel()  # the oldest: the browser's own may be the latest
        task = asyncio.create_task(serve(reader, writer))
        serving[task] = None
        task.add_done_callback(serving.pop)
        task.add_done_callback(lambda _: writer.close())  # also if it was cancelled at once

    try:
        server = await asyncio.start_server(
            connected, place.hostname, place.port or 80, limit=_MAX_HEAD_BYTES, start_serving=False
        )
        try:  # if `start_server` began, and was cancelled then, its socket would stay open
            await server.start_serving()
        except BaseException:
            server.close()
            raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "it is taken"
        raise AuthorizationError(
            f"The login cannot come back to {place.netloc}: {reason}",
            "Choose another port, or use --no-browser.",
        ) from None
    try:
        yield
    finally:
        server.close()
        for task in serving:
            task.cancel()
        if serving:
            await asyncio.wait(serving)


def _target(head: bytes) -> str:
    """Return the target of a GET.

    Raises:
        ValueError: it is none.
    """
    method, target, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
    if method != "GET" or not target.startswith("/"):
        raise ValueError("no GET")
    return target


def _response(is_ours: bool) -> bytes:
    body = _PAGE.format(_DONE if is_ours else _FOREIGN).encode()
    lines = [
        f"HTTP/1.1 {'200 OK' if is_ours else '400 Bad Request'}",
        "Content-Type: text/html; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'",
        "Referrer-Policy: no-referrer",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body
