"""What is known of a peer: from the handshake, or from the request itself.

In the handshake era a session has one peer, from `initialize` on. In the stateless era every
request brings its own in `_meta`, and nothing is taken over from one request to the next (REV-04).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import define

from ..errors import JsonRpcErrorCode
from .levels import DEFAULT_LEVEL, LOGGING_LEVELS
from .revisions import REVISIONS, STATELESS_REVISIONS, VERSION_KEY, Revision

CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
INFO_KEY = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID_KEY = "io.modelcontextprotocol/subscriptionId"

SUPPORTED_REVISIONS: tuple[str, ...] = tuple(reversed([*REVISIONS]))
"""The names of all revisions that are spoken, newest first, as clients are told."""


@define(eq=False, repr=False)
class Peer:
    """Who asks.

    Attributes:
        revision: the revision it speaks.
        capabilities: what it can do, as it said.
        info: what it said of itself; nothing is decided by it.
        log_level: the least severe level of log messages that it wants to be sent; None wants
            none.
    """

    revision: Revision
    capabilities: dict[str, Any]
    info: dict[str, Any]
    log_level: str | None = DEFAULT_LEVEL

    def can(self, *path: str) -> bool:
        """Whether it declared a capability: ``peer.can("sampling", "tools")``."""
        found: Any = self.capabilities
        for name in path:
            if type(found) is not dict or found.get(name) in (None, False):
                return False
            found = found[name]
        return True


class PeerRefused(Exception):
    """A stateless request does not say properly who asks; carries the error it is answered with."""

    def __init__(self, code: JsonRpcErrorCode, message: str, data: dict[str, Any]) -> None:
        self.code = code
        self.message = message
        self.data = data


def brings_peer(params: Any) -> bool:
    """Whether a request belongs to the stateless era: its `_meta` says who asks (REV-04).

    One of the members that it has to have is enough: a request of that era that lacks the other is
    malformed, and is told so, instead of being asked for a handshake.
    """
    meta = params.get("_meta") if type(params) is dict else None
    return type(meta) is dict and (VERSION_KEY in meta or CAPABILITIES_KEY in meta)


def read_stateless_peer(params: Any) -> Peer:
    """The peer that a stateless request describes in its `_meta` (REV-04, REV-05).

    Raises:
        PeerRefused: something required is missing or malformed, or the revision is not spoken.
    """
    meta = params.get("_meta") if type(params) is dict else None
    if type(meta) is not dict:
        raise _malformed("params._meta must be an object")
    requested = meta.get(VERSION_KEY)
    if type(requested) is not str:
        raise _malformed(f"_meta must name a revision in {VERSION_KEY}")
    if requested not in STATELESS_REVISIONS:
        raise PeerRefused(
            JsonRpcErrorCode.UNSUPPORTED_PROTOCOL_VERSION,
            "Unsupported protocol version",
            unsupported_data(requested),
        )
    if type(meta.get(CAPABILITIES_KEY)) is not dict:
        raise _malformed(f"_meta must have an object in {CAPABILITIES_KEY}")
    return Peer(REVISIONS[requested], meta[CAPABILITIES_KEY], _info(meta), _log_level(meta))


def unsupported_data(requested: str) -> dict[str, Any]:
    """What is told to a client of a revision that is not spoken (REV-05)."""
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


def _malformed(what: str) -> PeerRefused:
    return PeerRefused(
        JsonRpcErrorCode.INVALID_PARAMS, f"Invalid params: {what}", {"reason": "invalid_meta"}
    )
