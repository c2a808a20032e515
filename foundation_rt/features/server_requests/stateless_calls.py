"""The answers that a call of the stateless mode brings, and the reply with which it asks for more.

Imported when a handler first asks, or a client first answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...base.exact_json import loads
from ...errors import (
    ErrorCode,
    JsonRpcError,
    JsonRpcErrorCode,
    StructuredError,
    ToolCompletionOutcome,
    ToolError,
    UsageError,
    has_type,
)
from ...kernel.records import completion_record
from ...kernel.replies import error_reply, invalid_params, result_reply
from ...protocol.methods import facts
from ...protocol.principal import identity_of
from ..forwarding.forwarder import ForwardedError, ForwardedRequest
from .errors import ClientCapabilityError, UrlElicitationRequired
from .feature import ClientInput
from .request_state import (
    StateRefused,
    StateScope,
    StateTooLarge,
    seal,
    seal_value,
    state_scope,
    unseal,
    unseal_value,
)
from .requester import ServerRequester
from .round_trips import MultiRoundTrip, missing_in

if TYPE_CHECKING:
    from ...base.abort import AbortSignal
    from ...kernel.effects import CallCompleted, Reply
    from ...kernel.engine.connection import Connection
    from ...kernel.invocation import Invocation
    from .requester import RequestStrategy
    from .requests import PreparedRequest

_NOT_GOOD = "requestState is not good here"


def read_answers(asking: ClientInput, call: Invocation, params: Mapping[str, Any]) -> None:
    """Read the answers that came with a stateless call (ASK-11, ASK-14).

    Raises:
        JsonRpcError: they are malformed, or the state is not valid for this call.
    """
    responses = params.get("inputResponses", {})
    sealed = params.get("requestState", "")
    if type(responses) is not dict:
        raise _invalid_input(call, "inputResponses must be an object")
    if type(sealed) is not str:
        raise _invalid_input(call, "requestState must be a string")
    rounds = _rounds_of(call)
    rounds.responses = responses
    if "requestState" in params:
        try:
            rounds.earlier = unseal(asking.key, sealed, rounds.scope, asking.now_ms())
        except StateRefused as refusal:
            raise _invalid_input(call, _NOT_GOOD, refusal.reason) from None


def requester_of(call: Invocation, connection: Connection, signal: AbortSignal) -> ServerRequester:
    """Return the object through which the handler of `call` asks its client.

    Raises:
        UsageError: a request of its kind cannot be answered with a request to the client.
    """
    if not facts(call.method).may_ask:
        raise UsageError(f"a handler of {call.method} cannot ask the client")
    if call.peer.revision.is_stateless and _is_forwarded(call):
        raise UsageError(
            "a forwarder asks a client of the stateless mode by an input_required result"
        )
    asking = connection.engine.part(ClientInput)
    strategy = _strategy_of(asking, call, connection, signal)
    return ServerRequester(call.run_id, call.peer, asking.forms, strategy, signal)


def _strategy_of(
    asking: ClientInput, call: Invocation, connection: Connection, signal: AbortSignal
) -> RequestStrategy:
    """Return the way in which requests reach the client of `call`, and answers come back."""
    if not call.peer.revision.is_stateless:
        from .open_requests import ConnectionSender, SessionRequests

        ttl_ms = asking.config.server.input_ttl_ms
        identity = identity_of(call.principal)
        sender = ConnectionSender(connection)
        return SessionRequests(sender, call, identity, signal, ttl_ms, asking.open_requests)
    rounds = _rounds_of(call)
    found = (strategy(call, rounds, signal) for strategy in asking.strategies)
    return next((each for each in found if each is not None), rounds)


def seal_for(asking: ClientInput, call: Invocation, value: Any) -> str:
    """Return a state for the client of `call`; see `Server.seal_state` (FWD-10).

    Raises:
        ToolError: it would be too large.
        TypeError: `value` cannot be written as JSON.
    """
    expires_ms = asking.now_ms() + asking.config.server.input_ttl_ms
    try:
        return seal_value(asking.key, value, _scope_of(call), expires_ms)
    except StateTooLarge:
        raise _too_large() from None


def open_for(asking: ClientInput, call: Invocation, sealed: object) -> Any:
    """Return the value of a state; see `Server.open_state` (FWD-10).

    Raises:
        ForwardedError: the state is not valid for this call.
    """
    try:
        if type(sealed) is not str:
            raise StateRefused("state_tampered")
        return unseal_value(asking.key, sealed, _scope_of(call), asking.now_ms())
    except StateRefused as refusal:
        refused = _invalid_input(call, _NOT_GOOD, refusal.reason)
        raise ForwardedError(refused.code, refused.message, refused.data) from None


def reply_to(
    asking: ClientInput, call: Invocation, error: BaseException, duration_ms: float
) -> tuple[Reply, CallCompleted] | None:
    """Return the reply and the record of a call whose handler stopped to ask its client.

    Returns:
        None where `error` is one like any other.

    Raises:
        ToolError: the call fails with this error instead.
    """
    if call.peer.revision.is_stateless and _is_forwarded(call):
        return None  # its questions are results (FWD-09)
    missing = missing_in(error)
    if missing is not None:
        return _ask(asking, call, missing, duration_ms)
    if has_type(error, UrlElicitationRequired):
        return _send_to_pages(asking, call, error, duration_ms)
    if has_type(error, ClientCapabilityError) and call.peer.revision.is_stateless:
        code = JsonRpcErrorCode.MISSING_CLIENT_CAPABILITY
        data = {"requiredCapabilities": error.required_capabilities}
        return _refuse(call, code, "Missing required client capability", data, duration_ms)
    return None


def _ask(
    asking: ClientInput,
    call: Invocation,
    missing: Mapping[str, PreparedRequest],
    duration_ms: float,
) -> tuple[Reply, CallCompleted]:
    """Reply with the requests, and a state that has all answers so far (ASK-10, ASK-14)."""
    rounds = _rounds_of(call)
    expires_ms = asking.now_ms() + asking.config.server.input_ttl_ms
    try:
        state = seal(asking.key, rounds.state_after(missing), rounds.scope, expires_ms)
    except StateTooLarge:
        raise _too_large() from None
    result = {
        "inputRequests": {key: request.to_wire() for key, request in missing.items()},
        "requestState": state,
    }
    record = completion_record(call, ToolCompletionOutcome.SUCCESS, None, duration_ms)
    record.fields["resultType"] = "input_required"
    typed = asking.results.with_type(call.peer, "input_required", result)
    return result_reply(call.request_id, typed), record


def _send_to_pages(
    asking: ClientInput, call: Invocation, error: UrlElicitationRequired, duration_ms: float
) -> tuple[Reply, CallCompleted]:
    """Reply with the pages that the user has to visit first (ASK-18)."""
    try:
        pages = {
            f"page-{number}": page.prepare(call.peer, asking.forms, f"{call.run_id}/page-{number}")
            for number, page in enumerate(error.pages, 1)
        }
    except ClientCapabilityError as missing:
        asked = reply_to(asking, call, missing, duration_ms)
        if asked is None:
            raise
        return asked
    if not call.peer.revision.names_elicitations:
        return _ask(asking, call, pages, duration_ms)
    subscriptions = asking.subscribing.subscriptions
    for page in pages.values():
        subscriptions.follow_elicitation(call.session, page.params["elicitationId"])
    code = JsonRpcErrorCode.URL_ELICITATION_REQUIRED
    data = {"elicitations": [page.params for page in pages.values()]}
    return _refuse(call, code, error.message, data, duration_ms)


def _refuse(
    call: Invocation,
    code: JsonRpcErrorCode,
    message: str,
    data: dict[str, Any],
    duration_ms: float,
) -> tuple[Reply, CallCompleted]:
    data |= {"runId": call.run_id, "correlationId": call.correlation_id}
    error = StructuredError(ErrorCode.INVALID_ARGUMENT, message)
    record = completion_record(call, ToolCompletionOutcome.TOOL_ERROR, error, duration_ms)
    return error_reply(code, message, data, call.request_id), record


def _is_forwarded(call: Invocation) -> bool:
    return ForwardedRequest in call.parts


def _too_large() -> ToolError:
    return ToolError(
        ErrorCode.RESOURCE_EXHAUSTED,
        "The client's answers are more than can be kept from one round to the next.",
        {"reason": "input_state_too_large"},
    )


def _scope_of(call: Invocation) -> StateScope:
    """Return what a state of the handler of `call` is bound to."""
    sent = call.arguments_as_sent
    arguments = loads(sent) if sent else call.arguments
    return state_scope(call.method, call.name, arguments, call.principal)


def _invalid_input(call: Invocation, problem: str, reason: str = "invalid_params") -> JsonRpcError:
    return invalid_params(problem, reason, correlationId=call.correlation_id)


def _rounds_of(call: Invocation) -> MultiRoundTrip:
    """Return the rounds of a stateless call; without earlier ones this is the first."""
    rounds: MultiRoundTrip | None = call.parts.get(MultiRoundTrip)
    if rounds is None:
        rounds = MultiRoundTrip(_scope_of(call), None, {})
        call.keep(rounds)
    return rounds
