"""What the dispatcher decides and somebody else performs.

A decision is a list of these values, to be performed in order:

* `Reply`: write the response to a request;
* `Notify`: write any other message;
* `invocation.Invocation`: start its handler and report how it ended;
* `Abort`: fire the abort signal of a running handler;
* `Extend`: give it another deadline;
* `Announce`: tell others than the peer;
* `Log`: write a log record. Observers of the server are also given its subclasses of `Event`:
  `CallCompleted`, `ClientConnected` and `ClientDisconnected`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import define, field

if TYPE_CHECKING:
    from ..protocol.jsonrpc import RequestId
    from .invocation import Invocation

    Performed: TypeAlias = "Invocation | Abort | Extend | Announce"
    Effect: TypeAlias = "Reply | Notify | Log | Performed"


@define(repr=False)
class Reply:
    """Write `line`, a whole response without its newline, to the peer.

    Attributes:
        request_id: the request it answers; None where that could not be known.
        error_code: the JSON-RPC code, if it is an error.
        done: it was handed to the host; an interruption does not have it handed over again.
    """

    line: bytes
    request_id: RequestId | None = None
    error_code: int | None = None
    done: bool = field(default=False, init=False, eq=False)


@define(repr=False)
class Notify:
    """Write `line`, a notification or a request of ours without its newline, to the peer.

    Attributes:
        request_id: the request of the peer's that it belongs to; None belongs to none.
        done: as of a `Reply`.
    """

    line: bytes
    request_id: RequestId | None = None
    done: bool = field(default=False, init=False, eq=False)


@define(repr=False)
class Abort:
    """Fire the abort signal of `invocation` with `reason`; its handler may still be running."""

    invocation: Invocation
    reason: str


@define(eq=False, repr=False)
class Extend:
    """The deadline of a running handler is `timeout_ms` from now, instead of what it was."""

    invocation: Invocation
    timeout_ms: int


@define(eq=False, repr=False)
class Announce:
    """Call `tell()`, which reaches other connections: under the lock of none."""

    tell: Callable[[], object]


@define(repr=False)
class Log:
    """Write a log record.

    Attributes:
        done: as of a `Reply`.
    """

    level: str
    message: str
    fields: dict[str, Any]
    done: bool = field(default=False, init=False, eq=False)


class Event(Log):
    """Write a record that the observers of the server are given as well."""

    __slots__ = ()


@define(eq=False, repr=False)
class CallCompleted(Event):
    """Write the completion record of a call (CALL-13).

    Attributes:
        refusal: why its handler was not run, in a word; None if it was.
    """

    refusal: str | None = None


class ClientConnected(Event):
    """Write the record of a handshake."""

    __slots__ = ()


class ClientDisconnected(Event):
    """Write the record of the end of what began with a handshake."""

    __slots__ = ()
