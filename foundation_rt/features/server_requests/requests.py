"""A server request, and the request as one client is sent it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import orjson
from attrs import define

from ...base.exact_json import dumps

if TYPE_CHECKING:
    from ...protocol.peer import Peer
    from .forms import Forms


@define(eq=False, repr=False)
class PreparedRequest:
    """A request as the revision of one client has it.

    Attributes:
        method: the method of the request.
        params: the params of the request.
        read: converts the client's result to the value that the handler receives; raises
            `InvalidClientResult`.
    """

    method: str
    params: dict[str, Any]
    read: Callable[[Any], Any]

    def to_wire(self) -> dict[str, Any]:
        """Return the method and the params, without the members of JSON-RPC."""
        return {"method": self.method, "params": self.params}

    def digest(self) -> str:
        """Return 128 bits that identify the request, in hexadecimal digits (ASK-13)."""
        from hashlib import sha256

        canonical = dumps(self.to_wire(), option=orjson.OPT_SORT_KEYS)
        return sha256(canonical).hexdigest()[:32]


class ServerRequest(Protocol):
    """A request to a client: `Elicit`, `ElicitUrl`, `Sample` or `Roots`."""

    def prepare(self, peer: Peer, forms: Forms, name: str) -> PreparedRequest:
        """Return the request as it is sent to `peer`.

        Args:
            peer: the client.
            forms: makes the forms that are in use.
            name: identifies the request among all that are sent.

        Raises:
            ClientCapabilityError: `peer` has not declared the capability.
            UsageError: the request is invalid; a bug of the handler.
        """
        ...
