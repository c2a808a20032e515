"""The interface of handlers for a server's requests, and the ways to ask any of them.

`ClientHandlers` is the usual one: it reads each request for a function. A proxy has its own, which
hands requests on as they came (QUEST-23).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import orjson

from ...base.exact_json import dumps
from ...errors import JsonRpcErrorCode
from ...features.server_requests.errors import ClientCapabilityError, ClientErrorResponse
from ...protocol.methods import facts
from ..errors import InvalidResponseError
from .params import ServerRequestRefused

if TYPE_CHECKING:
    from ...protocol.revisions import Revision

log = logging.getLogger("foundation_rt.client")

MAX_INPUT_REQUESTS: Final = 100
"""Most requests of one `input_required` result (QUEST-14)."""


Result = TypeVar("Result")


class ServerRequestHandlers(Protocol):
    """Handlers for the requests of a server, as they came."""

    def capabilities(self, revision: Revision) -> Mapping[str, Any]:
        """Return the capabilities of the client that a server sees in this revision."""

    async def handle(self, method: str, params: Any, revision: Revision) -> Mapping[str, Any]:
        """Return the result of one request of the server, which goes out as it is.

        It is cancelled when its call ends, or the server takes the request back.

        Args:
            method: of the request; its capability was declared.
            params: as they came; may be any JSON; None where there are none.
            revision: of the session.

        Raises:
            ServerRequestRefused: it is refused; carries the error for the server.
            ClientErrorResponse: the client that was asked instead has refused it, in these words.
        """


def check_declared(method: str, capabilities: Mapping[str, Any], revision: Revision) -> None:
    """Raise unless a server may send a request of this method (QUEST-02).

    Raises:
        ServerRequestRefused: the revision does not have it, or its capability was not declared.
    """
    if method not in revision.client_requests or facts(method).capability not in capabilities:
        raise not_declared()


def not_declared() -> ServerRequestRefused:
    """Return the refusal of a request whose capability was not declared: -32601 (QUEST-02)."""
    return ServerRequestRefused(
        JsonRpcErrorCode.METHOD_NOT_FOUND,
        "Method not found: this client did not declare that it can be asked",
        {"reason": "not_declared"},
    )


def failed(message: str, reason: str) -> ServerRequestRefused:
    """Return the refusal of a request for a reason of the client's own: -32603."""
    return ServerRequestRefused(JsonRpcErrorCode.INTERNAL_ERROR, message, {"reason": reason})


def unusable(method: str, problem: str) -> ServerRequestRefused:
    """Log what is wrong with a result; return the refusal of the request."""
    log.warning("the response to %s cannot be sent: %s", method, problem)
    return failed("The client has no usable answer", "invalid_answer")


def handler_failed(method: str, error: BaseException) -> ServerRequestRefused:
    """Log what a handler raised; return the refusal, which does not repeat it (QUEST-12)."""
    log.warning("the handler of %s failed", method, exc_info=error)
    return failed("The client failed to answer", "handler_failed")


async def guarded(method: str, work: Awaitable[Result]) -> Result:
    """Return what a handler of the caller returns, whatever it raises otherwise (QUEST-12).

    Raises:
        ServerRequestRefused: the request is refused; carries the error for the server, as JSON.
    """
    try:
        return await work
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise handler_failed(method, error) from error
    except ServerRequestRefused as refused:
        encode(method, refused.to_wire())
        raise
    except Exception as error:
        raise handler_failed(method, error) from error


async def at_once(asked: Mapping[str, Coroutine[Any, Any, Result]]) -> dict[str, Result]:
    """Return the outcomes of all, by name; if one fails, cancel the others and raise its error."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(work) for name, work in asked.items()}
    except BaseExceptionGroup as several:
        failure = several.exceptions[0]
    else:
        return {name: task.result() for name, task in tasks.items()}
    raise failure


async def answer(
    handlers: ServerRequestHandlers, method: str, params: Any, revision: Revision
) -> Any:
    """Return the JSON of the result of one request, whatever the handlers do (QUEST-23).

    Raises:
        ServerRequestRefused: it is refused; carries the error for the server, which is JSON.
    """
    result: Any = await guarded(method, _handle(handlers, method, params, revision))
    if not isinstance(result, Mapping):
        raise unusable(method, "it is not an object")
    return encode(method, dict(result))


async def answer_all(
    handlers: ServerRequestHandlers, requests: Any, revision: Revision
) -> dict[str, Any]:
    """Return the `inputResponses` to `inputRequests`, asked for at once (QUEST-14).

    Raises:
        InvalidResponseError: they are not requests that were declared; no handler was called.
        ServerRequestRefused: one was refused; the others were cancelled.
    """
    asked = read_input_requests(requests)
    capabilities = handlers.capabilities(revision)
    for method, _ in asked.values():
        try:
            check_declared(method, capabilities, revision)
        except ServerRequestRefused as refused:
            raise not_allowed(refused) from None
    return await at_once(
        {key: answer(handlers, method, params, revision) for key, (method, params) in asked.items()}
    )


def read_input_requests(requests: Any) -> dict[str, tuple[str, Any]]:
    """Return the method and the params of each of `inputRequests`.

    Raises:
        InvalidResponseError: they are no requests, or too many.
    """
    if type(requests) is not dict or len(requests) > MAX_INPUT_REQUESTS:
        raise InvalidResponseError(
            f"inputRequests is not an object of at most {MAX_INPUT_REQUESTS}"
        )
    asked = {}
    for key, request in requests.items():
        method = request.get("method") if type(request) is dict else None
        if type(method) is not str:
            raise InvalidResponseError("one of inputRequests is no request")
        asked[key] = (method, request.get("params"))
    return asked


def not_allowed(refused: ServerRequestRefused) -> InvalidResponseError:
    """Return the error for a call whose server asks for what it may not."""
    return InvalidResponseError(
        f"the server asks for what it cannot be given: {refused.message}",
        original_code=refused.original_code,
    )


async def _handle(
    handlers: ServerRequestHandlers, method: str, params: Any, revision: Revision
) -> Mapping[str, Any]:
    """Ask the handlers; pass on what a client has said that was asked instead (QUEST-29)."""
    check_declared(method, handlers.capabilities(revision), revision)
    try:
        return await handlers.handle(method, params, revision)
    except ClientErrorResponse as error:
        code = error.json_rpc_code
        raise ServerRequestRefused(
            JsonRpcErrorCode.INTERNAL_ERROR if code is None else code,
            error.json_rpc_message,
            error.json_rpc_data,
        ) from error.__cause__
    except ClientCapabilityError:
        raise not_declared() from None


def encode(method: str, value: Any) -> Any:
    """Return a result or an error as JSON.

    Raises:
        ServerRequestRefused: it is not JSON.
    """
    try:
        return orjson.Fragment(dumps(value))
    except (TypeError, ValueError):
        raise unusable(method, "it is not JSON") from None
