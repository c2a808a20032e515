"""The page of an application: its token, and what else does not let anybody in."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from foundation_rt import PageAccess, Server, UsageError
from tests.lab.servers.asgi import Visit, visit

TOKEN = "t" * 43
KEY = "0123456789abcdef-key"
HOST = {"host": "127.0.0.1:3000"}


def make_server(**http: Any) -> Server:
    server = Server("test", config={"http": http, "logging": {"level": "error"}})

    async def show(scope: Any, receive: Any, send: Any) -> None:
        principal = scope["foundation_rt.principal"]
        subject = b"nobody" if principal is None else principal.subject.encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": subject})

    server.http_app(show, public=("/open", "/files/"), page_access=PageAccess(TOKEN))
    return server


async def get(app: Any, path: str = "/", method: str = "GET", **more: Any) -> Visit:
    headers = {**HOST, **more.pop("headers", {})}
    return await visit(app, method, path, headers, **more).finish()


@pytest.mark.rule("HTTP-43")
async def test_neither_a_cookie_nor_the_address_lets_anybody_in() -> None:
    app = make_server().asgi_app()
    for path in ("/", "/mcp"):
        assert (await get(app, path, query=f"token={TOKEN}")).status == 401
        for cookie in (f"token={TOKEN}", f"foundation_rt_page_3000={TOKEN}"):
            assert (await get(app, path, headers={"cookie": cookie})).status == 401
    found = await get(app)
    assert b"open the URL" in found.body and TOKEN.encode() not in found.body
    assert "set-cookie" not in (await get(app, headers={"x-api-key": TOKEN})).headers


@pytest.mark.rule("HTTP-47", "AUTH-01")
async def test_token_is_a_key_of_application_and_endpoint() -> None:
    app = make_server(api_keys=(f"alice:{KEY}",)).asgi_app()
    for key, subject in ((TOKEN, b"key:page"), (KEY, b"key:alice")):
        assert (await get(app, headers={"x-api-key": key})).body == subject
        found = await get(app, "/mcp", "POST", headers={"x-api-key": key}, body=b"{")
        assert found.status == 400  # it was read


@pytest.mark.rule("HTTP-46")
async def test_public_paths_need_no_credential_but_a_host_and_origin() -> None:
    app = make_server().asgi_app()
    for path in ("/open", "/files/a/b"):
        assert (await get(app, path)).body == b"nobody"
        # A browser sends what a proxy before the server has asked for.
        assert (await get(app, path, headers={"authorization": "Basic eDp5"})).body == b"nobody"
        assert (await get(app, path, headers={"origin": "http://evil.example"})).status == 403
        assert (await get(app, path, headers={"host": "evil.example"})).status == 421
    for path in ("/open/", "/opening", "/files"):
        assert (await get(app, path)).status == 401
    assert (await get(app, "/open", headers={"x-api-key": TOKEN})).body == b"key:page"


@pytest.mark.rule("HTTP-47")
async def test_without_authentication_there_is_no_token() -> None:
    app = make_server(no_auth=True).asgi_app()
    assert (await get(app, headers={"x-api-key": TOKEN})).body == b"nobody"


@pytest.mark.rule("HTTP-45")
def test_token_is_of_one_application_and_port_and_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def token() -> str:
        return PageAccess.of_user("chat", 3000).token

    first = token()
    file = tmp_path / "data" / "foundation-rt" / "page-key"
    assert token() == first and file.read_text().strip() not in first
    others = [PageAccess.of_user("dev", 3000), PageAccess.of_user("chat", 3001)]
    others += [PageAccess.of_user("chat", 0), PageAccess.of_user("chat", 0)]
    assert len({first, *(each.token for each in others)}) == 5
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in file.parent.iterdir()] == ["page-key"]
    file.chmod(0o644)
    second = token()
    assert second != first and file.stat().st_mode & 0o777 == 0o600
    file.write_text("short")
    assert token() not in (first, second)
    secret = tmp_path / "secret"
    secret.write_text("s" * 43)
    file.unlink()
    file.symlink_to(secret)
    with pytest.raises(UsageError, match="XDG_DATA_HOME"):
        token()
    configured = [PageAccess.of_user("chat", port, "ab" * 32).token for port in (1, 1, 2)]
    assert configured[0] == configured[1] != configured[2]
    assert os.listdir(file.parent) == ["page-key"]


@pytest.mark.rule("HTTP-45")
def test_processes_that_start_at_once_have_one_token(tmp_path: Path) -> None:
    code = "from foundation_rt import PageAccess; print(PageAccess.of_user('chat', 3000).token)"
    env = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    with ExitStack() as stack:
        starts = [
            subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE)
            for _ in range(4)
        ]
        processes = [stack.enter_context(each) for each in starts]
        assert len({each.communicate()[0] for each in processes}) == 1


def test_token_is_not_shown() -> None:
    assert TOKEN not in repr(PageAccess(TOKEN))
    assert PageAccess(TOKEN).url("http://h/") == f"http://h/#token={TOKEN}"
    with pytest.raises(UsageError, match="32 to 128"):
        PageAccess("short")
