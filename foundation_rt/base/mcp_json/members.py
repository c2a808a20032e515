"""The members of one entry: their types, their meaning, and their JSON Schema (MCPJSON-02).

An entry is checked by this table, and the schema in spec/schemas is made of it, so the two cannot
disagree. A member that is null counts as absent. `problem` returns what is wrong with a value, and
never repeats the value: it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from attrs import frozen

STDIO_TYPES = ("stdio", "local")
HTTP_TYPES = ("http", "sse", "streamable-http", "streamableHttp", "remote")
HTTP_TRANSPORTS = HTTP_TYPES[:-1]
ISOLATIONS = ("session", "principal", "shared")

_DAY_MS = 86_400_000
_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # the name of a header (RFC 9110, 5.6.2)


class MemberKind(Protocol):
    """The type of a member."""

    def problem(self, value: Any) -> str | None:
        """Return the reason why a value cannot be used, to follow the member's name; else None."""
        ...

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the values that can be used."""
        ...


@frozen
class TextKind:
    """A string that is not empty."""

    def problem(self, value: Any) -> str | None:
        """See `MemberKind`."""
        return None if isinstance(value, str) and value else "should be a string"

    def schema(self) -> dict[str, Any]:
        """See `MemberKind`."""
        return {"type": "string", "minLength": 1}


@frozen
class ChoiceKind:
    """One of a few words."""

    words: tuple[str, ...]

    def problem(self, value: Any) -> str | None:
        """See `MemberKind`."""
        if isinstance(value, str) and value in self.words:
            return None
        return f"should be {' or '.join(self.words)}"

    def schema(self) -> dict[str, Any]:
        """See `MemberKind`."""
        return {"enum": list(self.words)}


@frozen
class FlagKind:
    """True or false."""

    def problem(self, value: Any) -> str | None:
        """See `MemberKind`."""
        return None if isinstance(value, bool) else "should be true or false"

    def schema(self) -> dict[str, Any]:
        """See `MemberKind`."""
        return {"type": "boolean"}


@frozen
class WholeNumberKind:
    """A whole number from 1 on."""

    maximum: int

    def problem(self, value: Any) -> str | None:
        """See `MemberKind`."""
        # As in JSON Schema, where 5.0 is an integer.
        is_whole = type(value) is int or (type(value) is float and value.is_integer())
        if is_whole and 1 <= value <= self.maximum:
            return None
        return f"should be a whole number from 1 to {self.maximum}"

    def schema(self) -> dict[str, Any]:
        """See `MemberKind`."""
        return {"type": "integer", "minimum": 1, "maximum": self.maximum}


@frozen
class TextListKind:
    """A list of strings."""

    def problem(self, value: Any) -> str | None:
        """See `MemberKind`."""
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return None
        return "should be a list of strings"

    def schema(self) -> dict[str, Any]:
        """See `MemberKind`."""
        return {"type": "array", "items": {"type": "string"}}


@frozen
class TextMapKind:
    """An object of strings."""

    def problem(self, value: Any) -> str | None:
        """See `MemberKind`."""
        if not isinstance(value, dict):
            return "should be an object of strings"
        for key, each in value.items():
            if not isinstance(each, str):
                hint = "" if each is None or isinstance(each, list | dict) else ": put it in quotes"
                problem = f"the value of {key!r} should be a string{hint}"
                return f"should be an object of strings: {problem}"
        return None

    def schema(self) -> dict[str, Any]:
        """See `MemberKind`."""
        return {"type": "object", "additionalProperties": {"type": "string"}}


@frozen
class HeaderMapKind:
    """An object of names of headers, by names of headers."""

    def problem(self, value: Any) -> str | None:
        """See `MemberKind`."""
        if isinstance(value, dict) and all(
            isinstance(name, str) and re.fullmatch(_TOKEN, name) for name in _both(value)
        ):
            return None
        return "should be an object of names of headers, by names of headers"

    def schema(self) -> dict[str, Any]:
        """See `MemberKind`."""
        name = {"type": "string", "pattern": f"^{_TOKEN}$"}
        return {"type": "object", "propertyNames": name, "additionalProperties": name}


@frozen
class OAuthKind:
    """An object that says how its client is known to an authorization server."""

    def problem(self, value: Any) -> str | None:
        """See `MemberKind`."""
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

    def schema(self) -> dict[str, Any]:
        """See `MemberKind`."""
        return {
            "type": "object",
            "properties": {name: kind.schema() for name, kind in OAUTH_MEMBERS.items()},
            "dependentRequired": {"clientId": ["issuer"], "clientSecret": ["clientId"]},
        }


@frozen
class ToolShapesKind:
    """An object that says how tools are shaped, read by `Transform`; a list means nothing here."""

    def problem(self, value: Any) -> str | None:
        """See `MemberKind`."""
        is_one = isinstance(value, dict | list)
        return None if is_one else "should be an object, by name of tool"

    def schema(self) -> dict[str, Any]:
        """See `MemberKind`."""
        return {"anyOf": [{"type": "array"}, SHAPES_SCHEMA]}


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


_TIME = WholeNumberKind(_DAY_MS)

OAUTH_MEMBERS: Mapping[str, MemberKind] = {
    "clientId": TextKind(),
    "clientSecret": TextKind(),
    "issuer": TextKind(),
    "scopes": TextListKind(),
    "callbackPort": WholeNumberKind(65_535),
    "shared": FlagKind(),
}
"""The members of `oauth`; others are passed over."""

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

MEMBERS: Mapping[str, EntryMember] = {
    "id": EntryMember(TextKind(), "The name of the server once more; equal to its key."),
    "type": EntryMember(
        ChoiceKind(STDIO_TYPES + HTTP_TYPES), "stdio or local for a command, else for a URL."
    ),
    "transport": EntryMember(
        ChoiceKind((STDIO_TYPES[0], *HTTP_TRANSPORTS)), "As type, without local and remote."
    ),
    "command": EntryMember(TextKind(), "The program of the server, by its path or its name."),
    "args": EntryMember(TextListKind(), "The arguments of the program; no shell reads them."),
    "env": EntryMember(TextMapKind(), "Variables of the environment of the program."),
    "cwd": EntryMember(TextKind(), "The working directory of the program."),
    "url": EntryMember(TextKind(), "The MCP endpoint of the server."),
    "headers": EntryMember(TextMapKind(), "Sent to the server with every request."),
    "oauth": EntryMember(
        OAuthKind(), "A person logs in to the server, with foundation-rt login NAME."
    ),
    "timeoutMs": EntryMember(_TIME, "The time of a call, in ms.", 60_000),
    "maxTimeoutMs": EntryMember(
        _TIME, "The time of a call whose progress extends its deadline, in ms.", 600_000
    ),
    "connectTimeoutMs": EntryMember(_TIME, "The time of one attempt to connect, in ms.", 60_000),
    "idleTimeoutMs": EntryMember(
        _TIME, "The time after which an unused session of one client is closed, in ms.", 600_000
    ),
    "maxConcurrent": EntryMember(WholeNumberKind(100_000), "The most calls at one time.", 32),
    "circuitFailures": EntryMember(
        WholeNumberKind(1_000_000), "Failures after which a tool, or the server, is not called."
    ),
    "circuitWindowMs": EntryMember(_TIME, "The age up to which a failure counts, in ms."),
    "circuitOpenMs": EntryMember(_TIME, "How long nothing is called then, in ms."),
    "isolation": EntryMember(
        ChoiceKind(ISOLATIONS), "Whose calls share a session; by default it depends on the server."
    ),
    "disabled": EntryMember(FlagKind(), "Whether the server is left out.", False),
    "allowedTools": EntryMember(
        TextListKind(), "Patterns with * and ? of the tools that are listed; all without it."
    ),
    "disabledTools": EntryMember(
        TextListKind(), "Patterns of the tools that are left out; they win over allowedTools."
    ),
    "alwaysAllow": EntryMember(
        TextListKind(), "Patterns of the tools that a chat host calls without asking a person."
    ),
    "trust": EntryMember(
        FlagKind(), "Whether a chat host believes the annotations of the tools.", False
    ),
    "headersFrom": EntryMember(
        HeaderMapKind(), "Header of the server by header of the client's request it is taken from."
    ),
    "tools": EntryMember(
        ToolShapesKind(), "How a gateway shapes the tools: other names, texts and arguments."
    ),
}
"""Every member that means something; others are passed over."""


def _both(value: Mapping[Any, Any]) -> tuple[Any, ...]:
    return (*value.keys(), *value.values())


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
    return {**schema, "anyOf": [member.kind.schema(), {"type": "null"}]}


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
