"""Tools with which an administrator sees and changes the requests of agents (ADMIN-13).

They do what `foundation-rt agents` does on the command line, on the ledger of this server, for the
clients that `tools.admin_policy` allows it. They see the requests of all principals.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...agents.ledger.administration import PAGE_START, RequestQuery, key_of
from ...agents.ledger.coordinator import AgentCoordinatorV2
from ...agents.ledger.operator import show_agent, show_change, show_outline, show_request
from ...agents.ledger.types import RequestState
from ...agents.persistence import StoreError
from ...agents.transports import TransportError
from ...base.jsonschema.objects import closed_object
from ...errors import ErrorCode, ToolError
from ...kernel.registry.tool_definition import ToolDefinition
from ..audit import identity_of_context
from ..policies import ADMINISTRATIVE, Administrative
from .agents import truncate
from .requests import ledger_unavailable

if TYPE_CHECKING:
    from ...agents.ledger.operator import LedgerOperator
    from ...agents.local import AgentCoordinator
    from ...base.config.settings import ToolsSection
    from ...kernel.registry.tools import Handler, ToolRegistry
    from ..context import ToolContext

    Work = Callable[[LedgerOperator, dict[str, Any]], Awaitable[Any]]

_MAX_IDS = 1_000
_DEFAULT_PAGE = 100

# As a ledger has it: followed by the digest of its owner, if it has one (AACP-86).
_REQUEST_ID = {"type": "string", "minLength": 1, "maxLength": 256}
_REQUEST_IDS = {"type": "array", "items": _REQUEST_ID, "minItems": 1, "maxItems": _MAX_IDS}
_REASON = {
    "type": "string",
    "minLength": 1,
    "maxLength": 500,
    "pattern": r"\S",
    "description": "Why; for the audit record.",
}

LIST_REQUESTS = ToolDefinition(
    name="admin/listAgentRequests",
    description="List the requests of agents in the ledger, the oldest first, without payloads.",
    input_schema={
        "type": "object",
        "properties": {
            "agentId": {
                "type": "string",
                "maxLength": 256,
                "description": "Only requests to this agent.",
            },
            "states": {
                "type": "array",
                "items": {"enum": [str(state) for state in RequestState]},
                "description": "Only requests in these states.",
            },
            "olderThanMs": {
                "type": "integer",
                "minimum": 0,
                "maximum": 2**53,
                "description": "Only requests made at least so long ago, in ms.",
            },
            "after": {**_REQUEST_ID, "description": "The page behind this request."},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": _MAX_IDS,
                "description": "The most requests; 100 if absent.",
            },
        },
        "additionalProperties": False,
    },
)

LIST_AGENTS = ToolDefinition(
    name="admin/listAgentQueues",
    description="List the agents of the ledger, with the number of their requests by state.",
    input_schema={
        "type": "object",
        "properties": {
            "after": {"type": "string", "maxLength": 256, "description": "Behind this agent."}
        },
        "additionalProperties": False,
    },
)

SHOW_REQUEST = ToolDefinition(
    name="admin/showAgentRequest",
    description="Show a request of an agent with its payload and outcome.",
    input_schema=closed_object({"requestId": {**_REQUEST_ID, "description": "The id."}}),
)

CANCEL_REQUESTS = ToolDefinition(
    name="admin/cancelAgentRequests",
    description="Make requests of agents without an outcome FAILED, also while they run.",
    input_schema=closed_object({"requestIds": _REQUEST_IDS, "reason": _REASON}, ["requestIds"]),
)

REQUEUE_REQUESTS = ToolDefinition(
    name="admin/requeueAgentRequests",
    description="Have requests of agents that FAILED executed again.",
    input_schema=closed_object({"requestIds": _REQUEST_IDS, "reason": _REASON}),
)

PURGE_LEDGER = ToolDefinition(
    name="admin/purgeAgentLedger",
    description="Delete what has expired in the ledger of agents.",
    input_schema={"type": "object", "properties": {}, "additionalProperties": False},
)


def add_agent_admin_tools(
    registry: ToolRegistry,
    limits: ToolsSection,
    agents: Callable[[], AgentCoordinator | None],
) -> None:
    """Register the tools, unless an earlier runtime has registered them (ADMIN-13).

    Args:
        registry: of the server.
        limits: the `tools` section of the configuration.
        agents: returns the coordinator; a server may get one while it runs.

    Raises:
        RegistrationError: the author of the server has given one of the names to another tool.
    """
    present = registry.find(LIST_REQUESTS.name)
    if present is not None and Administrative in present.parts:
        return
    tools = AgentAdminTools(agents, limits.max_response_bytes)
    for definition, work in (
        (LIST_REQUESTS, tools.list_requests),
        (LIST_AGENTS, tools.list_agents),
        (SHOW_REQUEST, tools.show_request),
        (CANCEL_REQUESTS, tools.cancel_requests),
        (REQUEUE_REQUESTS, tools.requeue_requests),
        (PURGE_LEDGER, tools.purge_ledger),
    ):
        handler, scopes = tools.handler(work), limits.admin_scopes()
        registry.register(definition, handler, parts=[ADMINISTRATIVE], scopes=scopes)


class AgentAdminTools:
    """The handlers of the tools.

    Args:
        agents: returns the coordinator, if there is one yet.
        max_bytes: of an answer.
    """

    def __init__(self, agents: Callable[[], AgentCoordinator | None], max_bytes: int) -> None:
        self._agents = agents
        self._max_bytes = max_bytes

    def handler(self, work: Work) -> Handler:
        """Return a handler that has `work` done by an operator in the name of the caller.

        Raises:
            ToolError: when called: NOT_FOUND, there is no ledger; INTERNAL, it cannot be reached.
        """

        async def operate(arguments: dict[str, Any], context: ToolContext) -> Any:
            try:
                operator = await self._coordinator().operator(identity_of_context(context))
                return await work(operator, arguments)
            except (StoreError, TransportError):
                raise ledger_unavailable() from None

        return operate

    def _coordinator(self) -> AgentCoordinatorV2:
        coordinator = self._agents()
        if not isinstance(coordinator, AgentCoordinatorV2):
            raise ToolError(
                ErrorCode.NOT_FOUND, "This server has no agents.", {"reason": "no_agents"}
            )
        return coordinator

    async def list_requests(self, operator: LedgerOperator, arguments: dict[str, Any]) -> Any:
        """Return a page of requests; `next` is the last one if there may be more (AACP-111)."""
        limit = arguments.get("limit", _DEFAULT_PAGE)
        age_ms, after = arguments.get("olderThanMs"), PAGE_START
        if "after" in arguments:
            record = await operator.store.get_request_record(arguments["after"])
            if record is None:
                raise _unknown(arguments["after"])
            after = key_of(record)
        query = RequestQuery(
            arguments.get("agentId"),
            [RequestState(each) for each in arguments.get("states", ())],
            None if age_ms is None else operator.now_ms() - age_ms + 1,
            None,
            after,
            limit,
        )
        requests = [*map(show_outline, await operator.store.list_requests(query))]
        return self._page("requests", requests, "requestId", limit)

    async def list_agents(self, operator: LedgerOperator, arguments: dict[str, Any]) -> Any:
        """Return a page of agents; `next` is the last one if there may be more (AACP-111)."""
        found = await operator.store.summarize_agents(arguments.get("after", ""), _DEFAULT_PAGE)
        return self._page("agents", [*map(show_agent, found)], "agentId", _DEFAULT_PAGE)

    def _page(self, member: str, found: list[dict[str, Any]], key: str, limit: int) -> Any:
        """Return as much as fits; `next` is the key of the last if there may be more."""

        def page(shown: Sequence[dict[str, Any]], truncated: bool) -> dict[str, Any]:
            goes_on = shown and (truncated or len(shown) == limit)
            return {member: shown, "next": shown[-1][key] if goes_on else None}

        return truncate(found, page, self._max_bytes)

    async def show_request(self, operator: LedgerOperator, arguments: dict[str, Any]) -> Any:
        """Return one request."""
        record = await operator.store.get_request_record(arguments["requestId"])
        if record is None:
            raise _unknown(arguments["requestId"])
        return show_request(record)

    async def cancel_requests(self, operator: LedgerOperator, arguments: dict[str, Any]) -> Any:
        """Cancel requests; return what became of each (AACP-114)."""
        ids = arguments["requestIds"]
        answers = await operator.cancel(ids, arguments.get("reason"))
        return {"requests": [*map(show_change, ids, answers)]}

    async def requeue_requests(self, operator: LedgerOperator, arguments: dict[str, Any]) -> Any:
        """Requeue requests that FAILED; return what became of each (AACP-112)."""
        ids, ttl_ms = arguments["requestIds"], self._coordinator().aacp.default_ttl_ms
        answers = await operator.requeue(ids, arguments["reason"], ttl_ms)
        return {"requests": [*map(show_change, ids, answers)]}

    async def purge_ledger(self, operator: LedgerOperator, arguments: dict[str, Any]) -> Any:
        """Delete what has expired; return how many records (AACP-15)."""
        if not self._coordinator().is_ready():
            raise ToolError(
                ErrorCode.INTERNAL,
                "The clock of this machine is wrong: set it right before you purge.",
                {"reason": "clock_wrong"},
            )
        return {"purged": await operator.purge()}


def _unknown(request_id: str) -> ToolError:
    return ToolError(
        ErrorCode.NOT_FOUND,
        "The ledger has no request of this id, or not any more.",
        {"reason": "request_not_found", "requestId": request_id},
    )
