"""One `tools/call`, from its ids on: what has become of it, and how it ended.

An `Invocation` is data. What happens to a call while its handler runs (its deadline passes, its
client cancels or leaves) is a change of its `Phase`; how the handler ended is an `Outcome`; what
both together count as is the table `OUTCOMES` (TIME-06).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from attrs import define, field

from .errors import ToolCompletionOutcome

if TYPE_CHECKING:
    from .protocol.jsonrpc import RequestId
    from .registry import RegisteredTool
    from .resources import Slot
    from .session import Session


class Phase(Enum):
    """What has become of a call whose handler has not ended (TIME-06)."""

    WAITED_FOR = auto()
    EXPIRED = auto()
    CANCELLED = auto()
    DISCONNECTED = auto()
    DISCONNECTED_THEN_EXPIRED = auto()


@define(eq=False, repr=False)
class Invocation:
    """One call, from step 3 on; as an effect it means: run its handler (step 8).

    Attributes:
        timeout_ms: the deadline, in ms from the start of the handler.
        payload_bytes: size of the arguments as JSON, in bytes.
        tool: set in step 5.
        slot: set in step 6, unless the tool is a reserved one.
        phase: whether its answer is still waited for.
    """

    session: Session
    request_id: RequestId
    run_id: str
    correlation_id: str
    tool_name: str
    arguments: dict[str, Any]
    payload_bytes: int = 0
    tool: RegisteredTool = field(init=False)
    slot: Slot | None = field(default=None, init=False)
    timeout_ms: int = field(default=0, init=False)
    phase: Phase = field(default=Phase.WAITED_FOR, init=False)


@define
class Returned:
    """The handler returned `value`."""

    value: Any


@define
class Raised:
    """The handler raised `error` of its own accord."""

    error: BaseException


@define
class Stopped:
    """The handler ended because its abort signal had fired."""


Outcome = Returned | Raised | Stopped

OUTCOMES: dict[tuple[Phase, type[Outcome]], ToolCompletionOutcome] = {
    (Phase.WAITED_FOR, Returned): ToolCompletionOutcome.SUCCESS,
    (Phase.WAITED_FOR, Raised): ToolCompletionOutcome.TOOL_ERROR,
    (Phase.WAITED_FOR, Stopped): ToolCompletionOutcome.TOOL_ERROR,
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
