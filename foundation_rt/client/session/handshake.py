"""Decide how client and server agree on a revision. Pure.

The older revisions have a handshake, the stateless ones have none, and a server does not say which
it speaks. So the first request is `server/discover`; a server that does not know it gets
`initialize`. A `HandshakeRequest` is the next request to send, a `ServerDescription` the result
(MCP 2026-07-28, "Versioning and Compatibility"; GEO-1.5a-002).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from attrs import define, field, frozen

from ...base.shown import Shown
from ...errors import JsonRpcErrorCode
from ...protocol.methods import INITIALIZE, SERVER_DISCOVER
from ...protocol.peer import CAPABILITIES_KEY, INFO_KEY, SERVER_INFO_KEY, SUPPORTED_REVISIONS
from ...protocol.revisions import (
    HANDSHAKE_REVISIONS,
    NEWEST_HANDSHAKE_REVISION,
    REVISIONS,
    STATELESS_REVISIONS,
    VERSION_KEY,
    Revision,
)
from ..errors import ConnectionLostError, InvalidResponseError, MCPError, NotOfferedError
from ..safe_text import readable


@frozen(eq=False)
class ServerDescription:
    """A server, as its handshake describes it.

    Attributes:
        revision: of the session.
        capabilities: as it declared them.
        implementation: its `serverInfo`, as it came.
        instructions: advice on its use, for language models.
    """

    revision: Revision
    capabilities: Mapping[str, Any]
    implementation: Mapping[str, Any]
    instructions: str | None = None

    @property
    def name(self) -> str:
        """Its name; empty if it gave none."""
        return _text(self.implementation.get("name"))

    @property
    def version(self) -> str:
        """Its version; empty if it gave none."""
        return _text(self.implementation.get("version"))

    def can(self, *path: str) -> bool:
        """Return whether it declared a capability: ``server.can("resources", "subscribe")``."""
        found: Any = self.capabilities
        for name in path:
            if not isinstance(found, Mapping) or found.get(name) in (None, False):
                return False
            found = found[name]
        return True

    def check(self, required: Collection[str]) -> None:
        """Raise unless the server has the required capabilities (CLIENT-06).

        Args:
            required: paths of capabilities, as in `tools` or `resources.subscribe`.

        Raises:
            NotOfferedError: E205, for the first one that is missing.
        """
        for capability in sorted(required):
            if not self.can(*capability.split(".")):
                raise NotOfferedError(capability)

    def check_any(self) -> None:
        """Raise unless the server has tools, resources or prompts (CLIENT-06).

        Raises:
            NotOfferedError: E205, for `tools`: it has none of them.
        """
        if not any(map(self.can, ("tools", "resources", "prompts"))):
            raise NotOfferedError("tools")


def _text(said: Any) -> str:
    return said if isinstance(said, str) else ""


NEWEST_REVISION = STATELESS_REVISIONS[-1]

_UNSUPPORTED = int(JsonRpcErrorCode.UNSUPPORTED_PROTOCOL_VERSION)
_MODERN_CODES = {
    int(JsonRpcErrorCode.HEADER_MISMATCH),
    int(JsonRpcErrorCode.MISSING_CLIENT_CAPABILITY),
}
_INTERNAL = int(JsonRpcErrorCode.INTERNAL_ERROR)
_NO_ACCESS = {"E207", "E208"}
# How often a server may name its revisions instead of describing itself.
_MAX_PROPOSALS = 3
_MAX_NAMED = 10


@define(eq=False, repr=False)
class HandshakeRequest(Shown):
    """The next request of the handshake.

    Attributes:
        revision: the one it proposes.
    """

    method: str
    params: dict[str, Any]
    revision: Revision


@define(eq=False, repr=False)
class Handshake:
    """The handshake with one server.

    Args:
        info: the client's name and version, as the wire has them.
        capabilities: returns the capabilities of the client in a revision.
        forced: the only revision that may be spoken; None allows any that both sides speak.
        known: the revision of an earlier session; the server is not probed again.
        extensions: that the client declares (EXT-11).
    """

    info: Mapping[str, Any]
    capabilities: Callable[[Revision], Mapping[str, Any]]
    forced: Revision | None = None
    known: Revision | None = None
    extensions: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    _is_understood: bool = field(default=False, init=False)
    _proposals: int = field(default=0, init=False)

    def first(self) -> HandshakeRequest:
        """Return the first request (CLIENT-01, CLIENT-02)."""
        revision = self.forced or self.known or REVISIONS[NEWEST_REVISION]
        return self._discover(revision) if revision.is_stateless else self.initialize(revision)

    def initialize(self, revision: Revision | None = None) -> HandshakeRequest:
        """Return the request of the handshake mode; by default with its newest revision."""
        revision = revision or REVISIONS[NEWEST_HANDSHAKE_REVISION]
        params = {
            "protocolVersion": revision.name,
            "capabilities": self.declared(revision, self.capabilities(revision)),
            "clientInfo": revision.keep("implementation", self.info),
        }
        return HandshakeRequest(INITIALIZE, params, revision)

    def meta(self, revision: Revision) -> dict[str, Any]:
        """Return the `_meta` of every request of the stateless mode (CLIENT-03)."""
        return {
            VERSION_KEY: revision.name,
            INFO_KEY: revision.keep("implementation", self.info),
            CAPABILITIES_KEY: self.declared(revision, self.capabilities(revision)),
        }

    def declared(self, revision: Revision, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the capabilities `given`, with the extensions of the client (EXT-11)."""
        if not self.extensions:
            return given
        return {**given, "extensions": {**self.extensions, **given.get("extensions", {})}}

    @property
    def may_fall_back(self) -> bool:
        """Return whether a server that does not answer the first request gets `initialize`."""
        return self.forced is None

    @property
    def may_have_ended_it(self) -> bool:
        """Return whether a server may have ended because of the first request."""
        return not self._is_understood and self.forced is None and self.known is None

    def answered(
        self, opening: HandshakeRequest, result: Mapping[str, Any]
    ) -> ServerDescription | HandshakeRequest:
        """Handle the result of `opening`; return the description, or the next request.

        Raises:
            MCPError: the result cannot be read (E209), or there is no common revision (E206).
        """
        self._is_understood = True
        if opening.method == INITIALIZE:
            return self._initialized(result)
        return self._discovered(opening, result)

    def refused(self, opening: HandshakeRequest, error: MCPError) -> HandshakeRequest:
        """Handle the refusal of `opening`; return the next request (CLIENT-02).

        Raises:
            MCPError: there is no other request to try.
        """
        is_discovery = opening.method == SERVER_DISCOVER
        supported = _names(error.data, "supported")
        if error.original_code == _UNSUPPORTED or (supported and not is_discovery):
            return self._choose_revision(supported, error)
        if error.original_code in _MODERN_CODES or error.code in _NO_ACCESS:
            raise error
        if isinstance(error, ConnectionLostError) or not is_discovery:
            raise error
        if self.may_fall_back:
            return self.initialize()
        raise self._unsupported_error(error)

    def _discover(self, revision: Revision) -> HandshakeRequest:
        return HandshakeRequest(SERVER_DISCOVER, {"_meta": self.meta(revision)}, revision)

    def _discovered(
        self, opening: HandshakeRequest, result: Mapping[str, Any]
    ) -> ServerDescription | HandshakeRequest:
        supported = _names(result, "supportedVersions")
        if not supported:
            # Older servers answer an unknown method with any result.
            return self.refused(opening, InvalidResponseError("the server names no revision"))
        if opening.revision.name not in supported:
            return self._choose_revision(
                supported, no_common_revision(supported, self._supported())
            )
        meta = result.get("_meta")
        said = meta.get(SERVER_INFO_KEY) if isinstance(meta, Mapping) else None
        return _initialized(opening.revision, result, said or result.get("serverInfo"))

    def _choose_revision(self, supported: list[str], error: MCPError) -> HandshakeRequest:
        """Propose the newest common revision, a bounded number of times."""
        self._is_understood = True
        self._proposals += 1
        common = [name for name in self._supported() if name in supported]
        if not common:
            raise no_common_revision(supported, self._supported())
        if self._proposals > _MAX_PROPOSALS:
            raise error
        revision = REVISIONS[common[0]]
        return self._discover(revision) if revision.is_stateless else self.initialize(revision)

    def _unsupported_error(self, error: MCPError) -> MCPError:
        """Return E206 if the server did not know the method, as older servers do not."""
        if error.original_code in (None, _INTERNAL):
            return error
        return MCPError(
            "E206",
            f"the server does not speak {self._supported()[0]}, and no other is to be spoken: "
            f"{error.message}",
            suggested_action="Let the client find the revision, or update the server.",
            original_code=error.original_code,
            data=error.data,
            wire=error.wire,
        )

    def _supported(self) -> list[str]:
        """Return the revisions that may be spoken, newest first."""
        return [name for name in SUPPORTED_REVISIONS if self.forced in (None, REVISIONS[name])]

    def _initialized(self, result: Mapping[str, Any]) -> ServerDescription:
        name = result.get("protocolVersion")
        if type(name) is not str:
            raise InvalidResponseError("the response to initialize names no protocolVersion")
        if name not in HANDSHAKE_REVISIONS:
            raise no_common_revision([name], [*reversed(HANDSHAKE_REVISIONS)])
        return _initialized(REVISIONS[name], result, result.get("serverInfo"))


def no_common_revision(theirs: list[str], ours: list[str]) -> MCPError:
    """Return E206: there is no common revision."""
    named = ", ".join(map(readable, theirs[:_MAX_NAMED]))
    return MCPError(
        "E206",
        f"the server speaks {named or 'nothing it names'}; this client speaks {', '.join(ours)}",
        data={"supported": theirs},
    )


def _initialized(revision: Revision, result: Mapping[str, Any], said: Any) -> ServerDescription:
    capabilities = result.get("capabilities")
    if not isinstance(capabilities, Mapping):
        raise InvalidResponseError("the server's introduction has no capabilities")
    instructions = result.get("instructions")
    return ServerDescription(
        revision,
        capabilities,
        said if isinstance(said, Mapping) else {},
        instructions if isinstance(instructions, str) else None,
    )


def _names(data: Any, member: str) -> list[str]:
    """Return the revisions that a list names; other values are left out."""
    listed = data.get(member) if isinstance(data, Mapping) else None
    return [name for name in listed if type(name) is str] if isinstance(listed, list) else []
