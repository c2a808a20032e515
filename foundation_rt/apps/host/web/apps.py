"""`/api/sessions/ID/app`: the apps of a chat, for its page (HOST-69, HOST-70)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...web_page.responses import read_body, read_object, refuse_method, send_error, send_json
from ..orchestrator.app_calls import AppDecision, AppRequestError
from .frames import DECISIONS, MAX_ID
from .offers import MAX_RUNNING, OfferError, Room

if TYPE_CHECKING:
    from ...web_page.responses import Receive, Scope, Send
    from ..sessions.session import ChatSession

MAX_BODY = 1024 * 1024
"""Bytes of a request of an app."""
_MAX_URI = 2_048


class _WrongError(Exception):
    """A request that a page should not have sent; says what was expected."""


@define(eq=False)
class AppRequests:
    """Answers pages that show apps."""

    _room: Room = field(factory=lambda: Room(MAX_RUNNING), init=False)

    async def respond(
        self, scope: Scope, receive: Receive, send: Send, session: ChatSession, call: str
    ) -> None:
        """Answer a request about the app of a call, which `call` of the query or body names."""
        method = scope["method"]
        if method not in ("GET", "HEAD", "POST"):
            await refuse_method(send, "GET, POST")
            return
        apps = session.sessions.orchestrator.apps
        try:
            with self._room.of(session.principal):
                if method == "POST":
                    asked = read_object(await read_body(receive, MAX_BODY))
                    found = await _answer(session, asked)
                else:
                    found = await apps.open(session.id, call)
        except _WrongError as error:
            await send_error(send, 400, "invalid_request", str(error))
        except OfferError as error:
            await send_error(send, error.status, error.code, str(error))
        except (
            AppRequestError
        ) as error:  # the app's to know: a browser would log a status of an error
            await send_json(send, {"error": {"code": "app_failed", "message": str(error)}})
        else:
            await send_json(send, found)


async def _answer(session: ChatSession, asked: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the answer to a request that an app makes."""
    if asked is None:
        raise _WrongError(f"the body: expected a JSON object of at most {MAX_BODY} bytes")
    apps, call = session.sessions.orchestrator.apps, _text(asked, "call", MAX_ID)
    if "uri" in asked:
        return await apps.read(session.id, call, _text(asked, "uri", _MAX_URI))
    arguments = asked.get("arguments", {})
    if type(arguments) is not dict:
        raise _WrongError("arguments: expected an object")
    decided = None
    if "decision" in asked:
        if asked["decision"] not in DECISIONS:
            raise _WrongError(f"decision: expected one of {', '.join(DECISIONS)}")
        decided = AppDecision(asked["decision"], _text(asked, "meaning", MAX_ID))
    return await apps.call(session.id, call, _text(asked, "tool", MAX_ID), arguments, decided)


def _text(asked: Mapping[str, Any], name: str, longest: int) -> str:
    value = asked.get(name)
    if type(value) is not str or not 0 < len(value) <= longest:
        raise _WrongError(f"{name}: expected a text of 1 to {longest} characters")
    return value
