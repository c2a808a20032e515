"""The script of a server that misbehaves, and its runner, which all transports share.

A script is a JSON object in a file. It is read again for every message, so that a test can replace
it at any time:

    revision    the protocol revision of the server
    starts      a list of objects, one for each start of the server; further starts use the last.
                An object has the list of acts for each point. A point is a method, or a name that
                the transport defines ("start", "GET", ...). The default of a method is `answer`.

A call of the tools `play` and `play_again` carries its acts in its arguments, beside the `nonce`
that its result repeats. An act is a list that begins with its name:

    answer [MEMBERS]        send the right response, with these members replaced
    reply MEMBERS           send a response that has only these members
    huge BYTES              send the right response with a text of this length
    raw TEXT                send these bytes (Latin-1) in place of a response
    flood TIMES MESSAGE     send this message, so many times
    ask METHOD PARAMS       send a request to the client
    progress VALUE          notify of progress, with the token of the request
    page                    send the right response, with the cursor of a further page
    acknowledge             send the first notification of a `subscriptions/listen`
    wait WHAT               hold the acts that follow until the next message of this method
                            ("answer": a response of the client), or until a call with this nonce
                            has come

Each transport defines further acts. Every message is logged before its acts run, so a test knows
what the server received even if the server has died since. This module imports little, because
tests start such servers many times.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
STATELESS = "2026-07-28"

Act = list[Any]

_NONCE_SCHEMA = {
    "type": "object",
    "properties": {"nonce": {"type": "string"}},
    "required": ["nonce"],
}
_TOOL = {
    "name": "play",
    "inputSchema": {
        "type": "object",
        "properties": {"nonce": {"type": "string"}, "acts": {"type": "array"}},
        "required": ["nonce"],
    },
    "outputSchema": _NONCE_SCHEMA,
}
TOOLS = [_TOOL, {**_TOOL, "name": "play_again", "annotations": {"idempotentHint": True}}]
"""`play_again` may be called twice with the same effect."""

CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {},
    "logging": {},
}


class ScriptRecord:
    """What a server has received, as its log says."""

    def events(self, event: str) -> list[dict[str, Any]]:
        """Return the events of this name in the log."""
        raise NotImplementedError

    def messages(self, method: str) -> list[dict[str, Any]]:
        """Return the messages of this method that were received."""
        return [each for each in self.events("message") if each["method"] == method]

    def nonces(self) -> list[str]:
        """Return the nonces of all calls that were received, in order."""
        return [each["nonce"] for each in self.messages("tools/call")]


class ScriptLog:
    """A file of JSON lines, each appended by one write, so that none is lost or cut."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, event: str, **data: Any) -> None:
        line = json.dumps({"event": event, "pid": os.getpid(), **data})
        os.write(self._descriptor, line.encode() + b"\n")

    def starts(self, path: str) -> int:
        """Return how many starts are in the log at `path`."""
        with open(path) as file:
            return sum(json.loads(line)["event"] == "start" for line in file)


class ScriptExchange:
    """A message that was received, and the acts that are left for it.

    Attributes:
        message: the message as it came; empty at a point that the transport defines.
        answer: the right response; None if none is due.
        acts: the acts that are left.
        way: identifies the origin of the message for the transport.
    """

    __slots__ = ("acts", "answer", "message", "way")

    def __init__(
        self, message: dict[str, Any], answer: dict[str, Any] | None, acts: list[Act], way: Any
    ) -> None:
        self.message = message
        self.answer = answer
        self.acts = deque(acts)
        self.way = way

    def answer_bytes(self) -> bytes:
        """Return the right response as JSON."""
        return json.dumps(self.answer).encode()


class ScriptRunner:
    """Runs the acts of a script.

    Args:
        script: reads the script.
        start: the number of this start of the server, from 0.
        note: writes an event to the log.
        write: writes a message, without a line ending; its last argument: whether it is a response.
        perform: performs an act that the transport defines.
    """

    def __init__(
        self,
        script: Callable[[], dict[str, Any]],
        start: int,
        note: Callable[..., None],
        write: Callable[[ScriptExchange, bytes, bool], None],
        perform: Callable[..., None],
    ) -> None:
        self._script = script
        self._start = start
        self._note = note
        self._write = write
        self._perform = perform
        self._nonces: set[str | None] = set()
        self._held: list[tuple[str, ScriptExchange]] = []
        self._asked = 0
        self._pages = 0

    def reach(
        self, point: str, way: Any = None, default: list[Act] | None = None
    ) -> ScriptExchange:
        """Run the acts of a point that the transport defines."""
        exchange = ScriptExchange({}, None, self._acts(point, default or []), way)
        self._run_acts(exchange)
        return exchange

    def receive(self, line: bytes, way: Any = None) -> list[ScriptExchange]:
        """Handle a message, or a batch of them."""
        try:
            read = json.loads(line)
            messages = read if isinstance(read, list) else [read]
            return [self._receive(message, way) for message in messages]
        except (ValueError, AttributeError):
            self._note("malformed", text=line[:200].decode("latin-1"))
            return []

    def _receive(self, message: dict[str, Any], way: Any) -> ScriptExchange:
        method = message.get("method")
        arguments = _arguments(message)
        nonce = arguments.get("nonce")
        if method is None:
            self._note("answered", message=message)
            exchange = ScriptExchange(message, None, self._acts("answer", []), way)
        else:
            self._note("message", method=method, id=message.get("id"), nonce=nonce)
            self._nonces.add(nonce)
            acts = arguments.get("acts")
            if acts is None:
                usual = "acknowledge" if method == "subscriptions/listen" else "answer"
                acts = self._acts(method, [[usual]])
            exchange = ScriptExchange(message, right_answer(message, self._script()), acts, way)
        self._run_acts(exchange)
        self.wake({method or "answer", nonce})
        return exchange

    def wake(self, names: Collection[str | None]) -> None:
        """Run the acts that wait for one of these names."""
        woken = [each for name, each in self._held if name in names]
        self._held = [each for each in self._held if each[0] not in names]
        for exchange in woken:
            self._run_acts(exchange)

    def _acts(self, point: str, default: list[Act]) -> list[Act]:
        starts: list[dict[str, list[Act]]] = self._script().get("starts") or [{}]
        return starts[min(self._start, len(starts) - 1)].get(point, default)

    def _run_acts(self, exchange: ScriptExchange) -> None:
        while exchange.acts:
            name, *arguments = exchange.acts.popleft()
            if name == "wait":
                if arguments[0] not in self._nonces:
                    self._held.append((arguments[0], exchange))
                    return
            elif name in ACTS:
                ACTS[name](self, exchange, *arguments)
            else:
                self._perform(exchange, name, *arguments)

    # -- the acts ----------------------------------------------------------------------------------

    def _answer(self, exchange: ScriptExchange, members: dict[str, Any] | None = None) -> None:
        if exchange.answer is not None:
            self._send(exchange, {**exchange.answer, **(members or {})})

    def _reply(self, exchange: ScriptExchange, members: dict[str, Any]) -> None:
        head = {"jsonrpc": "2.0", "id": exchange.message.get("id")}
        self._send(exchange, {**head, **members})

    def _huge(self, exchange: ScriptExchange, size: int) -> None:
        block = {"type": "text", "text": "x" * size}
        result = {**(exchange.answer or {}).get("result", {}), "content": [block]}
        self._answer(exchange, {"result": result})

    def _page(self, exchange: ScriptExchange) -> None:
        self._pages += 1
        cursor = f"page {self._pages}"
        result = {**(exchange.answer or {}).get("result", {}), "nextCursor": cursor}
        self._answer(exchange, {"result": result})

    def _raw(self, exchange: ScriptExchange, text: str) -> None:
        self._write(exchange, text.encode("latin-1"), True)

    def _flood(self, exchange: ScriptExchange, times: int, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        for _ in range(times):
            self._write(exchange, data, False)

    def _ask(self, exchange: ScriptExchange, method: str, params: Any) -> None:
        self._asked += 1
        server_request = {"jsonrpc": "2.0", "id": f"asked-{self._asked}", "method": method}
        self._send(exchange, {**server_request, "params": params}, is_answer=False)

    def _progress(self, exchange: ScriptExchange, value: Any) -> None:
        token = exchange.message.get("params", {}).get("_meta", {}).get("progressToken")
        params = {"progressToken": token, "progress": value}
        message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        self._send(exchange, message, is_answer=False)

    def _acknowledge(self, exchange: ScriptExchange) -> None:
        params = exchange.message["params"]
        meta = {"io.modelcontextprotocol/subscriptionId": exchange.message["id"]}
        method = "notifications/subscriptions/acknowledged"
        told = {"_meta": meta, "notifications": params["notifications"]}
        message = {"jsonrpc": "2.0", "method": method, "params": told}
        self._send(exchange, message, is_answer=False)

    def _send(self, exchange: ScriptExchange, message: Any, is_answer: bool = True) -> None:
        self._write(exchange, json.dumps(message).encode(), is_answer)


ACTS: dict[str, Callable[..., None]] = {
    "answer": ScriptRunner._answer,
    "reply": ScriptRunner._reply,
    "huge": ScriptRunner._huge,
    "page": ScriptRunner._page,
    "raw": ScriptRunner._raw,
    "flood": ScriptRunner._flood,
    "ask": ScriptRunner._ask,
    "progress": ScriptRunner._progress,
    "acknowledge": ScriptRunner._acknowledge,
}
"""The acts of every transport, by name."""


def read_script(path: str) -> Callable[[], dict[str, Any]]:
    """Return a function that reads the script in a file, which a test may replace at any time."""

    def read() -> dict[str, Any]:
        with open(path) as file:
            script: dict[str, Any] = json.load(file)
        return script

    return read


def right_answer(message: dict[str, Any], script: dict[str, Any]) -> dict[str, Any] | None:
    """Return the response of a server without faults; None for a notification."""
    if "id" not in message:
        return None
    result = _result(message, script)
    head = {"jsonrpc": "2.0", "id": message["id"]}
    if result is None:
        return {**head, "error": {"code": -32601, "message": "Method not found"}}
    if script["revision"] == STATELESS:
        result = {"resultType": "complete", **result}
    return {**head, "result": result}


def _result(message: dict[str, Any], script: dict[str, Any]) -> dict[str, Any] | None:
    method, params = message["method"], message.get("params") or {}
    info = {"name": "misbehaving", "version": "1"}
    if script["revision"] == STATELESS:
        named = (params.get("_meta") or {}).get(VERSION_KEY)
        if method == "server/discover":
            return {"supportedVersions": [STATELESS], "capabilities": CAPABILITIES, **_CACHED}
        if named != STATELESS:
            return None
    elif method == "initialize":
        head = {"protocolVersion": script["revision"], "capabilities": CAPABILITIES}
        return {**head, "serverInfo": info}
    return _feature(method, params)


_CACHED = {"ttlMs": 60_000, "cacheScope": "private"}


def _feature(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "tools/call":
        nonce = params.get("arguments", {}).get("nonce")
        content = [{"type": "text", "text": str(nonce)}]
        return {"content": content, "structuredContent": {"nonce": nonce}, "isError": False}
    if method == "resources/read":
        uri = params.get("uri")
        return {"contents": [{"uri": uri, "text": f"text of {uri}"}], **_CACHED}
    lists: dict[str, dict[str, Any]] = {
        "ping": {},
        "logging/setLevel": {},
        "resources/subscribe": {},
        "resources/unsubscribe": {},
        "tools/list": {"tools": TOOLS, **_CACHED},
        "resources/list": {"resources": [{"uri": "play://one", "name": "one"}], **_CACHED},
        "prompts/list": {"prompts": [], **_CACHED},
    }
    return lists.get(method)


def _arguments(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params")
    arguments = params.get("arguments") if isinstance(params, dict) else None
    return arguments if isinstance(arguments, dict) else {}
