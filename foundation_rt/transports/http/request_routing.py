"""Routing of requests to the worker that has their session or their task (HTTP-61, TASK-14)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import define

from ...errors import JsonRpcErrorCode
from ...protocol.jsonrpc import Request
from .asgi import HttpRefusal
from .forwarding import Forwarded, forward
from .headers import is_stateless
from .session_seal import SealedSession

if TYPE_CHECKING:
    from ...protocol.jsonrpc import Message
    from .forwarding import Address
    from .request import HttpRequest
    from .session_table import SessionTable
    from .worker_group import WorkerGroup

PATIENCE_SECONDS = 15.0
"""Seconds for which a request waits for the successor of a worker that has ended."""

_RETRY_SECONDS = 0.1

_TASK_METHODS = ("tasks/cancel", "tasks/get", "tasks/update")

_NOT_REACHED = HttpRefusal(
    503,
    "The worker that has the session cannot be reached",
    JsonRpcErrorCode.INTERNAL_ERROR,
    "worker_unreachable",
    ((b"retry-after", b"1"),),
)

Taken = HttpRefusal | Forwarded
"""A request that is not handled here: it is refused, or on its way to another worker."""


@define(eq=False, repr=False)
class RequestRouter:
    """Takes the requests that are for another worker, and restores sessions that have none.

    Args:
        group: knows the other workers.
        sessions: those of this worker.
        restore: adds a session of that id and content to them, or returns a refusal.
    """

    group: WorkerGroup
    _sessions: SessionTable[Any]
    _restore: Callable[[HttpRequest, str, SealedSession], HttpRefusal | None]

    async def take_message(
        self, request: HttpRequest, message: Message, body: bytes
    ) -> Taken | None:
        """Take a POST; return None if it is to be handled here.

        Args:
            request: the POST.
            message: in its body.
            body: is sent again.
        """
        params = message.params if type(message) is Request else None
        if is_stateless(request.head, params):
            task_id = _task_of(message)
            if task_id is None:
                return None
            return await self._take(request, body, lambda: self._find_task(request, task_id))
        return await self.take(request, body)

    async def take(self, request: HttpRequest, body: bytes = b"") -> Taken | None:
        """Take a request for a session; return None if it is to be handled here."""
        session_id = request.head.session_id
        if not session_id or session_id in self._sessions:
            return None
        return await self._take(request, body, lambda: self._find_session(request, session_id))

    async def take_legacy(self, request: HttpRequest, session_id: str, body: bytes) -> Taken | None:
        """Take a message for a session of HTTP+SSE, which is never restored."""

        async def find() -> Address | HttpRefusal | None:
            found = await self.group.find(session_id, request.principal, request.scope)
            return None if isinstance(found, SealedSession) else found

        return await self._take(request, body, find)

    async def respond(self, request: HttpRequest, taken: Taken) -> HttpRefusal | None:
        """Send the response of the other worker, or return why there is none."""
        if isinstance(taken, HttpRefusal):
            return taken
        end = self.group.begin(taken)
        try:
            return await taken.relay(request)
        finally:
            end()

    async def _take(
        self, request: HttpRequest, body: bytes, find: Callable[[], Any]
    ) -> Taken | None:
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            found: Address | HttpRefusal | None = await find()
            if found is None or isinstance(found, HttpRefusal):
                return found
            forwarded = await forward(request, body, found)
            if forwarded is not None:
                return forwarded
            if time.monotonic() > until:
                return _NOT_REACHED
            await asyncio.sleep(_RETRY_SECONDS)

    async def _find_session(
        self, request: HttpRequest, session_id: str
    ) -> Address | HttpRefusal | None:
        found = await self.group.find(session_id, request.principal, request.scope)
        if not isinstance(found, SealedSession):
            return found
        # Another request for it may have restored it meanwhile.
        return None if session_id in self._sessions else self._restore(request, session_id, found)

    async def _find_task(self, request: HttpRequest, task_id: str) -> Address | None:
        return await self.group.find_task(task_id, request.scope)


def _task_of(message: Message) -> str | None:
    """Return the task that a stateless request names; of several, the first."""
    if type(message) is not Request or type(message.params) is not dict:
        return None
    if message.method in _TASK_METHODS:
        task_id = message.params.get("taskId")
        return task_id if type(task_id) is str else None
    wanted = message.params.get("notifications")
    if message.method != "subscriptions/listen" or type(wanted) is not dict:
        return None
    ids = wanted.get("taskIds")
    return ids[0] if type(ids) is list and ids and type(ids[0]) is str else None
