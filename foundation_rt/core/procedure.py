"""What is the same for every call of a handler, whatever feature it belongs to (TIME-06).

A call begins in a procedure of its own: `tools_call.ToolsCall` for tools, `feature_calls` for all
else. What may then happen to it while its handler runs, and that it ends exactly once with its slot
given back, stands here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from attrs import define

from ..errors import (
    ErrorCode,
    StructuredError,
    ToolCompletionOutcome,
    chosen_error,
    describe_exception,
)
from ..limits import SHARE_USED
from ..protocol.jsonrpc import encode
from .effects import Abort, Notify
from .invocation import Outcome, Phase, Raised, Stopped
from .records import completion_record, failure_log, late_record
from .replies import internal_error_reply

if TYPE_CHECKING:
    from ..abort import AbortSignal
    from ..config.settings import ToolsSection
    from ..limits import ResourceManager
    from ..server_requests.requester import RequestStrategy
    from ..server_requests.round_trips import MultiRoundTrip
    from .effects import Effect, Reply
    from .invocation import Invocation

# However small `tools.max_response_bytes` is set, an error of the runtime's own still gets through.
ALWAYS_TOLD = 4096


@define(eq=False, repr=False)
class Procedure(ABC):
    """Decides what the end of a handler, and all before it, leads to.

    Args:
        limits: the `tools` section of the configuration.
    """

    resources: ResourceManager
    limits: ToolsSection

    # -- before the handler runs ---------------------------------------------------------------

    def acquire_slot(self, call: Invocation) -> None:
        """Take a slot for `call`, at once (CALL-07, RES-14).

        Raises:
            ToolError: RESOURCE_EXHAUSTED: all slots are in use, or the principal's share of them.
        """
        if call.principal is not None:
            call.slot = self.resources.take_slot(call.principal)
            return
        call.slot = self.resources.try_acquire_slot()
        if call.slot is None:
            raise self.resources.no_slot()

    def record_refusal(self, error: StructuredError) -> None:
        """Note for the server's health that a call was refused with `error` (RES-06, RES-13)."""
        if error.code is not ErrorCode.RESOURCE_EXHAUSTED:
            self.resources.record_completion()
        elif (error.details or {}).get("reason") != SHARE_USED:
            self.resources.record_rejection()

    # -- while the handler runs ----------------------------------------------------------------

    def expire(self, call: Invocation) -> list[Effect]:
        """The deadline has passed: answer TIMEOUT, abort, keep the slot (TIME-02)."""
        if call.phase is Phase.PENDING:
            call.phase = Phase.EXPIRED
            del call.session.in_flight[call.request_id]
            error = StructuredError(
                ErrorCode.TIMEOUT,
                f"{self.subject} did not finish within {call.timeout_ms} ms."
                " It may still be running.",
                {"timeoutMs": call.timeout_ms},
            )
            return [self.error_reply(call, error), Abort(call, "deadline")]
        if call.phase is Phase.DISCONNECTED:
            call.phase = Phase.DISCONNECTED_THEN_EXPIRED
        return []

    def cancel(self, call: Invocation) -> list[Effect]:
        """The client no longer wants the answer: none is sent (TIME-05)."""
        call.phase = Phase.CANCELLED
        del call.session.in_flight[call.request_id]
        return [Abort(call, "cancelled")]

    def disconnect(self, call: Invocation, reason: str) -> list[Effect]:
        """The client has gone, or the server is going (TIME-08)."""
        call.phase = Phase.DISCONNECTED
        del call.session.in_flight[call.request_id]
        return [Abort(call, reason)]

    def exchange(
        self, call: Invocation, rounds: MultiRoundTrip, signal: AbortSignal
    ) -> RequestStrategy:
        """How a handler of the stateless mode asks its client: round by round (ASK-10)."""
        return rounds

    def notify(self, call: Invocation, method: str, params: dict[str, Any]) -> list[Effect]:
        """A notification that belongs to a call; none once it is not waited for any more."""
        if call.session.in_flight.get(call.request_id) is not call:
            return []
        line = encode({"jsonrpc": "2.0", "method": method, "params": params})
        return [Notify(line, call.request_id)]

    # -- its end -------------------------------------------------------------------------------

    def conclude(self, call: Invocation, outcome: Outcome, duration_ms: float) -> list[Effect]:
        """The handler has ended: give the slot back, answer who waits, write the record.

        Args:
            duration_ms: how long the handler ran, in ms.
        """
        if call.slot is not None:
            call.slot.release()
        self.resources.record_completion()
        if call.phase is Phase.PENDING:
            del call.session.in_flight[call.request_id]
            return self.answer(call, outcome, duration_ms)
        return self.note_late(call, outcome, duration_ms)

    def describe_failure(self, outcome: Raised | Stopped) -> StructuredError:
        """What the client reads of a handler that did not return (ERR-05)."""
        error = outcome.error if isinstance(outcome, Raised) else None
        chosen = chosen_error(error)
        if chosen is not None:
            return chosen
        details = None
        if error is not None and self.limits.expose_error_details:
            described = describe_exception(error)
            details = {"exception": described["type"], "message": described["message"]}
        return StructuredError(ErrorCode.INTERNAL, f"{self.subject} failed.", details)

    def note_late(self, call: Invocation, outcome: Outcome, duration_ms: float) -> list[Effect]:
        """The record of a call whose answer nobody waits for; what it returned is dropped."""
        effects: list[Effect] = [late_record(call, outcome, duration_ms)]
        if type(outcome) is Raised and chosen_error(outcome.error) is None:
            effects.insert(0, failure_log(call, f"{self.handler} failed", outcome.error))
        return effects

    def break_off(self, call: Invocation, error: BaseException, duration_ms: float) -> list[Effect]:
        """A bug, in a validator say, keeps a call from going on: it still ends once (RPC-10)."""
        if call.slot is not None:
            call.slot.release()
        if call.session.in_flight.get(call.request_id) is call:
            del call.session.in_flight[call.request_id]
        log = failure_log(call, "internal error", error)
        if call.phase is not Phase.PENDING:
            return [log, late_record(call, Raised(error), duration_ms)]
        failed = ToolCompletionOutcome.TOOL_ERROR
        return [
            internal_error_reply(call.request_id, call.correlation_id),
            log,
            completion_record(call, failed, ErrorCode.INTERNAL, duration_ms),
        ]

    # -- what differs --------------------------------------------------------------------------

    subject = "The tool"
    """How its messages call what was called."""

    handler = "tool handler"
    """How the log calls what runs for it."""

    is_wrapped = True
    """Whether the middleware of the server is around its handlers."""

    @abstractmethod
    def answer(self, call: Invocation, outcome: Outcome, duration_ms: float) -> list[Effect]:
        """The effects for a call that is waited for: exactly one reply and one record."""

    @abstractmethod
    def error_reply(self, call: Invocation, error: StructuredError) -> Reply:
        """The reply that tells `error`."""
