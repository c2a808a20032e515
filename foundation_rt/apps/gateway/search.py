"""Search among the tools of all servers, for `--expose search` (GATE-30, SEARCH-04)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import evolve

from ...features.tool_search.definitions import DEFAULT_RESULTS, DESCRIBE_TOOL, SEARCH_TOOLS
from ...features.tool_search.ranking import SearchableTool, search
from .routes import is_for_models
from .tool_versions import with_plain_name, with_version

if TYPE_CHECKING:
    from ...features.context import ToolContext
    from ...server import Server
    from .routes import Definition
    from .server_routes import ServerRoutes

_OF_SERVER = {"server": {"type": "string", "description": "Only tools of this server."}}
_SCHEMA = SEARCH_TOOLS.input_schema
_SEARCH_TOOLS = evolve(
    SEARCH_TOOLS, input_schema={**_SCHEMA, "properties": {**_SCHEMA["properties"], **_OF_SERVER}}
)


def register_search(server: Server, servers: ServerRoutes) -> None:
    """Add `search_tools` and `describe_tool` to a server."""

    async def search_tools(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        routes = (await servers.routes_for(context)).tools
        tools = [
            SearchableTool(name, each.server, each.definition)
            for name, each in routes.items()
            if is_for_models(each.definition)
        ]
        found = search(tools, arguments["query"], arguments.get("server"))
        limit = arguments.get("limit", DEFAULT_RESULTS)
        return {"tools": [tool.summary() for tool in found[:limit]], "total": len(found)}

    async def describe_tool(arguments: dict[str, Any], context: ToolContext) -> Definition:
        routes = await servers.routes_for(context)
        params = with_plain_name(arguments, routes.tools)
        route, _ = with_version(routes.tool_for_models(params["name"]), params, is_locked=True)
        if not is_for_models(route.definition):
            raise routes.unknown_tool(arguments["name"])
        return {**route.definition, "name": arguments["name"]}

    server.register(_SEARCH_TOOLS, search_tools)
    server.register(DESCRIBE_TOOL, describe_tool)
