"""Search among the tools of all servers, for `--expose search` (GATE-30).

A model that is shown hundreds of definitions reads none of them well. It gets three tools instead:
`search_tools`, `describe_tool` and `call_tool`.

The rank of a tool is the sum, over the words of the query that it has, of how rare the word is
among all tools, and where the tool has it: a word of the name says more than one of the
description. It needs no index: 1,000 tools are ranked in a few milliseconds, and read once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...errors import ErrorCode, ToolError
from ...kernel.registry.tool_definition import ToolDefinition
from ...protocol.tool_annotations import ToolAnnotations

if TYPE_CHECKING:
    from ...features.context import ToolContext
    from ...server import Server
    from .routes import Definition
    from .server_routes import ServerRoutes

MAX_RESULTS = 50
DEFAULT_RESULTS = 10

_DESCRIPTION_CHARS = 300
_MAX_QUERY_WORDS = 64
_WEIGHTS = {"name": 4.0, "title": 2.0, "description": 1.0}
_PREFIX_SHARE = 0.5
"""The share of its weight that a word has where it only begins a word of the tool."""

# `readFile` and `HTTPServer` are two words each.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+")

_READS = ToolAnnotations(read_only=True, open_world=False)

SEARCH_TOOLS = ToolDefinition(
    "search_tools",
    "Find tools by words of their names and descriptions. Returns the best matches with a short"
    " description each; describe_tool has the arguments of one.",
    {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "Words that say what the tool should do; empty lists all tools.",
                "maxLength": 1000,
            },
            "server": {"type": "string", "description": "Only tools of this server."},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_RESULTS,
                "default": DEFAULT_RESULTS,
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    title="Search tools",
    annotations=_READS,
)

DESCRIBE_TOOL = ToolDefinition(
    "describe_tool",
    "Return the whole definition of a tool: description, arguments, annotations.",
    {
        "type": "object",
        "properties": {"name": {"type": "string", "description": "As search_tools has it."}},
        "required": ["name"],
        "additionalProperties": False,
    },
    title="Describe a tool",
    annotations=_READS,
)

CALL_TOOL: dict[str, Any] = {
    "name": "call_tool",
    "title": "Call a tool",
    "description": "Call a tool that search_tools found, with the arguments that it describes.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "As search_tools has it."},
            "arguments": {"type": "object", "description": "Of the tool, by name."},
        },
        "required": ["name"],
        "additionalProperties": False,
    },
}
"""Not a tool of the gateway itself: its result is that of the other tool, as it came."""


@define(eq=False)
class SearchableTool:
    """A tool as the search sees it.

    Attributes:
        name: as clients call it.
        server: the id of its server.
        definition: as the server sent it.
    """

    name: str
    server: str
    definition: Mapping[str, Any]
    words: dict[str, float] = field(init=False)

    def __attrs_post_init__(self) -> None:
        texts = {"name": self.name, **_texts(self.definition)}
        self.words = {}
        for place in sorted(_WEIGHTS, key=_WEIGHTS.__getitem__):
            self.words.update(dict.fromkeys(words_of(texts.get(place, "")), _WEIGHTS[place]))

    def summary(self) -> dict[str, Any]:
        """Return what `search_tools` shows of it."""
        shown = {"name": self.name, "server": self.server, **_texts(self.definition)}
        description = shown.get("description", "")
        if len(description) > _DESCRIPTION_CHARS:
            shown["description"] = description[: _DESCRIPTION_CHARS - 3] + "..."
        return shown


def search(
    tools: Iterable[SearchableTool], query: str, server: str | None = None
) -> list[SearchableTool]:
    """Return the tools that have a word of the query, the best first; all for an empty query."""
    found = [each for each in tools if server is None or each.server == server]
    wanted = [*dict.fromkeys(words_of(query))][:_MAX_QUERY_WORDS]
    if not wanted:
        return sorted(found, key=lambda tool: tool.name)
    matches = [{word: _match(tool, word) for word in wanted} for tool in found]
    rarity = {
        word: math.log(1 + len(found) / (1 + sum(1 for each in matches if each[word])))
        for word in wanted
    }
    ranked = [
        (-sum(match * rarity[word] for word, match in matched.items()), tool.name, tool)
        for tool, matched in zip(found, matches, strict=True)
        if any(matched.values())
    ]
    return [tool for _, _, tool in sorted(ranked, key=lambda each: each[:2])]


def words_of(text: str) -> list[str]:
    """Return the words of a text or a name, case-folded."""
    return [word.casefold() for word in _WORD.findall(text)]


def _match(tool: SearchableTool, word: str) -> float:
    whole = tool.words.get(word)
    if whole is not None:
        return whole
    if len(word) < 3:  # `to` begins half of all words
        return 0.0
    begun = [weight for each, weight in tool.words.items() if each.startswith(word)]
    return max(begun) * _PREFIX_SHARE if begun else 0.0


def _texts(definition: Mapping[str, Any]) -> dict[str, str]:
    """Return title and description, where they are texts: another server wrote them."""
    texts = {name: definition.get(name) for name in ("title", "description")}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def register_search(server: Server, servers: ServerRoutes) -> None:
    """Add `search_tools` and `describe_tool` to a server."""

    async def search_tools(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        routes = (await servers.routes_for(context)).tools
        tools = [
            SearchableTool(name, each.server, each.definition) for name, each in routes.items()
        ]
        found = search(tools, arguments["query"], arguments.get("server"))
        limit = arguments.get("limit", DEFAULT_RESULTS)
        return {"tools": [tool.summary() for tool in found[:limit]], "total": len(found)}

    async def describe_tool(arguments: dict[str, Any], context: ToolContext) -> Definition:
        routes = await servers.routes_for(context)
        route = routes.tools.get(arguments["name"])
        if route is None:
            raise routes.unknown_tool(arguments["name"])
        return route.definition

    server.register(SEARCH_TOOLS, search_tools)
    server.register(DESCRIBE_TOOL, describe_tool)


def read_call(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params of the call that `call_tool` is to make.

    Raises:
        ToolError: INVALID_ARGUMENT: there is no name.
    """
    given = params.get("arguments")
    given = given if isinstance(given, dict) else {}
    name = given.get("name")
    if not isinstance(name, str):
        raise ToolError(
            ErrorCode.INVALID_ARGUMENT, "call_tool needs the name of a tool: search_tools has it."
        )
    return {**params, "name": name, "arguments": given.get("arguments", {})}
