"""One call of a tool that was found: guarded, validated, recorded (COORD-20, COORD-22)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from attrs import define, field

from ...client import CallResult, MCPError, ToolSchema
from .connection_pool import ConnectionKey, PooledConnection
from .errors import (
    ExecutionContext,
    ToolCircuitOpenError,
    ToolExecutionError,
    ToolValidationError,
)
from .guarded_request import CircuitRefusal, GuardedRequest
from .registry import ToolRecord
from .server_state import ServerState


@define(eq=False)
class CoordinatedCall:
    """A call of a tool.

    Args:
        request: that guards it.
        tool: its definition.
        record: of the tool.
        arguments: by name.
        now: returns the time of people.
        more: further arguments of `Client.call`.
        key: of the connection.
    """

    request: GuardedRequest
    tool: ToolSchema
    record: ToolRecord
    arguments: Mapping[str, Any]
    request_id: str
    now: Callable[[], datetime]
    more: Mapping[str, Any]
    key: ConnectionKey
    _sent_at: float = field(default=0.0, init=False)

    async def run(self) -> CallResult:
        """Return the result of the tool, also one that says that it failed.

        Raises:
            CoordinatorError: there is none.
        """
        loop = asyncio.get_running_loop()
        metrics, name = self.record.metrics, self.request.name
        try:
            result = await self._run()
        except CircuitRefusal as refusal:
            last = metrics.reliability.last_failure
            after = refusal.retry_after or 0.0
            raise ToolCircuitOpenError(
                name, refusal.failures, last, after, refusal.server_id
            ) from None
        except MCPError as error:
            metrics.record_failure(self.now())
            server = self.request.supervisor.server_id
            context = ExecutionContext(name, server, self.request_id, self.arguments)
            raise ToolExecutionError(f"Failed to execute tool: {name}", error, context) from error
        if result.is_error:
            metrics.record_failure(self.now())
        else:
            metrics.record_success(self.now(), (loop.time() - self._sent_at) * 1000)
        return result

    async def _run(self) -> CallResult:
        """Run the call over its connection.

        That is taken before the slot: calls that wait for one must not keep out those that have.
        """
        pool = self.request.supervisor.pool
        connection = await pool.take(self.key, self.request.deadline)
        try:
            send = partial(self._send, connection)
            return await self.request.run(send, self._validate)
        finally:
            pool.give_back(connection)

    async def _send(
        self, connection: PooledConnection, timeout: float, longest: float | None
    ) -> CallResult:
        client = connection.client
        if client is None:
            client = await self.request.supervisor.ready_within(timeout * 1000)
        self._sent_at = asyncio.get_running_loop().time()
        return await client.call(
            self.tool.name,
            self.arguments,
            timeout=self.request.remaining(),
            max_timeout=longest,
            **self.more,
        )

    async def _validate(self) -> None:
        """Check the arguments against the tool as it is listed now.

        Raises:
            ToolValidationError: they do not fit; nothing was sent.
        """
        issues = self.tool.check_arguments(self.arguments)
        if not issues:
            return
        latest = await self._latest_definition()
        if latest is not self.tool:
            issues = latest.check_arguments(self.arguments)
        if issues:
            raise ToolValidationError(self.request.name, issues)

    async def _latest_definition(self) -> ToolSchema:
        """Return the tool from a list that is fresh: the one known may be stale."""
        supervisor = self.request.supervisor
        if supervisor.lifecycle.state is not ServerState.READY or supervisor.client is None:
            return self.tool
        try:
            return await supervisor.client.get_tool_schema(
                self.tool.name, timeout=self.request.remaining()
            )
        except MCPError:
            return self.tool
