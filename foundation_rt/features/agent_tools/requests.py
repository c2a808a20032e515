"""The tools `agent/request` and `agent/status`.

A client that loses its connection, or does not wait any longer, asks again: with the same request
id it gets the outcome of the same request, and never a second execution (AACP-45).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...agents.ledger.errors import OutcomeUnknownError, RequestFailedError
from ...agents.messages import AgentMessage
from ...agents.persistence import StoreError
from ...agents.transports import TransportError
from ...base.jsonschema.objects import closed_object
from ...errors import ErrorCode, ToolError
from ...kernel.registry.tool_definition import ToolDefinition
from ..scopes import require_scopes
from ..signatures.type_schema import any_value

if TYPE_CHECKING:
    from ...agents.ledger.coordinator import AgentCoordinatorV2
    from ...agents.ledger.status import MessageStatus
    from ...base.config.settings import ToolsSection
    from ...errors import StructuredError
    from ...kernel.registry.tools import Handler
    from ..context import ToolContext

AGENT_ID = {"type": "string", "description": "Id of the agent."}
MESSAGE = closed_object(
    {
        "type": {"type": "string", "description": "What kind of message it is."},
        "payload": {**any_value(), "description": "Whatever belongs to it."},
    },
    ["type"],
)
_REQUEST_ID = {"type": "string", "minLength": 1, "maxLength": 128}

REQUEST = ToolDefinition(
    name="agent/request",
    description=(
        "Send a request to an agent and return its outcome. The same requestId with the same"
        " message is the same request: it is executed once. Outcome UNKNOWN: ask agent/status."
    ),
    input_schema=closed_object(
        {
            "targetAgentId": AGENT_ID,
            "message": MESSAGE,
            "requestId": {
                **_REQUEST_ID,
                "description": "Idempotency key: letters, digits and . _ : -; else one is made.",
            },
            "timeoutMs": {
                "type": "integer",
                "minimum": 1,
                "maximum": 2**31 - 1,
                "description": "How long to wait for the outcome, in ms.",
            },
        },
        ["targetAgentId", "message"],
    ),
)

STATUS = ToolDefinition(
    name="agent/status",
    description=(
        "Tell the outcome of a request by its requestId, of an event by its messageId, or of a"
        " tool call that was not answered by its runId."
    ),
    input_schema=closed_object({"requestId": {**_REQUEST_ID, "description": "The id."}}),
)

_SHARE_OF_DEADLINE = 0.9
"""Of the call's own deadline: the answer is then UNKNOWN, with the request id, and not TIMEOUT."""


def request_handler(coordinator: AgentCoordinatorV2, limits: Callable[[], ToolsSection]) -> Handler:
    """Return a handler that sends a request of its caller and returns the outcome (AACP-45)."""

    async def request(arguments: dict[str, Any], context: ToolContext) -> Any:
        message = arguments["message"]
        request_id = arguments.get("requestId", coordinator.new_request_id())
        longest = max(1, int(limits().default_timeout_ms * _SHARE_OF_DEADLINE))
        try:
            result = await coordinator.send_request(
                arguments["targetAgentId"],
                AgentMessage(message["type"], message.get("payload")),
                request_id=request_id,
                timeout_ms=min(arguments.get("timeoutMs", longest), longest),
                abort_signal=context.abort_signal,
                principal=context.principal,
            )
        except OutcomeUnknownError:
            return {"requestId": request_id, "outcome": "UNKNOWN"}
        except (StoreError, TransportError):
            raise ledger_unavailable() from None
        except RequestFailedError as failed:
            error = failed.to_structured().to_wire()
            return {"requestId": request_id, "outcome": "FAILED", "error": error}
        return {"requestId": request_id, "outcome": "COMPLETED", "result": result}

    return request


def status_handler(coordinator: AgentCoordinatorV2) -> Handler:
    """Return a handler that returns the status of a request or message of its caller.

    Raises:
        ToolError: when called: NOT_FOUND, the ledger does not have the id, or not any more, or it
            has another owner (AACP-48); UNAUTHORIZED, the caller lacks scopes of the agent
            (AUTH-27).
    """

    async def status(arguments: dict[str, Any], context: ToolContext) -> Any:
        request_id = arguments["requestId"]
        try:
            found = await coordinator.status(request_id, context.principal)
        except (StoreError, TransportError):
            raise ledger_unavailable() from None
        if found is None:
            raise ToolError(
                ErrorCode.NOT_FOUND,
                "The ledger knows no request of this id, or not any more.",
                {"reason": "request_not_found", "requestId": request_id},
            )
        # Only the ledger knows which agent an id is about: no HTTP status can refuse it earlier.
        if found.target_agent_id is not None:
            scopes = coordinator.agent_scopes(found.target_agent_id)
            require_scopes(context, scopes, "this agent")
        return _to_wire(request_id, found)

    return status


def ledger_unavailable() -> ToolError:
    """Return the error of a call that needs the ledger while that cannot be reached (AACP-83)."""
    return ToolError(
        ErrorCode.INTERNAL,
        "The ledger cannot be reached: try again later.",
        {"reason": "ledger_unavailable"},
    )


def _to_wire(request_id: str, status: MessageStatus) -> dict[str, Any]:
    from ...agents.ledger.encoder import format_time

    wire: dict[str, Any] = {
        "requestId": request_id,
        "outcome": status.outcome.value,
        "timestamp": format_time(status.timestamp_ms),
    }
    error: StructuredError | None = status.error
    if error is not None:
        wire["error"] = error.to_wire()
    elif status.outcome.value == "COMPLETED":
        wire["result"] = status.result
    if status.completion_ref is not None:
        wire["completionRef"] = status.completion_ref
    return wire
