"""A request with its input rounds (CLIENT-26).

In the stateless mode a server asks with an `input_required` result; the request is sent again with
the responses (MCP 2026-07-28, "Multi Round-Trip Requests").
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import define

from ...protocol.methods import facts
from ..errors import InvalidResponseError, MCPError
from ..handlers.client_handlers import ClientHandlers
from ..handlers.server_requests import ServerRequestHandlers, answer_all
from ..resilience.retries import Attempt
from ..session.session import ClientSession
from ..transports.transport import NO_HEADER_PARAMS

if TYPE_CHECKING:
    from ...protocol.revisions import Revision

MAX_ROUNDS = 10
"""Most input rounds of one request."""


@define(eq=False, repr=False)
class InputRounds:
    """Sends a request again with the requested input, until it is complete.

    Args:
        handlers: of the client; those of an attempt come before them.
        handler_timeout: seconds that the handlers of one round may take.
    """

    handlers: ServerRequestHandlers
    handler_timeout: float

    async def exchange(
        self,
        session: ClientSession,
        method: str,
        params: Mapping[str, Any],
        attempt: Attempt,
        meta: Mapping[str, Any] | None = None,
        header_params: Mapping[str, str] = NO_HEADER_PARAMS,
    ) -> dict[str, Any]:
        """Return the complete result of a request; see `ClientSession.request`.

        Raises:
            MCPError: there is none; E210: a handler refused the input.
        """
        said, rounds = params, 0
        while True:
            result = await session.request(
                method, said, attempt, meta=meta, header_params=header_params
            )
            if is_complete(session, method, result):
                return result
            if rounds == MAX_ROUNDS:
                raise InvalidResponseError(f"{method} asked for input {rounds + 1} times")
            attempt.has_begun = True
            rounds += 1
            said = {**params, **await self._input(session, result, attempt)}

    async def _input(
        self, session: ClientSession, result: Mapping[str, Any], attempt: Attempt
    ) -> dict[str, Any]:
        """Return the input that a result requires, with its opaque `requestState`."""
        along = {name: result[name] for name in ("requestState",) if name in result}
        if "inputRequests" in result:
            along["inputResponses"] = await self._responses(
                session, result["inputRequests"], attempt
            )
        if not along:
            raise InvalidResponseError("the server wants input and does not say which")
        return along

    async def _responses(
        self, session: ClientSession, requests: Any, attempt: Attempt
    ) -> dict[str, Any]:
        """Run the caller's handlers, with the deadline paused (CLIENT-20)."""
        handlers = self.handlers if attempt.handlers is None else attempt.handlers
        if attempt.deadline is not None:
            attempt.deadline.hold()
        try:
            async with asyncio.timeout(self.handler_timeout):
                return await _answers(handlers, requests, session.server.revision)
        except TimeoutError:
            raise MCPError(
                "E210", "what the server asked was not answered in time", may_have_run=True
            ) from None
        finally:
            if attempt.deadline is not None:
                attempt.deadline.resume()


async def _answers(
    handlers: ServerRequestHandlers, requests: Any, revision: Revision
) -> dict[str, Any]:
    if isinstance(handlers, ClientHandlers):
        return await handlers.handle_all(requests, revision)
    return await answer_all(handlers, requests, revision)


def is_complete(session: ClientSession, method: str, result: Mapping[str, Any]) -> bool:
    """Return whether a result is complete; if not, it requires input (CLIENT-14).

    Raises:
        InvalidResponseError: a result of this method cannot be of its type.
    """
    kind = result.get("resultType", "complete")
    if kind == "complete" or not session.server.revision.is_stateless:
        return True
    if kind != "input_required" or not facts(method).may_ask:
        raise InvalidResponseError(f"the result of {method} is of no known type")
    return False
