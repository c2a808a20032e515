"""The requests of a server, in the handshake mode, that have no response yet.

Each is a task, which ends with the session at the latest. While one is open, the deadlines of the
calls that wait for the server are paused (CLIENT-20).
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
"""Most open requests of one server (CLIENT-17)."""

# A task that is cancelled ends at once, unless a handler holds on.
_GRACE_SECONDS = 1.0


@define(eq=False, repr=False)
class OpenRequests:
    """Runs the caller's handlers, and sends their results.

    Args:
        timeout: seconds that one handler may take.
        reply: sends a line.
        deadlines: those of all calls that wait for a response now.
    """

    handlers: ClientHandlers
    timeout: float
    reply: Callable[[bytes], None]
    deadlines: Callable[[], Iterable[Deadline]]
    _tasks: dict[Any, asyncio.Task[None]] = field(factory=dict, init=False)

    def ask(self, request: Request, revision: Revision) -> None:
        """Handle a request of the server."""
        if request.method == "ping":
            self.reply(answer(request, result={}))
        elif request.id in self._tasks or len(self._tasks) >= MAX_OPEN_REQUESTS:
            self._refuse(request, JsonRpcErrorCode.INVALID_REQUEST, "Too many open requests")
        else:
            task = asyncio.create_task(self._answer(request, revision))
            self._tasks[request.id] = task
            task.add_done_callback(lambda _: self._tasks.pop(request.id, None))

    def cancel(self, request_id: Any) -> None:
        """Cancel a request that the server has cancelled; ignore an unknown id."""
        task = self._tasks.get(request_id) if type(request_id) in (str, int) else None
        if task is not None:
            task.cancel()

    def cancel_all(self) -> None:
        """Cancel all requests."""
        for task in self._tasks.values():
            task.cancel()

    async def ended(self) -> None:
        """Wait until the cancelled tasks have ended, except the current one."""
        others = {*self._tasks.values()} - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=_GRACE_SECONDS)

    async def _answer(self, request: Request, revision: Revision) -> None:
        held = [*self.deadlines()]
        for deadline in held:
            deadline.hold()
        try:
            async with asyncio.timeout(self.timeout):
                result = await self.handlers.answer(request.method, request.params, revision)
            self.reply(answer(request, result=result))
        except ServerRequestRefused as refusal:
            self.reply(answer(request, error=refusal.to_wire()))
        except TimeoutError:
            self._refuse(request, JsonRpcErrorCode.INTERNAL_ERROR, "No answer in time")
        finally:
            for deadline in held:
                deadline.resume()

    def _refuse(self, request: Request, code: int, message: str) -> None:
        self.reply(answer(request, error={"code": int(code), "message": message}))
