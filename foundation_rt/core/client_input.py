"""What asking its client means for a call: what comes along with it, and what it ends with.

The questions themselves are the business of `server_requests`; here they meet the protocol
(spec/client-requests.md). A call of the stateless mode may bring answers, and a state that says
what they are answers to. It may end without a result: because answers are lacking, or because its
client cannot be asked.

`server_requests` is imported when there is something to ask: few servers ever do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from ..errors import (
    ErrorCode,
    JsonRpcErrorCode,
    StructuredError,
    ToolCompletionOutcome,
    UsageError,
    has_type,
)
from ..protocol.principal import identity_of
from .records import completion_record
from .replies import error_reply, result_reply

if TYPE_CHECKING:
    from ..abort import AbortSignal
    from ..config.settings import ServerConfig
    from ..server_requests.errors import UrlElicitationRequired
    from ..server_requests.forms import Forms
    from ..server_requests.requester import ServerRequester
    from ..server_requests.requests import PreparedRequest
    from ..server_requests.round_trips import MultiRoundTrip
    from ..server_requests.session_requests import RequestChannel
    from ..shares import Quota
    from .effects import Effect
    from .invocation import Invocation
    from .replies import ResultWriter
    from .subscriptions import Subscriptions

MAY_ASK = frozenset(("tools/call", "prompts/get", "resources/read"))
"""The requests that may be answered with a question (ASK-02)."""

_ALONG = frozenset(("inputResponses", "requestState"))

_ERRORS = "foundation_rt.server_requests.errors"


class InputRefused(Exception):
    """What came along with a request cannot be used; it is answered with -32602.

    Attributes:
        reason: for programs.
    """

    def __init__(self, reason: str, what: str) -> None:
        super().__init__(what)
        self.reason = reason


@define(eq=False, repr=False)
class ClientInput:
    """Opens what a call brings along, and decides what it ends with when it has asked.

    Args:
        key: seals states; all who may serve the retries of a call have the same one.
        config: says how long a state is good and an answer is waited for, and how many questions
            may be open.
        now_ms: the wall-clock time, in ms since 1970.
    """

    key: bytes
    config: ServerConfig
    now_ms: Callable[[], int]
    results: ResultWriter
    subscriptions: Subscriptions
    _forms: Forms | None = field(default=None, init=False)
    _questions: Quota | None = field(default=None, init=False)

    # -- before the handler runs ---------------------------------------------------------------

    def open(self, call: Invocation, params: Mapping[str, Any]) -> None:
        """Take in the answers that came with a call of the stateless mode (ASK-11, ASK-14).

        Raises:
            InputRefused: they are malformed, or the state is not good for this call.
        """
        # What a state is good for follows from them, and a handler may change its own. Working it
        # out now would cost every call 13 us.
        call.arguments_as_sent = orjson.dumps(call.arguments)
        if params.keys().isdisjoint(_ALONG):
            return
        responses = params.get("inputResponses", {})
        sealed = params.get("requestState", "")
        if type(responses) is not dict:
            raise InputRefused("invalid_params", "inputResponses must be an object")
        if type(sealed) is not str:
            raise InputRefused("invalid_params", "requestState must be a string")
        rounds = _rounds_of(call)
        rounds.responses = responses
        if "requestState" in params:
            from ..server_requests.request_state import StateRefused, unseal

            try:
                rounds.earlier = unseal(self.key, sealed, rounds.good_for, self.now_ms())
            except StateRefused as refused:
                raise InputRefused(refused.reason, "requestState is not good here") from None

    # -- while it runs -------------------------------------------------------------------------

    def server_requester(
        self, call: Invocation, channel: RequestChannel[Invocation], signal: AbortSignal
    ) -> ServerRequester:
        """What the handler of `call` asks its client with.

        Raises:
            UsageError: a request of its kind cannot be answered with a question.
        """
        if call.method not in MAY_ASK:
            raise UsageError(f"a handler of {call.method} cannot ask the client")
        from ..server_requests.requester import ServerRequester
        from ..server_requests.session_requests import SessionRequests

        if call.peer.revision.is_stateless:
            exchange = call.procedure.exchange(call, _rounds_of(call), signal)
        else:
            ttl_ms = self.config.server.input_ttl_ms
            exchange = SessionRequests(
                channel, call, identity_of(call.principal), signal, ttl_ms, self.questions
            )
        return ServerRequester(call.run_id, call.peer, self.forms, exchange, signal)

    @property
    def forms(self) -> Forms:
        """The forms of all calls."""
        if self._forms is None:
            from ..server_requests.forms import Forms

            self._forms = Forms()
        return self._forms

    @property
    def questions(self) -> Quota:
        """Return what counts the open questions of all calls (RES-17)."""
        if self._questions is None:
            from ..shares import Limit, Quota

            most = self.config.resources.max_questions
            noun, reasons = "places for open questions", ("too_many_questions", "question_share")
            self._questions = Quota(self.config, Limit(most, noun, "maxQuestions", *reasons))
        return self._questions

    # -- when it has ended ---------------------------------------------------------------------

    def answer(
        self, call: Invocation, error: BaseException, duration_ms: float
    ) -> list[Effect] | None:
        """The reply and the record of a call whose handler was unwound to ask its client.

        Returns:
            None where it was not, and `error` is one like any other.
        """
        if _ERRORS not in sys.modules:
            return None
        from ..server_requests.errors import ClientCapabilityError, UrlElicitationRequired
        from ..server_requests.round_trips import missing_in

        lacking = missing_in(error)
        if lacking is not None:
            return self._ask(call, lacking, duration_ms)
        if has_type(error, UrlElicitationRequired):
            return self._send_to_pages(call, error, duration_ms)
        if has_type(error, ClientCapabilityError) and call.peer.revision.is_stateless:
            return self._refuse(
                call,
                JsonRpcErrorCode.MISSING_CLIENT_CAPABILITY,
                "Missing required client capability",
                {"requiredCapabilities": error.required_capabilities},
                duration_ms,
            )
        return None

    def _ask(
        self, call: Invocation, lacking: Mapping[str, PreparedRequest], duration_ms: float
    ) -> list[Effect]:
        """The result that asks, with a state that has all answers so far (ASK-10, ASK-14)."""
        from ..server_requests.request_state import StateTooLarge, seal

        rounds = _rounds_of(call)
        expires_ms = self.now_ms() + self.config.server.input_ttl_ms
        try:
            state = seal(self.key, rounds.state_after(lacking), rounds.good_for, expires_ms)
        except StateTooLarge:
            error = StructuredError(
                ErrorCode.RESOURCE_EXHAUSTED,
                "The client's answers are more than can be kept from one round to the next.",
                {"reason": "input_state_too_large"},
            )
            return _fail(call, error, duration_ms)
        result = {
            "inputRequests": {key: question.to_wire() for key, question in lacking.items()},
            "requestState": state,
        }
        record = completion_record(call, ToolCompletionOutcome.SUCCESS, None, duration_ms)
        record.fields["resultType"] = "input_required"
        typed = self.results.with_type(call.peer, "input_required", result)
        return [result_reply(call.request_id, typed), record]

    def _send_to_pages(
        self, call: Invocation, error: UrlElicitationRequired, duration_ms: float
    ) -> list[Effect]:
        """The user has to visit pages first (ASK-18)."""
        from ..server_requests.errors import ClientCapabilityError

        try:
            pages = {
                f"page-{number}": page.prepare(
                    call.peer, self.forms, f"{call.run_id}/page-{number}"
                )
                for number, page in enumerate(error.pages, 1)
            }
        except ClientCapabilityError as lacking:
            asked = self.answer(call, lacking, duration_ms)
            return asked or _fail(call, lacking.to_structured(), duration_ms)
        if call.peer.revision.names_elicitations:
            for page in pages.values():
                self.subscriptions.follow_elicitation(call.session, page.params["elicitationId"])
            return self._refuse(
                call,
                JsonRpcErrorCode.URL_ELICITATION_REQUIRED,
                error.message,
                {"elicitations": [page.params for page in pages.values()]},
                duration_ms,
            )
        return self._ask(call, pages, duration_ms)

    def _refuse(
        self,
        call: Invocation,
        code: JsonRpcErrorCode,
        message: str,
        data: dict[str, Any],
        duration_ms: float,
    ) -> list[Effect]:
        data |= {"runId": call.run_id, "correlationId": call.correlation_id}
        failed = ToolCompletionOutcome.TOOL_ERROR
        record = completion_record(call, failed, ErrorCode.INVALID_ARGUMENT, duration_ms)
        return [error_reply(code, message, data, call.request_id), record]


def _fail(call: Invocation, error: StructuredError, duration_ms: float) -> list[Effect]:
    record = completion_record(call, ToolCompletionOutcome.TOOL_ERROR, error.code, duration_ms)
    return [call.procedure.error_reply(call, error), record]


def _rounds_of(call: Invocation) -> MultiRoundTrip:
    """The rounds of a call of the stateless mode, this one being the first if none are known of."""
    if call.rounds is None:
        from ..server_requests.request_state import purpose
        from ..server_requests.round_trips import MultiRoundTrip

        arguments = orjson.loads(call.arguments_as_sent)
        good_for = purpose(call.method, call.name, arguments, call.principal)
        call.rounds = MultiRoundTrip(good_for, None, {})
    return call.rounds
