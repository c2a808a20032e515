"""Calls of tools over HTTP, one request each, with the headers that a test gives."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from tests.lab.peers.raw_http import META, REVISION

PATIENCE = 60.0


def call(
    url: str, name: str = "who", arguments: dict[str, Any] | None = None, **headers: str
) -> httpx2.Response:
    """Call a tool in the stateless mode; return the response."""
    params = {"name": name, "arguments": arguments or {}, "_meta": META}
    head = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": REVISION,
        "mcp-method": "tools/call",
        "mcp-name": name,
        **headers,
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return httpx2.post(url, json=body, headers=head, timeout=PATIENCE, verify=False)


def text_of(answer: httpx2.Response) -> Any:
    """Return the text of a result, which comes as an event if it took 100 ms (HTTP-07)."""
    return json.loads(answer.text.rpartition("data: ")[2])["result"]["content"][0]["text"]
