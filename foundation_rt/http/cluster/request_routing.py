"""Routing of requests to the worker that has their session or their task (HTTP-61, TASK-14)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import define

from ...errors import JsonRpcErrorCode
from ...protocol.jsonrpc import Request
from ...protocol.methods import SUBSCRIPTIONS_LISTEN, facts
from ..asgi import HttpRefusal
from ..headers import is_stateless
from .forwarding import Forwarded, encode_request, forward
from .session_seal import SealedSession

if TYPE_CHECKING:
    from ...protocol.jsonrpc import Message
    from ..request import HttpRequest
    from ..session_table import SessionTable
    from .worker_connections import Address
    from .worker_group import WorkerGroup

PATIENCE_SECONDS = 15.0
"""Seconds for which a request waits for the successor of a worker that has ended."""

_RETRY_SECONDS = 0.1

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

    async def take_post(self, request: HttpRequest, body: bytes) -> Taken | None:
        """Take a POST for a session; return None if it is to be handled here.

        The body is not read: a request that only its body makes stateless is the same anywhere.
        """
        if is_stateless(request.head, None):
            return None
        return await self.take(request, body)

    async def take_task(self, request: HttpRequest, message: Message, body: bytes) -> Taken | None:
        """Take a stateless request for a task; return None if it is to be handled here.

        Args:
            request: the POST.
            message: in its body.
            body: is sent again.
        """
        task_id = _task_of(message)
        params = message.params if type(message) is Request else None
        if task_id is None or not is_stateless(request.head, params):
            return None
        return await self._take(request, body, lambda: self._find_task(request, task_id))

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
        until = time.monotonic() + PATIENCE_SECONDS
        while not isinstance(taken, HttpRefusal):
            end = self.group.begin(taken)
            try:
                refusal = await taken.relay(request)
            finally:
                end()
            if taken.unread is None:
                return refusal
            taken = await self._forward_again(request, taken.address, taken.unread, until)
        return taken

    async def _take(
        self, request: HttpRequest, body: bytes, find: Callable[[], Any]
    ) -> Taken | None:
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            found: Address | HttpRefusal | None = await find()
            if found is None or isinstance(found, HttpRefusal):
                return found
            data = encode_request(request, body)
            taken = await self._forward(request, found, data, until)
            if taken is not None:
                return taken
            await asyncio.sleep(_RETRY_SECONDS)

    async def _forward_again(
        self, request: HttpRequest, address: Address, data: bytes, until: float
    ) -> Taken:
        """Forward a request of which a worker has done nothing; to its successor."""
        taken: Taken | None = None if time.monotonic() <= until else _NOT_REACHED
        while taken is None:
            await asyncio.sleep(_RETRY_SECONDS)
            taken = await self._forward(request, address, data, until)
        return taken

    async def _forward(
        self, request: HttpRequest, address: Address, data: bytes, until: float
    ) -> Taken | None:
        """Try to forward a request; return None to be called again."""
        is_stream = request.scope["method"] == "GET"
        taken = await forward(self.group.connections, address, data, is_stream=is_stream)
        return _NOT_REACHED if taken is None and time.monotonic() > until else taken

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
    if facts(message.method).target == "taskId":
        task_id = message.params.get("taskId")
        return task_id if type(task_id) is str else None
    wanted = message.params.get("notifications")
    if message.method != SUBSCRIPTIONS_LISTEN or type(wanted) is not dict:
        return None
    ids = wanted.get("taskIds")
    return ids[0] if type(ids) is list and ids and type(ids[0]) is str else None
