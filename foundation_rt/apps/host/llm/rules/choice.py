"""The tool that a text is about, by the words of names and descriptions (LLM-82). Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from attrs import frozen

from ..service import ModelTool
from .arguments import find_arguments
from .parameters import Parameter, read_parameters
from .words import are_alike, split_words, stem, stems

_NAME, _SERVER, _DESCRIPTION, _PARAMETER = 3.0, 1.5, 1.0, 0.5
_ALIKE = 0.6  # of the weight of the word itself
_IMPLIED = 0.6  # of a word that a path or a URL stands for
_WHOLE_NAME = 1.0
_SERVER_SAID = 1.3
_UNCOVERED = 0.5  # of the score, if no word of the name was said
_FILLED, _UNFILLABLE = 1.5, 0.7
_LEAST = 1.4
_CLEARLY = 1.25  # times the second
_MAX_WORDS = 48
_MAX_SEARCHED = 2_000
_MAX_FILLED = 12
_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|`[^`]*`")
_IMPLIES = (
    (re.compile(r"(?<![\w.+-])[a-z][a-z0-9+.-]{0,20}://\S+", re.IGNORECASE), "url page"),
    (re.compile(r"[^\s@]{1,64}@[^\s@]{1,255}"), "email"),
    (re.compile(r"(?<!\S)\S*[\w-]\.[A-Za-z]\w{0,7}(?=[\s,;.!?]|$)"), "file"),
    (re.compile(r"\S*/\S*"), "directory path"),
)


@frozen
class Fit:
    """A tool, and how well it fits."""

    tool: ModelTool
    score: float


def rank_tools(text: str, tools: Sequence[ModelTool]) -> list[Fit]:
    """Return the tools that share a word with the text, the best first; of equals by name."""
    said = _said(text)
    if not said or not tools:
        return []
    weights = [_weights(tool) for tool in tools]
    owners = Counter(word for each in weights for word in each)
    fits = []
    for tool, known in zip(tools, weights, strict=True):
        score = sum(said[word] * _gain(word, known, owners, len(tools)) for word in said)
        if score:
            fits.append(Fit(tool, _by_name(score, tool, said)))
    return _sorted(fits)


def rank_calls(text: str, tools: Sequence[ModelTool]) -> list[Fit]:
    """Return the tools as `rank_tools` does, those first whose arguments the text has."""
    fits = rank_tools(text, tools)
    likely = [Fit(fit.tool, fit.score * _fill_factor(text, fit.tool)) for fit in fits[:_MAX_FILLED]]
    return _sorted(likely) + fits[_MAX_FILLED:]


def best_tool(fits: Sequence[Fit]) -> ModelTool | None:
    """Return the tool that is clearly the best; None if there is none."""
    if not fits or fits[0].score < _LEAST:
        return None
    if len(fits) > 1 and fits[0].score < _CLEARLY * fits[1].score:
        return None
    return fits[0].tool


def tool_words(tool: ModelTool) -> set[str]:
    """Return the stems of the words of a tool's name and description."""
    return {
        stem(word)
        for word in (*split_words(tool.name), *split_words(tool.description[:_MAX_SEARCHED]))
    }


def _sorted(fits: Sequence[Fit]) -> list[Fit]:
    return sorted(fits, key=lambda fit: (-fit.score, fit.tool.name))


def _said(text: str) -> dict[str, float]:
    """Return the words of a text with their weights, and those that its values imply."""
    rest = _QUOTED.sub(" ", text[:_MAX_SEARCHED])
    implied: list[str] = []
    for pattern, words in _IMPLIES:
        if pattern.search(rest):
            implied += words.split()
            rest = pattern.sub(" ", rest)
    said = dict.fromkeys(stems(" ".join(split_words(rest)[:_MAX_WORDS])), 1.0)
    if not said:
        return {}
    return {**{stem(word): _IMPLIED for word in implied}, **said}


def _by_name(score: float, tool: ModelTool, said: Mapping[str, float]) -> float:
    """Return the score by how much of the tool's name was said."""
    name = {stem(word) for word in split_words(tool.name.partition(":")[2])}
    covered = sum(
        1 if word in said else 0.7 if any(are_alike(word, other) for other in said) else 0
        for word in name
    )
    if not name:
        return score
    whole = _WHOLE_NAME if name <= said.keys() else 0
    server = stems(tool.name.partition(":")[0])
    factor = _SERVER_SAID if server and server <= said.keys() else 1.0
    return factor * (score + whole) * (_UNCOVERED + (1 - _UNCOVERED) * covered / len(name))


def _fill_factor(text: str, tool: ModelTool) -> float:
    """Return how much more likely a tool is by the values in the text."""
    parameters = [each for each in read_parameters(tool.parameters) if each.is_required]
    found = find_arguments(text, parameters, tool_words(tool))
    lacking = [each for each in parameters if each.name not in found]
    if any(each.type == "object" or each.items == "object" for each in lacking):
        return _UNFILLABLE
    has_evidence = any(_is_typed(each) for each in parameters)
    return _FILLED if has_evidence and not lacking else 1.0


def _is_typed(parameter: Parameter) -> bool:
    """Tell whether not just any text is a value of the parameter."""
    if parameter.choices or parameter.format:
        return True
    kind = parameter.items if parameter.type == "array" else parameter.type
    return kind not in ("string", "")


def _weights(tool: ModelTool) -> dict[str, float]:
    server, _, name = tool.name.partition(":")
    weights: dict[str, float] = {}
    properties = tool.parameters.get("properties")
    parameters = (
        " ".join(map(str, properties))[:_MAX_SEARCHED] if isinstance(properties, dict) else ""
    )
    for text, weight in (
        (parameters, _PARAMETER),
        (tool.description[:_MAX_SEARCHED], _DESCRIPTION),
        (server, _SERVER),
        (name, _NAME),
    ):
        for word in stems(text):
            weights[word] = max(weight, weights.get(word, 0.0))
    return weights


def _gain(word: str, known: dict[str, float], owners: Counter[str], count: int) -> float:
    """Return what a word says for a tool: the more, the fewer tools have it."""

    def gain(other: str) -> float:
        return known[other] * math.log(1 + count / owners[other]) / math.log(1 + count)

    alike = (_ALIKE * gain(other) for other in known if are_alike(word, other))
    return max(gain(word) if word in known else 0.0, *alike, 0.0)
