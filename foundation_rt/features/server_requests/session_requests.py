"""Server requests in the handshake mode: requests of their own, with responses (ASK-17).

The handler waits until every response has come, or until its call is aborted: then its open
requests are cancelled, and it is unwound. A user may take longer than a call may, so the deadline
of the call is paused meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from attrs import define

from ...base.abort import Waiter
from .errors import AnswerTimeoutError, ClientErrorResponse, ServerRequestError

if TYPE_CHECKING:
    from ...base.abort import AbortSignal
    from ...kernel.principal_shares import Quota
    from .requests import PreparedRequest

Call = TypeVar("Call")
CallIn = TypeVar("CallIn", contravariant=True)

OnResponse = Callable[[Any, Any], object]
"""Takes the result and the error of a response, one of which is None; from any thread.

In place of the error it takes a `ServerRequestError` where there will be no response.
"""


class RequestSender(Protocol[CallIn]):
    """Sends requests to a client on behalf of calls."""

    def request(
        self, call: CallIn, request: PreparedRequest, on_response: OnResponse
    ) -> str | None:
        """Send `request`; return its id, or None if `call` has been answered or aborted."""

    def cancel_requests(self, call: CallIn, request_ids: list[str]) -> None:
        """Cancel those requests that have no response yet."""

    def pause_deadline(self, call: CallIn) -> None:
        """Stop the deadline of `call` until `resume_deadline`."""

    def resume_deadline(self, call: CallIn) -> None:
        """Let the deadline of `call` go on."""


@define(eq=False, repr=False)
class SessionRequests(Generic[Call]):
    """A `RequestStrategy` that sends each request to the client of one call.

    Args:
        identity: of the call's principal, whose share the open requests count for.
        signal: the call's.
        ttl_ms: how long to wait for a response, in ms.
        quota: counts the open requests.
    """

    sender: RequestSender[Call]
    call: Call
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
