"""An HTTP server that a test scripts byte for byte, and a client transport to it.

    async def answer(asked: Asked, out: ScriptedReply) -> None: ...

    async with talking(answer) as talk:
        got = await talk.call("tools/list")

The function runs once for each complete request. A response that it does not end stays open until
the client closes the connection. At the end of the block the transport is closed, it has left no
task, and the client has closed every connection.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import orjson
from attrs import define, field, frozen
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from foundation_rt.client.errors import InvalidResponseError, MCPError
from foundation_rt.client.targets import HttpServer
from foundation_rt.client.transports.http import HttpTransport
from foundation_rt.client.transports.transport import MAX_MESSAGE_BYTES, ClientMessage
from foundation_rt.protocol.framing import LineTooLong
from foundation_rt.protocol.revisions import (
    NEWEST_HANDSHAKE_REVISION,
    REVISIONS,
    STATELESS_REVISIONS,
    Revision,
)
from tests.lab.waiting import PATIENCE, Changing

SESSIONS = REVISIONS[NEWEST_HANDSHAKE_REVISION]
STATELESS = REVISIONS[STATELESS_REVISIONS[-1]]


@frozen(eq=False)
class ReceivedRequest:
    """A request; names of headers are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> Any:
        """The body."""
        return orjson.loads(self.body)

    @property
    def rpc(self) -> str | None:
        """The method of the message; None of a GET, a DELETE and an answer."""
        return self.message.get("method") if self.body else None


@define(eq=False)
class ScriptedReply:
    """The response to one request."""

    asked: ReceivedRequest
    writer: asyncio.StreamWriter
    left: asyncio.Event

    def raw(self, data: bytes) -> None:
        """Send these bytes."""
        self.writer.write(data)

    def whole(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send a response; `content_type` is the header Content-Type."""
        self.raw(self._head(status, headers | {"content_length": str(len(body))}) + body)

    def json(self, value: Any, status: int = 200, **headers: str) -> None:
        """Send a response in JSON."""
        self.whole(status, orjson.dumps(value), **{"content_type": "application/json"} | headers)

    def result(self, value: Any = None, **headers: str) -> None:
        """Return the answer to a request."""
        self.json(answer_to(self.asked, value), **headers)

    def stream(self, **headers: str) -> None:
        """Begin a stream of events."""
        headers = {"content_type": "text/event-stream", "transfer_encoding": "chunked"} | headers
        self.raw(self._head(200, headers))

    def say(self, text: bytes) -> None:
        """Send a piece of a stream."""
        self.raw(b"%x\r\n%b\r\n" % (len(text), text))

    def event(self, value: Any, fields: str = "") -> None:
        """Send an event with a message; `fields` are whole lines before its data."""
        self.say(fields.encode() + b"data: " + orjson.dumps(value) + b"\n\n")

    def end(self) -> None:
        """End a stream as it should be ended."""
        self.raw(b"0\r\n\r\n")

    def cut(self) -> None:
        """Close the connection at once."""
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Wait until the client has closed the connection."""
        await asyncio.wait_for(self.left.wait(), PATIENCE)

    def _head(self, status: int, headers: dict[str, str]) -> bytes:
        lines = "".join(f"{name.replace('_', '-')}: {text}\r\n" for name, text in headers.items())
        return f"HTTP/1.1 {status} Said\r\n{lines}\r\n".encode("latin-1")


Script = Callable[[ReceivedRequest, ScriptedReply], Awaitable[None]]


async def empty_result(asked: ReceivedRequest, out: ScriptedReply) -> None:
    """Answer a request with nothing."""
    out.result()


async def never(asked: ReceivedRequest, out: ScriptedReply) -> None:
    """Answer nothing as long as the client waits."""
    await out.gone()


def in_session(script: Script = empty_result) -> Script:
    """Return a script for all but the beginning and the end of a session, which are answered."""

    async def in_session(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.method == "DELETE":
            out.whole(200)
        elif asked.method == "GET" and "last-event-id" not in asked.headers:
            out.whole(405)
        elif asked.rpc == "initialize":
            out.result(mcp_session_id="s-1")
        elif asked.rpc == "notifications/initialized":
            out.whole(202)
        else:
            await script(asked, out)

    return in_session


def answer_to(asked: ReceivedRequest, value: Any = None) -> dict[str, Any]:
    """Return the answer to a request."""
    return {"jsonrpc": "2.0", "id": asked.message["id"], "result": value or {}}


@define(eq=False)
class ScriptedHttp(Changing):
    """A server.

    Attributes:
        asked: every request, in order.
        connections: how many there were in all.
    """

    script: Script
    tls: ssl.SSLContext | None = None
    asked: list[ReceivedRequest] = field(factory=list)
    connections: int = 0
    url: str = ""
    _tasks: set[asyncio.Task[None]] = field(factory=set)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[ScriptedHttp]:
        """Listen on a free port; at the end the client must have closed every connection."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self.tls)
        scheme = "http" if self.tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        try:
            yield self
            if self._tasks:
                await asyncio.wait_for(asyncio.gather(*self._tasks), PATIENCE)
        finally:
            for task in self._tasks:
                task.cancel()
            server.close()
            await server.wait_closed()

    def of(self, method: str) -> list[ReceivedRequest]:
        """Return the requests of this HTTP method."""
        return [asked for asked in self.asked if asked.method == method]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            await self._serve(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                asked = await _read(reader)
                self.asked.append(asked)
                self.has_changed()
                left = asyncio.Event()
                work = asyncio.ensure_future(self.script(asked, ScriptedReply(asked, writer, left)))
                # One byte is enough to tell whether the client goes or asks again; it is put back.
                coming = asyncio.ensure_future(reader.read(1))
                await asyncio.wait({work, coming}, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    await asyncio.wait({coming})
                data = b"" if coming.exception() else coming.result()
                if not data:
                    left.set()
                    await work
                    return
                await work
                reader._buffer[:0] = data  # type: ignore[attr-defined]


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *fields = head.rstrip("\r\n").split("\r\n")
    method, target, _ = line.split(" ")
    pairs = (each.partition(": ") for each in fields)
    headers = {name.lower(): value for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return ReceivedRequest(method, target, headers, body)


@define(eq=False)
class Heard(Changing):
    """A `Receiver` that does as a session does.

    Attributes:
        told: what belongs to no request that waits: its line, and the request's id on whose
            stream it came.
        ended: what the channel was lost with.
    """

    waiting: dict[str, asyncio.Future[Any]] = field(factory=dict)
    told: list[tuple[bytes | LineTooLong, str | None]] = field(factory=list)
    ended: list[MCPError] = field(factory=list)

    def received(self, line: bytes | LineTooLong, request_id: str | None) -> None:
        assert not self.ended, "something came after the end"
        try:
            message = None if isinstance(line, LineTooLong) else orjson.loads(line)
        except ValueError:
            message = None
        if message is None and request_id in self.waiting:
            self._settle(request_id, InvalidResponseError(f"unusable: {line!r:.60}"))
            return
        named = message.get("id") if type(message) is dict else None
        if named is None and type(message) is dict and "error" in message:
            named = request_id
        if named in self.waiting and "method" not in message:
            self._settle(named, message)
        else:
            self.told.append((line, request_id))
        self.has_changed()

    def awaits(self, request_id: str) -> bool:
        return request_id in self.waiting

    def failed(self, request_id: str, error: MCPError) -> None:
        if request_id in self.waiting:
            self._settle(request_id, error)

    def lost(self, error: MCPError) -> None:
        assert not self.ended, "lost twice"
        self.ended.append(error)
        for request_id in [*self.waiting]:
            self._settle(request_id, error)
        self.has_changed()

    def _settle(self, request_id: str, outcome: Any) -> None:
        waiting = self.waiting.pop(request_id)
        if not waiting.done():
            waiting.set_result(outcome)


@define(eq=False)
class Talk:
    """An open transport, with its server and its receiver."""

    transport: HttpTransport
    heard: Heard
    server: ScriptedHttp
    revision: Revision | None = STATELESS
    _numbers: Any = field(factory=lambda: itertools.count(1))

    def send(self, method: str, name: str | None = None, **more: Any) -> str:
        """Send a request; returns its id."""
        request_id = f"request-{next(self._numbers)}"
        self.heard.waiting[request_id] = asyncio.get_running_loop().create_future()
        line = orjson.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": {}})
        revision = None if method == "initialize" else self.revision
        self.transport.send(
            ClientMessage(line, request_id, method, name, revision=revision, **more)
        )
        return request_id

    async def call(self, method: str, name: str | None = None, **more: Any) -> Any:
        """Return the result of a request.

        Raises:
            MCPError: there is none.
        """
        return await self.outcome(self.send(method, name, **more))

    async def refused(self, method: str = "tools/call") -> MCPError:
        """Return the error that a request ends in."""
        try:
            result = await self.call(method)
        except MCPError as error:
            return error
        raise AssertionError(f"it went through: {result!r}")

    def outcome(self, request_id: str) -> Coroutine[Any, Any, Any]:
        """Return the result of a request that was sent, or its JSON-RPC error."""
        return _outcome(self.heard.waiting[request_id])

    def notify(self, method: str | None) -> None:
        """Send a notification; with None an answer to something."""
        line = orjson.dumps({"jsonrpc": "2.0", "method": method})
        self.transport.send(ClientMessage(line, None, method, revision=self.revision))

    def agree(self, revision: Revision) -> None:
        """Send this revision from now on: the result of `initialize` named it."""
        self.revision = revision
        self.transport.negotiated(revision)

    async def begin(self) -> None:
        """Perform the handshake."""
        await self.call("initialize")
        self.agree(SESSIONS)
        self.notify("notifications/initialized")


async def _outcome(waiting: asyncio.Future[Any]) -> Any:
    outcome = await asyncio.wait_for(waiting, PATIENCE)
    if isinstance(outcome, MCPError):
        raise outcome
    return outcome.get("result", outcome.get("error"))


@asynccontextmanager
async def talking(
    script: Script,
    *,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    path: str = "",
    tls: ssl.SSLContext | None = None,
    **options: Any,
) -> AsyncIterator[Talk]:
    """Speak to a server that does as the script says.

    Args:
        path: of the server's address, if it is not `/mcp`.
        tls: of the server, if it is to speak that.
        options: of the `HttpServer`.
    """
    async with ScriptedHttp(script, tls).serving() as server:
        url = server.url.removesuffix("/mcp") + path if path else server.url
        transport, heard = HttpTransport(HttpServer(url, **options), max_message_bytes), Heard()
        await transport.open(heard)
        try:
            yield Talk(transport, heard, server)
        finally:
            await asyncio.wait_for(transport.close(), PATIENCE)


def self_signed(folder: Path) -> ssl.SSLContext:
    """Return the TLS of a server at 127.0.0.1 with a self-signed certificate, kept in `folder`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(private + certificate.public_bytes(pem))
    (folder / "authority.pem").write_bytes(certificate.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context
