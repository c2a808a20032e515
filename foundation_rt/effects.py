"""What the dispatcher decides and somebody else performs.

A decision is a list of these values, to be performed in order:

* `Reply`: write the response to a request;
* `Notify`: write any other message;
* `invocation.Invocation`: start its handler and report how it ended;
* `Abort`: fire the abort signal of a running handler;
* `Emit`: write a log record; `Complete` is the one of a tool call that has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import define

if TYPE_CHECKING:
    from .invocation import Invocation
    from .protocol.jsonrpc import RequestId

    Effect: TypeAlias = "Reply | Notify | Invocation | Abort | Emit"


@define
class Reply:
    """Write `line`, a whole response without its newline, to the peer.

    Attributes:
        request_id: the request it answers; None where that could not be known.
        error_code: the JSON-RPC code, if it is an error.
    """

    line: bytes
    request_id: RequestId | None = None
    error_code: int | None = None


@define
class Notify:
    """Write `line`, a notification or a request of ours without its newline, to the peer.

    Attributes:
        request_id: the request of the peer's that it belongs to; None belongs to none.
    """

    line: bytes
    request_id: RequestId | None = None


@define
class Abort:
    """Fire the abort signal of `invocation` with `reason`; its handler may still be running."""

    invocation: Invocation
    reason: str


@define
class Emit:
    """Write a log record."""

    level: str
    message: str
    fields: dict[str, Any]


@define
class Complete(Emit):
    """Write the completion record of a tool call; whoever observes calls is given it (CALL-13)."""
