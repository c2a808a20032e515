"""Server requests in the stateless mode: multiple round trips of one call (ASK-10 to ASK-13).

A handler whose request has no answer yet is unwound by `InputRequired`. The call ends with the
requests that the client has to answer, and the client calls again with the answers. The handler
then runs again from its start, and every request that has an answer returns it at once. So a
handler must send the same requests in the same order, and must not do anything before its last
request that may not be done twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import define, field

from ...base.shown import Shown
from ...errors import has_type
from .errors import InvalidClientResult
from .request_state import CallState, StateScope
from .requests import PreparedRequest


class InputRequired(BaseException):
    """Unwinds a handler whose requests have no answer; not an error, and not to be caught.

    Attributes:
        requests: those without an answer, by key.
    """

    def __init__(self, requests: Mapping[str, PreparedRequest]) -> None:
        super().__init__(", ".join(requests))
        self.requests = dict(requests)


@define(eq=False, repr=False)
class MultiRoundTrip(Shown):
    """A `RequestStrategy` that answers requests with the results that came with the call.

    Args:
        scope: what a state of this call is bound to.
        earlier: the state that came with the call; None if none came.
        responses: the results that came with the call, by key; not validated yet.
    """

    scope: StateScope
    earlier: CallState | None
    responses: Mapping[str, Any]
    _answered: dict[str, tuple[str, Any]] = field(factory=dict, init=False)

    async def exchange(self, requests: Mapping[str, PreparedRequest]) -> dict[str, Any]:
        """Return the values for `requests`, by key, if each of them has an answer.

        Raises:
            InputRequired: some of them have none.
        """
        values: dict[str, Any] = {}
        missing: dict[str, PreparedRequest] = {}
        for key, request in requests.items():
            try:
                values[key] = self._answer(key, request)
            except (LookupError, InvalidClientResult):
                # ASK-12: a request whose result is missing or invalid is sent again.
                missing[key] = request
        if missing:
            raise InputRequired(missing)
        return values

    def state_after(self, missing: Mapping[str, PreparedRequest]) -> CallState:
        """Return the state of a call that ends because the answers to `missing` are missing."""
        asked = {key: request.digest() for key, request in missing.items()}
        earlier = {} if self.earlier is None else self.earlier.answers
        answers = {**earlier, **self._answered}
        return CallState(asked, {key: answers[key] for key in answers if key not in missing})

    def _answer(self, key: str, request: PreparedRequest) -> Any:
        """Return the value for one request; raise `KeyError` or `InvalidClientResult`.

        An answer counts for the request that it was given to, and for no later one with the same
        key (ASK-13): consent to one thing is not consent to the next.
        """
        digest = request.digest()
        if self.earlier is not None:
            remembered = self.earlier.answers.get(key)
            if remembered is not None and remembered[0] == digest:
                return request.read(remembered[1])
            # ASK-11: a state names what was asked; an answer to anything else is dropped.
            if remembered is not None or self.earlier.asked.get(key) != digest:
                raise KeyError(key)
        response = self.responses[key]
        value = request.read(response)
        self._answered[key] = digest, response
        return value


def missing_in(error: BaseException) -> dict[str, PreparedRequest] | None:
    """Return the requests without an answer that ended a handler; None if another error did.

    Requests sent side by side in a task group come as a group of exceptions.
    """
    if has_type(error, InputRequired):
        return error.requests
    if not has_type(error, BaseExceptionGroup):
        return None
    found: dict[str, PreparedRequest] = {}
    for one in error.exceptions:
        missing = missing_in(one)
        if missing is None:
            return None
        found |= missing
    return found
