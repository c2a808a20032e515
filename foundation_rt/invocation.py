"""One `tools/call` after it passed its checks: what has become of it, and how it ended.

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


class Ending(Enum):
    """How a handler ended."""

    RETURNED = auto()
    RAISED = auto()
    STOPPED = auto()
    """It ended because its abort signal had fired."""


OUTCOMES: dict[tuple[Phase, Ending], ToolCompletionOutcome] = {
    (Phase.WAITED_FOR, Ending.RETURNED): ToolCompletionOutcome.SUCCESS,
    (Phase.WAITED_FOR, Ending.RAISED): ToolCompletionOutcome.TOOL_ERROR,
    (Phase.WAITED_FOR, Ending.STOPPED): ToolCompletionOutcome.TOOL_ERROR,
    (Phase.EXPIRED, Ending.RETURNED): ToolCompletionOutcome.LATE_COMPLETED,
    (Phase.EXPIRED, Ending.RAISED): ToolCompletionOutcome.LATE_COMPLETED,
    (Phase.EXPIRED, Ending.STOPPED): ToolCompletionOutcome.TIMEOUT,
    (Phase.CANCELLED, Ending.RETURNED): ToolCompletionOutcome.LATE_COMPLETED,
    (Phase.CANCELLED, Ending.RAISED): ToolCompletionOutcome.LATE_COMPLETED,
    (Phase.CANCELLED, Ending.STOPPED): ToolCompletionOutcome.ABORTED,
    (Phase.DISCONNECTED, Ending.RETURNED): ToolCompletionOutcome.DISCONNECTED_COMPLETED,
    (Phase.DISCONNECTED, Ending.RAISED): ToolCompletionOutcome.DISCONNECTED_COMPLETED,
    (Phase.DISCONNECTED, Ending.STOPPED): ToolCompletionOutcome.ABORTED,
    (Phase.DISCONNECTED_THEN_EXPIRED, Ending.RETURNED): ToolCompletionOutcome.LATE_COMPLETED,
    (Phase.DISCONNECTED_THEN_EXPIRED, Ending.RAISED): ToolCompletionOutcome.LATE_COMPLETED,
    (Phase.DISCONNECTED_THEN_EXPIRED, Ending.STOPPED): ToolCompletionOutcome.LATE_COMPLETED,
}


@define(eq=False, repr=False)
class Invocation:
    """One call that passed steps 1 to 7; as an effect it means: run its handler (step 8).

    Attributes:
        timeout_ms: the deadline, in ms from the start of the handler.
        payload_bytes: size of the arguments as JSON, in bytes.
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

ENDINGS: dict[type, Ending] = {
    Returned: Ending.RETURNED,
    Raised: Ending.RAISED,
    Stopped: Ending.STOPPED,
}
