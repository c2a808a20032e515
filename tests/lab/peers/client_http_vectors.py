"""The client's conversations over HTTP: reading them, and playing both ends of its transport.

`spec/vectors/README.md` says what the lines mean. The server is a real one; it holds every request
until a line says what to answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
from attrs import define, field

from foundation_rt.client.errors import MCPError, SessionExpiredError
from foundation_rt.client.transports import http, http_streams
from foundation_rt.client.transports.transport import MAX_MESSAGE_BYTES
from foundation_rt.protocol.framing import LineTooLong
from foundation_rt.protocol.revisions import REVISIONS
from tests.lab.peers.client_vectors import FOLDER
from tests.lab.peers.conversations import compare, fill, octets, read
from tests.lab.peers.scripted_http import (
    PATIENCE,
    ReceivedRequest,
    Script,
    ScriptedReply,
    Talk,
    in_session,
    talking,
)
from tests.lab.waiting import Changing

SECONDS = {
    "linger": [(http_streams, "_LINGER_SECONDS")],
    "connect": [(http, "CONNECT_SECONDS")],
    "acknowledge": [(http_streams, "ACKNOWLEDGE_TIMEOUT"), (http, "ACKNOWLEDGE_TIMEOUT")],
    "expiry": [(http, "_EXPIRY_SECONDS")],
    "delete": [(http, "DELETE_TIMEOUT")],
}
"""The times that a vector may shorten, and where they are."""

MAX_ERROR_TEXT = 1_200
"""Most characters of an error's message, whatever the server says."""


@define
class HttpVector:
    """One conversation; the attributes from `name` on are its header's."""

    file: str
    id: str
    lines: list[tuple[int, dict[str, Any]]]
    name: str
    rules: list[str]
    path: str = "/mcp"
    server: dict[str, Any] = field(factory=dict)
    max_message_bytes: int = MAX_MESSAGE_BYTES
    session: bool = False
    listens: bool = False
    seconds: dict[str, float] = field(factory=dict)
    secrets: list[str] = field(factory=list)


def load() -> list[HttpVector]:
    """All conversations, in the order of files and lines."""
    return [HttpVector(**each) for each in read(FOLDER / "http")]


def event_of(said: Any) -> bytes:
    """Return a chunk of a stream: an event, or bytes."""
    if not isinstance(said, dict) or "base64" in said:
        return octets(said)
    texts = {
        name: value if isinstance(value, str) else orjson.dumps(value).decode()
        for name, value in said.items()
    }
    return "".join(f"{name}: {text}\n" for name, text in texts.items()).encode() + b"\n"


@define(eq=False)
class Exchange:
    """A request that the server has got, and its response."""

    asked: ReceivedRequest
    out: ScriptedReply

    async def respond(self, said: dict[str, Any]) -> None:
        """Send a response, or more of one."""
        status = said.get("status", 200)
        headers = {name.replace("-", "_"): text for name, text in said.get("headers", {}).items()}
        chunks = said.get("events", said.get("more"))
        if "events" in said:
            self.out.stream(**headers)
        if chunks is not None:
            for each in chunks:
                self.out.say(event_of(each))
        elif "raw" in said:
            await self._raw(octets(said["raw"]), said.get("pieces", 1_000_000))
        elif "result" in said:
            self.out.result(said["result"], **headers)
        elif "json" in said:
            self.out.json(said["json"], status, **headers)
        else:
            self.out.whole(status, octets(said.get("body", "")), **headers)
        await self._end(said.get("then", "open" if chunks is None else "end"))

    async def _raw(self, data: bytes, size: int) -> None:
        for start in range(0, len(data), size):
            self.out.raw(data[start : start + size])
            await self.out.writer.drain()

    async def _end(self, how: str) -> None:
        if how == "end":
            self.out.end()
        elif how == "close":
            await self.out.writer.drain()
            self.out.writer.close()
        elif how == "cut":
            self.out.cut()
        else:
            assert how == "open"


@define(eq=False)
class HttpPlayer(Changing):
    """Does what the lines of a conversation say, and compares.

    Args:
        log: returns the messages of the client's log, so far.
    """

    vector: HttpVector
    log: Callable[[], list[str]]
    talk: Talk = field(init=False)
    _messages: list[dict[str, Any]] = field(factory=list, init=False)
    _pending: dict[str, asyncio.Future[Any]] = field(factory=dict, init=False)
    _asked: list[str] = field(factory=list, init=False)
    _arrived: list[Exchange] = field(factory=list, init=False)
    _exchanges: dict[str, Exchange] = field(factory=dict, init=False)
    _told: int = field(default=0, init=False)
    _lost: int = field(default=0, init=False)
    _closing: asyncio.Future[None] | None = field(default=None, init=False)

    async def play(self) -> None:
        """Hold the conversation.

        Raises:
            AssertionError: the client does something else; a note names the line.
        """
        async with talking(
            self._script(),
            max_message_bytes=self.vector.max_message_bytes,
            path=self.vector.path,
            **self.vector.server,
        ) as self.talk:
            if self.vector.session:
                await self.talk.begin()
            for number, line in self.vector.lines:
                for _ in range(line.get("repeat", 1)):
                    await self._line(number, line)
            await self.talk.transport.close()
        compare(self._arrived, [])
        compare(self._pending, {})
        compare(self._heard()[self._told :], [])
        compare(len(self.talk.heard.ended), self._lost)
        if self.vector.session:
            compare(len(self.talk.server.of("DELETE")), 1 - self._lost)

    def _script(self) -> Script:
        """Return what the server does: in a session of its own accord what begins and ends it."""

        async def hold(asked: ReceivedRequest, out: ScriptedReply) -> None:
            self._arrived.append(Exchange(asked, out))
            self.has_changed()

        of_session = in_session(hold)

        async def script(asked: ReceivedRequest, out: ScriptedReply) -> None:
            listens = self.vector.listens and asked.method == "GET"
            is_held = listens or not self.vector.session
            await (hold if is_held else of_session)(asked, out)

        return script

    async def _line(self, number: int, line: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                self._begin(line)
                await self._exchange(line)
                await self._compare(line)
        except BaseException as error:
            arrived = [each.asked for each in self._arrived]
            error.add_note(f"{self.vector.file}.jsonl:{number}, with {arrived} not answered")
            raise

    def _begin(self, line: dict[str, Any]) -> None:
        """Let the program do something."""
        talk = self.talk
        if "ask" in line:
            asked = {"method": line["ask"]} if isinstance(line["ask"], str) else line["ask"]
            request_id = talk.send(**asked)
            self._asked.append(request_id)
            self._pending[request_id] = talk.heard.waiting[request_id]
            message = {"id": request_id, "method": asked["method"], "params": {}}
            self._messages.append({"jsonrpc": "2.0", **message})
        elif "notify" in line:
            talk.notify(line["notify"])
            self._messages.append({"jsonrpc": "2.0", "method": line["notify"]})
        elif "agreed" in line:
            talk.agree(REVISIONS[line["agreed"]])
        elif "close" in line:
            self._closing = asyncio.ensure_future(talk.transport.close())

    async def _exchange(self, line: dict[str, Any]) -> None:
        """Compare a request, respond to it, or both."""
        if "on" in line:
            exchange = self._exchanges[line["on"]]
        elif {"sent", "response"} & line.keys():
            exchange = await self._next(line)
            self._exchanges[line.get("as", "")] = exchange
        else:
            return
        if "response" in line:
            await exchange.respond(fill(line["response"], self._names(exchange.asked)))

    async def _next(self, line: dict[str, Any]) -> Exchange:
        """Return the first request of the kind that the line expects."""
        expected = {"method": "POST", "path": self.vector.path, **line.get("sent", {})}
        kind = (expected["method"], None)
        if expected["method"] == "POST":
            kind = ("POST", self._messages[-1]["method"])
        found: Exchange = await self.until(
            lambda: next((each for each in self._arrived if kind_of(each.asked) == kind), None)
        )
        self._arrived.remove(found)
        asked = found.asked
        compare(asked.target, expected["path"])
        if asked.body:
            compare(asked.message, self._messages[-1])
        headers = fill(expected.get("headers", {}), self._names(asked))
        compare({name: asked.headers.get(name) for name in headers}, headers)
        return found

    def _names(self, asked: ReceivedRequest) -> dict[str, Any]:
        """Return what the names in a line stand for."""
        authority = self.talk.server.url.split("/")[2]
        request_id = asked.message.get("id") if asked.body else "".join(self._asked[-1:])
        port = authority.partition(":")[2]
        return {"$authority": authority, "$port": port, "$id": request_id}

    async def _compare(self, line: dict[str, Any]) -> None:
        """Compare what the program gets to know."""
        of = self._asked[line["of"] - 1 if line.get("of") else -1] if self._asked else None
        for expected in line.get("told", ()):
            self._told += 1
            await self.talk.heard.until(lambda: len(self._heard()) >= self._told)
            request_id = of if line.get("of", 0) is not None else None
            compare(self._heard()[self._told - 1], (expected, request_id))
        if "end" in line:
            self._compare_end(await self._pending.pop(str(of)), line["end"])
        if "lost" in line:
            self._lost += 1
            await self.talk.heard.until(lambda: self.talk.heard.ended)
            self._compare_end(self.talk.heard.ended[0], line["lost"])
        if "warned" in line:
            await asyncio.gather(*self.talk.transport._tasks)
            compare(sorted(self.log()), sorted(line["warned"]))
        if "closed" in line:
            await self._exchanges[line["closed"]].out.gone()
        if "connections" in line:
            compare(self.talk.server.connections, line["connections"])

    def _heard(self) -> list[tuple[Any, str | None]]:
        """Return the server's requests and notifications, and on whose streams they came."""
        found: list[tuple[Any, str | None]] = []
        for line, request_id in self.talk.heard.told:
            message = "too long" if isinstance(line, LineTooLong) else orjson.loads(line)
            if message == "too long" or (type(message) is dict and "method" in message):
                found.append((message, request_id))
        return found

    def _compare_end(self, outcome: Any, expected: dict[str, Any]) -> None:
        if isinstance(outcome, MCPError):
            found = {"error": outcome.code, "mayHaveRun": outcome.may_have_run}
            found |= {"data": outcome.data, "retryAfter": outcome.retry_after}
            found |= {"message": outcome.message, "action": outcome.suggested_action}
            found |= {"expired": isinstance(outcome, SessionExpiredError)}
            assert len(outcome.message) < MAX_ERROR_TEXT
        else:
            found = {"result": outcome.get("result"), "refusal": outcome.get("error")}
        compare({name: found.get(name) for name in expected}, expected)
        text = f"{outcome} {outcome!r} {getattr(outcome, '__cause__', '')!r}"
        assert not [each for each in self.vector.secrets if each in text]


def kind_of(asked: ReceivedRequest) -> tuple[str, str | None]:
    """Return the HTTP method and the JSON-RPC method of a request."""
    return asked.method, asked.rpc
