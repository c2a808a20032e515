"""The tool that a text is about, by the words of names and descriptions (LLM-82). Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from attrs import frozen

from ..service import ModelTool
from .words import are_alike, split_words, stem, stems

_NAME, _SERVER, _DESCRIPTION, _PARAMETER = 3.0, 1.5, 1.0, 0.5
_ALIKE = 0.6  # of the weight of the word itself
_WHOLE_NAME = 2.0
_LEAST = 2.0
_CLEARLY = 1.3  # times the second
_MAX_WORDS = 48
_NO_WORDS = re.compile(r"\"[^\"]*\"|“[^”]*”|`[^`]*`|https?://\S+|\S*/\S*|\S+@\S+")


@frozen
class Fit:
    """A tool, and how well it fits."""

    tool: ModelTool
    score: float


def rank_tools(text: str, tools: Sequence[ModelTool]) -> list[Fit]:
    """Return the tools that share a word with the text, the best first; of equals by name."""
    words = _said(text)
    if not words or not tools:
        return []
    weights = [_weights(tool) for tool in tools]
    owners = Counter(word for each in weights for word in each)
    fits = []
    for tool, known in zip(tools, weights, strict=True):
        score = sum(_gain(word, known, owners, len(tools)) for word in words)
        name = {stem(word) for word in split_words(tool.name.partition(":")[2])}
        if score and name and name <= words:
            score += _WHOLE_NAME
        if score:
            fits.append(Fit(tool, score))
    return sorted(fits, key=lambda fit: (-fit.score, fit.tool.name))


def best_tool(fits: Sequence[Fit]) -> ModelTool | None:
    """Return the tool that is clearly the best; None if there is none."""
    if not fits or fits[0].score < _LEAST:
        return None
    if len(fits) > 1 and fits[0].score < _CLEARLY * fits[1].score:
        return None
    return fits[0].tool


def tool_words(tool: ModelTool) -> set[str]:
    """Return the stems of the words of a tool's name and description."""
    return {stem(word) for word in (*split_words(tool.name), *split_words(tool.description))}


def _said(text: str) -> set[str]:
    words = split_words(_NO_WORDS.sub(" ", text))[:_MAX_WORDS]
    return stems(" ".join(words))


def _weights(tool: ModelTool) -> dict[str, float]:
    server, _, name = tool.name.partition(":")
    weights: dict[str, float] = {}
    properties = tool.parameters.get("properties")
    parameters = " ".join(map(str, properties)) if isinstance(properties, dict) else ""
    for text, weight in (
        (parameters, _PARAMETER),
        (tool.description[:2000], _DESCRIPTION),
        (server, _SERVER),
        (name, _NAME),
    ):
        for word in stems(text):
            weights[word] = max(weight, weights.get(word, 0.0))
    return weights


def _gain(word: str, known: dict[str, float], owners: Counter[str], count: int) -> float:
    """Return what a word says for a tool: the more, the fewer tools have it."""
    if word in known:
        return known[word] * math.log(1 + count / owners[word])
    alike = [other for other in known if are_alike(word, other)]
    return max((_ALIKE * known[o] * math.log(1 + count / owners[o]) for o in alike), default=0.0)
