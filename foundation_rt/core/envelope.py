"""What stands around every result, as the peer's revision has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..protocol.jsonrpc import encode
from ..protocol.peer import SERVER_INFO_KEY
from .effects import Reply

if TYPE_CHECKING:
    from ..protocol.content import Icon
    from ..protocol.jsonrpc import Request, RequestId
    from ..protocol.peer import Peer
    from ..protocol.revisions import Revision


@define(eq=False, repr=False)
class ServerInfo:
    """What a server says of itself.

    Attributes:
        instructions: advice for the model that uses the server; left out when None.
        title: for people; likewise `icons`.
        website_url: where people read about the server.
    """

    name: str
    version: str
    instructions: str | None = None
    title: str | None = None
    website_url: str | None = None
    icons: Sequence[Icon] = ()

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """The server as an `Implementation` of `revision`."""
        wire: dict[str, Any] = {"name": self.name, "version": self.version}
        if self.title is not None:
            wire["title"] = self.title
        if self.website_url is not None:
            wire["websiteUrl"] = self.website_url
        if self.icons:
            wire["icons"] = [icon.to_wire() for icon in self.icons]
        return revision.keep("implementation", wire)


@define(eq=False, repr=False)
class Envelope:
    """Completes results; in the stateless era each says its type and its server (REV-06).

    Args:
        cache_ttl_ms: how long a client may take a list for fresh, in ms (REV-07).
        cache_scope: whether what one client was told may be told another: `public` or `private`.
    """

    info: ServerInfo
    cache_ttl_ms: int = 0
    cache_scope: str = "private"
    _server_info: dict[str, dict[str, Any]] = field(factory=dict, init=False)

    def complete(self, peer: Peer, result: dict[str, Any]) -> dict[str, Any]:
        """`result` as the final one of a request."""
        if not peer.revision.is_stateless:
            return result
        return self.typed(peer, "complete", result)

    def typed(self, peer: Peer, result_type: str, result: dict[str, Any]) -> dict[str, Any]:
        """`result` of another type than `complete`, for a peer of the stateless era."""
        meta = {**result.get("_meta", {}), SERVER_INFO_KEY: self.server_info(peer.revision)}
        return {"resultType": result_type, **result, "_meta": meta}

    def cache_hints(self, peer: Peer, ttl_ms: int | None = None) -> dict[str, Any]:
        """The members that say how long a result may be kept (REV-07).

        Args:
            ttl_ms: by default what is set for all, in ms.
        """
        if not peer.revision.is_stateless:
            return {}
        return {
            "ttlMs": self.cache_ttl_ms if ttl_ms is None else ttl_ms,
            "cacheScope": self.cache_scope,
        }

    def server_info(self, revision: Revision) -> dict[str, Any]:
        """The server as an `Implementation` of `revision`; made once for each."""
        wire = self._server_info.get(revision.name)
        if wire is None:
            wire = self._server_info[revision.name] = self.info.to_wire(revision)
        return wire

    def reply(self, peer: Peer, request: Request, result: dict[str, Any]) -> Reply:
        """The reply that carries `result` as the final one."""
        return result_reply(request.id, self.complete(peer, result))


def result_reply(request_id: RequestId, result: Any) -> Reply:
    """The reply that carries `result` as it is."""
    return Reply(encode({"jsonrpc": "2.0", "id": request_id, "result": result}), request_id)
