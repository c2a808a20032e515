"""What every question to a client has in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import orjson
from attrs import define

if TYPE_CHECKING:
    from ..protocol.peer import Peer
    from .forms import Forms


@define(eq=False, repr=False)
class PreparedRequest:
    """A question as one client is asked it.

    Attributes:
        method: of the request.
        params: of the request, as the client's revision has them.
        read: makes the value a handler gets out of the client's result; raises
            `InvalidClientResult`.
    """

    method: str
    params: dict[str, Any]
    read: Callable[[Any], Any]

    def to_wire(self) -> dict[str, Any]:
        """The request, without what the transport adds to it."""
        return {"method": self.method, "params": self.params}

    def digest(self) -> str:
        """Tells this question from others: 128 bits, in hexadecimal digits (ASK-13)."""
        from hashlib import sha256

        canonical = orjson.dumps(self.to_wire(), option=orjson.OPT_SORT_KEYS)
        return sha256(canonical).hexdigest()[:32]


class ServerRequest(Protocol):
    """Something a client can be asked: `Elicit`, `ElicitUrl`, `Sample` or `Roots`."""

    def prepare(self, peer: Peer, forms: Forms, name: str) -> PreparedRequest:
        """The question as `peer` is asked it.

        Args:
            forms: makes the forms that are in use.
            name: of the question; unique among all that are asked.

        Raises:
            ClientCapabilityError: `peer` has not declared that it can be.
            UsageError: it is not a proper question; for the author of the handler.
        """
        ...
