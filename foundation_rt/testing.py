"""A client in memory for tests of tools: the whole server, no process, no sockets.

::

    async with TestClient(server) as client:
        assert await client.call("forecast", city="Oslo") == {...}

Nothing is faked between the client and the tool: lines are framed, parsed, dispatched, validated
and encoded as they are over stdio. Requests and the transport are those of `foundation_rt.client`;
errors, notifications and results come as they are on the wire. `Client` is not below it: that sends
nothing before a handshake of its own, reads errors into its catalogue, leaves input rounds to the
caller of `request`, and loads 130 modules of this package where this needs 101.
"""

from __future__ import annotations

import asyncio
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field

from .base.clock import Clock, ManualClock
from .base.exact_json import loads
from .base.ids import IdGenerator, SequentialIds
from .base.logs.logger import MemorySink, StructuredLogger
from .base.logs.redaction import Redactor
from .client.errors import ConnectionLostError
from .client.options import read_client_extensions
from .client.results.results import completion_params, is_wrapped
from .client.session.handshake import Handshake
from .client.session.pending_requests import (
    InvalidResponse,
    PendingRequests,
    RequestReceived,
    ResponseReceived,
    encode_response,
    notification,
)
from .client.transports.memory import MemoryTransport
from .client.transports.transport import ClientMessage
from .errors import JsonRpcErrorCode, ToolError
from .kernel.engine.shutdown import FINAL_FLUSH_SECONDS
from .protocol.methods import (
    COMPLETION_COMPLETE,
    INITIALIZE,
    NOTIFICATIONS_CANCELLED,
    NOTIFICATIONS_INITIALIZED,
    PROMPTS_GET,
    PROMPTS_LIST,
    RESOURCES_LIST,
    RESOURCES_READ,
    RESOURCES_TEMPLATES_LIST,
    TOOLS_CALL,
    TOOLS_LIST,
    facts,
)
from .protocol.revisions import NEWEST_HANDSHAKE_REVISION, REVISIONS

if TYPE_CHECKING:
    from .features.audit import AuditLog
    from .features.composition import ServerRuntime
    from .kernel.engine.connection import Connection
    from .protocol.framing import LineTooLong
    from .protocol.jsonrpc import Request
    from .server import Server

__all__ = ["ManualClock", "ProtocolError", "SequentialIds", "TestClient"]

Answers = Callable[[str, dict[str, Any]], Any]
"""Takes the method and the params of a request of the server; returns the client's result."""

_INFO = {"name": "foundation-rt-testing", "version": "0"}
_CAPABILITIES: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}


class ProtocolError(Exception):
    """The server answered with a JSON-RPC error.

    Attributes:
        code: the JSON-RPC error code.
        data: the error's data, as it came.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{code} {message}")
        known = {int(each): each for each in JsonRpcErrorCode}
        self.code: int = known.get(code, code)
        self.message = message
        self.data = data


@define(eq=False, repr=False)
class TestClient:
    """Calls a server of the same process: ``async with TestClient(server) as client``.

    Entering it enters the server's lifespan first (OPS-06), and performs the handshake.

    Args:
        clock: replaces the server's clock, e.g. by a `ManualClock`; the log is then kept in
            memory, as `client.logs`.
        ids: replaces the server's ids, e.g. by `SequentialIds()`.
        handshake: False leaves `initialize` to the caller.
        revision: the revision to speak; one of the stateless mode needs no handshake.
        answers: called with the method and the params of each request of the server
            (`elicitation/create`, `sampling/createMessage`, `roots/list`); returns the result, or
            raises `ProtocolError` to refuse (before 2026-07-28). By default the client has none of
            these capabilities.
        extensions: as of `connect`: that the client declares (EXT-11).
        headers: those of every request, as if it came over HTTP; handlers get the ones that
            `Server(request_headers=...)` or `http.request_headers` names.
        dependency_overrides: put into those of the server until the client is closed (TYPED-75).

    Attributes:
        notifications: the messages that answer no request, decoded, in order.
    """

    __test__ = False  # pytest: no test class, despite its name

    server: Server
    clock: Clock | None = field(default=None, kw_only=True)
    ids: IdGenerator | None = field(default=None, kw_only=True)
    handshake: bool = field(default=True, kw_only=True)
    revision: str = field(default=NEWEST_HANDSHAKE_REVISION, kw_only=True)
    answers: Answers | None = field(default=None, kw_only=True)
    extensions: Mapping[str, Mapping[str, Any]] = field(
        factory=dict, converter=read_client_extensions, kw_only=True
    )
    headers: Mapping[str, str] | None = field(default=None, kw_only=True)
    dependency_overrides: Mapping[Callable[..., Any], Callable[..., Any]] = field(
        factory=dict, kw_only=True
    )
    notifications: list[dict[str, Any]] = field(factory=list, init=False)
    _overridden: dict[Callable[..., Any], Callable[..., Any]] = field(factory=dict, init=False)
    _sink: MemorySink | None = field(default=None, init=False)
    _audit: AuditLog | None = field(default=None, init=False)
    _servers_audit: AuditLog | None = field(default=None, init=False)
    _transport: MemoryTransport = field(init=False)
    _requests: PendingRequests = field(factory=lambda: PendingRequests(SequentialIds()), init=False)

    async def __aenter__(self) -> TestClient:
        overrides = self.server.dependency_overrides
        self._overridden = dict(overrides)
        overrides.update(self.dependency_overrides)
        runtime = None
        if self.clock is not None or self.ids is not None:
            self._sink = MemorySink()
            runtime = _composed(self.server, self._sink, self.clock, self.ids)
            # The records of `server.audit` belong into the same log.
            self._servers_audit = self.server.runtime.audit
            self.server.runtime.audit = self._audit = runtime.audit
        self._transport = MemoryTransport(self.server, runtime)
        try:
            await self._open()
            if self.handshake and not REVISIONS[self.revision].is_stateless:
                opening = self._described.initialize(REVISIONS[self.revision])
                await self.request(INITIALIZE, opening.params)
                self.notify(NOTIFICATIONS_INITIALIZED)
        except BaseException:
            await self.close()
            raise
        return self

    async def _open(self) -> None:
        try:
            await self._transport.open(self)
        except ConnectionLostError as error:
            raise error.__cause__ or error from None
        if self.headers is not None:
            self.connection.session.headers = self._allowed_headers(self.headers)

    def _allowed_headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        from .protocol.http_headers import RequestHeaders

        allowed = {name.lower() for name in self.server.runtime.config.http.request_headers}
        lowered = {name.lower(): value for name, value in headers.items()}
        return RequestHeaders({name: lowered[name] for name in lowered if name in allowed})

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection: running calls are aborted, pending ones get a ConnectionError."""
        for request in self._requests.pending.values():
            if not request.attempt.done():
                request.attempt.set_exception(ConnectionError("the connection was closed"))
        await self._transport.close()
        if self.dependency_overrides:
            self.server.dependency_overrides.clear()
            self.server.dependency_overrides.update(self._overridden)
        if self._sink is not None:
            runtime = self.server.runtime
            runtime.registry.attach_logger(runtime.logger)
            runtime.audit = self._servers_audit
            if self._audit is not None:
                self._audit.close(FINAL_FLUSH_SECONDS)
            if runtime.agents is not None:
                runtime.attach_agents(runtime.agents)

    @property
    def connection(self) -> Connection:
        """The server's side of the connection."""
        return self._transport.connection

    @property
    def logs(self) -> list[dict[str, Any]] | None:
        """The server's log records so far, decoded; None when it logs elsewhere."""
        return None if self._sink is None else self._sink.lines

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool with keyword arguments; see `call_tool`."""
        return await self.call_tool(tool, arguments)

    async def call_tool(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool; return what it returned, decoded.

        A text that is JSON is decoded as well. Of a tool that shaped its result itself that is the
        structured value, or else the whole result: its `content`, `isError` and, where it has one,
        `_meta`.

        Raises:
            ToolError: the call failed, without a result of the tool's own making.
            ProtocolError: the request was refused.
            ConnectionError: the connection is closed.
        """
        params = {"name": tool, "arguments": dict(arguments)}
        result = await self.request(TOOLS_CALL, params)
        if "structuredContent" in result and not result["isError"]:
            structured = result["structuredContent"]
            texts = [block.get("text", "") for block in result["content"]]
            return structured["result"] if is_wrapped(structured, texts) else structured
        try:
            [text] = [block["text"] for block in result["content"]]
        except (KeyError, ValueError):
            return result
        try:
            value = loads(text)
        except ValueError:
            return result if result["isError"] else text
        if not result["isError"]:
            return value
        if type(value) is dict and "runId" in value:
            raise ToolError(value["code"], value["message"], value.get("details"))
        return result

    async def list_tools(self) -> list[dict[str, Any]]:
        """Return the tools as `tools/list` shows them, all pages."""
        return await self._list(TOOLS_LIST)

    async def list_resources(self) -> list[dict[str, Any]]:
        """Return the resources as `resources/list` shows them, all pages."""
        return await self._list(RESOURCES_LIST)

    async def list_resource_templates(self) -> list[dict[str, Any]]:
        """Return the templates as `resources/templates/list` shows them, all pages."""
        return await self._list(RESOURCES_TEMPLATES_LIST)

    async def list_prompts(self) -> list[dict[str, Any]]:
        """Return the prompts as `prompts/list` shows them, all pages."""
        return await self._list(PROMPTS_LIST)

    async def read_resource(self, uri: str) -> str | bytes:
        """Read a resource that has one contents; return its text, or its bytes.

        Raises:
            ProtocolError: there is no such resource, or reading it failed.
        """
        [contents] = (await self.request(RESOURCES_READ, {"uri": uri}))["contents"]
        text: str | None = contents.get("text")
        return a2b_base64(contents["blob"]) if text is None else text

    async def get_prompt(self, prompt: str, /, **arguments: str) -> list[dict[str, Any]]:
        """Return the messages of a prompt.

        Raises:
            ProtocolError: there is no such prompt, or the arguments do not fit.
        """
        params = {"name": prompt, "arguments": arguments}
        messages: list[dict[str, Any]] = (await self.request(PROMPTS_GET, params))["messages"]
        return messages

    async def complete(
        self, subject: str, argument: str, value: str = "", /, **known: str
    ) -> list[str]:
        """Return the completions of `value`.

        Args:
            subject: the name of a prompt, or the URI template of resources; it has a brace.
            argument: of the prompt or template.
            value: the beginning of its value.
            known: the other arguments, as far as they are known.

        Raises:
            ProtocolError: there is no such prompt, template or argument.
        """
        params = completion_params(subject, argument, value, known)
        result = await self.request(COMPLETION_COMPLETE, params)
        values: list[str] = result["completion"]["values"]
        return values

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request; return its result.

        In the stateless mode it is sent again, with answers, as long as the server asks for input.
        Params that are a list are sent as they are, which in the stateless mode lack the `_meta`.

        Raises:
            ProtocolError: the server answered with an error.
            ConnectionError: the connection is closed.
        """
        result = await self._request(method, params)
        while self.answers is not None and result.get("resultType") == "input_required":
            responses = {
                key: self.answers(request["method"], request["params"])
                for key, request in result["inputRequests"].items()
            }
            given = {"inputResponses": responses, "requestState": result["requestState"]}
            result = await self._request(method, {**(params or {}), **given})
        return result

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        self._transport.send(ClientMessage(notification(method, params)))

    async def _request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        if self.connection.closed:
            raise ConnectionError("the connection is closed")
        response = asyncio.get_running_loop().create_future()
        request, line = self._requests.add(method, self._with_meta(params), response)
        self._transport.send(ClientMessage(line, request.id))
        try:
            received: ResponseReceived = await response
        except asyncio.CancelledError:
            self.notify(NOTIFICATIONS_CANCELLED, {"requestId": request.id})
            raise
        finally:
            self._requests.pending.pop(request.id, None)
        if received.error is not None:
            error = received.error
            raise ProtocolError(error["code"], error["message"], error.get("data"))
        result: dict[str, Any] = received.result
        return result

    async def _list(self, method: str) -> list[dict[str, Any]]:
        member = facts(method).entries or ""
        result = await self.request(method)
        listed: list[dict[str, Any]] = result[member]
        while "nextCursor" in result:
            result = await self.request(method, {"cursor": result["nextCursor"]})
            listed += result[member]
        return listed

    def _with_meta(self, params: Any) -> Any:
        if not REVISIONS[self.revision].is_stateless or isinstance(params, list):
            return params
        given = params or {}
        meta = self._described.meta(REVISIONS[self.revision])
        return {**given, "_meta": meta | given.get("_meta", {})}

    @property
    def _described(self) -> Handshake:
        """Return the declarations of the client, as `connect` makes them."""
        capabilities = {} if self.answers is None else _CAPABILITIES
        return Handshake(_INFO, lambda revision: capabilities, extensions=self.extensions)

    def received(self, line: bytes | LineTooLong, request_id: str | None) -> None:
        """Take a message of the server; see `LineReceiver`."""
        for message in self._requests.receive(line, None):
            if isinstance(message, RequestReceived) and self.answers is not None:
                self._answer(message.request, self.answers)
            elif isinstance(message, ResponseReceived):
                if not message.request.attempt.done():
                    message.request.attempt.set_result(message)
            else:
                assert isinstance(line, bytes) and not isinstance(message, InvalidResponse)
                self.notifications.append(loads(line))

    def _answer(self, request: Request, answers: Answers) -> None:
        try:
            line = encode_response(request, result=answers(request.method, request.params))
        except ProtocolError as refusal:
            line = encode_response(
                request, error={"code": refusal.code, "message": refusal.message}
            )
        self._transport.send(ClientMessage(line))


def _composed(
    server: Server, sink: MemorySink, clock: Clock | None, ids: IdGenerator | None
) -> ServerRuntime:
    """Return a runtime of `server` with another log, clock and ids.

    It shares the slots, since the tool `health` reports them, and all that is registered.
    """
    from .features.composition import compose
    from .features.subscriptions.feature import publisher_of

    runtime = server.runtime
    clock, logging = clock or runtime.clock, runtime.config.logging
    options = evolve(
        server.options,
        logger=StructuredLogger(sink, clock, logging.level, Redactor(logging.redact_keys)),
        id_generator=ids,
        clock=clock,
        resource_manager=runtime.resources,
        features=server.features,
        publisher=publisher_of(runtime.engine),
    )
    return compose(runtime.registry, options, runtime.config)
