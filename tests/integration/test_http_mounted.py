"""Mounted in another application, in a process that a host of its own serves (uvicorn)."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.support.process import ServerProcess, environment
from tests.support.raw_http import RawClient

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
