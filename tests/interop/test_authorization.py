"""Logins across programs, before npm's `oidc-provider`.

Our server is its own authorization server there, for clients of others; fastmcp's `OIDCProxy` is
one for ours: the command line, a program, the gateway and the chat host.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import AuthorizationCodeResult
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from foundation_rt.client import LoginRequest, MemoryTokenStore, OAuth, StdioServer, connect
from tests.lab.host.process import host_process
from tests.lab.login.browser import browser_of, walk
from tests.lab.login.client import CALLBACK
from tests.lab.login.identity_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    IdentityProviderFake,
    running_provider,
)
from tests.lab.login.server import serving
from tests.lab.programs import node, python_environment
from tests.lab.servers.http_server import free_port, serve_gateway
from tests.lab.servers.process import PATIENCE, command, environment
from tests.lab.waiting import block_until

HERE = Path(__file__).parent
PEERS = HERE / "peers"


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProviderFake]:
    """Run npm's identity provider; what is yielded has its URL alone."""
    node.install(HERE)
    words = [str(node.NODE), str(HERE / "oidc_provider.mjs"), CLIENT_ID, CLIENT_SECRET]
    with ended(subprocess.Popen(words, stdout=PIPE, text=True)) as process:
        assert process.stdout is not None
        yield IdentityProviderFake(process.stdout.readline().strip())


@pytest.fixture(scope="module")
def ours(provider: IdentityProviderFake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve, and yield the URL."""
    with serving(tmp_path_factory.mktemp("ours"), provider) as (person, _):
        yield f"{person.url}/mcp"


@pytest.fixture(scope="module")
def proxy(provider: IdentityProviderFake) -> Iterator[str]:
    """Run a server of fastmcp before the provider, and yield the URL."""
    port = str(free_port())
    client = (provider.url, CLIENT_ID, CLIENT_SECRET, port)
    words = [str(fastmcp()), str(PEERS / "oidc_proxy.py"), *client]
    with ended(subprocess.Popen(words, stderr=PIPE, text=True)) as process:
        assert process.stderr is not None
        while "running on" not in (line := process.stderr.readline()):
            assert line, "the server has ended"
        yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """End a process with the block."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def fastmcp() -> Path:
    """Return the Python that has fastmcp 4."""
    return python_environment.install(PEERS / "mcp-2.txt")


async def log_in(request: LoginRequest) -> str:
    """Be the browser of a person who agrees."""
    return await asyncio.to_thread(walk, request.url, request.redirect_uri)


# -- our server, and clients of others


@pytest.mark.rule("AUTHZ-02", "AUTHZ-10")
def test_fastmcp_logs_in(ours: str, tmp_path: Path) -> None:
    home = {**environment(), "HOME": str(tmp_path), **browser_of(tmp_path)}
    words = [str(fastmcp()), str(PEERS / "fastmcp_login.py"), ours]
    done = subprocess.run(words, env=home, capture_output=True, text=True, timeout=PATIENCE)
    assert "ann@x.org" in done.stdout, done.stderr


@pytest.mark.rule("AUTHZ-02", "AUTHZ-10")
async def test_mcp_remote_logs_in(ours: str, tmp_path: Path) -> None:
    program = node.install(HERE) / "mcp-remote" / "dist" / "proxy.js"
    home = {**browser_of(tmp_path), "HOME": str(tmp_path)}
    server = StdioServer(str(node.NODE), [str(program), ours, "--allow-http"], env=home)
    async with connect(server, timeout=PATIENCE, connect_timeout=PATIENCE) as client:
        assert "ann@x.org" in (await client.call("who")).text


class Storage:
    """Keeps what the official client keeps, in memory."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@pytest.mark.rule("AUTHZ-02", "AUTHZ-10")
async def test_official_client_logs_in(ours: str) -> None:
    ended: list[str] = []

    async def show(url: str) -> None:
        ended.append(await asyncio.to_thread(walk, url, CALLBACK))

    async def come_back() -> AuthorizationCodeResult:
        said = {name: each[0] for name, each in parse_qs(urlsplit(ended[-1]).query).items()}
        return AuthorizationCodeResult(**said)

    metadata = OAuthClientMetadata(client_name="official", redirect_uris=[CALLBACK])  # type: ignore[list-item]
    auth = OAuthClientProvider(ours, metadata, Storage(), show, come_back)
    async with (
        httpx2.AsyncClient(auth=auth, timeout=60) as sender,
        streamable_http_client(ours, http_client=sender) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        answer = await session.call_tool("who", {})
        assert "ann@x.org" in str(answer.content[0].text)  # type: ignore[union-attr]
    assert len(ended) == 1


@pytest.mark.rule("AUTHZ-02", "AUTHZ-10")
def test_typescript_client_logs_in(ours: str) -> None:
    node.install(HERE)
    words = [str(node.NODE), str(HERE / "typescript_login.mjs"), ours, CALLBACK]
    with subprocess.Popen(words, stdin=PIPE, stdout=PIPE, text=True) as client:
        assert client.stdin is not None and client.stdout is not None
        page = client.stdout.readline().strip()
        client.stdin.write(walk(page, CALLBACK) + "\n")
        client.stdin.flush()
        assert "ann@x.org" in client.stdout.readline()


@pytest.mark.rule("AUTHZ-02", "AUTHZ-10", "AUTHZ-29")
def test_our_client_logs_in_and_refreshes(tmp_path: Path) -> None:
    with running_provider() as provider, serving(tmp_path, provider) as (person, process):
        asyncio.run(logs_in_and_refreshes(f"{person.url}/mcp", "change", scopes=("write",)))
        process.record(eventType="TOKEN_REFRESHED")
        assert len(provider.used) == 1


async def logs_in_and_refreshes(url: str, tool: str, **described: Any) -> None:
    """Hold that one login serves calls before and after the end of its token."""
    shown = []

    async def login(request: LoginRequest) -> str:
        shown.append(request.url)
        return await log_in(request)

    store = MemoryTokenStore()
    description = OAuth(login=login, store=store, **described)
    async with connect(url, auth=description) as client:
        before = (await client.call(tool)).text
    # The token ends before the next call.
    [key] = [each for each in store._entries if "refresh_token" in store._entries[each]]
    used = store._entries[key]["refresh_token"]
    store._entries[key]["refresh_at"] = store._entries[key]["expires_at"] = 1.0
    async with connect(url, auth=description) as client:
        assert (await client.call(tool)).text == before
    assert len(shown) == 1
    assert store._entries[key]["refresh_token"] != used


# -- the server of others, and our clients


@pytest.mark.rule("CAUTH-20", "CAUTH-31")
async def test_program_logs_in_at_fastmcp_and_refreshes(proxy: str) -> None:
    await logs_in_and_refreshes(proxy, "who")


@pytest.mark.rule("CLI-101", "CLI-104", "GATE-61")
async def test_command_line_logs_in_at_fastmcp_and_the_gateway_uses_it(
    proxy: str, tmp_path: Path
) -> None:
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), **browser_of(tmp_path)}
    for words in (("login", proxy), ("call", proxy, "who")):
        done = await asyncio.to_thread(
            subprocess.run,
            command(*words),
            env={**environment(), **home},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout == "person-1\n"
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"it": {"url": proxy, "oauth": {}}}}))
    with serve_gateway(str(file), env=home) as gateway:
        async with connect(gateway.url, require=()) as client:
            assert (await client.call("it__who")).text == "person-1"


@pytest.mark.rule("HOST-66")
def test_chat_host_logs_in_at_fastmcp(proxy: str, tmp_path: Path) -> None:
    entry = {"url": proxy, "oauth": {}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"it": entry}}))
    words = ("--servers", "mcp.json", "--model", "rules")
    with host_process(tmp_path, *words, env={"XDG_DATA_HOME": str(tmp_path)}) as host:
        base, _, token = host.url.partition("#token=")
        with httpx2.Client(base_url=base, headers={"X-API-Key": token}, timeout=PATIENCE) as client:

            def server_in(state: str) -> dict[str, Any]:
                answer = block_until(
                    lambda: client.get("/api/status").json(),
                    f"the server is {state}",
                    lambda status: [each["state"] for each in status["servers"]] == [state],
                )
                return dict(answer["servers"][0])

            server_in("needs login")
            begun = client.post("/api/login", json={"server": "it"}).json()
            walk(begun["login"]["page"])
            assert [tool["name"] for tool in server_in("ready")["tools"]] == ["who"]
