"""The requests of a server that a session is answering: each is a task with its handler.

A request may belong to a call, whose handlers then answer it; it ends with that call (QUEST-27).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...errors import JsonRpcErrorCode
from ...protocol.jsonrpc import ABSENT
from ...protocol.methods import PING
from ..handlers.params import ServerRequestRefused
from ..handlers.server_requests import answer
from .pending_requests import encode_response

if TYPE_CHECKING:
    from ...protocol.jsonrpc import Request
    from ...protocol.revisions import Revision
    from ..handlers.server_requests import ServerRequestHandlers
    from ..resilience.deadline import Deadline
    from ..resilience.retries import Attempt

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

    handlers: ServerRequestHandlers
    timeout: float
    reply: Callable[[bytes], None]
    deadlines: Callable[[], Iterable[Deadline]]
    _tasks: dict[Any, asyncio.Task[None]] = field(factory=dict, init=False)
    _of_calls: dict[Any, tuple[Request, Attempt]] = field(factory=dict, init=False)

    def ask(self, request: Request, revision: Revision, attempt: Attempt | None) -> None:
        """Handle a request of the server.

        Args:
            request: the request.
            revision: of the session.
            attempt: what it belongs to; None if that is not known (QUEST-24).
        """
        if request.method == PING:
            self.reply(encode_response(request, result={}))
        elif request.id in self._tasks or len(self._tasks) >= MAX_OPEN_REQUESTS:
            self._refuse(request, JsonRpcErrorCode.INVALID_REQUEST, "Too many open requests")
        else:
            task = asyncio.create_task(self._respond(request, revision, attempt))
            self._tasks[request.id] = task
            if attempt is not None and attempt.handlers is not None:
                self._of_calls[request.id] = (request, attempt)
            task.add_done_callback(lambda _: self._forget(request.id))

    def cancel(self, request_id: Any) -> None:
        """Cancel a request that the server has cancelled; ignore an unknown id."""
        task = self._tasks.get(request_id) if type(request_id) in (str, int) else None
        if task is not None:
            task.cancel()

    def end_of(self, attempt: Attempt) -> None:
        """Refuse the requests that belong to a call which has ended, and cancel its handlers."""
        for request, asker in [*self._of_calls.values()]:
            if asker is attempt:
                del self._of_calls[request.id]
                task = self._tasks[request.id]
                if not task.done():
                    task.cancel()
                    code = JsonRpcErrorCode.INTERNAL_ERROR
                    self._refuse(request, code, "The request that it belongs to has ended")

    def cancel_all(self) -> None:
        """Cancel all requests."""
        for task in self._tasks.values():
            task.cancel()

    async def ended(self) -> None:
        """Wait until the cancelled tasks have ended, except the current one."""
        others = {*self._tasks.values()} - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=_GRACE_SECONDS)

    def _forget(self, request_id: Any) -> None:
        self._tasks.pop(request_id, None)
        self._of_calls.pop(request_id, None)

    async def _respond(self, request: Request, revision: Revision, attempt: Attempt | None) -> None:
        asker = None if attempt is None else attempt.deadline
        held = [*self.deadlines()] if asker is None else [asker]
        handlers = self.handlers
        if attempt is not None and attempt.handlers is not None:
            handlers = attempt.handlers
        for deadline in held:
            deadline.hold()
        try:
            async with asyncio.timeout(self.timeout):
                params = None if request.params is ABSENT else request.params
                result = await answer(handlers, request.method, params, revision)
            if handlers is not self.handlers and request.id not in self._of_calls:
                return  # it was refused when its call ended
            self.reply(encode_response(request, result=result))
        except ServerRequestRefused as refusal:
            self.reply(encode_response(request, error=refusal.to_wire()))
        except TimeoutError:
            self._refuse(request, JsonRpcErrorCode.INTERNAL_ERROR, "No answer in time")
        finally:
            for deadline in held:
                deadline.resume()

    def _refuse(self, request: Request, code: int, message: str) -> None:
        self.reply(encode_response(request, error={"code": int(code), "message": message}))
