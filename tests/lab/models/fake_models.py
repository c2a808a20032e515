"""A real HTTP server that plays answers in any dialect of the three wires (`dialects`).

    async with FakeModels([["Hel", "lo", {"call": "demo__echo", "arguments": {...}}]]) as fake:
        service = make_service(fake.config("openai"))

Each request gets the next answer, the last one again and again. Steps of an answer are those of a
script; besides, `{"status": 429, "message": "...", "headers": {...}}` refuses the request,
`{"hang": true}` first in an answer hangs before the headers, and `{"signature": "..."}` in a call
is Gemini's, as are `{"finish": "..."}` and `{"blocked": "..."}`. `cut_at` closes the connection
after so many bytes of the body; `after_end`, "hang" or "cut", is what it does after an
answer instead of ending the response. `is_strict` refuses what a strict vendor refuses
(`strict_wires`).
"""

from __future__ import annotations

import asyncio
import json
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Self

from attrs import define, field, frozen

from foundation_rt.apps.host.llm.model_service import ModelService
from foundation_rt.apps.host.llm.providers import make_service
from foundation_rt.apps.host.llm.service import LLMConfig
from tests.lab.models.dialects import DIALECTS, Step, encoded
from tests.lab.models.strict_wires import refusal
from tests.trace import ROOT

KEY = "sk-secret-0123456789"
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n"


@frozen
class Recorded:
    """A request that came in."""

    path: str
    headers: Mapping[str, str]
    body: Any

    @property
    def key(self) -> str | None:
        """The key of the request, wherever its wire has it."""
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ") or None
        return self.headers.get("x-api-key") or self.headers.get("x-goog-api-key") or bearer


@define(eq=False)
class FakeModels:
    """A server that speaks all three wires."""

    answers: Sequence[Sequence[Step]] = ()
    models: Sequence[str] = ("fake-1",)
    dialect: str = ""
    cut_at: int | None = None
    bytes_at_once: int | None = None
    is_strict: bool = False
    after_end: str = ""
    refusals: list[str] = field(factory=list, init=False)
    requests: list[Recorded] = field(factory=list, init=False)
    hung_up: int = field(default=0, init=False)
    gone: asyncio.Event = field(factory=asyncio.Event, init=False)
    _played: int = field(default=0, init=False)
    _server: asyncio.Server | None = field(default=None, init=False)
    _services: list[ModelService] = field(factory=list, init=False)
    _tasks: set[asyncio.Task[None]] = field(factory=set, init=False)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        for service in self._services:
            await service.close()
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def config(self, provider: str, **values: Any) -> LLMConfig:
        """Return the configuration of a provider that asks this server."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}" + ("/v1" if provider == "openai" else "")
        given = {"model": "fake-1", "api_key": KEY, "base_url": url, **values}
        return LLMConfig(provider=provider, **given)

    def service(self, provider: str, **values: Any) -> ModelService:
        """Return a service that asks this server, and is closed with it."""
        self._services.append(make_service(self.config(provider, **values)))
        return self._services[-1]

    def play(self, *answers: Sequence[Step]) -> None:
        """Play these answers from now on."""
        self.answers, self._played = answers, 0

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                if not await self._answer(request, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self._note_gone()
        except asyncio.CancelledError:
            pass  # the server closes
        finally:
            self._tasks.discard(task)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def _note_gone(self) -> None:
        self.hung_up += 1
        self.gone.set()

    async def _answer(
        self, request: Recorded, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer a request; return whether the connection goes on."""
        if request.body is None:
            return await _send(writer, 200, _model_list(request, self.models))
        refused = refusal(request.path, request.body) if self.is_strict else None
        if refused is not None:
            self.refusals.append(refused)
            return await _send(writer, 400, _error_body(400, refused, None))
        steps = self.answers[min(self._played, len(self.answers) - 1)]
        self._played += 1
        first = steps[0] if steps and not isinstance(steps[0], str) else {}
        if "status" in first:
            body = _error_body(first["status"], first.get("message", "no"), first.get("retryDelay"))
            return await _send(writer, first["status"], body, first.get("headers", {}))
        if "hang" in first:
            await self._hang(reader)
            return False
        is_object = bool(self.dialect) and DIALECTS[self.dialect].is_one_object
        writer.write(
            _HEAD.replace(b"text/event-stream", b"application/json") if is_object else _HEAD
        )
        return await self._stream(request, steps, reader, writer)

    async def _hang(self, reader: asyncio.StreamReader) -> None:
        """Say nothing more, until the client closes the connection."""
        assert await reader.read(1) == b""
        self._note_gone()

    async def _stream(
        self,
        request: Recorded,
        steps: Sequence[Step],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        sent = 0
        traits = DIALECTS[self.dialect or _wire(request)]
        for part in encoded(steps, traits):
            if isinstance(part, bytes):
                kept = part if self.cut_at is None else part[: max(0, self.cut_at - sent)]
                sent += len(part)
                await self._write(writer, kept)
                if len(kept) == len(part):
                    continue
            elif part == "hang":
                await self._hang(reader)
            elif part == "reset":
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, linger)
            return False
        if self.after_end == "hang":
            await self._hang(reader)
        if self.after_end:
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _write(self, writer: asyncio.StreamWriter, part: bytes) -> None:
        size = self.bytes_at_once or len(part) or 1
        for start in range(0, len(part), size):
            piece = part[start : start + size]
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()


async def _read(reader: asyncio.StreamReader) -> Recorded | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode().split("\r\n")[:-2]
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Recorded(first.split()[1], headers, json.loads(body) if body else None)


async def _send(
    writer: asyncio.StreamWriter, status: int, body: Any, headers: Mapping[str, str] | None = None
) -> bool:
    data = json.dumps(body).encode()
    lines = {"content-type": "application/json", "content-length": len(data), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    writer.write(f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + data)
    await writer.drain()
    return True


def _model_list(request: Recorded, models: Sequence[str]) -> Any:
    if "x-goog-api-key" in request.headers:
        return {"models": [{"name": f"models/{name}"} for name in models]}
    shown = [
        {"id": name, "object": "model", "type": "model", "created": 1, "owned_by": "x"}
        for name in models
    ]
    return {"object": "list", "data": shown, "has_more": False}


def _error_body(status: int, message: str, retry_delay: str | None) -> Any:
    error: dict[str, Any] = {"code": status, "type": "x", "message": message}
    if retry_delay is not None:
        error["details"] = [{"retryDelay": retry_delay}]
    return {"type": "error", "error": error}


def _wire(request: Recorded) -> str:
    """Return the dialect of a request's path, as its vendor has it."""
    if "chat/completions" in request.path:
        return "openai"
    return "anthropic" if "messages" in request.path else "gemini"


@contextmanager
def running_models(*answers: Sequence[Step]) -> Iterator[str]:
    """Run the server in a process of its own; yield its URL, without a path."""
    words = [sys.executable, "-m", "tests.lab.models.fake_models", json.dumps(answers)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


async def _serve(answers: Sequence[Sequence[Step]]) -> None:
    async with FakeModels(answers) as fake:
        print(fake.config("").base_url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(json.loads(sys.argv[1])))
