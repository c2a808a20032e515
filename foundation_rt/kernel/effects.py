"""Effects: the decisions of the dispatcher, which the engine performs.

A decision is a list of these values. They are performed in order:

* `Reply`: write the response to a request;
* `Notify`: write any other message;
* `invocation.Invocation`: start its handler, and report how the handler ended;
* `Abort`: fire the abort signal of a running handler;
* `Extend`: give a running handler another deadline;
* `Attach`: let the connection be found by the id of its session;
* `FeatureCallback`: call a function of a feature;
* `SessionEnded`: report the end of a session whose key a handler has read;
* `Log`: write a log record. Observers are also given the subclasses of `Event`: `CallCompleted`,
  `ClientConnected` and `ClientDisconnected`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import define, field

from ..base.shown import Shown

if TYPE_CHECKING:
    from ..protocol.jsonrpc import RequestId
    from .invocation import Invocation

    Performed: TypeAlias = "Invocation | Abort | Extend | FeatureCallback | SessionEnded"
    Effect: TypeAlias = "Reply | Notify | Log | Attach | Performed"


@define(repr=False)
class Reply(Shown):
    """Write `line`, a whole response without its newline, to the peer.

    Attributes:
        request_id: the request that it answers; None if its id could not be read.
        error_code: the JSON-RPC code, if it is an error.
        done: the host has it; after an interruption it is not handed over a second time.
    """

    line: bytes
    request_id: RequestId | None = None
    error_code: int | None = None
    done: bool = field(default=False, eq=False)


@define(repr=False)
class Notify(Shown):
    """Write `line`, a notification or a request of the server's, to the peer; without its newline.

    Attributes:
        request_id: the peer's request that it belongs to; None if it belongs to none.
        done: as of a `Reply`.
    """

    line: bytes
    request_id: RequestId | None = None
    done: bool = field(default=False, eq=False)


@define(repr=False)
class Abort(Shown):
    """Fire the abort signal of `invocation` with `reason`; its handler may go on running."""

    invocation: Invocation
    reason: str


@define(eq=False, repr=False)
class Extend(Shown):
    """Set the deadline of a running handler to `timeout_ms` from now."""

    invocation: Invocation
    timeout_ms: int


class Attach(Shown):
    """Let the connection of the session be found by its id, before any effect that follows."""

    __slots__ = ()


@define(eq=False, repr=False)
class FeatureCallback:
    """Call `function`, which belongs to a feature, without the lock of the session."""

    function: Callable[[], object]


@define(eq=False, repr=False)
class SessionEnded:
    """Report the end of the session that handlers know by `key` (LIFE-18)."""

    key: str


@define(repr=False)
class Log(Shown):
    """Write a log record.

    Attributes:
        done: as of a `Reply`.
    """

    level: str
    message: str
    fields: dict[str, Any]
    done: bool = field(default=False, eq=False)


class Event(Log):
    """Write a log record and give it to the observers of the server."""

    __slots__ = ()


@define(eq=False, repr=False)
class CallCompleted(Event):
    """Write the completion record of a call (CALL-13).

    Attributes:
        refusal: why its handler was not run, in a word; None if it was run.
        failure: what went wrong, for operators; or the reply that says it; None of a success.
    """

    refusal: str | None = None
    failure: str | Reply | Notify | None = None


class ClientConnected(Event):
    """Write the record of a handshake."""

    __slots__ = ()


class ClientDisconnected(Event):
    """Write the record of the end of a session that began with a handshake."""

    __slots__ = ()
