"""The tools of a request where a model's vendor takes fewer than there are (TURN-85, TURN-86).

The model gets those that the chat has used or found, then those that fit best what the user says,
and `find_tools`, with which it finds others; what it has found is declared from then on. All of it
follows from history and tools, so a chat goes on after a restart as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..chat import ChatMessage, Role
from ..llm.service import ModelTool
from .results import ToolOutcome

if TYPE_CHECKING:
    from ....features.tool_search.ranking import SearchableTool

FIND_TOOLS = "find_tools"
NOTHING = "No tool has these words."
_FOUND = 10
_SHOWN = 300
"""Characters of a description among what is found."""

_MAX_KEPT = 20_000
_WORDS_OF = 3
"""The newest messages of the user whose words choose."""


def find_tool(total: int) -> ModelTool:
    """Return the tool with which a model finds tools that are not declared."""
    query = {"type": "string", "description": "Words that say what the tool should do."}
    return ModelTool(
        FIND_TOOLS,
        FIND_TOOLS,
        f"Find further tools: there are {total}, and only those that seem to fit best are listed"
        " here. What is found can be called from then on.",
        {"type": "object", "properties": {"query": query}, "required": ["query"]},
        is_read_only=True,
    )


@define(eq=False)
class ToolChoice:
    """Chooses among tools by words; keeps the words of each tool."""

    _known: dict[str, tuple[str, SearchableTool]] = field(factory=dict, init=False)

    def choose(
        self, tools: Sequence[ModelTool], most: int | None, history: Sequence[ChatMessage]
    ) -> list[ModelTool]:
        """Return at most `most` tools for the next request of a chat, in the order of the list."""
        if most is None or len(tools) <= most:
            return [*tools]
        by_name = {tool.name: tool for tool in tools}
        chosen: dict[str, None] = {}
        for name in self._wanted(tools, history):
            if len(chosen) == most - 1:
                break
            if name in by_name:
                chosen[name] = None
        return [*(tool for tool in tools if tool.name in chosen), find_tool(len(tools))]

    def _wanted(self, tools: Sequence[ModelTool], history: Sequence[ChatMessage]) -> Iterator[str]:
        """Yield names of tools, those that are wanted most first."""
        for message in reversed(history):
            if message.is_call:
                yield str(message.tool_name)
            elif message.role is Role.TOOL and message.tool_name == FIND_TOOLS:
                yield from _found_names(message.data)
        said = [each.content for each in reversed(history) if each.role is Role.USER]
        for text in said[:_WORDS_OF]:
            yield from (each.name for each in self._search(tools, text or "") if text)
        yield from (tool.name for tool in tools)

    def find(self, tools: Sequence[ModelTool], arguments: Mapping[str, Any]) -> ToolOutcome:
        """Return the outcome of a call of `find_tools`."""
        query = str(arguments.get("query") or "")
        known = {tool.name: tool for tool in tools}
        found = [known[each.name] for each in self._search(tools, query)[:_FOUND]]
        lines = [f"- {each.name}: {each.description[:_SHOWN]}" for each in found]
        content = "\n".join([*lines, "These can be called now."] if lines else [NOTHING])
        text = {"type": "text", "text": content}
        structured = {"tools": [each.name for each in found]}
        return ToolOutcome(
            content, {"result": {"content": [text], "structuredContent": structured}}
        )

    def _search(self, tools: Sequence[ModelTool], query: str) -> list[SearchableTool]:
        from ....features.tool_search.ranking import search  # for many tools only

        return search(map(self._searchable, tools), query)

    def _searchable(self, tool: ModelTool) -> SearchableTool:
        from ....features.tool_search.ranking import SearchableTool

        known = self._known.get(tool.name)
        if known is None or known[0] != tool.description:
            if len(self._known) >= _MAX_KEPT:
                self._known.clear()
            made = SearchableTool(tool.name, "", {"description": tool.description})
            known = self._known[tool.name] = tool.description, made
        return known[1]


def _found_names(data: Any) -> Sequence[str]:
    """Return the names in the outcome of `find_tools`."""
    result = data.get("result") if isinstance(data, Mapping) else None
    structured = result.get("structuredContent") if isinstance(result, Mapping) else None
    names = structured.get("tools") if isinstance(structured, Mapping) else None
    return [each for each in names if isinstance(each, str)] if isinstance(names, list) else []
