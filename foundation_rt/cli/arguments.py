"""Arguments of tools and prompts, as they are written on a command line (CLI-16)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from ..protocol.exact_json import loads
from .json_schemas import types_of
from .words import UsageProblem


def read_arguments(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a tool: one JSON object, or words that are `key=value` or `key:=JSON`.

    Args:
        words: what stands after the name of the tool; none are no arguments.
        schema: the tool's `inputSchema`; says how a value is to be read, and is not enforced here.

    Raises:
        UsageProblem: a word has neither form, a key comes twice, or a value is not what it has to
            be.
    """
    if len(words) == 1 and words[0].lstrip()[:1] == "{":
        return _read_object(words[0])
    arguments: dict[str, Any] = {}
    for key, value, is_json in map(_split, words):
        if key in arguments:
            raise UsageProblem(f"the argument {key!r} is given twice")
        arguments[key] = _json(key, value) if is_json else _by_schema(key, value, schema)
    return arguments


def read_texts(words: Sequence[str]) -> dict[str, str]:
    """The arguments of a prompt, which are all text: words that are `key=value`.

    Raises:
        UsageProblem: a word is not of that form, or a key comes twice.
    """
    arguments: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageProblem(f"{word!r} is not of the form key=value")
        if key in arguments:
            raise UsageProblem(f"the argument {key!r} is given twice")
        arguments[key] = value
    return arguments


def _split(word: str) -> tuple[str, str, bool]:
    key, equals, value = word.partition("=")
    is_json = key.endswith(":")
    key = key.removesuffix(":")
    if not equals or not key:
        raise UsageProblem(f"{word!r} is neither a JSON object nor of the form key=value")
    return key, value, is_json


def _read_object(text: str) -> dict[str, Any]:
    try:
        read: dict[str, Any] = loads(text)
    except orjson.JSONDecodeError as error:
        raise UsageProblem(f"the arguments are not valid JSON: {error}") from None
    return read


def _json(key: str, text: str) -> Any:
    try:
        return loads(text)
    except orjson.JSONDecodeError as error:
        raise UsageProblem(f"{key}:= takes JSON: {error}") from None


def _by_schema(key: str, text: str, schema: Mapping[str, Any]) -> Any:
    """Text where it may be text; else JSON; where nothing is said, JSON if it is any."""
    properties = schema.get("properties")
    declared = properties.get(key) if isinstance(properties, dict) else None
    types = types_of(declared, schema)
    if "string" in types:
        return text
    try:
        return loads(text)
    except orjson.JSONDecodeError:
        if not types:
            return text
    raise UsageProblem(f"{key} takes {' or '.join(sorted(types))}, written as JSON; not {text!r}")
