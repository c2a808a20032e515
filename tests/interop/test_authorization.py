"""Clients that log in at our authorization server: ours, and the official one."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from subprocess import PIPE
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import AuthorizationCodeResult
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from foundation_rt.client import LoginRequest, MemoryTokenStore, OAuth, connect
from tests.support import node
from tests.support.identity_provider import running_provider
from tests.support.login_client import CALLBACK, LoginClient
from tests.support.login_server import serving

HERE = Path(__file__).parent


def agree(person: LoginClient, url: str) -> str:
    """Agree to everything at a page; return where the browser ends."""
    page = person.browser.get(url)
    return str(person.come_back(person.answer(page)).headers["location"])


@pytest.mark.rule("AUTHZ-02", "AUTHZ-10", "AUTHZ-29")
def test_our_client_logs_in_and_refreshes(tmp_path: Path) -> None:
    with running_provider() as provider, serving(tmp_path, provider) as (person, process):
        shown = []

        async def login(request: LoginRequest) -> str:
            shown.append(request.url)
            return await asyncio.to_thread(agree, person, request.url)

        async def main() -> None:
            store = MemoryTokenStore()
            described = OAuth(login=login, store=store, scopes=("write",))
            async with connect(f"{person.url}/mcp", auth=described) as client:
                assert (await client.call("change")).text == "changed"
            # The token ends before the next call.
            [key] = [each for each in store._entries if "refresh_token" in store._entries[each]]
            store._entries[key]["refresh_at"] = store._entries[key]["expires_at"] = 1.0
            async with connect(f"{person.url}/mcp", auth=described) as client:
                assert (await client.call("change")).text == "changed"

        asyncio.run(main())
        assert len(shown) == 1
        process.record(eventType="TOKEN_REFRESHED")
        assert len(provider.used) == 1


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
def test_official_client_logs_in(tmp_path: Path) -> None:
    with running_provider() as provider, serving(tmp_path, provider) as (person, _):
        ended: list[str] = []

        async def show(url: str) -> None:
            ended.append(await asyncio.to_thread(agree, person, url))

        async def come_back() -> AuthorizationCodeResult:
            said = {name: each[0] for name, each in parse_qs(urlsplit(ended[-1]).query).items()}
            return AuthorizationCodeResult(**said)

        async def main() -> str:
            metadata = OAuthClientMetadata(client_name="official", redirect_uris=[CALLBACK])  # type: ignore[list-item]
            auth = OAuthClientProvider(f"{person.url}/mcp", metadata, Storage(), show, come_back)
            async with (
                httpx2.AsyncClient(auth=auth, timeout=60) as sender,
                streamable_http_client(f"{person.url}/mcp", http_client=sender) as streams,
                ClientSession(streams[0], streams[1]) as session,
            ):
                await session.initialize()
                answer = await session.call_tool("who", {})
                return str(answer.content[0].text)  # type: ignore[union-attr]

        assert "ann@x.org" in asyncio.run(main())
        assert len(ended) == 1


@pytest.mark.rule("AUTHZ-02", "AUTHZ-10")
def test_typescript_client_logs_in(tmp_path: Path) -> None:
    node.install(HERE)
    with running_provider() as provider, serving(tmp_path, provider) as (person, _):
        words = [str(node.NODE), str(HERE / "typescript_login.mjs"), f"{person.url}/mcp", CALLBACK]
        with subprocess.Popen(words, stdin=PIPE, stdout=PIPE, text=True) as client:
            assert client.stdin is not None and client.stdout is not None
            page = client.stdout.readline().strip()
            client.stdin.write(agree(person, page) + "\n")
            client.stdin.flush()
            assert "ann@x.org" in client.stdout.readline()
