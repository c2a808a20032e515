"""Mounted in another application, in a process that a host of its own serves (uvicorn)."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import httpx2
import pytest

from tests.lab.peers.raw_http import RawClient
from tests.lab.servers.http_server import serve_http
from tests.lab.servers.process import PATIENCE, ServerProcess, environment

APP = """
import socket, uvicorn
from foundation_rt import Server, ToolContext
from starlette.applications import Starlette
from starlette.routing import Mount

server = Server("mounted", config={"http": {"no_auth": True}})


@server.lifespan
async def life(server):
    server.runtime.logger.info("entered")
    yield {"books": 3}
    server.runtime.logger.info("the hook was left")


@server.tool
async def count(context: ToolContext) -> int:
    return context.state["books"]


tools = server.asgi_app()
app = Starlette(routes=[Mount("/tools", tools)], lifespan=tools.lifespan)

with socket.create_server(("127.0.0.1", 0)) as listener:
    server.runtime.logger.info("listening", {"port": listener.getsockname()[1]})
    config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])
"""


@pytest.mark.rule("HTTP-24", "HTTP-37", "OPS-20")
@pytest.mark.parametrize("listens", [False, True])
def test_the_hooks_are_left_when_the_host_is_told_to_stop(tmp_path: Path, listens: bool) -> None:
    path = tmp_path / "host.py"
    path.write_text(APP)
    with ServerProcess([sys.executable, str(path)], environment()) as process:
        port = process.record(message="listening")["port"]
        process.record(message="entered")
        with RawClient(f"http://127.0.0.1:{port}/tools/mcp") as client:
            assert client.fetch(client.call("count")).json["result"]["content"][0]["text"] == "3"
            if listens:
                listen = {"notifications": {"toolsListChanged": True}}
                client.send(client.request("subscriptions/listen", listen))
                client.read_until(b"acknowledged")
            process.signal(signal.SIGTERM)
            assert process.wait() == -signal.SIGTERM
        assert "the hook was left" in process.stderr


_PAGES = """
from foundation_rt import Server

server = Server("pages")


async def pages(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


server.http_app(pages)
"""


@pytest.mark.rule("AUTH-39", "AUTH-24")
@pytest.mark.parametrize(
    ("proxies", "secured"), [("127.0.0.0/8", ["https", "http, HTTPS"]), ("10.0.0.1", [])]
)
def test_trusted_proxy_says_what_came_over_https(proxies: str, secured: list[str]) -> None:
    with serve_http(_PAGES, settings={"http.trusted_proxies": proxies}) as served:
        for path in ("/healthz", "/page", "/mcp"):
            url = served.url.replace("/mcp", path)
            found = [
                sent
                for sent in ("https", "http, HTTPS", "https, http", "")
                if "strict-transport-security"
                in httpx2.get(url, headers={"X-Forwarded-Proto": sent}, timeout=PATIENCE).headers
            ]
            assert found == secured
