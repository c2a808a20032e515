"""The tools `agent/sendMessage`, `agent/list` and `agent/getState`.

A server has them as soon as it has a coordinator (AGENT-14). They run on the event loop, where the
agents run: so a state is read between two steps of its agent's handler, never during one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from ...agents.errors import AgentNotFoundError
from ...agents.ledger.coordinator import AgentCoordinatorV2
from ...agents.messages import AgentMessage
from ...base.jsonschema.objects import closed_object
from ...errors import ErrorCode, ToolError
from ...kernel.registry.tool_definition import ToolDefinition
from ...kernel.results import too_large
from ...protocol.plain_values import write_json
from ..policies import ArgumentScopes
from .requests import AGENT_ID, MESSAGE, REQUEST, STATUS, request_handler, status_handler

if TYPE_CHECKING:
    from ...agents.local import AgentCoordinator
    from ...base.config.settings import ToolsSection
    from ...base.logs.redaction import Redactor
    from ...kernel.registry.tools import Handler, ToolRegistry
    from ..context import ToolContext

_T = TypeVar("_T")

SEND_MESSAGE = ToolDefinition(
    name="agent/sendMessage",
    description="Send a message to an agent and return its response.",
    input_schema=closed_object({"targetAgentId": AGENT_ID, "message": MESSAGE}),
)

LIST = ToolDefinition(
    name="agent/list",
    description="List the ids of the registered agents.",
    input_schema={"type": "object", "properties": {}, "additionalProperties": False},
)

GET_STATE = ToolDefinition(
    name="agent/getState",
    description="Show the state of an agent, without secrets.",
    input_schema=closed_object({"agentId": AGENT_ID}),
)


def register_agent_tools(
    registry: ToolRegistry, coordinator: AgentCoordinator, limits: Callable[[], ToolsSection]
) -> None:
    """Add the tools, except those whose names the author has used (AGENT-14).

    A coordinator with a ledger has two more, `agent/request` and `agent/status` (AACP-45).

    Args:
        registry: the tools are added to it.
        coordinator: that of the server.
        limits: returns the `tools` section of the configuration, which is known when tools run.
    """
    target = [scopes_of_agent(lambda: coordinator, "targetAgentId")]
    shown = [scopes_of_agent(lambda: coordinator, "agentId")]
    tools: tuple[tuple[ToolDefinition, Handler, list[ArgumentScopes]], ...] = (
        (SEND_MESSAGE, send_message_handler(coordinator), target),
        (LIST, list_handler(coordinator, limits), []),
        (GET_STATE, get_state_handler(coordinator, limits), shown),
    )
    if isinstance(coordinator, AgentCoordinatorV2):
        tools += (
            (REQUEST, request_handler(coordinator, limits), target),
            (STATUS, status_handler(coordinator), []),
        )
    for definition, handler, parts in tools:
        if registry.find(definition.name) is None:
            registry.register(definition, handler, parts=parts)


def scopes_of_agent(agents: Callable[[], AgentCoordinator | None], argument: str) -> ArgumentScopes:
    """Return the scopes of the agent that a call names (AUTH-27).

    Args:
        agents: returns the coordinator, if there is one yet.
        argument: the argument that names the agent.
    """

    def scopes(arguments: dict[str, Any]) -> frozenset[str]:
        coordinator, agent_id = agents(), arguments.get(argument)
        if coordinator is None or type(agent_id) is not str:
            return frozenset()
        return coordinator.agent_scopes(agent_id)

    return ArgumentScopes(scopes)


def send_message_handler(coordinator: AgentCoordinator) -> Handler:
    """Return a handler for the arguments `targetAgentId`, a string, and `message`, an object.

    Abort signal, correlation id and logger of the call go to the agent (AGENT-15). Members of the
    message other than `type` and `payload` are ignored: a client is no agent.

    Raises:
        ToolError: when called: INVALID_ARGUMENT, the message has no `type` that is a string; or
            as `AgentCoordinator.send_message`.
    """

    async def send_message(arguments: dict[str, Any], context: ToolContext) -> Any:
        message = arguments["message"]
        if type(message.get("type")) is not str:
            raise ToolError(
                ErrorCode.INVALID_ARGUMENT,
                "Invalid arguments: /message/type must be a string.",
                {"reason": "invalid_message"},
            )
        return await coordinator.send_message(
            arguments["targetAgentId"],
            AgentMessage(message["type"], message.get("payload")),
            abort_signal=context.abort_signal,
            correlation_id=context.correlation_id,
            logger=context.logger,
        )

    return send_message


def list_handler(coordinator: AgentCoordinator, limits: Callable[[], ToolsSection]) -> Handler:
    """Return a handler that lists the agents that its caller may use, or the first that fit.

    Rules: AGENT-16, AUTH-27.
    """

    def wrap(agent_ids: Sequence[str], truncated: bool) -> dict[str, Any]:
        return {"agentIds": agent_ids, "truncated": truncated}

    async def list_agents(arguments: dict[str, Any], context: ToolContext) -> Any:
        return truncate(coordinator.agent_ids(context.principal), wrap, limits().max_response_bytes)

    return list_agents


def get_state_handler(coordinator: AgentCoordinator, limits: Callable[[], ToolsSection]) -> Handler:
    """Return a handler that shows an agent's state, or the first members that fit (AGENT-18).

    Raises:
        ToolError: when called: NOT_FOUND, there is no such agent.
    """

    async def get_state(arguments: dict[str, Any], context: ToolContext) -> Any:
        agent_id = arguments["agentId"]
        state = coordinator.get_agent_state(agent_id)
        if state is None:
            raise AgentNotFoundError(agent_id)

        def wrap(members: Sequence[tuple[str, Any]], truncated: bool) -> dict[str, Any]:
            return {"agentId": agent_id, "state": dict(members), "truncated": truncated}

        max_bytes = min(limits().max_state_bytes, limits().max_response_bytes)
        return truncate(_presentable(state, context.logger.redactor), wrap, max_bytes)

    return get_state


def _presentable(state: dict[str, Any], redactor: Redactor) -> list[tuple[str, Any]]:
    """Return the members of a state in the order of their keys, redacted, as JSON.

    A member that is not JSON is shown as in a log line: a tool for looking into an agent must not
    fail for one socket among its members.
    """
    members: dict[str, Any] = {}
    redacted = redactor.redact(state)
    for key in sorted(redacted):
        member = {key: redacted[key]}
        try:
            write_json(member)
        except ToolError:
            member = orjson.loads(orjson.dumps(redactor.for_log(member)))  # NaN is null (LOG-14)
        members.update(member)
    return list(members.items())


def truncate(
    entries: Sequence[_T], wrap: Callable[[Sequence[_T], bool], Any], max_bytes: int
) -> Any:
    """Return the answer with as many of the first `entries` as fit (AGENT-17).

    For answers that grow with what a server holds; the limit is that of results (CALL-10).

    Args:
        entries: in an order that is always the same.
        wrap: ``wrap(some, truncated)`` is the answer with these entries; the more there are, the
            longer it is.
        max_bytes: of the answer as JSON in UTF-8.

    Raises:
        ToolError: INTERNAL; not even the answer without entries fits, or an entry is no JSON.
    """

    def size(count: int) -> int:
        return len(write_json(wrap(entries[:count], count < len(entries))))

    if size(len(entries)) <= max_bytes:
        return wrap(entries, False)
    # The first that is too large comes after the longest that is not.
    fitting = bisect_left(range(len(entries)), max_bytes + 1, key=size) - 1
    if fitting < 0:
        raise too_large(size(0), max_bytes)
    return wrap(entries[:fitting], True)
