"""Serve a script over HTTP: `python -m tests.lab.peers.script_http SCRIPT LOG PORT`.

The program prints the port that it listens on.

`script` describes scripts, and the acts of every transport. A response is JSON; it is a
stream of events after the act `stream`, or if something other than a response is sent first. Over
HTTP there are also:

    stream                  begin a stream of events
    event LINES             send an event of these lines, unchanged
    finish                  end the response correctly
    cut                     close the connection
    part FRACTION           send the first bytes of the right response, its head included
    drip BYTES              send so many bytes of the right response, one at a time
    status CODE [HEADERS [BODY]]
                            send this response, whole; the body in Latin-1
    bytes TEXT              write these bytes (Latin-1) to the connection, unchanged
    endless LINE            repeat this line of a stream for as long as the client reads
    session NAME            send the client a session id that the server does not know
    forget                  forget all sessions
    exit CODE, kill         end the process

The points `POST`, `GET` and `DELETE` come with the requests of these methods, before their messages
are read. A request whose point has no act is handled correctly.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from tests.lab.peers.script import (
    STATELESS,
    ScriptExchange,
    ScriptLog,
    ScriptRunner,
    read_script,
)
from tests.lab.peers.script_stdio import KILL
from tests.lab.programs.processes import started

_SESSION = "mcp-session-id"
_DRIP_SECONDS = 0.002
_LIMIT = 1 << 20
"""Longest head that is read, in bytes."""


class RequestReader(asyncio.StreamReader):
    """The input of a connection.

    Attributes:
        left: set when the client has closed the connection; found without reading from it.
    """

    def __init__(self) -> None:
        super().__init__(_LIMIT)
        self.left = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.left.set()

    def set_exception(self, exc: BaseException) -> None:
        super().set_exception(exc)
        self.left.set()


class MisbehavingResponse:
    """One response.

    Args:
        writer: the output of the connection.
        method: the method of the request.

    Attributes:
        headers: further headers of the response.
        streams: whether a stream has begun.
        finished: set when nothing more is to be written.
        is_cut: whether the connection must be closed.
        task: a task that writes in the background.
    """

    def __init__(self, writer: asyncio.StreamWriter, method: str) -> None:
        self._writer = writer
        self.method = method
        self.headers: dict[str, str] = {}
        self.streams = False
        self.finished = asyncio.Event()
        self.is_cut = False
        self.task: asyncio.Task[None] | None = None

    @property
    def is_decided(self) -> bool:
        """Return whether an act has begun the response, or has ended it."""
        return self.streams or self.is_cut or self.finished.is_set() or self.task is not None

    def write(self, data: bytes) -> None:
        if not self.is_cut:
            self._writer.write(data)

    def whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.write(self._head(status, {"Content-Length": str(len(body)), **headers}) + body)
        self.finished.set()

    def json(self, data: bytes) -> bytes:
        """Return the bytes of a whole response with this JSON."""
        headers = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        return self._head(200, headers) + data

    def stream(self) -> None:
        if not self.streams:
            self.streams = True
            headers = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
            self.write(self._head(200, headers))

    def chunk(self, data: bytes) -> None:
        self.write(b"%x\r\n%b\r\n" % (len(data), data))

    def finish(self) -> None:
        if self.streams:
            self.write(b"0\r\n\r\n")
        self.finished.set()

    def cut(self) -> None:
        self.is_cut = True
        self.finished.set()

    def go_on(self, writing: Any) -> None:
        """Write in the background."""
        self.task = asyncio.ensure_future(writing)

    async def drip(self, data: bytes) -> None:
        """Send the bytes one at a time."""
        for byte in data:
            self.write(bytes([byte]))
            await asyncio.sleep(_DRIP_SECONDS)

    async def endless(self, line: bytes) -> None:
        """Send a line without end; write no more than the client takes."""
        self.stream()
        while not self.is_cut:
            self.chunk(line + b"\n")
            await self._writer.drain()

    async def end(self) -> None:
        """Stop writing."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait({self.task})

    def _head(self, status: int, headers: Mapping[str, str]) -> bytes:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name}: {value}" for name, value in {**self.headers, **headers}.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


class MisbehavingHttp:
    """A server over HTTP that misbehaves.

    Args:
        script: the path of the script.
        log: the path of the log.
    """

    def __init__(self, script: str, log: str) -> None:
        self._log = ScriptLog(log)
        start = self._log.starts(log)
        self._log.note("start", started=started(os.getpid()))
        self._script = read_script(script)
        self._runner = ScriptRunner(self._script, start, self._log.note, self._write, self._perform)
        self._sessions: set[str] = set()

    async def run(self, port: int) -> None:
        """Serve until killed."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: asyncio.StreamReaderProtocol(RequestReader(), self._connected),
            "127.0.0.1",
            port,
        )
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    async def _connected(self, reader: Any, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: RequestReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether another may come."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        response = MisbehavingResponse(writer, head[0].split()[0])
        self._answer(response, headers.get(_SESSION), body)
        await self._until_done(reader, response)
        return not response.is_cut

    def _answer(self, response: MisbehavingResponse, session: str | None, body: bytes) -> None:
        reached = self._runner.reach(response.method, response)
        if response.is_decided or reached.acts:
            return
        if response.method != "POST":
            response.whole(200 if response.method == "DELETE" else 405, {}, b"")
        elif self._knows(session, response, body):
            for exchange in self._runner.receive(body, response):
                self._accept(exchange, response)
        else:
            response.whole(404, {}, b"")

    def _knows(self, session: str | None, response: MisbehavingResponse, body: bytes) -> bool:
        if self._script()["revision"] == STATELESS:
            return True
        if b'"initialize"' in body:
            name = os.urandom(16).hex()
            self._sessions.add(name)
            response.headers[_SESSION] = name
            return True
        return session in self._sessions

    def _accept(self, exchange: ScriptExchange, response: MisbehavingResponse) -> None:
        """Accept a message that needs no answer, unless the script did something else with it."""
        if exchange.answer is None and not exchange.acts and not response.is_decided:
            response.whole(202, {}, b"")

    async def _until_done(self, reader: RequestReader, response: MisbehavingResponse) -> None:
        """Wait until the response has ended or the client has gone."""
        ends = [asyncio.ensure_future(each.wait()) for each in (response.finished, reader.left)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in ends:
                each.cancel()
            await response.end()
        if not response.finished.is_set():
            response.cut()

    # -- acts --------------------------------------------------------------------------------------

    def _write(self, exchange: ScriptExchange, data: bytes, is_answer: bool) -> None:
        response: MisbehavingResponse = exchange.way
        if response.streams or not is_answer:
            response.stream()
            response.chunk(b"event: message\ndata: " + data + b"\n\n")
            if is_answer and not exchange.acts:
                response.finish()
        else:
            response.write(response.json(data))
            response.finished.set()

    def _perform(self, exchange: ScriptExchange, name: str, *arguments: Any) -> None:
        ACTS[name](self, exchange, *arguments)

    def _part(self, exchange: ScriptExchange, fraction: float) -> None:
        data = exchange.way.json(exchange.answer_bytes())
        exchange.way.write(data[: int(len(data) * fraction)])

    def _drip(self, exchange: ScriptExchange, size: int) -> None:
        data = exchange.way.json(exchange.answer_bytes())
        exchange.way.go_on(exchange.way.drip(data[:size]))

    def _status(
        self,
        exchange: ScriptExchange,
        code: int,
        headers: Mapping[str, str] | None = None,
        body: str = "",
    ) -> None:
        exchange.way.whole(code, headers or {}, body.encode("latin-1"))

    def _endless(self, exchange: ScriptExchange, line: str) -> None:
        exchange.way.go_on(exchange.way.endless(line.encode()))

    def _name(self, exchange: ScriptExchange, name: str) -> None:
        exchange.way.headers[_SESSION] = name


def _kill() -> None:
    os.kill(os.getpid(), KILL)


ACTS: dict[str, Any] = {
    "stream": lambda self, exchange: exchange.way.stream(),
    "event": lambda self, exchange, lines: exchange.way.chunk(lines.encode() + b"\n\n"),
    "finish": lambda self, exchange: exchange.way.finish(),
    "cut": lambda self, exchange: exchange.way.cut(),
    "part": MisbehavingHttp._part,
    "drip": MisbehavingHttp._drip,
    "status": MisbehavingHttp._status,
    "bytes": lambda self, exchange, text: exchange.way.write(text.encode("latin-1")),
    "endless": MisbehavingHttp._endless,
    "session": MisbehavingHttp._name,
    "forget": lambda self, exchange: self._sessions.clear(),
    "exit": lambda self, exchange, code: os._exit(code),
    "kill": lambda self, exchange: _kill(),
}
"""The acts of this transport, by name."""


if __name__ == "__main__":
    # asyncio warns of writes after the client has gone, which this server makes on purpose.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    asyncio.run(MisbehavingHttp(*sys.argv[1:3]).run(int(sys.argv[3])))
