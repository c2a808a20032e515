"""A server over stdio whose tools have apps, as the extension says, and that may misbehave.

It answers what the tests of pages need, and nothing else: an app says how it was opened, and
scripts of a test run in its frame.
"""

from __future__ import annotations

import json
import sys
from typing import Any

APP = """<!doctype html><meta charset="utf-8"><style>:root { color-scheme: light dark }
body { margin: 12px; font: 15px system-ui } table { border-collapse: collapse }
td, th { padding: 4px 14px 4px 0; text-align: left } button { font: inherit }</style>
<h2>Orders</h2><table id="rows"></table>
<p><button id="refund">Refund 3</button> <span id="said"></span></p><pre id="seen"></pre><script>
const seen = []; window.seen = seen; window.answers = {}; let next = 1;
const post = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
window.ask = (method, params) => new Promise((resolve) => {
  const id = next++; answers[id] = resolve; post({ id, method, params }); });
const look = ({ theme }) => { if (theme) document.documentElement.style.colorScheme = theme };
addEventListener("message", ({ data }) => {
  seen.push(data);
  if (data.method === "ui/notifications/host-context-changed") look(data.params);
  if (data.method === "ui/resource-teardown") post({ id: data.id, result: {} });
  if (data.id !== undefined && !data.method) answers[data.id]?.(data);
  if (data.method === "ui/notifications/tool-result")
    rows.innerHTML = (data.params.structuredContent?.rows ?? []).map((row) =>
      `<tr><td>${row.id}</td><td>${row.what}</td><td>${row.sum}</td></tr>`).join("");
  post({ method: "ui/notifications/size-changed",
    params: { height: document.documentElement.getBoundingClientRect().height } });
});
refund.onclick = async () => {
  const { result, error } = await ask("tools/call", { name: "refund", arguments: { id: 3 } });
  said.textContent = error ? error.message : result.content[0].text; };
ask("ui/initialize", { protocolVersion: "2026-01-26", appInfo: { name: "orders", version: "1" },
  appCapabilities: {} }).then(({ result }) => {
    window.opened = result; look(result.hostContext);
    post({ method: "ui/notifications/initialized" }); });
</script>"""

ROWS = [
    {"id": 1, "what": "tea", "sum": 2.5},
    {"id": 3, "what": "a book", "sum": 19.0},
]
WANTED = [
    "*",
    "https:",
    "http://127.0.0.1:9",
    "https://*.com",
    "https://localhost",
    "https://[::1]",
]
CSP = {
    "connectDomains": [*WANTED, "wss://feed.example.com", "https://api.example.com:8443"],
    "resourceDomains": [*WANTED, "https://*.example.com/", "'unsafe-eval'", "wss://x.example.com"],
    "frameDomains": ["https://video.example.com; script-src *"],
}
READ_ONLY = {"readOnlyHint": True}


def tool(name: str, ui: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a definition."""
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    return {"name": name, "description": name, "inputSchema": schema, "_meta": {"ui": ui}, **more}


TOOLS = [
    tool("refund", {"visibility": ["app"]}),
    tool("orders", {"resourceUri": "ui://shop/orders"}, annotations=READ_ONLY),
    tool("wide", {"resourceUri": "ui://shop/wide"}, annotations=READ_ONLY),
    tool("large", {"resourceUri": "ui://shop/large"}, annotations=READ_ONLY),
    tool("wrong", {"resourceUri": "ui://shop/wrong"}, annotations=READ_ONLY),
    tool("busy", {"resourceUri": "ui://shop/busy"}, annotations=READ_ONLY),
    tool("count", {"visibility": ["app"]}, annotations=READ_ONLY),
    tool("secret", {"visibility": ["model"]}, annotations=READ_ONLY),
]
PAGES = {
    "ui://shop/orders": APP,
    "ui://shop/wide": APP,
    "ui://shop/large": "x" * 50_000_000,
    "ui://shop/busy": "<script>for (;;);</script>",
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request."""
    if method == "initialize":
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": {"name": "shop", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "resources/list":
        return {"resources": [{"uri": uri, "name": uri} for uri in (*PAGES, "ui://shop/wrong")]}
    if method == "resources/templates/list":
        return {"resourceTemplates": []}
    if method == "tools/call":
        text = f"{params['name']} {json.dumps(params.get('arguments', {}))}"
        structured = {"rows": ROWS} if params["name"] in ("orders", "wide") else {}
        return {"content": [{"type": "text", "text": text}], "structuredContent": structured}
    if method == "resources/read":
        uri = params["uri"]
        if uri == "ui://shop/wrong":
            return {"contents": [{"uri": uri, "mimeType": "text/html", "text": APP}]}
        found = {"uri": uri, "mimeType": "text/html;profile=mcp-app", "text": PAGES[uri]}
        meta = {"_meta": {"ui": {"csp": CSP}}} if uri == "ui://shop/wide" else {}
        return {"contents": [found | meta]}
    return {}


def main() -> None:
    """Answer requests, a line each."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            reply["result"] = answer(message["method"], message.get("params") or {})
        except KeyError as error:
            reply["error"] = {"code": -32602, "message": f"unknown: {error}"}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
