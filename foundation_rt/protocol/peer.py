"""The description of a peer: from the handshake, or from the request itself.

In the handshake mode a session has one peer, from `initialize` on. In the stateless mode every
request describes its peer in `_meta`, and nothing is kept for the next request (REV-04).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field

from ..base.exact_json import dumps
from ..base.shown import Shown
from ..errors import JsonRpcError, JsonRpcErrorCode
from .revisions import REVISIONS, STATELESS_REVISIONS, VERSION_KEY, Revision

LOGGING_LEVELS = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
"""The levels of log messages to clients, those of RFC 5424, the least severe first."""

DEFAULT_LEVEL = "info"
"""The least level that a client of the handshake mode gets, unless it sets another one."""

CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
INFO_KEY = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID_KEY = "io.modelcontextprotocol/subscriptionId"

CORRELATION_KEY = "correlationId"
"""The member of `_meta` with which a client names a chain of requests."""

SUPPORTED_REVISIONS: tuple[str, ...] = tuple(reversed([*REVISIONS]))
"""The names of all supported revisions, the newest first, as clients get them."""

MAX_DESCRIPTION_BYTES = 16 * 1024
"""The most bytes (JSON) of a client's `capabilities`, and of its `clientInfo` (REV-10)."""

MAX_NAME_LENGTH = 256
"""The most characters kept of a client's name, its version, and an extension's name (REV-11)."""

MAX_EXTENSIONS = 16
"""The most extensions, and experimental capabilities, that are kept of a client (REV-11)."""

Capability = tuple[str, ...]
"""A path in the object of capabilities: `("sampling", "tools")`."""

_KNOWN: dict[str, tuple[str, ...]] = {
    "elicitation": ("form", "url"),
    "roots": ("listChanged",),
    "sampling": ("context", "tools"),
    "tasks": (),
}
"""The capabilities of all revisions, with those of their parts that the runtime uses."""

_NAMED_BY_CLIENTS = ("experimental", "extensions")


@define(eq=False, repr=False)
class Peer(Shown):
    """The client of a request, as it describes itself.

    Args:
        declared: its capabilities as it sent them.

    Attributes:
        revision: the revision of the request or the session.
        name: the client's name, if it has sent one; nothing depends on it.
        version: the client's version, if it has sent one.
        log_level: the least severe level of log messages that it wants; None for none.
    """

    revision: Revision
    name: str | None = None
    version: str | None = None
    log_level: str | None = DEFAULT_LEVEL
    _declared: Mapping[str, Any] = field(factory=dict)
    _capabilities: frozenset[Capability] | None = field(default=None, init=False)

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return the capabilities that a revision defines, and names of extensions (REV-11).

        They are parsed on first use: 5 us that most requests do not need.
        """
        declared = self._declared  # before the next line: two threads may get here at once
        if self._capabilities is None:
            self._capabilities = _known(declared)
            self._declared = {}
        return self._capabilities

    @property
    def extensions(self) -> frozenset[str]:
        """Return the names of the extensions that it declared (SEP-2133, REV-11)."""
        found = (path for path in self.capabilities if path[0] == "extensions")
        return frozenset(path[1] for path in found if len(path) > 1)

    def retain(self) -> Peer:
        """Return this peer for use after its request, without the objects it sent (REV-11)."""
        self.capabilities  # noqa: B018 - parses them, and drops the original
        return self

    def can(self, *path: str) -> bool:
        """Return whether the peer declared a capability: ``peer.can("sampling", "tools")``."""
        return path in self.capabilities


def brings_peer(params: Any) -> bool:
    """Return whether a request describes its peer, and so is of the stateless mode (REV-04).

    One of the two required members is enough: without the other the request is malformed, and its
    error says so instead of demanding a handshake.
    """
    meta = params.get("_meta") if type(params) is dict else None
    return type(meta) is dict and (VERSION_KEY in meta or CAPABILITIES_KEY in meta)


def read_stateless_peer(params: Any) -> Peer:
    """Return the peer that a stateless request describes in its `_meta` (REV-04, REV-05).

    Raises:
        JsonRpcError: a member is missing or malformed, or the revision is not supported.
    """
    meta = params.get("_meta") if type(params) is dict else None
    if type(meta) is not dict:
        raise _malformed("params._meta must be an object")
    requested = meta.get(VERSION_KEY)
    if type(requested) is not str:
        raise _malformed(f"_meta must name a revision in {VERSION_KEY}")
    if requested not in STATELESS_REVISIONS:
        raise JsonRpcError(
            JsonRpcErrorCode.UNSUPPORTED_PROTOCOL_VERSION,
            "Unsupported protocol version",
            unsupported_data(requested),
        )
    if type(meta.get(CAPABILITIES_KEY)) is not dict:
        raise _malformed(f"_meta must have an object in {CAPABILITIES_KEY}")
    try:
        return describe_peer(
            REVISIONS[requested], meta[CAPABILITIES_KEY], _info(meta), _log_level(meta)
        )
    except DescriptionTooLarge as refused:
        raise _malformed(str(refused)) from None


class DescriptionTooLarge(ValueError):
    """A client's description of itself is too large; the message says what to change (REV-10)."""


def describe_peer(
    revision: Revision,
    capabilities: Mapping[str, Any],
    info: Mapping[str, Any],
    log_level: str | None = DEFAULT_LEVEL,
) -> Peer:
    """Return the peer that these wire objects describe.

    Args:
        revision: the revision of the request or the session.
        capabilities: `ClientCapabilities`.
        info: `clientInfo`, an `Implementation`.
        log_level: the least severe level of log messages that it wants; None for none.

    Raises:
        DescriptionTooLarge: one of them is larger than `MAX_DESCRIPTION_BYTES` (REV-10).
    """
    if _size((capabilities, info)) > MAX_DESCRIPTION_BYTES:  # each may still be small enough
        for name, value in (("capabilities", capabilities), ("clientInfo", info)):
            if _size(value) > MAX_DESCRIPTION_BYTES:
                raise DescriptionTooLarge(
                    f"{name} must have at most {MAX_DESCRIPTION_BYTES} bytes as JSON:"
                    " leave out what the server does not need"
                )
    return Peer(revision, _text(info, "name"), _text(info, "version"), log_level, capabilities)


def _size(value: Any) -> float:
    try:
        return len(dumps(value))
    except TypeError:  # nested more deeply than orjson writes
        return math.inf


def _known(capabilities: Mapping[str, Any]) -> frozenset[Capability]:
    """Return the paths of `capabilities` that are kept (REV-11)."""
    found: list[Capability] = []
    for name, value in capabilities.items():
        parts: Iterable[str] | None = _KNOWN.get(name)
        if name in _NAMED_BY_CLIENTS:
            parts = _extensions(value)
        if parts is None or not _is_declared(value):
            continue
        found.append((name,))
        if type(value) is dict:
            found += [(name, part) for part in parts if _is_declared(value.get(part))]
    return frozenset(found)


def _extensions(value: Any) -> list[str]:
    """Return the names of extensions that are kept: the first ones of a bounded length."""
    named = value.items() if type(value) is dict else ()
    kept = [name for name, each in named if _is_declared(each) and len(name) <= MAX_NAME_LENGTH]
    return kept[:MAX_EXTENSIONS]


def _is_declared(value: Any) -> bool:
    return value is not None and value is not False


def _text(info: Mapping[str, Any], member: str) -> str | None:
    value = info.get(member)
    return value[:MAX_NAME_LENGTH] if type(value) is str else None


def unsupported_data(requested: str) -> dict[str, Any]:
    """Return the error data for a client of an unsupported revision (REV-05)."""
    return {"supported": [*SUPPORTED_REVISIONS], "requested": requested}


def _info(meta: Mapping[str, Any]) -> dict[str, Any]:
    info = meta.get(INFO_KEY, {})
    if type(info) is not dict:
        raise _malformed(f"{INFO_KEY} in _meta must be an object")
    return info


def _log_level(meta: Mapping[str, Any]) -> str | None:
    level = meta.get(LOG_LEVEL_KEY)
    if level is not None and level not in LOGGING_LEVELS:
        raise _malformed(f"{LOG_LEVEL_KEY} in _meta must be one of {', '.join(LOGGING_LEVELS)}")
    return level


def _malformed(problem: str) -> JsonRpcError:
    return JsonRpcError(
        JsonRpcErrorCode.INVALID_PARAMS, f"Invalid params: {problem}", {"reason": "invalid_meta"}
    )


def is_wanted(level: str, least: str | None) -> bool:
    """Return whether a peer that wants `least` and above gets `level`; None wants nothing."""
    return least is not None and LOGGING_LEVELS.index(level) >= LOGGING_LEVELS.index(least)
