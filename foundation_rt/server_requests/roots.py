"""Asking the client which directories and files it considers relevant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from .errors import ClientCapabilityError, InvalidClientResult
from .requests import PreparedRequest

if TYPE_CHECKING:
    from ..protocol.peer import Peer
    from .forms import Forms

METHOD = "roots/list"


@frozen
class Root:
    """A place the client works in.

    Attributes:
        uri: usually ``file://...``; whatever the client says, it permits nothing by itself.
    """

    uri: str
    name: str | None = None


@frozen
class Roots:
    """Asks for the client's roots; the answer is a tuple of `Root`."""

    def prepare(self, peer: Peer, forms: Forms, name: str) -> PreparedRequest:
        """The question for `peer`; raises `ClientCapabilityError`."""
        if METHOD not in peer.revision.client_requests or not peer.can("roots"):
            raise ClientCapabilityError({"roots": {}})
        return PreparedRequest(METHOD, {}, _read)


def _read(answer: Any) -> tuple[Root, ...]:
    roots = answer.get("roots") if type(answer) is dict else None
    if type(roots) is not list:
        raise InvalidClientResult(("/roots", "is not an array"))
    return tuple(_read_root(root, f"/roots/{index}") for index, root in enumerate(roots))


def _read_root(root: Any, path: str) -> Root:
    uri = root.get("uri") if type(root) is dict else None
    if type(uri) is not str:
        raise InvalidClientResult((f"{path}/uri", "is not a string"))
    name = root.get("name")
    return Root(uri, name if type(name) is str else None)
