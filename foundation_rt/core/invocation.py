"""One call of a handler, from its ids on: what has become of it, and how it ended.

An `Invocation` is data. What happens to a call while its handler runs (its deadline passes, its
client cancels or leaves) is a change of its `Phase`; how the handler ended is an `Outcome`; what
both together count as is the table `OUTCOMES` (TIME-06).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from attrs import Factory, define, field

from ..errors import ToolCompletionOutcome

if TYPE_CHECKING:
    from ..limits import Slot
    from ..protocol.jsonrpc import RequestId
    from ..protocol.peer import Peer
    from ..protocol.principal import Principal
    from ..registry.tools import ExecutionMode, Handler, RegisteredTool
    from ..server_requests.round_trips import MultiRoundTrip
    from .procedure import Procedure
    from .session import Session

Shape = Callable[["Any", "Invocation"], dict[str, Any]]
"""Makes a result out of what a handler returned; raises `ToolError` to refuse it."""


class Phase(Enum):
    """What has become of a call whose handler has not ended (TIME-06)."""

    PENDING = auto()
    EXPIRED = auto()
    CANCELLED = auto()
    DISCONNECTED = auto()
    DISCONNECTED_THEN_EXPIRED = auto()


@define(eq=False, repr=False)
class Invocation:
    """One call; as an effect it means: run its handler (step 8 of `tools/call`).

    Attributes:
        peer: who asks.
        method: the request's: `tools/call`, `resources/read`, ...
        name: what is called: the name of a tool or of a prompt, a URI.
        meta: the request's `_meta`; None where there was none.
        procedure: what decides about it.
        payload_bytes: size of the arguments as JSON, in bytes.
        tool: of a `tools/call`, from step 5 on.
        handler: called with `arguments` and a `ToolContext`, as `execution` says.
        timeout_ms: the deadline, in ms from the start of the handler.
        shape: makes the result out of what the handler returned; of all but a `tools/call`.
        slot: None as long as it has none, and if it needs none.
        arguments_as_sent: as JSON in UTF-8; of a call of the stateless mode.
        rounds: what its client has answered so far; None where nothing was asked or brought along.
        principal: who asked, as was proved then: later messages of a session may bring another
            token, of other scopes.
        progress: the highest its client has been told.
        phase: whether its answer is still waited for.
    """

    session: Session
    peer: Peer
    request_id: RequestId
    run_id: str
    correlation_id: str
    method: str
    name: str
    arguments: dict[str, Any]
    meta: dict[str, Any] | None
    procedure: Procedure
    payload_bytes: int = 0
    tool: RegisteredTool = field(init=False)
    handler: Handler = field(init=False)
    execution: ExecutionMode = field(init=False)
    shape: Shape = field(init=False)
    slot: Slot | None = field(default=None, init=False)
    timeout_ms: int = field(default=0, init=False)
    arguments_as_sent: bytes = field(default=b"", init=False)
    rounds: MultiRoundTrip | None = field(default=None, init=False)
    principal: Principal | None = field(
        default=Factory(lambda call: call.session.principal, takes_self=True), init=False
    )
    progress: float = field(default=-math.inf, init=False)
    phase: Phase = field(default=Phase.PENDING, init=False)


@define(eq=False, repr=False)
class Returned:
    """The handler returned `value`."""

    value: Any


@define(eq=False, repr=False)
class Raised:
    """The handler raised `error` of its own accord."""

    error: BaseException


@define(eq=False, repr=False)
class Stopped:
    """The handler ended because its abort signal had fired."""


Outcome = Returned | Raised | Stopped

OUTCOMES: dict[tuple[Phase, type[Outcome]], ToolCompletionOutcome] = {
    (Phase.PENDING, Returned): ToolCompletionOutcome.SUCCESS,
    (Phase.PENDING, Raised): ToolCompletionOutcome.TOOL_ERROR,
    (Phase.PENDING, Stopped): ToolCompletionOutcome.TOOL_ERROR,
    (Phase.EXPIRED, Returned): ToolCompletionOutcome.LATE_COMPLETED,
    (Phase.EXPIRED, Raised): ToolCompletionOutcome.LATE_COMPLETED,
    (Phase.EXPIRED, Stopped): ToolCompletionOutcome.TIMEOUT,
    (Phase.CANCELLED, Returned): ToolCompletionOutcome.LATE_COMPLETED,
    (Phase.CANCELLED, Raised): ToolCompletionOutcome.LATE_COMPLETED,
    (Phase.CANCELLED, Stopped): ToolCompletionOutcome.ABORTED,
    (Phase.DISCONNECTED, Returned): ToolCompletionOutcome.DISCONNECTED_COMPLETED,
    (Phase.DISCONNECTED, Raised): ToolCompletionOutcome.DISCONNECTED_COMPLETED,
    (Phase.DISCONNECTED, Stopped): ToolCompletionOutcome.ABORTED,
    (Phase.DISCONNECTED_THEN_EXPIRED, Returned): ToolCompletionOutcome.LATE_COMPLETED,
    (Phase.DISCONNECTED_THEN_EXPIRED, Raised): ToolCompletionOutcome.LATE_COMPLETED,
    (Phase.DISCONNECTED_THEN_EXPIRED, Stopped): ToolCompletionOutcome.LATE_COMPLETED,
}
