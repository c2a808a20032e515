"""`/api/sessions/ID/app`: the apps of a chat, for its page (HOST-69, HOST-70)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...web_page.responses import refuse_method, send_json
from ..orchestrator.app_calls import AppDecision, AppRequestError
from .frames import DECISIONS, MAX_ID
from .requests import MAX_RUNNING, Room, invalid, object_of, text_of

if TYPE_CHECKING:
    from ...web_page.responses import Receive, Scope, Send
    from ..sessions.session import ChatSession

MAX_BODY = 1024 * 1024
"""Bytes of a request of an app."""
_MAX_URI = 2_048


@define(eq=False)
class AppRequests:
    """Answers pages that show apps."""

    _room: Room = field(factory=lambda: Room(MAX_RUNNING), init=False)

    async def respond(
        self, scope: Scope, receive: Receive, send: Send, session: ChatSession, call: str
    ) -> None:
        """Answer a request about the app of a call, which `call` of the query or body names.

        Raises:
            PageRequestError: it is none, or there is no room for it.
        """
        method = scope["method"]
        if method not in ("GET", "HEAD", "POST"):
            await refuse_method(send, "GET, POST")
            return
        apps = session.sessions.orchestrator.apps
        try:
            with self._room.of(session.principal):
                if method == "POST":
                    found = await _answer(session, await object_of(receive, MAX_BODY))
                else:
                    found = await apps.open(session.id, call)
        except AppRequestError as error:
            # The app's to know: a browser would log a status of an error.
            await send_json(send, {"error": {"code": "app_failed", "message": str(error)}})
        else:
            await send_json(send, found)


async def _answer(session: ChatSession, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request that an app makes."""
    apps, call = session.sessions.orchestrator.apps, text_of(asked, "call", MAX_ID)
    if "uri" in asked:
        return await apps.read(session.id, call, text_of(asked, "uri", _MAX_URI))
    arguments = asked.get("arguments", {})
    if type(arguments) is not dict:
        raise invalid("arguments: expected an object")
    decided = None
    if "decision" in asked:
        if asked["decision"] not in DECISIONS:
            raise invalid(f"decision: expected one of {', '.join(DECISIONS)}")
        decided = AppDecision(asked["decision"], text_of(asked, "meaning", MAX_ID))
    return await apps.call(session.id, call, text_of(asked, "tool", MAX_ID), arguments, decided)
