"""The arguments of a call in a text in plain words (LLM-83). Pure.

What was used is struck out, so that nothing is used twice; what is left over is the value of the
only string that the call needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from attrs import define, field

from .parameters import Parameter, measured, read_value, unquoted
from .words import CONNECTING, FILLER, split_words, stem

_STRUCK = "\0"
_MAX_SEARCHED = 4_000
"""Characters in which values are searched: some patterns cost the square of it."""

_MAX_CHOICES = 200
_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|„[^“]*“|«[^»]*»|`[^`]+`|(?<!\w)'[^']*'(?!\w)")
_URL = re.compile(
    r"(?<![\w.+-])[a-z][a-z0-9+.-]{0,20}://[^\s<>\"']+[^\s<>\"'.,;:!?)\]]", re.IGNORECASE
)
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+")
_DATE = re.compile(
    r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2})?)?"
)
_PATH = re.compile(
    r"(?<!\S)(?:(?:~|\.{1,2})?/[^\s,;]*[^\s,;.!?]|/|[\w.-]+/[\w./-]*|[\w-]+\.\w{1,8})(?=[\s,;.!?]|$)"
)
_MEASURE = re.compile(r"(?<![\w.])([-+]?\d{1,30}(?:\.\d{1,30})?)\s?([A-Za-z]{1,30})?(?![\w])")
_WORD = re.compile(r"\S+")
_END_OF_VALUE = re.compile(r"[,;\n]")


@define
class _Text:
    """A text of which parts are struck out."""

    text: str

    def search(self, pattern: str) -> re.Match[str] | None:
        """Search a pattern, whatever the case."""
        return re.compile(pattern, re.IGNORECASE).search(self.text, 0, _MAX_SEARCHED)

    def find_all(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        """Find a pattern; what is struck out meanwhile is still found."""
        return pattern.finditer(self.text, 0, _MAX_SEARCHED)

    def strike(self, start: int, end: int) -> None:
        self.text = self.text[:start] + _STRUCK * (end - start) + self.text[end:]

    def rest(self) -> str:
        return " ".join(self.text.replace(_STRUCK, " ").split())


@define
class _Filling:
    """The arguments found so far."""

    parameters: Sequence[Parameter]
    text: _Text
    values: dict[str, Any] = field(factory=dict)

    def open(self, fits: Callable[[Parameter], bool]) -> Iterator[Parameter]:
        return (each for each in self.parameters if each.name not in self.values and fits(each))

    def take(self, pattern: re.Pattern[str], fits: Callable[[Parameter], bool]) -> None:
        """Give what the pattern finds to the open parameters that it fits, in their order."""
        for match in self.text.find_all(pattern):
            for parameter in self.open(fits):
                with suppress(ValueError):
                    self.values[parameter.name] = read_value(parameter, match[0])
                    self.text.strike(*match.span())
                    break


def find_arguments(
    text: str, parameters: Sequence[Parameter], words_of_tool: set[str]
) -> dict[str, Any]:
    """Return the arguments that a text has for a tool; those it lacks are not in it."""
    filling = _Filling(parameters, _Text(text.replace(_STRUCK, " ")))
    for parameter in parameters:
        if parameter.is_required and len(parameter.choices) == 1:
            filling.values[parameter.name] = parameter.choices[0]
    _take_json(filling)
    _take_named(filling)
    _take_choices(filling)
    filling.take(_URL, lambda each: each.format == "uri")
    filling.take(_EMAIL, lambda each: each.format == "email")
    filling.take(_DATE, lambda each: each.format == "date")
    filling.take(_PATH, lambda each: each.format == "path" and each.type == "string")
    filling.take(_QUOTED, _is_free_text)
    _take_numbers(filling)
    _take_flags(filling)
    _take_rest(filling, words_of_tool)
    return filling.values


def _is_free_text(parameter: Parameter) -> bool:
    return parameter.type in ("string", "") and not parameter.choices


def _take_json(filling: _Filling) -> None:
    """Take an object in JSON whose members are parameters."""
    start = filling.text.text.find("{")
    if start < 0:
        return
    try:
        found, end = json.JSONDecoder().raw_decode(filling.text.text, start)
    except (ValueError, RecursionError):
        return
    names = {parameter.name for parameter in filling.parameters}
    if found and found.keys() <= names:
        filling.values.update(found)
        filling.text.strike(start, end)


def _take_named(filling: _Filling) -> None:
    """Take `name: value` and `name=value`; the value ends at a comma, or at the next name."""
    names = {
        each.name: "[ _-]?".join(map(re.escape, split_words(each.name)))
        for each in filling.parameters
    }
    named = "|".join(pattern for pattern in names.values() if pattern)
    if not named:
        return
    next_name = re.compile(rf"(?<!\w)(?:{named})\s{{0,3}}[:=]", re.IGNORECASE)
    for parameter in filling.parameters:
        pattern = names[parameter.name]
        if not pattern or parameter.name in filling.values:
            continue
        match = filling.text.search(rf"(?<![\w/])(?:{pattern})\s{{0,3}}[:=](?!//)\s*")
        if match is None:
            continue
        end = _end_of_value(filling.text.text, match.end(), parameter, next_name)
        with suppress(ValueError):
            filling.values[parameter.name] = read_value(
                parameter, filling.text.text[match.end() : end]
            )
            filling.text.strike(match.start(), end)


def _end_of_value(text: str, start: int, parameter: Parameter, name: re.Pattern[str]) -> int:
    quoted = _QUOTED.match(text, start)
    if quoted is not None:
        return quoted.end()
    if text[start : start + 1] in ("[", "{"):
        with suppress(ValueError, RecursionError):
            return json.JSONDecoder().raw_decode(text, start)[1]
    ends = [len(text)]
    following = name.search(text, start)
    if following is not None:
        ends.append(following.start())
    stop = _END_OF_VALUE.search(text, start)
    if stop is not None and parameter.type != "array":
        ends.append(stop.start())
    if parameter.type in ("integer", "number", "boolean"):
        word = _MEASURE.match(text, start) or _WORD.match(text, start)
        ends.append(word.end() if word is not None else len(text))
    return min(ends)


def _take_choices(filling: _Filling) -> None:
    for parameter in filling.open(lambda each: bool(each.choices)):
        for choice in sorted(parameter.choices[:_MAX_CHOICES], key=lambda each: -len(str(each))):
            match = filling.text.search(rf"(?<!\w){re.escape(str(choice))}(?!\w)")
            if match is not None and str(choice):
                filling.values[parameter.name] = choice
                filling.text.strike(*match.span())
                break


def _take_numbers(filling: _Filling) -> None:
    lists = list(filling.open(lambda p: p.type == "array" and p.items in ("integer", "number")))
    for match in filling.text.find_all(_MEASURE):
        for parameter in filling.open(lambda p: p.type in ("integer", "number") and not p.choices):
            value = measured(parameter, match[1], match[2])
            if value is not None:
                filling.values[parameter.name] = value
                filling.text.strike(match.start(), _end_of_measure(match, parameter))
                break
        else:
            if lists:
                item = measured(Parameter("", lists[0].items, True), match[1], None)
                filling.values.setdefault(lists[0].name, []).append(item)
                filling.text.strike(*match.span(1))


def _end_of_measure(match: re.Match[str], parameter: Parameter) -> int:
    is_unit = match[2] is not None and parameter.unit_s is not None
    return match.end() if is_unit else match.end(1)


def _take_flags(filling: _Filling) -> None:
    """Take `name` as yes, and `no name`, `without name` as no."""
    for parameter in filling.open(lambda each: each.type == "boolean"):
        pattern = "[ _-]?".join(map(re.escape, split_words(parameter.name)))
        match = filling.text.search(rf"(?<!\w)(?:(not?|without)\s{{1,3}})?(?:{pattern})(?!\w)")
        if match is not None and pattern:
            filling.values[parameter.name] = match[1] is None
            filling.text.strike(*match.span())


def _take_rest(filling: _Filling, words_of_tool: set[str]) -> None:
    """Give what is left to the only required string, or list of strings, that is open."""
    lacking = list(filling.open(lambda each: each.is_required and not each.choices))
    texts = [each for each in lacking if each.type in ("string", "")]
    lists = [each for each in lacking if each.type == "array" and each.items in ("string", "")]
    rest = _without_command(filling.text.rest(), words_of_tool)
    if len(texts + lists) == 1 and rest and (texts or lists)[0].format not in ("date", "email"):
        with suppress(ValueError):
            filling.values[(texts or lists)[0].name] = read_value((texts or lists)[0], rest)


def _without_command(rest: str, words_of_tool: set[str]) -> str:
    """Return a text without the words at its start that only say which tool is meant."""
    end = 0
    for match in _WORD.finditer(rest):
        words = split_words(match[0])
        if any(stem(word) in words_of_tool for word in words):
            end = match.end()
            if match[0].endswith(":"):
                break
        elif not all(word in FILLER for word in words) or not words:
            break
    rest = rest[end:].lstrip(" :,-")
    first, _, others = rest.partition(" ")
    if end and first.lower() in CONNECTING:
        rest = others
    return unquoted(rest.strip())
