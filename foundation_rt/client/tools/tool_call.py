"""One call of a tool: find it, check the arguments, send, check the result.

The session, the deadline, the breakers and the retries are those of every request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from attrs import define, field

from ...base.exact_json import loads
from ...errors import JsonRpcErrorCode
from ...protocol.methods import TOOLS_CALL
from ..errors import InvalidResponseError, MCPError
from ..resilience.retries import Attempt
from ..results.results import CallResult
from ..results.tool_schemas import ToolSchema
from ..session.session import ClientSession
from ..transports.transport import NO_HEADER_PARAMS
from .input_rounds import InputRounds
from .server_tools import ServerTools

HEADER_MISMATCH = int(JsonRpcErrorCode.HEADER_MISMATCH)
"""The code of a call whose headers do not repeat its arguments as the server wants it."""


@define(eq=False, repr=False)
class ToolCall:
    """A call of a tool, with its attempts.

    Args:
        name: of the tool.
        arguments: as `encode_arguments` makes them.
        meta: further members of `_meta`.
        idempotent: whether it may run twice; None: as the tool's annotations say.
    """

    tools: ServerTools
    rounds: InputRounds
    name: str
    arguments: bytes
    correlation_id: str | None
    idempotent: bool | None
    meta: Mapping[str, Any] | None = None
    _tool: ToolSchema | None = field(default=None, init=False)

    async def run(self, session: ClientSession, attempt: Attempt) -> dict[str, Any]:
        """Return the server's result; send again if it requires other headers (CLIENT-27).

        Raises:
            MCPError: there is none.
        """
        try:
            return await self._send(session, attempt)
        except MCPError as error:
            if error.original_code != HEADER_MISMATCH:
                raise
        attempt.was_sent = False  # it was refused, and did not run
        await self.tools.list(session, attempt)
        return await self._send(session, attempt)

    def read(self, wire: Mapping[str, Any]) -> CallResult:
        """Read a result, and check it against the tool's output schema (CLIENT-25).

        Raises:
            InvalidResponseError: it is invalid, or does not fit the schema.
        """
        result = CallResult.read(wire, self.correlation_id)
        tool = self._tool
        if tool is not None and tool.output_schema is not None and not result.is_error:
            _check_output(tool, result)
        return result

    async def _send(self, session: ClientSession, attempt: Attempt) -> dict[str, Any]:
        found = await self.tools.find(session, self.name, attempt)
        arguments = loads(self.arguments)
        tool = self._tool = await self.tools.check(session, found, arguments, attempt)
        if tool.needs_task and session.server.can("tasks", "requests", "tools", "call"):
            raise _needs_task(tool.name)
        attempt.is_idempotent = tool.is_idempotent if self.idempotent is None else self.idempotent
        params = {"name": tool.name, "arguments": orjson.Fragment(self.arguments)}
        meta = self.meta
        if self.correlation_id is not None:
            meta = {**(meta or {}), "correlationId": self.correlation_id}
        header_params = (
            tool.header_params(arguments) if tool.header_parameters else NO_HEADER_PARAMS
        )
        try:
            return await self.rounds.exchange(
                session, TOOLS_CALL, params, attempt, meta, header_params
            )
        except MCPError as error:
            if error.code == "E204":
                self.tools.invalidate()
            raise


def _needs_task(tool: str) -> MCPError:
    return MCPError(
        "E205",
        f"the server runs {tool!r} as a task only (execution.taskSupport), which this client"
        " does not do",
        user_message="This tool needs tasks",
        suggested_action="Use another tool, or a client that has tasks.",
    )


def _check_output(tool: ToolSchema, result: CallResult) -> None:
    if not result.has_structured:
        raise InvalidResponseError(
            f"the result of {tool.name} lacks the structured content it declares"
        )
    issues = tool.check_output(result.structured)
    result.unchecked = tool.unchecked_output
    if issues:
        listed = "; ".join(f"{issue.path or 'it'} {issue.message}" for issue in issues)
        raise InvalidResponseError(
            f"the result of {tool.name} does not fit its output schema: {listed}"
        )
