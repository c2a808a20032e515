"""An HTTP client that sends whatever bytes a test wants sent, over a socket of its own.

Every wait ends after `PATIENCE` seconds.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import orjson
from attrs import define

from tests.lab.servers.fixture import HANDSHAKE

PATIENCE = 60.0

REVISION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientCapabilities": {},
}
_JSON = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"


@define
class RawResponse:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return orjson.loads(self.body)


class RawClient:
    """One connection.

    Args:
        receive_buffer: bytes that the system takes for us while we do not read.
    """

    def __init__(self, url: str, receive_buffer: int | None = None) -> None:
        parts = urlsplit(url)
        self.path = parts.path
        self.host = f"{parts.hostname}:{parts.port}"
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        try:
            self.socket.connect((str(parts.hostname), int(parts.port or 80)))
        except OSError:
            self.socket.close()
            raise
        self.received = b""

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def head(self, method: str, headers: str = "", path: str | None = None) -> bytes:
        """Return the head of a request; `headers` are whole lines."""
        line = f"{method} {path or self.path} HTTP/1.1\r\nHost: {self.host}\r\n"
        return (line + headers + "\r\n").encode()

    def post(self, message: object, headers: Mapping[str, str] | None = None) -> bytes:
        """Return a POST of a message, as bytes."""
        body = orjson.dumps(message)
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        return self.head("POST", f"{_JSON}Content-Length: {len(body)}\r\n{lines}") + body

    def call(self, tool: str, /, request_id: object = 1, **arguments: object) -> bytes:
        """Return a stateless call, as bytes."""
        return self.request(
            "tools/call", {"name": tool, "arguments": arguments}, request_id=request_id, name=tool
        )

    def request(
        self, method: str, params: Mapping[str, Any], request_id: object = 1, name: str = ""
    ) -> bytes:
        """Return a stateless request, as bytes."""
        message = {
            "jsonrpc": "2.0",
            "id": request_id,
            "method": method,
            "params": {"_meta": META, **params},
        }
        headers = {"MCP-Protocol-Version": REVISION, "Mcp-Method": method}
        return self.post(message, headers | ({"Mcp-Name": name} if name else {}))

    def begin_session(
        self, headers: Mapping[str, str] | None = None, **capabilities: object
    ) -> dict[str, str]:
        """Initialize a session; return the headers of its further requests."""
        params = {**HANDSHAKE, "capabilities": capabilities}
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        sent = dict(headers or {})
        sent["Mcp-Session-Id"] = self.fetch(self.post(hello, sent)).headers["mcp-session-id"]
        told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert self.fetch(self.post(told, sent)).status == 202
        return sent

    def fetch(self, data: bytes) -> RawResponse:
        """Send a request and read its response."""
        self.send(data)
        return self.answer()

    def answer(self) -> RawResponse:
        """Read a response to its end."""
        head = self.read_until(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        pairs = (line.partition(": ") for line in lines[1:] if line)
        headers = {name.lower(): value for name, _, value in pairs}
        if "chunked" in headers.get("transfer-encoding", ""):
            body = b""
            while chunk := self._read_chunk():
                body += chunk
        else:
            body = self._read_exactly(int(headers.get("content-length", "0")))
        return RawResponse(int(lines[0].split(" ")[1]), headers, body)

    def read_until(self, marker: bytes) -> bytes:
        """Read up to and with `marker`."""
        while marker not in self.received:
            self._read_some()
        found, marker, self.received = self.received.partition(marker)
        return found + marker

    def is_ended(self) -> bool:
        """Wait until the server ends the connection; whatever still came is kept."""
        try:
            while data := self.socket.recv(65_536):
                self.received += data
        except ConnectionError:
            pass
        return True

    def _read_chunk(self) -> bytes:
        size = int(self.read_until(b"\r\n"), 16)
        return self._read_exactly(size + 2)[:-2]

    def _read_exactly(self, size: int) -> bytes:
        while len(self.received) < size:
            self._read_some()
        found, self.received = self.received[:size], self.received[size:]
        return found

    def _read_some(self) -> None:
        data = self.socket.recv(65_536)
        assert data, f"the server ended the connection after {self.received[-200:]!r}"
        self.received += data
