"""What a server that is told by a script does with every message, however its bytes move.

A script is a JSON object in a file, read anew for every message, so a test can change its mind:

    revision    the revision that is spoken
    starts      a list; its entry for this start of the server (the last one from then on) says by
                point what is done there, as a list of acts. A point is a method, or a name of
                the transport's own ("start", "GET", ...). A point that is not named: answer.

A call of the tools `play` and `play_again` carries its acts in its arguments, beside the `nonce`
that its result repeats. An act is a list, its name first:

    answer [MEMBERS]        the right answer; with these members replaced
    reply MEMBERS           an answer that has nothing but these members
    huge BYTES              the right answer, and in it a text as long as this
    raw TEXT                these bytes (Latin-1) where an answer is due
    flood TIMES MESSAGE     this message, so many times
    ask METHOD PARAMS       a request to the client
    progress VALUE          progress, under the token of the request
    page                    the right answer, and that there is another page
    acknowledge             what a `subscriptions/listen` begins with
    wait WHAT               the acts that follow wait until the next message of this method comes
                            ("answer": an answer to what was asked), or one with this nonce has come

All others are the transport's own. Everything that comes is noted in a log before anything is done,
so a test can tell what the server got, whatever became of the server. Nothing here imports more
than it needs: a test starts such a server many times.
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


class Log:
    """A file of JSON lines, each appended at once: what it says is never lost or cut."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, event: str, **data: Any) -> None:
        line = json.dumps({"event": event, "pid": os.getpid(), **data})
        os.write(self._descriptor, line.encode() + b"\n")

    def starts(self, path: str) -> int:
        """How often a server was started that writes this log."""
        with open(path) as file:
            return sum(json.loads(line)["event"] == "start" for line in file)


class Exchange:
    """A message that has come, and what is still to be done with it.

    Attributes:
        message: as it came; empty where a transport's own point is reached.
        answer: the right one; None where none is due.
        acts: those to come.
        way: whatever the transport needs to know of where it came from.
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
        """Send the right answer."""
        return json.dumps(self.answer).encode()


class ScriptRunner:
    """Does what a script says.

    Args:
        script: reads it.
        start: which start of the server this is, from 0.
        note: notes what has come.
        write: writes the bytes of a message, without a line ending; told whether it is an answer.
        perform: performs an act of the transport's own.
    """

    def __init__(
        self,
        script: Callable[[], dict[str, Any]],
        start: int,
        note: Callable[..., None],
        write: Callable[[Exchange, bytes, bool], None],
        perform: Callable[..., None],
    ) -> None:
        self._script = script
        self._start = start
        self._note = note
        self._write = write
        self._perform = perform
        self._nonces: set[str | None] = set()
        self._held: list[tuple[str, Exchange]] = []
        self._asked = 0
        self._pages = 0

    def reach(self, point: str, way: Any = None, default: list[Act] | None = None) -> Exchange:
        """Come to a point that the transport itself has."""
        exchange = Exchange({}, None, self._acts(point, default or []), way)
        self._advance_shutdown(exchange)
        return exchange

    def receive(self, line: bytes, way: Any = None) -> list[Exchange]:
        """Handle a message, or a batch of them."""
        try:
            read = json.loads(line)
            messages = read if isinstance(read, list) else [read]
            return [self._receive(message, way) for message in messages]
        except (ValueError, AttributeError):
            self._note("malformed", text=line[:200].decode("latin-1"))
            return []

    def _receive(self, message: dict[str, Any], way: Any) -> Exchange:
        method = message.get("method")
        arguments = _arguments(message)
        nonce = arguments.get("nonce")
        if method is None:
            self._note("answered", message=message)
            exchange = Exchange(message, None, self._acts("answer", []), way)
        else:
            self._note("message", method=method, id=message.get("id"), nonce=nonce)
            self._nonces.add(nonce)
            acts = arguments.get("acts")
            if acts is None:
                usual = "acknowledge" if method == "subscriptions/listen" else "answer"
                acts = self._acts(method, [[usual]])
            exchange = Exchange(message, right_answer(message, self._script()), acts, way)
        self._advance_shutdown(exchange)
        self.wake({method or "answer", nonce})
        return exchange

    def wake(self, names: Collection[str | None]) -> None:
        """Go on with the acts that wait for one of these."""
        woken = [each for name, each in self._held if name in names]
        self._held = [each for each in self._held if each[0] not in names]
        for exchange in woken:
            self._advance_shutdown(exchange)

    def _acts(self, point: str, default: list[Act]) -> list[Act]:
        starts: list[dict[str, list[Act]]] = self._script().get("starts") or [{}]
        return starts[min(self._start, len(starts) - 1)].get(point, default)

    def _advance_shutdown(self, exchange: Exchange) -> None:
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

    def _answer(self, exchange: Exchange, members: dict[str, Any] | None = None) -> None:
        if exchange.answer is not None:
            self._send(exchange, {**exchange.answer, **(members or {})})

    def _reply(self, exchange: Exchange, members: dict[str, Any]) -> None:
        head = {"jsonrpc": "2.0", "id": exchange.message.get("id")}
        self._send(exchange, {**head, **members})

    def _huge(self, exchange: Exchange, size: int) -> None:
        block = {"type": "text", "text": "x" * size}
        result = {**(exchange.answer or {}).get("result", {}), "content": [block]}
        self._answer(exchange, {"result": result})

    def _page(self, exchange: Exchange) -> None:
        self._pages += 1
        cursor = f"page {self._pages}"
        result = {**(exchange.answer or {}).get("result", {}), "nextCursor": cursor}
        self._answer(exchange, {"result": result})

    def _raw(self, exchange: Exchange, text: str) -> None:
        self._write(exchange, text.encode("latin-1"), True)

    def _flood(self, exchange: Exchange, times: int, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        for _ in range(times):
            self._write(exchange, data, False)

    def _ask(self, exchange: Exchange, method: str, params: Any) -> None:
        self._asked += 1
        question = {"jsonrpc": "2.0", "id": f"asked-{self._asked}", "method": method}
        self._send(exchange, {**question, "params": params}, is_answer=False)

    def _progress(self, exchange: Exchange, value: Any) -> None:
        token = exchange.message.get("params", {}).get("_meta", {}).get("progressToken")
        params = {"progressToken": token, "progress": value}
        message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        self._send(exchange, message, is_answer=False)

    def _acknowledge(self, exchange: Exchange) -> None:
        params = exchange.message["params"]
        meta = {"io.modelcontextprotocol/subscriptionId": exchange.message["id"]}
        method = "notifications/subscriptions/acknowledged"
        told = {"_meta": meta, "notifications": params["notifications"]}
        message = {"jsonrpc": "2.0", "method": method, "params": told}
        self._send(exchange, message, is_answer=False)

    def _send(self, exchange: Exchange, message: Any, is_answer: bool = True) -> None:
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
"""What every transport can do."""


def read_script(path: str) -> Callable[[], dict[str, Any]]:
    """Read a script from a file that a test may replace at any time."""

    def read() -> dict[str, Any]:
        with open(path) as file:
            script: dict[str, Any] = json.load(file)
        return script

    return read


def right_answer(message: dict[str, Any], script: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer of a server without faults; None to a notification."""
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
