"""The rank of tools for a query (SEARCH-04).

The rank of a tool is the sum, over the words of the query that it has, of how rare the word is
among all tools, and where the tool has it: a word of the name says more than one of the
description. It needs no index: 1,000 tools are ranked in a few milliseconds, and read once.

Applications may import this module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field

_DESCRIPTION_CHARS = 300
_MAX_QUERY_WORDS = 64
_WEIGHTS = {"name": 4.0, "title": 2.0, "description": 1.0}
_PREFIX_SHARE = 0.5
"""The share of its weight that a word has where it only begins a word of the tool."""

# `readFile` and `HTTPServer` are two words each.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+")


@define(eq=False)
class SearchableTool:
    """A tool as the search sees it.

    Attributes:
        name: as clients call it.
        server: the id of its server; None where there is one alone.
        definition: as the server sent it.
        words: the weight of each word.
        text: the words, each after a blank.
    """

    name: str
    server: str | None
    definition: Mapping[str, Any]
    words: dict[str, float] = field(init=False)
    text: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        texts = {"name": self.name, **_texts(self.definition)}
        self.words = {}
        for place in sorted(_WEIGHTS, key=_WEIGHTS.__getitem__):
            self.words.update(dict.fromkeys(words_of(texts.get(place, "")), _WEIGHTS[place]))
        self.text = f" {' '.join(self.words)}"

    def summary(self) -> dict[str, Any]:
        """Return what `search_tools` shows of it."""
        place = {} if self.server is None else {"server": self.server}
        shown = {"name": self.name, **place, **_texts(self.definition)}
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
    # `to` begins half of all words; and few tools have to be looked at word by word.
    if len(word) < 3 or f" {word}" not in tool.text:
        return 0.0
    begun = (weight for each, weight in tool.words.items() if each.startswith(word))
    return max(begun) * _PREFIX_SHARE


def _texts(definition: Mapping[str, Any]) -> dict[str, str]:
    """Return title and description, where they are texts: another server wrote them."""
    texts = {name: definition.get(name) for name in ("title", "description")}
    return {name: text for name, text in texts.items() if isinstance(text, str)}
