"""`/api/...`: the chats of a principal, and the state of the host (HOST-30 to HOST-33)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from attrs import define

from ..sessions.errors import StoreUnavailableError
from .export import export_json, export_markdown
from .responses import send_error, send_json, send_response

if TYPE_CHECKING:
    from ..sessions.session import ChatSession
    from ..sessions.sessions import ChatSessions
    from .responses import Scope, Send
    from .status import HostStatus

_SESSIONS = "/api/sessions/"
_STATUS = "/api/status"
_EXPORT = "export"


@define(eq=False)
class Rest:
    """The REST interface of a host."""

    _sessions: ChatSessions
    _status: HostStatus

    async def respond(self, scope: Scope, send: Send, path: str, principal: str) -> bool:
        """Answer a request; return False if there is nothing at its path."""
        method = scope["method"]
        if path == _STATUS:
            if method in ("GET", "HEAD"):
                await send_json(send, self._status.to_json())
            else:
                await _refuse_method(send, "GET")
            return True
        if not path.startswith(_SESSIONS):
            return False
        session_id, _, rest = path.removeprefix(_SESSIONS).partition("/")
        if not session_id or rest not in ("", _EXPORT):
            return False
        try:
            await self._of_session(scope, send, session_id, rest, principal)
        except StoreUnavailableError as error:
            retry = ((b"retry-after", b"5"),)
            await send_error(send, 503, "MAINTENANCE", str(error), retry)
        return True

    async def _of_session(
        self, scope: Scope, send: Send, session_id: str, rest: str, principal: str
    ) -> None:
        method = scope["method"]
        if method == "DELETE" and not rest:
            if await self._sessions.delete(session_id, principal):
                await send_response(send, 204)
            else:
                await _send_unknown(send)
            return
        if method not in ("GET", "HEAD"):
            await _refuse_method(send, "GET" if rest else "GET, DELETE")
            return
        session = await self._sessions.find(session_id, principal)
        if session is None:
            await _send_unknown(send)
        elif rest:
            await _export(scope, send, session)
        else:
            await send_json(send, _document(session))


def _document(session: ChatSession) -> dict[str, object]:
    document = export_json(
        session.history, session.usage, session.created_at, session.last_active_at
    )
    return {**document, "seq": session.last_seq}


async def _export(scope: Scope, send: Send, session: ChatSession) -> None:
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=20)
    wanted = query.get("format", ["md"])[-1]
    if wanted not in ("md", "json"):
        await send_error(send, 400, "invalid_format", "format: expected md or json")
        return
    headers = ((b"content-disposition", b'attachment; filename="chat.%s"' % wanted.encode()),)
    if wanted == "json":
        document = export_json(
            session.history, session.usage, session.created_at, session.last_active_at
        )
        await send_json(send, document, headers=headers)
    else:
        text = export_markdown(session.history, session.created_at)
        body = text.encode("utf-8", "replace")
        await send_response(send, 200, body, b"text/markdown; charset=utf-8", headers)


async def _send_unknown(send: Send) -> None:
    await send_error(send, 404, "unknown_session", "this chat is not there")


async def _refuse_method(send: Send, allowed: str) -> None:
    message = f"use {allowed}"
    headers = ((b"allow", allowed.encode()),)
    await send_error(send, 405, "method_not_allowed", message, headers)
