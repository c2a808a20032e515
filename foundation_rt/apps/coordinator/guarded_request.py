"""A request to one server: circuits, a slot, attempts (COORD-21, COORD-23, COORD-24).

What is sent is the caller's; so is the check of arguments, which comes between the circuits and the
slot. How a call of a tool ends is recorded (COORD-22).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define, field

from ...client import (
    AuthorizationError,
    CallResult,
    CallTimeoutError,
    CircuitBreaker,
    CircuitOpenError,
    ConnectionLostError,
    MCPError,
    Permits,
    SessionExpiredError,
)
from ...protocol.methods import facts
from .connection_pool import ConnectionKey, PooledConnection
from .names import inside_name
from .requests import ONE_RETRY, Priority, RetryOptions, priority_of
from .supervisor import ServerSupervisor
from .tool_record import ToolRecord

if TYPE_CHECKING:
    from ...client import Client

Result = TypeVar("Result")
Send = Callable[[PooledConnection, float | None], Awaitable[Result]]
"""Sends the request once: takes the connection, and the time with progress or None, in s."""

_HUNG = partial(CircuitBreaker.failed, lasts=True)

_LONGEST_WAIT = 5.0  # seconds before a retry, whatever the server asks for


class CircuitRefusal(CircuitOpenError):
    """A circuit is open, and nothing was sent.

    Attributes:
        server_id: of the server whose circuit it is; None: it is that of the tool.
        failures: that it has counted.
    """

    def __init__(self, name: str, server_id: str | None, failures: int, retry_after: float) -> None:
        whose = name if server_id is None else f"the server {server_id!r}"
        super().__init__(
            f"Circuit open for {whose} after {failures} failures", retry_after=retry_after
        )
        self.server_id = server_id
        self.failures = failures


@define(eq=False)
class GuardedRequest:
    """A request with its deadline and what guards it.

    Args:
        supervisor: of its server.
        method: of the request.
        tool: that it calls; None if it calls none.
        since: from when its time counts, time of the loop.
        timeout_ms: for all of it; None: as its server says.
        is_idempotent: whether it may run twice; None: what only reads, and as its tool says.
        principal: whose request it is; None if that is not known.

    Attributes:
        name: of the tool or the method, for messages.
        record: of its tool; None if it is of no known tool.
        deadline: time of the loop, in s.
        last_deadline: up to which progress extends it; equal to it if it does not.
        began: when it was sent last, time of the loop; 0 before.
    """

    supervisor: ServerSupervisor
    method: str
    tool: str | None
    since: float
    timeout_ms: float | None
    priority: Priority = field(converter=priority_of)
    is_idempotent: bool | None
    principal: str | None
    retries: RetryOptions = ONE_RETRY
    name: str = field(init=False)
    record: ToolRecord | None = field(default=None, init=False)
    deadline: float = field(init=False)
    last_deadline: float = field(init=False)
    began: float = field(default=0.0, init=False)
    _permits: Permits = field(init=False)
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop, init=False)

    def __attrs_post_init__(self) -> None:
        supervisor, tool = self.supervisor, self.tool
        allowed, longest = supervisor.time_of(tool, self.timeout_ms)
        self.deadline, self.last_deadline = self.since + allowed / 1000, self.since + longest / 1000
        self.name = self.method if tool is None else inside_name(supervisor.server_id, tool)
        known = None if tool is None else supervisor.tools.get(tool)
        breakers = [supervisor.breaker]
        if known is not None:
            self.record = supervisor.group.record(supervisor.server_id, known.name)
            breakers.append(self.record.breaker)
        self._permits = Permits(breakers, self._refusal)
        if self.is_idempotent is None:
            is_repeatable = facts(self.method).is_repeatable
            self.is_idempotent = is_repeatable or (known is not None and known.is_idempotent)

    async def run(
        self,
        key: ConnectionKey,
        send: Send[Result],
        validate: Callable[[], Awaitable[None]] | None = None,
    ) -> Result:
        """Return the result of the request over the connection of `key`.

        Raises:
            CircuitRefusal: a circuit is open.
            MCPError: there is no result.
        """
        try:
            # Before the slot: who waits for a connection must not keep out those that have one.
            async with self.supervisor.pool.using(key, self.deadline) as connection:
                result = await self._guarded(partial(send, connection), validate)
        except CircuitRefusal:
            raise
        except MCPError:
            if self.record is not None:
                self.record.metrics.record_failure(self.supervisor.group.now())
            raise
        if self.record is not None:
            if _has_failed(result):
                self.record.metrics.record_failure(self.supervisor.group.now())
            else:
                took = (self._loop.time() - self.began) * 1000
                self.record.metrics.record_success(self.supervisor.group.now(), took)
        return result

    async def client(self, connection: PooledConnection) -> Client:
        """Return the client of a connection; wait until it is ready."""
        client = connection.client
        if client is None:
            client = await self.supervisor.ready_within(self.remaining() * 1000)
        self.began = self._loop.time()
        return client

    async def _guarded(
        self,
        send: Callable[[float | None], Awaitable[Result]],
        validate: Callable[[], Awaitable[None]] | None,
    ) -> Result:
        self._permits.take()
        try:
            if validate is not None:
                await validate()
            await self._take_slot()
            try:
                return await self._try(send)
            finally:
                self.supervisor.slots.release(self.principal)
        finally:
            self._permits.release()

    def remaining(self) -> float:
        """Return the time to the deadline, in s."""
        return self.deadline - self._loop.time()

    # -- circuits

    def _refusal(self, breaker: CircuitBreaker, after: float) -> CircuitRefusal:
        whose = self.supervisor
        server_id = whose.server_id if breaker is whose.breaker else None
        return CircuitRefusal(self.name, server_id, breaker.failures, after)

    def _judge(self, error: MCPError) -> None:
        """Count a failed attempt at the circuits (COORD-21, COORD-76)."""
        supervisor = self.supervisor
        if isinstance(error, AuthorizationError):
            supervisor.check_login()
        if self.record is not None and _has_hung(error):
            supervisor.hanging.add(self.name)
            is_the_tools = len(supervisor.hanging) == 1
            self._permits.settle(CircuitBreaker.abandoned if is_the_tools else _HUNG, _HUNG)
            return
        is_lost = isinstance(error, ConnectionLostError | CallTimeoutError)
        is_the_tools = error.original_code is not None or not is_lost
        self._permits.settle_error(error, partial(supervisor.counts, error), is_the_tools)

    # -- slot

    async def _take_slot(self) -> None:
        """Take a slot of the server; a request that waits for it holds no permit.

        Raises:
            MCPError: E208: too many wait, or the deadline has passed; nothing was sent.
            CircuitRefusal: a circuit has opened meanwhile.
        """
        slots = self.supervisor.slots
        if slots.is_free(self.principal):
            slots.take(self.principal)
            return
        self._permits.release()
        await self._wait_for_slot()
        try:
            self._permits.take()
        except CircuitRefusal:
            slots.release(self.principal)
            raise

    async def _wait_for_slot(self) -> None:
        try:
            async with asyncio.timeout_at(self.deadline):
                server_id = self.supervisor.server_id
                await self.supervisor.slots.wait(self.priority, server_id, self.principal)
        except TimeoutError:
            # Not its failure: it was never asked.
            raise MCPError(
                "E208",
                f"{self.name} got no slot of its server in time",
                data={"code": "RESOURCE_EXHAUSTED", "reason": "server_queue"},
            ) from None

    # -- attempts

    async def _try(self, send: Callable[[float | None], Awaitable[Result]]) -> Result:
        """Try until there is a result, or a retry is of no use."""
        tries, is_renewed = 0, False
        while True:
            try:
                result = await send(self._longest())
            except MCPError as error:
                self._judge(error)
                if isinstance(error, SessionExpiredError) and not is_renewed:
                    is_renewed = True  # another session is no retry of the server (RETRY-14)
                    if not self._is_safe(error):
                        raise
                elif tries >= self.retries.max_retries or not self._may_repeat(error):
                    raise
                else:
                    tries += 1
                    await asyncio.sleep(self._delay(error))
                try:
                    self._permits.take()
                except CircuitRefusal:
                    raise error from None
            else:
                self._permits.settle(CircuitBreaker.succeeded)
                self.supervisor.hanging.clear()
                return result

    def _may_repeat(self, error: MCPError) -> bool:
        """Return whether another try is safe, wanted, and possible in time."""
        codes = self.retries.retryable_error_codes
        is_wanted = error.retryable if codes is None else error.code in codes
        return is_wanted and self._is_safe(error) and self.remaining() > self._delay(error)

    def _is_safe(self, error: MCPError) -> bool:
        return self.is_idempotent or not error.may_have_run

    def _delay(self, error: MCPError) -> float:
        """Return the time to wait before the next try, in s."""
        after = error.retry_after
        asked = 0.0 if after is None else min(after, _LONGEST_WAIT)
        return max(self.retries.delay_ms / 1000, asked)

    def _longest(self) -> float | None:
        """Return the time with progress, in s; None if progress does not extend it."""
        if self.last_deadline <= self.deadline:
            return None
        return self.last_deadline - self._loop.time()


def _has_failed(result: Any) -> bool:
    """Return whether the tool says that it failed; a result is read, or as it came."""
    if isinstance(result, CallResult):
        return result.is_error
    return isinstance(result, dict) and result.get("isError") is True


def _has_hung(error: MCPError) -> bool:
    """Return whether a request was sent and not answered in time."""
    return isinstance(error, CallTimeoutError) and error.may_have_run
