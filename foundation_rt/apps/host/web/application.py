"""The ASGI application of a host: `/ws`, `/api/...`, and the page (HOST-03)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from attrs import define, field

from ...web_page.files import PAGE_HEADERS, PageFile, is_unchanged, read_page
from ..sessions.store import NOBODY
from .aids import Aids
from .responses import header, send_error, send_response
from .rest import Rest
from .socket import ChatSocket
from .status import ModelList

if TYPE_CHECKING:
    from ..sessions.sessions import ChatSessions
    from .responses import Receive, Scope, Send
    from .status import HostStatus

SOCKET_PATH = "/ws"
PRINCIPAL = "foundation_rt.principal"

_CLOSE_UNKNOWN_PATH = 4404


@define(eq=False)
class ChatApplication:
    """Serves requests and WebSockets that the runtime has authenticated.

    Args:
        sessions: has the chats.
        status: of model and servers.
        silence_s: how long a client may be silent, in s.
        begin_drain: called when the server stops: no new turn begins.
    """

    _sessions: ChatSessions
    _status: HostStatus
    _silence_s: float
    _begin_drain: Callable[[], object]
    _page: Mapping[str, PageFile] = field(factory=lambda: read_page(__package__), init=False)
    _rest: Rest = field(init=False)
    _models: ModelList = field(init=False)
    _aids: Aids = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._models = ModelList(self._status.llm)
        self._aids = Aids.of(self._status.coordinator)
        self._rest = Rest(self._sessions, self._status, self._models)

    @property
    def page_paths(self) -> tuple[str, ...]:
        """The paths of the page's files, which hold no secret."""
        return tuple(self._page)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or one WebSocket."""
        principal = scope[PRINCIPAL]
        owner = NOBODY if principal is None else principal.identity
        path = str(scope["path"]).removeprefix(str(scope.get("root_path", ""))) or "/"
        if scope["type"] == "http":
            await self._respond(scope, receive, send, path, owner)
        elif path == SOCKET_PATH:
            await ChatSocket(
                self._sessions,
                self._status,
                self._models,
                owner,
                self._silence_s,
                self._begin_drain,
                scope,
                receive,
                send,
            ).serve()
        else:
            await send({"type": "websocket.close", "code": _CLOSE_UNKNOWN_PATH})

    async def close(self) -> None:
        """End what runs beside the chats."""
        await self._aids.close()

    async def _respond(
        self, scope: Scope, receive: Receive, send: Send, path: str, owner: str
    ) -> None:
        file = self._page.get(path)
        if file is not None:
            await _send_file(scope, send, file)
        elif path == SOCKET_PATH:
            headers = ((b"upgrade", b"websocket"), (b"connection", b"upgrade"))
            await send_error(send, 426, "upgrade_required", "this is a WebSocket", headers)
        elif await self._rest.respond(scope, receive, send, path, owner):
            return
        elif not await self._aids.respond(scope, receive, send, path, owner):
            await send_error(send, 404, "path_not_found", "there is nothing at this path")


async def _send_file(scope: Scope, send: Send, file: PageFile) -> None:
    if scope["method"] not in ("GET", "HEAD"):
        allowed = ((b"allow", b"GET, HEAD"),)
        await send_error(send, 405, "method_not_allowed", "use GET", allowed)
        return
    # The browser asks each time whether it has the newest version, and gets 304 if it has.
    caching = ((b"etag", file.etag), (b"cache-control", b"no-cache"))
    if is_unchanged(header(scope, b"if-none-match"), file):
        await send_response(send, 304, headers=(*PAGE_HEADERS, *caching))
    else:
        headers = (*PAGE_HEADERS, *caching)
        await send_response(send, 200, file.body, file.content_type, headers)
