"""Calls that go on between the rounds of a stateless client (GATE-22).

A server of the handshake mode sends requests to its client while it handles a call. A client of
the stateless mode gets such requests only in the result of a call, which then has ended; it
answers them in its next call. Meanwhile the call to the server goes on: it is parked, with its
open requests, and the client carries the name under which it is found again.

    first call ──► the server's call begins ──► the server asks ──► `input_required`, it is parked
    next call  ──► the server gets its response ──► it asks again, or the result is there

A parked call that is not resumed within `ttl_ms` is cancelled, and its server is notified.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...errors import ErrorCode, ToolError

if TYPE_CHECKING:
    from ...features.context import ToolContext


class UnknownParkedCall(Exception):
    """Raised for responses whose call is not parked here: it ended, or another process has it."""


@define(eq=False)
class ParkedRequest:
    """A request of a server that its client has not answered.

    Attributes:
        method: of the request.
        params: as the server sent them.
        result: of the client, once it is there.
    """

    method: str
    params: Any
    result: asyncio.Future[dict[str, Any]]


@define(eq=False)
class InputRequests:
    """The open requests of a call that was parked.

    Attributes:
        parked: the name of the call.
        requests: by key, those that the client has to answer.
    """

    parked: str
    requests: dict[str, ParkedRequest]


@define(eq=False)
class ParkedCall:
    """A call to a server that may outlive the request of its client.

    Attributes:
        name: names it; not to be guessed.
        owner: of the call, who alone may resume it.
        context: of the request that waits for it; None while it is parked.
        task: of the call.
    """

    name: str
    owner: str
    context: ToolContext | None
    task: asyncio.Task[dict[str, Any]] = field(init=False)
    _open: dict[str, ParkedRequest] = field(factory=dict, init=False)
    _asked: asyncio.Event = field(factory=asyncio.Event, init=False)
    _number: int = field(default=0, init=False)

    async def request(self, method: str, params: Any) -> dict[str, Any]:
        """Send a request to the client with its next result; return what the client answers."""
        self._number += 1
        key = f"{method}-{self._number}"
        pending = ParkedRequest(method, params, asyncio.get_running_loop().create_future())
        self._open[key] = pending
        self._asked.set()
        try:
            return await pending.result
        finally:
            self._open.pop(key, None)

    def take_responses(self, responses: Mapping[str, Any]) -> None:
        """Pass on the client's results, by key; a request without one stays open."""
        for key, result in responses.items():
            pending = self._open.pop(key, None)
            if pending is not None and not pending.result.done():
                pending.result.set_result(result)

    async def next_event(self) -> dict[str, Any] | InputRequests:
        """Return the result of the call, or its open requests, as soon as there is either.

        Raises:
            Exception: that of the call.
        """
        while not self.task.done():
            if self._open:
                return InputRequests(self.name, dict(self._open))
            self._asked.clear()
            asked = asyncio.ensure_future(self._asked.wait())
            try:
                await asyncio.wait((self.task, asked), return_when=asyncio.FIRST_COMPLETED)
            finally:
                asked.cancel()
        return self.task.result()


@define(eq=False)
class ParkedCalls:
    """The calls of this process that wait for their clients.

    Args:
        ttl_ms: how long a call is parked.
        most_per_owner: how many calls of one owner may be parked.
    """

    ttl_ms: int
    most_per_owner: int
    _parked: dict[str, tuple[ParkedCall, asyncio.TimerHandle]] = field(factory=dict, init=False)
    _running: set[asyncio.Task[Any]] = field(factory=set, init=False)

    def __len__(self) -> int:
        return len(self._parked)

    async def begin(
        self,
        owner: str,
        context: ToolContext | None,
        call: Callable[[ParkedCall], Coroutine[Any, Any, dict[str, Any]]],
    ) -> dict[str, Any] | InputRequests:
        """Begin a call; return its result, or its open requests, with which it is parked.

        A cancellation cancels the call.

        Args:
            owner: who alone may resume the call.
            context: of the request.
            call: sends the call to the server; its requests go to `ParkedCall.request`.

        Raises:
            Exception: that of the call.
            ToolError: RESOURCE_EXHAUSTED: too many calls of this owner are parked.
        """
        begun = ParkedCall(secrets.token_urlsafe(16), owner, context)
        begun.task = asyncio.create_task(call(begun))
        self._running.add(begun.task)
        begun.task.add_done_callback(self._running.discard)
        return await self._wait(begun)

    async def resume(
        self, owner: str, context: ToolContext | None, name: str, responses: Mapping[str, Any]
    ) -> dict[str, Any] | InputRequests:
        """Resume a call with the results of its client; otherwise as `begin`.

        Raises:
            UnknownParkedCall: it is not parked here, or is another's.
        """
        parked, timer = self._parked.get(name, (None, None))
        if parked is None or timer is None or parked.owner != owner:
            raise UnknownParkedCall(name)
        del self._parked[name]
        timer.cancel()
        parked.context = context
        parked.take_responses(responses)
        return await self._wait(parked)

    async def close(self) -> None:
        """Cancel every call, and wait until they have ended."""
        for _, timer in self._parked.values():
            timer.cancel()
        self._parked.clear()
        tasks = [*self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait(self, call: ParkedCall) -> dict[str, Any] | InputRequests:
        try:
            event = await call.next_event()
            if isinstance(event, InputRequests):
                self._park(call)
                call.context = None
        except BaseException:
            call.task.cancel()
            raise
        return event

    def _park(self, call: ParkedCall) -> None:
        owned = sum(1 for each, _ in self._parked.values() if each.owner == call.owner)
        if owned >= self.most_per_owner:
            raise ToolError(
                ErrorCode.RESOURCE_EXHAUSTED,
                f"At most {self.most_per_owner} of your calls may wait for an answer.",
                {"reason": "too_many_parked_calls", "maxParkedCalls": self.most_per_owner},
            )
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self.ttl_ms / 1000, self._expire, call)
        self._parked[call.name] = call, timer

    def _expire(self, call: ParkedCall) -> None:
        del self._parked[call.name]
        if not call.task.cancel() and not call.task.cancelled():
            call.task.exception()  # it failed while it was parked; Python would warn
