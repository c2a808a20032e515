"""Requests to the client, as they concern a call: its answers come in, and requests go out.

The other modules of this folder make the requests themselves; here they meet the protocol
(spec/server-requests.md). A stateless call may bring answers, and a state that says to which
requests they belong. It may end without a result: because answers are missing, or because its
client cannot be asked.

Those modules are imported when a handler first asks: few servers ever do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...base.exact_json import dumps, loads
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
from ...kernel.feature import Feature, lazy
from ...kernel.records import completion_record
from ...kernel.replies import error_reply, invalid_params, result_reply
from ...protocol.jsonrpc import Response
from ...protocol.methods import facts
from ...protocol.principal import identity_of
from ..subscriptions.subscribing import Subscribing

if TYPE_CHECKING:
    from ...base.abort import AbortSignal
    from ...base.config.settings import ServerConfig
    from ...kernel.dispatcher import Dispatcher
    from ...kernel.effects import CallCompleted, Reply
    from ...kernel.engine.executor import Engine
    from ...kernel.invocation import Invocation
    from ...kernel.principal_shares import Quota
    from ...kernel.replies import ResultWriter
    from .errors import UrlElicitationRequired
    from .forms import Forms
    from .open_requests import RequestSender
    from .request_state import StateScope
    from .requester import RequestStrategy, ServerRequester
    from .requests import PreparedRequest
    from .round_trips import MultiRoundTrip

    Strategy = Callable[[Invocation, MultiRoundTrip, AbortSignal], RequestStrategy | None]

_ANSWER_MEMBERS = frozenset(("inputResponses", "requestState"))

_NOT_GOOD = "requestState is not good here"

_ERRORS = "foundation_rt.features.server_requests.errors"


@define(eq=False, repr=False)
class ClientInput(Feature):
    """Reads the answers that a call brings, and writes the requests that it ends with.

    Args:
        key: seals states; all servers that may serve the retries of a call share it.
        config: how long a state is valid, how long to wait for an answer, and how many requests
            may be open.
        now_ms: returns the wall-clock time, in ms since 1970.

    Attributes:
        strategies: asked in turn how a call of the stateless mode asks; None: by round trips.
    """

    key: bytes
    config: ServerConfig
    now_ms: Callable[[], int]
    results: ResultWriter = field(init=False)
    subscribing: Subscribing = field(init=False)
    strategies: list[Strategy] = field(factory=list, init=False)
    _forms: Forms | None = field(default=None, init=False)
    _open_requests: Quota | None = field(default=None, init=False)

    messages = MappingProxyType({Response: lazy(f"{__package__}.open_requests", "take_response")})

    def decide(self, dispatcher: Dispatcher) -> None:
        """Take part in the decisions of a server."""
        self.results = dispatcher.results
        self.subscribing = dispatcher.parts[Subscribing]

    def join(self, engine: Engine) -> None:
        """Be found by the handlers of a server."""
        engine.parts[ClientInput] = self

    # -- before the handler runs ---------------------------------------------------------------

    def prepared(self, call: Invocation, params: Mapping[str, Any]) -> None:
        """Read the answers that came with a stateless call (ASK-11, ASK-14).

        Raises:
            JsonRpcError: they are malformed, or the state is not valid for this call.
        """
        if not facts(call.method).may_ask:
            return
        # The scope of a state follows from the arguments, and a handler may change its own. To
        # work the scope out now would cost every call 13 us.
        call.arguments_as_sent = dumps(call.arguments)
        if params.keys().isdisjoint(_ANSWER_MEMBERS):
            return
        responses = params.get("inputResponses", {})
        sealed = params.get("requestState", "")
        if type(responses) is not dict:
            raise _invalid_input(call, "inputResponses must be an object")
        if type(sealed) is not str:
            raise _invalid_input(call, "requestState must be a string")
        rounds = _rounds_of(call)
        rounds.responses = responses
        if "requestState" in params:
            from .request_state import StateRefused, unseal

            try:
                rounds.earlier = unseal(self.key, sealed, rounds.scope, self.now_ms())
            except StateRefused as refusal:
                raise _invalid_input(call, _NOT_GOOD, refusal.reason) from None

    # -- while it runs -------------------------------------------------------------------------

    def server_requester(
        self, call: Invocation, sender: RequestSender[Invocation], signal: AbortSignal
    ) -> ServerRequester:
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
        from .requester import ServerRequester

        strategy = self._strategy_of(call, sender, signal)
        return ServerRequester(call.run_id, call.peer, self.forms, strategy, signal)

    def _strategy_of(
        self, call: Invocation, sender: RequestSender[Invocation], signal: AbortSignal
    ) -> RequestStrategy:
        """Return the way in which requests reach the client of `call`, and answers come back."""
        if not call.peer.revision.is_stateless:
            from .open_requests import SessionRequests

            ttl_ms = self.config.server.input_ttl_ms
            identity = identity_of(call.principal)
            return SessionRequests(sender, call, identity, signal, ttl_ms, self.open_requests)
        rounds = _rounds_of(call)
        found = (strategy(call, rounds, signal) for strategy in self.strategies)
        return next((each for each in found if each is not None), rounds)

    @property
    def forms(self) -> Forms:
        """Return the compiled forms of all calls."""
        if self._forms is None:
            from .forms import Forms

            self._forms = Forms()
        return self._forms

    @property
    def open_requests(self) -> Quota:
        """Return the quota of open requests of all calls (RES-17)."""
        if self._open_requests is None:
            from ...kernel.principal_shares import Limit, Quota

            limit = Limit(
                self.config.resources.max_server_requests,
                "places for open requests to clients",
                "maxServerRequests",
                "too_many_server_requests",
                "server_request_share",
            )
            self._open_requests = Quota(self.config, limit)
        return self._open_requests

    # -- states of a forwarder -----------------------------------------------------------------

    def seal_value(self, call: Invocation, value: Any) -> str:
        """Return a state for the client of `call`; see `Server.seal_state` (FWD-10).

        Raises:
            ToolError: it would be too large.
            TypeError: `value` cannot be written as JSON.
        """
        from .request_state import StateTooLarge, seal_value

        expires_ms = self.now_ms() + self.config.server.input_ttl_ms
        try:
            return seal_value(self.key, value, _scope_of(call), expires_ms)
        except StateTooLarge:
            raise _too_large() from None

    def open_value(self, call: Invocation, sealed: object) -> Any:
        """Return the value of a state; see `Server.open_state` (FWD-10).

        Raises:
            ForwardedError: the state is not valid for this call.
        """
        from ..proxy.forwarder import ForwardedError
        from .request_state import StateRefused, unseal_value

        try:
            if type(sealed) is not str:
                raise StateRefused("state_tampered")
            return unseal_value(self.key, sealed, _scope_of(call), self.now_ms())
        except StateRefused as refusal:
            refused = _invalid_input(call, _NOT_GOOD, refusal.reason)
            raise ForwardedError(refused.code, refused.message, refused.data) from None

    # -- when it has ended ---------------------------------------------------------------------

    def raised(
        self, call: Invocation, error: BaseException, duration_ms: float
    ) -> tuple[Reply, CallCompleted] | None:
        """Return the reply and the record of a call whose handler stopped to ask its client.

        Returns:
            None where `error` is one like any other.

        Raises:
            ToolError: the call fails with this error instead.
        """
        if _ERRORS not in sys.modules:
            return None
        if call.peer.revision.is_stateless and _is_forwarded(call):
            return None  # its questions are results (FWD-09)
        from .errors import ClientCapabilityError, UrlElicitationRequired
        from .round_trips import missing_in

        missing = missing_in(error)
        if missing is not None:
            return self._ask(call, missing, duration_ms)
        if has_type(error, UrlElicitationRequired):
            return self._send_to_pages(call, error, duration_ms)
        if has_type(error, ClientCapabilityError) and call.peer.revision.is_stateless:
            code = JsonRpcErrorCode.MISSING_CLIENT_CAPABILITY
            data = {"requiredCapabilities": error.required_capabilities}
            return _refuse(call, code, "Missing required client capability", data, duration_ms)
        return None

    def _ask(
        self, call: Invocation, missing: Mapping[str, PreparedRequest], duration_ms: float
    ) -> tuple[Reply, CallCompleted]:
        """Reply with the requests, and a state that has all answers so far (ASK-10, ASK-14)."""
        from .request_state import StateTooLarge, seal

        rounds = _rounds_of(call)
        expires_ms = self.now_ms() + self.config.server.input_ttl_ms
        try:
            state = seal(self.key, rounds.state_after(missing), rounds.scope, expires_ms)
        except StateTooLarge:
            raise _too_large() from None
        result = {
            "inputRequests": {key: request.to_wire() for key, request in missing.items()},
            "requestState": state,
        }
        record = completion_record(call, ToolCompletionOutcome.SUCCESS, None, duration_ms)
        record.fields["resultType"] = "input_required"
        typed = self.results.with_type(call.peer, "input_required", result)
        return result_reply(call.request_id, typed), record

    def _send_to_pages(
        self, call: Invocation, error: UrlElicitationRequired, duration_ms: float
    ) -> tuple[Reply, CallCompleted]:
        """Reply with the pages that the user has to visit first (ASK-18)."""
        from .errors import ClientCapabilityError

        try:
            pages = {
                f"page-{number}": page.prepare(
                    call.peer, self.forms, f"{call.run_id}/page-{number}"
                )
                for number, page in enumerate(error.pages, 1)
            }
        except ClientCapabilityError as missing:
            asked = self.raised(call, missing, duration_ms)
            if asked is None:
                raise
            return asked
        if not call.peer.revision.names_elicitations:
            return self._ask(call, pages, duration_ms)
        subscriptions = self.subscribing.subscriptions
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
    from ..proxy.forwarder import ForwardedRequest

    return ForwardedRequest in call.parts


def _too_large() -> ToolError:
    return ToolError(
        ErrorCode.RESOURCE_EXHAUSTED,
        "The client's answers are more than can be kept from one round to the next.",
        {"reason": "input_state_too_large"},
    )


def _scope_of(call: Invocation) -> StateScope:
    """Return what a state of the handler of `call` is bound to."""
    from .request_state import state_scope

    sent = call.arguments_as_sent
    arguments = loads(sent) if sent else call.arguments
    return state_scope(call.method, call.name, arguments, call.principal)


def _invalid_input(call: Invocation, problem: str, reason: str = "invalid_params") -> JsonRpcError:
    return invalid_params(problem, reason, correlationId=call.correlation_id)


def _rounds_of(call: Invocation) -> MultiRoundTrip:
    """Return the rounds of a stateless call; without earlier ones this is the first."""
    from .request_state import state_scope
    from .round_trips import MultiRoundTrip

    rounds: MultiRoundTrip | None = call.parts.get(MultiRoundTrip)
    if rounds is None:
        arguments = loads(call.arguments_as_sent)
        scope = state_scope(call.method, call.name, arguments, call.principal)
        rounds = MultiRoundTrip(scope, None, {})
        call.keep(rounds)
    return rounds
