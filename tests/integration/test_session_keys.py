"""What handlers know of their client, in real processes: the ends of sessions, and headers."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import Any

import orjson
import pytest

from tests.lab.peers.raw_http import RawClient
from tests.lab.servers.http_server import serve_workers
from tests.lab.servers.process import ServerProcess, serve

APP = """
import asyncio, sys
from foundation_rt import Server, ToolContext

server = Server("sessions", request_headers=["X-User"])

def tell(what):
    print(what, file=sys.stderr, flush=True)

@server.lifespan
async def life(server):
    yield
    tell("+left")

server.on_session_end(lambda key: tell(f"+ended {key}"))

@server.tool
def key(ctx: ToolContext) -> list:
    return [ctx.session_key, dict(ctx.headers)]

@server.tool
async def wait(ctx: ToolContext) -> None:
    tell("+waiting")
    try:
        await ctx.abort_signal.wait()
    finally:
        tell("+handler")
"""


def told(server: ServerProcess) -> list[str]:
    return [line[1:] for line in server.stderr.splitlines() if line.startswith("+")]


@pytest.mark.rule("LIFE-16", "LIFE-18", "HEAD-16")
@pytest.mark.parametrize("end", ["end of file", "output closed", "SIGTERM"])
def test_end_of_a_session_over_stdio_is_reported_between_handlers_and_lifespan(end: str) -> None:
    with serve(APP, {"server.eof_grace_ms": 20}) as server:
        key, headers = server.call("key")
        assert headers == {}
        server.start("wait")
        server.wait_until(lambda: "waiting" in told(server), "the handler")
        if end == "end of file":
            server.finish()
        elif end == "output closed":
            server.close_output()
            server.wait()
        else:
            server.signal(signal.SIGTERM)
            server.close_input()
            server.wait()
        assert told(server) == ["waiting", "handler", f"ended {key}", "left"]


class Session:
    """A session over HTTP, on a connection of its own."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.headers = client.begin_session()
        self.id = self.headers["Mcp-Session-Id"]

    def key(self, headers: dict[str, str]) -> Any:
        params = {"name": "key", "arguments": {}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = self.client.fetch(self.client.post(call, self.headers | headers)).json
        return orjson.loads(answer["result"]["content"][0]["text"])


@pytest.mark.rule("LIFE-16", "LIFE-18", "HEAD-16", "HEAD-19")
def test_workers_report_the_ends_of_their_sessions_over_http() -> None:
    with serve_workers(APP, 2) as (process, url), ExitStack() as stack:
        sessions = [Session(stack.enter_context(RawClient(url))) for _ in range(8)]
        sent = [{"X-User": f"user-{each}", "X-Other": "y"} for each in range(8)]
        seen = [each.key(headers) for each, headers in zip(sessions, sent, strict=True)]
        assert [headers for _, headers in seen] == [{"x-user": f"user-{each}"} for each in range(8)]
        keys = [key for key, _ in seen]
        assert [each.key({}) for each in sessions] == [[key, {}] for key in keys]
        ended = sessions[0]
        client = ended.client
        lines = f"Mcp-Session-Id: {ended.id}\r\nContent-Length: 0\r\n"
        assert client.fetch(client.head("DELETE", lines)).status == 204
        process.wait_until(lambda: told(process) == [f"ended {keys[0]}"], "the end of a session")
        process.signal(signal.SIGTERM)
        assert process.wait() == 143
        reported = told(process)
        assert sorted(each for each in reported if each != "left") == sorted(
            f"ended {key}" for key in keys
        )
        assert reported.count("left") == 2
        assert not any(session.id in process.stderr for session in sessions)
        assert "user-" not in process.stderr
