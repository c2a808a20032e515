"""The life of a call, in the ten steps of spec/tools-call.md and in their order.

`CallLifecycle.begin` is steps 1 to 7. They end in a refusal, or in an `Invocation`: the engine then
runs the handler, which is step 8. `CallLifecycle.conclude` is steps 9 and 10. The functions for the
time in between (deadline, cancellation, disconnection) stand in the middle.

Other methods with handlers take the same steps. What differs is a `CallKind`, and that they have
done steps 1, 2, 5 and 7.

Nothing here performs I/O or reads a clock. A step refuses by raising `JsonRpcError` or `ToolError`:
a `try` costs nothing where nothing is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..base.jsonschema.issues import TOO_COMPLEX, refusal
from ..errors import (
    SHARE_USED,
    ErrorCode,
    JsonRpcError,
    StructuredError,
    ToolCompletionOutcome,
    ToolError,
    chosen_error,
    describe_exception,
)
from ..protocol.jsonrpc import encode
from .effects import Abort, Notify
from .execution_limits import RETRY_HINT
from .invocation import PENDING, CallOutcome, Invocation, Phase, Raised, Returned
from .records import completion_record, failed_error, failure_log, late_record, timeout_error
from .replies import (
    MAX_ECHOED_NAME,
    client_correlation_id,
    internal_error_reply,
    invalid_params,
    not_initialized,
)
from .results import TOOL
from .session import RUNNING

if TYPE_CHECKING:
    from ..base.config.settings import ToolsSection
    from ..base.ids import IdGenerator
    from ..protocol.jsonrpc import Request
    from ..protocol.peer import Peer
    from .effects import CallCompleted, Effect, Reply
    from .execution_limits import ResourceManager
    from .invocation import CallKind
    from .registry.tools import ToolRegistry
    from .replies import ResultWriter
    from .session import Session

SUCCESS = ToolCompletionOutcome.SUCCESS  # see `session.RUNNING`

Hooks = tuple[Callable[..., Any], ...]
"""A hook of each feature that has it, in their order."""

MIN_ERROR_LIMIT = 4096
"""Bytes that an error reply may always have, however small `tools.max_response_bytes` is."""


# -- steps 1 and 2: may the request be served, and is it well-formed -----------------------------


def check_state(session: Session, peer: Peer | None) -> Peer:
    """Step 1: refuse unless the connection is RUNNING, or needs no handshake (CALL-01, REV-04)."""
    if peer is None or not (session.state is RUNNING or peer.revision.is_stateless):
        raise not_initialized(session)
    return peer


def check_shape(request: Request) -> dict[str, Any]:
    """Step 2: refuse params, `name`, `arguments` or `_meta` of a wrong type (CALL-02)."""
    params = request.params
    if type(params) is not dict:
        raise invalid_params("params must be an object with a name", path="params")
    if type(params.get("name")) is not str:
        raise invalid_params("name must be a string", path="params.name")
    if "arguments" in params and type(params["arguments"]) is not dict:
        raise invalid_params("arguments must be an object", path="params.arguments")
    if "_meta" in params and type(params["_meta"]) is not dict:
        raise invalid_params("_meta must be an object", path="params._meta")
    return params


# -- steps 3 to 10 -------------------------------------------------------------------------------


class CallLifecycle:
    """Decides about calls, from the request to the completion record.

    Args:
        limits: the `tools` section of the configuration.

    Attributes:
        find, admit, allow, prepared, ready, raised, dropped: the hooks of features;
            see `RuntimeFeature`.
    """

    find: Hooks = ()
    admit: Hooks = ()
    allow: Hooks = ()
    prepared: Hooks = ()
    ready: Hooks = ()
    raised: Hooks = ()
    dropped: Hooks = ()

    def __init__(
        self,
        resources: ResourceManager,
        limits: ToolsSection,
        registry: ToolRegistry,
        ids: IdGenerator,
        results: ResultWriter,
    ) -> None:
        self.resources = resources
        self.limits = limits
        self.registry = registry
        self.ids = ids
        self.results = results

    # -- steps 1 to 7: before the handler ------------------------------------------------------

    def begin(self, session: Session, peer: Peer | None, request: Request) -> list[Effect]:
        """Begin a `tools/call`: return its `Invocation`, or the refusal and its record.

        Raises:
            JsonRpcError: the request is refused as such; no handler runs.
        """
        peer = check_state(session, peer)  # step 1
        params = check_shape(request)  # step 2
        name, arguments = params["name"], params.get("arguments", {})
        call = self.assign_ids(TOOL, session, peer, request, name, arguments)  # step 3
        try:
            self.check_payload_size(call)  # step 4
            self.find_tool(call, params)  # step 5
            for allow in self.allow:
                allow(call)
            if peer.revision.is_stateless and call.kind.has_grace:  # its handler is here
                for prepared in self.prepared:
                    prepared(call, params)
            if not call.tool.reserved:  # a reserved tool has a slot of its own (RES-09)
                call.slot = self.resources.take_slot(call.principal)  # step 6 (CALL-07)
            self.validate_arguments(call)  # step 7
            effects = self._make_ready(call) if call.tool.parts else []
        except JsonRpcError:
            raise
        except ToolError as refusal:
            return self.refuse(call, refusal.to_structured())
        except Exception as error:
            self.resources.record_completion()
            return self.break_off(call, error, 0.0)
        except BaseException:  # of another thread, as KeyboardInterrupt: the connection answers it
            if call.slot is not None:
                call.slot.release()
            raise
        call.session.in_flight[call.request_id] = call  # `ready` may give it another session
        effects.append(call)
        return effects

    def assign_ids(
        self,
        kind: CallKind,
        session: Session,
        peer: Peer,
        request: Request,
        name: str,
        arguments: dict[str, Any],
        default_correlation_id: str | None = None,
    ) -> Invocation:
        """Step 3: make the call with its run id and its correlation id (CALL-03, CALL-04).

        Without a correlation id of the client's it gets `default_correlation_id`, or a new one.
        """
        params = request.params
        meta = None if type(params) is not dict else params.get("_meta")
        correlation_id = None if meta is None else client_correlation_id(params)
        return Invocation(
            session,
            peer,
            request.id,
            self.ids.run_id(),
            correlation_id or default_correlation_id or self.ids.correlation_id(),
            request.method,
            name,
            arguments,
            meta,
            session.principal,
            kind,
            session.headers,
        )

    def check_payload_size(self, call: Invocation) -> None:
        """Step 4: refuse arguments that are larger than `tools.max_payload_bytes` (CALL-05)."""
        try:
            call.payload_bytes = self.resources.payload_size(call.arguments)
        except TypeError:
            raise ToolError(
                ErrorCode.INVALID_ARGUMENT,
                "The arguments are nested too deeply to be written as JSON.",
                {"reason": "arguments_not_serializable"},
            ) from None
        limit = self.limits.max_payload_bytes
        if call.payload_bytes > limit:
            raise ToolError(
                ErrorCode.RESOURCE_EXHAUSTED,
                f"The arguments are {call.payload_bytes} bytes as JSON; at most {limit} are taken."
                " Split them into several calls, or use a file if a tool takes one.",
                {
                    "reason": "payload_too_large",
                    "payloadBytes": call.payload_bytes,
                    "maxPayloadBytes": limit,
                },
            )

    def find_tool(self, call: Invocation, params: dict[str, Any]) -> None:
        """Step 5: find the tool (CALL-06), and ask its policies (CALL-43).

        Tools that are not registered may be a feature's (FWD-01).
        """
        tool = self.registry.get(call.name)
        if tool is None:
            for find in self.find:
                if find(call, params):
                    return
            raise no_such_tool(call.name)
        call.tool = tool
        if tool.is_restricted:
            if tool.choose is not None:
                tool = call.tool = tool.choose(call)
            for admit in self.admit:
                admit(call)
        call.handler = tool.handler
        call.execution = tool.execution
        call.timeout_ms = tool.timeout_ms or self.limits.default_timeout_ms

    def validate_arguments(self, call: Invocation) -> None:
        """Step 7: refuse arguments that the tool's schema does not allow (CALL-08)."""
        issues = call.tool.validate(call.arguments)
        if not issues:
            return
        if issues is TOO_COMPLEX:
            raise ToolError(
                ErrorCode.INVALID_ARGUMENT,
                "The arguments are too complex to be checked: send less in one call.",
                {"reason": "too_complex"},
            )
        raise refusal(issues)

    def _make_ready(self, call: Invocation) -> list[Effect]:
        """Return what features do before the handler of a call starts; they may refuse it."""
        return [effect for ready in self.ready for effect in ready(call)]

    def refuse(self, call: Invocation, error: StructuredError) -> list[Effect]:
        """Refuse a call before its handler runs: reply with `error` and write its record."""
        if call.slot is not None:
            call.slot.release()
        reason = (error.details or {}).get("reason", error.code.value)
        record = completion_record(call, ToolCompletionOutcome.TOOL_ERROR, error, 0.0)
        record.refusal = reason
        if error.code is not ErrorCode.RESOURCE_EXHAUSTED:
            self.resources.record_completion()
        else:
            record.fields["retryHint"] = RETRY_HINT
            if reason != SHARE_USED:  # the server is not overloaded (RES-13)
                self.resources.record_rejection()
        return [self.error_reply(call, error), record]

    # -- step 8: while the handler runs --------------------------------------------------------

    def expire(self, call: Invocation) -> list[Effect]:
        """Answer TIMEOUT and abort: the deadline has passed; the slot is kept (TIME-02)."""
        if call.phase is PENDING:
            call.phase = Phase.EXPIRED
            del call.session.in_flight[call.request_id]
            reply = self.error_reply(call, timeout_error(call))
            return [reply, Abort(call, "deadline")]
        if call.phase is Phase.DISCONNECTED:
            call.phase = Phase.DISCONNECTED_THEN_EXPIRED
        return []

    def cancel(self, call: Invocation) -> list[Effect]:
        """Abort without a reply: the client has cancelled the request (TIME-05)."""
        return self._abandon(call, Phase.CANCELLED, "cancelled")

    def disconnect(self, call: Invocation, reason: str) -> list[Effect]:
        """Abort without a reply: the client has gone, or the server stops (TIME-08)."""
        return self._abandon(call, Phase.DISCONNECTED, reason)

    def _abandon(self, call: Invocation, phase: Phase, reason: str) -> list[Effect]:
        if not call.is_pending:  # it may have ended in another thread
            return []
        call.phase = phase
        del call.session.in_flight[call.request_id]
        return [Abort(call, reason)]

    def notify(self, call: Invocation, method: str, params: dict[str, Any]) -> list[Effect]:
        """Send a notification that belongs to a pending call."""
        if not call.is_pending:
            return []
        line = encode({"jsonrpc": "2.0", "method": method, "params": params})
        return [Notify(line, call.request_id)]

    # -- steps 9 and 10: after the handler -----------------------------------------------------

    def conclude(self, call: Invocation, outcome: CallOutcome, duration_ms: float) -> list[Effect]:
        """Release the slot and answer: the handler has ended after `duration_ms`."""
        self.release_slot(call)  # step 9
        if call.phase is PENDING:
            del call.session.in_flight[call.request_id]
            return self.answer(call, outcome, duration_ms)  # step 10
        if type(outcome) is Returned:
            self._drop(call)
        effects: list[Effect] = [late_record(call, outcome, duration_ms)]
        if type(outcome) is Raised and not _is_chosen(call, outcome.error):
            message = f"{call.kind.label}handler failed"
            effects.insert(0, failure_log(call, message, outcome.error))
        return effects

    def _drop(self, call: Invocation) -> None:
        """Tell features that the client is not given what the handler has returned (FWD-25)."""
        for dropped in self.dropped:
            dropped(call)

    def release_slot(self, call: Invocation) -> None:
        """Step 9: give the slot back, exactly once (CALL-09)."""
        if call.slot is not None:
            call.slot.release()
        self.resources.record_completion()

    def answer(self, call: Invocation, outcome: CallOutcome, duration_ms: float) -> list[Effect]:
        """Step 10: reply to a pending call and write its record (CALL-10, FEAT-03)."""
        if type(outcome) is Returned:
            try:
                reply, is_error = call.kind.to_reply(self, call, outcome.value)
            except ToolError as refusal:
                self._drop(call)
                error, cause = refusal.to_structured(), refusal.__cause__
                return self._fail(call, error, duration_ms, "result refused", cause)
            how = ToolCompletionOutcome.TOOL_ERROR if is_error else SUCCESS
            record = completion_record(call, how, None, duration_ms)
            if is_error:
                record.failure = reply
            return [reply, record]
        raised = outcome.error if isinstance(outcome, Raised) else None
        if raised is not None:
            try:
                asked = self._answer_exception(call, raised, duration_ms)
            except ToolError as refusal:
                error, cause = refusal.to_structured(), refusal.__cause__
                return self._fail(call, error, duration_ms, "error refused", cause)
            if asked is not None:
                return [*asked]
        chosen = chosen_error(raised)
        if chosen is not None:
            return self._fail(call, chosen, duration_ms)
        error = self._unexpected_failure(call, raised)
        return self._fail(call, error, duration_ms, "handler failed", raised)

    def _answer_exception(
        self, call: Invocation, raised: BaseException, duration_ms: float
    ) -> tuple[Reply, CallCompleted] | None:
        """Return the reply and the record for an exception that is more than a failure.

        Raises:
            ToolError: the call fails with this error instead.
        """
        for answer in self.raised:
            answered: tuple[Reply, CallCompleted] | None = answer(call, raised, duration_ms)
            if answered is not None:
                return answered
        return None

    def _unexpected_failure(
        self, call: Invocation, raised: BaseException | None
    ) -> StructuredError:
        """Return the error for a handler that was stopped, or failed unexpectedly (ERR-05)."""
        details = None
        if raised is not None and self.limits.expose_error_details:
            described = describe_exception(raised)
            details = {"exception": described["type"], "message": described["message"]}
        return failed_error(call, details)

    def _fail(
        self,
        call: Invocation,
        error: StructuredError,
        duration_ms: float,
        message: str = "",
        cause: BaseException | None = None,
    ) -> list[Effect]:
        """Reply with `error`, log `cause` if there is one, and write the record."""
        effects: list[Effect] = [self.error_reply(call, error)]
        if cause is not None:
            effects.append(failure_log(call, call.kind.label + message, cause))
        failed = ToolCompletionOutcome.TOOL_ERROR
        return [*effects, completion_record(call, failed, error, duration_ms, cause)]

    def error_reply(self, call: Invocation, error: StructuredError) -> Reply:
        """Write the reply for `error`; one that is too large keeps only its code (FEAT-02)."""
        reply = call.kind.to_error(self, call, error)
        limit = self.limits.max_response_bytes
        if len(reply.line) > max(limit, MIN_ERROR_LIMIT):
            details = {"reason": "error_too_large", "maxResponseBytes": limit}
            message = f"{call.kind.subject} failed with an error larger than a response may be."
            reply = call.kind.to_error(self, call, StructuredError(error.code, message, details))
        return reply

    def break_off(self, call: Invocation, error: BaseException, duration_ms: float) -> list[Effect]:
        """End a call that a bug, in a validator for example, keeps from going on (RPC-10)."""
        if call.slot is not None:
            call.slot.release()
        if call.is_pending:
            del call.session.in_flight[call.request_id]
        log = failure_log(call, "internal error", error)
        if call.phase is not PENDING:
            return [log, late_record(call, Raised(error), duration_ms)]
        reply = internal_error_reply(call.request_id, call.correlation_id)
        failed = ToolCompletionOutcome.TOOL_ERROR
        record = completion_record(call, failed, failed_error(call), duration_ms, error)
        return [reply, log, record]


def no_such_tool(name: str) -> ToolError:
    """Return the error of a call of a tool that is not there (CALL-06)."""
    name = name[:MAX_ECHOED_NAME]
    return ToolError(ErrorCode.NOT_FOUND, f"There is no tool {name!r}.", {"toolName": name})


def _is_chosen(call: Invocation, error: BaseException) -> bool:
    """Return whether an error is what the handler has to say, and no failure of it."""
    if chosen_error(error) is not None:
        return True
    return call.kind.is_chosen is not None and call.kind.is_chosen(error)
