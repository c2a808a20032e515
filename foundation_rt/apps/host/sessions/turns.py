"""The turns of one session: one at a time, in their order."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING

from attrs import define, evolve, field

from ....base.database.errors import CommitUnknownError, DatabaseError
from ..chat import chat_label
from ..events import TurnState
from ..texts import INTERNAL_ERROR
from .interruption import close_turn
from .live_chat import Payload
from .store import BegunTurn, ChatTurn

if TYPE_CHECKING:
    from .session import ChatSession

_LOG = logging.getLogger("foundation_rt.host.sessions")


@define(eq=False, repr=False)
class TurnRunner:
    """Runs the turns of a session that wait, while there are any and somebody is there.

    Attributes:
        turn: the one that runs here.
    """

    _session: ChatSession
    turn: ChatTurn | None = field(default=None, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _consuming: asyncio.Task[None] | None = field(default=None, init=False)
    _ending: TurnState = field(default="interrupted", init=False)
    _first: int = field(default=0, init=False)  # the position of the first message of the turn
    _looks_again: bool = field(default=False, init=False)

    @property
    def is_running(self) -> bool:
        """Tell whether turns run, or are about to."""
        return self._task is not None

    def start(self) -> None:
        """Look for a turn that waits, and run it."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        else:
            self._looks_again = True

    def end_turn(self, ending: TurnState) -> bool:
        """Cancel the running turn; return whether there is one."""
        if self._consuming is None or self._session.saving.has_ended:
            return False
        self._ending = ending
        self._consuming.cancel()
        return True

    async def ended(self) -> None:
        """Wait until no turn runs."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def cancel(self) -> None:
        """End at once; nothing more is stored."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        try:
            while True:
                self._looks_again = False
                begun = await self._begin()
                if begun is not None:
                    await self._run_turn(begun)
                    if self._session.saving.is_fenced and not begun.is_new:
                        return  # it cannot be ended here; a restart tries it again
                elif not self._looks_again:
                    return
        finally:
            self._task = None

    async def _begin(self) -> BegunTurn | None:
        session = self._session
        is_uncertain = False  # the turn that runs may be one that was begun here, just now
        while session.may_run():
            try:
                if not await session.is_attended():
                    return None
                begun = await session.sessions.store.begin_turn(session.key)
                is_uncertain = is_uncertain or (begun is not None and begun.is_new)
                if begun is not None and begun.version != session.chat.version:
                    await session.refresh()
            except DatabaseError as error:
                is_uncertain = is_uncertain or isinstance(error, CommitUnknownError)
                session.sessions.availability.lost(error)
                await session.sessions.availability.wait()
            else:
                if begun is None or begun.is_new or not is_uncertain:
                    return begun
                return evolve(begun, is_new=True)
        return None

    async def _run_turn(self, begun: BegunTurn) -> None:
        """Run a turn; one that ran before is not run again but ended (CHAT-21)."""
        self.turn, self._ending = begun.turn, "interrupted"
        try:
            await self._run_begun(begun)
        finally:
            self.turn = None

    async def _run_begun(self, begun: BegunTurn) -> None:
        session, turn = self._session, begun.turn
        session.began(turn)
        first = session.chat.position(turn.message_id)
        self._first = len(session.chat.messages) if first is None else first
        failure = await self._consume_whole(turn) if begun.is_new else {}
        await self._finish(turn, {"state": self._ending, **failure})
        if session.saving.is_fenced:
            await session.reload()
            running = session.chat.running
            if running is not None and running.turn_id == turn.turn_id:
                session.saving.begin(turn)  # nobody has ended it: it could not be stored
                await self._finish(turn, {"state": "failed"})

    async def _consume_whole(self, turn: ChatTurn) -> Payload:
        """Run a turn to its end, or until `end_turn`; return what a failure says."""
        self._consuming = asyncio.get_running_loop().create_task(self._consume(turn))
        try:
            await asyncio.wait({self._consuming})
            if not self._consuming.cancelled() and (error := self._consuming.exception()):
                self._ending = "failed"
                return _failure(self._session.key, error)
        finally:
            if not self._consuming.done():
                self._consuming.cancel()
                await asyncio.wait({self._consuming})
            self._consuming = None
        return {}

    async def _consume(self, turn: ChatTurn) -> None:
        session = self._session
        events = session.sessions.orchestrator.handle_input(
            session.id,
            turn.text,
            turn_id=turn.turn_id,
            message_id=turn.message_id,
            metadata=turn.metadata,
        )
        async with aclosing(events):
            async for event in events:
                if event.type == "turn" and event.payload["state"] != "started":
                    await self._close(turn, dict(event.payload))
                    return
                await session.emit(event, turn)

    async def _finish(self, turn: ChatTurn, end: Payload) -> None:
        """Record the end of a turn that did not say so itself; wait until all is stored."""
        saving = self._session.saving
        if not (saving.is_fenced or saving.has_ended):
            await self._close(turn, end)
        await saving.stored()

    async def _close(self, turn: ChatTurn, end: Payload) -> None:
        """Close what the turn has left open, and end it."""
        session = self._session
        saving, chat = session.saving, session.chat
        closing = close_turn(
            turn, chat.messages[self._first :], chat.state, end, session.sessions.now()
        )
        for message in closing.messages:
            saving.put(message)
        for event in closing.events:
            saving.emit(event)
        await saving.save()


def _failure(key: bytes, error: BaseException) -> Payload:
    _LOG.error("a turn failed", exc_info=error, extra={"fields": {"chat": chat_label(key.hex())}})
    return {"code": "INTERNAL", "message": INTERNAL_ERROR}
