"""The ASGI application of a host: `/ws`, `/api/...`, and the page (HOST-03).

`/api/...` are the chats of a principal, and the state of the host (HOST-30 to HOST-33, HOST-46).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...web_page.app_frames import FRAME_PATH, send_frame
from ...web_page.requests import (
    PageRequest,
    PageRequestError,
    Routes,
    file_routes,
    invalid,
    respond,
)
from ...web_page.responses import read_page, send_error, send_json, send_response
from ..sessions.store import MAX_TITLE, NOBODY, ListedChat, Place, StoreUnavailableError, title_of
from .aids import Aids
from .apps import AppRequests
from .export import export_json, export_markdown
from .offers import Offers
from .socket import ChatSocket
from .status import ModelList

if TYPE_CHECKING:
    from ...web_page.responses import Receive, Scope, Send
    from ..sessions.session import ChatSession
    from ..sessions.sessions import ChatSessions
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

    Attributes:
        page_paths: of the page's files and of the frames of apps, which hold no secret.
    """

    _sessions: ChatSessions
    _status: HostStatus
    _silence_s: float
    _begin_drain: Callable[[], object]
    page_paths: tuple[str, ...] = field(init=False)
    _routes: Routes = field(init=False)
    _models: ModelList = field(init=False)
    _aids: Aids = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._models = ModelList(self._status.llm)
        self._aids = Aids(Offers(self._status.coordinator))
        page = {**file_routes(read_page(__package__)), FRAME_PATH: {"GET": send_frame}}
        self.page_paths = tuple(page)
        rest = Rest(self._sessions, self._status, self._models)
        self._routes = {
            **page,
            SOCKET_PATH: {"GET": _wants_upgrade},
            **rest.routes,
            **self._aids.routes,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or one WebSocket."""
        principal = scope[PRINCIPAL]
        owner = NOBODY if principal is None else principal.identity
        request = PageRequest(scope, receive, send, owner)
        if scope["type"] == "http":
            await self._respond(request)
        elif request.path == SOCKET_PATH:
            await ChatSocket(
                request,
                self._sessions,
                self._status,
                self._models,
                self._silence_s,
                self._begin_drain,
            ).serve()
        else:
            await send({"type": "websocket.close", "code": _CLOSE_UNKNOWN_PATH})

    async def close(self) -> None:
        """End what runs beside the chats."""
        await self._aids.close()

    async def _respond(self, request: PageRequest) -> None:
        try:
            await respond(self._routes, request)
        except StoreUnavailableError as error:
            retry = ((b"retry-after", b"5"),)
            await send_error(request.send, 503, "MAINTENANCE", str(error), retry)


def _wants_upgrade(_: PageRequest) -> None:
    headers = ((b"upgrade", b"websocket"), (b"connection", b"upgrade"))
    raise PageRequestError(426, "upgrade_required", "this is a WebSocket", headers)


_LIST = "/api/sessions"
_CHAT = f"{_LIST}/*"
_MAX_BODY = 8_192
_MAX_QUERY, _MAX_WORDS = 200, 8
_PLACE = re.compile(r"([01])-([0-9]{1,15})-([0-9a-f]{64})")


@define(eq=False)
class Rest:
    """The REST interface of a host."""

    _sessions: ChatSessions
    _status: HostStatus
    _models: ModelList
    _apps: AppRequests = field(factory=AppRequests, init=False)

    @property
    def routes(self) -> Routes:
        """Its routes."""
        return {
            "/api/status": {"GET": lambda _: self._status.to_json()},
            "/api/models": {"GET": self._list_models},
            "/api/login": {"POST": self._status.logins.respond},
            _LIST: {"GET": self._list},
            _CHAT: {"GET": self._read, "PATCH": self._change, "DELETE": self._delete},
            f"{_CHAT}/export": {"GET": self._export},
            f"{_CHAT}/messages": {"GET": self._older},
            f"{_CHAT}/app": {"GET": self._app, "POST": self._app},
        }

    async def _list_models(self, _: PageRequest) -> dict[str, Any]:
        return {"models": await self._models.names()}

    async def _list(self, request: PageRequest) -> dict[str, Any]:
        """Return the chats of the principal (HOST-46)."""
        words, after = request.query("query"), _place(request.query("after"))
        if len(words) > _MAX_QUERY or len(words.split()) > _MAX_WORDS:
            raise invalid(f"query: expected at most {_MAX_QUERY} characters and {_MAX_WORDS} words")
        if request.principal == NOBODY:
            return {"chats": None, "next": None}
        chats, rest = await self._sessions.listed(request.principal, words, after)
        following = None if rest is None else f"{int(rest[0])}-{rest[1]}-{rest[2].hex()}"
        return {"chats": [_listed(chat) for chat in chats], "next": following}

    async def _find(self, request: PageRequest) -> ChatSession:
        session = await self._sessions.find(request.name, request.principal)
        if session is None:
            raise _unknown_session()
        return session

    async def _read(self, request: PageRequest) -> dict[str, Any]:
        session = await self._find(request)
        return {**_document(session), "seq": session.last_seq}

    async def _change(self, request: PageRequest) -> None:
        changes = _changes(await request.read(_MAX_BODY))
        if not await self._sessions.change(request.name, request.principal, **changes):
            raise _unknown_session()
        await send_response(request.send, 204)

    async def _delete(self, request: PageRequest) -> None:
        if not await self._sessions.delete(request.name, request.principal):
            raise _unknown_session()
        await send_response(request.send, 204)

    async def _older(self, request: PageRequest) -> dict[str, Any]:
        page = (await self._find(request)).chat.older(request.query("before"))
        if page is None:
            raise _unknown_session()
        return page

    async def _app(self, request: PageRequest) -> dict[str, Any]:
        return await self._apps.respond(request, await self._find(request))

    async def _export(self, request: PageRequest) -> None:
        session = await self._find(request)
        wanted = request.query("format") or "md"
        if wanted not in ("md", "json"):
            raise PageRequestError(400, "invalid_format", "format: expected md or json")
        headers = ((b"content-disposition", b'attachment; filename="chat.%s"' % wanted.encode()),)
        if wanted == "json":
            await send_json(request.send, _document(session), headers=headers)
        else:
            text = export_markdown(session.chat.branch(), session.created_at)
            body = text.encode("utf-8", "replace")
            kind = b"text/markdown; charset=utf-8"
            await send_response(request.send, 200, body, kind, headers)


def _place(text: str) -> Place | None:
    if not text:
        return None
    match = _PLACE.fullmatch(text)
    if match is None:
        raise invalid("after: expected the `next` of a list")
    return match[1] == "1", int(match[2]), bytes.fromhex(match[3])


def _listed(chat: ListedChat) -> dict[str, object]:
    return {
        "id": chat.key.hex(),
        "title": chat.title,
        "at": chat.said_at,
        "isPinned": chat.is_pinned,
    }


def _changes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `ChatSessions.change`."""
    title, is_pinned = given.get("title"), given.get("isPinned")
    if title is not None:
        if type(title) is not str or not title.strip() or len(title) > MAX_TITLE:
            raise invalid(f"title: expected 1 to {MAX_TITLE} characters")
        title = title_of(title)
    if is_pinned is not None and type(is_pinned) is not bool:
        raise invalid("isPinned: expected true or false")
    return {"title": title, "is_pinned": is_pinned}


def _document(session: ChatSession) -> dict[str, object]:
    return export_json(session.history, session.usage, session.created_at, session.last_active_at)


def _unknown_session() -> PageRequestError:
    return PageRequestError(404, "unknown_session", "this chat is not there")
