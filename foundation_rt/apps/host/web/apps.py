"""`/api/sessions/ID/app`: the apps of a chat, for its page (HOST-69, HOST-70)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...web_page.requests import MAX_RUNNING, PageRequest, Room, invalid, text_of
from ..orchestrator.app_calls import AppDecision, AppRequestError
from .frames import DECISIONS, MAX_ID

if TYPE_CHECKING:
    from ..sessions.session import ChatSession

MAX_BODY = 1024 * 1024
"""Bytes of a request of an app."""
_MAX_URI = 2_048


@define(eq=False)
class AppRequests:
    """Answers pages that show apps."""

    _room: Room = field(factory=lambda: Room(MAX_RUNNING), init=False)

    async def respond(self, request: PageRequest, session: ChatSession) -> dict[str, Any]:
        """Answer a request about the app of a call, which `call` of the query or body names.

        Raises:
            PageRequestError: it is none, or there is no room for it.
        """
        try:
            with self._room.of(session.principal):
                if request.scope["method"] == "POST":
                    return await _answer(session, await request.read(MAX_BODY))
                apps = session.sessions.orchestrator.apps
                return await apps.open(session.id, request.query("call"))
        except AppRequestError as error:
            # The app's to know: a browser would log a status of an error.
            return {"error": {"code": "app_failed", "message": str(error)}}


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
