"""What a server has asked, in the handshake mode, and has not been answered yet.

Every question is a task, which ends with the session at the latest. While one is open, the
deadlines of those who wait for the server stand still (CLIENT-20).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...errors import JsonRpcErrorCode
from ..handlers.client_handlers import ClientHandlers
from ..handlers.params import ServerRequestRefused
from .pending_requests import answer

if TYPE_CHECKING:
    from ...protocol.jsonrpc import Request
    from ...protocol.revisions import Revision
    from ..resilience.deadline import Deadline

MAX_OPEN_REQUESTS = 64
"""Most questions of one server that are being answered at a time (CLIENT-17)."""

# A task that is cancelled ends at once, unless a handler holds on.
_GRACE = 1.0


@define(eq=False, repr=False)
class OpenRequests:
    """Lets the caller's handlers answer, and sends what they say.

    Args:
        timeout: seconds that one answer may take.
        reply: sends a line.
        deadlines: those of all who wait for an answer of the server's now.
    """

    handlers: ClientHandlers
    timeout: float
    reply: Callable[[bytes], None]
    deadlines: Callable[[], Iterable[Deadline]]
    _tasks: dict[Any, asyncio.Task[None]] = field(factory=dict, init=False)

    def ask(self, question: Request, revision: Revision) -> None:
        """The server wants an answer."""
        if question.method == "ping":
            self.reply(answer(question, result={}))
        elif question.id in self._tasks or len(self._tasks) >= MAX_OPEN_REQUESTS:
            self._refuse(question, JsonRpcErrorCode.INVALID_REQUEST, "Too many open requests")
        else:
            task = asyncio.create_task(self._answer(question, revision))
            self._tasks[question.id] = task
            task.add_done_callback(lambda _: self._tasks.pop(question.id, None))

    def take_back(self, question_id: Any) -> None:
        """The server does not want an answer any more; to an id that is none, nothing happens."""
        task = self._tasks.get(question_id) if type(question_id) in (str, int) else None
        if task is not None:
            task.cancel()

    def abandon(self) -> None:
        """Nobody wants an answer any more."""
        for task in self._tasks.values():
            task.cancel()

    async def ended(self) -> None:
        """Wait until those that were abandoned are gone; but not for whoever waits here."""
        others = {*self._tasks.values()} - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=_GRACE)

    async def _answer(self, question: Request, revision: Revision) -> None:
        held = [*self.deadlines()]
        for deadline in held:
            deadline.hold()
        try:
            async with asyncio.timeout(self.timeout):
                result = await self.handlers.answer(question.method, question.params, revision)
            self.reply(answer(question, result=result))
        except ServerRequestRefused as refusal:
            self.reply(answer(question, error=refusal.to_wire()))
        except TimeoutError:
            self._refuse(question, JsonRpcErrorCode.INTERNAL_ERROR, "No answer in time")
        finally:
            for deadline in held:
                deadline.resume()

    def _refuse(self, question: Request, code: int, message: str) -> None:
        self.reply(answer(question, error={"code": int(code), "message": message}))
