"""Requests of servers, brought to the client whose call they belong to (GATE-20 to GATE-23).

In the handshake mode a server sends them as messages of their own, in the stateless mode in the
result of the call, which the client then repeats with its responses. Each side of the gateway may
be of either mode:

| client    | server    | the way of a server's request                                        |
|-----------|-----------|----------------------------------------------------------------------|
| handshake | handshake | as it came, and so does the response                                 |
| handshake | stateless | one by one; the gateway repeats the call with the responses          |
| stateless | stateless | in the result, as it came; the server's state is sealed in ours      |
| stateless | handshake | in a result of the gateway; the server's call is parked meanwhile    |

Nothing is guessed: a request that belongs to no call that is known is refused.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define

from ...client import InvalidResponseError, MCPError, ServerRequestRefused
from ...errors import JsonRpcErrorCode
from ...features.forwarding.forwarder import ForwardedError
from ...features.server_requests.errors import ClientErrorResponse, ServerRequestError
from ...protocol.methods import (
    CLIENT_CAPABILITIES,
)
from .parked_calls import InputRequests, ParkedCall, ParkedCalls, UnknownParkedCall

if TYPE_CHECKING:
    from ...client import Revision
    from ...features.context import ToolContext
    from ...protocol.peer import Peer
    from ...server import Server

TASKS = "io.modelcontextprotocol/tasks"
"""The extension by which a call may become a task."""

MAX_ROUNDS = 32
"""Most rounds of one call that the gateway carries out for a client of the handshake mode."""

MAX_INPUT_REQUESTS = 100

_ROOTS_CHANGE = ("roots", "listChanged")

Respond = Callable[[str, Any], Awaitable[dict[str, Any]]]
"""Sends a request, its method and params, to a client; returns the result as it came."""


def owner_of(context: ToolContext) -> str:
    """Return the identity of the principal; "" where authentication is off."""
    return "" if context.principal is None else context.principal.identity


def client_of(context: ToolContext) -> dict[str, Any]:
    """Return how a server's connections tell the client of a request from others."""
    return {
        "session": context.session_key,
        "principal": owner_of(context) or None,
        "client_headers": context.headers,
    }


@define(eq=False)
class CallHandlers:
    """The handlers of a call to a server: they pass its requests on to the client.

    Attributes:
        client: the client, whose capabilities the server sees.
        respond: sends a request to it.
        context: returns that of the client's request that waits; None while none does.
    """

    client: Peer
    respond: Respond
    context: Callable[[], ToolContext | None]

    def capabilities(self, revision: Revision) -> dict[str, Any]:
        """Return the capabilities of the client, as far as `revision` has such requests."""
        declared: dict[str, Any] = {}
        if not self.client.capabilities:
            return declared
        for path in sorted(self.client.capabilities):
            if path == _ROOTS_CHANGE and revision.is_stateless:
                continue
            if path[0] in CLIENT_CAPABILITIES.values():
                inner = declared
                for name in path[:-1]:
                    inner = inner[name]
                inner[path[-1]] = True if path == _ROOTS_CHANGE else {}
        if self.client.can("extensions", TASKS) and revision.has("capabilities", "extensions"):
            declared["extensions"] = {TASKS: {}}
        return declared

    async def handle(self, method: str, params: Any, revision: Revision) -> dict[str, Any]:
        """Return the client's result for a request that came as a message; see `pass_on`."""
        return await self.pass_on(method, params)

    async def pass_on(self, method: str, params: Any) -> dict[str, Any]:
        """Return the client's result.

        Raises:
            ServerRequestRefused: the client refused, or has not declared that it can be asked.
        """
        capability = CLIENT_CAPABILITIES.get(method)
        if capability is None or not self.client.can(capability):
            raise ServerRequestRefused(
                JsonRpcErrorCode.METHOD_NOT_FOUND,
                "Method not found: this client did not declare that it can be asked",
                {"reason": "not_declared"},
            )
        try:
            return await self.respond(method, params)
        except ClientErrorResponse as error:
            code = error.json_rpc_code or int(JsonRpcErrorCode.INTERNAL_ERROR)
            refused = ServerRequestRefused(code, error.json_rpc_message, error.json_rpc_data)
            raise refused from None
        except ServerRequestError as error:
            raise ServerRequestRefused(
                JsonRpcErrorCode.INTERNAL_ERROR, error.message, error.details
            ) from None

    def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Pass progress of the server on, as long as the client waits."""
        context = self.context()
        if context is not None:
            context.report_progress(progress, total, message)

    def log(self, level: str, logger: str | None, data: Any) -> None:
        """Pass a log message of the server on, as long as the client waits."""
        context = self.context()
        if context is not None:
            context.log(level, data, logger)


Send = Callable[[Mapping[str, Any], CallHandlers], Awaitable[dict[str, Any]]]
"""Sends a call to its server with these params; returns the result as it came."""


@define(eq=False)
class ClientRequestBridge:
    """Carries calls out whose servers may ask the client.

    Args:
        server: of the gateway; seals states.
        parked: the calls that wait for their clients.
    """

    server: Server
    parked: ParkedCalls

    async def exchange(
        self,
        context: ToolContext,
        params: Mapping[str, Any],
        send: Send,
        *,
        is_stateless: bool,
    ) -> dict[str, Any]:
        """Return the result for a client of either mode from a server of either mode.

        Args:
            context: of the client's request.
            params: for the server.
            send: sends the call.
            is_stateless: whether the server is of the stateless mode.

        Raises:
            ForwardedError: a state that the client brought is of no call that is known here.
            MCPError: there is no result.
        """
        if not context.client.revision.is_stateless:
            handlers = CallHandlers(context.client, context.request_client, lambda: context)
            if not is_stateless:
                return await send(params, handlers)
            return await self._repeat(params, send, handlers)
        if is_stateless:
            return await self._pass_on(context, params, send)
        return await self._park(context, params, send)

    async def _repeat(
        self, params: Mapping[str, Any], send: Send, handlers: CallHandlers
    ) -> dict[str, Any]:
        """Carry out the rounds of a stateless server for a client of the handshake mode."""
        again = params
        for _ in range(MAX_ROUNDS):
            result = await send(again, handlers)
            if result.get("resultType") != "input_required":
                return result
            again = {**params, "inputResponses": await _respond_all(result, handlers)}
            if "requestState" in result:
                again["requestState"] = result["requestState"]
        raise InvalidResponseError(f"the server asked for input {MAX_ROUNDS} times")

    async def _pass_on(
        self, context: ToolContext, params: Mapping[str, Any], send: Send
    ) -> dict[str, Any]:
        """Let the rounds of a stateless server pass; its state is sealed (GATE-21)."""
        params = dict(params)
        sealed = params.pop("requestState", None)
        if sealed is not None:
            kept = self.server.open_state(sealed, context)
            if "state" in kept:
                params["requestState"] = kept["state"]
        handlers = CallHandlers(context.client, _no_session, lambda: context)
        result = await send(params, handlers)
        if result.get("resultType") != "input_required":
            return result
        kept = {"state": result["requestState"]} if "requestState" in result else {}
        return {**result, "requestState": self.server.seal_state(kept, context)}

    async def _park(
        self, context: ToolContext, params: Mapping[str, Any], send: Send
    ) -> dict[str, Any]:
        """Carry out the call of a handshake server over the rounds of a stateless client."""
        owner = owner_of(context)
        sealed = params.get("requestState")
        if sealed is None:

            async def call(parked: ParkedCall) -> dict[str, Any]:
                handlers = CallHandlers(context.client, parked.request, lambda: parked.context)
                return await send(params, handlers)

            event = await self.parked.begin(owner, context, call)
        else:
            name = self.server.open_state(sealed, context)["parked"]
            try:
                event = await self.parked.resume(
                    owner, context, name, _read_responses(params.get("inputResponses"))
                )
            except UnknownParkedCall:
                raise ForwardedError(
                    JsonRpcErrorCode.INVALID_PARAMS,
                    "The call that these responses belong to has ended, or another process has it:"
                    " call again, without them",
                    {"reason": "call_again"},
                ) from None
        if not isinstance(event, InputRequests):
            return event
        return {
            "resultType": "input_required",
            "inputRequests": {
                key: {"method": each.method, "params": each.params or {}}
                for key, each in event.requests.items()
            },
            "requestState": self.server.seal_state({"parked": event.parked}, context),
        }


async def _respond_all(result: Mapping[str, Any], handlers: CallHandlers) -> dict[str, Any]:
    """Return the client's results for `inputRequests`, which it gets at once."""
    requests = result.get("inputRequests")
    if type(requests) is not dict or len(requests) > MAX_INPUT_REQUESTS:
        raise InvalidResponseError(
            f"inputRequests is not an object of at most {MAX_INPUT_REQUESTS}"
        )
    for each in requests.values():
        if type(each) is not dict or type(each.get("method")) is not str:
            raise InvalidResponseError("one of inputRequests is no request")
    try:
        async with asyncio.TaskGroup() as group:
            tasks = {
                key: group.create_task(handlers.pass_on(*_as_message(each)))
                for key, each in requests.items()
            }
    except ExceptionGroup as failed:
        first = failed.exceptions[0]
        if not isinstance(first, ServerRequestRefused):
            raise first from None  # the call was aborted: no failure of a handler
        raise MCPError("E210", f"the client has not answered: {first}", may_have_run=True) from None
    return {key: task.result() for key, task in tasks.items()}


def _as_message(request: Mapping[str, Any]) -> tuple[str, Any]:
    """Return method and params of one of `inputRequests`, as a message of the handshake mode.

    There a page has an id, by which its end can be notified of; the stateless mode has none.
    """
    method, params = request["method"], request.get("params")
    if isinstance(params, dict) and params.get("mode") == "url" and "elicitationId" not in params:
        params = {**params, "elicitationId": secrets.token_urlsafe(16)}
    return method, params


def _read_responses(responses: object) -> dict[str, Any]:
    """Return the results that came with a call, by key; what is no object is left out."""
    if type(responses) is not dict:
        return {}
    return {key: value for key, value in responses.items() if type(value) is dict}


async def _no_session(method: str, params: Any) -> dict[str, Any]:
    """Refuse a request that a stateless server sends as a message of its own."""
    raise ServerRequestRefused(
        JsonRpcErrorCode.METHOD_NOT_FOUND, "Method not found: this client has no session", {}
    )
