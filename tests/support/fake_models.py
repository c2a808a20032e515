"""Fakes of the three wires of language models: a real HTTP server that plays answers.

    async with FakeModels([["Hel", "lo", {"call": "demo__echo", "arguments": {...}}]]) as fake:
        service = make_service(fake.config("openai"))

Each request gets the next answer, the last one again and again. Steps of an answer are those of a
script; besides, `{"status": 429, "message": "...", "headers": {...}}` refuses the request,
`{"hang": true}` first in an answer hangs before the headers, and `{"signature": "..."}` in a call
is Gemini's, as are `{"finish": "..."}` and `{"blocked": "..."}`. `cut_at` closes the connection
after so many bytes of the body.
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Self

from attrs import define, field, frozen

from foundation_rt.host.llm.model_service import ModelService
from foundation_rt.host.llm.providers import make_service
from foundation_rt.host.llm.service import LLMConfig

KEY = "sk-secret-0123456789"
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
Step = str | Mapping[str, Any]


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
    cut_at: int | None = None
    bytes_at_once: int | None = None
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
        steps = self.answers[min(self._played, len(self.answers) - 1)]
        self._played += 1
        first = steps[0] if steps and not isinstance(steps[0], str) else {}
        if "status" in first:
            body = _error_body(first["status"], first.get("message", "no"), first.get("retryDelay"))
            return await _send(writer, first["status"], body, first.get("headers", {}))
        if "hang" in first:
            await self._hang(reader)
            return False
        writer.write(_HEAD)
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
        for part in _encoded(request, steps):
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


def _encoded(request: Recorded, steps: Sequence[Step]) -> Iterator[bytes | str]:
    """Yield the body of an answer on the wire of its request; "hang", "cut" and "reset" as such."""
    if "chat/completions" in request.path:
        return _openai(steps)
    return _anthropic(steps) if "messages" in request.path else _gemini(steps)


def _event(value: Any, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()


def _halves(arguments: Any) -> tuple[str, str]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return text[: len(text) // 2], text[len(text) // 2 :]


def _control(step: Step) -> str | None:
    controls = ("hang", "cut", "reset")
    return (
        None if isinstance(step, str) else next((each for each in controls if each in step), None)
    )


def _usage_of(steps: Sequence[Step]) -> Mapping[str, int] | None:
    return next((s["usage"] for s in steps if not isinstance(s, str) and "usage" in s), None)


def _openai(steps: Sequence[Step]) -> Iterator[bytes | str]:
    def chunk(delta: Any, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _event(
            {
                "id": "x",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "m",
                "choices": [choice],
            }
        )

    finish, count = "stop", 0
    yield chunk({"role": "assistant", "content": ""})
    for step in steps:
        if isinstance(step, str):
            yield chunk({"content": step})
        elif (control := _control(step)) is not None:
            yield control
            return
        elif "call" in step:
            one, two = _halves(step.get("arguments", {}))
            function = {"name": step["call"], "arguments": one}
            call = {"index": count, "id": step.get("id"), "type": "function", "function": function}
            yield chunk({"tool_calls": [call]})
            yield chunk({"tool_calls": [{"index": count, "function": {"arguments": two}}]})
            count, finish = count + 1, "tool_calls"
        elif "truncated" in step:
            finish = "length"
        elif "refusal" in step:
            finish = "content_filter"
    yield chunk({}, finish)
    if (usage := _usage_of(steps)) is not None:
        values = {
            "prompt_tokens": usage["promptTokens"],
            "completion_tokens": usage["completionTokens"],
        }
        yield _event(
            {
                "id": "x",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "m",
                "choices": [],
                "usage": {**values, "total_tokens": 0},
            }
        )
    yield b"data: [DONE]\n\n"


def _anthropic(steps: Sequence[Step]) -> Iterator[bytes | str]:
    def event(kind: str, **values: Any) -> bytes:
        return _event({"type": kind, **values}, kind)

    usage = _usage_of(steps) or {"promptTokens": 1, "completionTokens": 1}
    message = {
        "id": "x", "type": "message", "role": "assistant", "content": [], "model": "m",
        "stop_reason": None, "stop_sequence": None,
        "usage": {"input_tokens": usage["promptTokens"], "output_tokens": 1},
    }  # fmt: skip
    yield event("message_start", message=message)
    reason, index, is_open = "end_turn", -1, False
    for step in steps:
        if isinstance(step, str):
            if not is_open:
                index, is_open = index + 1, True
                yield event(
                    "content_block_start", index=index, content_block={"type": "text", "text": ""}
                )
                yield event("ping")
            yield event(
                "content_block_delta", index=index, delta={"type": "text_delta", "text": step}
            )
        elif (control := _control(step)) is not None:
            yield control
            return
        elif "call" in step:
            if is_open:
                yield event("content_block_stop", index=index)
            index, is_open, reason = index + 1, False, "tool_use"
            block = {"type": "tool_use", "id": step.get("id"), "name": step["call"], "input": {}}
            yield event("content_block_start", index=index, content_block=block)
            for half in _halves(step.get("arguments", {})):
                yield event(
                    "content_block_delta",
                    index=index,
                    delta={"type": "input_json_delta", "partial_json": half},
                )
            yield event("content_block_stop", index=index)
        elif "truncated" in step:
            reason = "max_tokens"
        elif "refusal" in step:
            reason = "refusal"
    if is_open:
        yield event("content_block_stop", index=index)
    delta = {"stop_reason": reason, "stop_sequence": None}
    yield event("message_delta", delta=delta, usage={"output_tokens": usage["completionTokens"]})
    yield event("message_stop")


def _gemini(steps: Sequence[Step]) -> Iterator[bytes | str]:
    def chunk(*parts: Any, finish: str | None = None) -> bytes:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
        if finish is not None:
            candidate["finishReason"] = finish
        found: dict[str, Any] = {"candidates": [candidate]}
        if finish is not None and (usage := _usage_of(steps)) is not None:
            found["usageMetadata"] = {
                "promptTokenCount": usage["promptTokens"],
                "candidatesTokenCount": usage["completionTokens"],
            }
        return _event(found)

    finish = "STOP"
    for step in steps:
        if isinstance(step, str):
            yield chunk({"text": step})
        elif (control := _control(step)) is not None:
            yield control
            return
        elif "call" in step:
            call = {"name": step["call"], "args": step.get("arguments", {})}
            if step.get("id"):
                call["id"] = step["id"]
            part: dict[str, Any] = {"functionCall": call}
            if "signature" in step:
                part["thoughtSignature"] = base64.b64encode(step["signature"].encode()).decode()
            yield chunk(part)
        elif "truncated" in step:
            finish = "MAX_TOKENS"
        elif "refusal" in step:
            finish = "SAFETY"
        elif "finish" in step:
            finish = step["finish"]
        elif "blocked" in step:
            yield _event({"promptFeedback": {"blockReason": step["blocked"]}})
            return
    yield chunk({"text": ""}, finish=finish)
