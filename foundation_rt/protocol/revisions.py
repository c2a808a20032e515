"""The supported revisions of the MCP specification, and all differences between them.

A revision is a row of `REVISIONS`; a difference is a column. Code that differs between revisions
reads the row, so nothing else in the runtime knows a revision by name (REV-01).

There are two protocol modes (REV-02). In the handshake mode of the older revisions a connection
begins with `initialize`, and a session follows. In the stateless mode, from 2026-07-28 on, every
request describes its sender, and nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from attrs import define

from .methods import methods_of

RESOURCE_NOT_FOUND = -32002
"""MCP's error code for a resource that does not exist, in the handshake mode."""

_INVALID_PARAMS = -32602

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
"""The member of `_meta` with which a stateless request names its revision."""


class ProtocolMode(Enum):
    """The way in which a peer describes itself and its capabilities."""

    HANDSHAKE = "handshake"
    STATELESS = "stateless"


@define(eq=False, repr=False)
class Revision:
    """One revision of the specification.

    Attributes:
        name: its date, as on the wire.
        mode: its protocol mode.
        requests: the methods that a client may call.
        batches: whether an array may hold several messages.
        content_kinds: the `type` values of content blocks.
        members: by shape, the members of this revision that some other revisions lack.
        client_requests: the methods that a server may call on its client.
        elicitation_modes: the ways to ask a user.
        names_elicitations: whether an elicitation by URL has an id, by which its end is notified,
            and may be demanded by an error of its own.
        resource_not_found: the error code for a resource that does not exist.
        primes_streams: whether an HTTP stream begins with an event without data, for resuming.
        any_structured_content: whether `structuredContent` may be any JSON value, not only an
            object.
        is_stateless: whether its mode is the stateless one.
    """

    name: str
    mode: ProtocolMode
    requests: frozenset[str]
    batches: bool
    content_kinds: frozenset[str]
    members: Mapping[str, frozenset[str]]
    client_requests: frozenset[str]
    elicitation_modes: frozenset[str]
    names_elicitations: bool
    resource_not_found: int
    primes_streams: bool
    any_structured_content: bool
    is_stateless: bool

    def __repr__(self) -> str:
        return f"Revision({self.name!r})"

    def has(self, shape: str, member: str) -> bool:
        """Return whether `shape` has `member`, which some revisions lack."""
        return member in self.members[shape]

    def keep(self, shape: str, wire: Mapping[str, Any]) -> dict[str, Any]:
        """Return `wire` without the members that `shape` lacks in this revision (REV-03)."""
        unknown = VARYING_MEMBERS[shape] - self.members[shape]
        return {name: value for name, value in wire.items() if name not in unknown}

    def write(self, shape: str, **members: Any) -> dict[str, Any]:
        """Return the members that are not None, and that `shape` has in this revision (REV-03)."""
        present = {name: value for name, value in members.items() if value is not None}
        return self.keep(shape, present)


# The shapes whose members have changed, with the revision that has added each member.
_MEMBERS_SINCE: dict[str, dict[str, set[str]]] = {
    "2024-11-05": {
        "tool": set(),
        "tool_result": set(),
        "resource": set(),
        "prompt": set(),
        "prompt_argument": set(),
        "implementation": set(),
        "annotations": set(),
        "content": set(),
        "contents": set(),
        "progress": set(),
        "completion": set(),
        "capabilities": set(),
        "form": set(),
        "form_field": set(),
        "sampling": set(),
        "sampling_message": set(),
    },
    "2025-03-26": {
        "tool": {"annotations"},
        "progress": {"message"},
        "capabilities": {"completions"},
    },
    "2025-06-18": {
        "tool": {"_meta", "outputSchema", "title"},
        "tool_result": {"structuredContent"},
        "resource": {"_meta", "title"},
        "prompt": {"_meta", "title"},
        "prompt_argument": {"title"},
        "implementation": {"title"},
        "annotations": {"lastModified"},
        "content": {"_meta"},
        "contents": {"_meta"},
        "completion": {"context"},
    },
    "2025-11-25": {
        "tool": {"icons"},
        "resource": {"icons"},
        "prompt": {"icons"},
        "implementation": {"description", "icons", "websiteUrl"},
        "form": {"$schema"},
        "form_field": {"default", "items", "oneOf"},
        "sampling": {"toolChoice", "tools"},
        "sampling_message": {"_meta"},
    },
    "2026-07-28": {
        "capabilities": {"extensions"},
    },
}

_MEMBERS: dict[str, Mapping[str, frozenset[str]]] = {}
"""The members of each shape that has changed, by revision."""

VARYING_MEMBERS: Mapping[str, frozenset[str]] = {}
"""The members that some revisions lack, by shape."""

for _date, _added in _MEMBERS_SINCE.items():
    _more = {shape: VARYING_MEMBERS.get(shape, frozenset()) | new for shape, new in _added.items()}
    VARYING_MEMBERS = _MEMBERS[_date] = {**VARYING_MEMBERS, **_more}

_CONTENT_SINCE = {
    "2024-11-05": {"text", "image", "resource"},
    "2025-03-26": {"audio"},
    "2025-06-18": {"resource_link"},
}
_ELICITATION_SINCE = {"2025-06-18": {"form"}, "2025-11-25": {"url"}}


def _gather(since: Mapping[str, set[str]], name: str) -> frozenset[str]:
    """Return everything added up to the revision `name`; the names of revisions sort by date."""
    return frozenset[str]().union(*(each for date, each in since.items() if date <= name))


def _revision(name: str, mode: ProtocolMode) -> Revision:
    stateless = mode is ProtocolMode.STATELESS
    return Revision(
        name,
        mode,
        requests=methods_of(mode.value, name),
        batches=name == "2025-03-26",
        content_kinds=_gather(_CONTENT_SINCE, name),
        members=_MEMBERS[name],
        client_requests=methods_of(mode.value, name, of_server=True),
        elicitation_modes=_gather(_ELICITATION_SINCE, name),
        names_elicitations=name == "2025-11-25",
        resource_not_found=_INVALID_PARAMS if stateless else RESOURCE_NOT_FOUND,
        primes_streams=name == "2025-11-25",
        any_structured_content=stateless,
        is_stateless=stateless,
    )


HANDSHAKE_REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions that a client can negotiate by `initialize`, the oldest first (LIFE-04)."""

STATELESS_REVISIONS = ("2026-07-28",)
"""The revisions that a stateless request can name, the oldest first (REV-05)."""

NEWEST_HANDSHAKE_REVISION = HANDSHAKE_REVISIONS[-1]

REVISIONS: Mapping[str, Revision] = {
    **{name: _revision(name, ProtocolMode.HANDSHAKE) for name in HANDSHAKE_REVISIONS},
    **{name: _revision(name, ProtocolMode.STATELESS) for name in STATELESS_REVISIONS},
}
"""All supported revisions by name, the oldest first."""


def negotiate(requested: str) -> Revision:
    """Return the revision to answer `initialize` with: the requested or the newest (LIFE-04)."""
    known = requested if requested in HANDSHAKE_REVISIONS else NEWEST_HANDSHAKE_REVISION
    return REVISIONS[known]
