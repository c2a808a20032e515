"""The ASGI application of a host: `/ws`, `/api/...`, and the page (HOST-03).

`/api/...` are the chats of a principal, and the state of the host (HOST-30 to HOST-33, HOST-46).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...web_page.app_frames import FRAME_PATH, send_frame
from ...web_page.logins import MAX_BODY
from ...web_page.responses import (
    PageFile,
    read_body,
    read_page,
    refuse_method,
    send_error,
    send_file,
    send_json,
    send_response,
)
from ..sessions.store import MAX_TITLE, NOBODY, ListedChat, Place, StoreUnavailableError, title_of
from .aids import Aids
from .apps import AppRequests
from .export import export_json, export_markdown
from .offers import Offers
from .requests import PageRequestError, invalid, object_of, query
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
        self._aids = Aids(Offers(self._status.coordinator))
        self._rest = Rest(self._sessions, self._status, self._models)

    @property
    def page_paths(self) -> tuple[str, ...]:
        """The paths of the page's files and of the frames of apps, which hold no secret."""
        return (*self._page, FRAME_PATH)

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
            await send_file(scope, send, file)
        elif path == FRAME_PATH:
            await send_frame(scope, send)
        elif path == SOCKET_PATH:
            headers = ((b"upgrade", b"websocket"), (b"connection", b"upgrade"))
            await send_error(send, 426, "upgrade_required", "this is a WebSocket", headers)
        elif await self._rest.respond(scope, receive, send, path, owner):
            return
        elif not await self._aids.respond(scope, receive, send, path, owner):
            await send_error(send, 404, "path_not_found", "there is nothing at this path")


_LIST = "/api/sessions"
_SESSIONS = "/api/sessions/"
_STATUS = "/api/status"
_MODELS = "/api/models"
_LOGIN = "/api/login"
_EXPORT, _MESSAGES, _APP = "export", "messages", "app"
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

    async def respond(
        self, scope: Scope, receive: Receive, send: Send, path: str, principal: str
    ) -> bool:
        """Answer a request; return False if there is nothing at its path."""
        method = scope["method"]
        if path in (_STATUS, _MODELS):
            if method not in ("GET", "HEAD"):
                await refuse_method(send, "GET")
            elif path == _STATUS:
                await send_json(send, self._status.to_json())
            else:
                await send_json(send, {"models": await self._models.names()})
            return True
        if path == _LOGIN:
            if method == "POST":
                status, said = await self._status.logins.answer(await read_body(receive, MAX_BODY))
                await send_json(send, said, status)
            else:
                await refuse_method(send, "POST")
            return True
        name, _, rest = path.removeprefix(_SESSIONS).partition("/")
        is_list = path == _LIST
        if not is_list and (path == name or not name or rest not in ("", _EXPORT, _MESSAGES, _APP)):
            return False
        try:
            if is_list:
                await self._list(scope, send, principal)
            else:
                await self._of_session(scope, receive, send, name, rest, principal)
        except PageRequestError as error:
            await send_error(send, error.status, error.code, str(error))
        except StoreUnavailableError as error:
            retry = ((b"retry-after", b"5"),)
            await send_error(send, 503, "MAINTENANCE", str(error), retry)
        return True

    async def _list(self, scope: Scope, send: Send, principal: str) -> None:
        """Answer with the chats of the principal (HOST-46)."""
        if scope["method"] not in ("GET", "HEAD"):
            await refuse_method(send, "GET")
            return
        words, after = query(scope, "query"), _place(query(scope, "after"))
        if len(words) > _MAX_QUERY or len(words.split()) > _MAX_WORDS:
            raise invalid(f"query: expected at most {_MAX_QUERY} characters and {_MAX_WORDS} words")
        if principal == NOBODY:
            await send_json(send, {"chats": None, "next": None})
            return
        chats, rest = await self._sessions.listed(principal, words, after)
        following = None if rest is None else f"{int(rest[0])}-{rest[1]}-{rest[2].hex()}"
        await send_json(send, {"chats": [_listed(chat) for chat in chats], "next": following})

    async def _of_session(
        self, scope: Scope, receive: Receive, send: Send, name: str, rest: str, principal: str
    ) -> None:
        method = scope["method"]
        if method in ("DELETE", "PATCH") and not rest:
            if method == "DELETE":
                is_there = await self._sessions.delete(name, principal)
            else:
                changes = _changes(await object_of(receive, _MAX_BODY))
                is_there = await self._sessions.change(name, principal, **changes)
            if not is_there:
                raise _unknown_session()
            await send_response(send, 204)
            return
        if method not in ("GET", "HEAD") and rest != _APP:
            await refuse_method(send, "GET" if rest else "GET, PATCH, DELETE")
            return
        session = await self._sessions.find(name, principal)
        if session is None:
            raise _unknown_session()
        if rest == _APP:
            await self._apps.respond(scope, receive, send, session, query(scope, "call"))
        elif rest == _MESSAGES:
            page = session.chat.older(query(scope, "before"))
            if page is None:
                raise _unknown_session()
            await send_json(send, page)
        elif rest:
            await _export(scope, send, session)
        else:
            await send_json(send, {**_document(session), "seq": session.last_seq})


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


async def _export(scope: Scope, send: Send, session: ChatSession) -> None:
    wanted = query(scope, "format") or "md"
    if wanted not in ("md", "json"):
        raise PageRequestError(400, "invalid_format", "format: expected md or json")
    headers = ((b"content-disposition", b'attachment; filename="chat.%s"' % wanted.encode()),)
    if wanted == "json":
        await send_json(send, _document(session), headers=headers)
    else:
        text = export_markdown(session.chat.branch(), session.created_at)
        body = text.encode("utf-8", "replace")
        await send_response(send, 200, body, b"text/markdown; charset=utf-8", headers)


def _unknown_session() -> PageRequestError:
    return PageRequestError(404, "unknown_session", "this chat is not there")
