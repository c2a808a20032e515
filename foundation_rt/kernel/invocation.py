"""One call of a handler, from its ids on: its state, and how its handler ended.

An `Invocation` is data. What happens to a call while its handler runs (its deadline passes, its
client cancels or disconnects) is a change of its `Phase`; how the handler ended is a `CallOutcome`.
The table `OUTCOMES` says what both together count as (TIME-06).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..base.shown import Shown
from ..errors import ToolCompletionOutcome
from .session import NO_HEADERS

if TYPE_CHECKING:
    from ..errors import StructuredError
    from ..protocol.jsonrpc import RequestId
    from ..protocol.peer import Peer
    from ..protocol.principal import Principal
    from .call_lifecycle import CallLifecycle
    from .effects import Effect, Notify, Reply
    from .execution_limits import Slot
    from .registry.tools import ExecutionMode, Handler, RegisteredTool
    from .session import Session

ToResult = Callable[["Any", "Invocation"], dict[str, Any]]
"""Makes a result out of the value that a handler returned; raises `ToolError` to refuse it."""

Step = Callable[..., "list[Effect]"]
"""A method of `CallLifecycle` that a call goes through, or a function around it."""

NO_PARTS: Mapping[type, Any] = MappingProxyType({})
"""The parts of a call that no feature keeps anything for."""


class Phase(Enum):
    """The state of a call whose handler has not ended (TIME-06)."""

    PENDING = auto()
    EXPIRED = auto()
    CANCELLED = auto()
    DISCONNECTED = auto()
    DISCONNECTED_THEN_EXPIRED = auto()


PENDING = Phase.PENDING  # see `session.RUNNING`


@define(eq=False, repr=False)
class CallKind(Shown):
    """The differences between calls of tools and calls of other handlers.

    Attributes:
        subject: names the handler in error messages: "The tool".
        label: begins log messages: "tool ".
        to_reply: writes the reply for the value that a handler returned, or another message of the
            request, and says whether that is an error; raises `ToolError` to refuse the value.
        to_error: writes the reply for an error.
        has_grace: the handler may go on for `tools.cancel_grace_ms` after its abort.
        is_chosen: returns whether an exception is what the handler has to say.
        log_fields: returns what log lines about a call have besides its ids and its name.
    """

    subject: str
    label: str
    to_reply: Callable[[CallLifecycle, Invocation, Any], tuple[Reply | Notify, bool]]
    to_error: Callable[[CallLifecycle, Invocation, StructuredError], Reply]
    has_grace: bool = True
    is_chosen: Callable[[BaseException], bool] | None = None
    log_fields: Callable[[Invocation], Mapping[str, Any]] | None = None


@define(eq=False, repr=False)
class Invocation:
    """One call; as an effect it means: run its handler (step 8 of `tools/call`).

    Attributes:
        peer: the client of the request.
        method: the method of the request: `tools/call`, `resources/read`, ...
        name: the name of a tool or of a prompt, or a URI.
        meta: the `_meta` of the request; None where it has none.
        principal: the principal that was proved with the request; later messages of the session
            may bring another token, with other scopes.
        headers: those of its HTTP request that handlers get, by lower-case name (HEAD-16).
        payload_bytes: size of the arguments as JSON, in bytes.
        tool: the tool of a `tools/call`, from step 5 on.
        handler: called with `arguments` and a `ToolContext`, as `execution` says.
        to_result: makes the result of any method but `tools/call`.
        slot: None until one is taken, and for calls that need none.
        timeout_ms: the deadline, in ms from the start of the handler.
        arguments_as_sent: the arguments of a stateless call as JSON in UTF-8.
        around_steps: called in turn around each step of the call from the start of its handler on
            (`expire`, `cancel`, `disconnect`, `notify`, `conclude`, `break_off`): with its name,
            what takes it, the call and the arguments; the last one is outermost.
        is_wait: it waits before step 1, and its handler is not one of the server.
        progress: the highest progress that was sent to the client.
        phase: whether the reply is still to be sent.
        parts: what features keep for it, by the class of that; see `keep`.
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
    principal: Principal | None
    kind: CallKind
    headers: Mapping[str, str] = NO_HEADERS
    payload_bytes: int = 0
    tool: RegisteredTool = field(init=False)
    handler: Handler = field(init=False)
    execution: ExecutionMode = field(init=False)
    to_result: ToResult = field(init=False)
    slot: Slot | None = None
    timeout_ms: int = 0
    arguments_as_sent: bytes = b""
    around_steps: tuple[Step, ...] = ()
    is_wait: bool = False
    progress: float = -math.inf
    phase: Phase = PENDING
    parts: Mapping[type, Any] = NO_PARTS

    def keep(self, part: object) -> None:
        """Keep the state of a feature for this call, by its class."""
        self.parts = {**self.parts, type(part): part}

    def __repr__(self) -> str:
        return f"<{self.method} {self.name!r} {self.run_id} {self.phase.name}>"

    @property
    def is_pending(self) -> bool:
        """Return whether the request of this call is still to be answered."""
        return self.session.in_flight.get(self.request_id) is self


@define(eq=False, repr=False)
class Returned(Shown):
    """The handler returned `value`."""

    value: Any


@define(eq=False, repr=False)
class Raised(Shown):
    """The handler raised `error` of its own accord."""

    error: BaseException


@define(eq=False, repr=False)
class Stopped(Shown):
    """The handler ended because its abort signal had fired."""


CallOutcome = Returned | Raised | Stopped

OUTCOMES: dict[tuple[Phase, type[CallOutcome]], ToolCompletionOutcome] = {
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
