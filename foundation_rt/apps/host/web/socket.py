"""One connection at `/ws`: frames in, frames out (HOST-10 to HOST-29).

Two tasks: one receives what the client sends, one sends the events of the session. What answers
the client itself (`pong`, `error`) is sent by the first; one lock keeps frames whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import uuid4

from attrs import define, field

from ....base.exact_json import dumps
from ..chat import chat_label
from ..events import ServerMessage
from ..sessions.store import (
    ChatFullError,
    RateLimitedError,
    SessionError,
    SlowConnectionError,
    StoreUnavailableError,
    TooManyConnectionsError,
    TooManyTurnsError,
    UnknownSessionError,
)
from ..texts import MAINTENANCE, RECONNECTED, WELCOME
from .frames import (
    AttachmentError,
    Attachments,
    ClientFrame,
    InvalidMessageError,
    attachments_of,
    parse_frame,
)

if TYPE_CHECKING:
    from ...web_page.requests import PageRequest
    from ...web_page.responses import Event
    from ..chat import ChatMessage
    from ..sessions.connection import SessionConnection
    from ..sessions.session import ChatSession
    from ..sessions.sessions import ChatSessions
    from .status import HostStatus, ModelList

log = logging.getLogger("foundation_rt.host.web")

BINARY = 1003
RESTARTING = 1012
TRY_LATER = 1013
SILENT = 4408
SLOW = 4409

UNKNOWN_SESSION = "unknown_session"

_CODES: dict[type[SessionError], str] = {
    RateLimitedError: "RATE_LIMITED",
    TooManyTurnsError: "TOO_MANY_TURNS",
    ChatFullError: "CHAT_FULL",
    TooManyConnectionsError: "TOO_MANY_CONNECTIONS",
    StoreUnavailableError: "MAINTENANCE",
    UnknownSessionError: UNKNOWN_SESSION,
}

_SECONDS_SILENT = "foundation_rt.seconds_silent"
_MAX_SEQ_DIGITS = 15
_FLUSH_SECONDS = 1.0
_MAX_HELD = 8


class _Ended(Exception):
    """The connection is over: the client has gone, or it was closed."""


@define(eq=False, repr=False)
class ChatSocket:
    """One WebSocket of one principal.

    Args:
        request: that it begins with.
        sessions: has the chats.
        status: of the servers.
        models: that messages may choose.
        silence_s: how long the client may be silent, in s.
        begin_drain: called when the server stops: no new turn begins.
    """

    _request: PageRequest
    _sessions: ChatSessions
    _status: HostStatus
    _models: ModelList
    _silence_s: float
    _begin_drain: Callable[[], object]
    _id: str = field(factory=lambda: uuid4().hex, init=False)
    _sending: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _session: ChatSession = field(init=False)
    _heard_at: float = field(init=False)
    _is_closed: bool = field(default=False, init=False)
    _is_draining: bool = field(default=False, init=False)
    _tasks: set[asyncio.Task[None]] = field(factory=set, init=False)
    _held: list[ClientFrame] = field(factory=list, init=False)

    async def serve(self) -> None:
        """Serve the connection until its end."""
        if (await self._request.receive())["type"] != "websocket.connect":
            return
        self._heard_at = self._now()
        await self._request.send({"type": "websocket.accept"})
        try:
            connection = await self._begin()
            await self._follow(connection)
        except _Ended:
            return
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    # -- the beginning ----------------------------------------------------------------------------

    async def _begin(self) -> SessionConnection:
        """Find or make the session, and greet (HOST-10 to HOST-13)."""
        wanted, after = _address(self._request)
        try:
            found = None if wanted is None else await self._find(wanted)
            self._session = found or await self._sessions.create(self._request.principal)
            if found is None:
                after = 0
            connection = self._session.connect(after)
        except SessionError as error:
            await self._show(_connection_message("error", str(error), ""))
            await self._show_problem(_CODES[type(error)], str(error))
            await self._close(TRY_LATER)
            raise _Ended from None
        self._log("connected", continued=found is not None)
        state, text = ("connected", WELCOME) if found is None else ("reconnected", RECONNECTED)
        await self._show(_connection_message(state, text, self._session.name))
        if wanted is not None and found is None:
            text = "this chat is not there: a new one has begun"
            await self._show_problem(UNKNOWN_SESSION, text)
        await self._show(self._status.message())
        return connection

    async def _find(self, name: str) -> ChatSession | None:
        return await self._sessions.find(name, self._request.principal)

    async def _follow(self, connection: SessionConnection) -> None:
        self._status.listen(self._servers_changed)
        # Its reader may wait for a client that reads nothing, and would not notice.
        connection.on_slow = lambda: self._start(self._close(SLOW))
        try:
            self._start(self._send_events(connection))
            await self._receive_frames(connection)
        finally:
            self._status.unlisten(self._servers_changed)
            connection.close()
            self._log("disconnected")

    # -- out --------------------------------------------------------------------------------------

    async def _send_events(self, connection: SessionConnection) -> None:
        """Send the events of the session; close a connection that does not keep up (HOST-26)."""
        try:
            async for message in connection:
                await self._show(message)
        except SlowConnectionError:
            await self._close(SLOW)
        except _Ended:
            return
        else:
            await self._close(1000)  # the chat was deleted

    def _servers_changed(self, message: ServerMessage) -> None:
        if not self._sending.locked():  # else it is told with the next change, or asks itself
            self._start(self._show_quietly(message))

    async def _show_quietly(self, message: ServerMessage) -> None:
        try:
            await self._show(message)
        except _Ended:
            return

    async def _show_problem(self, code: str, message: str, **more: Any) -> None:
        self._log("message_refused", code=code, messageId=more.get("id"))
        payload = {"code": code, "message": message, **more}
        await self._show(ServerMessage("error", payload))

    async def _show(self, message: ServerMessage) -> None:
        async with self._sending:
            if self._is_closed:
                raise _Ended
            text = dumps(message.to_json()).decode()
            try:
                await self._request.send({"type": "websocket.send", "text": text})
            except (OSError, RuntimeError):
                raise _Ended from None  # the client has gone, which servers say in several ways

    async def _close(self, code: int) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._request.send({"type": "websocket.close", "code": code})
        except (OSError, RuntimeError):
            return  # the client was faster

    # -- in ---------------------------------------------------------------------------------------

    async def _receive_frames(self, connection: SessionConnection) -> None:
        while True:
            event = await self._next_event()
            if event["type"] == "websocket.disconnect":
                if event.get("code") != RESTARTING or self._is_draining or self._is_closed:
                    return
                self._is_draining = True
                self._start(self._drain(connection))
            elif self._is_closed:
                continue  # the client has not heard of it yet
            elif event.get("text") is None:
                await self._close(BINARY)
            else:
                await self._take(event["text"])

    async def _next_event(self) -> Event:
        """Return the next event; close a connection that is silent for too long (HOST-25)."""
        while True:
            rest = self._silence_s - self._silent_s()
            if rest <= 0 and not self._is_closed:
                await self._close(SILENT)
            try:
                async with asyncio.timeout(rest if rest > 0 else None):
                    event = await self._request.receive()
            except TimeoutError:
                continue
            self._heard_at = self._now()
            return event

    def _silent_s(self) -> float:
        extensions = self._request.scope.get("extensions") or {}
        seconds_silent = extensions.get(_SECONDS_SILENT)
        silent = self._now() - self._heard_at
        return silent if seconds_silent is None else min(silent, seconds_silent())

    async def _take(self, text: str) -> None:
        async with self._saying_why():
            frame = parse_frame(text)
            self._log("message_received", type=frame.type, messageId=frame.payload.get("id"))
            async with self._saying_why(frame.payload.get("id")):
                await self._obey(frame)

    @asynccontextmanager
    async def _saying_why(self, message_id: str | None = None) -> AsyncIterator[None]:
        """Tell the client of what is refused."""
        try:
            yield
        except InvalidMessageError as error:
            more = {"path": error.path, **({"id": error.message_id} if error.message_id else {})}
            await self._show_problem("invalid_message", str(error), **more)
        except SessionError as error:
            more = {} if message_id is None else {"id": message_id}
            await self._show_problem(_CODES.get(type(error), "INTERNAL"), str(error), **more)

    async def _obey(self, frame: ClientFrame) -> None:
        session, payload = self._session, frame.payload
        match frame.type:
            case "ping":
                await self._show(ServerMessage("pong", {}))
            case "message":
                if self._held or ("model" in payload and not self._models.is_known):
                    self._hold(frame)
                else:
                    await self._submit(payload)
            case "stop":
                await session.stop()
            case "approval":
                await session.approve(payload["callId"], payload["decision"])
            case "answer":
                action, content = payload["action"], payload["content"]
                await session.answer(payload["questionId"], action, content)

    def _hold(self, frame: ClientFrame) -> None:
        """Keep a message until the models are listed: a stop does not wait for a provider."""
        if len(self._held) == _MAX_HELD:
            raise TooManyTurnsError(_MAX_HELD)
        self._held.append(frame)
        if len(self._held) == 1:
            self._start(self._submit_held())

    async def _submit_held(self) -> None:
        """Submit what is held, in its order."""
        try:
            await self._models.names()
            while self._held:
                payload = self._held[0].payload
                async with self._saying_why(payload["id"]):
                    await self._submit(payload)
                del self._held[0]
        except _Ended:
            return
        finally:
            self._held.clear()

    async def _submit(self, payload: Mapping[str, Any]) -> None:
        """Let a message wait for its turn, with its branch, model and files (CHAT-40, HOST-62)."""
        if self._is_draining:
            raise StoreUnavailableError(MAINTENANCE)
        words, attached = payload["text"], payload.get("attachments", Attachments())
        metadata = {name: payload[name] for name in ("after", "model") if name in payload}
        if metadata.get("after") is not None:
            self._said(payload, "after")
        if "attachmentsOf" in payload:
            kept = attachments_of(self._said(payload, "attachmentsOf"))
            try:
                attached = kept + attached
            except AttachmentError as error:
                self._refuse(payload, "attachments", error.expected)
        if "model" in payload and payload["model"] not in await self._models.names():
            self._refuse(payload, "model", "one that /api/models lists")
        if attached.pictures and not self._status.llm.takes_pictures:
            self._refuse(payload, "attachments", "no pictures: this model takes none")
        metadata |= attached.metadata(words)
        await self._session.submit(words + attached.text, payload["id"], metadata)

    def _said(self, payload: Mapping[str, Any], name: str) -> ChatMessage:
        """Return the message of the user whose id a member of a frame is."""
        message = self._session.said(payload[name])
        if message is None:
            self._refuse(payload, name, "the id of a message of the user in this chat")
        return message

    def _refuse(self, payload: Mapping[str, Any], name: str, expected: str) -> NoReturn:
        raise InvalidMessageError(f"payload.{name}", expected, payload["id"])

    # -- the end ----------------------------------------------------------------------------------

    async def _drain(self, connection: SessionConnection) -> None:
        """Say that the server stops, let the turn end, and close (HOST-28)."""
        self._begin_drain()
        try:
            await self._show(_connection_message("reconnecting", MAINTENANCE, self._session.name))
            await self._session.end_turns()
            async with asyncio.timeout(_FLUSH_SECONDS):
                while connection.seen < self._session.last_seq:
                    await asyncio.sleep(0.01)
                async with self._sending:
                    await self._close(RESTARTING)
        except (TimeoutError, _Ended):
            await self._close(RESTARTING)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _log(self, action: str, **fields: Any) -> None:
        """Write a record; `correlationId` is that of the connection (TURN-70)."""
        if log.isEnabledFor(logging.DEBUG):
            session = getattr(self, "_session", None)  # none was found, or could be made
            chat = None if session is None else chat_label(session.id)
            own = {"component": "WebSocket", "action": action, "chat": chat}
            log.debug(action, extra={"fields": {**own, "correlationId": self._id, **fields}})


def _connection_message(state: str, message: str, session_id: str) -> ServerMessage:
    return ServerMessage(
        "connection", {"state": state, "message": message, "sessionId": session_id}
    )


def _address(request: PageRequest) -> tuple[str | None, int | None]:
    """Return the session that is wanted, and the number of the newest event that was seen."""
    session, after = request.query("session") or None, request.query("after")
    if not (after.isascii() and after.isdecimal() and len(after) <= _MAX_SEQ_DIGITS):
        return session, None
    return session, int(after)
