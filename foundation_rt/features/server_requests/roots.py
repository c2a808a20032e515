"""`roots/list`: the directories and files that the client works with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from ...protocol.methods import ROOTS_LIST
from .errors import ClientCapabilityError
from .requests import PreparedRequest

if TYPE_CHECKING:
    from ...protocol.peer import Peer
    from .forms import Forms


@frozen
class Root:
    """A directory or file that the client works with.

    Attributes:
        uri: usually ``file://...``; it comes from the client and grants no permission.
    """

    uri: str
    name: str | None = None


@frozen
class Roots:
    """A request for the client's roots; its value is a tuple of `Root`."""

    def prepare(self, peer: Peer, forms: Forms, name: str) -> PreparedRequest:
        """Return the request for `peer`; raise `ClientCapabilityError` if it has no roots."""
        from .answers import read_roots

        require(peer)
        return PreparedRequest(ROOTS_LIST, {}, read_roots)


def require(peer: Peer) -> None:
    """Raise `ClientCapabilityError` unless the client has roots (ASK-04)."""
    if ROOTS_LIST not in peer.revision.client_requests or not peer.can("roots"):
        raise ClientCapabilityError({"roots": {}})
