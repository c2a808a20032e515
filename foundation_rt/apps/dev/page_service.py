"""The page of a front, and what it reads: state, agents, events (DEV-20, DEV-30)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...base.exact_json import dumps
from ...http.sse import KEEP_ALIVE, encode_event
from ..web_page.app_frames import FRAME_PATH, send_frame
from ..web_page.logins import MAX_BODY
from ..web_page.responses import (
    PageFile,
    header,
    read_body,
    read_folder,
    refuse_method,
    send_error,
    send_file,
    send_json,
)

if TYPE_CHECKING:
    from ..web_page.logins import PageLogins
    from ..web_page.responses import RawHeaders, Receive, Scope, Send
    from .journal import Journal

PAGE = "/page/"
SHARED = "/shared/"

KEEP_ALIVE_SECONDS = 15.0
MAX_READERS = 32
"""The most pages that read events at one time."""

_BATCH_SECONDS = 0.05
_RETRY_MS = 1_000
_EVENTS: RawHeaders = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


@define(eq=False)
class PageService:
    """An ASGI application: `/`, `/page/...`, `/shared/...`, `/dev/...`.

    Args:
        journal: of the front.
        state: returns what `/dev/state` has.
        tools: returns what `/dev/tools` has.
        agents: returns what `/dev/agents` has.
        connection: returns what `/dev/connect` has.
        logins: at the servers.
    """

    _journal: Journal
    _state: Callable[[], Mapping[str, Any]]
    _tools: Callable[[], Mapping[str, Any]]
    _agents: Callable[[], Awaitable[Mapping[str, Any]]]
    _connection: Callable[[], Mapping[str, Any]]
    _logins: PageLogins
    _files: dict[str, PageFile] = field(init=False)
    _readers: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        own = read_folder("foundation_rt.apps.dev", "page")
        shared = read_folder("foundation_rt.apps.web_page", "shared")
        self._files = {
            **{f"{SHARED}{name}": file for name, file in shared.items()},
            **{f"{PAGE}{name}": file for name, file in own.items()},
        }
        if "index.html" in own:
            self._files["/"] = own["index.html"]

    @property
    def page_paths(self) -> tuple[str, ...]:
        """The paths of the page's files and of the frames of apps, which hold no secret."""
        return (*self._files, FRAME_PATH)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, which the runtime has authenticated."""
        path = str(scope["path"])
        file = self._files.get(path)
        if path == FRAME_PATH:
            await send_frame(scope, send)
        elif file is None and not path.startswith("/dev/"):
            await send_error(send, 404, "path_not_found", "there is nothing at this path")
        elif path == "/dev/login" and scope["method"] == "POST":
            status, said = await self._logins.answer(await read_body(receive, MAX_BODY))
            await send_json(send, said, status)
        elif scope["method"] not in ("GET", "HEAD"):
            await refuse_method(send, "GET", "GET, HEAD")
        elif file is not None:
            await send_file(scope, send, file)
        elif path == "/dev/state":
            await send_json(send, self._state())
        elif path == "/dev/tools":
            await send_json(send, self._tools())
        elif path == "/dev/agents":
            await send_json(send, await self._agents())
        elif path == "/dev/connect":
            await send_json(send, self._connection())
        elif path == "/dev/events":
            await self._send_events(scope, receive, send)
        else:
            await send_error(send, 404, "path_not_found", "there is nothing at this path")

    async def _send_events(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._readers >= MAX_READERS:
            await send_error(send, 503, "too_many_readers", "close a page of this front")
            return
        self._readers += 1
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*_EVENTS]})
            last = header(scope, b"last-event-id")
            sending = asyncio.ensure_future(
                self._pump(send, None if last is None else last.decode("latin-1"))
            )
            try:
                await asyncio.wait((leaving, sending), return_when=asyncio.FIRST_COMPLETED)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            await send(
                {"type": "http.response.body"}
            )  # the front ends, and the reader has not left
        finally:
            self._readers -= 1
            leaving.cancel()

    async def _pump(self, send: Send, last_event_id: str | None) -> None:
        journal, state = self._journal, b""
        at = journal.position(last_event_id)
        chunks = [b"retry: %d\n\n" % _RETRY_MS]
        if last_event_id and at is None:
            chunks.append(encode_event(b"{}", kind="reset"))
        at = at or 0
        quiet_since = time.monotonic()
        while True:
            now = dumps(self._state(), default=str)
            if now != state:
                state = now
                chunks.append(encode_event(state, kind="state"))
            if at + 1 < journal.first and at:
                chunks.append(encode_event(b"{}", kind="reset"))
            for each in journal.after(at):
                chunks.append(encode_event(each.data, journal.event_id(each.number), each.kind))
                at = each.number
            if chunks:
                await send(_part(b"".join(chunks)))
                chunks, quiet_since = [], time.monotonic()
            elif time.monotonic() - quiet_since >= KEEP_ALIVE_SECONDS:
                await send(_part(KEEP_ALIVE))
                quiet_since = time.monotonic()
            await asyncio.sleep(_BATCH_SECONDS)
            if journal.last == at:
                await journal.changed(1.0)


def _part(chunk: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": chunk, "more_body": True}


async def _left(receive: Receive) -> None:
    """Wait until the reader has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
