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
from ..web_page.requests import PageRequest, PageRequestError, Routes, file_routes, respond
from ..web_page.responses import read_folder

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

    Attributes:
        page_paths: of the page's files and of the frames of apps, which hold no secret.
    """

    _journal: Journal
    _state: Callable[[], Mapping[str, Any]]
    _tools: Callable[[], Mapping[str, Any]]
    _agents: Callable[[], Awaitable[Mapping[str, Any]]]
    _connection: Callable[[], Mapping[str, Any]]
    _logins: PageLogins
    _routes: Routes = field(init=False)
    page_paths: tuple[str, ...] = field(init=False)
    _readers: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        own = read_folder("foundation_rt.apps.dev", "page")
        shared = read_folder("foundation_rt.apps.web_page", "shared")
        files = {
            **{f"{SHARED}{name}": file for name, file in shared.items()},
            **{f"{PAGE}{name}": file for name, file in own.items()},
        }
        if "index.html" in own:
            files["/"] = own["index.html"]
        page = {**file_routes(files), FRAME_PATH: {"GET": send_frame}}
        self.page_paths = tuple(page)
        self._routes = {
            **page,
            "/dev/login": {"POST": self._logins.respond},
            "/dev/state": {"GET": lambda _: self._state()},
            "/dev/tools": {"GET": lambda _: self._tools()},
            "/dev/agents": {"GET": lambda _: self._agents()},
            "/dev/connect": {"GET": lambda _: self._connection()},
            "/dev/events": {"GET": self._send_events},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, which the runtime has authenticated."""
        await respond(self._routes, PageRequest(scope, receive, send))

    async def _send_events(self, request: PageRequest) -> None:
        if self._readers >= MAX_READERS:
            raise PageRequestError(503, "too_many_readers", "close a page of this front")
        self._readers += 1
        send, leaving = request.send, asyncio.ensure_future(_left(request.receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*_EVENTS]})
            sending = asyncio.ensure_future(self._pump(send, request.header(b"last-event-id")))
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
