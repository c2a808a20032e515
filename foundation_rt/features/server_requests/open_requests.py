"""Server requests in the handshake mode: requests of their own, with responses (ASK-17).

The handler waits until every response has come, or until its call is aborted: then its open
requests are cancelled, and it is unwound. A user may take longer than a call may, so the deadline
of the call is paused meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define

from ...base.waiter import Waiter
from ...errors import UsageError
from ...kernel.effects import FeatureCallback, Log, Notify
from ...kernel.invocation import Phase
from ...kernel.session import Session, SessionPart
from ...protocol.jsonrpc import encode
from ...protocol.methods import NOTIFICATIONS_CANCELLED
from ..subscriptions.methods import subscriptions_of
from ..subscriptions.subscriptions import MAX_ELICITATION_ID_LENGTH
from .errors import AnswerTimeoutError, ClientErrorResponse, ServerRequestError

if TYPE_CHECKING:
    from ...base.abort import AbortSignal
    from ...base.principal_shares import Quota
    from ...kernel.dispatcher import Dispatcher
    from ...kernel.effects import Effect
    from ...kernel.engine.connection import Connection
    from ...kernel.invocation import Invocation
    from ...protocol.jsonrpc import Response
    from .requests import PreparedRequest


class SentRequests(SessionPart):
    """The open requests of one session.

    Attributes:
        callers: by the id of each open request, what takes its response.
        count: how many requests the server has sent; makes their ids unique.
    """

    __slots__ = ("callers", "count")

    def __init__(self) -> None:
        self.callers: dict[str, OnResponse] = {}
        self.count = 0


def open_requests(session: Session) -> Collection[str]:
    """Return the ids of the requests of a session that have no response yet."""
    part: SentRequests | None = session.parts.get(SentRequests)
    return () if part is None else part.callers.keys()


@define(eq=False, repr=False)
class ConnectionSender:
    """Sends requests for the calls of a connection; safe from any thread."""

    _connection: Connection

    def request(
        self, call: Invocation, request: PreparedRequest, on_response: OnResponse
    ) -> str | None:
        """Send a request to the client of `call`; `on_response` is given the response.

        Returns:
            The id of the request; None if the call has been answered or aborted.
        """
        connection = self._connection
        with connection.lock:
            request_id, effects = ask(connection.dispatcher, call, request, on_response)
            rest = connection.emit_from_thread(effects)
        connection.perform(rest)
        return request_id

    def cancel_requests(self, call: Invocation, request_ids: list[str]) -> None:
        """Cancel those requests of a call that have no response yet."""
        connection = self._connection
        with connection.lock:
            rest = connection.emit_from_thread(cancel_requests(call, request_ids))
        connection.perform(rest)

    def pause_deadline(self, call: Invocation) -> None:
        """Stop the deadline of a call that waits for its client, until `resume_deadline`."""
        self._connection.engine.pause_deadline(call)

    def resume_deadline(self, call: Invocation) -> None:
        """Let the deadline of a call go on."""
        self._connection.engine.resume_deadline(call)


def ask(
    dispatcher: Dispatcher, call: Invocation, request: PreparedRequest, on_response: OnResponse
) -> tuple[str | None, list[Effect]]:
    """Return the id of a new request to the client of `call`, and the effects that send it.

    The id is None if the call has been answered or aborted.

    Raises:
        TypeError: its params cannot be written as JSON.
        UsageError: the call has ended, but code that it started still sends requests.
    """
    session = call.session
    if not call.is_pending:
        if call.phase is Phase.PENDING:
            raise UsageError("the call has ended: a handler asks its client while it runs")
        return None, []
    part = session.part(SentRequests)
    part.count += 1
    request_id = f"server-{part.count}"
    line = encode({"jsonrpc": "2.0", "id": request_id, **request.to_wire()})
    part.callers[request_id] = on_response
    elicitation_id = request.params.get("elicitationId")
    if type(elicitation_id) is str and len(elicitation_id) <= MAX_ELICITATION_ID_LENGTH:
        subscriptions_of(dispatcher).follow_elicitation(session, elicitation_id)
    return request_id, [Notify(line, call.request_id)]


def cancel_requests(call: Invocation, request_ids: list[str]) -> list[Effect]:
    """Cancel those requests to the client of `call` that have no response yet."""
    part = call.session.part(SentRequests)
    cancelled = [each for each in request_ids if part.callers.pop(each, None) is not None]
    belongs = call.request_id if call.is_pending else None
    return [Notify(_cancelled(request_id), belongs) for request_id in cancelled]


def fail_requests(session: Session, away_ms: int) -> list[Effect]:
    """Raise `ClientGoneError` in the handlers that wait for a response (ASK-19).

    They cancel their requests, as after any other failure.
    """
    from .errors import ClientGoneError

    callers = sorted(session.part(SentRequests).callers.items())
    return [FeatureCallback(partial(each, None, ClientGoneError(away_ms))) for _, each in callers]


def take_response(dispatcher: Dispatcher, session: Session, response: Response) -> list[Effect]:
    """Pass a response on to the request that it answers (ASK-17); drop any other (RPC-07)."""
    callers = session.part(SentRequests).callers
    on_response = callers.pop(response.id, None) if type(response.id) is str else None
    if on_response is None:
        return [Log("debug", "response dropped: nothing was asked", {})]
    return [FeatureCallback(partial(on_response, response.result, response.error))]


def _cancelled(request_id: str) -> bytes:
    params = {"requestId": request_id, "reason": "The answer is not needed any more."}
    return encode({"jsonrpc": "2.0", "method": NOTIFICATIONS_CANCELLED, "params": params})


OnResponse = Callable[[Any, Any], object]
"""Takes the result and the error of a response, one of which is None; from any thread.

In place of the error it takes a `ServerRequestError` where there will be no response.
"""


@define(eq=False, repr=False)
class SessionRequests:
    """A `RequestStrategy` that sends each request to the client of one call.

    Args:
        identity: of the call's principal, whose share the open requests count for.
        signal: the call's.
        ttl_ms: how long to wait for a response, in ms.
        quota: counts the open requests.
    """

    sender: ConnectionSender
    call: Invocation
    identity: str | None
    signal: AbortSignal
    ttl_ms: int
    quota: Quota

    async def exchange(self, requests: Mapping[str, PreparedRequest]) -> dict[str, Any]:
        """Send `requests`; return the values of their responses, by key.

        Raises:
            AbortError: the call has been aborted meanwhile.
            ServerRequestError: a response is an error or invalid, or did not come in time.
            LimitReached: too many requests are open; none of these was sent (RES-17).
        """
        waiter = Waiter[None]()
        values: dict[str, Any] = {}

        def receive(key: str, result: Any, error: Any) -> None:
            try:
                values[key] = _read(requests[key], result, error)
            except ServerRequestError as failure:
                waiter.fail(failure)
            if len(values) == len(requests):
                waiter.resolve(None)

        self.quota.take(self.identity, len(requests))
        timer = waiter.call_later(self.ttl_ms / 1000, waiter.fail, AnswerTimeoutError(self.ttl_ms))
        self.sender.pause_deadline(self.call)
        sent: list[str] = []
        try:
            for key, request in requests.items():
                on_response = partial(waiter.call, receive, key)
                request_id = self.sender.request(self.call, request, on_response)
                if request_id is None:
                    break  # its signal has fired, or is about to
                sent.append(request_id)
            await waiter.wait(self.signal)
        finally:
            timer.cancel()
            self.sender.cancel_requests(self.call, sent)
            self.sender.resume_deadline(self.call)
            self.quota.give_back(self.identity, len(requests))
        return values


def _read(request: PreparedRequest, result: Any, error: Any) -> Any:
    if error is None:
        return request.read(result)
    if isinstance(error, ServerRequestError):
        raise error
    code = error.get("code") if type(error) is dict else None
    message = error.get("message") if type(error) is dict else None
    raise ClientErrorResponse(
        code if type(code) is int else None,
        message if type(message) is str else "no reason was given",
        error.get("data") if type(error) is dict else None,
    )
