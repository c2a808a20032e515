"""Routing of requests to the worker that has their session or their task (HTTP-61, TASK-14).

A request goes as it came to a private address of that worker, which checks it as if it had come
to it at first, authentication included. The response comes back as it is made: nothing is gathered,
and no more is read than the client takes. A client that goes takes the connection to the worker
with it, and a worker that dies takes the connection to the client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...errors import JsonRpcErrorCode
from ...protocol.jsonrpc import Request
from ...protocol.methods import SUBSCRIPTIONS_LISTEN, facts
from ..asgi import CUT_CONNECTION, HttpRefusal
from ..headers import is_stateless
from .session_seal import SealedSession
from .worker_connections import OF_ONE_CONNECTION

if TYPE_CHECKING:
    from ...protocol.jsonrpc import Message
    from ..request import HttpRequest
    from ..session_table import SessionTable
    from .worker_connections import Address, WorkerConnection, WorkerConnections
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

_WATCHED_AFTER_SECONDS = 0.1
"""Seconds after which the client of a request is watched. Most responses are complete by then."""

_MOST_KEPT = 64 * 1024
"""Bytes of a request that is kept for a successor as long as its response is waited for."""

# The first worker has checked `Origin`, and adds what a browser needs in the response.
_NOT_FORWARDED = OF_ONE_CONNECTION | {b"content-length", b"expect", b"origin"}

_LOST = HttpRefusal(
    502,
    "The worker that had the session has ended: it is not known what became of the request",
    JsonRpcErrorCode.INTERNAL_ERROR,
    "worker_lost",
)


@define(eq=False, repr=False)
class Forwarded:
    """One request on its way; made by `forward`, and used once.

    Attributes:
        is_stream: whether it is a GET, whose response lasts as long as its session.
        unread: the request, if the worker has done nothing of it, because it stops or has ended.
    """

    _connection: WorkerConnection
    _data: bytes
    is_stream: bool
    unread: bytes | None = field(default=None, init=False)
    _is_ended: bool = field(default=False, init=False)

    @property
    def address(self) -> Address:
        """Return the address of the worker."""
        return self._connection.address

    async def relay(self, request: HttpRequest) -> HttpRefusal | None:
        """Send the worker's response; return a refusal if there will be none."""
        connection, data = self._connection, self._data
        self._data = b""
        try:
            await connection.wait_for_news(_WATCHED_AFTER_SECONDS)
            if connection.is_unread:
                self.unread = data
                return None
            kept = data if len(data) <= _MOST_KEPT else b""
            del data  # it may be large, and the response may take hours (HTTP-28)
            if not connection.is_complete:
                return await self._relay_on(request, kept)
            events = connection.events()
        finally:
            connection.finish()
        for event in events:
            await request.send(event)
        return None

    async def _relay_on(self, request: HttpRequest, kept: bytes) -> HttpRefusal | None:
        """Send a response that takes its time, for as long as its client is there."""
        connection = self._connection
        watcher = asyncio.ensure_future(self._watch(request))
        try:
            while True:
                await connection.wait_for_news()
                events = [] if connection.is_unread else connection.events()
                if not events:
                    break
                for event in events:
                    await request.send(event)
                if not events[-1].get("more_body", True):
                    return None
            if connection.is_unread and kept and not watcher.done():
                self.unread = kept
                return None
            if connection.is_unread or not connection.status:
                return None if watcher.done() else _LOST
            await self._break_off(request, watcher)
            return None
        finally:
            watcher.cancel()

    def end(self) -> None:
        """End the response, as a stream that is complete: this worker stops."""
        self._is_ended = True
        self._connection.abort()

    async def _watch(self, request: HttpRequest) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self._connection.abort()

    async def _break_off(self, request: HttpRequest, watcher: asyncio.Future[None]) -> None:
        if self._is_ended:
            await request.send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        cut = request.scope.get("extensions", {}).get(CUT_CONNECTION)
        if cut is not None and not watcher.done():
            cut()  # an end in order would say that the stream is complete
            await watcher


async def forward(
    connections: WorkerConnections, address: Address, data: bytes, *, is_stream: bool
) -> Forwarded | None:
    """Send an encoded request to a worker; return None if nothing listens there."""
    connection = await connections.open(address)
    if connection is None:
        return None
    connection.send(data)
    return Forwarded(connection, data, is_stream)


def encode_request(request: HttpRequest, body: bytes) -> bytes:
    """Return a request, whose body has been read, as it is sent to another worker."""
    scope = request.scope
    target = scope["raw_path"]
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    lines = [b"%s %s HTTP/1.1" % (scope["method"].encode(), target)]
    lines += [b"%s: %s" % each for each in scope["headers"] if each[0] not in _NOT_FORWARDED]
    lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join((*lines, b"", body))


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
        find = partial(self.group.find_task, task_id, request.scope)
        return await self._take(request, body, find)

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
            try:
                found: Address | HttpRefusal | None = await find()
            except ConnectionError:
                return _NOT_REACHED
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
