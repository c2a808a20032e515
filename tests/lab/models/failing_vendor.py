"""A vendor that answers as a test says, and what people read of each of its failures."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from attrs import define, field, frozen

KEY = "sk-secret-0123456789"


@frozen
class Answer:
    """An answer of the vendor.

    Attributes:
        said: of it, by the host.
        may_retry: whether the page offers that.
    """

    status: int
    body: str = ""
    kind: str = "application/json"
    headers: Mapping[str, str] = field(factory=dict)
    said: str = ""
    may_retry: bool = True


def refusal(status: int, message: str, said: str, **more: Any) -> Answer:
    """Return a refusal as vendors write it."""
    return Answer(status, json.dumps({"error": {"message": message}}), said=said, **more)


def here(text: str) -> Answer:
    """Return a whole answer."""
    delta = {"index": 0, "delta": {"content": text}, "finish_reason": "stop"}
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    events = f"data: {json.dumps({**chunk, 'choices': [delta]})}\n\ndata: [DONE]\n\n"
    return Answer(200, events, "text/event-stream")


FAILURES = {
    "401": refusal(
        401, f"Incorrect API key provided: {KEY}", "refuses the key (401). Set OPENAI_API_KEY"
    ),
    "402": refusal(
        402, "Insufficient Balance", "(402). It says: Insufficient Balance. Add credit there"
    ),
    "403": refusal(403, "Region not supported", "does not allow this (403)"),
    "404": refusal(404, "The model `m` does not exist", "has no model 'm' (404)"),
    "404 address": Answer(
        404, "Not Found", "text/plain", said="Correct the base URL (LLM_BASE_URL)"
    ),
    "413": refusal(413, "too large", "longer than the server at", may_retry=False),
    "context": refusal(
        400,
        "maximum context length is 8 tokens",
        "Begin a new chat, or set MAX_TOKEN_COUNT",
        may_retry=False,
    ),
    "quota": refusal(429, "You exceeded your current quota", "quota or the credit"),
    "429": refusal(
        429,
        "Slow down",
        "It says: Slow down. It asks to wait 600 s.",
        headers={"retry-after": "9999"},
    ),
    "500": refusal(500, "oops", "has an error of its own (500). It says: oops."),
    "502": Answer(
        502, "<html><title>Bad Gateway</title>", "text/html", said="It says: Bad Gateway."
    ),
    "page": Answer(200, "<html><title>Hi</title>", "text/html", said="There is a web page at"),
    "empty": Answer(200, "", "text/event-stream", said="answered with nothing"),
}

_NOWHERE = Answer(404, "404 page not found", "text/plain")


@define(eq=False)
class FailingVendor:
    """A server that speaks `/v1/chat/completions`.

    Attributes:
        answer: to every request from now on.
        asked: the messages of each request.
    """

    answer: Answer = field(factory=lambda: here("Here."))
    port: int = 0
    asked: list[list[Mapping[str, Any]]] = field(factory=list)

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a host that asks this server once."""
        return {
            "LLM_PROVIDER": "openai",
            "LLM_MODEL": "m",
            "LLM_BASE_URL": f"http://127.0.0.1:{self.port}/v1",
            "OPENAI_API_KEY": KEY,
            "FOUNDATION_RT_HOST__RETRY_ATTEMPTS": "0",
        }


@contextmanager
def failing_vendor() -> Iterator[FailingVendor]:
    """Run a vendor in a thread."""
    vendor = FailingVendor()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            vendor.asked.append(json.loads(self.rfile.read(length))["messages"])
            answer = vendor.answer if self.path.startswith("/v1/") else _NOWHERE
            self.send_response(answer.status)
            for name, value in {"content-type": answer.kind, **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body.encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        vendor.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield vendor
        server.shutdown()
        thread.join()
