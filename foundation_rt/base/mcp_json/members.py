"""The members of one entry: their types, their meaning, and their JSON Schema (MCPJSON-02).

An entry is checked by this table, and the schema in spec/schemas is made of it, so the two cannot
disagree. A member that is null counts as absent. `problem` returns what is wrong with a value, and
never repeats the value: it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

STDIO_TYPES = ("stdio", "local")
HTTP_TYPES = ("http", "sse", "streamable-http", "streamableHttp", "remote")
HTTP_TRANSPORTS = HTTP_TYPES[:-1]
ISOLATIONS = ("session", "principal", "shared")

_DAY_MS = 86_400_000
_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # the name of a header (RFC 9110, 5.6.2)


@frozen
class MemberKind:
    """The type of a member.

    Attributes:
        problem: returns the reason why a value cannot be used, to follow the member's name; None if
            it can be.
        schema: the JSON Schema of the values that can be used.
    """

    problem: Callable[[Any], str | None]
    schema: Mapping[str, Any]


def _kind(words: str, accepts: Callable[[Any], bool], **schema: Any) -> MemberKind:
    """Return a kind whose values are `words`, as an error says it."""
    return MemberKind(lambda value: None if accepts(value) else f"should be {words}", schema)


def choice(words: tuple[str, ...]) -> MemberKind:
    """Return the kind of a member that is one of a few words."""
    return _kind(" or ".join(words), lambda value: value in words, enum=list(words))


def _whole_number(most: int) -> MemberKind:
    def accepts(value: Any) -> bool:
        # As in JSON Schema, where 5.0 is an integer.
        is_whole = type(value) is int or (type(value) is float and value.is_integer())
        return is_whole and 1 <= value <= most

    words = f"a whole number from 1 to {most}"
    return _kind(words, accepts, type="integer", minimum=1, maximum=most)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_header_map(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(name, str) and re.fullmatch(_TOKEN, name)
        for name in (*value.keys(), *value.values())
    )


def _problem_of_texts_by_name(value: Any) -> str | None:
    if not isinstance(value, dict):
        return "should be an object of strings"
    for key, each in value.items():
        if not isinstance(each, str):
            hint = "" if each is None or isinstance(each, list | dict) else ": put it in quotes"
            problem = f"the value of {key!r} should be a string{hint}"
            return f"should be an object of strings: {problem}"
    return None


def _problem_of_oauth(value: Any) -> str | None:
    if not isinstance(value, dict):
        return "should be an object"
    for name, kind in OAUTH_MEMBERS.items():
        problem = kind.problem(value[name]) if name in value else None
        if problem is not None:
            return f'has a "{name}" that {problem}'
    if "clientId" in value and "issuer" not in value:
        return 'has a "clientId" and needs "issuer", the authorization server that knows it'
    if "clientSecret" in value and "clientId" not in value:
        return 'has a "clientSecret" and needs the "clientId" that it belongs to'
    return None


@frozen
class EntryMember:
    """One member of an entry.

    Attributes:
        meaning: for the JSON Schema.
        default: of a member that is absent; None if there is none.
    """

    kind: MemberKind
    meaning: str
    default: Any = None


_TEXT = _kind(
    "a string", lambda value: isinstance(value, str) and value != "", type="string", minLength=1
)
_FLAG = _kind("true or false", lambda value: isinstance(value, bool), type="boolean")
_TIME = _whole_number(_DAY_MS)
_TEXTS = _kind("a list of strings", _is_texts, type="array", items={"type": "string"})
_TEXTS_BY_NAME = MemberKind(
    _problem_of_texts_by_name, {"type": "object", "additionalProperties": {"type": "string"}}
)
_HEADER = {"type": "string", "pattern": f"^{_TOKEN}$"}
_HEADER_MAP = _kind(
    "an object of names of headers, by names of headers",
    _is_header_map,
    type="object",
    propertyNames=_HEADER,
    additionalProperties=_HEADER,
)

OAUTH_MEMBERS: Mapping[str, MemberKind] = {
    "clientId": _TEXT,
    "clientSecret": _TEXT,
    "issuer": _TEXT,
    "scopes": _TEXTS,
    "callbackPort": _whole_number(65_535),
    "shared": _FLAG,
}
"""The members of `oauth`; others are passed over."""

_OAUTH = MemberKind(
    _problem_of_oauth,
    {
        "type": "object",
        "properties": {name: kind.schema for name, kind in OAUTH_MEMBERS.items()},
        "dependentRequired": {"clientId": ["issuer"], "clientSecret": ["clientId"]},
    },
)

_SHAPED_TEXTS: Mapping[str, Any] = {
    "as": {"type": "string", "minLength": 1, "description": "The name for clients."},
    "title": {"type": "string", "minLength": 1},
    "description": {"type": "string", "minLength": 1},
}
_SHAPED_ARGUMENT: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        **_SHAPED_TEXTS,
        "hide": {"description": "Hides the argument: the tool gets this value."},
        "from": {
            "pattern": "^(principal|session|header:.+)$",
            "type": "string",
            "description": "Hides the argument: the tool gets this of the caller.",
        },
    },
    "additionalProperties": False,
    "dependentSchemas": {name: {"maxProperties": 1} for name in ("hide", "from")},
}
SHAPES_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "properties": {
            **_SHAPED_TEXTS,
            "arguments": {"type": "object", "additionalProperties": _SHAPED_ARGUMENT},
        },
        "additionalProperties": False,
    },
}
"""The JSON of `Transform`."""

_SHAPES = _kind(  # read by `Transform`; a list means nothing here
    "an object, by name of tool",
    lambda value: isinstance(value, dict | list),
    anyOf=[{"type": "array"}, SHAPES_SCHEMA],
)

MEMBERS: Mapping[str, EntryMember] = {
    "id": EntryMember(_TEXT, "The name of the server once more; equal to its key."),
    "type": EntryMember(
        choice(STDIO_TYPES + HTTP_TYPES), "stdio or local for a command, else for a URL."
    ),
    "transport": EntryMember(
        choice((STDIO_TYPES[0], *HTTP_TRANSPORTS)), "As type, without local and remote."
    ),
    "command": EntryMember(_TEXT, "The program of the server, by its path or its name."),
    "args": EntryMember(_TEXTS, "The arguments of the program; no shell reads them."),
    "env": EntryMember(_TEXTS_BY_NAME, "Variables of the environment of the program."),
    "cwd": EntryMember(_TEXT, "The working directory of the program."),
    "url": EntryMember(_TEXT, "The MCP endpoint of the server."),
    "headers": EntryMember(_TEXTS_BY_NAME, "Sent to the server with every request."),
    "oauth": EntryMember(_OAUTH, "A person logs in to the server, with foundation-rt login NAME."),
    "timeoutMs": EntryMember(_TIME, "The time of a call, in ms.", 60_000),
    "maxTimeoutMs": EntryMember(
        _TIME, "The time of a call whose progress extends its deadline, in ms.", 600_000
    ),
    "connectTimeoutMs": EntryMember(_TIME, "The time of one attempt to connect, in ms.", 60_000),
    "idleTimeoutMs": EntryMember(
        _TIME, "The time after which an unused session of one client is closed, in ms.", 600_000
    ),
    "maxConcurrent": EntryMember(_whole_number(100_000), "The most calls at one time.", 32),
    "circuitFailures": EntryMember(
        _whole_number(1_000_000), "Failures after which a tool, or the server, is not called."
    ),
    "circuitWindowMs": EntryMember(_TIME, "The age up to which a failure counts, in ms."),
    "circuitOpenMs": EntryMember(_TIME, "How long nothing is called then, in ms."),
    "isolation": EntryMember(
        choice(ISOLATIONS), "Whose calls share a session; by default it depends on the server."
    ),
    "disabled": EntryMember(_FLAG, "Whether the server is left out.", False),
    "allowedTools": EntryMember(
        _TEXTS, "Patterns with * and ? of the tools that are listed; all without it."
    ),
    "disabledTools": EntryMember(
        _TEXTS, "Patterns of the tools that are left out; they win over allowedTools."
    ),
    "alwaysAllow": EntryMember(
        _TEXTS, "Patterns of the tools that a chat host calls without asking a person."
    ),
    "trust": EntryMember(
        _FLAG, "Whether a chat host believes the annotations of the tools.", False
    ),
    "headersFrom": EntryMember(
        _HEADER_MAP, "Header of the server by header of the client's request it is taken from."
    ),
    "tools": EntryMember(
        _SHAPES, "How a gateway shapes the tools: other names, texts and arguments."
    ),
}
"""Every member that means something; others are passed over."""


def file_schema() -> dict[str, Any]:
    """Return the JSON Schema of a file of servers (MCPJSON-02)."""
    servers = {
        "type": ["object", "null"],
        "additionalProperties": {"$ref": "#/$defs/entry"},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "File of MCP servers",
        "type": "object",
        "properties": {
            "mcpServers": {"description": "As desktop clients write it.", **servers},
            "servers": {"description": "As VS Code and the chat host write it.", **servers},
        },
        "$defs": {"entry": _entry_schema()},
    }


def _entry_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: _member_schema(member) for name, member in MEMBERS.items()},
        "oneOf": [
            _way("command", "url", STDIO_TYPES, STDIO_TYPES[:1], absent=("headersFrom", "oauth")),
            _way("url", "command", HTTP_TYPES, HTTP_TRANSPORTS),
        ],
    }


def _member_schema(member: EntryMember) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": member.meaning}
    if member.default is not None:
        schema["default"] = member.default
    return {**schema, "anyOf": [member.kind.schema, {"type": "null"}]}


def _way(
    given: str,
    other: str,
    types: tuple[str, ...],
    transports: tuple[str, ...],
    absent: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the schema of entries that have the member `given`, and not the other one."""
    return {
        "required": [given],
        "properties": {
            given: {"type": "string"},
            "type": {"enum": [*types, None]},
            "transport": {"enum": [*transports, None]},
            **{name: {"type": "null"} for name in (other, *absent)},
        },
    }
