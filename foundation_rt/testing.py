"""An in-memory client for tests of tools: the whole server, no process, no sockets.

::

    async with connect(server) as client:
        assert await client.call("forecast", city="Oslo") == {...}

Nothing is faked between the client and the tool: lines are framed, parsed, dispatched, validated
and encoded as they are over stdio.
"""

from __future__ import annotations

import asyncio
from binascii import a2b_base64
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from .clock import Clock, ManualClock
from .errors import JsonRpcErrorCode, ToolError
from .ids import IdGenerator, SequentialIds
from .logs.logger import MemorySink, StructuredLogger
from .logs.redaction import Redactor
from .protocol.peer import CAPABILITIES_KEY, INFO_KEY
from .protocol.revisions import NEWEST_HANDSHAKE_REVISION, REVISIONS, VERSION_KEY

if TYPE_CHECKING:
    from .engine.connection import Connection
    from .server import Server

__all__ = ["ManualClock", "ProtocolError", "SequentialIds", "TestClient", "connect"]

Answers = Callable[[str, dict[str, Any]], Any]
"""Takes the method and the params of what a server asks; returns the client's result."""

_INFO = {"name": "foundation-rt-testing", "version": "0"}
_ASKABLE: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}


class ProtocolError(Exception):
    """The server answered with a JSON-RPC error.

    Attributes:
        code: the JSON-RPC error code.
        data: the error's data object, as it came.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{code} {message}")
        known = {int(each): each for each in JsonRpcErrorCode}
        self.code: int = known.get(code, code)
        self.message = message
        self.data = data


@define(eq=False, repr=False)
class TestClient:
    """Talks to a server through a connection in the same process.

    Args:
        revision: the revision of the specification that it speaks.
        answers: answers what the server asks; None is a client that cannot be asked anything.

    Attributes:
        notifications: what the server sent without being asked, decoded, in order.
    """

    __test__ = False  # pytest: no test class, whatever its name says

    revision: str = NEWEST_HANDSHAKE_REVISION
    answers: Answers | None = None
    connection: Connection = field(init=False)
    notifications: list[dict[str, Any]] = field(factory=list, init=False)
    _sink: MemorySink | None = field(default=None, init=False)
    _waiting: dict[int, asyncio.Future[dict[str, Any]]] = field(factory=dict, init=False)
    _last_id: int = field(default=0, init=False)

    @property
    def logs(self) -> list[dict[str, Any]] | None:
        """The server's log records so far, decoded; None when it logs elsewhere."""
        return None if self._sink is None else self._sink.lines

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool with keyword arguments; see `call_tool`."""
        return await self.call_tool(tool, arguments)

    async def call_tool(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool; return what it returned, decoded.

        Of a tool that shaped its result itself that is the structured value, or else the whole
        result: its `content`, `isError` and, where it has one, `_meta`.

        Raises:
            ToolError: the call failed, without a result of the tool's own making.
            ProtocolError: the request was refused.
            ConnectionError: the connection is closed.
        """
        params = {"name": tool, "arguments": dict(arguments)}
        result = await self.request("tools/call", params)
        if "structuredContent" in result and not result["isError"]:
            return result["structuredContent"]
        try:
            [value] = [orjson.loads(block["text"]) for block in result["content"]]
        except (KeyError, ValueError):
            return result
        if not result["isError"]:
            return value
        if type(value) is dict and "runId" in value:
            raise ToolError(value["code"], value["message"], value.get("details"))
        return result

    async def list_tools(self) -> list[dict[str, Any]]:
        """The tools as `tools/list` shows them, all pages."""
        return await self._list("tools/list", "tools")

    async def list_resources(self) -> list[dict[str, Any]]:
        """The resources as `resources/list` shows them, all pages."""
        return await self._list("resources/list", "resources")

    async def list_resource_templates(self) -> list[dict[str, Any]]:
        """The templates as `resources/templates/list` shows them, all pages."""
        return await self._list("resources/templates/list", "resourceTemplates")

    async def list_prompts(self) -> list[dict[str, Any]]:
        """The prompts as `prompts/list` shows them, all pages."""
        return await self._list("prompts/list", "prompts")

    async def read_resource(self, uri: str) -> str | bytes:
        """Read a resource that has one contents; return its text, or its bytes.

        Raises:
            ProtocolError: there is no such resource, or reading it failed.
        """
        result = await self.request("resources/read", {"uri": uri})
        [contents] = result["contents"]
        text: str | None = contents.get("text")
        return a2b_base64(contents["blob"]) if text is None else text

    async def get_prompt(self, prompt: str, /, **arguments: str) -> list[dict[str, Any]]:
        """The messages of a prompt.

        Raises:
            ProtocolError: there is no such prompt, or the arguments do not fit.
        """
        params = {"name": prompt, "arguments": arguments}
        messages: list[dict[str, Any]] = (await self.request("prompts/get", params))["messages"]
        return messages

    async def complete(
        self, subject: str, argument: str, value: str = "", /, **known: str
    ) -> list[str]:
        """What could complete `value`; `subject` is a template if it has a brace, else a prompt.

        Raises:
            ProtocolError: there is no such prompt, template or argument.
        """
        ref = {"type": "ref/prompt", "name": subject}
        if "{" in subject:
            ref = {"type": "ref/resource", "uri": subject}
        params = {
            "ref": ref,
            "argument": {"name": argument, "value": value},
            "context": {"arguments": known},
        }
        result = await self.request("completion/complete", params)
        values: list[str] = result["completion"]["values"]
        return values

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request; return its result.

        In the stateless mode it is sent again, with answers, as long as the server asks for some.

        Raises:
            ProtocolError: the server answered with an error.
            ConnectionError: the connection is closed.
        """
        result = await self._request(method, params)
        while self.answers is not None and result.get("resultType") == "input_required":
            answered = {
                key: self.answers(question["method"], question["params"])
                for key, question in result["inputRequests"].items()
            }
            along = {"inputResponses": answered, "requestState": result["requestState"]}
            result = await self._request(method, {**(params or {}), **along})
        return result

    async def _request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        if self.connection.closed:
            raise ConnectionError("the connection is closed")
        self._last_id += 1
        request_id = self._last_id
        answer = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        try:
            self._send({"id": request_id, "method": method}, self._introduced(params))
            reply = await answer
        except asyncio.CancelledError:
            self.notify("notifications/cancelled", {"requestId": request_id})
            raise
        finally:
            del self._waiting[request_id]
        if "error" in reply:
            error = reply["error"]
            raise ProtocolError(error["code"], error["message"], error.get("data"))
        result: dict[str, Any] = reply["result"]
        return result

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        self._send({"method": method}, params)

    def close(self) -> None:
        """Leave: what runs is aborted, and whoever waits for an answer gets a ConnectionError."""
        self.connection.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the connection was closed"))

    async def _list(self, method: str, member: str) -> list[dict[str, Any]]:
        result = await self.request(method)
        listed: list[dict[str, Any]] = result[member]
        while "nextCursor" in result:
            result = await self.request(method, {"cursor": result["nextCursor"]})
            listed += result[member]
        return listed

    def _introduced(self, params: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """`params` with who asks in their `_meta`, where the revision has no handshake."""
        if not REVISIONS[self.revision].is_stateless:
            return params
        given = params or {}
        meta = {
            VERSION_KEY: self.revision,
            INFO_KEY: _INFO,
            CAPABILITIES_KEY: self._capabilities,
        }
        return {**given, "_meta": meta | given.get("_meta", {})}

    @property
    def _capabilities(self) -> dict[str, Any]:
        return {} if self.answers is None else _ASKABLE

    def _send(self, message: dict[str, Any], params: Mapping[str, Any] | None) -> None:
        message = {"jsonrpc": "2.0", **message}
        if params is not None:
            message["params"] = params
        self.connection.feed(orjson.dumps(message) + b"\n")

    def receive(self, line: bytes) -> None:
        """Take one line from the server."""
        message = orjson.loads(line)
        if "method" in message and "id" in message and self.answers is not None:
            # Not now: the server is in the middle of sending.
            asyncio.get_running_loop().call_soon(self._answer, message, self.answers)
            return
        waiting = self._waiting.get(message.get("id"))
        if waiting is None:
            self.notifications.append(message)
        elif not waiting.done():
            waiting.set_result(message)

    def _answer(self, question: dict[str, Any], answers: Answers) -> None:
        try:
            outcome = {"result": answers(question["method"], question["params"])}
        except ProtocolError as refusal:
            outcome = {"error": {"code": refusal.code, "message": refusal.message}}
        self._send({"id": question["id"], **outcome}, None)


@asynccontextmanager
async def connect(
    server: Server,
    *,
    clock: Clock | None = None,
    ids: IdGenerator | None = None,
    handshake: bool = True,
    revision: str = NEWEST_HANDSHAKE_REVISION,
    answers: Answers | None = None,
) -> AsyncIterator[TestClient]:
    """Connect a client to `server` and shake hands; its lifespan is entered before (OPS-06).

    Args:
        clock: replaces the server's clock, e.g. by a `ManualClock`; the log is then kept in
            memory, as `client.logs`.
        ids: replaces the server's ids, e.g. by `SequentialIds()`.
        handshake: False leaves `initialize` to the caller.
        revision: the revision to speak; one of the stateless mode needs no handshake.
        answers: called with the method and the params of whatever the server asks
            (`elicitation/create`, `sampling/createMessage`, `roots/list`); returns the result, or
            raises `ProtocolError` to refuse (before 2026-07-28). By default the client has none of
            these capabilities.
    """
    from .runtime import ServerOptions, compose

    client = TestClient(revision, answers)
    runtime = server.runtime
    await runtime.start_lifespan()
    if clock is not None or ids is not None:
        clock = clock or runtime.clock
        sink = MemorySink()
        client._sink = sink
        config = runtime.config
        logger = StructuredLogger(
            sink, clock, config.logging.level, Redactor(config.logging.redact_keys)
        )
        # The slots stay the server's: its health tool reports them.
        info = runtime.dispatcher.results.info
        options = ServerOptions(
            instructions=info.instructions,
            title=info.title,
            website_url=info.website_url,
            icons=info.icons,
            logger=logger,
            id_generator=ids,
            clock=clock,
            resource_manager=runtime.resources,
            agent_coordinator=runtime.agents,
            features=server.features,
            publisher=runtime.publisher,
            lifespan=runtime.lifespan,
            middleware=runtime.middleware,
        )
        runtime = compose(runtime.registry, options, config)
    try:
        client.connection = runtime.connect_host(client.receive, "memory")
        if handshake and not REVISIONS[revision].is_stateless:
            params = {"protocolVersion": revision, "capabilities": client._capabilities}
            params["clientInfo"] = _INFO
            await client.request("initialize", params)
            client.notify("notifications/initialized")
        yield client
    finally:
        client.close()
        await runtime.stop_agents()
        await runtime.stop_lifespan()
        await runtime.close_middleware()
        runtime.registry.attach_logger(server.runtime.logger)
        if runtime.agents is not None:
            server.runtime.attach_agents(runtime.agents)
